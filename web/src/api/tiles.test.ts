import { describe, expect, test } from "vitest";
import { reply, signal } from "../../dev/fixtures";
import { offsetOf, tileStart } from "../lib/level";
import { SECOND } from "../lib/time";
import { Client } from "./client";
import { decodeTiles, fetchTiles } from "./tiles";

const start = 1_700_000_000n * SECOND;
const source = signal({ first: start, last: start + 1000n * SECOND, interval: SECOND });
const address = { level: 0, offset: offsetOf(0, start + 600n * SECOND) };

test("a reply of several tiles is read, refusals included", () => {
  const outcome = decodeTiles(reply([source, undefined, source], address), ["a", "b", "c"], address);
  expect(outcome.ok).toBe(true);
  if (!outcome.ok) return;
  const [a, b, c] = outcome.value;
  expect(a?.data?.start).toBe(tileStart(0, address.offset));
  expect(a?.data?.time.length).toBe(c?.data?.time.length);
  expect(a?.data?.time.length).toBeGreaterThan(0);
  expect(Array.from(a?.data?.count ?? [])).toEqual(Array.from(a?.data?.time ?? [], () => 1));
  expect(b?.data).toBeUndefined();
  expect(b?.error?.code).toBe("UNKNOWN");
});

test("a reply that is cut or of something else is an error, never half a tile", () => {
  const body = reply([source], address);
  for (let length = 0; length < body.byteLength; length += 7) {
    expect(decodeTiles(body.slice(0, length), ["a"], address).ok, String(length)).toBe(false);
  }
  expect(decodeTiles(body, ["a", "b"], address).ok).toBe(false);
  expect(decodeTiles(body, ["a"], { ...address, level: 1 }).ok).toBe(false);
  expect(decodeTiles(body, ["a"], { ...address, offset: address.offset + 1 }).ok).toBe(false);
  const other = body.slice(0);
  new DataView(other).setUint8(0, 0x58);
  expect(decodeTiles(other, ["a"], address).ok).toBe(false);
  // A row count that would reach far beyond the reply.
  const long = body.slice(0);
  new DataView(long).setUint32(8 + 24, 0xffff_ffff, true);
  expect(decodeTiles(long, ["a"], address).ok).toBe(false);
});

describe("what is elsewhere", () => {
  /** A server that has `a`, gets `b` from an edge when it is asked to, and reaches nobody who has `c`. */
  const serve = (): { client: Client; asked: string[] } => {
    const asked: string[] = [];
    const send = (url: string | URL | Request): Promise<Response> => {
      const query = new URL(String(url)).searchParams;
      const names = query.getAll("channel");
      asked.push(`${names.join(",")}${query.has("fetch") ? " fetch" : ""}`);
      const isHere = names.every((name) => name === "a" || (name === "b" && query.has("fetch")));
      const error = JSON.stringify({ code: names.includes("c") ? "E_UNREACHABLE" : "E_ELSEWHERE", message: "away" });
      const body = reply(
        names.map(() => source),
        address,
      );
      return Promise.resolve(isHere ? new Response(body) : new Response(error, { status: 503 }));
    };
    const client = new Client({ token: () => undefined, refused: () => undefined }, "http://x/", send as typeof fetch);
    return { client, asked };
  };
  const never = new AbortController().signal;

  test("is told from what is here, each channel by itself, at no cost to an edge", async () => {
    const { client, asked } = serve();
    const outcome = await fetchTiles(client, ["a", "b", "c"], address, never, false);
    expect(asked).toEqual(["a,b,c", "a", "b", "c"]);
    if (!outcome.ok) throw new Error(outcome.error.message);
    expect(outcome.value.map((answer) => [answer.channel, answer.data !== undefined, answer.isAway === true])).toEqual([
      ["a", true, false],
      ["b", false, true],
      ["c", false, true],
    ]);
    const one = await fetchTiles(client, ["b"], address, never, false);
    expect(one.ok && one.value[0]?.isAway).toBe(true);
    expect(asked).toHaveLength(5);
  });

  test("is fetched where that is wanted, and stays elsewhere where nobody can be reached", async () => {
    const { client, asked } = serve();
    const outcome = await fetchTiles(client, ["b", "c"], address, never, true);
    expect(asked).toEqual(["b fetch", "c fetch"]);
    if (!outcome.ok) throw new Error(outcome.error.message);
    expect(outcome.value.map((answer) => [answer.channel, answer.data !== undefined, answer.isAway === true])).toEqual([
      ["b", true, false],
      ["c", false, true],
    ]);
  });
});
