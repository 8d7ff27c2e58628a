/**
 * What the plots show and how it moves: the view, the channels, their tiles, live values, scales and the cursor.
 *
 * Invariants: `goal` is where the view is going and what tiles are asked for; `view` is what is drawn, and follows it.
 * Every frame draws all channels from the best tiles at hand; a frame that misses a part which was there before is
 * counted as blank. Concurrency: the page's one thread; every change asks for one frame.
 */
import { fetchStreams, type StreamInfo } from "../api/streams";
import { fetchTiles } from "../api/tiles";
import { failure, type ApiError, type Client, type Outcome } from "../api/client";
import {
  CHANNELS_MAX,
  HEIGHT_MAX,
  HEIGHT_MIN,
  spanOf,
  type Layout,
  type Rolling,
  type ViewState,
} from "../lib/address";
import { channelOf } from "../lib/channel";
import { compose } from "../lib/compose";
import { Emitter } from "../lib/emitter";
import { levelFor, type Address } from "../lib/level";
import { Loader, type TileAnswer } from "../lib/loader";
import { plan } from "../lib/plan";
import { eased, roomy, union, type Range } from "../lib/scale";
import { TileStore } from "../lib/tiles";
import { HOUR, MINUTE, nowInstant, toBig, type Span, type Zone } from "../lib/time";
import { fitted, isClose, isSame, limited, panned, towards, width, zoomed } from "../lib/view";
import { AwayParts } from "./away";
import { Channels } from "./channels";
import { Listening } from "./listening";
import { Marking } from "./marking";
import { Playing } from "./playing";
import { plotsOf, scalesOf, type Plot } from "./plots";
import { Replay } from "./replay";
import type { Stage } from "./stage";
import { Watching } from "./watching";
import { keepZone, readZone } from "./zone";

/** Time constants of movement. */
const EASE_MS = 55;
const INERTIA_MS = 280;
const LIVE_ROOM = 0.02;
const REFRESH_MS = 10_000;

export class Explorer implements Stage {
  readonly changed = new Emitter();
  readonly painted = new Emitter();
  readonly channels = new Channels();
  readonly store = new TileStore();
  readonly loader: Loader;
  /** What of the view other nodes have. */
  readonly away: AwayParts;
  /** What is shown as it happened, while somebody wants that. */
  readonly replay: Replay;
  readonly playing: Playing;
  readonly listening: Listening;
  /** What is marked on the plots. */
  readonly marking = new Marking(this);
  /** The watch that is followed. */
  readonly watching: Watching;

  view: Span;
  goal: Span;
  /** The level that is drawn. */
  level = 0;
  /** The level of the goal: held while the view is on its way, so that one movement asks for tiles of one level. */
  private goalLevel = 0;
  layout: Layout = "stack";
  live = false;
  zone: Zone = readZone();
  /** What the view is made of anew, where it is relative to now. */
  rolling: Rolling | undefined;
  /** Every how many seconds that is done, and everything loaded again; 0 = every ten, and only what is new. */
  refresh = 0;
  /** The named snapshot that is shown; nothing while the present is. */
  past: string | undefined;
  /** Where the cursor stands, as a fraction of the width. */
  cursor: number | undefined;
  /** How many channels were chosen last. */
  private chosen = 0;
  /** Whether a view has been chosen, by an address, a person or the data. */
  private placed = false;
  private pixels = 800;
  private readonly scales = new Map<string, Range>();
  readonly locks = new Map<string, Range>();
  /** Heights of plots that were chosen, in CSS pixels. */
  readonly heights = new Map<string, number>();

  private frame = 0;
  private frameTime = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private refresher: ReturnType<typeof setInterval> | undefined;
  private roller: ReturnType<typeof setInterval> | undefined;
  private motion: -1 | 0 | 1 = 0;
  private zooming: -1 | 0 | 1 = 0;
  /** The last step of the zoom, until something else moves the view. */
  private lastZoom: { readonly factor: number; readonly anchor: number } | undefined;
  /** Speed after a drag, in widths per ms. */
  private speed = 0;
  private reduced = false;
  /** What UTC was chosen instead of. */
  private zoneBefore: Zone = "local";

  /** A step ends when all tiles of where it goes are there. */
  readonly counters = { frames: 0, blankFrames: 0, firstPlotMs: 0, steps: 0, stepMsSum: 0, stepMsMax: 0 };
  private stepBegan: number | undefined;
  /** What was last told of the loader. */
  private told: { readonly failure: ApiError | undefined; readonly refused: number } = {
    failure: undefined,
    refused: 0,
  };

  constructor(
    readonly client: Client,
    private readonly now: () => number = () => performance.now(),
  ) {
    const to = nowInstant();
    this.view = this.goal = { from: to - HOUR, to };
    this.loader = new Loader(
      this.store,
      (channels, address, signal, fetches) => this.fetch(channels, address, signal, fetches),
      () => this.channels.arrivals,
      () => {
        this.countStep();
        this.redraw();
        // Tiles come with the next frame; everything else is drawn anew only for what else is shown of the loader.
        const { failure, refused } = this.loader;
        if (failure === this.told.failure && refused.size === this.told.refused) return;
        this.told = { failure, refused: refused.size };
        this.changed.emit();
      },
    );
    this.away = new AwayParts(client, this.loader, () => this.redraw(), this.now);
    this.replay = new Replay(
      client,
      () => this.channels.all,
      () => this.redraw(),
      this.now,
      () => this.past,
    );
    this.playing = new Playing(this, this.replay);
    this.listening = new Listening(client, this.channels, {
      came: (channel, instants) => {
        this.store.invalidate(channel, instants);
        this.redraw();
      },
      missed: () => this.stale(),
      changed: () => this.changed.emit(),
    });
    this.watching = new Watching(client, this.marking);
  }

  start(): void {
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.refresher = setInterval(() => {
      if (!document.hidden) void this.learn();
    }, REFRESH_MS);
    document.addEventListener("visibilitychange", this.onVisibility);
  }

  stop(): void {
    clearInterval(this.refresher);
    clearInterval(this.roller);
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.listening.stop();
    this.loader.stop();
    this.replay.close();
    this.watching.stop();
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  private readonly onVisibility = (): void => {
    this.relisten();
    if (!document.hidden) {
      this.roll();
      this.stale();
      this.redraw();
    }
  };

  // ---- State as an address ----

  state(): ViewState {
    return {
      channels: this.channels.all.map((channel) => channel.name),
      view: this.placed ? this.goal : undefined,
      rolling: this.rolling,
      refresh: this.refresh,
      live: this.live,
      layout: this.layout,
      locks: this.locks,
      heights: this.heights,
      past: this.past,
    };
  }

  apply(state: ViewState): void {
    this.layout = state.layout;
    this.locks.clear();
    for (const [plot, range] of state.locks) this.locks.set(plot, range);
    this.heights.clear();
    for (const [plot, height] of state.heights) this.heights.set(plot, height);
    this.rolling = state.rolling;
    this.refresh = state.refresh;
    this.rollOn();
    this.turnBack(state.past);
    if (state.view) {
      this.goal = this.view = state.view;
      this.placed = true;
      // A jump shows what it finds; only what moves on from there must stay whole.
      for (const channel of this.channels.all) channel.shown = false;
    }
    this.live = state.live && state.past === undefined;
    this.select(state.channels);
    this.relisten();
  }

  // ---- States of the past ----

  /** Shows what a named snapshot keeps, or the present. */
  lookAt(past: string | undefined): void {
    if (past === this.past) return;
    this.endLive();
    this.turnBack(past);
    void this.learn();
    this.redraw();
    this.changed.emit();
  }

  /** Nothing of one state is shown as if it were of another one. */
  private turnBack(past: string | undefined): void {
    if (past === this.past) return;
    this.past = past;
    this.replay.close();
    this.loader.want([]);
    this.loader.retry();
    for (const channel of this.channels.all) this.store.forget(channel.name);
    this.channels.forget();
  }

  private async fetch(
    channels: readonly string[],
    address: Address,
    signal: AbortSignal,
    fetches: boolean,
  ): Promise<Outcome<TileAnswer[]>> {
    const { past } = this;
    const outcome = await fetchTiles(this.client, channels, address, signal, fetches, past);
    return past === this.past ? outcome : failure("ABORTED", "cancelled");
  }

  // ---- Views relative to now ----

  /** Shows a span relative to now, and goes on showing it. */
  follow(rolling: Rolling): void {
    this.endLive();
    this.rolling = rolling;
    this.roll();
    this.stale();
    this.rollOn();
    this.changed.emit();
  }

  setRefresh(seconds: number): void {
    this.refresh = seconds;
    this.rollOn();
    this.changed.emit();
  }

  /** Begins to make the view and load it anew, or ends that. */
  private rollOn(): void {
    clearInterval(this.roller);
    this.roller = undefined;
    if (!this.rolling && this.refresh === 0) return;
    const wait = this.refresh > 0 ? this.refresh * 1_000 : REFRESH_MS;
    this.roller = setInterval(() => {
      if (document.hidden) return;
      this.roll();
      if (this.refresh > 0) this.stale();
    }, wait);
  }

  private roll(): void {
    const span = this.rolling && spanOf(this.rolling);
    if (!span) return;
    this.lastZoom = undefined;
    this.setGoal(span);
  }

  /** Whoever moves by hand wants to stay there. */
  private stayPut(): void {
    if (!this.rolling) return;
    this.rolling = undefined;
    this.rollOn();
    this.changed.emit();
  }

  // ---- Channels ----

  /** @param known what is already known of their streams: spares asking before the first plot */
  select(names: readonly string[], known: readonly StreamInfo[] = []): void {
    const left = this.channels.set(names.slice(0, CHANNELS_MAX));
    for (const name of left) this.store.forget(name);
    if (left.length > 0 || names.length !== this.chosen) this.replay.reselect();
    this.chosen = names.length;
    for (const info of known) this.channels.learn(info);
    if (!this.placed) this.place();
    this.relisten();
    void this.learn();
    this.redraw();
    this.changed.emit();
  }

  toggle(name: string): boolean {
    const names = this.channels.all.map((channel) => channel.name);
    if (names.includes(name)) {
      this.select(names.filter((other) => other !== name));
    } else {
      if (names.length >= CHANNELS_MAX) return false;
      // The first channel decides what is shown, unless a link has.
      if (names.length === 0) this.placed = false;
      this.select([...names, name]);
    }
    return true;
  }

  forgetMisnamed(): void {
    this.channels.misnamed = [];
    this.changed.emit();
  }

  /** Asks how far the data reach, and takes note of what has grown. */
  async learn(): Promise<void> {
    const names = [...new Set(this.channels.all.map((channel) => channel.stream))];
    if (names.length === 0) return;
    const { past } = this;
    const outcome = await fetchStreams(this.client, { names, past });
    if (!outcome.ok || past !== this.past) return;
    const found = new Set(outcome.value.streams.map((info) => info.stream));
    this.channels.miss(names.filter((name) => !found.has(name)));
    // The server answers: what failed before may be had now.
    if (this.loader.failure) this.loader.retry();
    for (const info of outcome.value.streams) {
      // What was unknown when its tiles were asked for has been written since.
      for (const { name } of info.fields) {
        const channel = channelOf(info.stream, name);
        if (this.loader.refused.get(channel)?.code === "UNKNOWN") this.loader.refused.delete(channel);
      }
      for (const channel of this.channels.learn(info)) {
        this.store.invalidate(channel.name);
        // Nobody listened to what is new.
        if (!this.live) channel.liveFrom = undefined;
      }
    }
    if (!this.placed) this.place();
    this.redraw();
    this.changed.emit();
  }

  private place(): void {
    const extent = this.channels.extent();
    if (!extent) return;
    this.goal = this.view = fitted(extent.from, extent.to);
    this.placed = true;
    this.scales.clear();
    this.ask();
  }

  /** Everything is asked for again when it is next seen. */
  stale(): void {
    for (const channel of this.channels.all) this.store.invalidate(channel.name);
    void this.learn();
  }

  retry(): void {
    this.loader.retry();
    this.stale();
    this.relisten();
    this.redraw();
  }

  plots(): Plot[] {
    return plotsOf(this.channels.all, this.layout);
  }

  setLayout(layout: Layout): void {
    this.layout = layout;
    this.redraw();
    this.changed.emit();
  }

  /** Puts a plot so many places down, or up: its channels go with it. */
  movePlot(key: string, by: -1 | 1): void {
    const plots = this.plots();
    const at = plots.findIndex((plot) => plot.key === key);
    const [here, there] = [plots[at], plots[at + by]];
    if (!here || !there) return;
    plots[at] = there;
    plots[at + by] = here;
    this.select(plots.flatMap((plot) => plot.channels.map((channel) => channel.name)));
  }

  /** Gives a plot a height in CSS pixels; `undefined` = as high as there is room. */
  setHeight(key: string, pixels: number | undefined): void {
    if (pixels === undefined) this.heights.delete(key);
    else this.heights.set(key, Math.round(Math.min(HEIGHT_MAX, Math.max(HEIGHT_MIN, pixels))));
    this.changed.emit();
  }

  /** The range of a scale as it is drawn. */
  scale(key: string): Range {
    return this.scales.get(key) ?? [0, 1];
  }

  /** Keeps the scales of a plot as they are, or lets them follow the values again. */
  toggleLock(plot: Plot): void {
    const keys = scalesOf(plot).flatMap((scale) => (scale ? [scale.key] : []));
    const isLocked = keys.some((key) => this.locks.has(key));
    for (const key of keys) {
      if (isLocked) this.locks.delete(key);
      else this.locks.set(key, this.scale(key));
    }
    this.redraw();
    this.changed.emit();
  }

  // ---- Movement ----

  /** Zooms around a fraction of the width; below 1 goes in. */
  zoomBy(factor: number, anchor: number): void {
    this.stayPut();
    this.speed = 0;
    this.zooming = factor < 1 ? -1 : 1;
    this.lastZoom = { factor, anchor: this.live ? 1 - LIVE_ROOM : anchor };
    this.setGoal(zoomed(this.goal, factor, this.lastZoom.anchor));
  }

  /** Moves by a fraction of the width; positive = later. */
  panBy(fraction: number): void {
    this.stayPut();
    this.speed = 0;
    this.endLive();
    this.motion = fraction < 0 ? -1 : 1;
    this.zooming = 0;
    this.lastZoom = undefined;
    this.setGoal(panned(this.goal, fraction));
  }

  /** Moves at once, as a finger or a pointer does. */
  dragTo(span: Span): void {
    this.speed = 0;
    if (!isSame(span, this.view)) {
      this.motion = span.from < this.view.from ? -1 : 1;
      this.lastZoom = undefined;
      this.endLive();
      this.stayPut();
    }
    this.placed = true;
    this.goal = this.view = span;
    this.redraw();
  }

  /** Lets go of a drag with a speed in widths per millisecond. */
  fling(speed: number): void {
    if (this.reduced || Math.abs(speed) < 5e-5) return;
    this.speed = speed;
    this.redraw();
  }

  halt(): void {
    this.speed = 0;
    this.goal = this.view;
  }

  show(span: Span): void {
    this.endLive();
    this.stayPut();
    this.lastZoom = undefined;
    this.zooming = width(span) < width(this.goal) ? -1 : 1;
    this.setGoal(limited(span.from, span.to));
  }

  /** Shows everything the channels have. */
  fit(): void {
    const extent = this.channels.extent();
    if (extent) this.show(fitted(extent.from, extent.to));
    void this.learn();
  }

  setLive(live: boolean): void {
    if (this.live === live) return;
    // What a snapshot keeps does not go on.
    if (live) this.lookAt(undefined);
    this.live = live;
    this.speed = 0;
    if (live) {
      this.stayPut();
      // What follows the newest data should show seconds or minutes, not years.
      if (width(this.goal) > Number(HOUR)) {
        this.goal = { from: this.goal.to - 5n * MINUTE, to: this.goal.to };
      }
      this.stale();
      this.placed = true;
    }
    this.relisten();
    this.redraw();
    this.changed.emit();
  }

  setCursor(fraction: number | undefined): void {
    if (this.cursor === fraction) return;
    this.cursor = fraction;
    this.redraw();
  }

  setZone(zone: Zone): void {
    if (zone === "utc" && this.zone !== "utc") this.zoneBefore = this.zone;
    this.zone = zone;
    keepZone(zone);
    this.redraw();
    this.changed.emit();
  }

  /** UTC, or the zone that was chosen before it. */
  readonly toggleUtc = (): void => this.setZone(this.zone === "utc" ? this.zoneBefore : "utc");

  /** The plots' width in CSS pixels. */
  resize(pixels: number): void {
    if (pixels === this.pixels || pixels <= 0) return;
    this.pixels = pixels;
    this.redraw();
  }

  private setGoal(goal: Span): void {
    this.stepBegan ??= this.now();
    this.placed = true;
    this.goal = goal;
    // Not only with the next frame: tiles may be here by then.
    this.ask();
    this.redraw();
  }

  private endLive(): void {
    if (this.live) this.setLive(false);
  }

  stand(): void {
    this.endLive();
    this.stayPut();
  }

  turnTo(span: Span): void {
    this.setGoal(span);
  }

  redrawIn(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.redraw(), ms);
  }

  // ---- Live ----

  private relisten(): void {
    const names = this.channels.all.filter((c) => !this.loader.refused.has(c.name)).map((c) => c.name);
    this.listening.to(this.live && !document.hidden ? names : []);
  }

  // ---- Frames ----

  redraw(): void {
    if (this.frame !== 0) return;
    clearTimeout(this.timer);
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const ms = this.now();
      const elapsed = Math.min(100, Math.max(1, ms - this.frameTime));
      this.frameTime = ms;
      if (this.step(ms, elapsed)) this.redraw();
      else this.frameTime = ms;
    });
  }

  /** Draws one frame; true if another must follow at once. */
  private step(ms: number, elapsed: number): boolean {
    this.playing.goOn(this.pixels);
    let isMoving = this.move(ms, elapsed);
    this.ask();
    this.level = isSame(this.view, this.goal) ? this.goalLevel : levelFor(this.view, this.pixels, this.level);
    this.countStep();
    this.composeAll();
    for (const scale of this.plots().flatMap(scalesOf)) {
      if (!scale) continue;
      const locked = this.locks.get(scale.key);
      const before = this.scales.get(scale.key);
      let range: Range | undefined;
      for (const channel of scale.channels) {
        range = union(range, channel.type === "bool" && channel.points?.range ? [0, 1] : channel.points?.range);
      }
      const goal = locked ?? (range ? roomy(range) : before);
      if (!goal) continue;
      const next = this.reduced ? goal : eased(before, goal, elapsed);
      this.scales.set(scale.key, next);
      if (next !== goal) isMoving = true;
    }
    this.counters.frames++;
    this.painted.emit();
    if (!isMoving) {
      if (this.placed) this.away.look(this.channels.all, this.view, this.level);
      this.motion = 0;
      this.zooming = 0;
      if (this.live) this.runOn(ms);
    }
    return isMoving;
  }

  /** Asks for the tiles of where the view goes. */
  private ask(): void {
    this.goalLevel = levelFor(this.goal, this.pixels, this.goalLevel);
    this.loader.want(
      plan(this.store, {
        view: this.goal,
        level: this.goalLevel,
        channels: this.placed ? this.channels.all.map(({ name, extent }) => ({ channel: name, extent })) : [],
        motion: this.motion,
        zoom: this.zooming,
        next: this.next(),
        isAway: (channel, address) => this.loader.awayAt(channel, address) !== undefined,
      }),
    );
  }

  /** What another step of the zoom would show: inwards at the pointer where there was none. */
  private next(): { readonly view: Span; readonly level: number } {
    const { factor, anchor } = this.lastZoom ?? { factor: 1, anchor: this.cursor ?? 0.5 };
    // Small steps, of keys or of a trackpad, are one large one soon.
    const view = zoomed(this.goal, factor > 1 ? Math.max(factor, 2) : Math.min(factor, 0.5), anchor);
    return { view, level: levelFor(view, this.pixels, this.goalLevel) };
  }

  private move(ms: number, elapsed: number): boolean {
    if (this.speed !== 0) {
      this.goal = this.view = panned(this.view, this.speed * elapsed);
      this.speed *= Math.exp(-elapsed / INERTIA_MS);
      if (Math.abs(this.speed) * this.pixels < 0.02) this.speed = 0;
      return this.speed !== 0;
    }
    if (this.live) {
      const size = this.goal.to - this.goal.from;
      const to = this.listening.edge(ms) + toBig(Number(size) * LIVE_ROOM);
      this.goal = { from: to - size, to };
    }
    if (isSame(this.view, this.goal)) return false;
    const share = this.reduced ? 1 : 1 - Math.exp(-elapsed / EASE_MS);
    this.view = towards(this.view, this.goal, share);
    if (!isClose(this.view, this.goal, this.pixels)) return true;
    this.view = this.goal;
    return false;
  }

  /** In live mode the next frame comes when the edge has moved by a third of a pixel. */
  private runOn(ms: number): void {
    if (!this.listening.runs(ms)) return;
    const wait = width(this.view) / 1e6 / this.pixels / 3;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.redraw(), Math.min(1000, Math.max(1, wait)));
  }

  private countStep(): void {
    if (this.stepBegan === undefined || this.loader.isWaiting()) return;
    const ms = this.now() - this.stepBegan;
    this.stepBegan = undefined;
    this.counters.steps++;
    this.counters.stepMsSum += ms;
    this.counters.stepMsMax = Math.max(this.counters.stepMsMax, ms);
  }

  private composeAll(): void {
    let isBlank = false;
    for (const channel of this.channels.all) {
      const points = compose({
        store: this.store,
        channel: channel.name,
        view: this.view,
        level: this.level,
        extent: channel.extent,
        tail: channel.tail,
        liveFrom: channel.liveFrom,
      });
      channel.points = points;
      if (points.covered > 0.999) {
        if (!channel.shown && points.length > 0) {
          channel.shown = true;
          this.counters.firstPlotMs ||= this.now();
        }
      } else if (channel.shown && !this.loader.refused.has(channel.name)) {
        isBlank = true;
      }
    }
    if (isBlank) this.counters.blankFrames++;
  }
}
