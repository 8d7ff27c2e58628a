import { expect, test } from "vitest";
import { readRoute, writeRoute, type ViewState } from "./address";
import { INSTANT_MIN } from "./time";

test("a link holds the whole state, to the nanosecond", () => {
  const state: ViewState = {
    channels: ["weather,site=New\\ York&Co,x=100%2C.temp", "a,b=ü#?.c\\.d"],
    view: { from: 1_700_000_000_123_456_789n, to: 1_700_000_000_123_466_789n },
    rolling: undefined,
    refresh: 30,
    live: true,
    layout: "field",
    locks: new Map([
      ["temp", [-1.5, 2e-9]],
      ["a,b=ü#?.c\\.d", [0, 1]],
    ]),
    heights: new Map([["temp", 240]]),
    past: "mon day & more",
  };
  const address = writeRoute({ page: "view", state });
  expect(readRoute(address)).toEqual({ page: "view", state });
  // As a browser gives it back.
  expect(readRoute(new URL(address, "http://localhost/").hash)).toEqual({ page: "view", state });
});

test("what cannot be read is left out", () => {
  const empty = readRoute("");
  expect(empty).toEqual({
    page: "view",
    state: {
      channels: [],
      view: undefined,
      rolling: undefined,
      refresh: 0,
      live: false,
      layout: "stack",
      locks: new Map(),
      heights: new Map(),
    },
  });
  for (const bad of [
    "#/view?from=5&to=3",
    "#/view?from=a&to=3",
    "#/view?from=1e3&to=3e9",
    `#/view?from=${INSTANT_MIN - 1n}&to=0`,
    "#/view?y=3,1,x&layout=odd",
    "#/view?from=now&to=now-1h",
    "#/view?from=now-1x&to=now",
    "#/view?refresh=1e3&h=5,x&h=9999,x",
    "#/elsewhere",
  ]) {
    expect(readRoute(bad)).toEqual(empty);
  }
  for (const page of ["storage", "sql", "fleet"] as const) {
    expect(readRoute(writeRoute({ page }))).toEqual({ page });
  }
});

test("more channels than fit are cut off, and none comes twice", () => {
  const query = Array.from({ length: 40 }, (_, i) => `c=s.f${i >> 1}`).join("&");
  const route = readRoute(`#/view?${query}`);
  expect(route.page === "view" && route.state.channels).toEqual(Array.from({ length: 16 }, (_, i) => `s.f${i}`));
});

test("a view relative to now stays so, and means another span each time it is read", () => {
  const now = 1_700_000_000_000_000_000n;
  const address = "#/view?c=a.b&from=now-24h&to=now";
  const route = readRoute(address, now);
  if (route.page !== "view") throw new Error("not a view");
  expect(route.state.rolling).toEqual({ from: "now-24h", to: "now" });
  expect(route.state.view).toEqual({ from: now - 86_400_000_000_000n, to: now });
  expect(writeRoute(route)).toBe(address);
  const later = readRoute(address, now + 5n);
  expect(later.page === "view" && later.state.view?.to).toBe(now + 5n);
  // In an address a bare plus is a blank.
  const ahead = readRoute("#/view?from=2023-11-14T00:00:00Z&to=now+1h", now);
  expect(ahead.page === "view" && ahead.state.view?.to).toBe(now + 3_600_000_000_000n);
});
