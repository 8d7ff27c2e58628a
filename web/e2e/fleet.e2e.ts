/** Edges, nodes, what is here of streams and what cannot be reached: before made-up data, and on a real cloud with an edge. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { nowInstant } from "../src/lib/time";
import { launch, open, settled, shoot } from "./browser";
import { Headwater } from "./headwater";
import { drawnColumns, hasNoOverflow, seconds } from "./look";
import { serveMock } from "./mockpage";

let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
  await Headwater.removeAll();
});

describe("before made-up data", () => {
  let site: Awaited<ReturnType<typeof serveMock>>;

  beforeAll(async () => {
    site = await serveMock({ fleet: "cloud" });
  });

  afterAll(async () => {
    await site.stop();
  });

  const SOUTH = "press,line=L0,machine=press-0000";
  const NORTH = "press,line=L1,machine=press-0001";

  test("the map says what is here and why, by keyboard and by pointer, and since when an edge is away", async () => {
    const { page, problems, close } = await open(browser, `${site.url}#/fleet`);
    const field = page.getByLabel("Stream", { exact: true });
    await field.fill("press-0000");
    // Enter finds nothing before the streams are there.
    await expect
      .poll(async () => {
        await field.press("Enter");
        return field.inputValue();
      })
      .toBe(SOUTH);
    const map = page.getByRole("application");
    await map.locator(".cell.away").first().waitFor();
    await expect.poll(() => map.locator(".lane").count()).toBe(9);
    await expect.poll(() => map.locator(".cell.away").count()).toBeGreaterThan(5);
    await expect.poll(() => map.locator(".cell.elsewhere").count()).toBe(0);
    const said = page.locator(".presence-said");
    await map.focus();
    await page.keyboard.press("ArrowDown");
    // The cursor begins with the rows, at the bottom.
    await expect
      .poll(() => said.textContent())
      .toMatch(/^Rows, .*not here: south has not been reachable since .* \(42 min\)$/);
    for (let k = 0; k < 3; k++) await page.keyboard.press("ArrowRight");
    await expect.poll(() => said.textContent()).toMatch(/^Rows, .*: here$/);
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("End");
    await expect.poll(() => said.textContent()).toMatch(/^Buckets of 4 s, /);
    const box = await map.locator(".lane-track").first().boundingBox();
    if (!box) throw new Error("no map");
    await page.mouse.move(box.x + box.width / 2, box.y + 5);
    await expect.poll(() => said.textContent()).toMatch(/^Buckets of 18\.2 h, .*: here$/);
    await expect
      .poll(() => page.locator(".presence-why").textContent())
      .toContain("buckets from 1.14 h on are subscribed");
    await shoot(page, "fleet-map");
    // The budget stands beside the edges.
    await expect.poll(() => page.locator("main").innerText()).toContain("85.8 MiB of 9.31 GiB a month");
    expect(problems).toEqual([]);
    await close();
  });

  test("it fits a phone, and the dark", async () => {
    const { page, close } = await open(browser, `${site.url}#/fleet`, {
      viewport: { width: 360, height: 700 },
      colorScheme: "dark",
    });
    await page.getByRole("application").waitFor();
    expect(await hasNoOverflow(page)).toBe(true);
    await page.getByRole("application").scrollIntoViewIfNeeded();
    await shoot(page, "fleet-phone-dark");
    await close();
  });

  test("plots show what is here at once, get the rest from an edge, and mark what cannot be reached", async () => {
    const to = nowInstant() - 60_000_000_000n;
    const rest = `&from=${to - 3_600_000_000_000n}&to=${to}`;
    const { page, close } = await open(browser, `${site.url}#/view?c=${NORTH}.load&c=${SOUTH}.load${rest}`);
    const note = page.locator(".away-note.error");
    await note.waitFor();
    await expect
      .poll(() => note.textContent())
      .toMatch(/^Hatched: no finer values here\. south has not been reachable since .* \(42 min\)\.$/);
    await settled(page);
    // The reachable one is drawn as ever, and nothing is said of it.
    expect((await drawnColumns(page, 0)).drawn).toBeGreaterThan(300);
    await expect.poll(() => page.locator(".plot").nth(0).locator(".away-note").count()).toBe(0);
    await expect.poll(() => page.locator(".plot").nth(1).locator(".away-note").count()).toBe(1);
    await expect.poll(() => page.locator(".trouble").count()).toBe(0);
    // Of the other one the overview is drawn that is here, level by level until there is one.
    await expect.poll(async () => (await drawnColumns(page, 1)).drawn, { timeout: 10_000 }).toBeGreaterThan(300);
    await expect.poll(() => page.locator(".nothing").count()).toBe(0);
    await shoot(page, "plots-away");
    // Further out the overview is here.
    for (let k = 0; seconds(page) < 40 * 86_400 && k < 40; k++) {
      await page.keyboard.press("s");
      await page.waitForTimeout(40);
    }
    await settled(page);
    await note.waitFor({ state: "detached" });
    expect((await drawnColumns(page, 1)).drawn).toBeGreaterThan(300);
    await close();
  });

  test("a dispatcher's page lists its nodes", async () => {
    const desk = await serveMock({ fleet: "dispatcher" });
    const { page, problems, close } = await open(browser, `${desk.url}#/fleet`);
    await page.getByRole("heading", { name: "Nodes" }).waitFor();
    const text = await page.locator("main").innerText();
    expect(text).toContain("1 of 2 answer");
    expect(text).toContain("https://a.example");
    expect(text).toContain("connection refused");
    await page.getByRole("application").waitFor();
    await shoot(page, "fleet-dispatcher");
    expect(problems).toEqual([]);
    await close();
    await desk.stop();
  });
});

test("a real cloud with summaries of an edge shows the overview, fetches rows, and says when the edge is away", async () => {
  const cloud = new Headwater();
  const url = await cloud.start("--role", "cloud");
  const asked = await fetch(new URL("api/v1/sync", url), {
    method: "POST",
    body: JSON.stringify({ op: "add_edge", edge: "pump-7", url, want: { summaries: 8 } }),
  });
  const { invitation } = (await asked.json()) as { invitation: string };
  const edge = new Headwater();
  const end = nowInstant() - 60_000_000_000n;
  // Noise, so that rows take some room: what is fetched at once is then a part of them.
  const noise = (k: number): number => Math.abs((Math.sin(k * 12.9898) * 43_758.5453) % 1);
  const lines = Array.from(
    { length: 20_000 },
    (_, k) =>
      `pump,id=a flow=${(10 + 4 * Math.sin(k / 900) + noise(k)).toFixed(9)} ${end - BigInt(20_000 - k) * 1_000_000_000n}`,
  );
  edge.import(lines);
  edge.run(["join", invitation, "--db", edge.db]);
  await edge.start("--role", "edge");
  const channel = "pump,id=a.flow";
  await expect
    .poll(async () => JSON.stringify(await (await fetch(new URL("api/v1/sync", url))).json()), { timeout: 30_000 })
    .toContain('"state":"current"');

  const fleet = await open(browser, `${url}#/fleet`);
  const map = fleet.page.getByRole("application");
  await map.waitFor();
  await map.locator(".cell.here").first().waitFor();
  await map.locator(".cell.elsewhere").first().waitFor();
  await expect
    .poll(() => fleet.page.locator(".presence-why").textContent())
    .toContain("pump-7 has it and is connected");
  await shoot(fleet.page, "server-fleet-map");
  expect(fleet.problems).toEqual([]);

  // Ten minutes of it: rows, which the edge sends.
  const near = (from: bigint): string =>
    `${url}#/view?c=${encodeURIComponent(channel)}&from=${from}&to=${from + 600_000_000_000n}`;
  const first = await open(browser, near(end - 15_000_000_000_000n));
  await settled(first.page);
  await expect.poll(async () => (await drawnColumns(first.page)).drawn, { timeout: 15_000 }).toBeGreaterThan(600);
  await first.page.locator(".away-note").waitFor({ state: "detached" });
  await first.close();

  await edge.stop();
  await map.locator(".cell.away").first().waitFor({ timeout: 30_000 });
  // Which rows came along with the others depends on how they lie: the map tells which did not.
  const presence = new URL(`api/v1/presence?stream=${encodeURIComponent("pump,id=a")}&bins=33&level=rows`, url);
  const told = (await (await fetch(presence)).json()) as { from: string; every: string; lines: { cells: string }[] };
  const away = told.lines[0]?.cells.lastIndexOf("e") ?? -1;
  expect(away).toBeGreaterThanOrEqual(0);
  const second = await open(browser, near(BigInt(told.from) + BigInt(away) * BigInt(told.every)));
  const note = second.page.locator(".away-note");
  await note.waitFor();
  await expect.poll(() => note.textContent()).toMatch(/pump-7 has not been reachable since \d{4}-/);
  await shoot(second.page, "server-away");
  await second.close();
  await fleet.close();
  await cloud.remove();
  await edge.remove();
}, 120_000);

test("a dispatcher's page draws streams of the edges of two clouds, and goes on when one cloud has ended", async () => {
  const end = nowInstant() - 60_000_000_000n;
  const clouds: Headwater[] = [];
  const edges: Headwater[] = [];
  for (const name of ["north", "south"]) {
    const cloud = new Headwater();
    const url = await cloud.start("--role", "cloud");
    const asked = await fetch(new URL("api/v1/sync", url), {
      method: "POST",
      body: JSON.stringify({ op: "add_edge", edge: name, url }),
    });
    const { invitation } = (await asked.json()) as { invitation: string };
    const edge = new Headwater();
    edge.import(
      Array.from(
        { length: 20_000 },
        (_, k) =>
          `pump,id=${name} flow=${(10 + 4 * Math.sin(k / 900)).toFixed(6)} ${end - BigInt(20_000 - k) * 1_000_000_000n}`,
      ),
    );
    edge.run(["join", invitation, "--db", edge.db]);
    await edge.start("--role", "edge");
    await expect
      .poll(async () => JSON.stringify(await (await fetch(new URL("api/v1/sync", url))).json()), { timeout: 60_000 })
      .toContain('"state":"current"');
    clouds.push(cloud);
    edges.push(edge);
  }
  const desk = new Headwater();
  const url = await desk.start("--role", "dispatcher", "--dispatch-nodes", clouds.map((c) => c.url).join(","));
  const streams = new URL("api/v1/streams?table=pump", url);
  await expect
    .poll(async () => await (await fetch(streams)).text(), { timeout: 60_000 })
    .toMatch(/pump,id=north[^]*pump,id=south/);
  const plots = ["north", "south"].map((name) => `c=${encodeURIComponent(`pump,id=${name}.flow`)}`).join("&");
  const view = `${url}#/view?${plots}&from=${end - 18_000_000_000_000n}&to=${end}`;
  const both = await open(browser, view);
  await settled(both.page);
  for (const plot of [0, 1]) {
    await expect
      .poll(async () => (await drawnColumns(both.page, plot)).drawn, { timeout: 30_000 })
      .toBeGreaterThan(300);
  }
  expect(both.problems).toEqual([]);
  await shoot(both.page, "server-dispatcher-two-clouds");
  await both.close();

  // Of the other cloud everything is drawn as before.
  await clouds[1]?.stop();
  const one = await open(browser, view);
  await settled(one.page);
  await expect.poll(async () => (await drawnColumns(one.page, 0)).drawn, { timeout: 30_000 }).toBeGreaterThan(300);
  await shoot(one.page, "server-dispatcher-one-cloud");
  await one.close();
  for (const each of [desk, ...clouds, ...edges]) await each.remove();
}, 180_000);
