/** `GET /api/v1/replay`: rows of many streams in the order of time, as fast as they are wanted. */
import type { Instant } from "../lib/time";
import { integer, number, object, text } from "./check";
import { failure, type ApiError, type Client, type Outcome } from "./client";

export interface ReplayRow {
  readonly time: Instant;
  readonly stream: string;
  readonly fields: Readonly<Record<string, unknown>>;
  /** By it a replay goes on behind this row. */
  readonly cursor: string;
}

export interface ReplayQuery {
  readonly table: string;
  readonly tags?: readonly (readonly [tag: string, value: string])[];
  readonly from?: Instant;
  readonly to?: Instant;
  readonly fields?: readonly string[];
  readonly filter?: string;
  /** Seconds of the data in one second; as fast as can be unless given. */
  readonly speed?: number;
  /** Go on behind this row. */
  readonly after?: string;
  readonly limit?: number;
  /** The named snapshot; nothing = the present. */
  readonly past?: string | undefined;
}

/**
 * Hands out rows as they come, many at once, until there are no more or it is given up. What it answers is how many rows
 * there were.
 */
export async function replayRows(
  client: Client,
  ask: ReplayQuery,
  onRows: (rows: readonly ReplayRow[]) => void,
  signal: AbortSignal,
): Promise<Outcome<number>> {
  const opened = await client.open("api/v1/replay", queryOf(ask), { signal, accept: "application/x-ndjson" });
  if (!opened.ok) return opened;
  const reader = opened.value.body?.getReader();
  if (!reader) return { ok: true, value: 0 };
  const decoder = new TextDecoder();
  let rest = "";
  let count = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (signal.aborted) return failure("ABORTED", "cancelled");
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const lines = rest.split("\n");
      rest = done ? "" : (lines.pop() ?? "");
      const rows: ReplayRow[] = [];
      let error: ApiError | undefined;
      for (const line of lines) {
        if (line === "") continue;
        const read = readRow(line);
        if ("cursor" in read) rows.push(read);
        else error = read;
      }
      count += rows.length;
      if (rows.length > 0) onRows(rows);
      if (error) return { ok: false, error };
      if (done) return { ok: true, value: count };
    }
  } catch {
    return signal.aborted ? failure("ABORTED", "cancelled") : failure("NETWORK", "the replay was interrupted");
  }
}

function queryOf(ask: ReplayQuery): [string, string][] {
  const query: [string, string][] = [["table", ask.table]];
  for (const [tag, value] of ask.tags ?? []) query.push(["tag", `${tag}=${value}`]);
  if (ask.from !== undefined) query.push(["from", String(ask.from)]);
  if (ask.to !== undefined) query.push(["to", String(ask.to)]);
  // A comma divides names, unless a backslash keeps it.
  if (ask.fields) query.push(["fields", ask.fields.map((name) => name.replace(/[\\,]/g, "\\$&")).join(",")]);
  if (ask.filter !== undefined) query.push(["filter", ask.filter]);
  if (ask.speed !== undefined) query.push(["speed", String(ask.speed)]);
  if (ask.after !== undefined) query.push(["after", ask.after]);
  if (ask.past !== undefined) query.push(["snapshot", ask.past]);
  if (ask.limit !== undefined) query.push(["limit", String(ask.limit)]);
  return query;
}

/** A row, or why there is none. */
export function readRow(line: string): ReplayRow | ApiError {
  let body;
  try {
    body = object(JSON.parse(line));
  } catch {
    body = undefined;
  }
  const failed = object(body?.["error"]);
  if (failed) {
    return {
      code: text(failed["code"]) ?? "",
      message: text(failed["message"]) ?? "the replay was interrupted",
      status: 200,
    };
  }
  const [time, stream, fields] = [integer(body?.["time"]), text(body?.["stream"]), object(body?.["fields"])];
  if (time === undefined || stream === undefined || !fields) {
    return failure("FORMAT", "a row of the replay has an unknown formatat").error;
  }
  return { time, stream, fields, cursor: `${time}/${number(body?.["row"]) ?? 1}/${stream}` };
}
