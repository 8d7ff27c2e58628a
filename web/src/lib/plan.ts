/**
 * Which tiles a view wants, in what order. Pure: the loader asks for what is missing.
 *
 * What is seen comes first, from the middle outwards, then what would complete it (an overview of everything, the events
 * beyond the borders), then what is likely to be seen next: what another step of the zoom would show, neighbours in the
 * direction of movement, and the parents.
 */
import { LEVEL_MAX, offsetOf, overviewLevel, parentOf, tilesOf, keyOf, type Address } from "./level";
import { neighbourOf } from "./neighbour";
import type { TileStore } from "./tiles";
import type { Span } from "./time";

export interface PlanInput {
  readonly view: Span;
  readonly level: number;
  readonly channels: readonly { readonly channel: string; readonly extent: Span | undefined }[];
  /** −1 back in time, 1 forward, 0 at rest. */
  readonly motion: -1 | 0 | 1;
  /** −1 zooming in, 1 zooming out, 0 neither. */
  readonly zoom: -1 | 0 | 1;
  /** What another step of the zoom like the last one would show, and at what level. */
  readonly next: { readonly view: Span; readonly level: number };
  /** Whether a tile is known to be elsewhere. */
  readonly isAway?: (channel: string, address: Address) => boolean;
}

/** A tile to have, of the channels named. Smaller `rank` is more urgent: below `SEEN` it is in view, from `PREFETCH` on not yet. */
export interface Want extends Address {
  readonly rank: number;
  readonly channels: Set<string>;
  /** It stands for a finer one that is elsewhere, and is of use only if it is here. */
  readonly isOverview?: boolean;
}

export const SEEN = 20;
export const PREFETCH = 100;

export function plan(store: TileStore, input: PlanInput): Want[] {
  const { view, level, channels } = input;
  const wants = new Map<string, Want>();
  const want = (address: Address, rank: number, only?: string): void => {
    const key = keyOf(address);
    let entry = wants.get(key);
    if (!entry) wants.set(key, (entry = { ...address, rank, channels: new Set() }));
    for (const { channel, extent } of channels) {
      if (only !== undefined && channel !== only) continue;
      if (extent && !meets(address, extent)) continue;
      entry.channels.add(channel);
    }
  };

  const seen = tilesOf(level, view);
  overviews(wants, seen, input);
  const middle = (seen.length - 1) / 2;
  seen.forEach((tile, index) => want(tile, Math.min(SEEN - 1, 1 + Math.abs(index - middle))));

  // With nothing at all to show, one coarse tile is the quickest picture.
  for (const { channel, extent } of channels) {
    if (extent) {
      for (const tile of tilesOf(overviewLevel(extent), extent)) want(tile, 30, channel);
    }
    const before = neighbourOf(store, channel, level, view.from, -1, extent).need;
    const after = neighbourOf(store, channel, level, view.to, 1, extent).need;
    if (before) want(before, SEEN, channel);
    if (after) want(after, SEEN, channel);
  }

  // While the view moves sideways its neighbours are likelier.
  const nextRank = PREFETCH + (input.motion !== 0 ? 15 : input.zoom === 0 ? 5 : 1);
  const nexts = tilesOf(input.next.level, input.next.view);
  const center = (nexts.length - 1) / 2;
  nexts.forEach((tile, index) => want(tile, nextRank + Math.min(3, Math.abs(index - center))));
  const first = seen[0];
  const last = seen[seen.length - 1];
  if (first && last) {
    const left = { level, offset: first.offset - 1 };
    const right = { level, offset: last.offset + 1 };
    want(left, PREFETCH + (input.motion === 1 ? 30 : 10));
    want(right, PREFETCH + (input.motion === -1 ? 30 : 10));
    for (const tile of [left, first, last, right]) want(parentOf(tile), PREFETCH + (input.zoom === 1 ? 5 : 20));
  }
  return [...wants.values()].filter((w) => w.channels.size > 0).sort((a, b) => a.rank - b.rank);
}

/** For tiles of the view that are elsewhere the finest that may be here, looked for level by level. */
function overviews(wants: Map<string, Want>, seen: readonly Address[], { channels, isAway }: PlanInput): void {
  if (!isAway) return;
  for (const { channel, extent } of channels) {
    for (const tile of seen) {
      if ((extent && !meets(tile, extent)) || !isAway(channel, tile)) continue;
      let coarser = parentOf(tile);
      while (coarser.level < LEVEL_MAX && isAway(channel, coarser)) coarser = parentOf(coarser);
      const key = `overview ${keyOf(coarser)}`;
      const want = wants.get(key) ?? { ...coarser, rank: 0, channels: new Set<string>(), isOverview: true };
      want.channels.add(channel);
      wants.set(key, want);
    }
  }
}

/** Whether a tile can hold events of the extent. */
function meets(address: Address, extent: Span): boolean {
  return offsetOf(address.level, extent.from) <= address.offset && address.offset <= offsetOf(address.level, extent.to);
}
