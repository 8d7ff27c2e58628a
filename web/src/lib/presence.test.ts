import { describe, expect, test } from "vitest";
import { readPresence, type Presence } from "../api/presence";
import { cellWords, lineWords, runsOf, spanOfCells, whyWords } from "./presence";

const MINUTE = 60_000_000_000n;

const body = {
  stream: "pump,id=a",
  from: "0",
  to: String(10n * MINUTE),
  every: String(3n * MINUTE),
  lines: [
    { level: null, cells: "hoee", missing_bytes: 51_200 },
    { level: 8, cells: "hhhh", missing_bytes: 0 },
  ],
  sources: [
    { from: "0", to: String(9n * MINUTE), edge: "north", state: "current", is_connected: true, want: "full", pins: [] },
    {
      from: String(9n * MINUTE),
      to: String(10n * MINUTE),
      edge: "south",
      state: "offline",
      is_connected: false,
      heard: String(20n * MINUTE),
      want: { summaries: 6 },
      rule: 2,
      pins: [{ from: "0", to: String(MINUTE), until: null }],
    },
  ],
};

function presence(): Presence {
  const read = readPresence(body);
  if (!read) throw new Error("not read");
  return read;
}

describe("a map of what is here", () => {
  test("is read, and what is no map is not", () => {
    const map = presence();
    expect(map.lines.map((line) => line.level)).toEqual([undefined, 8]);
    expect(map.sources.map((source) => source.want)).toEqual(["full", 6]);
    expect(readPresence({ ...body, every: "0" })).toBeUndefined();
    expect(readPresence({ stream: 3 })).toBeUndefined();
    expect(readPresence(null)).toBeUndefined();
  });

  test("joins neighbours, and tells who can be asked from who cannot", () => {
    const map = presence();
    const [rows, level] = map.lines;
    if (!rows || !level) throw new Error("no lines");
    expect(runsOf(map, rows).map(({ cell, first, end }) => [cell, first, end])).toEqual([
      ["here", 0, 1],
      ["older", 1, 2],
      ["elsewhere", 2, 3],
      ["away", 3, 4],
    ]);
    expect(runsOf(map, level)).toEqual([{ cell: "here", first: 0, end: 4 }]);
    // The last cell is narrower.
    expect(spanOfCells(map, 3, 4)).toEqual({ from: 9n * MINUTE, to: 10n * MINUTE });
  });

  test("says since when something cannot be reached, and why so much is here", () => {
    const map = presence();
    const [rows] = map.lines;
    const [north, south] = map.sources;
    if (!rows || !north || !south) throw new Error("no lines");
    const words = (k: number): string => cellWords(map, rows, k, 25n * MINUTE, "utc");
    expect(words(0)).toBe("here");
    expect(words(2)).toBe("not here: north has it and is connected");
    expect(words(3)).toBe("not here: south has not been reachable since 1970-01-01 00:20:00 (5 min)");
    expect(whyWords(north, "utc")).toEqual(["all rows are subscribed: subscription to north"]);
    expect(whyWords(south, "utc")).toEqual([
      "buckets from 1.07 min on are subscribed: rule 2 of south",
      "pinned: all rows from 1970-01-01 00:00:00 to 1970-01-01 00:01:00",
      "other data here was fetched for earlier queries",
    ]);
    expect(lineWords(undefined)).toBe("rows");
    expect(lineWords(0)).toBe("1 s");
  });
});
