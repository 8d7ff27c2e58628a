import { describe, expect, test } from "vitest";
import { DAY, INSTANT_MAX, INSTANT_MIN, type Span } from "./time";
import { fitted, fractionOf, instantAt, isClose, panned, pinched, towards, width, WIDTH_MIN, zoomed } from "./view";

const decade: Span = { from: 1_400_000_000_000_000_000n, to: 1_400_000_000_000_000_000n + 3_652n * DAY };

describe("zooming", () => {
  test("keeps the instant under the pointer in its place, over eleven orders of magnitude", () => {
    for (const anchor of [0, 0.123, 0.5, 0.999]) {
      let view = decade;
      const fixed = instantAt(view, anchor);
      while (width(view) > 1e7) view = zoomed(view, 0.8, anchor);
      expect(Math.abs(fractionOf(view, fixed) - anchor)).toBeLessThan(0.002);
      expect(width(decade) / width(view)).toBeGreaterThan(1e10);
    }
  });

  test("ends at a microsecond, and at all there is", () => {
    let view = decade;
    for (let i = 0; i < 300; i++) view = zoomed(view, 0.5, 0.3);
    expect(view.to - view.from).toBe(WIDTH_MIN);
    for (let i = 0; i < 300; i++) view = zoomed(view, 3, 0.3);
    expect(view.from).toBeGreaterThanOrEqual(INSTANT_MIN);
    expect(view.to).toBeLessThanOrEqual(INSTANT_MAX);
    expect(width(view)).toBeGreaterThan(1.8e19);
  });
});

test("panning keeps the width, also at the ends of time", () => {
  const moved = panned(decade, 0.25);
  expect(moved.to - moved.from).toBe(decade.to - decade.from);
  let view = decade;
  for (let i = 0; i < 300; i++) view = panned(view, 1);
  expect(view).toEqual({ from: INSTANT_MAX - (decade.to - decade.from), to: INSTANT_MAX });
});

test("a pinch brings two instants under two fingers", () => {
  const a = instantAt(decade, 0.4);
  const b = instantAt(decade, 0.6);
  const view = pinched(a, b, 0.1, 0.8);
  expect(view).not.toBeNull();
  if (!view) return;
  expect(fractionOf(view, a)).toBeCloseTo(0.1, 6);
  expect(fractionOf(view, b)).toBeCloseTo(0.8, 6);
  expect(pinched(a, b, 0.5, 0.5)).toBeNull();
  expect(pinched(a, b, 0.8, 0.1)).toBeNull();
});

test("the way from one view to another arrives, and keeps a shared point in place", () => {
  const goal = zoomed(decade, 0.001, 0.7);
  const fixed = instantAt(decade, 0.7);
  let view = decade;
  for (let i = 0; i < 200 && !isClose(view, goal, 1000); i++) {
    view = towards(view, goal, 0.2);
    expect(fractionOf(view, fixed)).toBeCloseTo(0.7, 5);
  }
  expect(isClose(view, goal, 1000)).toBe(true);
});

test("a single event gets room around it", () => {
  const view = fitted(5_000_000_000n, 5_000_000_000n);
  expect(view.from).toBeLessThan(5_000_000_000n);
  expect(view.to).toBeGreaterThan(5_000_000_000n);
});
