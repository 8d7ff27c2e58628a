/** `GET /api/v1/tiles` in its binary form; see docs/http. */
import { heldStart, type Address } from "../lib/level";
import type { TileAnswer } from "../lib/loader";
import type { TileData } from "../lib/tiles";
import { failure, type ApiError, type Client, type Outcome, type Query } from "./client";

export const TILES_TYPE = "application/vnd.headwater.tiles";

const MAGIC = 0x31545748; // "HWT1", little endian
const FILE_HEADER = 8;
const TILE_HEADER = 32;
const COLUMNS = 6;

/**
 * Tiles of channels. Where one of them is elsewhere the server says so of all: then each is asked for by itself. With
 * `fetches` what is elsewhere is got from the edge that has it, which takes its time and costs the edge something. With
 * `past` they are of the named snapshot.
 */
export async function fetchTiles(
  client: Client,
  channels: readonly string[],
  address: Address,
  signal: AbortSignal,
  fetches: boolean,
  past?: string,
): Promise<Outcome<TileAnswer[]>> {
  const ask = async (some: readonly string[], more: Query = []): Promise<Outcome<TileAnswer[]>> => {
    const query: [string, string][] = some.map((channel) => ["channel", channel]);
    query.push(["level", String(address.level)], ["offset", String(address.offset)], ["format", "binary"]);
    if (past !== undefined) query.push(["snapshot", past]);
    const outcome = await client.bytes("api/v1/tiles", [...query, ...more], { signal, accept: TILES_TYPE });
    return outcome.ok ? decodeTiles(outcome.value, some, address) : outcome;
  };
  const away = (channel: string, error: ApiError): TileAnswer => ({ channel, data: undefined, error, isAway: true });
  if (!fetches) {
    const all = await ask(channels);
    if (all.ok || !isElsewhere(all.error)) return all;
    if (channels.length === 1) return { ok: true, value: [away(channels[0] ?? "", all.error)] };
  }
  const out: TileAnswer[] = [];
  const more: Query = fetches ? [["fetch", "true"]] : [];
  const answers = await Promise.all(channels.map((channel) => ask([channel], more)));
  for (const [k, answer] of answers.entries()) {
    if (answer.ok) out.push(...answer.value);
    else if (isElsewhere(answer.error)) out.push(away(channels[k] ?? "", answer.error));
    else return answer;
  }
  return { ok: true, value: out };
}

/** Whether another node has it, which may not be reached. */
function isElsewhere({ code }: ApiError): boolean {
  return code === "E_ELSEWHERE" || code === "E_UNREACHABLE";
}

/** Reads the reply; every length is checked before it is used. */
export function decodeTiles(body: ArrayBuffer, channels: readonly string[], address: Address): Outcome<TileAnswer[]> {
  const view = new DataView(body);
  const wrong = (what: string): Outcome<never> => failure("FORMAT", `the server's tiles cannot be read: ${what}`);
  if (body.byteLength < FILE_HEADER || view.getUint32(0, true) !== MAGIC)
    return wrong("expected HWT1 at the beginning");
  if (view.getUint32(4, true) !== channels.length) return wrong("another number of tiles than requested");
  const out: TileAnswer[] = [];
  let at = FILE_HEADER;
  for (const channel of channels) {
    if (at + TILE_HEADER > body.byteLength) return wrong("truncated");
    const status = view.getUint32(at, true);
    const level = view.getInt32(at + 4, true);
    const offset = view.getBigInt64(at + 8, true);
    const start = view.getBigInt64(at + 16, true);
    const rows = view.getUint32(at + 24, true);
    at += TILE_HEADER;
    if (status !== 0) {
      out.push({ channel, data: undefined, error: refusal(status) });
      continue;
    }
    if (level !== address.level || offset !== BigInt(address.offset)) return wrong("another tile than requested");
    if (start !== heldStart(address.level, address.offset)) return wrong("a start that is not the tile's");
    if (at + rows * COLUMNS * 8 > body.byteLength) return wrong("truncated");
    const column = (index: number): Float64Array => {
      const from = at + index * rows * 8;
      return new Float64Array(body.slice(from, from + rows * 8));
    };
    const data: TileData = {
      start,
      time: column(0),
      mean: column(1),
      min: column(2),
      max: column(3),
      count: column(4),
    };
    out.push({ channel, data });
    at += rows * COLUMNS * 8;
  }
  return { ok: true, value: out };
}

function refusal(status: number): { code: string; message: string; status: number } {
  return status === 2
    ? { code: "NOT_NUMERIC", message: "this field has text or bytes, which cannot be plotted", status: 200 }
    : { code: "UNKNOWN", message: "the stream or field does not exist (any more)", status: 200 };
}
