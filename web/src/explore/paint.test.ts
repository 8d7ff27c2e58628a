import { expect, test } from "vitest";
import { clipped } from "./paint";

const line = (x: number[], mean: number[], start: number[]): Parameters<typeof clipped>[0] => ({
  length: x.length,
  x: Float64Array.from(x),
  mean: Float64Array.from(mean),
  min: Float64Array.from(mean, (m) => m - 1),
  max: Float64Array.from(mean, (m) => m + 1),
  count: Float64Array.from(x, () => 1),
  start: Uint8Array.from(start),
});

test("a line between events far outside is cut where it enters and leaves", () => {
  const cut = clipped(line([-1e12, 3e12], [0, 4], [1, 0]), -50, 1050, false);
  expect(Array.from(cut.x)).toEqual([-50, 1050]);
  expect(cut.mean[0]).toBeCloseTo(1, 6);
  expect(cut.mean[1]).toBeCloseTo(1, 6);
  expect(cut.max[0]).toBeCloseTo(2, 6);
});

test("steps keep their heights, points inside and gaps stay as they are", () => {
  expect(Array.from(clipped(line([-1e12, 3e12], [0, 1], [1, 0]), -50, 1050, true).mean)).toEqual([0, 1]);
  const inside = line([0, 500, 1000], [1, 2, 3], [1, 0, 0]);
  expect(clipped(inside, -50, 1050, false)).toBe(inside);
  const gap = clipped(line([-1e12, 500], [1, 2], [1, 1]), -50, 1050, false);
  expect(Array.from(gap.x)).toEqual([-1e12, 500]);
});
