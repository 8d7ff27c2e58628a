/**
 * Marks on plots: rows that a search found, matches of a pattern.
 *
 * Invariant: marks are in order of time, by where they begin. Pure.
 */
import type { Answer, Cell } from "../api/sql";
import { streamLabel } from "./channel";
import { lowerBoundBy } from "./order";
import { parseInstant, type Instant, type Span } from "./time";

/** An instant, or a stretch: `to` is its last instant. */
export interface PlotMark extends Span {
  /** What is told of it. */
  readonly text: string;
  /** The stream it is of; nothing for marks that `tags` say it of, or of everything. */
  readonly stream: string | undefined;
  /** Values of columns that may be tags of a stream: a mark is of the streams that have no others. */
  readonly tags: readonly (readonly [tag: string, value: string])[];
  /** Tells it from others where marks come and go. */
  readonly id?: string;
}

export interface Marks {
  /** What was looked for. */
  readonly title: string;
  readonly all: readonly PlotMark[];
  /** There are more than these. */
  readonly more: boolean;
  /** The field that was looked in. */
  readonly field?: string;
}

/** Whether a mark is of a stream. */
export function isOf(mark: PlotMark, stream: string): boolean {
  if (mark.stream !== undefined) return mark.stream === stream;
  if (mark.tags.length === 0) return true;
  const { tags } = streamLabel(stream);
  return mark.tags.every(([tag, value]) => tags.every(([name, own]) => name !== tag || own === value));
}

/** The mark nearest behind an instant (1), or before it (−1); none beyond the ends. */
export function nextMark(marks: readonly PlotMark[], at: Instant, direction: 1 | -1): number | undefined {
  const index =
    direction === 1
      ? lowerBoundBy(marks, (mark) => mark.from > at)
      : lowerBoundBy(marks, (mark) => mark.from >= at) - 1;
  return index >= 0 && index < marks.length ? index : undefined;
}

function instantOf(cell: Cell | undefined): Instant | undefined {
  if (typeof cell !== "string" && typeof cell !== "number") return undefined;
  return parseInstant(String(cell), "utc") ?? undefined;
}

/**
 * The marks of an answer: of each row its first time, to its last where there are several. Texts in other columns may be
 * tags; all of them are told. `undefined` for an answer without times.
 */
export function marksOfAnswer(answer: Answer, title: string): Marks | undefined {
  const times = answer.columns.flatMap((column, k) => (column.type === "time" ? [k] : []));
  if (times.length === 0) return undefined;
  const all = answer.rows.flatMap((row): PlotMark[] => {
    const found = times.flatMap((k) => instantOf(row[k]) ?? []);
    const [first] = found;
    if (first === undefined) return [];
    const from = found.reduce((a, b) => (b < a ? b : a), first);
    const to = found.reduce((a, b) => (b > a ? b : a), first);
    const others = answer.columns.flatMap((column, k) => (times.includes(k) ? [] : [[column, row[k]] as const]));
    return [
      {
        from,
        to,
        stream: undefined,
        tags: others.flatMap(([{ name }, cell]) => (typeof cell === "string" ? [[name, cell] as const] : [])),
        text: others.map(([{ name }, cell]) => `${name} ${cellText(cell)}`).join(", "),
      },
    ];
  });
  return { title, all: all.sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0)), more: answer.more };
}

function cellText(cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return "–";
  return typeof cell === "object" ? JSON.stringify(cell) : String(cell);
}

/** Whether a statement looks for patterns of rows, as far as its text tells. */
export function isPattern(sql: string): boolean {
  return /\bMATCH_RECOGNIZE\b/i.test(sql);
}
