/** Watches and named snapshots of the made-up server. */
import type { IncomingMessage, ServerResponse } from "node:http";

const HOUR_MS = 3_600_000;

/** A watch of temperatures that tells a match every so often, and takes each third back. */
export function sendWatches(response: ServerResponse): void {
  json(response, 200, {
    watches: [
      {
        name: "too hot",
        table: "weather",
        state: "running",
        sequence: 3,
        live: 3,
        definition: 'CREATE WATCH "too hot" AS SELECT …',
      },
      {
        name: "silent",
        table: "pump",
        state: "stopped",
        sequence: 0,
        live: 0,
        stopped: { code: "unknown_table", message: "there is no table `pump`" },
        definition: "CREATE WATCH silent AS ABSENCE OF pump …",
      },
    ],
  });
}

export function sendWatchEvents(request: IncomingMessage, response: ServerResponse, after: number, now: bigint): void {
  response.setHeader("content-type", "text/event-stream");
  const begin = Math.floor(Number(now / 1_000_000n) / HOUR_MS) * HOUR_MS - 12 * HOUR_MS;
  let sequence = after;
  const tell = (): void => {
    sequence++;
    const isTakenBack = sequence > 3 && sequence % 3 === 0;
    const number = isTakenBack ? sequence - 1 : sequence;
    const first = new Date(begin + (number % 10) * HOUR_MS).toISOString();
    const last = new Date(begin + (number % 10) * HOUR_MS + HOUR_MS / 3).toISOString();
    const kind = isTakenBack ? "retraction" : "match";
    const row = isTakenBack ? null : { site: "north", peak: 30 + number };
    const data = { watch: "too hot", sequence, kind, id: `match-${number}`, first, last, row };
    response.write(`id: 00-${sequence}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  while (sequence < 3) tell();
  const timer = setInterval(() => {
    if (sequence < 9) tell();
  }, 400);
  request.on("close", () => clearInterval(timer));
}

interface Kept {
  readonly name: string;
  readonly created: string;
}

/** Keeps names of snapshots, as long as it runs. */
export class Snapshots {
  private all: Kept[] = [{ name: "monday", created: "2026-01-05T08:00:00Z" }];

  answer(request: IncomingMessage, response: ServerResponse): void {
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => {
      const { op, name } = JSON.parse(body) as { op: string; name?: string };
      if (op === "show_snapshots") {
        const ended = [{ name: "sunday", ended: "2026-01-06T00:00:00Z", reason: "the disk was full" }];
        json(response, 200, { snapshots: this.all.map(shown), ended });
      } else if (op === "create_snapshot" && name !== undefined) {
        if (this.has(name)) {
          const message = `snapshot \`${name}\` already exists: drop it first, or choose another name`;
          json(response, 400, { code: "E_INVALID", message });
          return;
        }
        const made = { name, created: new Date().toISOString() };
        this.all.push(made);
        json(response, 200, shown(made));
      } else {
        this.all = this.all.filter((one) => one.name !== name);
        json(response, 200, { dropped: name });
      }
    });
  }

  has(name: string): boolean {
    return this.all.some((one) => one.name === name);
  }
}

function shown({ name, created }: Kept): unknown {
  return { name, created, ends: null, events: 175_200, bytes: 310_000, kept_bytes: 4_096 };
}

function json(response: ServerResponse, status: number, body: unknown): void {
  response.statusCode = status;
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(body));
}
