import { describe, expect, test } from "vitest";
import {
  bucketWidth,
  keyOf,
  LEVEL_MAX,
  LEVEL_MIN,
  levelFor,
  offsetOf,
  overviewLevel,
  parentOf,
  tilesOf,
  tileStart,
} from "./level";
import { DAY } from "./time";
import { zoomed } from "./view";

const now = 1_732_000_000_123_456_789n;

describe("tiles", () => {
  test("hold the instants they are found by, at every level, before 1970 too", () => {
    for (let level = LEVEL_MIN; level <= LEVEL_MAX; level++) {
      for (const at of [now, 0n, -1n, -now, 1n, 999_999_999n]) {
        const offset = offsetOf(level, at);
        expect(Number.isSafeInteger(offset)).toBe(true);
        expect(tileStart(level, offset) <= at && at < tileStart(level, offset + 1), `${level} ${at}`).toBe(true);
      }
    }
  });

  test("agree with Respawn's example and with the sample data", () => {
    expect(offsetOf(10, 1_357_020_000_000_000_000n)).toBe(2588);
    expect(tileStart(10, 2588)).toBe(2588n * 1024n * 512n * 1_000_000_000n);
    expect(tileStart(-20, 1)).toBe(488_282n);
  });

  test("are halves of their parents", () => {
    for (const offset of [7, 8, -7, -8]) {
      const parent = parentOf({ level: 3, offset });
      expect(parent).toEqual({ level: 4, offset: Math.floor(offset / 2) });
      expect(tileStart(4, parent.offset) <= tileStart(3, offset)).toBe(true);
    }
    expect(keyOf(parentOf({ level: LEVEL_MAX, offset: 0 }))).toBe(`${LEVEL_MAX}.0`);
  });
});

test("a view needs a constant number of tiles, whatever its width", () => {
  let view = { from: now - 3_650n * DAY, to: now };
  for (let i = 0; i < 120; i++) {
    const level = levelFor(view, 1200);
    const count = tilesOf(level, view).length;
    if (level > LEVEL_MIN) expect(count).toBeGreaterThanOrEqual(2);
    expect(count).toBeLessThanOrEqual(5);
    view = zoomed(view, 0.8, 0.37);
  }
});

test("the level stays while its buckets are about a pixel wide", () => {
  const span = (pixelWidth: number): { from: bigint; to: bigint } => ({
    from: 0n,
    to: BigInt(Math.round(pixelWidth * 1000)),
  });
  const one = bucketWidth(5);
  expect(levelFor(span(one), 1000)).toBe(5);
  expect(levelFor(span(one * 1.6), 1000, 5)).toBe(5);
  expect(levelFor(span(one * 1.6), 1000)).toBe(6);
  expect(levelFor(span(one * 2), 1000, 5)).toBe(6);
  expect(levelFor(span(one / 2), 1000, 5)).toBe(4);
});

test("an overview is one or two tiles", () => {
  for (const size of [1n, 1000n, DAY, 3_650n * DAY]) {
    const span = { from: now - size, to: now };
    expect(tilesOf(overviewLevel(span), span).length).toBeLessThanOrEqual(2);
  }
});
