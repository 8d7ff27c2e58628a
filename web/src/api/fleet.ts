/** `GET` and `POST /api/v1/sync`: a cloud's edges, and an edge's cloud. What is not sent is `undefined`. */
import { integer, list, number, object, text, type Json } from "./check";
import { failure, type Client, type Outcome } from "./client";
import type { Instant } from "../lib/time";

export interface Compared {
  readonly at: Instant | undefined;
  readonly equal: number;
  readonly different: number;
  readonly missing: number;
}

export interface Edge {
  readonly name: string;
  readonly state: string;
  /** `full`, or the level from which on summaries are wanted. */
  readonly want: "full" | "nothing" | number;
  /** How many rules say otherwise of some of its streams. */
  readonly rules: number;
  readonly heard: Instant | undefined;
  readonly current: Instant | undefined;
  readonly bytes: number | undefined;
  readonly missing: number | undefined;
  readonly sentToday: number | undefined;
  readonly dayMax: number | undefined;
  readonly sentThisMonth: number | undefined;
  readonly monthMax: number | undefined;
  /** Bytes that it may send a second. */
  readonly rate: number | undefined;
  readonly written: number | undefined;
  readonly version: string | undefined;
  readonly isVerifying: boolean;
  readonly verified: Compared | undefined;
  readonly lag: Lag;
  readonly conflicts: Conflicts | undefined;
  readonly error: string | undefined;
}

/** How far a copy is behind its edge, and why. */
export interface Lag {
  readonly seconds: number | undefined;
  readonly cause: string | undefined;
  /** Until when the edge has announced to be away. */
  readonly until: Instant | undefined;
  /** Seconds until the missing bytes are here, at the rate of the last hour. */
  readonly secondsLeft: number | undefined;
  /** Longest age in milliseconds of newest events when they arrived last. */
  readonly liveMs: number | undefined;
}

/** Streams that another database has, too, in the same stretch of time. */
export interface Conflicts {
  readonly streams: number;
  readonly hiddenRows: number;
  readonly isComplete: boolean;
}

export interface Cloud {
  readonly state: string;
  readonly url: string | undefined;
  readonly edge: string | undefined;
  readonly since: Instant | undefined;
  readonly stateNumber: number | undefined;
  readonly confirmedNumber: number | undefined;
  readonly confirmedBytes: number | undefined;
  readonly sentToday: number | undefined;
  readonly sentThisMonth: number | undefined;
  readonly isVerifying: boolean;
  readonly verified: Compared | undefined;
  readonly error: string | undefined;
}

/** A node that a dispatcher sends questions to. */
export interface FleetNode {
  readonly url: string;
  /** Where clients reach it. */
  readonly publicUrl: string | undefined;
  readonly isLive: boolean;
  readonly error: string | undefined;
  readonly edges: number | undefined;
  readonly connected: number | undefined;
  readonly streams: number | undefined;
  readonly tiles: number | undefined;
}

export interface FleetState {
  readonly role: string;
  /** Of a dispatcher. */
  readonly nodes: readonly FleetNode[] | undefined;
  readonly cloud: Cloud | undefined;
  readonly edges: readonly Edge[] | undefined;
}

export async function fetchFleet(client: Client, signal?: AbortSignal): Promise<Outcome<FleetState>> {
  const outcome = await client.json("api/v1/sync", [], signal ? { signal } : {});
  if (!outcome.ok) return outcome;
  const body = object(outcome.value);
  return body
    ? { ok: true, value: readFleet(body) }
    : failure("FORMAT", "the answer about edges and clouds has an unknown format");
}

/** Has something done: `pause`, `resume`, `verify`, of an edge where a cloud is asked. */
export async function changeFleet(client: Client, op: string, edge?: string): Promise<Outcome<unknown>> {
  const body = JSON.stringify(edge === undefined ? { op } : { op, edge });
  return client.json("api/v1/sync", [], { body, contentType: "application/json" });
}

export function readFleet(body: Json): FleetState {
  const cloud = object(body["cloud"]);
  return {
    role: text(body["role"]) ?? "single",
    nodes: Array.isArray(body["nodes"])
      ? list(body["nodes"]).flatMap((each) => readNode(object(each)) ?? [])
      : undefined,
    cloud: cloud && readCloud(cloud),
    edges: Array.isArray(body["edges"])
      ? list(body["edges"]).flatMap((item) => {
          const edge = object(item);
          const read = edge && readEdge(edge);
          return read ? [read] : [];
        })
      : undefined,
  };
}

function readEdge(edge: Json): Edge | undefined {
  const name = text(edge["name"]);
  if (name === undefined) return undefined;
  const copy = object(edge["copy"]);
  const about = object(edge["about"]);
  return {
    name,
    state: text(edge["state"]) ?? "unknown",
    want: edge["want"] === "nothing" ? "nothing" : (number(object(edge["want"])?.["summaries"]) ?? "full"),
    rules: list(edge["rules"]).length,
    heard: integer(edge["heard_ns"]),
    current: integer(edge["current_ns"]),
    bytes: number(copy?.["bytes"]),
    missing: number(copy?.["missing_bytes"]),
    sentToday: number(about?.["sent_today"]),
    dayMax: number(about?.["day_max"]),
    sentThisMonth: number(about?.["sent_this_month"]),
    monthMax: number(about?.["month_max"]),
    rate: number(about?.["rate"]),
    written: number(about?.["written_bytes"]),
    version: text(about?.["version"]),
    isVerifying: edge["is_verifying"] === true,
    verified: readCompared(edge["verified"]),
    lag: readLag(object(edge["lag"])),
    conflicts: readConflicts(object(edge["conflicts"])),
    error: text(edge["error"]),
  };
}

function readLag(lag: Json | undefined): Lag {
  return {
    seconds: number(lag?.["seconds"]),
    cause: text(lag?.["cause"]),
    until: integer(lag?.["until_ns"]),
    secondsLeft: number(lag?.["seconds_left"]),
    liveMs: number(lag?.["live_ms"]),
  };
}

function readConflicts(conflicts: Json | undefined): Conflicts | undefined {
  const streams = number(conflicts?.["streams"]);
  if (streams === undefined) return undefined;
  return {
    streams,
    hiddenRows: number(conflicts?.["hidden_rows"]) ?? 0,
    isComplete: conflicts?.["is_complete"] === true,
  };
}

function readNode(node: Json | undefined): FleetNode | undefined {
  const url = text(node?.["url"]);
  if (!node || url === undefined) return undefined;
  return {
    url,
    publicUrl: text(node["public_url"]),
    isLive: node["is_live"] === true,
    error: text(node["error"]),
    edges: number(node["edges"]),
    connected: number(node["connected"]),
    streams: number(node["streams"]),
    tiles: number(node["tiles"]),
  };
}

function readCloud(cloud: Json): Cloud {
  return {
    state: text(cloud["state"]) ?? "unknown",
    url: text(cloud["url"]),
    edge: text(cloud["edge"]),
    since: integer(cloud["since_ns"]),
    stateNumber: number(cloud["state_number"]),
    confirmedNumber: number(cloud["confirmed_number"]),
    confirmedBytes: number(cloud["confirmed_bytes"]),
    sentToday: number(cloud["sent_today"]),
    sentThisMonth: number(cloud["sent_this_month"]),
    isVerifying: cloud["is_verifying"] === true,
    verified: readCompared(cloud["verified"]),
    error: text(cloud["error"]),
  };
}

function readCompared(value: unknown): Compared | undefined {
  const compared = object(value);
  return (
    compared && {
      at: integer(compared["at_ns"]),
      equal: number(compared["equal"]) ?? 0,
      different: number(compared["different"]) ?? 0,
      missing: number(compared["missing"]) ?? 0,
    }
  );
}
