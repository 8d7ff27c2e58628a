import { describe, expect, test } from "vitest";
import type { Answer } from "../api/sql";
import { isOf, isPattern, marksOfAnswer, nextMark } from "./marks";

const answer: Answer = {
  columns: [
    { name: "sym", type: "string" },
    { name: "begin", type: "time" },
    { name: "gain", type: "f64" },
    { name: "finish", type: "time" },
  ],
  rows: [
    ["b", "2024-05-01T00:00:09Z", 2, "2024-05-01T00:00:10Z"],
    ["a", "2024-05-01T00:00:00.5Z", null, "2024-05-01T00:00:04Z"],
    ["a", null, 1, null],
  ],
  more: false,
};

describe("marks of an answer", () => {
  test("reach from the first of a row's times to its last, in order", () => {
    const marks = marksOfAnswer(answer, "Matches");
    expect(marks?.all.map(({ from, to, text }) => [from, to, text])).toEqual([
      [1_714_521_600_500_000_000n, 1_714_521_604_000_000_000n, "sym a, gain –"],
      [1_714_521_609_000_000_000n, 1_714_521_610_000_000_000n, "sym b, gain 2"],
    ]);
    expect(marksOfAnswer({ ...answer, columns: [], rows: [] }, "")).toBeUndefined();
  });

  test("are of the streams whose tags the row does not contradict", () => {
    const [first] = marksOfAnswer(answer, "")?.all ?? [];
    if (!first) throw new Error("no mark");
    expect(isOf(first, "ticks,sym=a")).toBe(true);
    expect(isOf(first, "ticks,sym=b")).toBe(false);
    // Columns that are no tags of a stream say nothing of it.
    expect(isOf(first, "room,site=1")).toBe(true);
    expect(isOf({ ...first, stream: "room" }, "room,site=1")).toBe(false);
  });

  test("are gone through in both directions", () => {
    const all = marksOfAnswer(answer, "")?.all ?? [];
    expect(nextMark(all, 1_714_521_605_000_000_000n, 1)).toBe(1);
    expect(nextMark(all, 1_714_521_605_000_000_000n, -1)).toBe(0);
    expect(nextMark(all, 0n, -1)).toBeUndefined();
    expect(nextMark(all, 1_814_521_605_000_000_000n, 1)).toBeUndefined();
    expect(isPattern("select 1 from t match_recognize (…)")).toBe(true);
    expect(isPattern("select matched")).toBe(false);
  });
});
