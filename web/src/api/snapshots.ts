/** Named snapshots, by `POST /api/v1/manage`: which there are, making one, dropping one. */
import { parseInstant, type Instant } from "../lib/time";
import { list, number, object, text } from "./check";
import { failure, type Client, type Outcome } from "./client";

export interface NamedSnapshot {
  readonly name: string;
  readonly created: Instant | undefined;
  /** When it ends by itself; nothing = never. */
  readonly ends: Instant | undefined;
  readonly events: number;
  /** Bytes that are there for snapshots only. */
  readonly keptBytes: number;
}

export interface EndedSnapshot {
  readonly name: string;
  readonly ended: Instant | undefined;
  readonly reason: string;
}

export interface Snapshots {
  readonly all: readonly NamedSnapshot[];
  readonly ended: readonly EndedSnapshot[];
}

async function manage(client: Client, asked: object, signal?: AbortSignal): Promise<Outcome<unknown>> {
  return client.json("api/v1/manage", [], {
    ...(signal ? { signal } : {}),
    body: JSON.stringify(asked),
    contentType: "application/json",
  });
}

export async function fetchSnapshots(client: Client, signal?: AbortSignal): Promise<Outcome<Snapshots>> {
  const outcome = await manage(client, { op: "show_snapshots" }, signal);
  if (!outcome.ok) return outcome;
  const body = object(outcome.value);
  if (!body || !Array.isArray(body["snapshots"]))
    return failure("FORMAT", "the list of snapshots has an unknown formatat");
  return {
    ok: true,
    value: {
      all: body["snapshots"].flatMap(readSnapshot),
      ended: list(body["ended"]).flatMap((each) => {
        const json = object(each);
        const name = text(json?.["name"]);
        return name === undefined
          ? []
          : [{ name, ended: instantOf(json?.["ended"]), reason: text(json?.["reason"]) ?? "" }];
      }),
    },
  };
}

export async function createSnapshot(client: Client, name: string): Promise<Outcome<NamedSnapshot>> {
  const outcome = await manage(client, { op: "create_snapshot", name });
  if (!outcome.ok) return outcome;
  const [made] = readSnapshot(outcome.value);
  return made ? { ok: true, value: made } : failure("FORMAT", "the answer about the snapshot has an unknown formatat");
}

export async function dropSnapshot(client: Client, name: string): Promise<Outcome<unknown>> {
  return manage(client, { op: "drop_snapshot", name });
}

function instantOf(value: unknown): Instant | undefined {
  const said = text(value);
  return said === undefined ? undefined : (parseInstant(said, "utc") ?? undefined);
}

function readSnapshot(value: unknown): NamedSnapshot[] {
  const json = object(value);
  const name = text(json?.["name"]);
  if (!json || name === undefined) return [];
  return [
    {
      name,
      created: instantOf(json["created"]),
      ends: instantOf(json["ends"]),
      events: number(json["events"]) ?? 0,
      keptBytes: number(json["kept_bytes"]) ?? 0,
    },
  ];
}
