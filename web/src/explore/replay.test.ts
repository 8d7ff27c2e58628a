import { describe, expect, test } from "vitest";
import { Client } from "../api/client";
import { readRow } from "../api/replay";
import { Replay } from "./replay";

const SECOND = 1_000_000_000n;
const tick = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

/** A server that sends what a test gives it. */
function setup(streams = ["pump,id=a"]): {
  replay: Replay;
  clock: { ms: number };
  asked: URLSearchParams[];
  send: (request: number, rows: readonly (readonly [at: bigint, stream: string, value: number])[]) => Promise<void>;
  end: (request: number) => Promise<void>;
} {
  const clock = { ms: 0 };
  const asked: URLSearchParams[] = [];
  const bodies: ReadableStreamDefaultController<Uint8Array>[] = [];
  const fetched = (url: string | URL | Request): Promise<Response> => {
    asked.push(new URL(String(url)).searchParams);
    const body = new ReadableStream<Uint8Array>({ start: (control) => void bodies.push(control) });
    return Promise.resolve(new Response(body));
  };
  const credentials = { token: () => undefined, refused: () => undefined };
  const client = new Client(credentials, "http://x/", fetched as typeof fetch);
  const channels = streams.map((stream) => ({ stream, field: "v" }));
  const replay = new Replay(
    client,
    () => channels,
    () => undefined,
    () => clock.ms,
  );
  return {
    replay,
    clock,
    asked,
    send: async (request, rows) => {
      const lines = rows.map(
        ([at, stream, v]) => `${JSON.stringify({ time: String(at * SECOND), stream, fields: { v } })}\n`,
      );
      bodies[request]?.enqueue(new TextEncoder().encode(lines.join("")));
      await tick();
    },
    end: async (request) => {
      bodies[request]?.close();
      await tick();
    },
  };
}

const A = "pump,id=a";

describe("a replay", () => {
  test("goes on by the clock from the first row, shows rows as it passes them, and ends", async () => {
    const { replay, clock, asked, send, end } = setup();
    replay.open({ from: 100n * SECOND, to: 200n * SECOND });
    replay.speed = 10;
    replay.play();
    await tick();
    expect(Object.fromEntries(asked[0] ?? [])).toEqual({
      table: "pump",
      tag: "id=a",
      from: String(100n * SECOND),
      to: String(200n * SECOND),
      fields: "v",
      speed: "10",
    });
    clock.ms = 1_000;
    expect(replay.at).toBe(100n * SECOND);
    await send(0, [
      [105n, A, 1],
      [110n, A, 2],
      [110n, "pump,id=z", 9],
    ]);
    expect(replay.rows).toBe(0);
    clock.ms = 1_500;
    replay.advance();
    expect(replay.at).toBe(105n * SECOND);
    expect(replay.values.get(`${A}.v`)?.value).toBe(1);
    clock.ms = 2_100;
    replay.advance();
    expect(replay.values.get(`${A}.v`)?.value).toBe(2);
    // Rows of other streams are left out.
    expect(replay.rows).toBe(2);
    await end(0);
    expect(replay.isPlaying).toBe(false);
    expect(replay.at).toBe(200n * SECOND);
  });

  test("goes on behind the last row after a pause, at another speed, and begins anew where it is put", async () => {
    const { replay, clock, asked, send } = setup();
    replay.open({ from: 0n, to: 100n * SECOND });
    replay.setSpeed(1);
    replay.play();
    await tick();
    await send(0, [[0n, A, 1]]);
    clock.ms = 3_000;
    replay.advance();
    replay.pause();
    clock.ms = 60_000;
    expect(replay.at).toBe(3n * SECOND);
    replay.setSpeed(60);
    replay.play();
    await tick();
    expect(asked[1]?.get("after")).toBe("0/1/pump,id=a");
    expect(asked[1]?.get("speed")).toBe("60");
    // The playhead is ahead by the clock: what has not come yet is not left out.
    expect(asked[1]?.get("from")).toBe("0");
    replay.seek(50n * SECOND);
    await tick();
    expect(replay.isPlaying).toBe(true);
    expect(asked[2]?.get("after")).toBeNull();
    expect(asked[2]?.get("from")).toBe(String(50n * SECOND));
    expect(replay.values.size).toBe(0);
    replay.seek(500n * SECOND);
    expect(replay.at).toBe(100n * SECOND);
    expect(replay.isPlaying).toBe(false);
    replay.close();
    expect(replay.range).toBeUndefined();
  });

  test("does not wait where there is nothing for long, and keeps tables in step", async () => {
    const { replay, clock, asked, send } = setup(["pump,id=a", "room"]);
    replay.open({ from: 0n, to: 100_000n * SECOND });
    replay.setSpeed(1);
    replay.play();
    await tick();
    expect(asked.map((each) => each.get("table"))).toEqual(["pump", "room"]);
    await send(0, [[1_000n, A, 1]]);
    await send(1, [[5_000n, "room", 2]]);
    // Both lie far ahead: the playhead jumps to a moment before the first of them.
    replay.advance();
    expect(replay.at).toBe(999n * SECOND);
    await tick();
    expect(asked.map((each) => each.get("table"))).toEqual(["pump", "room", "pump"]);
    await send(2, [[1_000n, A, 1]]);
    clock.ms = 1_100;
    replay.advance();
    expect(replay.values.get(`${A}.v`)?.value).toBe(1);
    expect(replay.values.get("room.v")).toBeUndefined();
    replay.close();
  });

  test("as fast as can be is where the rows are, and says why it broke off", async () => {
    const { replay, asked, send } = setup();
    replay.open({ from: 0n, to: 100n * SECOND });
    replay.setSpeed("max");
    replay.play();
    await tick();
    expect(asked[0]?.get("speed")).toBeNull();
    await send(0, [
      [10n, A, 1],
      [70n, A, 2],
    ]);
    expect(replay.at).toBe(70n * SECOND);
    expect(replay.rows).toBe(2);
    expect(readRow('{"error":{"code":"E_CORRUPT","message":"damaged"}}')).toMatchObject({ message: "damaged" });
    expect(readRow("{")).toMatchObject({ code: "FORMAT" });
    expect(readRow('{"time":"5","stream":"s","row":2,"fields":{}}')).toMatchObject({ cursor: "5/2/s" });
    replay.close();
  });
});
