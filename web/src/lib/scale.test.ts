import { expect, test } from "vitest";
import { axisLabels, eased, roomy, valueTicks, type Range } from "./scale";

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

test("labels of marks differ, whatever their size", () => {
  expect(axisLabels([25, 50, 75])).toEqual(["25", "50", "75"]);
  expect(axisLabels([-0.5, 0, 0.5])).toEqual(["−0.5", "0.0", "0.5"]);
  expect(axisLabels([0, 0.25])).toEqual(["0.00", "0.25"]);
  expect(axisLabels([2e6, 4e6, 6e6])).toEqual(["2e6", "4e6", "6e6"]);
  expect(axisLabels([-2e-9, 0, 2e-9])).toEqual(["−2e−9", "0", "2e−9"]);
  expect(axisLabels([1_716_548_400_000, 1_716_548_450_000, 1_716_548_500_000])).toEqual([
    "1.717e12",
    "+50000",
    "+100000",
  ]);
  for (const [low, step] of [
    [1e15, 0.5],
    [-1e9, 1],
    [1e-12, 1e-16],
    [123456.5, 0.0001],
  ] as const) {
    const labels = axisLabels([0, 1, 2, 3].map((k) => low + k * step));
    expect(new Set(labels).size, labels.join(" ")).toBe(4);
    for (const label of labels) expect(label.length, label).toBeLessThanOrEqual(11);
  }
});
