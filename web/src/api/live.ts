/**
 * `GET /api/v1/live`: new values of channels as server-sent events.
 *
 * Read by `fetch`, because an `EventSource` cannot send a token. Failure: after an error or the end of the stream it
 * connects again, after 1, 2, 4 … 30 seconds, and tells that something may have been missed.
 */
import type { Instant } from "../lib/time";
import { integer, list, number, object, text } from "./check";
import type { ApiError, Client } from "./client";

export interface LiveValues {
  readonly channel: string;
  readonly time: readonly Instant[];
  readonly value: readonly number[];
}

export interface LiveListener {
  values(values: LiveValues): void;
  /** Values may have been missed; what is shown must be loaded again. */
  missed(): void;
  state(connected: boolean, error?: ApiError): void;
}

const WAIT_MS_MAX = 30_000;

/** Listens until the returned function is called. */
export function listen(client: Client, channels: readonly string[], listener: LiveListener): () => void {
  const control = new AbortController();
  void run(client, channels, listener, control.signal);
  return () => control.abort();
}

async function run(
  client: Client,
  channels: readonly string[],
  listener: LiveListener,
  signal: AbortSignal,
): Promise<void> {
  let wait = 1000;
  for (let attempt = 0; !signal.aborted; attempt++) {
    const query: [string, string][] = channels.map((channel) => ["channel", channel]);
    const opened = await client.open("api/v1/live", query, { signal, accept: "text/event-stream" });
    if (signal.aborted) return;
    if (opened.ok) {
      wait = 1000;
      listener.state(true);
      if (attempt > 0) listener.missed();
      await receive(opened.value, listener);
      if (signal.aborted) return;
      listener.state(false);
    } else {
      listener.state(false, opened.error);
      // Asking again would not change that: whoever gives a token starts anew.
      if (opened.error.status >= 400 && opened.error.status < 500 && opened.error.status !== 429) return;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(WAIT_MS_MAX, wait * 2);
  }
}

async function receive(response: Response, listener: LiveListener): Promise<void> {
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  const parser = new EventParser((event, data) => dispatch(event, data, listener));
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

function dispatch(event: string, data: string, listener: LiveListener): void {
  let json;
  try {
    json = object(JSON.parse(data));
  } catch {
    json = undefined;
  }
  const channel = text(json?.["channel"]);
  if (event === "data" && json && channel !== undefined) {
    const time: Instant[] = [];
    const value: number[] = [];
    const values = list(json["value"]);
    list(json["time"]).forEach((raw, index) => {
      const at = integer(raw);
      const here = values[index];
      const numeric = typeof here === "boolean" ? Number(here) : number(here);
      if (at === undefined || numeric === undefined) return;
      time.push(at);
      value.push(numeric);
    });
    if (time.length > 0) listener.values({ channel, time, value });
  } else if (event === "lagged") {
    listener.missed();
  }
}

/** Divides a stream of text into server-sent events. */
export class EventParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  /** Stays until another one comes, as browsers have it. */
  private id = "";

  constructor(private readonly emit: (event: string, data: string, id: string) => void) {}

  feed(piece: string): void {
    this.rest += piece;
    for (;;) {
      const end = /\r\n|\n|\r(?=[^\n])/.exec(this.rest);
      if (!end) return;
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      this.line(line);
    }
  }

  private line(line: string): void {
    if (line === "") {
      if (this.data.length > 0) this.emit(this.event || "message", this.data.join("\n"), this.id);
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id") this.id = value;
  }
}
