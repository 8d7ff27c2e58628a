/**
 * Tiles that have been fetched, of all channels and levels, within a budget.
 *
 * Invariants: points of a tile are in order of time; a tile is never changed, only replaced by a newer answer for the
 * same address; a stale tile is still drawn until then. The least recently drawn tiles leave first.
 */
import { bucketWidth, offsetOf, type Address } from "./level";
import type { Instant } from "./time";

/** Columns of a tile as the server sends them; `time` is nanoseconds after `start`. */
export interface TileData {
  readonly start: Instant;
  readonly time: Float64Array;
  readonly mean: Float64Array;
  readonly min: Float64Array;
  readonly max: Float64Array;
  readonly count: Float64Array;
}

export interface Tile extends TileData {
  readonly level: number;
  readonly offset: number;
  /** When it was asked for: `performance.now()` milliseconds, and the number of live values seen by then. */
  readonly asked: { readonly ms: number; readonly arrivals: number };
  /** Usual distance of two events in nanoseconds, 0 if the tile does not tell. */
  readonly interval: number;
  stale: boolean;
  used: number;
}

/** One bucket found by a search. */
export interface Found {
  readonly tile: Tile;
  readonly index: number;
}

const BYTES_PER_POINT = 5 * 8;
const BYTES_PER_TILE = 400;

export class TileStore {
  /** Channel, then level, then offset. */
  private readonly channels = new Map<string, Map<number, Map<number, Tile>>>();
  private bytes = 0;
  private clock = 0;

  constructor(private readonly budget = 64 * 1024 * 1024) {}

  get size(): number {
    return this.bytes;
  }

  put(channel: string, address: Address, data: TileData, asked: Tile["asked"]): Tile {
    let levels = this.channels.get(channel);
    if (!levels) this.channels.set(channel, (levels = new Map<number, Map<number, Tile>>()));
    let tiles = levels.get(address.level);
    if (!tiles) levels.set(address.level, (tiles = new Map<number, Tile>()));
    const before = tiles.get(address.offset);
    if (before) this.bytes -= cost(before);
    const tile: Tile = {
      ...data,
      level: address.level,
      offset: address.offset,
      asked,
      interval: usualInterval(data),
      stale: false,
      used: ++this.clock,
    };
    tiles.set(address.offset, tile);
    this.bytes += cost(tile);
    if (this.bytes > this.budget) this.evict(tile);
    return tile;
  }

  get(channel: string, address: Address): Tile | undefined {
    return this.channels.get(channel)?.get(address.level)?.get(address.offset);
  }

  /** The tile, marked as used. */
  use(channel: string, level: number, offset: number): Tile | undefined {
    const tile = this.channels.get(channel)?.get(level)?.get(offset);
    if (tile) tile.used = ++this.clock;
    return tile;
  }

  /** Levels of which a channel has tiles, ascending. */
  levels(channel: string): number[] {
    const levels = this.channels.get(channel);
    if (!levels) return [];
    return [...levels]
      .filter(([, tiles]) => tiles.size > 0)
      .map(([level]) => level)
      .sort((a, b) => a - b);
  }

  /** Marks every tile of a channel that holds one of the instants; all of them if no instants are given. */
  invalidate(channel: string, instants?: readonly Instant[]): void {
    for (const [level, tiles] of this.channels.get(channel) ?? []) {
      if (instants === undefined) {
        for (const tile of tiles.values()) tile.stale = true;
      } else {
        for (const at of instants) {
          const tile = tiles.get(offsetOf(level, at));
          if (tile) tile.stale = true;
        }
      }
    }
  }

  forget(channel: string): void {
    for (const tiles of this.channels.get(channel)?.values() ?? []) {
      for (const tile of tiles.values()) this.bytes -= cost(tile);
    }
    this.channels.delete(channel);
  }

  /**
   * The usual distance of two events of a channel near an instant: of the finest tile there that tells, else of any.
   * 0 if none does.
   */
  intervalAt(channel: string, at: Instant): number {
    let any = 0;
    for (const level of this.levels(channel)) {
      const tile = this.get(channel, { level, offset: offsetOf(level, at) });
      if (tile && tile.interval > 0) return tile.interval;
      if (any === 0) {
        for (const other of this.channels.get(channel)?.get(level)?.values() ?? []) any ||= other.interval;
      }
    }
    return any;
  }

  private evict(keep: Tile): void {
    const all: [string, Tile][] = [];
    for (const [channel, levels] of this.channels) {
      for (const tiles of levels.values()) for (const tile of tiles.values()) all.push([channel, tile]);
    }
    all.sort(([, a], [, b]) => a.used - b.used);
    // Down to nine tenths, so that this sort is rare.
    for (const [channel, tile] of all) {
      if (this.bytes <= this.budget * 0.9) break;
      if (tile === keep) continue;
      this.channels.get(channel)?.get(tile.level)?.delete(tile.offset);
      this.bytes -= cost(tile);
    }
  }
}

function cost(tile: Tile): number {
  return BYTES_PER_TILE + tile.time.length * BYTES_PER_POINT;
}

/** The last point before an instant (`direction` −1), or the first at or after it (+1). */
export function nearest(tile: Tile, at: Instant, direction: -1 | 1): number | undefined {
  const target = Number(at - tile.start);
  const first = lowerBound(tile.time, target);
  const index = direction === 1 ? first : first - 1;
  return index >= 0 && index < tile.time.length ? index : undefined;
}

/** Index of the first element that is not less than `value`. */
export function lowerBound(sorted: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Median distance of neighbouring points, each divided by the events it stands for: of single events their distance, of
 * full buckets the bucket's width by its count.
 */
function usualInterval(data: TileData): number {
  const { time, count } = data;
  if (time.length < 4) return 0;
  const step = Math.max(1, Math.floor(time.length / 128));
  const distances: number[] = [];
  for (let i = 1; i < time.length; i += step) {
    const events = ((count[i] ?? 1) + (count[i - 1] ?? 1)) / 2;
    distances.push(((time[i] ?? 0) - (time[i - 1] ?? 0)) / Math.max(1, events));
  }
  distances.sort((a, b) => a - b);
  return distances[distances.length >> 1] ?? 0;
}

/** A step wider than this between two points is a gap: Respawn's rule, four buckets or four usual distances. */
export function gapWidth(level: number, interval: number): number {
  return 4 * Math.max(bucketWidth(level), interval);
}
