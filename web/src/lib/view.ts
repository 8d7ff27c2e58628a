/**
 * The span of time on screen, and how it moves.
 *
 * Invariants: `from < to`; no shorter than `WIDTH_MIN`, no wider than what the database can hold. Every operation gives
 * a new span; nothing here knows of screens or clocks.
 */
import { clampInstant, INSTANT_MAX, INSTANT_MIN, toBig, type Instant, type Span } from "./time";

/** The narrowest view: a microsecond, the width of a bucket at the finest level. */
export const WIDTH_MIN = 1_000n;
const WIDTH_MAX = INSTANT_MAX - INSTANT_MIN;

export function width(span: Span): number {
  return Number(span.to - span.from);
}

/** The span, made to obey the limits around its middle. */
export function limited(from: Instant, to: Instant): Span {
  let size = to - from;
  if (size < WIDTH_MIN) size = WIDTH_MIN;
  if (size > WIDTH_MAX) size = WIDTH_MAX;
  let start = size === to - from ? from : from + (to - from - size) / 2n;
  if (start < INSTANT_MIN) start = INSTANT_MIN;
  if (start + size > INSTANT_MAX) start = INSTANT_MAX - size;
  return { from: start, to: start + size };
}

/** The instant at a fraction of the span, 0 = left, 1 = right; may lie outside. */
export function instantAt(span: Span, fraction: number): Instant {
  return clampInstant(span.from + toBig(width(span) * fraction));
}

/** Where an instant lies in the span, as a fraction. */
export function fractionOf(span: Span, at: Instant): number {
  return Number(at - span.from) / width(span);
}

/** The span `factor` times as wide; the instant at `anchor` (a fraction) stays where it is. */
export function zoomed(span: Span, factor: number, anchor: number): Span {
  const before = width(span);
  const after = Math.min(Math.max(before * factor, Number(WIDTH_MIN)), Number(WIDTH_MAX));
  const from = span.from + toBig((before - after) * anchor);
  return limited(from, from + toBig(after));
}

/** The span moved by a fraction of its width; positive = later. */
export function panned(span: Span, fraction: number): Span {
  const by = toBig(width(span) * fraction);
  return limited(span.from + by, span.to + by);
}

/** The span at which two instants lie at two fractions: what a pinch asks for. */
export function pinched(a: Instant, b: Instant, atA: number, atB: number): Span | null {
  const distance = atB - atA;
  if (Math.abs(distance) < 1e-3 || a === b) return null;
  const size = Number(b - a) / distance;
  if (!(size > 0)) return null;
  const from = a - toBig(size * atA);
  return limited(from, from + toBig(size));
}

/**
 * One step of the way from one span to another, `share` of it. Linear in both borders, so an instant that both show at
 * the same place stays there on the way.
 */
export function towards(now: Span, goal: Span, share: number): Span {
  const from = now.from + toBig(Number(goal.from - now.from) * share);
  const to = now.to + toBig(Number(goal.to - now.to) * share);
  return to - from < WIDTH_MIN ? goal : { from, to };
}

/** Whether two spans look the same on `pixels`: borders within a twentieth of one. */
export function isClose(a: Span, b: Span, pixels: number): boolean {
  const tolerance = Math.max(1, width(b) / Math.max(1, pixels) / 20);
  return Math.abs(Number(a.from - b.from)) <= tolerance && Math.abs(Number(a.to - b.to)) <= tolerance;
}

/** A span that shows `first` to `last` with a little room on both sides. */
export function fitted(first: Instant, last: Instant): Span {
  const size = last - first;
  const room = size === 0n ? 500_000_000n : size / 50n + 1n;
  return limited(clampInstant(first - room), clampInstant(last + room));
}

export function isSame(a: Span, b: Span): boolean {
  return a.from === b.from && a.to === b.to;
}
