/**
 * Plays what the plots show as it happened: a playhead goes through a range, at the pace at which the server sends rows.
 *
 * Invariants: `at` lies within the range; between rows it runs on by the clock, and never backwards while it plays. A pause
 * ends the requests, and playing on begins behind the last row that came, so that no row comes twice or never.
 * Concurrency: the page's one thread; a request for each table of the channels.
 */
import { replayRows, type ReplayRow } from "../api/replay";
import type { ApiError, Client } from "../api/client";
import { channelOf } from "../lib/channel";
import { Emitter } from "../lib/emitter";
import { selectionOf, type TableSelection } from "../lib/selection";
import { toBig, type Instant, type Span } from "../lib/time";

/** Seconds of the data in one second. */
export type Speed = 1 | 10 | 60 | "max";
export const SPEEDS: readonly Speed[] = [1, 10, 60, "max"];

/** The newest row of a channel behind which the playhead is. */
export interface Played {
  readonly time: Instant;
  readonly value: number | string | boolean;
}

/** A row that lies so many seconds of the clock ahead is waited for without a request. */
const AHEAD_S = 5;
const NS_PER_S = 1e9;

/** A table's rows on their way. */
interface Course {
  readonly selection: TableSelection;
  control: AbortController | undefined;
  /** The row it goes on behind. */
  cursor: string | undefined;
  /** The newest row that came. */
  reached: Instant;
  /** Rows that came and are still ahead of the playhead. */
  readonly queue: ReplayRow[];
  /** There is nothing before this: it is asked for when the playhead comes near. */
  wakeAt: Instant | undefined;
  isOver: boolean;
}

export class Replay {
  readonly changed = new Emitter();
  /** What is played; nothing while the plots are as ever. */
  range: Span | undefined;
  speed: Speed = 10;
  isPlaying = false;
  /** Rows of the channels that were played since it began, or since somebody moved the playhead. */
  rows = 0;
  error: ApiError | undefined;
  readonly values = new Map<string, Played>();

  private place: Instant = 0n;
  /** Where the playhead was when, since when it runs by the clock. */
  private anchor: { readonly at: Instant; readonly ms: number } | undefined;
  private courses: Course[] = [];

  constructor(
    private readonly client: Client,
    private readonly channels: () => readonly { readonly stream: string; readonly field: string }[],
    private readonly onChange: () => void,
    private readonly clock: () => number = () => performance.now(),
    private readonly past: () => string | undefined = () => undefined,
  ) {}

  /** Where the playhead is now. */
  get at(): Instant {
    const { range, anchor, speed } = this;
    if (!range) return 0n;
    let at = this.place;
    if (this.isPlaying && anchor && speed !== "max") {
      at = anchor.at + toBig((this.clock() - anchor.ms) * 1e6 * speed);
    }
    if (at < this.place) at = this.place;
    return at > range.to ? range.to : at;
  }

  open(range: Span): void {
    this.close();
    if (range.to <= range.from) return;
    this.range = range;
    this.place = range.from;
    this.tell();
  }

  close(): void {
    this.halt();
    this.range = undefined;
    this.forget();
    this.tell();
  }

  toggle(): void {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  play(): void {
    const { range } = this;
    if (!range || this.isPlaying) return;
    // At its end it begins anew.
    if (this.place >= range.to) this.seek(range.from);
    this.error = undefined;
    this.isPlaying = true;
    if (this.courses.length === 0) {
      this.courses = selectionOf(this.channels()).map((selection) => ({
        selection,
        control: undefined,
        cursor: undefined,
        reached: this.place,
        queue: [],
        wakeAt: undefined,
        isOver: false,
      }));
    }
    for (const course of this.courses) if (!course.isOver && course.wakeAt === undefined) this.start(course, range);
    // What came before a pause may be all there is.
    if (this.courses.every((course) => !course.control)) this.anchor = { at: this.place, ms: this.clock() };
    this.tell();
    this.advance();
  }

  pause(): void {
    this.halt();
    this.tell();
  }

  /** Puts the playhead somewhere; it goes on from there if it was playing. */
  seek(at: Instant): void {
    const { range, isPlaying } = this;
    if (!range) return;
    this.halt();
    this.forget();
    this.place = at < range.from ? range.from : at > range.to ? range.to : at;
    if (isPlaying && this.place < range.to) this.play();
    else this.tell();
  }

  setSpeed(speed: Speed): void {
    if (speed === this.speed) return;
    const { isPlaying } = this;
    this.halt();
    this.speed = speed;
    if (isPlaying) this.play();
    else this.tell();
  }

  /** What was said of the channels before is not true of others. */
  reselect(): void {
    if (this.range) this.seek(this.at);
  }

  /** Takes in what the playhead has passed; called for each frame while it plays. */
  advance(): void {
    const { range, speed } = this;
    if (!range || !this.isPlaying) return;
    const awake = this.courses.filter((course) => !course.isOver || course.queue.length > 0);
    if (awake.length === 0) {
      this.end(range);
      return;
    }
    // Where there is nothing for long, nobody wants to wait.
    const wakes = awake.map((course) => course.wakeAt);
    if (wakes.every((at) => at !== undefined) && speed !== "max") {
      const soon = wakes.reduce((least, at) => (at < least ? at : least)) - toBig(speed * NS_PER_S);
      if (soon > this.at) {
        this.place = soon;
        this.anchor = { at: soon, ms: this.clock() };
      }
    }
    const { at } = this;
    for (const course of awake) {
      if (course.wakeAt !== undefined && (speed === "max" || at >= course.wakeAt - toBig(speed * NS_PER_S))) {
        course.wakeAt = undefined;
        this.start(course, range);
      }
      const ahead = speed === "max" ? -1 : course.queue.findIndex((row) => row.time > at);
      const passed = course.queue.splice(0, ahead < 0 ? course.queue.length : ahead);
      for (const row of passed) this.pass(row, course.selection.streams);
    }
  }

  private start(course: Course, range: Span): void {
    const { table, tags, fields } = course.selection;
    const control = new AbortController();
    course.control = control;
    const ask = {
      table,
      tags,
      fields,
      // By the clock the playhead may be ahead of rows that have not come yet.
      from: course.cursor === undefined ? this.place : course.reached,
      to: range.to,
      past: this.past(),
      ...(course.cursor === undefined ? {} : { after: course.cursor }),
      ...(this.speed === "max" ? {} : { speed: this.speed }),
    };
    const take = (rows: readonly ReplayRow[]): void => {
      if (!control.signal.aborted) this.take(course, rows);
    };
    void replayRows(this.client, ask, take, control.signal).then((outcome) => {
      if (control.signal.aborted) return;
      course.control = undefined;
      course.isOver = true;
      if (outcome.ok) {
        this.advance();
        this.onChange();
        return;
      }
      this.error = outcome.error;
      this.pause();
    });
  }

  private take(course: Course, rows: readonly ReplayRow[]): void {
    const [first] = rows;
    const last = rows[rows.length - 1];
    const { speed } = this;
    if (!first || !last) return;
    if (speed !== "max" && course.queue.length === 0 && first.time - this.at > toBig(AHEAD_S * speed * NS_PER_S)) {
      // The server begins with the first row at once: it would stay ahead by all that lies before it.
      course.control?.abort();
      course.control = undefined;
      course.wakeAt = first.time;
    } else {
      course.cursor = last.cursor;
      course.reached = last.time;
      course.queue.push(...rows);
      this.anchor ??= { at: this.place, ms: this.clock() };
    }
    if (speed === "max") {
      const reached = this.courses.filter((each) => !each.isOver).map((each) => each.reached);
      const least = reached.reduce((a, b) => (b < a ? b : a), last.time);
      if (least > this.place) this.place = least;
    }
    this.advance();
    this.onChange();
  }

  private pass({ time, stream, fields }: ReplayRow, streams: ReadonlySet<string>): void {
    if (!streams.has(stream)) return;
    this.rows++;
    for (const [field, value] of Object.entries(fields)) {
      if (typeof value !== "number" && typeof value !== "string" && typeof value !== "boolean") continue;
      this.values.set(channelOf(stream, field), { time, value });
    }
  }

  private end(range: Span): void {
    this.halt();
    this.place = range.to;
    this.courses = [];
    this.tell();
  }

  /** Ends what is under way; what came is kept. */
  private halt(): void {
    if (this.isPlaying) this.place = this.at;
    this.isPlaying = false;
    this.anchor = undefined;
    for (const course of this.courses) {
      course.control?.abort();
      course.control = undefined;
    }
  }

  private forget(): void {
    this.courses = [];
    this.values.clear();
    this.rows = 0;
    this.error = undefined;
  }

  private tell(): void {
    this.changed.emit();
    this.onChange();
  }
}
