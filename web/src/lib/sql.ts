/**
 * What the editor needs to know of SQL: words and their kinds, statements, and what may come next.
 *
 * Invariant: the tokens of a text lie side by side and cover all of it, whatever it is. Nothing here decides what is right: that is
 * the server's.
 */
import type { TableColumns } from "../api/sql";

export type Kind = "space" | "comment" | "string" | "quoted" | "number" | "keyword" | "name" | "operator";

export interface Token {
  readonly kind: Kind;
  readonly from: number;
  readonly to: number;
}

const KEYWORDS = (
  "all alter and as asc between by case cast create cross delete desc describe distinct drop else end except exists " +
  "explain analyze false first from full group having ilike in inner insert intersect interval into is join last left " +
  "like limit not null nulls offset on or order outer over partition right select set show table tables columns then " +
  "time timestamp true union update using values when where with"
).split(" ");
const IS_KEYWORD = new Set(KEYWORDS);

const FUNCTIONS = (
  "abs approx_percentile_cont avg ceil coalesce corr count date_bin date_part date_trunc exp first floor greatest lag " +
  "last lead least length ln lower max median min now nullif power regexp_like replace round row_number sqrt stddev " +
  "stddev_pop substr sum time_bucket to_timestamp trim upper var_pop var_sample"
).split(" ");

const PATTERN =
  /(\s+)|(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*(?:'|$))|("(?:[^"]|"")*(?:"|$))|(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|([\p{L}_][\p{L}\p{N}_$]*)|([^])/gu;

export function tokens(text: string): Token[] {
  const out: Token[] = [];
  for (const match of text.matchAll(PATTERN)) {
    const from = match.index;
    const kinds: Kind[] = ["space", "comment", "string", "quoted", "number", "name", "operator"];
    let kind = kinds.find((_, group) => match[group + 1] !== undefined) ?? "operator";
    if (kind === "name" && IS_KEYWORD.has(match[0].toLowerCase())) kind = "keyword";
    out.push({ kind, from, to: from + match[0].length });
  }
  return out;
}

export interface Range {
  readonly from: number;
  readonly to: number;
}

/** The statement a caret stands in, without the blanks around it; right behind a `;` it is the one before. */
export function statementAt(text: string, caret: number): Range {
  const all = tokens(text);
  const ends = all.filter((token) => token.kind === "operator" && text[token.from] === ";").map((token) => token.from);
  const ranges = [...ends, text.length].map((to, k) => trimmed(text, k === 0 ? 0 : (ends[k - 1] ?? 0) + 1, to));
  const isSomething = (range: Range): boolean =>
    all.some((t) => t.from >= range.from && t.to <= range.to && t.kind !== "space" && t.kind !== "comment");
  const filled = ranges.filter(isSomething);
  return (
    filled.find((range) => caret >= range.from && caret <= range.to + 1) ??
    filled.find((range) => caret < range.from) ??
    filled[filled.length - 1] ?? { from: 0, to: 0 }
  );
}

function trimmed(text: string, from: number, to: number): Range {
  let [a, b] = [from, to];
  while (a < b && /\s/.test(text[a] ?? "")) a++;
  while (b > a && /\s/.test(text[b - 1] ?? "")) b--;
  return { from: a, to: b };
}

/** Where a line and a column, both from 1, lie in a text. A column counts characters as people do, not UTF-16 units. */
export function offsetOf(text: string, line: number, column: number): number {
  const lines = text.split("\n");
  let at = 0;
  for (let k = 0; k + 1 < line && k < lines.length; k++) at += (lines[k]?.length ?? 0) + 1;
  const within = [...(lines[line - 1] ?? "")].slice(0, Math.max(0, column - 1)).join("").length;
  return Math.min(text.length, at + within);
}

/** The word at an offset, to be marked; at the end of the text the last one. */
export function wordAt(text: string, offset: number): Range {
  const all = tokens(text).filter((token) => token.kind !== "space");
  const found = all.find((token) => offset >= token.from && offset < token.to) ?? all.find((t) => t.from >= offset);
  return found ?? all[all.length - 1] ?? { from: 0, to: 0 };
}

export interface Suggestion {
  readonly text: string;
  /** What it is: `table`, `column f64`, `function`, `keyword`. */
  readonly note: string;
}

export interface Completion extends Range {
  readonly suggestions: readonly Suggestion[];
}

const SUGGESTIONS_MAX = 12;
/** Behind these stands the name of a table. */
const BEFORE_TABLE = new Set(["from", "join", "into", "table", "describe", "update", "columns"]);

/** What may stand at the caret. Without a `prefix` nothing is offered unless it was `asked` for. */
export function complete(
  text: string,
  caret: number,
  catalog: readonly TableColumns[],
  asked = false,
): Completion | undefined {
  const range = statementRange(text, caret);
  const all = tokens(text.slice(range.from, range.to)).map((t) => ({
    ...t,
    from: t.from + range.from,
    to: t.to + range.from,
  }));
  const word = (token: Token | undefined): string => (token ? text.slice(token.from, token.to) : "");
  const current = all.find((token) => token.from < caret && caret <= token.to);
  if (current && (current.kind === "comment" || current.kind === "string" || current.kind === "number")) {
    return undefined;
  }
  const isWord = current && ["name", "keyword", "quoted"].includes(current.kind);
  const from = isWord ? current.from : caret;
  const prefix = text.slice(from, caret).replace(/^"/, "").toLowerCase();
  const before = all.filter((token) => token.to <= from && token.kind !== "space" && token.kind !== "comment");
  const previous = before[before.length - 1];
  const isBehindDot = word(previous) === ".";
  if (prefix === "" && !isBehindDot && !asked) return undefined;

  const used = usedTables(all, text, catalog);
  let offers: Suggestion[];
  if (isBehindDot) {
    const owner = unquoted(word(before[before.length - 2]));
    const table = used.find((u) => u.alias === owner)?.table ?? catalog.find((t) => t.table === owner);
    offers = columnsOf(table);
  } else if (previous && BEFORE_TABLE.has(word(previous).toLowerCase())) {
    offers = catalog.map(({ table }) => ({ text: quotedName(table), note: "table" }));
  } else {
    offers = [
      ...used.flatMap(({ table }) => columnsOf(table)),
      ...used.filter((u) => u.alias !== u.table.table).map((u) => ({ text: u.alias, note: "table" })),
      ...catalog.map(({ table }) => ({ text: quotedName(table), note: "table" })),
      ...FUNCTIONS.map((name) => ({ text: `${name}(`, note: "function" })),
      ...KEYWORDS.map((name) => ({ text: name.toUpperCase(), note: "keyword" })),
    ];
  }
  const plain = (offer: Suggestion): string => offer.text.replaceAll('"', "").toLowerCase();
  const begins = offers.filter((offer) => plain(offer).startsWith(prefix));
  // Of names that the data brought, a word within them may be what is remembered.
  const isNamed = ({ note }: Suggestion): boolean => note === "table" || note.startsWith("column");
  const within = offers.filter(
    (offer) =>
      prefix !== "" &&
      isNamed(offer) &&
      plain(offer)
        .split(/[^\p{L}\p{N}]+/u)
        .slice(1)
        .some((w) => w.startsWith(prefix)),
  );
  const seen = new Set<string>();
  const suggestions = [...begins, ...within]
    .filter((offer) => !seen.has(offer.text) && seen.add(offer.text))
    .slice(0, SUGGESTIONS_MAX);
  // What is there in full already needs no offer.
  if (suggestions.length === 0 || (suggestions.length === 1 && suggestions[0]?.text === text.slice(from, caret))) {
    return undefined;
  }
  return { from, to: caret, suggestions };
}

/** From the `;` before the caret to the one behind it. */
function statementRange(text: string, caret: number): Range {
  const ends = tokens(text).filter((token) => token.kind === "operator" && text[token.from] === ";");
  return {
    from: ends.filter((token) => token.to <= caret).pop()?.to ?? 0,
    to: ends.find((token) => token.from >= caret)?.from ?? text.length,
  };
}

interface Used {
  readonly alias: string;
  readonly table: TableColumns;
}

/** The tables that a statement names, under their aliases. */
function usedTables(all: readonly Token[], text: string, catalog: readonly TableColumns[]): Used[] {
  const words = all.filter((token) => token.kind !== "space" && token.kind !== "comment");
  const out: Used[] = [];
  words.forEach((token, k) => {
    if (token.kind !== "name" && token.kind !== "quoted") return;
    const name = unquoted(text.slice(token.from, token.to));
    const table = catalog.find((each) => each.table === name);
    if (!table) return;
    let next = words[k + 1];
    if (next && text.slice(next.from, next.to).toLowerCase() === "as") next = words[k + 2];
    const isAlias = next?.kind === "name" || next?.kind === "quoted";
    const alias = next && isAlias ? unquoted(text.slice(next.from, next.to)) : name;
    if (!out.some((each) => each.alias === alias)) out.push({ alias, table });
  });
  return out;
}

function columnsOf(table: TableColumns | undefined): Suggestion[] {
  return (table?.columns ?? []).map(({ name, type }) => ({ text: quotedName(name), note: `column ${type}` }));
}

function unquoted(name: string): string {
  return name.startsWith('"') ? name.slice(1).replace(/"$/, "").replaceAll('""', '"') : name;
}

/** A name as it must be written: in quotes unless it is a plain lower-case word. */
export function quotedName(name: string): string {
  return /^[a-z_][a-z0-9_]*$/.test(name) && !(IS_KEYWORD.has(name) && name !== "time")
    ? name
    : `"${name.replaceAll('"', '""')}"`;
}

const KEY = "headwater.sql.history";
const HISTORY_MAX = 100;

/** The statements run before, newest first. What cannot be read counts as none. */
export function readHistory(storage: Pick<Storage, "getItem">): string[] {
  try {
    const value: unknown = JSON.parse(storage.getItem(KEY) ?? "[]");
    return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];
  } catch {
    return [];
  }
}

/** Puts a statement first. A full storage keeps what it had. */
export function remember(storage: Pick<Storage, "getItem" | "setItem">, sql: string): string[] {
  const history = [sql, ...readHistory(storage).filter((each) => each !== sql)].slice(0, HISTORY_MAX);
  try {
    storage.setItem(KEY, JSON.stringify(history));
  } catch {
    return readHistory(storage);
  }
  return history;
}

const SAVED_KEY = "headwater.sql.saved";
const SAVED_MAX = 200;

/** A statement that was given a name. */
export interface Saved {
  readonly name: string;
  readonly sql: string;
}

/** The statements with names, by name. What cannot be read counts as none. */
export function readSaved(storage: Pick<Storage, "getItem">): Saved[] {
  try {
    const value: unknown = JSON.parse(storage.getItem(SAVED_KEY) ?? "[]");
    if (!Array.isArray(value)) return [];
    return value.flatMap((each: unknown): Saved[] => {
      if (typeof each !== "object" || each === null || !("name" in each) || !("sql" in each)) return [];
      const { name, sql } = each;
      return typeof name === "string" && typeof sql === "string" ? [{ name, sql }] : [];
    });
  } catch {
    return [];
  }
}

/**
 * Gives a statement a name, or takes a name away (`sql` undefined). One of that name is replaced. Gives what is kept
 * then: a full storage keeps what it had.
 */
export function save(storage: Pick<Storage, "getItem" | "setItem">, name: string, sql: string | undefined): Saved[] {
  const others = readSaved(storage).filter((each) => each.name !== name);
  const all = [...others, ...(sql === undefined ? [] : [{ name, sql }])]
    .sort((a, b) => a.name.localeCompare(b.name))
    .slice(0, SAVED_MAX);
  try {
    storage.setItem(SAVED_KEY, JSON.stringify(all));
  } catch {
    return readSaved(storage);
  }
  return all;
}
