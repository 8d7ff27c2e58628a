import { expect, test } from "vitest";
import { eased, roomy, valueTicks, type Range } from "./scale";

test("a scale has room, also for one value", () => {
  expect(roomy([0, 100])).toEqual([-6, 106]);
  expect(roomy([5, 5])).toEqual([4.75, 5.25]);
  expect(roomy([0, 0])).toEqual([-1, 1]);
});

test("easing arrives, and does not crawl over orders of magnitude", () => {
  let now: Range = [0, 10];
  const goal: Range = [2, 6];
  let frames = 0;
  while (now !== goal && frames++ < 200) now = eased(now, goal, 16);
  expect(now).toBe(goal);
  expect(frames).toBeGreaterThan(5);
  expect(eased([0, 1], [0, 1e6], 16)).toEqual([0, 1e6]);
  expect(eased(undefined, goal, 16)).toBe(goal);
});

test("marks are round and few", () => {
  expect(valueTicks([0.4, 10.2], 5)).toEqual({ ticks: [2, 4, 6, 8, 10], decimals: 0 });
  expect(valueTicks([20.11, 20.19], 4).ticks.map((t) => t.toFixed(2))).toEqual(["20.12", "20.14", "20.16", "20.18"]);
  expect(valueTicks([20.11, 20.19], 4).decimals).toBe(2);
  expect(valueTicks([5, 103], 4.5)).toEqual({ ticks: [25, 50, 75, 100], decimals: 0 });
  expect(valueTicks([0, 1], 4)).toEqual({ ticks: [0, 0.25, 0.5, 0.75, 1], decimals: 2 });
  expect(valueTicks([3, 3], 4).ticks).toEqual([3]);
  for (const size of [1e-12, 1, 1e15]) expect(valueTicks([0, size], 6).ticks.length).toBeLessThanOrEqual(7);
});
