/**
 * `GET /api/v1/watches`, and the events of one as they come.
 *
 * Read by `fetch`, because an `EventSource` cannot send a token. After an error or the end of the stream it connects
 * again, after 1, 2, 4 … 30 seconds, behind the last event that came: none comes twice.
 */
import { parseInstant, type Instant } from "../lib/time";
import { number, object, text, type Json } from "./check";
import { failure, type ApiError, type Client, type Outcome } from "./client";
import { EventParser } from "./live";

export interface Watch {
  readonly name: string;
  readonly table: string;
  readonly isRunning: boolean;
  /** How many events there were. */
  readonly sequence: number;
  /** Matches that are not taken back. */
  readonly live: number;
  /** Why it does not look. */
  readonly stopped: string | undefined;
  readonly definition: string;
}

/** What a watch tells. */
export interface WatchEvent {
  readonly kind: "match" | "retraction" | "return";
  readonly id: string;
  readonly sequence: number;
  readonly first: Instant;
  readonly last: Instant;
  /** What the statement answers; nothing where it is taken back. */
  readonly row: Json | undefined;
}

export interface WatchListener {
  event(event: WatchEvent): void;
  /** So many events are not kept any more; nothing where that is not known. */
  gap(missed: number | undefined): void;
  state(isConnected: boolean, error?: ApiError): void;
}

const WAIT_MS_MAX = 30_000;

export async function fetchWatches(client: Client, signal?: AbortSignal): Promise<Outcome<readonly Watch[]>> {
  const outcome = await client.json("api/v1/watches", [], signal ? { signal } : {});
  if (!outcome.ok) return outcome;
  const all = object(outcome.value)?.["watches"];
  if (!Array.isArray(all)) return failure("FORMAT", "the list of watches has an unknown formatat");
  return { ok: true, value: all.flatMap(readWatch) };
}

function readWatch(value: unknown): Watch[] {
  const json = object(value);
  const name = text(json?.["name"]);
  if (!json || name === undefined) return [];
  return [
    {
      name,
      table: text(json["table"]) ?? "",
      isRunning: json["state"] === "running",
      sequence: number(json["sequence"]) ?? 0,
      live: number(json["live"]) ?? 0,
      stopped: text(object(json["stopped"])?.["message"]),
      definition: text(json["definition"]) ?? "",
    },
  ];
}

/** Follows a watch behind an event, until the returned function is called. */
export function followWatch(client: Client, name: string, after: number, listener: WatchListener): () => void {
  const control = new AbortController();
  void run(client, name, String(after), listener, control.signal);
  return () => control.abort();
}

async function run(
  client: Client,
  name: string,
  begin: string,
  listener: WatchListener,
  signal: AbortSignal,
): Promise<void> {
  let [after, wait] = [begin, 1_000];
  while (!signal.aborted) {
    const path = `api/v1/watches/${encodeURIComponent(name)}/events`;
    const opened = await client.open(path, [["after", after]], { signal, accept: "text/event-stream" });
    if (signal.aborted) return;
    if (opened.ok) {
      wait = 1_000;
      listener.state(true);
      const parser = new EventParser((event, data, id) => {
        if (signal.aborted) return;
        if (id !== "") after = id;
        dispatch(event, data, listener);
      });
      await receive(opened.value, parser);
      if (signal.aborted) return;
      listener.state(false);
    } else {
      listener.state(false, opened.error);
      // Asking again would not change that.
      if (opened.error.status >= 400 && opened.error.status < 500 && opened.error.status !== 429) return;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(WAIT_MS_MAX, wait * 2);
  }
}

async function receive(response: Response, parser: EventParser): Promise<void> {
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(decoder.decode(value, { stream: true }));
    }
  } catch {
    // The connection broke; the caller connects again.
  }
}

function dispatch(kind: string, data: string, listener: WatchListener): void {
  let json;
  try {
    json = object(JSON.parse(data));
  } catch {
    json = undefined;
  }
  if (kind === "gap") {
    listener.gap(number(json?.["missed"]));
    return;
  }
  if (kind !== "match" && kind !== "retraction" && kind !== "return") return;
  const [id, sequence] = [text(json?.["id"]), number(json?.["sequence"])];
  const [first, last] = [instantOf(json?.["first"]), instantOf(json?.["last"])];
  if (!json || id === undefined || sequence === undefined || first === undefined || last === undefined) return;
  listener.event({ kind, id, sequence, first, last, row: object(json["row"]) });
}

function instantOf(value: unknown): Instant | undefined {
  const said = text(value);
  return said === undefined ? undefined : (parseInstant(said, "utc") ?? undefined);
}
