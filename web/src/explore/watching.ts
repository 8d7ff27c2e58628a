/**
 * Follows a watch: its matches as they come and are taken back, which are marks on the plots.
 *
 * Invariants: `matches` are those told and not taken back, in order of time, the newest of them. Marks are drawn anew only
 * as long as they are still this watch's. Concurrency: the page's one thread; one request that stays open.
 */
import type { ApiError, Client } from "../api/client";
import { followWatch, type Watch, type WatchEvent } from "../api/watches";
import { Emitter } from "../lib/emitter";
import type { Marks, PlotMark } from "../lib/marks";
import { lowerBoundBy } from "../lib/order";

/** Matches that are held. */
export const MATCHES_MAX = 1_000;
/** Events that are told together. */
const TELL_MS = 60;

interface Drawn {
  renew(marks: Marks, owner: object): void;
  set(marks: Marks | undefined, owner?: object): void;
  draws(owner: object): boolean;
}

export class Watching {
  readonly changed = new Emitter();
  /** Whether the list of watches is shown. */
  isOpen = false;
  /** The watch that is followed. */
  name: string | undefined;
  matches: PlotMark[] = [];
  /** Matches that were told before, and are not held. */
  hasMore = false;
  /** Events that the server does not keep any more. */
  missed = 0;
  /** How many were taken back since it is followed. */
  takenBack = 0;
  isConnected = false;
  error: ApiError | undefined;
  private end: (() => void) | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly client: Client,
    private readonly marking: Drawn,
  ) {}

  toggle(): void {
    this.isOpen = !this.isOpen;
    if (!this.isOpen) this.stop();
    this.changed.emit();
  }

  /** Whether its matches are drawn on the plots. */
  get isDrawn(): boolean {
    return this.marking.draws(this);
  }

  follow(watch: Watch): void {
    this.stop();
    this.name = watch.name;
    const after = Math.max(0, watch.sequence - MATCHES_MAX);
    this.hasMore = after > 0;
    this.marking.set(this.marks(), this);
    this.end = followWatch(this.client, watch.name, after, {
      event: (event) => this.take(event),
      gap: (missed) => {
        if (missed === undefined) this.matches = [];
        else this.missed += missed;
        this.tellSoon();
      },
      state: (isConnected, error) => {
        this.isConnected = isConnected;
        this.error = error;
        this.changed.emit();
      },
    });
    this.changed.emit();
  }

  stop(): void {
    this.end?.();
    this.end = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.name !== undefined && this.isDrawn) this.marking.set(undefined);
    this.name = undefined;
    this.matches = [];
    this.missed = this.takenBack = 0;
    this.hasMore = this.isConnected = false;
    this.error = undefined;
    this.changed.emit();
  }

  /** Draws the matches again, after something else was marked. */
  draw(): void {
    this.marking.set(this.marks(), this);
    this.changed.emit();
  }

  private take(event: WatchEvent): void {
    const known = this.matches.findIndex((mark) => mark.id === event.id);
    if (event.kind !== "match") {
      if (known >= 0) this.matches.splice(known, 1);
      this.takenBack++;
    } else if (known < 0) {
      const mark = markOf(event);
      this.matches.splice(
        lowerBoundBy(this.matches, (other) => other.from > mark.from),
        0,
        mark,
      );
      if (this.matches.length > MATCHES_MAX) {
        this.matches.shift();
        this.hasMore = true;
      }
    }
    this.tellSoon();
  }

  private tellSoon(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.marking.renew(this.marks(), this);
      this.changed.emit();
    }, TELL_MS);
  }

  private marks(): Marks {
    return { title: this.name ?? "", all: [...this.matches], more: this.hasMore };
  }
}

/** A match as a mark: what it answers is told, and texts of it may be tags. */
export function markOf(event: WatchEvent): PlotMark {
  const row = Object.entries(event.row ?? {});
  return {
    id: event.id,
    from: event.first,
    to: event.last,
    stream: undefined,
    tags: row.flatMap(([name, value]) => (typeof value === "string" ? [[name, value] as const] : [])),
    text: row.map(([name, value]) => `${name} ${shown(value)}`).join(", "),
  };
}

function shown(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
