/**
 * Levels and tiles: which resolution a view needs, and where a tile lies.
 *
 * A bucket of level L is 2^L seconds wide, a tile 512 buckets; offsets count tiles from 1970 (Respawn's addresses,
 * Buevich et al., "Respawn: A Distributed Multi-Resolution Time-Series Datastore", RTSS 2013). Offsets fit a double
 * exactly at every level the server has.
 */
import { floorDiv, INSTANT_MAX, INSTANT_MIN, type Instant, type Span } from "./time";
import { width } from "./view";

export const LEVEL_MIN = -20;
export const LEVEL_MAX = 40;
export const BUCKETS = 512;
const TILE_SHIFT = 9;
const NANOS = 1_000_000_000n;

/** Address of a tile of whatever channel. */
export interface Address {
  readonly level: number;
  readonly offset: number;
}

export function clampLevel(level: number): number {
  return Math.min(LEVEL_MAX, Math.max(LEVEL_MIN, level));
}

/**
 * The level at which a bucket is about one pixel wide. The current level stays as long as its buckets are within 0.55 to
 * 1.8 pixels, so that small movements do not switch to and fro.
 */
export function levelFor(span: Span, pixels: number, current?: number): number {
  const exact = Math.log2(width(span) / 1e9 / Math.max(1, pixels));
  if (current !== undefined && Math.abs(current - exact) <= 0.85) return clampLevel(current);
  return clampLevel(Math.round(exact));
}

/** Width of a bucket in nanoseconds. */
export function bucketWidth(level: number): number {
  return 2 ** level * 1e9;
}

/** Number of the tile that holds an instant. */
export function offsetOf(level: number, at: Instant): number {
  const shift = level + TILE_SHIFT;
  return Number(shift >= 0 ? floorDiv(at, NANOS << BigInt(shift)) : floorDiv(at << BigInt(-shift), NANOS));
}

/** First instant of a tile: the nanosecond at or after its exact border. Not cut to what the database can hold. */
export function tileStart(level: number, offset: number): Instant {
  const shift = level + TILE_SHIFT;
  const nanos = BigInt(offset) * NANOS;
  return shift >= 0 ? nanos << BigInt(shift) : -(-nanos >> BigInt(-shift));
}

/** Start of a tile as the server counts it: cut to the instants there are. */
export function heldStart(level: number, offset: number): Instant {
  const start = tileStart(level, offset);
  return start < INSTANT_MIN ? INSTANT_MIN : start > INSTANT_MAX ? INSTANT_MAX : start;
}

/** Tiles of a level that a span touches, in order. */
export function tilesOf(level: number, span: Span): Address[] {
  const first = offsetOf(level, span.from);
  const last = offsetOf(level, span.to - 1n);
  const out: Address[] = [];
  for (let offset = first; offset <= last; offset++) out.push({ level, offset });
  return out;
}

/** The tile `up` levels above that holds this one. */
export function parentOf(tile: Address, up = 1): Address {
  const level = Math.min(LEVEL_MAX, tile.level + up);
  return { level, offset: Math.floor(tile.offset / 2 ** (level - tile.level)) };
}

/** The finest level at which one or two tiles hold the whole span. */
export function overviewLevel(span: Span): number {
  return clampLevel(Math.ceil(Math.log2(width(span) / 1e9 / BUCKETS)));
}

export function keyOf(tile: Address): string {
  return `${tile.level}.${tile.offset}`;
}
