/** A map of what is here, in words and stretches of time. Pure. */
import type { Presence, PresenceLine, Source } from "../api/presence";
import { formatInstant, formatLength, type Instant, type Span, type Zone } from "./time";

/** What a cell is: here, here as it was before, at a connected edge, or out of reach. */
export type Cell = "here" | "older" | "elsewhere" | "away";

/** Neighbouring cells that are alike; `end` is the cell behind the last. */
export interface Run {
  readonly cell: Cell;
  readonly first: number;
  readonly end: number;
}

/** The span of some cells. */
export function spanOfCells(presence: Presence, first: number, end: number): Span {
  const at = (cell: number): Instant => {
    const instant = presence.from + BigInt(cell) * presence.every;
    return instant < presence.to ? instant : presence.to;
  };
  return { from: at(first), to: at(end) };
}

/** Who has an instant; of a stretch between two the first that follows. */
export function sourceAt(presence: Presence, at: Instant): Source | undefined {
  return presence.sources.find((source) => at < source.to);
}

export function cellOf(presence: Presence, line: PresenceLine, index: number): Cell {
  switch (line.cells[index]) {
    case "h":
      return "here";
    case "o":
      return "older";
    default:
      return sourceAt(presence, spanOfCells(presence, index, index + 1).from)?.isConnected ? "elsewhere" : "away";
  }
}

export function runsOf(presence: Presence, line: PresenceLine): Run[] {
  const runs: Run[] = [];
  for (let k = 0; k < line.cells.length; k++) {
    const cell = cellOf(presence, line, k);
    const last = runs[runs.length - 1];
    if (last?.cell === cell) runs[runs.length - 1] = { ...last, end: k + 1 };
    else runs.push({ cell, first: k, end: k + 1 });
  }
  return runs;
}

/** What a line is about: `rows`, `buckets of 1 min`. */
export function lineWords(level: number | undefined): string {
  return level === undefined ? "rows" : formatLength(2 ** level * 1e9);
}

/** Since when an edge cannot be reached, as far as that is known. */
export function sinceWords(source: Source | undefined, now: Instant, zone: Zone): string {
  if (source?.edge === undefined) return "the node that has it is unknown";
  if (source.isConnected) return `${source.edge} has it and is connected`;
  const { edge, heard } = source;
  if (heard === undefined) return `${edge} is not reachable; it has not connected since this node was started`;
  const ago = formatLength(Math.max(0, Number(now - heard)));
  return `${edge} has not been reachable since ${formatInstant(heard, zone, 0)} (${ago})`;
}

export function cellWords(presence: Presence, line: PresenceLine, index: number, now: Instant, zone: Zone): string {
  const source = sourceAt(presence, spanOfCells(presence, index, index + 1).from);
  switch (cellOf(presence, line, index)) {
    case "here":
      return "here";
    case "older":
      return "an older version is here: the newer one is on its way";
    default:
      return `not here: ${sinceWords(source, now, zone)}`;
  }
}

/** Why as much of a stretch is here as there is. */
export function whyWords({ edge, want, rule, pins }: Source, zone: Zone): string[] {
  if (edge === undefined) return ["written on this node, so everything is here"];
  const by = rule === undefined ? `subscription to ${edge}` : `rule ${rule} of ${edge}`;
  const out: string[] = [];
  if (want === "full") out.push(`all rows are subscribed: ${by}`);
  else if (want === "nothing") out.push(`nothing is subscribed: ${by}`);
  else if (want !== undefined) out.push(`buckets from ${lineWords(want)} on are subscribed: ${by}`);
  for (const pin of pins) {
    const until = pin.until === undefined ? "" : `, until ${formatInstant(pin.until, zone, 0)}`;
    out.push(`pinned: all rows from ${formatInstant(pin.from, zone, 0)} to ${formatInstant(pin.to, zone, 0)}${until}`);
  }
  if (want !== "full") out.push("other data here was fetched for earlier queries");
  return out;
}
