import { describe, expect, test } from "vitest";
import { timeTicks } from "./ticks";
import { DAY, formatInstant, HOUR, instantOf, MINUTE, SECOND } from "./time";
import { zoomed } from "./view";

const utc = (text: string): bigint => BigInt(Date.parse(text)) * 1_000_000n;

describe("time marks", () => {
  test("are few, in order, inside and labelled, from decades to nanoseconds", () => {
    for (const zone of ["utc", "local"] as const) {
      let view = { from: utc("2014-03-01T00:00:00Z"), to: utc("2026-02-11T12:34:56Z") };
      for (let i = 0; i < 160; i++) {
        const ticks = timeTicks(view, 9, zone);
        expect(ticks.length).toBeGreaterThanOrEqual(1);
        expect(ticks.length).toBeLessThanOrEqual(11);
        for (const [k, tick] of ticks.entries()) {
          expect(tick.at >= view.from && tick.at < view.to).toBe(true);
          expect(tick.at > (ticks[k - 1]?.at ?? view.from - 1n)).toBe(true);
          expect(tick.label).not.toBe("");
        }
        view = zoomed(view, 0.8, 0.61);
      }
      expect(Number(view.to - view.from)).toBe(1000);
    }
  });

  const label = (from: bigint, size: bigint, count = 6): string[] =>
    timeTicks({ from, to: from + size }, count, "utc").map((t) =>
      t.context === undefined ? t.label : `${t.label}|${t.context}`,
    );

  test("read like a calendar", () => {
    const day = utc("2024-02-28T00:00:00Z");
    expect(label(utc("2019-06-01T00:00:00Z"), 5n * 365n * DAY)).toEqual(["2020", "2021", "2022", "2023", "2024"]);
    expect(label(utc("2023-11-15T00:00:00Z"), 120n * DAY, 5)).toEqual(["Dec|2023", "Jan|2024", "Feb", "Mar"]);
    expect(label(day, 4n * DAY, 4)).toEqual(["28|Feb 2024", "29", "1|Mar 2024", "2"]);
    expect(label(day + 20n * HOUR, 6n * HOUR)).toEqual([
      "20:00|Wed 28 Feb 2024",
      "21:00",
      "22:00",
      "23:00",
      "00:00|Thu 29 Feb 2024",
      "01:00",
    ]);
    expect(label(day, 60n * SECOND)).toEqual([
      "00:00:00|Wed 28 Feb 2024",
      "00:00:10",
      "00:00:20",
      "00:00:30",
      "00:00:40",
      "00:00:50",
    ]);
    expect(label(day + 900_000_000n, 300_000_000n, 3)).toEqual([
      ".9|2024-02-28 00:00:00",
      ".0|2024-02-28 00:00:01",
      ".1",
    ]);
    expect(label(day + 1_000_900_000n, 300_000n, 3)).toEqual([
      "+900 µs|2024-02-28 00:00:01.000",
      "+0 µs|2024-02-28 00:00:01.001",
      "+100 µs",
    ]);
    expect(label(day + 1_000n, 4n, 4)[1]).toBe("+1 ns");
  });

  test("weeks begin on Mondays", () => {
    for (const tick of timeTicks({ from: utc("2024-01-01T00:00:00Z"), to: utc("2024-03-01T00:00:00Z") }, 9, "utc")) {
      expect(new Date(formatInstant(tick.at, "utc", 0).replace(" ", "T") + "Z").getUTCDay()).toBe(1);
    }
  });

  test("in local time lie on local midnights and full hours, also where the clocks change", () => {
    const from = instantOf("local", 2024, 3, 29);
    for (const tick of timeTicks({ from, to: from + 5n * DAY }, 6, "local")) {
      expect(formatInstant(tick.at, "local", 9).slice(11)).toBe("00:00:00.000000000");
    }
    for (const tick of timeTicks({ from, to: from + 4n * DAY }, 20, "local")) {
      expect(formatInstant(tick.at, "local", 9).slice(13)).toBe(":00:00.000000000");
    }
    const ticks = timeTicks({ from: from + MINUTE, to: from + HOUR }, 6, "local");
    expect(ticks.map((t) => t.label)).toEqual(["00:10", "00:20", "00:30", "00:40", "00:50"]);
  });
});
