/**
 * The next event beyond a border of the view, found through coarser tiles.
 *
 * A view between two events shows no point of its own tiles, yet the line crosses it. The search climbs until a coarser
 * tile has a point on the wanted side, then goes down into that point's bucket, nine levels (one tile) at a step, until
 * the bucket holds a single event. What has been found on the way is good enough to draw; `need` names the tile that
 * would make it better.
 */
import { BUCKETS, clampLevel, LEVEL_MAX, offsetOf, tileStart, type Address } from "./level";
import type { Instant, Span } from "./time";
import { nearest, type Found, type TileStore } from "./tiles";

export interface Neighbour {
  readonly found?: Found;
  readonly need?: Address;
}

/** Levels climbed at once: a tile eight levels up is 256 tiles wide. */
const CLIMB = 4;
const DESCENT = 9;

/**
 * @param border the view's border; −1 looks for the last event before it, +1 for the first at or after it
 * @param extent first and last event of the channel; beyond it there is nothing to look for
 */
export function neighbourOf(
  store: TileStore,
  channel: string,
  level: number,
  border: Instant,
  direction: -1 | 1,
  extent: Span | undefined,
): Neighbour {
  // On that side is nothing; or everything is, so that no line comes from there.
  if (extent && (extent.from >= border || (direction === -1 ? extent.to < border : extent.to <= border))) return {};
  const at = direction === -1 ? border - 1n : border;
  let need: Address | undefined;
  for (let up = level; up <= LEVEL_MAX; up++) {
    const address = { level: up, offset: offsetOf(up, at) };
    const tile = store.get(channel, address);
    if (!tile) {
      // Tiles of this level are fetched anyway; above it only every fourth level is asked for.
      if ((up - level) % CLIMB === 0) need ??= address;
      continue;
    }
    const index = nearest(tile, border, direction);
    if (index === undefined) continue;
    return descend(store, channel, level, border, direction, { tile, index });
  }
  return need ? { need } : {};
}

function descend(
  store: TileStore,
  channel: string,
  finest: number,
  border: Instant,
  direction: -1 | 1,
  start: Found,
): Neighbour {
  let found = start;
  while (found.tile.level > finest && (found.tile.count[found.index] ?? 1) > 1) {
    const level = clampLevel(Math.max(finest, found.tile.level - DESCENT));
    // The bucket of the found point, and its instant closest to the border.
    const time = found.tile.start + BigInt(Math.round(found.tile.time[found.index] ?? 0));
    const bucket = bucketOf(found.tile.level, time);
    const edge =
      direction === -1
        ? bucket.to < border
          ? bucket.to - 1n
          : border - 1n
        : bucket.from > border
          ? bucket.from
          : border;
    const address = { level, offset: offsetOf(level, edge) };
    const tile = store.get(channel, address);
    if (!tile) return { found, need: address };
    const index = nearest(tile, border, direction);
    // The bucket's events lie on the other side of the border, or farther than one tile: what is found will do.
    if (index === undefined) return { found };
    found = { tile, index };
  }
  return { found };
}

/** The bucket of a level that holds an instant. */
export function bucketOf(level: number, at: Instant): Span {
  // A bucket is a tile nine levels below.
  const tileLevel = level - Math.log2(BUCKETS);
  const offset = offsetOf(tileLevel, at);
  return { from: tileStart(tileLevel, offset), to: tileStart(tileLevel, offset + 1) };
}
