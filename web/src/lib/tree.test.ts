import { expect, test } from "vitest";
import type { StreamInfo } from "../api/streams";
import { keyOfRow, listed, rowsOf, type Listed } from "./tree";

const info = (table: string, id: number, ...fields: string[]): StreamInfo => ({
  stream: `${table},id=${id}`,
  table,
  tags: [["id", String(id)]],
  first: undefined,
  last: undefined,
  events: id,
  fields: fields.map((name) => ({ name, type: "f64", last: undefined })),
});

const rows = (lists: readonly Listed[], words: readonly string[], open: readonly string[]): string[] =>
  rowsOf(lists, {
    words,
    isTableOpen: (table) => open.includes(table),
    isStreamOpen: ({ stream }) => open.includes(stream),
  }).map(keyOfRow);

test("streams stand under their tables, fields under their streams, each when it is open", () => {
  const lists = listed(
    [
      { table: "a", streams: 1 },
      { table: "b", streams: 900 },
    ],
    [info("a", 1, "x", "y"), info("b", 1, "z")],
  );
  expect(rows(lists, [], [])).toEqual(["table a", "table b"]);
  expect(rows(lists, [], ["a", "b", "a,id=1"])).toEqual([
    "table a",
    "stream a,id=1",
    "field a,id=1.x",
    "field a,id=1.y",
    "table b",
    "stream b,id=1",
    "more b",
  ]);
  expect(rows(lists, ["y"], ["a", "a,id=1"])).toEqual(["table a", "stream a,id=1", "field a,id=1.y", "table b"]);
});

test("a fresh look at the beginning of a table keeps what was fetched behind it, unless it has moved", () => {
  const tables = [{ table: "b", streams: 4 }];
  const before = listed(tables, [info("b", 1), info("b", 2), info("b", 3)]);
  const fresh = { ...info("b", 1), events: 77 };
  const [kept] = listed(tables, [fresh], before);
  expect(kept?.streams.map((each) => each.events)).toEqual([77, 2, 3]);
  const [moved] = listed(tables, [info("b", 0), info("b", 1)], before);
  expect(moved?.streams.map((each) => each.stream)).toEqual(["b,id=0", "b,id=1"]);
});
