/**
 * Instants and spans in nanoseconds.
 *
 * Invariant: an instant is a bigint everywhere, because a double cannot hold present-day nanoseconds; only differences
 * become numbers, and only where a screen's resolution bounds the error.
 */

/** Nanoseconds since 1970-01-01 UTC. */
export type Instant = bigint;

/** A span of time, `from < to`, half-open. */
export interface Span {
  readonly from: Instant;
  readonly to: Instant;
}

/** The browser's zone, UTC, or a name of the IANA's list: `Europe/Berlin`. */
export type Zone = "local" | "utc" | (string & {});

export const MICRO = 1_000n;
export const MILLI = 1_000_000n;
export const SECOND = 1_000_000_000n;
export const MINUTE = 60n * SECOND;
export const HOUR = 60n * MINUTE;
export const DAY = 24n * HOUR;

/** What the database can hold. */
export const INSTANT_MIN = -(2n ** 63n);
export const INSTANT_MAX = 2n ** 63n - 1n;

/** Integer division towards minus infinity; `divisor > 0`. */
export function floorDiv(value: bigint, divisor: bigint): bigint {
  const quotient = value / divisor;
  return value % divisor < 0n ? quotient - 1n : quotient;
}

export function clampInstant(value: bigint): Instant {
  return value < INSTANT_MIN ? INSTANT_MIN : value > INSTANT_MAX ? INSTANT_MAX : value;
}

export function nowInstant(): Instant {
  return BigInt(Date.now()) * MILLI;
}

/** A double as the nearest bigint; not a number is 0. */
export function toBig(value: number): bigint {
  return Number.isFinite(value) ? BigInt(Math.round(value)) : 0n;
}

/** Calendar parts of an instant, and its nanosecond within the second. */
export interface Parts {
  year: number;
  month: number;
  day: number;
  weekday: number;
  hour: number;
  minute: number;
  second: number;
  nano: number;
}

/** Clocks of zones by name: to make one takes long. */
const clocks = new Map<string, Intl.DateTimeFormat | undefined>();

function clockOf(zone: Zone): Intl.DateTimeFormat | undefined {
  if (!clocks.has(zone)) {
    let clock: Intl.DateTimeFormat | undefined;
    try {
      clock = new Intl.DateTimeFormat("en-US-u-ca-iso8601-nu-latn", {
        timeZone: zone,
        hourCycle: "h23",
        era: "short",
        year: "numeric",
        month: "numeric",
        day: "numeric",
        hour: "numeric",
        minute: "numeric",
        second: "numeric",
      });
    } catch {
      // A zone this browser does not know is shown as UTC.
    }
    clocks.set(zone, clock);
  }
  return clocks.get(zone);
}

/** Whether this browser knows a zone. */
export function isZone(zone: string): boolean {
  return zone === "local" || zone === "utc" || clockOf(zone) !== undefined;
}

/** How far a zone's clocks are ahead of UTC, in milliseconds. */
export function zoneOffsetMs(ms: number, zone: Zone): number {
  if (zone === "utc") return 0;
  if (zone === "local") return -new Date(ms).getTimezoneOffset() * 60_000;
  const clock = clockOf(zone);
  if (!clock) return 0;
  const part: Record<string, string> = {};
  for (const { type, value } of clock.formatToParts(ms)) part[type] = value;
  const number = (name: string): number => Number(part[name] ?? 0);
  const year = part["era"] === "BC" ? 1 - number("year") : number("year");
  const wall = new Date(0);
  wall.setUTCFullYear(year, number("month") - 1, number("day"));
  wall.setUTCHours(number("hour"), number("minute"), number("second"), 0);
  return wall.getTime() - Math.floor(ms / 1000) * 1000;
}

export function parts(at: Instant, zone: Zone): Parts {
  const ms = Number(floorDiv(at, MILLI));
  const date = new Date(zone === "local" || zone === "utc" ? ms : ms + zoneOffsetMs(ms, zone));
  const nano = Number(at - floorDiv(at, SECOND) * SECOND);
  return zone !== "local"
    ? {
        year: date.getUTCFullYear(),
        month: date.getUTCMonth() + 1,
        day: date.getUTCDate(),
        weekday: date.getUTCDay(),
        hour: date.getUTCHours(),
        minute: date.getUTCMinutes(),
        second: date.getUTCSeconds(),
        nano,
      }
    : {
        year: date.getFullYear(),
        month: date.getMonth() + 1,
        day: date.getDate(),
        weekday: date.getDay(),
        hour: date.getHours(),
        minute: date.getMinutes(),
        second: date.getSeconds(),
        nano,
      };
}

/** The instant of a calendar time; parts may overflow as in `Date`. */
export function instantOf(zone: Zone, year: number, month: number, day = 1, hour = 0, minute = 0, second = 0): Instant {
  // Years below 100 mean 19xx to the constructors, so the year is set apart.
  const date = new Date(0);
  if (zone !== "local") {
    date.setUTCFullYear(year, month - 1, day);
    date.setUTCHours(hour, minute, second, 0);
    if (zone !== "utc") {
      // The offset at the instant itself, which the first guess misses where clocks change between the two.
      const wall = date.getTime();
      const guess = wall - zoneOffsetMs(wall, zone);
      date.setTime(wall - zoneOffsetMs(guess, zone));
    }
  } else {
    date.setFullYear(year, month - 1, day);
    date.setHours(hour, minute, second, 0);
  }
  return BigInt(date.getTime()) * MILLI;
}

const two = (n: number): string => String(n).padStart(2, "0");

export function formatDate(p: Parts): string {
  const year = p.year < 0 ? `-${String(-p.year).padStart(4, "0")}` : String(p.year).padStart(4, "0");
  return `${year}-${two(p.month)}-${two(p.day)}`;
}

export function formatClock(p: Parts): string {
  return `${two(p.hour)}:${two(p.minute)}:${two(p.second)}`;
}

/** `2024-03-05 12:30:05.123456`, with `digits` (0 to 9) of the fraction. */
export function formatInstant(at: Instant, zone: Zone, digits = 3): string {
  const p = parts(at, zone);
  const fraction = digits > 0 ? `.${String(p.nano).padStart(9, "0").slice(0, digits)}` : "";
  return `${formatDate(p)} ${formatClock(p)}${fraction}`;
}

/** How many digits of a second tell apart two pixels of a span. */
export function digitsFor(span: Span, pixels: number): number {
  const step = Number(span.to - span.from) / Math.max(1, pixels);
  if (step >= 1e9) return 0;
  return Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(Math.max(1, step)))));
}

/** The distance of the zone from UTC at an instant, like `+02:00`. */
export function offsetText(at: Instant, zone: Zone): string {
  if (zone === "utc") return "UTC";
  const minutes = Math.round(zoneOffsetMs(Number(floorDiv(at, MILLI)), zone) / 60_000);
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

const UNITS: readonly (readonly [string, number])[] = [
  ["y", 365.25 * 86_400e9],
  ["d", 86_400e9],
  ["h", 3_600e9],
  ["min", 60e9],
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** A length of time in its largest fitting unit, three digits: `2.5 h`, `340 µs`. */
export function formatLength(nanoseconds: number): string {
  const size = Math.abs(nanoseconds);
  const [unit, width] = UNITS.find(([, w]) => size >= w * 0.9995) ?? ["ns", 1];
  return `${Number((nanoseconds / width).toPrecision(3))} ${unit}`;
}

const SHIFT = /^now(?:\s*([+-])\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|min|h|d|w|y))?$/i;
const CALENDAR =
  /^([+-]?\d{4,6})-(\d{1,2})(?:-(\d{1,2}))?(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?$/i;
const SHIFT_UNITS: Readonly<Record<string, number>> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
  m: 60e9,
  min: 60e9,
  h: 3_600e9,
  d: 86_400e9,
  w: 7 * 86_400e9,
  y: 365.25 * 86_400e9,
};

/**
 * An instant as a person types it: integer nanoseconds, `2024-03-05 12:30:05.123` (in `zone` if it names none), `now`,
 * `now-1h`. `null` for anything else, and for what the database cannot hold.
 */
export function parseInstant(text: string, zone: Zone, now: Instant = nowInstant()): Instant | null {
  const trimmed = text.trim();
  if (/^-?\d{5,19}$/.test(trimmed)) return held(BigInt(trimmed));
  const shift = SHIFT.exec(trimmed);
  if (shift) {
    const [, sign, amount, unit] = shift;
    if (sign === undefined || amount === undefined || unit === undefined) return now;
    const width = toBig(Number(amount) * (SHIFT_UNITS[unit.toLowerCase()] ?? 0));
    return held(sign === "-" ? now - width : now + width);
  }
  const match = CALENDAR.exec(trimmed);
  if (!match) return null;
  const [, year, month, day = "1", hour = "0", minute = "0", second = "0", fraction = "", offset] = match;
  const fields = [year, month, day, hour, minute, second].map(Number);
  const [y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0] = fields;
  if (mo < 1 || mo > 12 || d < 1 || d > 31 || h > 24 || mi > 59 || s > 60) return null;
  // A day that its month has not would silently become one of the next month.
  if (d > new Date(Date.UTC(2000, mo, 0)).getUTCDate() && !(mo === 2 && d === 29)) return null;
  const base = instantOf(offset === undefined ? zone : "utc", y, mo, d, h, mi, s);
  const shiftBy = offset === undefined ? 0n : offsetOf(offset);
  return held(base - shiftBy + BigInt(fraction.padEnd(9, "0")));
}

function offsetOf(text: string): bigint {
  const match = /^([+-])(\d{2}):?(\d{2})$/.exec(text);
  if (!match) return 0n;
  const [, sign, hours, minutes] = match;
  const width = BigInt(Number(hours) * 60 + Number(minutes)) * MINUTE;
  return sign === "-" ? -width : width;
}

function held(value: bigint): Instant | null {
  return value < INSTANT_MIN || value > INSTANT_MAX ? null : value;
}
