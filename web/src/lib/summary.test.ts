import { expect, test } from "vitest";
import type { Points } from "./compose";
import { summaryOf } from "./summary";

test("a legend counts what is in view, each event once", () => {
  const column = (...values: number[]): Float64Array => Float64Array.from(values);
  const points: Points = {
    length: 4,
    x: column(-5, 10, 20, 130),
    mean: column(100, 1, 4, 100),
    min: column(100, 0, 4, 100),
    max: column(100, 3, 5, 100),
    count: column(1, 3, 1, 1),
    start: new Uint8Array(4),
    covered: 1,
    sharp: true,
    range: [0, 5],
  };
  expect(summaryOf(points, 100)).toEqual({ last: 4, min: 0, mean: 7 / 4, max: 5 });
  expect(summaryOf(points, 5)).toBeUndefined();
  expect(summaryOf(undefined, 5)).toBeUndefined();
});
