/**
 * Live values of the channels, and the newest instant, which runs on smoothly between them.
 *
 * Invariant: the edge never goes backwards. Concurrency: the page's one thread; one request that stays open.
 */
import type { ApiError, Client } from "../api/client";
import { listen } from "../api/live";
import { nowInstant, toBig, type Instant } from "../lib/time";
import type { Channels } from "./channels";

/** How far the right edge runs on after the newest live value. */
const RUN_MS = 2_000;

interface Heard {
  /** Values of a channel came, at these instants. */
  came(channel: string, instants: readonly Instant[]): void;
  /** Some may have been missed. */
  missed(): void;
  changed(): void;
}

export class Listening {
  error: ApiError | undefined;
  private newest: { at: Instant; ms: number } | undefined;
  private unlisten: (() => void) | undefined;

  constructor(
    private readonly client: Client,
    private readonly channels: Channels,
    private readonly heard: Heard,
  ) {}

  /** Listens to these channels, and to no others. */
  to(names: readonly string[]): void {
    this.stop();
    if (names.length === 0) return;
    const begin = (): void => {
      for (const channel of this.channels.all) channel.liveFrom = channel.extent?.to;
    };
    this.unlisten = listen(this.client, names, {
      values: ({ channel, time, value }) => {
        if (this.channels.arrive(channel, time, value)) this.heard.came(channel, time);
      },
      missed: () => {
        begin();
        this.heard.missed();
      },
      state: (isConnected, error) => {
        if (isConnected) begin();
        this.error = error;
        this.heard.changed();
      },
    });
  }

  stop(): void {
    this.unlisten?.();
    this.unlisten = undefined;
  }

  /** The newest instant, running on smoothly for a while after it came. */
  edge(ms: number): Instant {
    const newest = this.channels.extent()?.to ?? nowInstant();
    if (this.newest?.at !== newest) {
      const before = this.newest;
      const reached = before ? before.at + toBig(Math.min(ms - before.ms, RUN_MS) * 1e6) : undefined;
      // If the edge ran ahead of what came, it waits there instead of jumping back.
      const ahead = reached !== undefined && reached > newest ? Math.min(Number(reached - newest) / 1e6, RUN_MS) : 0;
      this.newest = { at: newest, ms: ms - ahead };
    }
    return newest + toBig(Math.min(ms - this.newest.ms, RUN_MS) * 1e6);
  }

  /** Whether the edge still moves by itself. */
  runs(ms: number): boolean {
    return this.newest !== undefined && ms - this.newest.ms < RUN_MS;
  }
}
