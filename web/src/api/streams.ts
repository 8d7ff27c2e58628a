/** `GET /api/v1/streams`: which streams there are, their fields, ranges and newest values. */
import type { Instant } from "../lib/time";
import { integer, list, number, object, text } from "./check";
import { failure, type Client, type Outcome, type Query } from "./client";

export type FieldType = "f64" | "i64" | "u64" | "bool" | "string" | "bytes";

export interface LastValue {
  readonly time: Instant;
  readonly value: number | boolean | string | null;
}

export interface FieldInfo {
  readonly name: string;
  readonly type: string;
  readonly last: LastValue | undefined;
}

export interface StreamInfo {
  readonly stream: string;
  readonly table: string;
  readonly tags: readonly (readonly [string, string])[];
  readonly first: Instant | undefined;
  readonly last: Instant | undefined;
  readonly events: number | undefined;
  readonly fields: readonly FieldInfo[];
}

/** How many of a table's streams fit. */
export interface TableCount {
  readonly table: string;
  readonly streams: number;
}

export interface StreamPage {
  readonly streams: readonly StreamInfo[];
  readonly total: number;
  /** Tables with streams that fit, in the order of the list; none where streams were asked for by name. */
  readonly tables: readonly TableCount[];
  readonly next: string | undefined;
}

/** Whether a plot can show the field. */
export function isPlottable(type: string): boolean {
  return type !== "string" && type !== "bytes";
}

export interface StreamQuery {
  readonly search?: string;
  readonly table?: string;
  readonly after?: string;
  readonly limit?: number;
  /** Exact names, at most 64; the other conditions do not go with them. */
  readonly names?: readonly string[];
  /** The named snapshot; nothing = the present. */
  readonly past?: string | undefined;
}

export async function fetchStreams(
  client: Client,
  ask: StreamQuery,
  signal?: AbortSignal,
): Promise<Outcome<StreamPage>> {
  const query: [string, string][] = [];
  for (const name of ask.names ?? []) query.push(["stream", name]);
  if (ask.search) query.push(["search", ask.search]);
  if (ask.table !== undefined) query.push(["table", ask.table]);
  if (ask.after !== undefined) query.push(["after", ask.after]);
  if (ask.past !== undefined) query.push(["snapshot", ask.past]);
  // Streams asked for by name are all told.
  if (ask.names === undefined) query.push(["limit", String(ask.limit ?? 100)]);
  const outcome = await client.json("api/v1/streams", query as Query, signal ? { signal } : {});
  if (!outcome.ok) return outcome;
  const body = object(outcome.value);
  if (!body || !Array.isArray(body["streams"])) return failure("FORMAT", "the list of streams has an unknown formatat");
  return {
    ok: true,
    value: {
      streams: list(body["streams"]).flatMap(readStream),
      total: number(body["total"]) ?? 0,
      tables: list(body["tables"]).flatMap((each) => {
        const json = object(each);
        const table = text(json?.["table"]);
        return table === undefined ? [] : [{ table, streams: number(json?.["streams"]) ?? 0 }];
      }),
      next: text(body["next"]),
    },
  };
}

function readStream(value: unknown): StreamInfo[] {
  const json = object(value);
  const stream = text(json?.["stream"]);
  if (!json || stream === undefined) return [];
  return [
    {
      stream,
      table: text(json["table"]) ?? "",
      tags: Object.entries(object(json["tags"]) ?? {}).map(([key, tag]) => [key, String(tag)]),
      first: integer(json["first"]),
      last: integer(json["last"]),
      events: number(json["events"]),
      fields: list(json["fields"]).flatMap(readField),
    },
  ];
}

function readField(value: unknown): FieldInfo[] {
  const json = object(value);
  const name = text(json?.["name"]);
  if (!json || name === undefined) return [];
  const last = object(json["last"]);
  const time = integer(last?.["time"]);
  return [
    {
      name,
      type: text(json["type"]) ?? "f64",
      last: last && time !== undefined ? { time, value: scalar(last["value"]) } : undefined,
    },
  ];
}

function scalar(value: unknown): number | boolean | string | null {
  return typeof value === "number" || typeof value === "boolean" || typeof value === "string" ? value : null;
}
