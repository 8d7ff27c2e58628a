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
  readonly want: "full" | number;
  readonly heard: Instant | undefined;
  readonly current: Instant | undefined;
  readonly bytes: number | undefined;
  readonly missing: number | undefined;
  readonly sentToday: number | undefined;
  readonly dayMax: number | undefined;
  readonly written: number | undefined;
  readonly version: string | undefined;
  readonly isVerifying: boolean;
  readonly verified: Compared | undefined;
  readonly error: string | undefined;
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

export interface FleetState {
  readonly role: string;
  readonly cloud: Cloud | undefined;
  readonly edges: readonly Edge[] | undefined;
}

export async function fetchFleet(client: Client, signal?: AbortSignal): Promise<Outcome<FleetState>> {
  const outcome = await client.json("api/v1/sync", [], signal ? { signal } : {});
  if (!outcome.ok) return outcome;
  const body = object(outcome.value);
  return body
    ? { ok: true, value: readFleet(body) }
    : failure("FORMAT", "the answer about edges and clouds has an unknown form");
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
    want: number(object(edge["want"])?.["summaries"]) ?? "full",
    heard: integer(edge["heard_ns"]),
    current: integer(edge["current_ns"]),
    bytes: number(copy?.["bytes"]),
    missing: number(copy?.["missing_bytes"]),
    sentToday: number(about?.["sent_today"]),
    dayMax: number(about?.["day_max"]),
    written: number(about?.["written_bytes"]),
    version: text(about?.["version"]),
    isVerifying: edge["is_verifying"] === true,
    verified: readCompared(edge["verified"]),
    error: text(edge["error"]),
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
