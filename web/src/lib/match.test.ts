import { expect, test } from "vitest";
import type { StreamInfo } from "../api/streams";
import { halves, matchingFields, pieces, wordsOf } from "./match";

const stream = (name: string, ...fields: string[]): StreamInfo => ({
  stream: name,
  table: name.split(",")[0] ?? "",
  tags: [],
  first: undefined,
  last: undefined,
  events: undefined,
  fields: fields.map((field) => ({ name: field, type: "f64", last: undefined })),
});

test("a search shows the fields it names, and all of a stream that it names", () => {
  const jfk = stream("weather,origin=JFK", "temp", "wind_dir", "wind_speed");
  const names = (search: string): string[] => matchingFields(jfk, wordsOf(search)).map(({ name }) => name);
  expect(names("Wind")).toEqual(["wind_dir", "wind_speed"]);
  expect(names("jfk wind speed")).toEqual(["wind_speed"]);
  expect(names("weather")).toEqual(["temp", "wind_dir", "wind_speed"]);
  // The server finds a stream of which one field has the one word, and another the other.
  expect(names("temp dir")).toEqual(["temp", "wind_dir"]);
});

test("what was found is marked, whatever overlaps", () => {
  expect(pieces("Wind_speed", ["wind", "nd_s"])).toEqual([
    { text: "Wind_s", isFound: true },
    { text: "peed", isFound: false },
  ]);
  expect(pieces("temp", ["wind"])).toEqual([{ text: "temp", isFound: false }]);
  expect(pieces("", ["wind"])).toEqual([]);
  expect(pieces("İx", ["x"])).toEqual([{ text: "İx", isFound: false }]);
});

test("long names keep their end", () => {
  expect(halves("series=realTweets/Twitter_volume_GOOG").join("")).toBe("series=realTweets/Twitter_volume_GOOG");
  expect(halves("series=realTweets/Twitter_volume_GOOG")[1]).toBe("er_volume_GOOG");
  expect(halves("short")).toEqual(["short", ""]);
});
