import { describe, expect, test, vi } from "vitest";
import { CHANNEL, put, signal, tileOf } from "../../dev/fixtures";
import type { Outcome } from "../api/client";
import { keyOf, tilesOf, type Address } from "./level";
import { AHEAD_LIMIT, AWAY_MS, LIMIT, Loader, type TileAnswer } from "./loader";
import { plan, PREFETCH, type PlanInput, type Want } from "./plan";
import { TileStore } from "./tiles";
import { SECOND } from "./time";
import { zoomed } from "./view";

const start = 1_700_000_000n * SECOND;
const source = signal({ first: start, last: start + 100_000n * SECOND, interval: SECOND });

interface Asked {
  readonly address: Address;
  readonly channels: readonly string[];
  readonly signal: AbortSignal;
  readonly fetches: boolean;
  readonly answer: (outcome: Outcome<TileAnswer[]>) => void;
}

function setup(): { store: TileStore; loader: Loader; asked: Asked[]; clock: { ms: number } } {
  const store = new TileStore();
  const asked: Asked[] = [];
  const clock = { ms: 1000 };
  const fetchTiles = (
    channels: readonly string[],
    address: Address,
    control: AbortSignal,
    fetches: boolean,
  ): Promise<Outcome<TileAnswer[]>> =>
    new Promise((answer) => asked.push({ address, channels, signal: control, fetches, answer }));
  const loader = new Loader(
    store,
    fetchTiles,
    () => 0,
    () => undefined,
    () => clock.ms,
  );
  return { store, loader, asked, clock };
}

const want = (level: number, offset: number, rank: number, channels: readonly string[] = [CHANNEL]): Want => ({
  level,
  offset,
  rank,
  channels: new Set(channels),
});
const good = (asked: Asked): Outcome<TileAnswer[]> => ({
  ok: true,
  value: asked.channels.map((channel) => ({ channel, data: tileOf(source, asked.address) })),
});
const flush = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

describe("the loader", () => {
  test("has at most eight requests under way, most urgent first, and goes on as they end", async () => {
    const { loader, asked } = setup();
    loader.want(Array.from({ length: 20 }, (_, k) => want(0, k, k)));
    expect(asked.map((a) => a.address.offset)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    for (let k = 0; k < 20; k++) {
      const next = asked[k];
      if (next) next.answer(good(next));
      await flush();
      expect(loader.status().inFlight).toBeLessThanOrEqual(LIMIT);
    }
    expect(asked).toHaveLength(20);
    expect(loader.counters.inFlightMax).toBe(LIMIT);
    expect(loader.status()).toMatchObject({ inFlight: 0, queued: 0 });
  });

  test("asks for what is not in view yet only when everything in view has come, and for little of it at once", async () => {
    const { loader, asked } = setup();
    const ahead = Array.from({ length: 10 }, (_, k) => want(0, 10 + k, PREFETCH + k));
    loader.want([want(0, 1, 1), want(0, 2, 2), ...ahead]);
    expect(asked.map((a) => a.address.offset)).toEqual([1, 2]);
    for (const each of asked.slice(0, 2)) {
      expect(asked).toHaveLength(2);
      each.answer(good(each));
      await flush();
    }
    expect(asked.slice(2).map((a) => a.address.offset)).toEqual([10, 11, 12]);
    expect(loader.status().inFlight).toBe(AHEAD_LIMIT);
    // What comes into view does not wait for them, and no more of them begin meanwhile.
    loader.want([want(0, 3, 1), want(0, 10, 2), ...ahead.slice(1)]);
    expect(asked.slice(5).map((a) => a.address.offset)).toEqual([3]);
    for (const each of asked.slice(2, 5)) each.answer(good(each));
    await flush();
    expect(asked).toHaveLength(6);
    asked[5]?.answer(good(asked[5]));
    await flush();
    expect(asked.slice(6).map((a) => a.address.offset)).toEqual([13, 14, 15]);
    expect(loader.counters.abandoned).toBe(0);
    loader.stop();
  });

  test("asks for several channels at once, and never twice for one", () => {
    const { loader, asked } = setup();
    loader.want([want(0, 1, 1, ["a.v", "b.v"])]);
    loader.want([want(0, 1, 1, ["a.v", "b.v", "c.v"])]);
    expect(asked.map((a) => a.channels)).toEqual([["a.v", "b.v"], ["c.v"]]);
  });

  test("abandons what nobody wants any more", async () => {
    const { loader, asked, store } = setup();
    loader.want([want(0, 1, 1), want(0, 2, 2)]);
    loader.want([want(0, 2, 1), want(0, 3, 2)]);
    expect(asked.map((a) => a.signal.aborted)).toEqual([true, false, false]);
    expect(loader.counters.abandoned).toBe(1);
    const [first] = asked;
    if (first) first.answer(good(first));
    await flush();
    expect(store.get(CHANNEL, { level: 0, offset: 1 })).toBeUndefined();
  });

  test("tries again later after a failure, five times, and again when told to", async () => {
    vi.useFakeTimers();
    try {
      const { loader, asked, clock } = setup();
      const failing: Outcome<TileAnswer[]> = { ok: false, error: { code: "NETWORK", message: "down", status: 0 } };
      loader.want([want(0, 1, 1)]);
      for (let attempt = 1; attempt <= 5; attempt++) {
        expect(asked).toHaveLength(attempt);
        asked[attempt - 1]?.answer(failing);
        await vi.advanceTimersByTimeAsync(0);
        expect(loader.status().error?.message).toBe("down");
        expect(asked).toHaveLength(attempt);
        clock.ms += 500 * 2 ** (attempt - 1) + 1;
        await vi.advanceTimersByTimeAsync(500 * 2 ** (attempt - 1) + 50);
      }
      expect(asked).toHaveLength(5);
      loader.retry();
      expect(asked).toHaveLength(6);
      asked[5]?.answer(good(asked[5]));
      await vi.advanceTimersByTimeAsync(0);
      expect(loader.status().error).toBeUndefined();
    } finally {
      vi.useRealTimers();
    }
  });

  test("does not repeat a request that the server refuses, until told to", async () => {
    const { loader, asked, clock } = setup();
    loader.want([want(0, 1, 1)]);
    asked[0]?.answer({ ok: false, error: { code: "E_TOKEN", message: "a token is needed", status: 401 } });
    await flush();
    clock.ms += 100_000;
    loader.want([want(0, 1, 1)]);
    expect(asked).toHaveLength(1);
    expect(loader.isWaiting()).toBe(true);
    loader.retry();
    expect(asked).toHaveLength(2);
    if (asked[1]) asked[1].answer(good(asked[1]));
    await flush();
    expect(loader.isWaiting()).toBe(false);
    loader.stop();
  });

  test("does not ask for channels that the server has refused", async () => {
    const { loader, asked } = setup();
    loader.want([want(0, 1, 1, ["a.text"])]);
    asked[0]?.answer({
      ok: true,
      value: [{ channel: "a.text", data: undefined, error: { code: "NOT_NUMERIC", message: "text", status: 200 } }],
    });
    await flush();
    loader.want([want(0, 2, 1, ["a.text"])]);
    expect(asked).toHaveLength(1);
    expect(loader.refused.get("a.text")?.code).toBe("NOT_NUMERIC");
  });

  test("refreshes stale tiles in view, but not without pause", async () => {
    const { loader, asked, store, clock } = setup();
    loader.want([want(0, 1, 1), want(0, 2, PREFETCH)]);
    for (const offset of [1, 2]) {
      const each = asked.find((a) => a.address.offset === offset);
      if (each) each.answer(good(each));
      await flush();
    }
    store.invalidate(CHANNEL);
    loader.want([want(0, 1, 1), want(0, 2, PREFETCH)]);
    expect(asked).toHaveLength(2);
    clock.ms += 1000;
    loader.want([want(0, 1, 1), want(0, 2, PREFETCH)]);
    expect(asked.slice(2).map((a) => a.address.offset)).toEqual([1]);
    loader.stop();
  });
});

describe("the plan", () => {
  const view = { from: start + 50_000n * SECOND, to: start + 51_000n * SECOND };
  const extent = { from: source.first, to: source.last };
  const input: PlanInput = {
    view,
    level: 0,
    channels: [{ channel: CHANNEL, extent }],
    motion: 0,
    zoom: 0,
    next: { view: zoomed(view, 0.4, 0.25), level: -1 },
  };
  const rankOf = (wants: readonly Want[], address: Address): number =>
    wants.find((w) => keyOf(w) === keyOf(address))?.rank ?? Infinity;

  test("wants what is seen first, then what the next step shows, neighbours and parents", () => {
    const wants = plan(new TileStore(), input);
    const seen = tilesOf(0, view);
    expect(wants.slice(0, seen.length).map(keyOf).sort()).toEqual(seen.map(keyOf).sort());
    const first = seen[0]?.offset ?? 0;
    const last = seen[seen.length - 1]?.offset ?? 0;
    for (const offset of [first - 1, last + 1])
      expect(rankOf(wants, { level: 0, offset })).toBeGreaterThanOrEqual(PREFETCH);
    expect(rankOf(wants, { level: 1, offset: Math.floor(first / 2) })).toBeGreaterThanOrEqual(PREFETCH);
    for (const tile of tilesOf(-1, input.next.view)) {
      const rank = rankOf(wants, tile);
      expect(rank).toBeGreaterThanOrEqual(PREFETCH);
      // Before everything else that is not seen yet.
      expect(rank).toBeLessThan(rankOf(wants, { level: 0, offset: first - 1 }));
    }
    expect(wants.length).toBeLessThan(20);
  });

  test("follows the movement", () => {
    const [first, ...rest] = tilesOf(0, view);
    const left = { level: 0, offset: (first?.offset ?? 0) - 1 };
    const right = { level: 0, offset: (rest[rest.length - 1]?.offset ?? first?.offset ?? 0) + 1 };
    const back = plan(new TileStore(), { ...input, motion: -1 });
    expect(rankOf(back, left)).toBeLessThan(rankOf(back, right));
    const out = plan(new TileStore(), { ...input, zoom: 1, next: { view: zoomed(view, 2, 0.5), level: 1 } });
    expect(out.some((w) => w.level === -1)).toBe(false);
    expect(rankOf(out, { level: 1, offset: Math.floor((first?.offset ?? 0) / 2) })).toBeLessThan(rankOf(out, left));
  });

  test("wants nothing where there are no data", () => {
    const beyond = { ...input, view: { from: source.last + 10_000n * SECOND, to: source.last + 11_000n * SECOND } };
    const store = new TileStore();
    for (const tile of plan(store, beyond)) put(store, source, tile);
    const left = plan(store, beyond).filter((w) => !store.get(CHANNEL, w) && w.rank < PREFETCH);
    expect(left).toEqual([]);
  });

  test("gets what is elsewhere for the view only, a coarser one meanwhile, and asks again after a while", async () => {
    const { loader, asked, clock } = setup();
    const away = (one: Asked): Outcome<TileAnswer[]> => ({
      ok: true,
      value: one.channels.map((channel) => ({
        channel,
        data: undefined,
        error: { code: "E_ELSEWHERE", message: "away", status: 503 },
        isAway: true,
      })),
    });
    const [ahead, seen] = [want(0, 5, PREFETCH + 1), want(0, 5, 1)];
    loader.want([ahead]);
    asked[0]?.answer(away(asked[0]));
    await flush();
    loader.want([ahead]);
    expect(asked.map((one) => one.fetches)).toEqual([false]);
    // In view it is got from there, and a coarser one that may be here is looked for meanwhile.
    loader.want([{ ...want(3, 0, 0), isOverview: true }, seen]);
    expect(asked.map((one) => one.fetches)).toEqual([false, false, true]);
    expect(loader.isWaiting()).toBe(true);
    for (const one of asked.slice(1)) one.answer(away(one));
    await flush();
    loader.want([{ ...want(3, 0, 0), isOverview: true }, seen]);
    expect(asked).toHaveLength(3);
    loader.want([seen]);
    // It is no failure, and nobody waits for it.
    expect(loader.failure).toBeUndefined();
    expect(loader.isWaiting()).toBe(false);
    expect(loader.awayAt(CHANNEL, seen)?.isOutOfReach).toBe(true);
    loader.want([seen]);
    expect(asked).toHaveLength(3);
    clock.ms += AWAY_MS;
    loader.want([seen]);
    expect(asked).toHaveLength(4);
    if (asked[3]) asked[3].answer(good(asked[3]));
    await flush();
    expect(loader.awayAt(CHANNEL, seen)).toBeUndefined();
    loader.stop();
  });
});

test("for a tile of the view that is elsewhere the finest that may be here is wanted first", () => {
  const away = new Set<string>();
  const input: PlanInput = {
    view: { from: start, to: start + 100n * SECOND },
    level: 0,
    channels: [{ channel: CHANNEL, extent: undefined }],
    motion: 0,
    zoom: 0,
    next: { view: { from: start, to: start + 50n * SECOND }, level: -1 },
    isAway: (channel, address) => away.has(`${keyOf(address)} ${channel}`),
  };
  const store = new TileStore();
  expect(plan(store, input).some((each) => each.isOverview)).toBe(false);
  const [tile] = tilesOf(0, input.view);
  if (!tile) throw new Error("no tile");
  const up = (levels: number): Address => ({ level: levels, offset: Math.floor(tile.offset / 2 ** levels) });
  for (const levels of [0, 1, 2]) away.add(`${keyOf(up(levels))} ${CHANNEL}`);
  const [first] = plan(store, input);
  expect(first).toMatchObject({ ...up(3), isOverview: true });
});
