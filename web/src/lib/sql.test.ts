import { describe, expect, test } from "vitest";
import {
  complete,
  offsetOf,
  quotedName,
  readHistory,
  remember,
  statementAt,
  tokens,
  wordAt,
  readSaved,
  save,
} from "./sql";

const CATALOG = [
  {
    table: "weather",
    columns: [
      { name: "time", type: "Timestamp" },
      { name: "origin", type: "Dictionary" },
      { name: "temp", type: "Float64" },
    ],
  },
  { table: "Odd table", columns: [{ name: "a b", type: "Int64" }] },
];

const offered = (marked: string, asked = false): string[] => {
  const caret = marked.indexOf("|");
  return (complete(marked.replace("|", ""), caret, CATALOG, asked)?.suggestions ?? []).map((each) => each.text);
};

describe("tokens", () => {
  test("cover any text side by side", () => {
    for (const text of ["", "SELECT 'it''s', \"a\"\"b\" -- no\n/* x", "ü = 1e-3;'open", "\u{1f600}$1 /**/ a.b"]) {
      const all = tokens(text);
      expect(all.map((t) => text.slice(t.from, t.to)).join("")).toBe(text);
    }
  });

  test("know strings, names in quotes, comments and numbers", () => {
    const text = `SELECT "a" + 1.5e3, ';' --;`;
    const kinds = tokens(text).filter((t) => t.kind !== "space");
    expect(kinds.map((t) => t.kind)).toEqual([
      "keyword",
      "quoted",
      "operator",
      "number",
      "operator",
      "string",
      "comment",
    ]);
  });
});

describe("statements", () => {
  const text = "SELECT ';' ;\n  SELECT 2 ;  ";
  const at = (caret: number): string => {
    const { from, to } = statementAt(text, caret);
    return text.slice(from, to);
  };
  test("are told apart by semicolons outside of strings", () => {
    expect(at(0)).toBe("SELECT ';'");
    expect(at(11)).toBe("SELECT ';'");
    expect(at(20)).toBe("SELECT 2");
    expect(at(text.length)).toBe("SELECT 2");
    expect(statementAt("  ", 1)).toEqual({ from: 0, to: 0 });
  });

  test("an error's line and column lead to a word", () => {
    const sql = "SELECT '\u{1f600}', x\nFROM nowhere";
    expect(sql.slice(offsetOf(sql, 2, 6))).toBe("nowhere");
    expect(sql.slice(offsetOf(sql, 1, 13), offsetOf(sql, 1, 14))).toBe("x");
    const { from, to } = wordAt(sql, offsetOf(sql, 2, 6));
    expect(sql.slice(from, to)).toBe("nowhere");
    expect(wordAt(sql, 1000).to).toBe(sql.length);
  });
});

describe("completion", () => {
  test("offers tables behind FROM, columns of the tables that are named, and words", () => {
    expect(offered("SELECT * FROM w|")).toEqual(["weather"]);
    expect(offered("SELECT * FROM |", true)).toEqual(["weather", '"Odd table"']);
    expect(offered("SELECT te| FROM weather")[0]).toBe("temp");
    expect(offered("SELECT dat|")).toContain("date_bin(");
    expect(offered("sel|")).toEqual(["SELECT"]);
    expect(offered('SELECT a| FROM "Odd table"')[0]).toBe('"a b"');
  });

  test("offers what begins with the prefix, and names of the data that have a word which does", () => {
    expect(offered("SELECT te| FROM weather")).toEqual(["temp"]);
    expect(offered('SELECT b| FROM "Odd table"')).toContain('"a b"');
    expect(offered("SELECT bin| FROM weather")).toEqual([]);
  });

  test("knows aliases, and keeps to the statement of the caret", () => {
    expect(offered("SELECT w.| FROM weather AS w")).toEqual(["time", "origin", "temp"]);
    expect(offered("SELECT w.o| FROM weather w")).toEqual(["origin"]);
    expect(offered("SELECT 1 FROM weather; SELECT tem|")).not.toContain("temp");
  });

  test("is silent in strings, comments and numbers, without a prefix, and when a word is whole", () => {
    for (const text of ["SELECT 'w|'", "-- w|", "SELECT 12|", "SELECT |", "SELECT * FROM weather|"]) {
      expect(offered(text)).toEqual([]);
    }
  });

  test("writes names in quotes where they need them", () => {
    expect([quotedName("time"), quotedName("A"), quotedName('a"b'), quotedName("group")]).toEqual([
      "time",
      '"A"',
      '"a""b"',
      '"group"',
    ]);
  });
});

test("statements with names are kept by name, and replaced", () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string): string | null => kept.get(key) ?? null,
    setItem: (key: string, value: string): void => void kept.set(key, value),
  };
  save(storage, "b", "SELECT 1");
  save(storage, "a", "SELECT 2");
  expect(save(storage, "b", "SELECT 3")).toEqual([
    { name: "a", sql: "SELECT 2" },
    { name: "b", sql: "SELECT 3" },
  ]);
  expect(save(storage, "a", undefined)).toEqual([{ name: "b", sql: "SELECT 3" }]);
  kept.set("headwater.sql.saved", '[{"name":1}]');
  expect(readSaved(storage)).toEqual([]);
});

test("history keeps each statement once, newest first, and survives what is broken", () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string): string | null => kept.get(key) ?? null,
    setItem: (key: string, value: string): void => void kept.set(key, value),
  };
  for (const sql of ["a", "b", "a"]) remember(storage, sql);
  expect(readHistory(storage)).toEqual(["a", "b"]);
  for (let k = 0; k < 150; k++) remember(storage, `s${k}`);
  expect(readHistory(storage)).toHaveLength(100);
  kept.set("headwater.sql.history", "{");
  expect(readHistory(storage)).toEqual([]);
  const full = {
    getItem: (): string => '["old"]',
    setItem: (): void => {
      throw new Error("full");
    },
  };
  expect(remember(full, "new")).toEqual(["old"]);
});
