/** An answer of SQL as text, as CSV and as lines of a chart. */
import type { Answer, Cell } from "../api/sql";

/** Types whose values stand on the right. */
const NUMBERS = new Set(["f64", "i64", "u64", "decimal"]);
const TIMES = new Set(["time", "local_time", "date"]);

/** Lines of a chart; more would have no colours of their own. */
export const LINES_MAX = 8;

export function isNumber(type: string): boolean {
  return NUMBERS.has(type);
}

export function cellText(cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return "";
  return typeof cell === "object" ? JSON.stringify(cell) : String(cell);
}

/** Width of each column in characters: of its heading and of what some rows from begin to end hold, within reason. */
export function columnWidths(answer: Answer, sample = 200): number[] {
  const { rows } = answer;
  const step = Math.max(1, (rows.length - 1) / sample);
  const sampled = Array.from({ length: Math.min(sample + 1, rows.length) }, (_, k) => rows[Math.round(k * step)]);
  return answer.columns.map(({ name }, k) => {
    let width = [...name].length;
    for (const row of sampled) width = Math.max(width, cellText(row?.[k]).length);
    return Math.min(44, Math.max(5, width)) + 3;
  });
}

/** As the server writes it: no value is an empty cell, an empty text is `""`. */
export function answerCsv(answer: Answer): string {
  const quoted = (text: string): string =>
    text === "" || /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const cell = (value: Cell | undefined): string =>
    value === null || value === undefined ? "" : quoted(cellText(value));
  const lines = [answer.columns.map(({ name }) => quoted(name)), ...answer.rows.map((row) => row.map(cell))];
  return lines.map((line) => line.join(",") + "\n").join("");
}

export interface ChartData {
  /** Seconds since 1970, rising. */
  readonly x: readonly number[];
  readonly lines: readonly { readonly label: string; readonly values: readonly (number | null)[] }[];
  /** Lines left out because there are too many. */
  readonly left: number;
}

/** Seconds since 1970; undefined for what is no time. */
export function seconds(cell: Cell | undefined): number | undefined {
  if (typeof cell !== "string") return undefined;
  const match = /^(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d:\d\d)(\.\d+)?Z?)?$/.exec(cell);
  if (!match) return undefined;
  const whole = Date.parse(`${match[1] ?? ""}T${match[2] ?? "00:00:00"}Z`);
  return Number.isNaN(whole) ? undefined : whole / 1000 + Number(match[3] ?? 0);
}

/** A line for each number column and each combination of the texts; undefined without a time and a number. */
export function chartOf(answer: Answer): ChartData | undefined {
  const time = answer.columns.findIndex(({ type }) => TIMES.has(type));
  const numbers = answer.columns.flatMap(({ type }, k) => (NUMBERS.has(type) ? [k] : []));
  const texts = answer.columns.flatMap(({ type }, k) => (type === "string" ? [k] : []));
  if (time < 0 || numbers.length === 0) return undefined;
  const points = new Map<string, Map<number, number | null>>();
  const instants = new Set<number>();
  for (const row of answer.rows) {
    const at = seconds(row[time]);
    if (at === undefined) continue;
    const group = texts.map((k) => cellText(row[k])).join(" ");
    for (const k of numbers) {
      const name = answer.columns[k]?.name ?? "";
      const label = group === "" ? name : numbers.length > 1 ? `${group} ${name}` : group;
      let line = points.get(label);
      if (!line) points.set(label, (line = new Map()));
      const value = Number(row[k] ?? NaN);
      line.set(at, Number.isFinite(value) ? value : null);
      instants.add(at);
    }
  }
  if (instants.size < 2) return undefined;
  const x = [...instants].sort((a, b) => a - b);
  const lines = [...points].slice(0, LINES_MAX).map(([label, line]) => ({
    label,
    values: x.map((at) => line.get(at) ?? null),
  }));
  return { x, lines, left: Math.max(0, points.size - LINES_MAX) };
}
