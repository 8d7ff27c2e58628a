/**
 * What of the channels on screen is not here: which stretches of the view, who has them, and since when that one cannot be
 * reached.
 *
 * Invariants: nothing is asked for as long as all tiles are here; then at most once in `AGAIN_MS` for each stream, when the
 * view has come to rest. What is known stays shown until something newer is.
 */
import { fetchPresence, type Presence } from "../api/presence";
import type { Client } from "../api/client";
import { tilesOf } from "../lib/level";
import { cellOf, sinceWords, sourceAt, spanOfCells } from "../lib/presence";
import { formatInstant, nowInstant, type Instant, type Span, type Zone } from "../lib/time";
import type { Loader } from "../lib/loader";
import type { Channel } from "./channels";

const BINS = 128;
const AGAIN_MS = 4_000;
/** What an edge sends so soon needs no word. */
const PATIENCE_MS = 400;

/** A stretch of which only an overview is here, or nothing. */
export interface Mark extends Span {
  /** Who has it can be asked now. */
  readonly isInReach: boolean;
  readonly words: string;
}

interface Known {
  readonly key: string;
  readonly ms: number;
  /** When something was found to be missing first: as long as it cannot be told since when. */
  readonly since: Instant;
  readonly presence: Presence | undefined;
  readonly message: string | undefined;
}

export class AwayParts {
  private readonly streams = new Map<string, Known>();
  private readonly asking = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly client: Client,
    private readonly loader: Loader,
    private readonly onChange: () => void,
    private readonly clock: () => number = () => performance.now(),
  ) {}

  /** Looks whether something of the view is elsewhere, and asks who has it. */
  look(channels: readonly Channel[], view: Span, level: number): void {
    const streams = new Set<string>();
    clearTimeout(this.timer);
    for (const channel of channels) {
      const found = tilesOf(level, view).flatMap((tile) => this.loader.awayAt(channel.name, tile) ?? []);
      if (found.some(({ isOutOfReach, ms }) => isOutOfReach || this.clock() - ms >= PATIENCE_MS)) {
        streams.add(channel.stream);
      } else if (found.length > 0) {
        this.timer = setTimeout(this.onChange, PATIENCE_MS);
      }
    }
    for (const stream of [...this.streams.keys()]) {
      if (streams.has(stream)) continue;
      this.streams.delete(stream);
      this.onChange();
    }
    for (const stream of streams) this.ask(stream, view, level);
  }

  /** Whether a tile of the view was found to be elsewhere. */
  isAway({ name }: Channel, view: Span, level: number): boolean {
    return tilesOf(level, view).some((tile) => this.loader.awayAt(name, tile));
  }

  private ask(stream: string, view: Span, level: number): void {
    const key = `${level} ${view.from} ${view.to}`;
    const before = this.streams.get(stream);
    if (this.asking.has(stream)) return;
    if (before && (before.key === key ? this.clock() - before.ms < AGAIN_MS : this.clock() - before.ms < 300)) return;
    this.asking.add(stream);
    const since = before?.since ?? nowInstant();
    void fetchPresence(this.client, { stream, span: view, bins: BINS, level }).then((outcome) => {
      this.asking.delete(stream);
      this.streams.set(stream, {
        key,
        ms: this.clock(),
        since,
        presence: outcome.ok ? outcome.value : undefined,
        message: outcome.ok ? undefined : outcome.error.message,
      });
      this.onChange();
    });
  }

  /** The stretches of a channel that are not here. */
  marks(channel: Channel, view: Span, level: number, zone: Zone): Mark[] {
    const known = this.streams.get(channel.stream);
    if (!known) return [];
    const extent = channel.extent ?? view;
    const from = extent.from > view.from ? extent.from : view.from;
    const to = extent.to < view.to ? extent.to : view.to;
    if (to <= from) return [];
    if (!known.presence) {
      // Nobody says which part it is: those tiles are marked that could not be had.
      const words = `${known.message ?? "it cannot be reached"} (noticed ${formatInstant(known.since, zone, 0)})`;
      return this.isAway(channel, view, level) ? [{ from, to, isInReach: false, words }] : [];
    }
    return marksOf(known.presence, { from, to }, zone);
  }
}

/** Stretches of the first line that are not here, within a span; neighbours of one edge are one. */
export function marksOf(presence: Presence, within: Span, zone: Zone, now: Instant = nowInstant()): Mark[] {
  const [line] = presence.lines;
  const out: Mark[] = [];
  for (let k = 0; k < (line?.cells.length ?? 0); k++) {
    const cell = line && cellOf(presence, line, k);
    if (cell !== "elsewhere" && cell !== "away") continue;
    const span = spanOfCells(presence, k, k + 1);
    const from = span.from > within.from ? span.from : within.from;
    const to = span.to < within.to ? span.to : within.to;
    if (to <= from) continue;
    const source = sourceAt(presence, span.from);
    const words = source?.isConnected ? `requested from ${source.edge ?? "its owner"}` : sinceWords(source, now, zone);
    const last = out[out.length - 1];
    if (last && last.to === from && last.words === words) out[out.length - 1] = { ...last, to };
    else out.push({ from, to, isInReach: cell === "elsewhere", words });
  }
  return out;
}
