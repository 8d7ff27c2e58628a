/** Answers of the made-up server to SQL: it knows a handful of statements by their words, as the page's tests ask them. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Signal } from "./signals";

const HOUR = 3_600_000;

export function answerSql(request: IncomingMessage, response: ServerResponse, signals: readonly Signal[]): void {
  let body = "";
  request.on("data", (part: Buffer) => (body += part.toString()));
  request.on("end", () => {
    const isJson = request.headers["content-type"] === "application/json";
    const sql = isJson ? String((JSON.parse(body) as { sql?: unknown }).sql) : body;
    if (/information_schema/.test(sql)) send(response, ["table_name", "column_name", "data_type"], columns(signals));
    else if (/sleep/.test(sql)) {
      // Answers only when it is given up.
    } else if (/nowhere/.test(sql)) fail(response, sql, "nowhere");
    else if (/many/.test(sql)) {
      if (isJson) sendMany(response, 10_000, true);
      else {
        response.setHeader("content-type", "text/csv");
        response.end("n\n" + Array.from({ length: 12_000 }, (_, k) => `${k}\n`).join(""));
      }
    } else if (/MATCH_RECOGNIZE/.test(sql)) sendMatches(response);
    else if (/INSERT/.test(sql)) send(response, ["done", "count"], [["inserted", 2]]);
    else if (/weather/.test(sql)) sendWeather(response);
    else send(response, ["answer"], [[42]]);
  });
}

function json(response: ServerResponse, body: unknown): void {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(body));
}

function send(response: ServerResponse, names: readonly string[], rows: readonly (readonly unknown[])[]): void {
  const type = (k: number): string => (typeof rows[0]?.[k] === "number" ? "f64" : "string");
  json(response, { columns: names.map((name, k) => ({ name, type: type(k) })), rows });
}

function columns(signals: readonly Signal[]): string[][] {
  const seen = new Set<string>();
  const rows: string[][] = [];
  for (const { table, tags, field } of signals) {
    const all: [string, string][] = [["time", "Timestamp(ns)"]];
    for (const tag of Object.keys(tags)) all.push([tag, "Dictionary(Int32, Utf8)"]);
    all.push([field, "Float64"]);
    for (const [name, type] of all) {
      if (seen.has(`${table}.${name}`)) continue;
      seen.add(`${table}.${name}`);
      rows.push([table, name, type]);
    }
  }
  return rows.sort((a, b) => ((a[0] ?? "") < (b[0] ?? "") ? -1 : 1));
}

function fail(response: ServerResponse, sql: string, word: string): void {
  const before = sql.slice(0, sql.indexOf(word)).split("\n");
  response.statusCode = 400;
  json(response, {
    code: "unknown_table",
    message: `there is no table \`${word}\``,
    hint: "did you mean `weather`?",
    line: before.length,
    column: (before[before.length - 1] ?? "").length + 1,
  });
}

function sendMany(response: ServerResponse, count: number, more: boolean): void {
  const rows = Array.from({ length: count }, (_, k) => [k, `text ${k}`, k % 3 === 0 ? null : k / 7]);
  json(response, {
    columns: [
      { name: "n", type: "i64" },
      { name: "note", type: "string" },
      { name: "v", type: "f64" },
    ],
    rows,
    more,
  });
}

function sendWeather(response: ServerResponse): void {
  const rows = Array.from({ length: 240 }, (_, k) => {
    const at = new Date(Date.UTC(2024, 2, 1) + (k >> 1) * HOUR).toISOString().replace(".000Z", "Z");
    return [at, k % 2 ? "north" : "south", 10 + (k % 2) * 4 + 6 * Math.sin(k / 17)];
  });
  json(response, {
    columns: [
      { name: "time", type: "time" },
      { name: "station", type: "string" },
      { name: "mean", type: "f64" },
    ],
    rows,
  });
}

/** Twelve stretches of the last months, every second one of another site. */
function sendMatches(response: ServerResponse): void {
  const now = Date.now();
  const text = (ms: number): string => new Date(now - ms).toISOString();
  json(response, {
    columns: [
      { name: "site", type: "string" },
      { name: "begin", type: "time" },
      { name: "finish", type: "time" },
      { name: "depth", type: "f64" },
    ],
    rows: Array.from({ length: 12 }, (_, k) => [
      k % 2 ? "harbour" : "north",
      text((12 - k) * 240 * HOUR),
      text((12 - k) * 240 * HOUR - 72 * HOUR),
      k / 2,
    ]),
  });
}
