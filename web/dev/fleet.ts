/** A made-up cloud with two edges, of which one cannot be reached, or the dispatcher before it. */
import type { ServerResponse } from "node:http";

const MINUTE = 60_000_000_000n;
/** From this level on everything of the presses is at the cloud. */
const LEVEL = 12;

export type FleetRole = "cloud" | "dispatcher";

function json(response: ServerResponse, body: unknown, status = 200): void {
  response.statusCode = status;
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(body));
}

/** The edge that has a stream; nothing for those of the cloud itself. */
function edgeOf(stream: string): "north" | "south" | undefined {
  if (!stream.startsWith("press,")) return undefined;
  return stream.includes("line=L1,") ? "north" : "south";
}

export function sendSync(response: ServerResponse, role: FleetRole | undefined): void {
  const now = BigInt(Date.now()) * 1_000_000n;
  const edge = (name: string, state: string, heard: bigint): unknown => ({
    name,
    state,
    want: { summaries: LEVEL },
    rules: [{ table: "alarms", want: "full" }],
    heard_ns: String(now - heard),
    current_ns: String(now - heard),
    copy: { bytes: 48_000_000, missing_bytes: state === "offline" ? 9_000_000 : 0 },
    about: { version: "0.1.0", sent_today: 4e6, day_max: 5e8, sent_this_month: 9e7, month_max: 1e10, rate: 20_480 },
    is_verifying: false,
  });
  if (role === undefined) json(response, { role: "single", cloud: null, edges: null });
  else if (role === "cloud") {
    const edges = [edge("north", "current", 0n), edge("south", "offline", 42n * MINUTE)];
    json(response, { role, cloud: null, edges });
  } else {
    json(response, {
      role,
      nodes: [
        {
          url: "http://10.0.0.5:7373",
          public_url: "https://a.example",
          is_live: true,
          edges: 2,
          connected: 1,
          streams: 3_006,
          tiles: 12,
        },
        { url: "http://10.0.0.6:7373", is_live: false, error: "connection refused", edges: null },
      ],
    });
  }
}

/** Whether tiles of a channel are here; what is not is answered as the server does. */
export function isTileHere(response: ServerResponse, role: FleetRole | undefined, query: URLSearchParams): boolean {
  if (role === undefined || Number(query.get("level")) >= LEVEL) return true;
  const edges = query.getAll("channel").map(edgeOf);
  if (edges.every((edge) => edge === undefined || (edge === "north" && query.get("fetch") === "true"))) return true;
  json(response, { code: "E_ELSEWHERE", message: "not here" }, 503);
  return false;
}

export function sendPresence(response: ServerResponse, role: FleetRole | undefined, query: URLSearchParams): void {
  const now = BigInt(Date.now()) * 1_000_000n;
  const stream = query.get("stream") ?? "";
  const edge = role === undefined ? undefined : edgeOf(stream);
  const from = BigInt(query.get("from") ?? now - 10_000n * MINUTE);
  const to = BigInt(query.get("to") ?? now);
  const bins = BigInt(query.get("bins") ?? 64);
  const every = (to - from + bins - 1n) / bins;
  const levels = query.has("level") ? query.getAll("level").map(Number) : [undefined, 2, 4, 6, 8, 10, 12, 14, 16];
  const lines = levels.map((level) => {
    // Some of it was asked for once.
    const cell = (k: number): string => (edge === undefined || (level ?? -99) >= LEVEL || k % 16 === 3 ? "h" : "e");
    const cells = Array.from({ length: Number(bins) }, (_, k) => cell(k)).join("");
    return { level: level ?? null, cells, missing_bytes: cells.includes("e") ? 120_000 : 0 };
  });
  const source = {
    from: String(from),
    to: String(to),
    edge: edge ?? null,
    state: edge === "south" ? "offline" : edge ? "current" : null,
    is_connected: edge !== "south",
    heard: edge ? String(edge === "south" ? now - 42n * MINUTE : now) : null,
    want: edge ? { summaries: LEVEL } : null,
    rule: null,
    pins: [],
  };
  json(response, { stream, from: String(from), to: String(to), every: String(every), lines, sources: [source] });
}
