/**
 * What the page shows, as the fragment of its address: `#/view?c=…&from=…&to=…`.
 *
 * Invariant: reading what was written gives the same state; instants are integers of nanoseconds, so a link shows the
 * same microsecond to everyone, unless it is told relative to now. What cannot be read is left out, never guessed.
 */
import { INSTANT_MAX, INSTANT_MIN, nowInstant, parseInstant, type Instant, type Span } from "./time";
import { limited } from "./view";

/** One plot per channel, per field name, or one for all. */
export type Layout = "stack" | "field" | "all";

/** Ends of a view as a person writes them, at least one of them relative to now: `now-24h` and `now`. */
export interface Rolling {
  readonly from: string;
  readonly to: string;
}

export interface ViewState {
  readonly channels: readonly string[];
  readonly view: Span | undefined;
  /** What `view` is made of, again and again, where it is relative to now. */
  readonly rolling: Rolling | undefined;
  /** Every how many seconds the view is made and loaded anew; 0 = as the page likes. */
  readonly refresh: number;
  /** The view follows the newest data. */
  readonly live: boolean;
  readonly layout: Layout;
  /** Locked scales by plot. */
  readonly locks: ReadonlyMap<string, readonly [number, number]>;
  /** Heights of plots that were chosen, in CSS pixels. */
  readonly heights: ReadonlyMap<string, number>;
  /** The named snapshot that is shown; nothing = the present. */
  readonly past: string | undefined;
}

export type Route =
  | { readonly page: "view"; readonly state: ViewState }
  | { readonly page: "storage" }
  | { readonly page: "sql" }
  | { readonly page: "fleet" };

export const CHANNELS_MAX = 16;

/** The seldomest reload that can be asked for: once a day. */
const REFRESH_MAX = 86_400;
export const HEIGHT_MIN = 60;
export const HEIGHT_MAX = 2_000;

export function readRoute(fragment: string, now: Instant = nowInstant()): Route {
  const text = fragment.replace(/^#?\/?/, "");
  const mark = text.indexOf("?");
  const path = mark < 0 ? text : text.slice(0, mark);
  if (path === "storage" || path === "sql" || path === "fleet") return { page: path };
  const query = new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1));
  const channels = [...new Set(query.getAll("c"))].filter((c) => c !== "").slice(0, CHANNELS_MAX);
  const layout = query.get("layout");
  const locks = new Map<string, readonly [number, number]>();
  for (const lock of query.getAll("y")) {
    const match = /^(-?[\d.e+-]+),(-?[\d.e+-]+),(.+)$/s.exec(lock);
    if (!match) continue;
    const [low, high] = [Number(match[1]), Number(match[2])];
    if (Number.isFinite(low) && Number.isFinite(high) && low < high) locks.set(match[3] ?? "", [low, high]);
  }
  const heights = new Map<string, number>();
  for (const height of query.getAll("h")) {
    const match = /^(\d{2,4}),(.+)$/s.exec(height);
    const pixels = Number(match?.[1] ?? NaN);
    if (pixels >= HEIGHT_MIN && pixels <= HEIGHT_MAX) heights.set(match?.[2] ?? "", pixels);
  }
  const [from, to] = [query.get("from"), query.get("to")];
  const rolling = readRolling(from, to, now);
  const refresh = Number(/^\d{1,5}$/.exec(query.get("refresh") ?? "")?.[0] ?? 0);
  return {
    page: "view",
    state: {
      channels,
      view: rolling ? spanOf(rolling, now) : readSpan(from, to),
      rolling,
      refresh: refresh <= REFRESH_MAX ? refresh : 0,
      live: query.get("live") === "1",
      layout: layout === "field" || layout === "all" ? layout : "stack",
      locks,
      heights,
      past: query.get("as_of") || undefined,
    },
  };
}

export function writeRoute(route: Route): string {
  if (route.page !== "view") return `#/${route.page}`;
  const { channels, view, rolling, refresh, live, layout, locks, heights, past } = route.state;
  const query = new URLSearchParams();
  for (const channel of channels) query.append("c", channel);
  if (rolling) {
    query.set("from", rolling.from);
    query.set("to", rolling.to);
  } else if (view) {
    query.set("from", String(view.from));
    query.set("to", String(view.to));
  }
  if (refresh > 0) query.set("refresh", String(refresh));
  if (live) query.set("live", "1");
  if (past !== undefined) query.set("as_of", past);
  if (layout !== "stack") query.set("layout", layout);
  for (const [plot, [low, high]] of locks) query.append("y", `${low},${high},${plot}`);
  for (const [plot, height] of heights) query.append("h", `${height},${plot}`);
  // Commas, equals signs and dots make up channels; they may stand in a fragment, and links stay readable.
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3D", "=");
  return text === "" ? "#/view" : `#/view?${text}`;
}

/** Ends of which at least one is relative to now, as they stand in an address or a form. */
export function readRolling(from: string | null, to: string | null, now: Instant = nowInstant()): Rolling | undefined {
  if (from === null || to === null) return undefined;
  // A plus is a blank in an address, unless it was written as it should be.
  const [a, b] = [from, to].map((end) =>
    end
      .trim()
      .replace(/^now (?=\d)/, "now+")
      .replaceAll(" ", ""),
  );
  if (a === undefined || b === undefined || !(a.startsWith("now") || b.startsWith("now"))) return undefined;
  const rolling = { from: a, to: b };
  return spanOf(rolling, now) ? rolling : undefined;
}

/** What a relative view shows now; `undefined` for what cannot be read. */
export function spanOf({ from, to }: Rolling, now: Instant = nowInstant()): Span | undefined {
  const [a, b] = [parseInstant(from, "utc", now), parseInstant(to, "utc", now)];
  return a !== null && b !== null && a < b ? limited(a, b) : undefined;
}

function readSpan(from: string | null, to: string | null): Span | undefined {
  const a = readInstant(from);
  const b = readInstant(to);
  return a !== undefined && b !== undefined && a < b ? limited(a, b) : undefined;
}

function readInstant(text: string | null): Instant | undefined {
  if (text === null || !/^-?\d{1,19}$/.test(text)) return undefined;
  const value = BigInt(text);
  return value < INSTANT_MIN || value > INSTANT_MAX ? undefined : value;
}
