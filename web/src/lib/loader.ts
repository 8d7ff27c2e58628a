/**
 * Fetches tiles that a plan wants and the store has not.
 *
 * Invariants: at most `LIMIT` requests are under way, at most `AHEAD_LIMIT` of them for what is not in view yet, and none
 * of these begins while something in view is under way; channels that want the same tile share one; what a new plan does
 * not want any more is not asked for, and abandoned if it is under way. A tile that failed is asked for again after
 * 0.5, 1, 2 … seconds, five times, and not at all if the request is refused; then it rests until `retry`. A tile that is
 * elsewhere is no failure: what is in view is got from there, a few at once, and asked for again after a while.
 * Concurrency: all on the page's one thread.
 */
import type { ApiError, Outcome } from "../api/client";
import { keyOf, type Address } from "./level";
import { PREFETCH, SEEN, type Want } from "./plan";
import type { TileData, TileStore } from "./tiles";

export const LIMIT = 8;
/** Browsers have six connections to a server of HTTP/1.1: some stay free for what comes into view. */
export const AHEAD_LIMIT = 3;
const CHANNELS_MAX = 64;
const ATTEMPTS_MAX = 5;
/** Requests that wait for another node leave room for those that do not. */
export const FETCH_LIMIT = 4;
/** When a tile is asked for again that was elsewhere. */
export const AWAY_MS = 10_000;
/** A tile in view is asked for anew when it is stale, but not more often than this. */
const REFRESH_MS = 400;

/** A tile of one channel, or why there is none. */
export interface TileAnswer {
  readonly channel: string;
  readonly data: TileData | undefined;
  readonly error?: ApiError;
  /** It is there, but not here: another node has it, which may not be reached now. */
  readonly isAway?: boolean;
}

export type FetchTiles = (
  channels: readonly string[],
  address: Address,
  signal: AbortSignal,
  /** What is elsewhere is to be got from there. */
  fetches: boolean,
) => Promise<Outcome<TileAnswer[]>>;

/** A tile that is elsewhere. */
export interface Away {
  readonly error: ApiError;
  /** When it was found to be, and asked for again. */
  readonly ms: number;
  /** It could not be got from there either. */
  readonly isOutOfReach: boolean;
}

interface Flight {
  readonly key: string;
  readonly address: Address;
  readonly channels: ReadonlySet<string>;
  readonly control: AbortController;
  /** It waits for another node. */
  readonly fetches: boolean;
  /** As the newest plan has it. */
  rank: number;
}

interface Failure {
  attempts: number;
  again: number;
}

/** Channels of a tile to ask for. */
interface Missing {
  readonly want: Want;
  readonly channels: string[];
  readonly fetches: boolean;
}

export interface LoaderStatus {
  readonly inFlight: number;
  readonly queued: number;
  /** The newest failure of something in view, until it succeeds. */
  readonly error: ApiError | undefined;
}

export class Loader {
  private wants: readonly Want[] = [];
  private readonly flights = new Set<Flight>();
  private readonly failures = new Map<string, Failure>();
  private readonly away = new Map<string, Away>();
  /** Channels that are not to be asked for, and why: unknown, or not numeric. */
  readonly refused = new Map<string, ApiError>();
  private error: ApiError | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Counters for whoever watches: a test, or the help page. */
  readonly counters = { requests: 0, inFlightMax: 0, abandoned: 0, failed: 0 };

  constructor(
    private readonly store: TileStore,
    private readonly fetchTiles: FetchTiles,
    private readonly arrivals: () => number,
    private readonly onChange: () => void,
    private readonly clock: () => number = () => performance.now(),
  ) {}

  /** The newest failure of something in view, until it succeeds. */
  get failure(): ApiError | undefined {
    return this.error;
  }

  status(): LoaderStatus {
    return { inFlight: this.flights.size, queued: this.missing().length, error: this.error };
  }

  /** Whether something that is seen is still to come. */
  isWaiting(): boolean {
    return this.wants.some(
      (want) =>
        want.rank < SEEN &&
        [...want.channels].some(
          (channel) =>
            !this.refused.has(channel) && !this.store.get(channel, want) && !this.awayAt(channel, want)?.isOutOfReach,
        ),
    );
  }

  /** Why a tile is not here, if it was found to be elsewhere. */
  awayAt(channel: string, address: Address): Away | undefined {
    return this.away.get(`${keyOf(address)} ${channel}`);
  }

  /** Replaces what is wanted. */
  want(wants: readonly Want[]): void {
    this.wants = wants;
    const keys = new Map(wants.map((w) => [keyOf(w), w]));
    for (const flight of this.flights) {
      const still = keys.get(flight.key);
      if (still && [...flight.channels].some((channel) => still.channels.has(channel))) {
        flight.rank = still.rank;
        continue;
      }
      this.counters.abandoned++;
      this.flights.delete(flight);
      flight.control.abort();
    }
    this.pump();
  }

  /** Asks again for what has been given up. */
  retry(): void {
    this.failures.clear();
    this.away.clear();
    this.refused.clear();
    this.error = undefined;
    this.pump();
  }

  stop(): void {
    this.want([]);
    clearTimeout(this.timer);
  }

  private pump(): void {
    clearTimeout(this.timer);
    for (const { want, channels, fetches } of this.missing()) {
      if (this.flights.size >= LIMIT) return;
      if (want.rank >= PREFETCH && !this.isFreeAhead()) break;
      if (fetches && [...this.flights].filter((flight) => flight.fetches).length >= FETCH_LIMIT) continue;
      this.start(want, channels, fetches);
    }
    this.wakeLater();
  }

  /** Whether one more tile may be asked for that is not in view yet. */
  private isFreeAhead(): boolean {
    const flights = [...this.flights];
    return flights.length < AHEAD_LIMIT && flights.every((flight) => flight.rank >= PREFETCH);
  }

  /** Tiles to ask for now, most urgent first, each with at most as many channels as a request may name. */
  private missing(): Missing[] {
    const now = this.clock();
    const out: Missing[] = [];
    for (const want of this.wants) {
      const key = keyOf(want);
      const channels = [...want.channels].filter((channel) => {
        if (this.refused.has(channel)) return false;
        const tile = this.store.get(channel, want);
        if (tile && !(tile.stale && want.rank < PREFETCH && now - tile.asked.ms >= REFRESH_MS)) return false;
        if (this.rests(channel, want, now)) return false;
        const failure = this.failures.get(`${key} ${channel}`);
        if (failure && (failure.attempts >= ATTEMPTS_MAX || failure.again > now)) return false;
        return !this.isUnderWay(key, channel);
      });
      const away = isWorthFetching(want) ? channels.filter((channel) => this.awayAt(channel, want)) : [];
      for (const channel of away) out.push({ want, channels: [channel], fetches: true });
      const others = channels.filter((channel) => !away.includes(channel));
      for (let i = 0; i < others.length; i += CHANNELS_MAX) {
        out.push({ want, channels: others.slice(i, i + CHANNELS_MAX), fetches: false });
      }
    }
    return out;
  }

  /** Whether a tile was asked for not long ago, and was elsewhere. */
  private rests(channel: string, want: Want, now: number): boolean {
    const away = this.awayAt(channel, want);
    if (!away) return false;
    // What is in view may be got from there: that was not tried yet.
    if (!away.isOutOfReach && isWorthFetching(want)) return false;
    if (want.rank >= PREFETCH) return true;
    return now - away.ms < AWAY_MS;
  }

  private isUnderWay(key: string, channel: string): boolean {
    for (const flight of this.flights) if (flight.key === key && flight.channels.has(channel)) return true;
    return false;
  }

  private start({ level, offset, rank }: Want, channels: readonly string[], fetches: boolean): void {
    const address = { level, offset };
    const flight: Flight = {
      key: keyOf(address),
      address,
      channels: new Set(channels),
      control: new AbortController(),
      fetches,
      rank,
    };
    const asked = { ms: this.clock(), arrivals: this.arrivals() };
    this.flights.add(flight);
    this.counters.requests++;
    this.counters.inFlightMax = Math.max(this.counters.inFlightMax, this.flights.size);
    void this.fetchTiles(channels, address, flight.control.signal, fetches).then((outcome) => {
      // An abandoned request has left the set already.
      if (!this.flights.delete(flight)) return;
      if (outcome.ok) this.accept(flight, outcome.value, asked);
      else this.fail(flight, outcome.error);
      this.pump();
      this.onChange();
    });
  }

  private accept(flight: Flight, answers: readonly TileAnswer[], asked: { ms: number; arrivals: number }): void {
    this.error = undefined;
    for (const answer of answers) {
      const key = `${flight.key} ${answer.channel}`;
      this.away.delete(key);
      if (answer.isAway && answer.error) {
        this.away.set(key, { error: answer.error, ms: this.clock(), isOutOfReach: flight.fetches });
        // Some hundred are enough: those of long ago are asked for again.
        for (const [oldest] of this.away) if (this.away.size > 512) this.away.delete(oldest);
      } else if (answer.data) {
        this.failures.delete(key);
        this.store.put(answer.channel, flight.address, answer.data, asked);
      } else if (answer.error) {
        this.refused.set(answer.channel, answer.error);
      }
    }
  }

  private fail(flight: Flight, error: ApiError): void {
    this.counters.failed++;
    this.error = error;
    const now = this.clock();
    // Asking again would not change what the server thinks of the request; a token would, and ends in `retry`.
    const isFinal = error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429;
    for (const channel of flight.channels) {
      const key = `${flight.key} ${channel}`;
      const attempts = isFinal ? ATTEMPTS_MAX : (this.failures.get(key)?.attempts ?? 0) + 1;
      this.failures.set(key, { attempts, again: now + 500 * 2 ** (attempts - 1) });
    }
  }

  /** Wakes when a failed or stale tile may be asked for again. */
  private wakeLater(): void {
    const now = this.clock();
    let soonest = Infinity;
    for (const want of this.wants) {
      for (const channel of want.channels) {
        if (this.refused.has(channel)) continue;
        const tile = this.store.get(channel, want);
        if (this.isUnderWay(keyOf(want), channel)) continue;
        const away = this.awayAt(channel, want);
        if (away) {
          if (want.rank >= PREFETCH) continue;
          soonest = Math.min(soonest, away.ms + AWAY_MS);
          continue;
        }
        if (tile?.stale && want.rank < PREFETCH) soonest = Math.min(soonest, tile.asked.ms + REFRESH_MS);
        const failure = this.failures.get(`${keyOf(want)} ${channel}`);
        if (!tile && failure && failure.attempts < ATTEMPTS_MAX) soonest = Math.min(soonest, failure.again);
      }
    }
    if (Number.isFinite(soonest)) {
      this.timer = setTimeout(() => this.pump(), Math.max(20, soonest - now));
    }
  }
}

/** What is seen is worth what it costs an edge; what would complete it, or come next, is not. */
function isWorthFetching(want: Want): boolean {
  return want.rank < SEEN && !want.isOverview;
}
