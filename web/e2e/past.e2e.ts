/** Watches tell their matches, and plots show the past: made-up data, and the real server. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { nowInstant } from "../src/lib/time";
import { launch, open, settled, shoot } from "./browser";
import { Headwater } from "./headwater";
import { hasNoOverflow, state } from "./look";
import { serveMock } from "./mockpage";

const NORTH = "weather,site=north.temperature";
const SECOND = 1_000_000_000n;

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
    site = await serveMock();
  });

  afterAll(async () => {
    await site.stop();
  });

  const view = (rest = ""): string => `${site.url}#/view?c=${encodeURIComponent(NORTH)}${rest}`;

  test("a watch is followed: its matches come, are taken back, and are marked", async () => {
    const { page, problems, close } = await open(browser, view());
    await settled(page);
    await page.getByRole("button", { name: "Watches" }).click();
    const panel = page.getByRole("region", { name: "Watches" });
    await panel.getByText("stopped").waitFor();
    await panel.getByRole("button", { name: /too hot/ }).click();
    const told = panel.getByRole("status", { name: "Events of the watch" });
    // Two of nine are taken back.
    await expect.poll(() => told.textContent(), { timeout: 10_000 }).toMatch(/5 matches, 2 retracted/);
    const bar = page.getByRole("group", { name: "Marks" });
    await expect.poll(() => bar.locator(".mark-title").textContent()).toBe("too hot");
    await expect.poll(() => bar.locator(".mark-count").textContent()).toBe("5");
    const matches = panel.getByRole("list", { name: "Matches" }).getByRole("button");
    expect(await matches.count()).toBe(5);
    await matches.first().click();
    await settled(page);
    await expect.poll(() => bar.locator(".mark-count").textContent()).toBe("5 of 5");
    await expect.poll(() => bar.locator(".mark-text").textContent()).toContain("site north, peak 37");
    await shoot(page, "watch");
    await bar.getByRole("button", { name: "Remove the marks" }).click();
    await bar.waitFor({ state: "detached" });
    await panel.getByRole("button", { name: "Mark on plots" }).click();
    await bar.waitFor();
    // The end of following takes its marks away.
    await page.getByRole("button", { name: "Watches" }).click();
    await panel.waitFor({ state: "detached" });
    await bar.waitFor({ state: "detached" });
    expect(problems).toEqual([]);
    await close();
  });

  test("snapshots are listed, made, looked at, and dropped after a second question", async () => {
    const { page, problems, close } = await open(browser, view());
    await settled(page);
    const menu = page.getByRole("button", { name: "Snapshots" });
    await menu.click();
    const form = page.getByRole("form", { name: "Named snapshots" });
    await form.getByText("sunday ended").waitFor();
    await form.getByLabel("Name").fill("monday");
    await form.getByRole("button", { name: "Create a snapshot" }).click();
    await form.getByText("already exists").waitFor();
    await form.getByLabel("Name").fill("before & after");
    await form.getByRole("button", { name: "Create a snapshot" }).click();
    await shoot(page, "snapshots");
    await form.getByRole("button", { name: "Show before & after" }).click();
    const bar = page.getByRole("group", { name: "Snapshot" });
    await bar.getByText("before & after").waitFor();
    await settled(page);
    await expect.poll(() => state(page).past).toBe("before & after");
    // Following the newest data is of the present.
    await page.keyboard.press("l");
    await bar.waitFor({ state: "detached" });
    await page.keyboard.press("l");
    await menu.click();
    await form.getByRole("button", { name: "Drop before & after" }).click();
    await form.getByRole("button", { name: "Confirm drop" }).click();
    await form.getByText("was dropped").waitFor();
    await expect.poll(() => form.getByRole("button", { name: /^Show / }).count()).toBe(1);
    expect(problems.filter((problem) => !problem.includes("status of 400"))).toEqual([]);
    await close();
  });

  test("a link to a snapshot that is not there says so, and leads back", async () => {
    const { page, close } = await open(browser, view("&as_of=gone"));
    await page.getByText("there is no snapshot `gone`").waitFor();
    await page.getByRole("button", { name: "Back to now" }).click();
    await settled(page);
    await expect.poll(() => page.locator(".trouble").count()).toBe(0);
    await close();
  });

  test("everything is in reach at 360 pixels, in the dark", async () => {
    const { page, close } = await open(browser, view(), {
      viewport: { width: 360, height: 640 },
      colorScheme: "dark",
    });
    await settled(page);
    await page.getByRole("button", { name: "Watches" }).click();
    await page.getByRole("button", { name: /too hot/ }).click();
    await page.getByRole("list", { name: "Matches" }).getByRole("button").first().waitFor();
    expect(await hasNoOverflow(page)).toBe(true);
    await shoot(page, "watch-phone-dark");
    await page.getByRole("button", { name: "Snapshots" }).click();
    await page.getByRole("form", { name: "Named snapshots" }).waitFor();
    expect(await hasNoOverflow(page)).toBe(true);
    await close();
  });
});

describe("on the real server", () => {
  let server: Headwater;
  const from = nowInstant() - 3_600n * SECOND - (nowInstant() % SECOND);
  const at = (k: number): bigint => from + BigInt(k) * SECOND;
  const pump = "pump,site=4\\ b.flow";

  beforeAll(async () => {
    server = new Headwater();
    server.import(Array.from({ length: 600 }, (_, k) => `pump,site=4\\ b flow=${k % 50} ${at(k)}`));
    await server.start();
  }, 60_000);

  const post = async (path: string, body: string, type: string): Promise<void> => {
    const response = await fetch(new URL(path, server.url), {
      method: "POST",
      body,
      headers: { "content-type": type },
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  };
  const view = (): string => `${server.url}#/view?c=${encodeURIComponent(pump)}&from=${from}&to=${at(1_200)}`;

  test("a match of rows that come now is told and marked", async () => {
    const sql =
      "CREATE WATCH high AS SELECT site, top FROM pump MATCH_RECOGNIZE (PARTITION BY site ORDER BY time " +
      "MEASURES max(flow) AS top PATTERN (HIGH LOW) WITHIN INTERVAL '1 minute' " +
      "DEFINE HIGH AS flow > 100, LOW AS flow < 100)";
    await post("api/v1/sql", sql, "application/sql");
    const { page, problems, close } = await open(browser, view());
    await settled(page);
    await page.getByRole("button", { name: "Watches" }).click();
    const panel = page.getByRole("region", { name: "Watches" });
    await panel.getByRole("button", { name: /high/ }).click();
    const told = panel.getByRole("status", { name: "Events of the watch" });
    await expect.poll(() => told.textContent()).toBe("0 matches");
    await server.write([`pump,site=4\\ b flow=123 ${at(700)}`, `pump,site=4\\ b flow=1 ${at(701)}`]);
    await expect.poll(() => told.textContent(), { timeout: 30_000 }).toBe("1 matches");
    const bar = page.getByRole("group", { name: "Marks" });
    await panel.getByRole("list", { name: "Matches" }).getByRole("button").click();
    await expect.poll(() => bar.locator(".mark-text").textContent()).toContain("site 4 b, top 123");
    await shoot(page, "server-watch");
    // A late row takes it back.
    await server.write([`pump,site=4\\ b flow=2 ${at(700)}`]);
    await expect.poll(() => told.textContent(), { timeout: 30_000 }).toBe("0 matches, 1 retracted");
    await bar.waitFor({ state: "detached" });
    expect(problems).toEqual([]);
    await close();
  });

  test("a plot as of a snapshot shows what was there then, and nothing of what came since", async () => {
    const { page, problems, close } = await open(browser, view());
    await settled(page);
    await page.getByRole("button", { name: "Snapshots" }).click();
    const form = page.getByRole("form", { name: "Named snapshots" });
    await form.getByLabel("Name").fill("then");
    await form.getByRole("button", { name: "Create a snapshot" }).click();
    await form.getByRole("button", { name: "Show then" }).waitFor();
    await page.keyboard.press("Escape");
    await server.write(Array.from({ length: 100 }, (_, k) => `pump,site=4\\ b flow=900 ${at(k)}`));
    const tiles: string[] = [];
    page.on("request", (request) => {
      if (request.url().includes("api/v1/tiles")) tiles.push(request.url());
    });
    await page.getByRole("button", { name: "Snapshots" }).click();
    await form.getByRole("button", { name: "Show then" }).click();
    await settled(page);
    await expect.poll(() => tiles.length).toBeGreaterThan(0);
    expect(tiles.every((url) => new URL(url).searchParams.get("snapshot") === "then")).toBe(true);
    await shoot(page, "server-snapshot");
    tiles.length = 0;
    await page.getByRole("button", { name: "Back to now" }).click();
    await settled(page);
    await expect.poll(() => tiles.length).toBeGreaterThan(0);
    expect(tiles.some((url) => new URL(url).searchParams.has("snapshot"))).toBe(false);
    expect(problems).toEqual([]);
    await close();
  });
});
