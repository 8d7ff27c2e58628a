import { describe, expect, test } from "vitest";
import { CHANNEL, put, signal } from "../../dev/fixtures";
import { closest, compose, type Points, type TailPoint } from "./compose";
import { levelFor, parentOf, tilesOf, tileStart } from "./level";
import { neighbourOf } from "./neighbour";
import { TileStore } from "./tiles";
import { DAY, HOUR, SECOND, type Span } from "./time";

const start = 1_700_000_000n * SECOND;

function draw(store: TileStore, view: Span, level: number, extent?: Span, tail: readonly TailPoint[] = []): Points {
  return compose({ store, channel: CHANNEL, view, level, extent, tail });
}

describe("a view", () => {
  const source = signal({
    first: start,
    last: start + 10_000n * SECOND,
    interval: SECOND,
    value: (t) => Math.sin(t / 50),
  });
  const extent = { from: source.first, to: source.last };
  const view = { from: start + 2000n * SECOND, to: start + 4000n * SECOND };
  const level = levelFor(view, 1000);

  test("with all its tiles is sharp, complete and in order", () => {
    const store = new TileStore();
    for (const tile of tilesOf(level, view)) put(store, source, tile);
    const points = draw(store, view, level, extent);
    expect(points.sharp).toBe(true);
    expect(points.covered).toBe(1);
    expect(points.length).toBeGreaterThan(900);
    for (let i = 1; i < points.length; i++) expect(points.x[i]).toBeGreaterThan(points.x[i - 1] ?? 0);
    expect(Array.from(points.start).filter(Boolean)).toHaveLength(1);
    const inView = Array.from(points.count).filter((_, i) => (points.x[i] ?? -1) >= 0 && (points.x[i] ?? 0) < 2e12);
    expect(inView.reduce((sum, count) => sum + count, 0)).toBeCloseTo(2000, -1);
    expect(points.range?.[0]).toBeCloseTo(-1, 2);
    expect(points.range?.[1]).toBeCloseTo(1, 2);
  });

  test("is drawn from a parent at once, and mixes levels without a hole", () => {
    const store = new TileStore();
    const tiles = tilesOf(level, view);
    expect(tiles.length).toBeGreaterThan(1);
    for (const tile of tiles) put(store, source, parentOf(tile, 3));
    const coarse = draw(store, view, level, extent);
    expect(coarse.covered).toBe(1);
    expect(coarse.sharp).toBe(false);
    expect(coarse.length).toBeGreaterThan(50);
    const [first] = tiles;
    if (first) put(store, source, first);
    const mixed = draw(store, view, level, extent);
    expect(mixed.covered).toBe(1);
    expect(mixed.sharp).toBe(false);
    expect(mixed.length).toBeGreaterThan(coarse.length);
    expect(Array.from(mixed.start).filter(Boolean)).toHaveLength(1);
  });

  test("is drawn from finer tiles when zooming out", () => {
    const store = new TileStore();
    for (const tile of tilesOf(level - 2, view)) put(store, source, tile);
    const points = draw(store, view, level, extent);
    expect(points.covered).toBe(1);
    expect(points.sharp).toBe(false);
  });

  test("without tiles is empty, and says how much is missing", () => {
    const store = new TileStore();
    expect(draw(store, view, level, extent)).toMatchObject({ length: 0, covered: 0, sharp: false, range: undefined });
    // Beyond the data nothing is missing.
    const beyond = { from: source.last + SECOND, to: source.last + 100n * SECOND };
    expect(draw(store, beyond, 0, extent).covered).toBe(1);
  });
});

test("gaps are gaps, slow sensors are not", () => {
  const gap: readonly [bigint, bigint] = [start + 400n * SECOND, start + 500n * SECOND];
  const source = signal({ first: start, last: start + 1000n * SECOND, interval: SECOND, gaps: [gap] });
  const view = { from: start, to: start + 1000n * SECOND };
  const store = new TileStore();
  const level = levelFor(view, 1000);
  for (const tile of tilesOf(level, view)) put(store, source, tile);
  const points = draw(store, view, level);
  const breaks = Array.from(points.x).filter((_, i) => points.start[i] === 1);
  expect(breaks).toHaveLength(2);
  expect(breaks[1]).toBeCloseTo(500e9, -9);

  // An event a minute at a level of seconds: every bucket but one in sixty is empty, and still it is one line.
  const slow = signal({ first: start, last: start + 10n * HOUR, interval: 60n * SECOND });
  const hour = { from: start + HOUR, to: start + 2n * HOUR };
  const other = new TileStore();
  for (const tile of tilesOf(levelFor(hour, 1000), hour)) put(other, slow, tile);
  expect(Array.from(draw(other, hour, levelFor(hour, 1000)).start).filter(Boolean)).toHaveLength(1);
});

test("positions stay exact at 10 ms within ten years", () => {
  const source = signal({ first: start, last: start + 3_650n * DAY, interval: 1_000_000n });
  const view = { from: start + 3_000n * DAY + 123n, to: start + 3_000n * DAY + 10_000_123n };
  const level = levelFor(view, 1000);
  const store = new TileStore();
  for (const tile of tilesOf(level, view)) put(store, source, tile);
  const points = draw(store, view, level);
  const inView = Array.from(points.x).filter((x) => x >= 0 && x < 1e7);
  expect(inView).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((ms) => ms * 1e6 - 123));
});

describe("a view between two events", () => {
  const source = signal({ first: start, last: start + 1000n * DAY, interval: HOUR, value: (_t, i) => i });
  const extent = { from: source.first, to: source.last };
  const view = { from: start + 600n * DAY + 1000n * SECOND, to: start + 600n * DAY + 1000n * SECOND + 10_000_000n };
  const level = levelFor(view, 1000);

  test("finds both through coarser tiles, in few steps", () => {
    const store = new TileStore();
    for (const tile of tilesOf(level, view)) put(store, source, tile);
    for (const direction of [-1, 1] as const) {
      const border = direction === -1 ? view.from : view.to;
      let steps = 0;
      for (;;) {
        const { need } = neighbourOf(store, CHANNEL, level, border, direction, extent);
        if (!need) break;
        expect(store.get(CHANNEL, need)).toBeUndefined();
        put(store, source, need);
        expect(++steps).toBeLessThan(12);
      }
      const { found } = neighbourOf(store, CHANNEL, level, border, direction, extent);
      expect(found && found.tile.count[found.index]).toBe(1);
      expect(found && found.tile.mean[found.index]).toBe(600 * 24 + (direction === 1 ? 1 : 0));
    }
    const points = draw(store, view, level, extent);
    expect(points.length).toBe(2);
    expect(points.start[1]).toBe(0);
    expect(points.range).toBeDefined();
  });

  test("has none beyond the ends of the data", () => {
    const store = new TileStore();
    expect(neighbourOf(store, CHANNEL, level, start, -1, extent)).toEqual({});
    expect(neighbourOf(store, CHANNEL, level, source.last + 1n, 1, extent)).toEqual({});
  });
});

test("live values are drawn until a tile that was asked for later holds them", () => {
  const source = signal({ first: start, last: start + 100n * SECOND, interval: SECOND });
  const view = { from: start, to: start + 200n * SECOND };
  const level = levelFor(view, 1000);
  const store = new TileStore();
  for (const tile of tilesOf(level, view)) put(store, source, tile, 5);
  const before = draw(store, view, level).length;
  const tail = [
    { time: start + 101n * SECOND, value: 1, arrival: 5 },
    { time: start + 102n * SECOND, value: 2, arrival: 6 },
  ];
  const points = draw(store, view, level, undefined, tail);
  expect(points.length).toBe(before + 1);
  expect(points.mean[points.length - 1]).toBe(2);
});

test("where a tile is still to come, live values are no hole", () => {
  const source = signal({ first: start, last: start + 100n * SECOND, interval: SECOND });
  const extent = { from: start, to: start + 190n * SECOND };
  const view = { from: start, to: start + 200n * SECOND };
  const level = levelFor(view, 1000);
  const store = new TileStore();
  for (const tile of tilesOf(level, { from: start, to: start + 100n * SECOND })) put(store, source, tile);
  const tail = [{ time: start + 190n * SECOND, value: 1, arrival: 1 }];
  const input = { store, channel: CHANNEL, view, level, extent, tail };
  expect(compose(input).covered).toBeLessThan(0.9);
  expect(compose({ ...input, liveFrom: start + 100n * SECOND }).covered).toBeGreaterThan(0.999);
});

test("the point under the cursor is the nearest one", () => {
  const source = signal({ first: start, last: start + 10n * SECOND, interval: SECOND });
  const view = { from: start, to: start + 11n * SECOND };
  const store = new TileStore();
  const level = levelFor(view, 1000);
  for (const tile of tilesOf(level, view)) put(store, source, tile);
  const points = draw(store, view, level);
  const at = (position: number): number => points.x[closest(points, position) ?? -1] ?? NaN;
  expect(at(-5e9)).toBe(0);
  expect(at(2.4e9)).toBe(2e9);
  expect(at(2.6e9)).toBe(3e9);
  expect(at(99e9)).toBe(10e9);
  expect(closest({ ...points, length: 0, x: new Float64Array(0) }, 0)).toBeUndefined();
});

test("the store keeps to its budget and loses what was drawn longest ago", () => {
  const source = signal({ first: start, last: start + 100_000n * SECOND, interval: SECOND });
  const store = new TileStore(200_000);
  const address = (k: number): { level: number; offset: number } => ({
    level: 0,
    offset: Number((start / SECOND + BigInt(k * 512)) / 512n),
  });
  put(store, source, address(1));
  for (let k = 2; k < 40; k++) {
    put(store, source, address(k));
    store.use(CHANNEL, 0, address(1).offset);
    expect(store.size).toBeLessThanOrEqual(200_000);
  }
  expect(store.get(CHANNEL, address(1))).toBeDefined();
  expect(store.get(CHANNEL, address(2))).toBeUndefined();
  store.invalidate(CHANNEL, [tileStart(0, address(1).offset)]);
  expect(store.get(CHANNEL, address(1))?.stale).toBe(true);
  store.forget(CHANNEL);
  expect(store.size).toBe(0);
});
