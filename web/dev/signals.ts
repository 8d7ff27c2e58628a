/**
 * Made-up streams whose every bucket can be computed without rows, for looking at the page without a server.
 *
 * Invariant: a bucket's numbers depend on its channel and span alone, so that tiles agree with each other well enough to
 * look at. They are samples, not exact aggregates: nothing is proved with them.
 */

export interface Signal {
  readonly stream: string;
  readonly table: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly field: string;
  /** Nanoseconds since 1970. */
  readonly first: bigint;
  last: bigint;
  readonly interval: bigint;
  /** Spans without events. */
  readonly gaps: readonly (readonly [bigint, bigint])[];
  value(seconds: number, index: number): number;
}

export interface Bucket {
  time: number;
  mean: number;
  min: number;
  max: number;
  count: number;
  stddev: number;
}

const SAMPLES = 12;

/** A number from 0 to 1 that depends on its argument alone. */
export function noise(index: number): number {
  const mixed = Math.imul((index ^ (index >>> 15)) | 0, 0x2c1b3c6d);
  const twice = Math.imul(mixed ^ (mixed >>> 12), 0x297a2d39);
  return ((twice ^ (twice >>> 15)) >>> 0) / 2 ** 32;
}

/** The aggregate of [from, to), or nothing. `time` is nanoseconds after `from`. */
export function bucket(signal: Signal, from: bigint, to: bigint): Bucket | undefined {
  const { first, last, interval } = signal;
  const low = from > first ? (from - first + interval - 1n) / interval : 0n;
  const limit = to <= last ? to - 1n : last;
  if (limit < first) return undefined;
  const high = (limit - first) / interval;
  if (high < low) return undefined;
  const total = Number(high - low) + 1;
  const picks = Math.min(total, SAMPLES);
  let count = 0;
  let sum = 0;
  let squares = 0;
  let times = 0;
  let min = Infinity;
  let max = -Infinity;
  for (let k = 0; k < picks; k++) {
    const index = low + BigInt(Math.floor((k * total) / picks));
    const at = first + index * interval;
    if (signal.gaps.some(([a, b]) => at >= a && at < b)) continue;
    const value = signal.value(Number(at / 1000n) / 1e6, Number(index % 2_147_483_647n));
    count++;
    sum += value;
    squares += value * value;
    times += Number(at - from);
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  if (count === 0) return undefined;
  const mean = sum / count;
  return {
    time: times / count,
    mean,
    min,
    max,
    count: Math.max(1, Math.round((total * count) / picks)),
    stddev: Math.sqrt(Math.max(0, squares / count - mean * mean)),
  };
}

const SECOND = 1_000_000_000n;
const DAY = 86_400n * SECOND;

export function signals(now: bigint): Signal[] {
  const out: Signal[] = [];
  const start = now - 3_650n * DAY;
  const hour = 3_600n * SECOND;
  const add = (
    table: string,
    tags: Record<string, string>,
    field: string,
    shape: Pick<Signal, "first" | "last" | "interval" | "value"> & Partial<Pick<Signal, "gaps">>,
  ): void => {
    const stream = [table, ...Object.entries(tags).map(([key, value]) => `${key}=${value}`)].join(",");
    out.push({ stream, table, tags, field, gaps: [], ...shape });
  };
  const year = 365.25 * 86_400;
  for (const [site, shift] of [
    ["north", 0],
    ["harbour", 4],
  ] as const) {
    const common = { first: start - (start % hour), last: now, interval: hour };
    add("weather", { site }, "temperature", {
      ...common,
      gaps: [[now - 900n * DAY, now - 830n * DAY]],
      value: (t, i) =>
        11 +
        shift -
        9 * Math.cos((2 * Math.PI * t) / year) -
        4 * Math.cos((2 * Math.PI * t) / 86_400) +
        5 * (noise(i) + noise(i >> 5) - 1),
    });
    add("weather", { site }, "wind", { ...common, value: (_t, i) => 3 + 14 * noise(i) ** 3 + 6 * noise(i >> 6) });
  }
  for (const id of ["m1", "m2"]) {
    const phase = id === "m1" ? 0 : 1.3;
    const common = { first: now - 90n * DAY, last: now, interval: 1_000_000n };
    add("motor", { id, hall: "3" }, "vibration", {
      ...common,
      value: (t, i) =>
        (1 + Math.sin(t / 5_000 + phase)) * Math.sin(t * 314 + phase) +
        0.3 * (noise(i) - 0.5) +
        (noise(i >> 12) > 0.995 ? 3 : 0),
    });
    add("motor", { id, hall: "3" }, "running", {
      ...common,
      interval: SECOND,
      value: (t) => (Math.sin(t / 3_000 + phase) > -0.4 ? 1 : 0),
    });
  }
  for (let n = 0; n < 3_000; n++) {
    const tags = { line: `L${n % 12}`, machine: `press-${String(n).padStart(4, "0")}` };
    const common = { first: now - 200n * DAY, last: now - BigInt(n % 50) * SECOND, interval: 10n * SECOND };
    for (const [field, base] of [
      ["pressure", 4.2],
      ["load", 60],
    ] as const) {
      add("press", tags, field, {
        ...common,
        value: (t, i) => base * (1 + 0.1 * Math.sin(t / (600 + n)) + 0.04 * (noise(i + n) - 0.5)),
      });
    }
  }
  return out;
}
