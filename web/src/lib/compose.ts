/**
 * The points that draw one channel in one view, from the best tiles at hand.
 *
 * Invariants: for each instant the tile whose level is closest to the wanted one is taken, finer ones first; each instant
 * comes from one tile. Positions are nanoseconds after `view.from`, so their error is far below a pixel at any zoom.
 * Pure: nothing is requested here.
 */
import { bucketWidth, LEVEL_MAX, LEVEL_MIN, offsetOf, tileStart } from "./level";
import { neighbourOf } from "./neighbour";
import { gapWidth, lowerBound, type Found, type Tile, type TileStore } from "./tiles";
import type { Instant, Span } from "./time";

/** Columns of points in order; `start[i]` = 1 where a line must not come from the point before. */
export interface Points {
  readonly length: number;
  readonly x: Float64Array;
  readonly mean: Float64Array;
  readonly min: Float64Array;
  readonly max: Float64Array;
  readonly count: Float64Array;
  readonly start: Uint8Array;
  /** Share of the view for which a tile of any level, or the knowledge that nothing is there, is at hand. */
  readonly covered: number;
  /** Whether every tile of the wanted level is at hand. */
  readonly sharp: boolean;
  /** Extremes of what is in view, for the scale; `undefined` if nothing is. */
  readonly range: readonly [number, number] | undefined;
}

/** A value that came after the tiles were fetched. */
export interface TailPoint {
  readonly time: Instant;
  readonly value: number;
  /** Number of this value among all that arrived. */
  readonly arrival: number;
}

export interface ComposeInput {
  readonly store: TileStore;
  readonly channel: string;
  readonly view: Span;
  readonly level: number;
  /** First and last event, if known. Outside there is nothing to show. */
  readonly extent: Span | undefined;
  /** In order of time. */
  readonly tail: readonly TailPoint[];
  /** From here on `tail` has everything, so that nothing is missing where there is no tile yet. */
  readonly liveFrom?: Instant | undefined;
}

/** A stretch of the view, in nanoseconds after its start, and where its points come from. */
interface Piece {
  readonly from: number;
  readonly to: number;
  readonly tile: Tile;
}

type Stretch = readonly [from: number, to: number];

/** Finer tiles than this many levels below are not used for a view: too many points for what they show. */
const FINER_MAX = 3;

export function compose(input: ComposeInput): Points {
  const { store, channel, view, level, extent } = input;
  const size = Number(view.to - view.from);
  const { pieces, uncovered } = cover(input, size);

  const out = new Builder();
  const interval = store.intervalAt(channel, view.from + (view.to - view.from) / 2n);
  const before = neighbourOf(store, channel, level, view.from, -1, extent).found;
  const after = neighbourOf(store, channel, level, view.to, 1, extent).found;
  if (before) out.take(before, view.from, -Infinity, 0);
  for (const piece of pieces) out.takeAll(piece, view.from);
  takeTail(out, input, size);
  if (after) out.take(after, view.from, size, Infinity);

  return out.finish(size, (at) => gapWidth(at, interval), level, uncovered);
}

function cover(
  { store, channel, view, level, extent, liveFrom }: ComposeInput,
  size: number,
): { pieces: Piece[]; uncovered: Uncovered } {
  const pieces: Piece[] = [];
  let open: Stretch[] = [[0, size]];
  let sharp = true;
  for (const candidate of preference(level, store.levels(channel))) {
    const left: Stretch[] = [];
    for (const [from, to] of open) {
      const first = offsetOf(candidate, view.from + BigInt(Math.floor(from)));
      const last = offsetOf(candidate, view.from + BigInt(Math.ceil(to)) - 1n);
      let reached = from;
      for (let offset = first; offset <= last; offset++) {
        const tile = store.use(channel, candidate, offset);
        if (!tile) continue;
        const start = Math.max(from, Number(tileStart(candidate, offset) - view.from));
        const end = Math.min(to, Number(tileStart(candidate, offset + 1) - view.from));
        if (end <= start) continue;
        if (start > reached) left.push([reached, start]);
        pieces.push({ from: start, to: end, tile });
        reached = end;
      }
      if (reached < to) left.push([reached, to]);
    }
    open = left;
    if (candidate === level) sharp = outside(open, view, extent, liveFrom) === 0;
    if (open.length === 0) break;
  }
  pieces.sort((a, b) => a.from - b.from);
  return {
    pieces,
    uncovered: {
      nanoseconds: outside(open, view, extent, liveFrom),
      sharp: sharp && pieces.every((p) => !p.tile.stale),
    },
  };
}

interface Uncovered {
  readonly nanoseconds: number;
  readonly sharp: boolean;
}

/** How much of the stretches lies where the channel may have events. */
function outside(
  open: readonly Stretch[],
  view: Span,
  extent: Span | undefined,
  liveFrom: Instant | undefined,
): number {
  const low = extent ? Number(extent.from - view.from) : -Infinity;
  const end = extent && liveFrom !== undefined && liveFrom < extent.to ? liveFrom : extent?.to;
  const high = end === undefined ? Infinity : Number(end - view.from);
  let sum = 0;
  for (const [from, to] of open) sum += Math.max(0, Math.min(to, high) - Math.max(from, low));
  return sum;
}

/** The wanted level first, then by distance, finer ones first; only levels of which there are tiles. */
function preference(level: number, present: readonly number[]): number[] {
  const candidates = present.filter((l) => l >= Math.max(LEVEL_MIN, level - FINER_MAX) && l <= LEVEL_MAX);
  const distance = (l: number): number => (l <= level ? (level - l) * 2 : (l - level) * 2 + 1);
  candidates.sort((a, b) => distance(a) - distance(b));
  return candidates[0] === level ? candidates : [level, ...candidates];
}

function takeTail(out: Builder, { store, channel, view, level, tail }: ComposeInput, size: number): void {
  if (tail.length === 0) return;
  for (const point of tail) {
    const x = Number(point.time - view.from);
    if (x < 0 || x > size) continue;
    const tile = store.get(channel, { level, offset: offsetOf(level, point.time) });
    if (tile && tile.asked.arrivals >= point.arrival) continue;
    out.push(x, point.value, point.value, point.value, 1, level);
  }
}

/** Collects points; sorts them only if they came out of order. */
class Builder {
  private readonly x: number[] = [];
  private readonly mean: number[] = [];
  private readonly min: number[] = [];
  private readonly max: number[] = [];
  private readonly count: number[] = [];
  private readonly level: number[] = [];
  private sorted = true;

  push(x: number, mean: number, min: number, max: number, count: number, level: number): void {
    const last = this.x[this.x.length - 1];
    if (last !== undefined && x < last) this.sorted = false;
    this.x.push(x);
    this.mean.push(mean);
    this.min.push(min);
    this.max.push(max);
    this.count.push(count);
    this.level.push(level);
  }

  /** One found bucket, if it lies within (low, high). */
  take(found: Found, origin: Instant, low: number, high: number): void {
    const { tile, index } = found;
    const x = Number(tile.start - origin) + (tile.time[index] ?? 0);
    if (x < low || x > high) return;
    this.pushIndex(tile, index, x);
  }

  takeAll(piece: Piece, origin: Instant): void {
    const { tile } = piece;
    const shift = Number(tile.start - origin);
    const end = lowerBound(tile.time, piece.to - shift);
    for (let i = lowerBound(tile.time, piece.from - shift); i < end; i++)
      this.pushIndex(tile, i, shift + (tile.time[i] ?? 0));
  }

  private pushIndex(tile: Tile, i: number, x: number): void {
    this.push(x, tile.mean[i] ?? NaN, tile.min[i] ?? NaN, tile.max[i] ?? NaN, tile.count[i] ?? 0, tile.level);
  }

  finish(size: number, gap: (level: number) => number, level: number, uncovered: Uncovered): Points {
    const length = this.x.length;
    const order = this.sorted
      ? undefined
      : Array.from(this.x.keys()).sort((a, b) => (this.x[a] ?? 0) - (this.x[b] ?? 0));
    const column = (values: readonly number[]): Float64Array =>
      order ? Float64Array.from(order, (i) => values[i] ?? NaN) : Float64Array.from(values);
    const x = column(this.x);
    const mean = column(this.mean);
    const min = column(this.min);
    const max = column(this.max);
    const levels = column(this.level);
    const start = new Uint8Array(length);
    let low = Infinity;
    let high = -Infinity;
    for (let i = 0; i < length; i++) {
      const here = x[i] ?? 0;
      const distance = here - (x[i - 1] ?? -Infinity);
      // Between two tiles of different levels the wider buckets decide.
      const widest = Math.max(levels[i] ?? level, levels[i - 1] ?? level);
      if (i === 0 || distance > gap(widest) || Number.isNaN(mean[i]) || Number.isNaN(mean[i - 1])) start[i] = 1;
      if (here < -bucketWidth(level) || here > size + bucketWidth(level)) continue;
      if ((min[i] ?? NaN) < low) low = min[i] ?? low;
      if ((max[i] ?? NaN) > high) high = max[i] ?? high;
    }
    // Where a line enters and leaves counts as seen too.
    for (const [a, b, at] of [
      [0, 1, 0],
      [length - 2, length - 1, size],
    ] as const) {
      if (a < 0 || b >= length || start[b] === 1) continue;
      const xa = x[a] ?? 0;
      const xb = x[b] ?? 0;
      if (!(xa < at && xb > at)) continue;
      const y = (mean[a] ?? NaN) + ((mean[b] ?? NaN) - (mean[a] ?? NaN)) * ((at - xa) / (xb - xa));
      if (y < low) low = y;
      if (y > high) high = y;
    }
    return {
      length,
      x,
      mean,
      min,
      max,
      count: column(this.count),
      start,
      covered: size > 0 ? 1 - uncovered.nanoseconds / size : 1,
      sharp: uncovered.sharp,
      range: low <= high ? [low, high] : undefined,
    };
  }
}

/** The point closest to a position, in nanoseconds after the view's start; `undefined` if there is none. */
export function closest(points: Points, position: number): number | undefined {
  if (points.length === 0) return undefined;
  const right = lowerBound(points.x, position);
  const left = right - 1;
  if (right >= points.length) return left;
  if (left < 0) return right;
  return position - (points.x[left] ?? 0) <= (points.x[right] ?? 0) - position ? left : right;
}
