/** The made-up server's replays: rows of signals in the order of time, at the pace that is asked for. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Signal } from "./signals";

const ROWS_AT_ONCE = 64;
const ROWS_MAX = 20_000;

interface Row {
  readonly time: bigint;
  readonly stream: string;
  readonly fields: Record<string, number>;
}

/** Rows of some signals, merged by time. */
function* rows(signals: readonly Signal[], from: bigint, to: bigint): Generator<Row> {
  const first = (signal: Signal): bigint => {
    const late = from > signal.first ? (from - signal.first + signal.interval - 1n) / signal.interval : 0n;
    return signal.first + late * signal.interval;
  };
  const heads = signals.map((signal) => ({ signal, at: first(signal) }));
  for (;;) {
    const open = heads.filter(({ signal, at }) => at < to && at <= signal.last);
    const least = open.reduce<bigint | undefined>((a, { at }) => (a === undefined || at < a ? at : a), undefined);
    if (least === undefined) return;
    const byStream = new Map<string, Record<string, number>>();
    for (const head of open) {
      if (head.at !== least) continue;
      const { signal } = head;
      const index = Number(((least - signal.first) / signal.interval) % 2_147_483_647n);
      const fields = byStream.get(signal.stream) ?? {};
      fields[signal.field] = signal.value(Number(least / 1000n) / 1e6, index);
      byStream.set(signal.stream, fields);
      head.at += signal.interval;
    }
    for (const [stream, fields] of byStream) yield { time: least, stream, fields };
  }
}

function passes(row: Row, filter: string | null): boolean {
  if (filter === null) return true;
  const match = /^(\w+) *(!=|<=|>=|=|<|>) *(.+)$/.exec(filter);
  const value = row.fields[match?.[1] ?? ""];
  const bound = Number(match?.[3]);
  if (value === undefined || Number.isNaN(bound)) return false;
  const holds = { "=": value === bound, "!=": value !== bound, "<": value < bound, "<=": value <= bound };
  return { ...holds, ">": value > bound, ">=": value >= bound }[match?.[2] ?? "="] ?? false;
}

export function sendReplay(
  request: IncomingMessage,
  response: ServerResponse,
  all: readonly Signal[],
  query: URLSearchParams,
): void {
  const fields = query.get("fields")?.split(",");
  const tags = query.getAll("tag").map((tag) => tag.split("="));
  const chosen = all.filter(
    (signal) =>
      signal.table === query.get("table") &&
      (!fields || fields.includes(signal.field)) &&
      Object.entries(signal.tags).every(
        ([tag, value]) => !tags.some(([name]) => name === tag) || tags.some(([name, v]) => name === tag && v === value),
      ),
  );
  const filter = query.get("filter");
  const text = /^\w+ *(?:!=|[<>]=?|=) *(.+)$/.exec(filter ?? "")?.[1];
  if (text !== undefined && Number.isNaN(Number(text))) {
    response.statusCode = 400;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ code: "E_PARAMETER", message: `\`${text}\` is not a value of the field` }));
    return;
  }
  const after = query.get("after")?.split("/")[0];
  const speed = Number(query.get("speed") ?? Infinity);
  const limit = Number(query.get("limit") ?? ROWS_MAX);
  const from = after === undefined ? BigInt(query.get("from") ?? 0) : BigInt(after) + 1n;
  const source = rows(chosen, from, BigInt(query.get("to") ?? 1n << 62n));
  response.setHeader("content-type", "application/x-ndjson");
  response.flushHeaders();
  let begun: { readonly ms: number; readonly at: bigint } | undefined;
  let held: Row | undefined;
  let sent = 0;
  const step = (): void => {
    let looked = 0;
    for (let wrote = 0; wrote < ROWS_AT_ONCE && looked < 100_000; looked++) {
      const next = held ?? source.next().value;
      held = undefined;
      if (!next || sent >= limit) {
        response.end();
        return;
      }
      if (!passes(next, filter)) continue;
      begun ??= { ms: Date.now(), at: next.time };
      if (Number(next.time - begun.at) / 1e6 / speed > Date.now() - begun.ms) {
        held = next;
        break;
      }
      response.write(`${JSON.stringify({ ...next, time: String(next.time) })}\n`);
      wrote++;
      sent++;
    }
    timer = setTimeout(step, held ? 20 : 0);
  };
  let timer = setTimeout(step, 0);
  request.on("close", () => clearTimeout(timer));
  response.on("close", () => clearTimeout(timer));
}
