/** `GET /api/v1/storage`. Whatever the server does not send is `undefined`, and shown as not available. */
import type { Instant } from "../lib/time";
import { integer, list, number, object, text, type Json } from "./check";
import { failure, type Client, type Outcome } from "./client";

export interface TableUse {
  readonly table: string;
  readonly streams: number | undefined;
  readonly events: number | undefined;
  readonly bytes: number | undefined;
  readonly partitions: number | undefined;
  readonly first: Instant | undefined;
  readonly last: Instant | undefined;
}

export interface PartitionUse {
  readonly table: string;
  readonly start: Instant | undefined;
  readonly end: Instant | undefined;
  readonly bytes: number;
  readonly events: number | undefined;
  readonly lateRuns: number | undefined;
}

export interface LateUse {
  readonly share: number | undefined;
  /** Counts of events by how many newer events stood before them; the last bound may be open. */
  readonly histogram: readonly { readonly bound: number | undefined; readonly count: number }[];
  readonly policy: string | undefined;
  readonly candidates: readonly { readonly policy: string; readonly predicted: number | undefined }[];
  readonly decisions: readonly {
    readonly shard: number | undefined;
    /** Events the shard had seen. */
    readonly atEvents: number | undefined;
    readonly from: string;
    readonly to: string;
    readonly reason: string;
  }[];
}

/** What comes from a broker of messages; counts since the server started. */
export interface BrokerUse {
  readonly broker: string;
  readonly connected: boolean;
  readonly subscriptions: number | undefined;
  readonly subscriptionsRefused: number | undefined;
  readonly received: number | undefined;
  readonly done: number | undefined;
  readonly waiting: number | undefined;
  readonly values: number | undefined;
  /** Messages and rows refused, by code. */
  readonly refused: readonly (readonly [string, number])[];
}

/** A small fast medium beside the large one; bytes written count since the server started. */
export interface TierUse {
  readonly folder: string;
  readonly parts: string;
  readonly fastBytes: number | undefined;
  readonly fastBytesMax: number | undefined;
  readonly bulkBytes: number | undefined;
  readonly fastWritten: number | undefined;
  readonly bulkWritten: number | undefined;
  /** What the copy of the log does not have; nothing where it is not copied. */
  readonly mirrorBehind: number | undefined;
  /** Nothing where it is not kept there. */
  readonly index: KeptUse | undefined;
  readonly newest: KeptUse | undefined;
}

/** What the fast tier repeats of the large medium; counts are since the server started. */
export interface KeptUse {
  readonly bytes: number | undefined;
  readonly bytesMax: number | undefined;
  /** Partitions that are copied; nothing of the index. */
  readonly segments: number | undefined;
  readonly reads: number | undefined;
  readonly dropped: number | undefined;
  readonly refused: number | undefined;
}

export interface StorageUse {
  readonly version: string | undefined;
  readonly uptimeSeconds: number | undefined;
  readonly eventsAccepted: number | undefined;
  readonly eventsWritten: number | undefined;
  readonly amplificationEvents: number | undefined;
  readonly amplificationBytes: number | undefined;
  /** Events written to leaves, and bytes written to files. */
  readonly causes: readonly (readonly [string, number])[];
  readonly kinds: readonly (readonly [string, number])[];
  readonly bytesOnDisk: number | undefined;
  readonly bytesPerEvent: number | undefined;
  readonly memoryUsed: number | undefined;
  readonly memoryBudget: number | undefined;
  readonly tables: readonly TableUse[];
  /** The largest; `partitionsTotal` counts all. */
  readonly partitions: readonly PartitionUse[];
  readonly partitionsTotal: number | undefined;
  readonly late: LateUse | undefined;
  readonly broker: BrokerUse | undefined;
  readonly tiers: TierUse | undefined;
}

/** @param withLate what is known of late events too, which takes the server longest */
export async function fetchStorage(
  client: Client,
  withLate: boolean,
  signal?: AbortSignal,
): Promise<Outcome<StorageUse>> {
  const outcome = await client.json("api/v1/storage", withLate ? [] : [["late", "false"]], signal ? { signal } : {});
  if (!outcome.ok) return outcome;
  const body = object(outcome.value);
  return body
    ? { ok: true, value: readStorage(body) }
    : failure("FORMAT", "the answer about storage has an unknown formatat");
}

export function readStorage(body: Json): StorageUse {
  const amplification = object(body["write_amplification"]);
  const memory = object(body["memory"]);
  const late = object(body["late"]);
  return {
    version: text(body["version"]),
    uptimeSeconds: number(body["uptime_seconds"]),
    eventsAccepted: number(body["events_accepted"]),
    eventsWritten: number(body["events_written"]),
    amplificationEvents: number(amplification?.["events"]),
    amplificationBytes: number(amplification?.["bytes"]),
    causes: counts(amplification?.["by_cause"]),
    kinds: counts(amplification?.["by_kind"]),
    bytesOnDisk: number(body["bytes_on_disk"]),
    bytesPerEvent: number(body["bytes_per_event"]),
    memoryUsed: number(memory?.["used"]),
    memoryBudget: number(memory?.["budget"]),
    tables: list(body["tables"]).flatMap((item) => {
      const json = object(item);
      const table = text(json?.["table"]);
      if (!json || table === undefined) return [];
      return [
        {
          table,
          streams: number(json["streams"]),
          events: number(json["events"]),
          bytes: number(json["bytes"]),
          partitions: number(json["partitions"]),
          first: integer(json["first"]),
          last: integer(json["last"]),
        },
      ];
    }),
    partitions: list(body["partitions"]).flatMap((item) => {
      const json = object(item);
      const bytes = number(json?.["bytes"]);
      if (!json || bytes === undefined) return [];
      return [
        {
          table: text(json["table"]) ?? "",
          start: integer(json["start"]),
          end: integer(json["end"]),
          bytes,
          events: number(json["events"]),
          lateRuns: number(json["late_runs"]),
        },
      ];
    }),
    partitionsTotal: number(body["partitions_total"]),
    late: late ? readLate(late) : undefined,
    broker: readBroker(object(body["mqtt"])),
    tiers: readTiers(object(body["tiers"])),
  };
}

function readTiers(json: Json | undefined): TierUse | undefined {
  const folder = text(json?.["fast"]);
  if (!json || folder === undefined) return undefined;
  return {
    folder,
    parts: text(json["parts"]) ?? "",
    fastBytes: number(json["fast_bytes"]),
    fastBytesMax: number(json["fast_bytes_max"]),
    bulkBytes: number(json["bulk_bytes"]),
    fastWritten: number(json["fast_written_bytes"]),
    bulkWritten: number(json["bulk_written_bytes"]),
    mirrorBehind: number(json["log_mirror_behind_bytes"]),
    index: readKept(json, "fast_index"),
    newest: readKept(json, "fast_newest"),
  };
}

function readKept(tiers: Json, name: string): KeptUse | undefined {
  const bytes = number(tiers[`${name}_bytes`]);
  const kept = object(tiers[name]);
  if (bytes === undefined) return undefined;
  return {
    bytes,
    bytesMax: number(kept?.["bytes_max"]),
    segments: number(kept?.["segments"]),
    reads: number(kept?.["reads"]),
    dropped: number(kept?.["dropped"]),
    refused: number(kept?.["refused"]),
  };
}

function readBroker(json: Json | undefined): BrokerUse | undefined {
  const broker = text(json?.["broker"]);
  if (!json || broker === undefined) return undefined;
  return {
    broker,
    connected: json["connected"] === true,
    subscriptions: number(json["subscriptions"]),
    subscriptionsRefused: number(json["subscriptions_refused"]),
    received: number(json["received"]),
    done: number(json["done"]),
    waiting: number(json["waiting"]),
    values: number(json["values"]),
    refused: counts(json["refused"]),
  };
}

/** The positive numbers of an object, largest first. */
function counts(value: unknown): [string, number][] {
  return Object.entries(object(value) ?? {})
    .flatMap(([name, each]): [string, number][] => {
      const count = number(each);
      return count === undefined || count <= 0 ? [] : [[name, count]];
    })
    .sort(([, a], [, b]) => b - a);
}

function readLate(json: Json): LateUse {
  return {
    share: number(json["share"]),
    histogram: list(json["histogram"]).flatMap((item) => {
      const entry = object(item);
      const count = number(entry?.["count"]);
      const bound = number(entry?.["le_events"]);
      if (!entry || count === undefined) return [];
      // The last bound is the largest number there is: it means none.
      return [{ bound: bound !== undefined && bound < Number.MAX_SAFE_INTEGER ? bound : undefined, count }];
    }),
    policy: text(json["policy"]),
    candidates: list(json["candidates"]).flatMap((item) => {
      const entry = object(item);
      const policy = text(entry?.["policy"]);
      return entry && policy !== undefined ? [{ policy, predicted: number(entry["predicted"]) }] : [];
    }),
    decisions: list(json["decisions"]).flatMap((item) => {
      const entry = object(item);
      if (!entry) return [];
      return [
        {
          shard: number(entry["shard"]),
          atEvents: number(entry["at_events"]),
          from: text(entry["from"]) ?? "",
          to: text(entry["to"]) ?? "",
          reason: text(entry["reason"]) ?? "",
        },
      ];
    }),
  };
}
