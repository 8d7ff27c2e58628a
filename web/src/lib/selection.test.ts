import { expect, test } from "vitest";
import { selectionOf } from "./selection";

test("channels are asked for by table, by the tags that all of its streams have", () => {
  const all = selectionOf([
    { stream: "pump,id=a,site=1", field: "flow" },
    { stream: "pump,id=b,site=1", field: "flow" },
    { stream: "pump,id=b,site=1", field: "on" },
    { stream: "room", field: "t" },
  ]);
  expect(all.map((each) => [each.table, each.tags, each.fields, [...each.streams]])).toEqual([
    [
      "pump",
      [
        ["id", "a"],
        ["site", "1"],
        ["id", "b"],
      ],
      ["flow", "on"],
      ["pump,id=a,site=1", "pump,id=b,site=1"],
    ],
    ["room", [], ["t"], ["room"]],
  ]);
  // A tag that one of them lacks would leave that one out.
  const [mixed] = selectionOf([
    { stream: "pump,id=a", field: "x" },
    { stream: "pump,id=b,site=2", field: "x" },
  ]);
  expect(mixed?.tags).toEqual([
    ["id", "a"],
    ["id", "b"],
  ]);
  expect(selectionOf([])).toEqual([]);
});
