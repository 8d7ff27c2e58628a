import { describe, expect, test } from "vitest";
import {
  DAY,
  digitsFor,
  formatInstant,
  formatLength,
  INSTANT_MAX,
  INSTANT_MIN,
  isZone,
  offsetText,
  parseInstant,
  SECOND,
} from "./time";

describe("instants as text", () => {
  test("keep every nanosecond", () => {
    expect(formatInstant(1_700_000_000_123_456_789n, "utc", 9)).toBe("2023-11-14 22:13:20.123456789");
    expect(formatInstant(-1n, "utc", 9)).toBe("1969-12-31 23:59:59.999999999");
    expect(formatInstant(INSTANT_MIN, "utc", 9)).toBe("1677-09-21 00:12:43.145224192");
    expect(formatInstant(INSTANT_MAX, "utc", 0)).toBe("2262-04-11 23:47:16");
  });

  test("are read back", () => {
    for (const at of [0n, -1n, 1_700_000_000_123_456_789n, INSTANT_MIN, INSTANT_MAX, -12_345_678_901n]) {
      expect(parseInstant(formatInstant(at, "utc", 9), "utc")).toBe(at);
      expect(parseInstant(formatInstant(at, "local", 9), "local")).toBe(at);
    }
  });

  test("are told and read in a zone by its name, where clocks change too", () => {
    const winter = 1_700_000_000n * SECOND;
    const zone = "America/New_York";
    expect(formatInstant(winter, zone, 0)).toBe("2023-11-14 17:13:20");
    expect(offsetText(winter, zone)).toBe("UTC−05:00");
    expect(offsetText(winter, "Asia/Kathmandu")).toBe("UTC+05:45");
    // An hour before clocks go back, and an hour after.
    for (const at of [1_699_160_400n * SECOND, 1_699_171_200n * SECOND, 1_690_000_000n * SECOND, -SECOND]) {
      expect(parseInstant(formatInstant(at, zone, 9), zone)).toBe(at);
    }
    expect(isZone("Nowhere/At_All")).toBe(false);
    expect(formatInstant(winter, "Nowhere/At_All", 0)).toBe(formatInstant(winter, "utc", 0));
  });

  test("are read as people write them", () => {
    const now = 1_000_000n * SECOND;
    const cases: [string, bigint | null][] = [
      ["1700000000000000001", 1_700_000_000_000_000_001n],
      ["2023-11-14T22:13:20Z", 1_700_000_000n * SECOND],
      ["2023-11-15 00:13:20+02:00", 1_700_000_000n * SECOND],
      ["2023-11-14", 1_699_920_000n * SECOND],
      ["2024-02", 1_706_745_600n * SECOND],
      ["2024-02-29 01:00", 1_709_168_400n * SECOND],
      ["now", now],
      ["now-1h", now - 3_600n * SECOND],
      ["now + 1.5 d", now + (DAY * 3n) / 2n],
      ["2024-02-30", null],
      ["2024-13-01", null],
      ["9999-01-01", null],
      ["99999999999999999999", null],
      ["yesterday", null],
      ["", null],
    ];
    for (const [text, expected] of cases) expect(parseInstant(text, "utc", now), text).toBe(expected);
  });

  test("show as many digits as pixels tell apart", () => {
    const span = (size: bigint): { from: bigint; to: bigint } => ({ from: 0n, to: size });
    expect(digitsFor(span(10n * 365n * DAY), 1000)).toBe(0);
    expect(digitsFor(span(10n * SECOND), 1000)).toBe(2);
    expect(digitsFor(span(10_000_000n), 1000)).toBe(5);
    expect(digitsFor(span(1_000n), 1000)).toBe(9);
  });
});

test("lengths come in the largest fitting unit", () => {
  expect(formatLength(10 * 365.25 * 86_400e9)).toBe("10 y");
  expect(formatLength(9_000e9)).toBe("2.5 h");
  expect(formatLength(10e6)).toBe("10 ms");
  expect(formatLength(340_400)).toBe("340 µs");
  expect(formatLength(59.99e9)).toBe("1 min");
});
