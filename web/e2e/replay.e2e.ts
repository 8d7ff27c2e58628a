/** What happened is played again, values are found, and matches are marked: made-up data, and the real server. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { nowInstant } from "../src/lib/time";
import { counters, launch, open, settled, shoot } from "./browser";
import { Headwater } from "./headwater";
import { hasNoOverflow, state } from "./look";
import { serveMock } from "./mockpage";

const NORTH = "weather,site=north.temperature";
const HARBOUR = "weather,site=harbour.temperature";
const HOUR = 3_600_000_000_000n;

let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});

afterAll(async () => {
  await browser?.close();
  await Headwater.removeAll();
});

const rowsPlayed = async (page: Page): Promise<number> =>
  Number((await page.locator(".transport-rows").textContent())?.replace(/\D/g, ""));
const seek = (page: Page): ReturnType<Page["getByRole"]> =>
  page.getByRole("slider", { name: "Position of the replay" });

describe("before made-up data", () => {
  let site: Awaited<ReturnType<typeof serveMock>>;

  beforeAll(async () => {
    site = await serveMock();
  });

  afterAll(async () => {
    await site.stop();
  });

  const view = (channels: readonly string[], rest = ""): string =>
    `${site.url}#/view?${channels.map((channel) => `c=${encodeURIComponent(channel)}`).join("&")}${rest}`;

  test("a replay is played, paused, moved and made faster, by keyboard too", async () => {
    const to = nowInstant() - (nowInstant() % HOUR);
    const running = "motor,id=m1,hall=3.running";
    const { page, problems, close } = await open(browser, view([running], `&from=${to - HOUR}&to=${to}`));
    await settled(page);
    await page.keyboard.press("r");
    const bar = page.getByRole("group", { name: "Replay" });
    await bar.waitFor();
    await expect.poll(() => page.locator(".future").count()).toBe(1);
    await expect.poll(() => rowsPlayed(page)).toBe(0);
    await page.keyboard.press(" ");
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await expect.poll(() => rowsPlayed(page), { timeout: 5_000 }).toBeGreaterThan(5);
    await expect.poll(() => page.locator(".reading").first().textContent()).toMatch(/^[01]$/);
    await page.keyboard.press(" ");
    await page.getByRole("button", { name: "Play", exact: true }).waitFor();
    const paused = await rowsPlayed(page);
    await page.waitForTimeout(300);
    expect(await rowsPlayed(page)).toBe(paused);
    // Faster, it goes on from where it was.
    await page.getByRole("radio", { name: "60×" }).click();
    await page.getByRole("button", { name: "Play", exact: true }).click();
    await expect.poll(() => rowsPlayed(page), { timeout: 5_000 }).toBeGreaterThan(paused + 60);
    await shoot(page, "replay");
    // Moved, it goes on from there.
    await page.getByRole("button", { name: "Pause" }).click();
    await seek(page).focus();
    await page.keyboard.press("End");
    await expect.poll(() => seek(page).inputValue()).toBe("1000");
    await page.keyboard.press("Home");
    await expect.poll(() => rowsPlayed(page)).toBe(0);
    await page.getByRole("radio", { name: "max" }).click();
    await page.getByRole("button", { name: "Play", exact: true }).click();
    await page.waitForFunction(() => document.querySelector<HTMLInputElement>(".transport-seek")?.value === "1000");
    await expect.poll(() => rowsPlayed(page)).toBeGreaterThanOrEqual(3_600);
    await page.getByRole("button", { name: "End the replay" }).click();
    await bar.waitFor({ state: "detached" });
    await expect.poll(() => page.locator(".future").count()).toBe(0);
    expect((await counters(page)).explorer.blankFrames).toBe(0);
    expect(problems).toEqual([]);
    await close();
  });

  test("a value is found, gone to, and shown where its stream is not; marks are gone through by keys", async () => {
    const { page, problems, close } = await open(browser, view([NORTH]));
    await settled(page);
    await page.getByRole("button", { name: "Find values" }).click();
    const form = page.getByRole("form", { name: "Find rows by their values" });
    await form.getByLabel("Comparison").selectOption(">");
    await form.getByLabel("Value", { exact: true }).fill("warm");
    await page.keyboard.press("Enter");
    await form.getByText("`warm` is not a value").waitFor();
    await form.getByLabel("Value", { exact: true }).fill("31");
    await form.getByLabel("In all streams of weather").check();
    await form.getByRole("button", { name: "Find", exact: true }).click();
    const bar = page.getByRole("group", { name: "Marks" });
    await bar.waitFor();
    await expect.poll(() => bar.locator(".mark-title").textContent()).toBe("temperature > 31");
    await settled(page);
    await expect.poll(() => page.locator(".mark-text").textContent()).toMatch(/weather,site=harbour temperature 3\d/);
    await bar.getByRole("button", { name: "Show this stream" }).click();
    await settled(page);
    expect(state(page).channels).toEqual([NORTH, HARBOUR]);
    // The hit is in the middle, under the cursor.
    await expect.poll(() => page.locator(".mark-count").textContent()).toMatch(/^\d+ of /);
    const before = state(page).view;
    await page.keyboard.press("n");
    await settled(page);
    expect(state(page).view).not.toEqual(before);
    await page.keyboard.press("p");
    await settled(page);
    expect(state(page).view).toEqual(before);
    await shoot(page, "find");
    await bar.getByRole("button", { name: "Remove the marks" }).click();
    await bar.waitFor({ state: "detached" });
    expect(problems.filter((problem) => !problem.includes("status of 400"))).toEqual([]);
    await close();
  });

  test("matches of a pattern are marked on the plots of their streams", async () => {
    const { page, problems, close } = await open(browser, view([NORTH, HARBOUR]));
    await settled(page);
    await page.getByRole("link", { name: "SQL" }).click();
    await page.locator(".sql-area").fill("SELECT * FROM weather MATCH_RECOGNIZE (…)");
    await page.keyboard.press("Control+Enter");
    await page.getByRole("button", { name: "Mark on plots" }).click();
    const bar = page.getByRole("group", { name: "Marks" });
    await bar.waitFor();
    await expect.poll(() => bar.locator(".mark-title").textContent()).toBe("Matches");
    await expect.poll(() => bar.locator(".mark-count").textContent()).toContain("of 12");
    await settled(page);
    expect(state(page).channels).toEqual([NORTH, HARBOUR]);
    await shoot(page, "matches");
    expect(problems).toEqual([]);
    await close();
  });

  test("everything is in reach at 360 pixels, in the dark", async () => {
    const { page, close } = await open(browser, view([NORTH]), {
      viewport: { width: 360, height: 640 },
      colorScheme: "dark",
    });
    await settled(page);
    await page.getByRole("button", { name: "Replay" }).click();
    await page.getByRole("group", { name: "Replay" }).waitFor();
    expect(await hasNoOverflow(page)).toBe(true);
    await shoot(page, "replay-phone-dark");
    await page.getByRole("button", { name: "Find values" }).click();
    await page.getByRole("form", { name: "Find rows by their values" }).waitFor();
    expect(await hasNoOverflow(page)).toBe(true);
    await shoot(page, "find-phone-dark");
    await close();
  });
});

describe("on the real server", () => {
  let server: Headwater;
  const from = nowInstant() - HOUR - (nowInstant() % 1_000_000_000n);
  const pump = "pump,site=4\\ b.flow";

  beforeAll(async () => {
    server = new Headwater();
    const second = (k: number): bigint => from + BigInt(k) * 1_000_000_000n;
    server.import([
      ...Array.from(
        { length: 3_600 },
        (_, k) => `pump,site=4\\ b flow=${k % 60},code=${k}i,state="s${k % 9}" ${second(k)}`,
      ),
      ...Array.from({ length: 3_600 }, (_, k) => `pump,site=5 flow=${k % 50},code=${100_000 + k}i ${second(k)}`),
    ]);
    await server.start();
  }, 60_000);

  const view = (channels: readonly string[]): string => {
    const names = channels.map((channel) => `c=${encodeURIComponent(channel)}`).join("&");
    return `${server.url}#/view?${names}&from=${from}&to=${from + HOUR}`;
  };

  test("rows are played at their pace, and every one of the chosen streams is", async () => {
    const { page, problems, close } = await open(browser, view([pump]));
    await settled(page);
    await page.getByRole("button", { name: "Replay" }).click();
    await page.getByRole("radio", { name: "60×" }).click();
    await page.getByRole("button", { name: "Play", exact: true }).click();
    await expect.poll(() => rowsPlayed(page), { timeout: 5_000 }).toBeGreaterThan(30);
    const [one, begun] = [await rowsPlayed(page), Date.now()];
    await page.waitForTimeout(2_000);
    const two = await rowsPlayed(page);
    // A busy machine may be late, and never ahead: a second is a minute of rows.
    expect(two).toBeGreaterThan(one);
    expect(two - one).toBeLessThan(((Date.now() - begun) / 1e3 + 2) * 60);
    await page.getByRole("radio", { name: "max" }).click();
    await page.waitForFunction(() => document.querySelector<HTMLInputElement>(".transport-seek")?.value === "1000");
    // None came twice and none was left out, whatever the speeds were.
    await expect.poll(() => rowsPlayed(page)).toBe(3_600);
    await expect.poll(() => page.locator(".reading").first().textContent()).toBe("59");
    await shoot(page, "server-replay");
    expect(problems).toEqual([]);
    await close();
  });

  test("a value in an index is found in whatever stream it is", async () => {
    const { page, problems, close } = await open(browser, view([pump]));
    await settled(page);
    await fetch(new URL("api/v1/sql", server.url), { method: "POST", body: "CREATE INDEX ON pump (code)" });
    await page.getByRole("button", { name: "Find values" }).click();
    const form = page.getByRole("form", { name: "Find rows by their values" });
    await form.getByLabel("Field").selectOption("code");
    await form.getByLabel("Value", { exact: true }).fill("101234");
    await page.keyboard.press("Enter");
    await form.getByText("No matches.").waitFor();
    await form.getByLabel("In all streams of pump").check();
    await form.getByRole("button", { name: "Find", exact: true }).click();
    await page.locator(".mark-text").getByText("pump,site=5 code 101234").waitFor();
    await page.getByRole("button", { name: "Show this stream" }).click();
    await settled(page);
    expect(state(page).channels).toEqual([pump, "pump,site=5.code"]);
    const middle = state(page).view;
    const at = middle ? (middle.from + middle.to) / 2n : 0n;
    expect(Math.abs(Number(at - (from + 1_234_000_000_000n)))).toBeLessThan(1e7);
    expect(problems).toEqual([]);
    await close();
  });

  test("matches of a statement are marked where they are", async () => {
    const { page, problems, close } = await open(browser, view([pump]));
    await settled(page);
    await page.getByRole("link", { name: "SQL" }).click();
    const sql =
      "SELECT * FROM pump MATCH_RECOGNIZE (PARTITION BY site ORDER BY time " +
      "MEASURES FIRST(time) AS begin, LAST(time) AS finish PATTERN (HIGH{5,}) DEFINE HIGH AS flow >= 55)";
    await page.locator(".sql-area").fill(sql);
    await page.keyboard.press("Control+Enter");
    await page.getByRole("button", { name: "Mark on plots" }).click();
    const bar = page.getByRole("group", { name: "Marks" });
    await bar.waitFor();
    await expect.poll(() => bar.locator(".mark-count").textContent()).toMatch(/ of 60$/);
    await settled(page);
    await expect.poll(() => page.locator(".mark-text").textContent()).toContain("site 4 b");
    await shoot(page, "server-matches");
    expect(problems).toEqual([]);
    await close();
  });
});
