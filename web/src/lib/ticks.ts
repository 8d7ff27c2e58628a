/**
 * Marks of the time axis, from nanoseconds to centuries, in the time of a zone.
 *
 * Invariant: marks lie on round instants of the zone's calendar, in order, within the span. A mark's label holds what
 * changes from mark to mark; its context, set where it changes, holds the rest.
 */
import {
  DAY,
  floorDiv,
  formatClock,
  formatDate,
  HOUR,
  instantOf,
  MICRO,
  MILLI,
  MINUTE,
  parts,
  SECOND,
  zoneOffsetMs,
} from "./time";
import type { Instant, Parts, Span, Zone } from "./time";

export interface Tick {
  readonly at: Instant;
  readonly label: string;
  /** What the label leaves out; only on the first mark and where it changes. */
  readonly context?: string;
}

type Unit = "fraction" | "clock" | "day" | "month" | "year";
type Step = readonly [unit: Unit, count: bigint, nanoseconds: bigint];

const STEPS: readonly Step[] = steps();

function steps(): Step[] {
  const out: Step[] = [];
  for (let power = 1n; power < SECOND; power *= 10n) {
    for (const digit of [1n, 2n, 5n]) out.push(["fraction", digit * power, digit * power]);
  }
  for (const [unit, counts] of [
    [SECOND, [1n, 2n, 5n, 10n, 15n, 30n]],
    [MINUTE, [1n, 2n, 5n, 10n, 15n, 30n]],
    [HOUR, [1n, 2n, 3n, 6n, 12n]],
  ] as const) {
    for (const count of counts) out.push(["clock", count * unit, count * unit]);
  }
  for (const count of [1n, 2n, 4n, 7n, 14n]) out.push(["day", count, count * DAY]);
  for (const count of [1n, 2n, 3n, 6n]) out.push(["month", count, count * 30n * DAY]);
  for (const count of [1n, 2n, 5n, 10n, 20n, 50n, 100n]) out.push(["year", count, count * 365n * DAY]);
  return out;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/** At most `count` marks of a span. */
export function timeTicks(span: Span, count: number, zone: Zone): Tick[] {
  const least = (span.to - span.from) / BigInt(Math.max(1, Math.floor(count)));
  const step = STEPS.find(([, , size]) => size >= least) ?? STEPS[STEPS.length - 1];
  if (step === undefined) return [];
  const [unit, size] = step;
  const instants = marks(unit, size, span, zone);
  let context: string | undefined;
  return instants.map((at) => {
    const p = parts(at, zone);
    const here = contextOf(unit, size, p);
    const tick = { at, label: labelOf(unit, size, p) };
    if (here === context || here === "") return tick;
    context = here;
    return { ...tick, context: here };
  });
}

function marks(unit: Unit, size: bigint, span: Span, zone: Zone): Instant[] {
  const out: Instant[] = [];
  const add = (at: Instant): boolean => {
    const last = out[out.length - 1];
    if (at >= span.from && at < span.to && (last === undefined || at > last)) out.push(at);
    return at < span.to && out.length < 1000;
  };
  const start = parts(span.from, zone);
  switch (unit) {
    case "fraction": {
      let at = floorDiv(span.from, size) * size;
      while (add(at)) at += size;
      break;
    }
    case "clock":
      if (size < HOUR) {
        // Zones differ from UTC by quarters of an hour, so seconds and most minutes are round in all of them.
        const shift = zoneShift(span.from, zone);
        let at = floorDiv(span.from + shift, size) * size - shift;
        while (add(at)) at += size;
      } else {
        const hours = Number(size / HOUR);
        for (let day = start.day, going = true; going; day++) {
          for (let hour = 0; hour < 24 && going; hour += hours) {
            going = add(instantOf(zone, start.year, start.month, day, hour));
          }
        }
      }
      break;
    case "day": {
      const every = Number(size);
      // Weeks begin on Mondays; other steps count from 1970, so that panning does not move the marks.
      const days = floorDiv(span.from + zoneShift(span.from, zone), DAY);
      const phase = every % 7 === 0 ? 4 : 0;
      const back = (((Number(days) - phase) % every) + every) % every;
      let day = start.day - back;
      while (add(instantOf(zone, start.year, start.month, day))) day += every;
      break;
    }
    case "month": {
      const every = Number(size);
      let month = start.month - ((start.month - 1) % every);
      while (add(instantOf(zone, start.year, month))) month += every;
      break;
    }
    case "year": {
      const every = Number(size);
      let year = Math.floor(start.year / every) * every;
      while (add(instantOf(zone, year, 1))) year += every;
      break;
    }
  }
  return out;
}

function zoneShift(at: Instant, zone: Zone): bigint {
  return BigInt(zoneOffsetMs(Number(floorDiv(at, MILLI)), zone)) * MILLI;
}

function labelOf(unit: Unit, size: bigint, p: Parts): string {
  switch (unit) {
    case "fraction": {
      const nano = BigInt(p.nano);
      if (size >= MILLI) {
        const digits = size >= 100n * MILLI ? 1 : size >= 10n * MILLI ? 2 : 3;
        return `.${String(p.nano).padStart(9, "0").slice(0, digits)}`;
      }
      return size >= MICRO ? `+${(nano % MILLI) / MICRO} µs` : `+${nano % MICRO} ns`;
    }
    case "clock":
      return size >= MINUTE ? formatClock(p).slice(0, 5) : formatClock(p);
    case "day":
      return String(p.day);
    case "month":
      return MONTHS[p.month - 1] ?? "";
    case "year":
      return String(p.year);
  }
}

function contextOf(unit: Unit, size: bigint, p: Parts): string {
  switch (unit) {
    case "fraction": {
      const fraction = String(p.nano).padStart(9, "0");
      const cut = size >= MILLI ? "" : size >= MICRO ? `.${fraction.slice(0, 3)}` : `.${fraction.slice(0, 6)}`;
      return `${formatDate(p)} ${formatClock(p)}${cut}`;
    }
    case "clock":
      return `${DAYS[p.weekday] ?? ""} ${p.day} ${MONTHS[p.month - 1] ?? ""} ${p.year}`;
    case "day":
      return `${MONTHS[p.month - 1] ?? ""} ${p.year}`;
    case "month":
      return String(p.year);
    case "year":
      return "";
  }
}
