import { expect, test } from "vitest";
import type { Channel } from "./channels";
import { isOnTheRight, plotsOf, scalesOf, type Plot } from "./plots";

const channel = (stream: string, field: string): Channel => ({
  name: `${stream}.${field}`,
  stream,
  field,
  colour: 0,
  type: "f64",
  problem: undefined,
  extent: undefined,
  events: undefined,
  tail: [],
  liveFrom: undefined,
  points: undefined,
  shown: false,
});

const [warm, warmer, humid, windy] = [
  channel("weather,site=north", "temperature"),
  channel("weather,site=harbour", "temperature"),
  channel("weather,site=north", "humidity"),
  channel("weather,site=north", "wind"),
];
const together = (channels: readonly Channel[]): Plot => plotsOf(channels, "all")[0] ?? { key: "", channels: [] };
const fields = (plot: Plot): string[][] => scalesOf(plot).map((scale) => scale?.channels.map((c) => c.name) ?? []);

test("channels of one field share a scale, those of two have two", () => {
  expect(fields(together([warm, warmer]))).toEqual([[warm.name, warmer.name]]);
  const two = together([warm, humid, warmer]);
  expect(fields(two)).toEqual([[warm.name, warmer.name], [humid.name]]);
  expect(two.channels.map((each) => isOnTheRight(two, each))).toEqual([false, true, false]);
  expect(new Set(scalesOf(two).map((scale) => scale?.key)).size).toBe(2);
});

test("more than two fields share one scale, and so does what is apart anyway", () => {
  const three = together([warm, humid, windy]);
  expect(fields(three)).toEqual([[warm.name, humid.name, windy.name]]);
  expect(three.channels.some((each) => isOnTheRight(three, each))).toBe(false);
  for (const plot of [...plotsOf([warm, humid], "stack"), ...plotsOf([warm, warmer, humid], "field")])
    expect(scalesOf(plot).length).toBe(1);
  expect(plotsOf([], "all")).toEqual([]);
});

test("the scale on the left keeps its key, so that a locked one stays locked", () => {
  expect(scalesOf(together([warm]))[0].key).toBe(scalesOf(together([warm, humid]))[0].key);
});
