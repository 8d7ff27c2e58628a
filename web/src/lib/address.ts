/**
 * What the page shows, as the fragment of its address: `#/view?c=…&from=…&to=…`.
 *
 * Invariant: reading what was written gives the same state; instants are integers of nanoseconds, so a link shows the
 * same microsecond to everyone. What cannot be read is left out, never guessed.
 */
import { INSTANT_MAX, INSTANT_MIN, type Instant, type Span } from "./time";
import { limited } from "./view";

/** One plot per channel, per field name, or one for all. */
export type Layout = "stack" | "field" | "all";

export interface ViewState {
  readonly channels: readonly string[];
  readonly view: Span | undefined;
  /** The view follows the newest data. */
  readonly live: boolean;
  readonly layout: Layout;
  /** Locked scales by plot. */
  readonly locks: ReadonlyMap<string, readonly [number, number]>;
}

export type Route =
  { readonly page: "view"; readonly state: ViewState } | { readonly page: "storage" } | { readonly page: "sql" };

export const CHANNELS_MAX = 16;

export const EMPTY: ViewState = { channels: [], view: undefined, live: false, layout: "stack", locks: new Map() };

export function readRoute(fragment: string): Route {
  const text = fragment.replace(/^#?\/?/, "");
  const mark = text.indexOf("?");
  const path = mark < 0 ? text : text.slice(0, mark);
  if (path === "storage" || path === "sql") return { page: path };
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
  return {
    page: "view",
    state: {
      channels,
      view: readSpan(query.get("from"), query.get("to")),
      live: query.get("live") === "1",
      layout: layout === "field" || layout === "all" ? layout : "stack",
      locks,
    },
  };
}

export function writeRoute(route: Route): string {
  if (route.page !== "view") return `#/${route.page}`;
  const { channels, view, live, layout, locks } = route.state;
  const query = new URLSearchParams();
  for (const channel of channels) query.append("c", channel);
  if (view) {
    query.set("from", String(view.from));
    query.set("to", String(view.to));
  }
  if (live) query.set("live", "1");
  if (layout !== "stack") query.set("layout", layout);
  for (const [plot, [low, high]] of locks) query.append("y", `${low},${high},${plot}`);
  // Commas, equals signs and dots make up channels; they may stand in a fragment, and links stay readable.
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3D", "=");
  return text === "" ? "#/view" : `#/view?${text}`;
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
