import { expect, test } from "vitest";
import { readPresence } from "../api/presence";
import { marksOf } from "./away";

const SECOND = 1_000_000_000n;

test("stretches that are not here are marked within the data, neighbours of one edge as one", () => {
  const presence = readPresence({
    stream: "s",
    from: "0",
    to: String(10n * SECOND),
    every: String(SECOND),
    lines: [{ level: 3, cells: "eehheeeeee", missing_bytes: 1 }],
    sources: [
      { from: "0", to: String(6n * SECOND), edge: "north", is_connected: true, heard: null, pins: [] },
      { from: String(6n * SECOND), to: String(10n * SECOND), edge: "south", is_connected: false, heard: "0", pins: [] },
    ],
  });
  if (!presence) throw new Error("not read");
  const marks = marksOf(presence, { from: SECOND, to: 9n * SECOND }, "utc", 60n * SECOND);
  expect(marks.map(({ from, to, isInReach }) => [from / SECOND, to / SECOND, isInReach])).toEqual([
    [1n, 2n, true],
    [4n, 6n, true],
    [6n, 9n, false],
  ]);
  expect(marks[2]?.words).toBe("south has not been reachable since 1970-01-01 00:00:00 (1 min)");
});
