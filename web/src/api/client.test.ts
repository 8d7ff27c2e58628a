import { describe, expect, test } from "vitest";
import { Client, type Credentials } from "./client";
import { EventParser } from "./live";
import { readStorage } from "./storage";
import { fetchStreams } from "./streams";

function credentials(token?: string): Credentials & { refusals: number } {
  return {
    refusals: 0,
    token: () => token,
    refused() {
      this.refusals++;
    },
  };
}

function answering(status: number, body: string, seen: Request[] = []): typeof fetch {
  return (input, init) => {
    seen.push(new Request(input, init));
    return Promise.resolve(new Response(status === 204 ? null : body, { status }));
  };
}

describe("requests", () => {
  test("stay below the page's own path and carry the token", async () => {
    const seen: Request[] = [];
    const client = new Client(credentials("abc"), "http://gateway/metrics/", answering(200, "{}", seen));
    await client.json("api/v1/streams", [
      ["stream", "a,b=c d"],
      ["stream", "e"],
    ]);
    expect(seen[0]?.url).toBe("http://gateway/metrics/api/v1/streams?stream=a%2Cb%3Dc+d&stream=e");
    expect(seen[0]?.headers.get("authorization")).toBe("Bearer abc");
  });

  test("end in errors with codes", async () => {
    const ask = async (status: number, body: string, who = credentials()): Promise<unknown> => {
      const outcome = await new Client(who, "http://x/", answering(status, body)).json("p");
      return outcome.ok ? outcome.value : [outcome.error.code, outcome.error.message, outcome.error.status];
    };
    expect(await ask(400, '{"code":"E_PARSE","message":"no"}')).toEqual(["E_PARSE", "no", 400]);
    expect(await ask(502, "<html>")).toEqual(["HTTP_502", "the server answered 502", 502]);
    expect(((await ask(200, "{")) as string[])[0]).toBe("FORMAT");
    const who = credentials();
    await ask(401, "{}", who);
    expect(who.refusals).toBe(1);
    const down = new Client(credentials(), "http://x/", () => Promise.reject(new TypeError("refused")));
    expect(await down.json("p")).toMatchObject({ ok: false, error: { code: "NETWORK", status: 0 } });
    const gone = new Client(credentials(), "http://x/", () => Promise.reject(new DOMException("x", "AbortError")));
    expect(await gone.json("p")).toMatchObject({ ok: false, error: { code: "ABORTED" } });
  });
});

test("streams are read with exact instants; what is missing is undefined", async () => {
  const body = JSON.stringify({
    streams: [
      {
        stream: "a,b=c",
        table: "a",
        tags: { b: "c" },
        first: "1700000000123456789",
        last: null,
        events: 3,
        fields: [
          { name: "v", type: "f64", last: { time: "1700000000123456789", value: 1.5 } },
          { name: "w", type: "string", last: null },
        ],
      },
      { nonsense: true },
    ],
    total: 1,
    tables: [{ table: "a", streams: 1 }, { streams: 2 }],
    next: null,
  });
  const outcome = await fetchStreams(new Client(credentials(), "http://x/", answering(200, body)), {});
  expect(outcome).toEqual({
    ok: true,
    value: {
      streams: [
        {
          stream: "a,b=c",
          table: "a",
          tags: [["b", "c"]],
          first: 1_700_000_000_123_456_789n,
          last: undefined,
          events: 3,
          fields: [
            { name: "v", type: "f64", last: { time: 1_700_000_000_123_456_789n, value: 1.5 } },
            { name: "w", type: "string", last: undefined },
          ],
        },
      ],
      total: 1,
      tables: [{ table: "a", streams: 1 }],
      next: undefined,
    },
  });
});

test("storage takes what there is", () => {
  const use = readStorage({
    version: "1",
    late: null,
    write_amplification: { events: 1.5, by_cause: { flush: 3, odd: "x" } },
    partitions: [{ bytes: 5, start: "-1" }],
    mqtt: { broker: "mqtt://b:1883", connected: true, waiting: 0, refused: { E_TYPE: 2, E_TIME: 3 } },
  });
  expect(use).toMatchObject({
    version: "1",
    late: undefined,
    bytesOnDisk: undefined,
    amplificationEvents: 1.5,
    causes: [["flush", 3]],
    tables: [],
  });
  expect(use.partitions[0]?.start).toBe(-1n);
  expect(use.broker).toMatchObject({
    broker: "mqtt://b:1883",
    connected: true,
    waiting: 0,
    received: undefined,
    refused: [
      ["E_TIME", 3],
      ["E_TYPE", 2],
    ],
  });
  expect(readStorage({ mqtt: null }).broker).toBeUndefined();
  const tiers = { fast: "/fast", parts: "log", fast_bytes: 7, fast_bytes_max: null, log_mirror_behind_bytes: 0 };
  expect(readStorage({ tiers }).tiers).toMatchObject({
    folder: "/fast",
    parts: "log",
    fastBytes: 7,
    fastBytesMax: undefined,
    bulkWritten: undefined,
    mirrorBehind: 0,
  });
  expect(readStorage({ tiers: null }).tiers).toBeUndefined();
});

test("server-sent events are divided right, wherever the pieces are cut", () => {
  const text =
    ': keep-alive\n\nevent: data\ndata: {"a":1}\n\nevent: lagged\r\ndata: one\r\ndata: two\r\n\r\ndata:bare\n\n';
  const expected = [
    ["data", '{"a":1}'],
    ["lagged", "one\ntwo"],
    ["message", "bare"],
  ];
  for (let size = 1; size < text.length; size++) {
    const seen: [string, string][] = [];
    const parser = new EventParser((event, data) => seen.push([event, data]));
    for (let at = 0; at < text.length; at += size) parser.feed(text.slice(at, at + size));
    expect(seen, String(size)).toEqual(expected);
  }
});
