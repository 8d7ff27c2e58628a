/**
 * The list of streams as rows: tables, their streams, and the streams' fields. Each table's streams are fetched by
 * themselves, when it is open.
 *
 * Invariants: a table's streams are in the order of the server, from its first one on without a gap. Pure.
 */
import type { FieldInfo, StreamInfo, TableCount } from "../api/streams";
import { channelOf } from "./channel";
import { matchingFields } from "./match";

/** The streams of a table that are known. */
export interface Listed {
  readonly table: string;
  /** How many there are. */
  readonly total: number;
  readonly streams: readonly StreamInfo[];
}

export type Row =
  | { readonly kind: "table"; readonly list: Listed; readonly isOpen: boolean }
  | { readonly kind: "stream"; readonly info: StreamInfo; readonly isOpen: boolean }
  | { readonly kind: "field"; readonly info: StreamInfo; readonly field: FieldInfo; readonly channel: string }
  | { readonly kind: "more"; readonly list: Listed };

export function keyOfRow(row: Row): string {
  switch (row.kind) {
    case "table":
      return `table ${row.list.table}`;
    case "stream":
      return `stream ${row.info.stream}`;
    case "field":
      return `field ${row.channel}`;
    case "more":
      return `more ${row.list.table}`;
  }
}

/** The tables of an answer with those of their streams that it holds. What was known beyond that is kept. */
export function listed(
  tables: readonly TableCount[],
  streams: readonly StreamInfo[],
  before: readonly Listed[] = [],
): Listed[] {
  const byTable = new Map<string, StreamInfo[]>();
  for (const info of streams) byTable.set(info.table, [...(byTable.get(info.table) ?? []), info]);
  return tables.map(({ table, streams: total }) => {
    const fresh = byTable.get(table) ?? [];
    const known = before.find((each) => each.table === table)?.streams ?? [];
    if (known.length <= fresh.length) return { table, total, streams: fresh };
    const now = new Map(fresh.map((info) => [info.stream, info]));
    const isSame = fresh.every((info, k) => known[k]?.stream === info.stream);
    // Something came in between: what lies behind it has moved.
    return { table, total, streams: isSame ? known.map((info) => now.get(info.stream) ?? info) : fresh };
  });
}

export interface Look {
  readonly words: readonly string[];
  isTableOpen(table: string): boolean;
  isStreamOpen(info: StreamInfo): boolean;
}

export function rowsOf(lists: readonly Listed[], look: Look): Row[] {
  const out: Row[] = [];
  for (const list of lists) {
    const isOpen = look.isTableOpen(list.table);
    out.push({ kind: "table", list, isOpen });
    if (!isOpen) continue;
    for (const info of list.streams) {
      const open = look.isStreamOpen(info);
      out.push({ kind: "stream", info, isOpen: open });
      if (!open) continue;
      for (const field of matchingFields(info, look.words))
        out.push({ kind: "field", info, field, channel: channelOf(info.stream, field.name) });
    }
    if (list.streams.length < list.total) out.push({ kind: "more", list });
  }
  return out;
}
