/** `POST /api/v1/sql`: one statement, its rows, or where it is wrong. */
import { list, object, text } from "./check";
import { failure, type Client, type Outcome } from "./client";

/** Rows that the page asks for at most; the server says when there are more. */
export const ROWS_MAX = 10_000;

export type Cell = string | number | boolean | null | readonly Cell[] | { readonly [name: string]: Cell };

export interface Column {
  readonly name: string;
  /** `time f64 i64 u64 bool string bytes`, and a few that only expressions have. */
  readonly type: string;
}

export interface Answer {
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly Cell[])[];
  /** There are more rows than these. */
  readonly more: boolean;
}

/** A table as completion knows it. */
export interface TableColumns {
  readonly table: string;
  readonly columns: readonly Column[];
}

export async function runSql(client: Client, sql: string, signal?: AbortSignal): Promise<Outcome<Answer>> {
  const opened = await client.open("api/v1/sql", [], {
    ...(signal ? { signal } : {}),
    body: JSON.stringify({ sql, rows_max: ROWS_MAX }),
    contentType: "application/json",
  });
  if (!opened.ok) return opened;
  try {
    return read(await opened.value.text());
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return failure("ABORTED", "cancelled");
    return failure("NETWORK", "the answer was interrupted; the server's log says why");
  }
}

/** Every row, as CSV. */
export async function sqlCsv(client: Client, sql: string): Promise<Outcome<Blob>> {
  const opened = await client.open("api/v1/sql", [], {
    body: sql,
    contentType: "application/sql",
    accept: "text/csv",
  });
  if (!opened.ok) return opened;
  try {
    return { ok: true, value: await opened.value.blob() };
  } catch {
    return failure("NETWORK", "the transfer was interrupted");
  }
}

/** The tables and columns that may be read. */
export async function fetchCatalog(client: Client, signal?: AbortSignal): Promise<Outcome<readonly TableColumns[]>> {
  const sql =
    "SELECT table_name, column_name, data_type FROM information_schema.columns " +
    "WHERE table_schema = 'public' ORDER BY table_name, ordinal_position";
  const outcome = await runSql(client, sql, signal);
  if (!outcome.ok) return outcome;
  const tables = new Map<string, Column[]>();
  for (const [table, name, type] of outcome.value.rows) {
    const columns = tables.get(String(table)) ?? [];
    columns.push({ name: String(name), type: String(type) });
    tables.set(String(table), columns);
  }
  return { ok: true, value: [...tables].map(([table, columns]) => ({ table, columns })) };
}

type Revive = (key: string, value: unknown, context?: { readonly source?: string }) => unknown;

/** Integers beyond 2^53 stay exact, as text, where the browser tells how a number was written. */
const exact: Revive = (_key, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? context?.source
    : value;

export function read(body: string): Outcome<Answer> {
  let json: unknown;
  try {
    json = JSON.parse(body, exact as (key: string, value: unknown) => unknown);
  } catch (error) {
    return failure("FORMAT", `the server's answer is not JSON: ${String(error)}`);
  }
  const answer = object(json);
  if (!answer || !Array.isArray(answer["rows"])) return failure("FORMAT", "the server's answer has no rows");
  const columns = list(answer["columns"]).map((each) => {
    const column = object(each);
    return { name: text(column?.["name"]) ?? "", type: text(column?.["type"]) ?? "" };
  });
  return {
    ok: true,
    value: {
      columns,
      rows: answer["rows"] as Cell[][],
      more: answer["more"] === true,
    },
  };
}
