import { afterEach, expect, test, vi } from "vitest";
import { Client } from "../api/client";
import type { Watch } from "../api/watches";
import type { Marks } from "../lib/marks";
import { Marking } from "./marking";
import type { Stage } from "./stage";
import { MATCHES_MAX, Watching } from "./watching";

const WATCH: Watch = {
  name: "too hot",
  table: "pump",
  isRunning: true,
  sequence: 3,
  live: 2,
  stopped: undefined,
  definition: "",
};

function told(kind: string, sequence: number, id: string, first: number, row: unknown = { id: "a", n: 3 }): string {
  const at = new Date(first * 1e3).toISOString();
  const data = { watch: "too hot", sequence, kind, id, first: at, last: at, row };
  return `id: 00-${sequence}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** A server that answers each request with the next of these texts, and then with nothing more. */
function server(answers: string[]): { client: Client; asked: string[] } {
  const asked: string[] = [];
  const send = (input: RequestInfo | URL): Promise<Response> => {
    asked.push(String(input));
    const text = answers.shift();
    if (text === undefined) return new Promise(() => undefined);
    return Promise.resolve(new Response(text, { status: 200 }));
  };
  const credentials = { token: () => undefined, refused: () => undefined };
  return { client: new Client(credentials, "http://page/", send as typeof fetch), asked };
}

function marking(): Marking {
  const nothing = (): void => undefined;
  const stage = { changed: { emit: nothing }, redraw: nothing, channels: { all: [] } };
  return new Marking(stage as unknown as Stage);
}

const drawn = (marks: Marks | undefined): readonly (string | undefined)[] => (marks?.all ?? []).map((mark) => mark.id);

afterEach(() => vi.useRealTimers());

test("matches come in order of time, are taken back, and a cut brings none twice", async () => {
  vi.useFakeTimers();
  const { client, asked } = server([
    told("match", 1, "b", 20) + told("match", 2, "a", 10) + told("match", 3, "c", 30),
    told("retraction", 4, "b", 20, null) + told("match", 5, "d", 15),
  ]);
  const marks = marking();
  const watching = new Watching(client, marks);
  watching.follow(WATCH);
  await vi.advanceTimersByTimeAsync(500);
  expect(drawn(marks.marks)).toEqual(["a", "b", "c"]);
  expect(marks.marks?.title).toBe("too hot");
  expect(marks.marks?.all[0]).toMatchObject({ tags: [["id", "a"]], text: "id a, n 3" });
  await vi.advanceTimersByTimeAsync(2_000);
  expect(drawn(marks.marks)).toEqual(["a", "d", "c"]);
  expect(watching.takenBack).toBe(1);
  expect(asked.slice(0, 2).map((url) => new URL(url).searchParams.get("after"))).toEqual(["0", "00-3"]);
  expect(asked[0]).toContain("/api/v1/watches/too%20hot/events");
  watching.stop();
  expect(marks.marks).toBeUndefined();
});

test("other marks stay, and the watch's come back when they are asked for", async () => {
  vi.useFakeTimers();
  const { client } = server([told("match", 1, "a", 10), told("match", 2, "b", 20)]);
  const marks = marking();
  const watching = new Watching(client, marks);
  watching.follow(WATCH);
  await vi.advanceTimersByTimeAsync(100);
  const other = { title: "found", all: [{ from: 1n, to: 1n, stream: undefined, tags: [], text: "" }], more: false };
  marks.set(other);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(marks.marks?.title).toBe("found");
  expect([watching.isDrawn, watching.matches.length]).toEqual([false, 2]);
  watching.draw();
  expect(drawn(marks.marks)).toEqual(["a", "b"]);
  marks.set(other);
  watching.stop();
  expect(marks.marks?.title).toBe("found");
});

test("another life of a watch begins anew, lost events are counted, and what is held is bounded", async () => {
  vi.useFakeTimers();
  const many = Array.from({ length: MATCHES_MAX + 5 }, (_, k) => told("match", k + 1, `m${k}`, k)).join("");
  const { client } = server([
    told("match", 1, "old", 10) + `event: gap\ndata: {"missed":null}\n\n`,
    `event: gap\ndata: {"missed":7}\n\n` + many,
  ]);
  const marks = marking();
  const watching = new Watching(client, marks);
  watching.follow({ ...WATCH, sequence: 5_000 });
  expect(watching.hasMore).toBe(true);
  await vi.advanceTimersByTimeAsync(200);
  expect(watching.matches).toEqual([]);
  await vi.advanceTimersByTimeAsync(2_000);
  expect([watching.missed, watching.matches.length]).toEqual([7, MATCHES_MAX]);
  expect(watching.matches[0]?.id).toBe("m5");
  watching.stop();
});

test("a watch that may not be seen is told, and not asked for again", async () => {
  vi.useFakeTimers();
  const asked: string[] = [];
  const send = (input: RequestInfo | URL): Promise<Response> => {
    asked.push(String(input));
    return Promise.resolve(new Response(`{"code":"E_NOT_FOUND","message":"there is no watch"}`, { status: 404 }));
  };
  const credentials = { token: () => undefined, refused: () => undefined };
  const watching = new Watching(new Client(credentials, "http://page/", send as typeof fetch), marking());
  watching.follow(WATCH);
  await vi.advanceTimersByTimeAsync(60_000);
  expect([asked.length, watching.error?.code]).toEqual([1, "E_NOT_FOUND"]);
  watching.stop();
});
