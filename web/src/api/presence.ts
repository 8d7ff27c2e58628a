/** `GET /api/v1/presence`: what a node has of a stream, by level and time, and why. */
import type { Instant, Span } from "../lib/time";
import { integer, list, number, object, text } from "./check";
import { failure, type Client, type Outcome } from "./client";

/** A level, or the rows (`undefined`), with a letter for each cell: `h` here, `o` here as it was before, `e` elsewhere. */
export interface PresenceLine {
  readonly level: number | undefined;
  readonly cells: string;
  readonly missing: number;
}

/** A stretch of time, and the edge that has it; `undefined` for the node's own. */
export interface Source extends Span {
  readonly edge: string | undefined;
  readonly state: string | undefined;
  readonly isConnected: boolean;
  readonly heard: Instant | undefined;
  readonly want: "full" | "nothing" | number | undefined;
  /** Which of the edge's rules says so, from 1 on. */
  readonly rule: number | undefined;
  readonly pins: readonly (Span & { readonly until: Instant | undefined })[];
}

export interface Presence extends Span {
  readonly stream: string;
  /** Width of a cell in nanoseconds. */
  readonly every: bigint;
  readonly lines: readonly PresenceLine[];
  readonly sources: readonly Source[];
}

export interface PresenceQuery {
  readonly stream: string;
  readonly span?: Span;
  readonly bins?: number;
  readonly level?: number;
}

export async function fetchPresence(
  client: Client,
  { stream, span, bins, level }: PresenceQuery,
  signal?: AbortSignal,
): Promise<Outcome<Presence>> {
  const query: [string, string][] = [["stream", stream]];
  if (span) query.push(["from", String(span.from)], ["to", String(span.to)]);
  if (bins !== undefined) query.push(["bins", String(bins)]);
  if (level !== undefined) query.push(["level", String(level)]);
  const outcome = await client.json("api/v1/presence", query, signal ? { signal } : {});
  if (!outcome.ok) return outcome;
  const value = readPresence(outcome.value);
  return value ? { ok: true, value } : failure("FORMAT", "the answer about local data has an unknown format");
}

export function readPresence(value: unknown): Presence | undefined {
  const body = object(value);
  const stream = text(body?.["stream"]);
  const [from, to, every] = [integer(body?.["from"]), integer(body?.["to"]), integer(body?.["every"])];
  if (!body || stream === undefined || from === undefined || to === undefined || !every) return undefined;
  return {
    stream,
    from,
    to,
    every,
    lines: list(body["lines"]).flatMap((each) => {
      const line = object(each);
      const cells = text(line?.["cells"]);
      if (!line || cells === undefined) return [];
      return [{ level: number(line["level"]), cells, missing: number(line["missing_bytes"]) ?? 0 }];
    }),
    sources: list(body["sources"]).flatMap((each) => readSource(each) ?? []),
  };
}

function readSource(value: unknown): Source | undefined {
  const source = object(value);
  const span = source && readSpan(source);
  if (!source || !span) return undefined;
  const want = source["want"];
  return {
    ...span,
    edge: text(source["edge"]),
    state: text(source["state"]),
    isConnected: source["is_connected"] === true,
    heard: integer(source["heard"]),
    want: want === "full" || want === "nothing" ? want : number(object(want)?.["summaries"]),
    rule: number(source["rule"]),
    pins: list(source["pins"]).flatMap((each) => {
      const pin = object(each);
      const pinned = pin && readSpan(pin);
      return pinned ? [{ ...pinned, until: integer(pin["until"]) }] : [];
    }),
  };
}

function readSpan(json: Readonly<Record<string, unknown>>): Span | undefined {
  const [from, to] = [integer(json["from"]), integer(json["to"])];
  return from === undefined || to === undefined ? undefined : { from, to };
}
