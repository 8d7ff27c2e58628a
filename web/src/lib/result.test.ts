import { describe, expect, test } from "vitest";
import { read, type Answer } from "../api/sql";
import { answerCsv, chartOf, columnWidths, seconds } from "./result";

const answer: Answer = {
  columns: [
    { name: "time", type: "time" },
    { name: "origin", type: "string" },
    { name: "temp", type: "f64" },
  ],
  rows: [
    ["2013-07-01T01:00:00Z", "EWR", 2],
    ["2013-07-01T00:00:00Z", "EWR", 1],
    ["2013-07-01T00:00:00.5Z", "JFK", null],
    ["2013-07-01T01:00:00Z", 'J,"K', 4],
  ],
  more: false,
};

describe("a chart", () => {
  test("has a line for each text, over times that rise", () => {
    const chart = chartOf(answer);
    expect(chart?.x).toEqual([1372636800, 1372636800.5, 1372640400]);
    expect(chart?.lines).toEqual([
      { label: "EWR", values: [1, null, 2] },
      { label: "JFK", values: [null, null, null] },
      { label: 'J,"K', values: [null, null, 4] },
    ]);
  });

  test("needs a time and a number, and has lines of eight colours at most", () => {
    expect(chartOf({ ...answer, columns: answer.columns.slice(1) })).toBeUndefined();
    expect(chartOf({ ...answer, rows: answer.rows.slice(0, 1) })).toBeUndefined();
    const rows = Array.from({ length: 20 }, (_, k) => [`2013-07-0${1 + (k % 2)}`, `d${k}`, k]);
    const columns = [{ name: "day", type: "date" }, ...answer.columns.slice(1)];
    const chart = chartOf({ ...answer, columns, rows });
    expect([chart?.lines.length, chart?.left]).toEqual([8, 12]);
  });

  test("times are read to the nanosecond that a double holds", () => {
    expect(seconds("1970-01-01T00:00:01.000000001Z")).toBeCloseTo(1.000000001, 9);
    expect([seconds("1970-01-02"), seconds("x"), seconds(null)]).toEqual([86_400, undefined, undefined]);
  });
});

test("CSV tells an empty text from no value and quotes what needs it", () => {
  const rows = [["2013-07-01T00:00:00Z", "", null], ...answer.rows.slice(3)];
  expect(answerCsv({ ...answer, rows })).toBe(
    'time,origin,temp\n2013-07-01T00:00:00Z,"",\n2013-07-01T01:00:00Z,"J,""K",4\n',
  );
});

test("columns are as wide as what they hold, within reason", () => {
  const rows = [["2013-07-01T00:00:00Z", "x".repeat(500), 1]];
  expect(columnWidths({ ...answer, rows })).toEqual([23, 47, 8]);
});

test("answers are read as they are, and what is none is an error", () => {
  const outcome = read('{"columns":[{"name":"n","type":"i64"}],"rows":[[1],\n[null]],"more":true}');
  expect(outcome.ok && outcome.value).toMatchObject({ rows: [[1], [null]], more: true });
  for (const body of ["", "{", "[]", '{"columns":[]}']) expect(read(body).ok).toBe(false);
});
