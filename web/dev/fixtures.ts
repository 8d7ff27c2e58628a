/** Tiles of made-up signals, decoded as the page decodes a server's. */
import { decodeTiles } from "../src/api/tiles";
import type { Address } from "../src/lib/level";
import type { TileData, TileStore } from "../src/lib/tiles";
import { encodeTile } from "./mock";
import type { Signal } from "./signals";

export const CHANNEL = "s,id=1.v";

/** A signal with an event every `interval` nanoseconds. */
export function signal(
  shape: Pick<Signal, "first" | "last" | "interval"> & Partial<Pick<Signal, "gaps" | "value">>,
): Signal {
  return { stream: "s,id=1", table: "s", tags: { id: "1" }, field: "v", gaps: [], value: (_t, i) => i % 10, ...shape };
}

/** The body of a reply with the tiles of one address, one per signal. */
export function reply(signals: readonly (Signal | undefined)[], { level, offset }: Address): ArrayBuffer {
  const head = Buffer.alloc(8);
  head.write("HWT1");
  head.writeUInt32LE(signals.length, 4);
  const body = Buffer.concat([head, ...signals.map((each) => encodeTile(each, level, offset))]);
  return body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength);
}

export function tileOf(from: Signal, address: Address): TileData {
  const outcome = decodeTiles(reply([from], address), [CHANNEL], address);
  const data = outcome.ok ? outcome.value[0]?.data : undefined;
  if (!data) throw new Error(outcome.ok ? "no tile" : outcome.error.message);
  return data;
}

export function put(store: TileStore, from: Signal, address: Address, arrivals = 0): void {
  store.put(CHANNEL, address, tileOf(from, address), { ms: 0, arrivals });
}
