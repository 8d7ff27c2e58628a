/**
 * A server with made-up data that speaks as much of the HTTP interface as the page uses. For `npm run dev` and unit tests
 * only: it stores nothing, and is in no build.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { BUCKETS, tileStart } from "../src/lib/level";
import { isTileHere, sendPresence, sendSync, type FleetRole } from "./fleet";
import { sendWatchEvents, sendWatches, Snapshots } from "./past";
import { sendReplay } from "./replay";
import { answerSql } from "./sql";
import { bucket, noise, signals, type Bucket, type Signal } from "./signals";

type Next = () => void;

export interface MockOptions {
  /** No data until this many milliseconds have passed. */
  readonly emptyFor?: number;
  readonly now?: bigint;
  /** It has edges, one of which cannot be reached. */
  readonly fleet?: FleetRole;
}

export function mock(
  options: MockOptions = {},
): (request: IncomingMessage, response: ServerResponse, next: Next) => void {
  const began = Date.now();
  const all = signals(options.now ?? BigInt(began) * 1_000_000n);
  const channels = new Map(all.map((signal) => [`${signal.stream}.${signal.field}`, signal]));
  const snapshots = new Snapshots();
  const isEmpty = (): boolean => Date.now() - began < (options.emptyFor ?? 0);
  return (request, response, next) => {
    const url = new URL(request.url ?? "/", "http://mock");
    const past = url.searchParams.get("snapshot");
    if (past !== null && !snapshots.has(past)) {
      response.statusCode = 404;
      json(response, { code: "E_NO_SNAPSHOT", message: `there is no snapshot \`${past}\`` });
      return;
    }
    switch (url.pathname) {
      case "/api/v1/watches":
        sendWatches(response);
        break;
      case "/api/v1/watches/too%20hot/events":
        sendWatchEvents(
          request,
          response,
          Number(url.searchParams.get("after")?.replace(/^.*-/, "") ?? 0),
          options.now ?? BigInt(began) * 1_000_000n,
        );
        break;
      case "/api/v1/manage":
        snapshots.answer(request, response);
        break;
      case "/api/v1/streams":
        if (url.searchParams.has("stream") && url.searchParams.has("limit")) {
          // As the server: by name, or by what streams have in common.
          response.statusCode = 400;
          json(response, {
            code: "E_PARAMETER",
            message: "streams are asked for by name or by what they have in common",
          });
          break;
        }
        json(response, isEmpty() ? { streams: [], total: 0, next: null } : listStreams(all, url.searchParams));
        break;
      case "/api/v1/tiles":
        if (isTileHere(response, options.fleet, url.searchParams)) sendTiles(response, channels, url.searchParams);
        break;
      case "/api/v1/sync":
        sendSync(response, options.fleet);
        break;
      case "/api/v1/presence":
        sendPresence(response, options.fleet, url.searchParams);
        break;
      case "/api/v1/scan":
        json(response, rows(all, url.searchParams));
        break;
      case "/api/v1/replay":
        sendReplay(request, response, all, url.searchParams);
        break;
      case "/api/v1/live":
        sendLive(request, response, channels, url.searchParams);
        break;
      case "/api/v1/storage":
        json(response, storage());
        break;
      case "/api/v1/sql":
        answerSql(request, response, all);
        break;
      default:
        next();
    }
  };
}

function json(response: ServerResponse, body: unknown): void {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(body));
}

function listStreams(all: readonly Signal[], query: URLSearchParams): unknown {
  const words = (query.get("search") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const names = query.getAll("stream");
  const groups = new Map<string, Signal[]>();
  for (const signal of all) groups.set(signal.stream, [...(groups.get(signal.stream) ?? []), signal]);
  const found = [...groups.values()].filter((group) => {
    const stream = group[0]?.stream ?? "";
    if (names.length > 0) return names.includes(stream);
    if (query.has("table") && group[0]?.table !== query.get("table")) return false;
    const text = `${stream} ${group.map((s) => s.field).join(" ")}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const after = query.get("after");
  const from = after === null ? 0 : found.findIndex((group) => group[0]?.stream === after) + 1;
  const tables = new Map<string, number>();
  for (const [first] of found) tables.set(first?.table ?? "", (tables.get(first?.table ?? "") ?? 0) + 1);
  const limit = Number(query.get("limit") ?? 100);
  const page = found.slice(from, from + limit);
  return {
    streams: page.map((group) => ({
      stream: group[0]?.stream,
      table: group[0]?.table,
      tags: group[0]?.tags,
      first: String(group[0]?.first),
      last: String(group[0]?.last),
      events: Number(((group[0]?.last ?? 0n) - (group[0]?.first ?? 0n)) / (group[0]?.interval ?? 1n)),
      fields: group.map((s) => ({
        name: s.field,
        type: s.field === "running" ? "bool" : "f64",
        last: { time: String(s.last), value: s.value(Number(s.last / 1000n) / 1e6, 7) },
      })),
    })),
    total: found.length,
    tables: names.length > 0 ? [] : [...tables].map(([table, streams]) => ({ table, streams })),
    next: from + limit < found.length ? page[page.length - 1]?.[0]?.stream : null,
  };
}

function sendTiles(response: ServerResponse, channels: ReadonlyMap<string, Signal>, query: URLSearchParams): void {
  const level = Number(query.get("level"));
  const offset = Number(query.get("offset"));
  const parts = query.getAll("channel").map((name) => encodeTile(channels.get(name), level, offset));
  const head = Buffer.alloc(8);
  head.write("HWT1");
  head.writeUInt32LE(parts.length, 4);
  response.setHeader("content-type", "application/vnd.headwater.tiles");
  response.end(Buffer.concat([head, ...parts]));
}

/** Some rows of a stream, as many as were asked for. */
function rows(all: readonly Signal[], query: URLSearchParams): unknown {
  const stream = query.get("stream");
  const signals = all.filter((signal) => signal.stream === stream);
  const [from, to] = [BigInt(query.get("from") ?? 0), BigInt(query.get("to") ?? 0)];
  const limit = Number(query.get("limit") ?? 100);
  const { first = 0n, last = 0n, interval = 1n } = signals[0] ?? {};
  const time: bigint[] = [];
  let more = false;
  let at = first + (from > first ? ((from - first + interval - 1n) / interval) * interval : 0n);
  for (; at < to && at <= last && !more; at += interval) {
    if (time.length === limit) more = true;
    else time.push(at);
  }
  return {
    stream,
    time: time.map(String),
    fields: Object.fromEntries(
      signals.map(({ field, value }) => [
        field,
        time.map((t) => value(Number(t / 1000n) / 1e6, Number(((t - first) / interval) % 2_147_483_647n))),
      ]),
    ),
    more,
  };
}

/** A tile in the binary form of the HTTP interface. */
export function encodeTile(signal: Signal | undefined, level: number, offset: number): Buffer {
  const start = tileStart(level, offset);
  const rows: Bucket[] = [];
  if (signal) {
    for (let k = 0; k < BUCKETS; k++) {
      // A bucket is a tile nine levels below.
      const from = tileStart(level - 9, offset * BUCKETS + k);
      const found = bucket(signal, from, tileStart(level - 9, offset * BUCKETS + k + 1));
      if (found) rows.push({ ...found, time: found.time + Number(from - start) });
    }
  }
  const out = Buffer.alloc(32 + rows.length * 48);
  out.writeUInt32LE(signal ? 0 : 1, 0);
  out.writeInt32LE(level, 4);
  out.writeBigInt64LE(BigInt(offset), 8);
  out.writeBigInt64LE(BigInt.asIntN(64, start), 16);
  out.writeUInt32LE(rows.length, 24);
  let at = 32;
  for (const name of ["time", "mean", "min", "max", "count", "stddev"] as const) {
    for (const row of rows) at = out.writeDoubleLE(row[name], at);
  }
  return out;
}

function sendLive(
  request: IncomingMessage,
  response: ServerResponse,
  channels: ReadonlyMap<string, Signal>,
  query: URLSearchParams,
): void {
  response.setHeader("content-type", "text/event-stream");
  const timer = setInterval(() => {
    const now = BigInt(Date.now()) * 1_000_000n;
    for (const name of query.getAll("channel")) {
      const signal = channels.get(name);
      if (!signal) continue;
      signal.last = now;
      const value = signal.value(Number(now / 1000n) / 1e6, Math.floor(noise(Date.now() & 0xffff) * 1e6));
      response.write(
        `event: data\ndata: ${JSON.stringify({ channel: name, time: [String(now)], value: [value] })}\n\n`,
      );
    }
  }, 200);
  request.on("close", () => clearInterval(timer));
}

function storage(): unknown {
  const day = 86_400n * 1_000_000_000n;
  const now = BigInt(Date.now()) * 1_000_000n;
  const partitions = Array.from({ length: 60 }, (_, k) => ({
    table: k % 3 === 0 ? "weather" : k % 3 === 1 ? "motor" : "press",
    start: String(now - BigInt(61 - k) * 6n * day),
    end: String(now - BigInt(61 - k - 3) * 6n * day),
    bytes: Math.round(1e6 + 1.2e8 * noise(k)),
    events: Math.round(1e6 + 9e7 * noise(k)),
    late_runs: k % 11 === 0 ? 3 : 0,
  }));
  return {
    version: "0.1.0",
    uptime_seconds: 86_400 * 12.4,
    events_accepted: 7_781_402_113,
    events_written: 8_014_220_034,
    write_amplification: {
      events: 1.03,
      bytes: 1.62,
      by_cause: { flush: 7_781_402_113, touched_merge: 190_331_009, fold: 42_486_912 },
    },
    bytes_on_disk: 12_903_441_200,
    bytes_per_event: 1.66,
    tables: ["weather", "motor", "press"].map((table, k) => ({
      table,
      streams: [2, 2, 3000][k],
      events: [175_200, 15_552_000, 5_184_000_000][k],
      bytes: [310_000, 98_000_000, 8_400_000_000][k],
      partitions: 20,
      first: String(now - 3_650n * day),
      last: String(now),
    })),
    partitions,
    tiers: {
      fast: "/mnt/nvme/headwater",
      parts: "log,pins,index,newest",
      fast_bytes: 1_290_000_000,
      fast_bytes_max: 268_435_456,
      bulk_bytes: 12_903_441_200,
      fast_written_bytes: 48_000_000_000,
      bulk_written_bytes: 20_000_000_000,
      log_mirror_behind_bytes: 4_096,
      fast_index_bytes: 300_000_000,
      fast_newest_bytes: 900_000_000,
      fast_index: { segments: null, bytes_max: null, reads: 48_210, dropped: 0, refused: 0 },
      fast_newest: { segments: 14, bytes_max: 2_147_483_648, reads: 7_204, dropped: 1, refused: 0 },
    },
    memory: { used: 41_000_000, budget: 64 * 1024 * 1024 },
    mqtt: {
      broker: "mqtts://broker.example:8883",
      connected: true,
      connects: 2,
      failures: 1,
      subscriptions: 3,
      subscriptions_refused: 0,
      received: 48_210,
      skipped: 0,
      done: 48_207,
      waiting: 3,
      values: 96_400,
      retries: 0,
      refused: { E_TYPE: 12, E_TIME: 2 },
    },
    late: {
      share: 0.048,
      histogram: [1, 4, 16, 64, 256, 1024, 4096, 16_384].map((le, k) => ({
        le_events: le,
        count: Math.round(1e6 * Math.exp(-((k - 3) ** 2) / 4)),
      })),
      policy: "adaptive: separate:0.5",
      candidates: [
        { policy: "conventional,leaf=2048", predicted: 1.42 },
        { policy: "separate:0.5,leaf=2048", predicted: 1.03 },
        { policy: "separate:0.5,retain=4096,leaf=2048", predicted: 1.11 },
      ],
      decisions: [
        {
          shard: 0,
          at_events: 81_920,
          from: "conventional",
          to: "separate:0.5",
          reason: "predicted 1.03 instead of 1.42",
        },
      ],
    },
  };
}
