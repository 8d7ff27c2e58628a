/** The page as the real server gives it, on real tiles: the same moves, links, live values, tokens, and what goes wrong. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LIMIT } from "../src/lib/loader";
import { nowInstant } from "../src/lib/time";
import { counters, launch, open, settled, shoot, type Counters } from "./browser";
import { Headwater, sample, type Sample } from "./headwater";
import { drawnColumns, middle, seconds, state } from "./look";

const NORTH = "weather,site=north.temperature";
const WIND = "weather,site=north.wind";
const PROBE = "probe,id=p1.level";
const TEN_YEARS = 10 * 365 * 86_400;

let browser: Browser;
let server: Headwater;
let data: Sample;

beforeAll(async () => {
  browser = await launch();
  server = new Headwater();
  data = sample(nowInstant());
  server.import(data.lines);
  await server.start();
}, 180_000);

afterAll(async () => {
  await browser?.close();
  await Headwater.removeAll();
});

const view = (channels: readonly string[], rest = ""): string =>
  `${server.url}#/view?${channels.map((channel) => `c=${encodeURIComponent(channel)}`).join("&")}${rest}`;

/** Puts the mouse on an instant of the first plot. */
async function pointAt(page: Page, at: bigint): Promise<void> {
  const box = await page.locator(".chart").first().boundingBox();
  const span = state(page).view;
  if (!box || !span) throw new Error("no plot");
  const fraction = Number(at - span.from) / Number(span.to - span.from);
  await page.mouse.move(box.x + 62 + fraction * (box.width - 62 - 16), box.y + box.height / 2);
}

function tellSteps(how: string, { explorer, loader }: Counters): void {
  const { steps, stepMsSum, stepMsMax } = explorer;
  console.log(
    `${how}, ${steps} steps: until all tiles were there ${(stepMsSum / steps).toFixed(1)} ms on average, ${stepMsMax.toFixed(1)} ms at most; ` +
      `${loader.requests} requests, ${loader.inFlightMax} at once`,
  );
}

test("the first plot comes by itself, soon, with no request to elsewhere", async () => {
  const { page, problems, close } = await open(browser, server.url);
  await settled(page);
  // Of thousands of streams it is one that has much to show.
  expect(state(page).channels[0]).toMatch(/^(weather|probe),/);
  expect((await drawnColumns(page)).drawn).toBeGreaterThan(300);
  const text = await page.locator(".tree-foot").textContent();
  expect(text).toContain("3\u202f004 streams");
  console.log(`first plot ${Math.round((await counters(page)).explorer.firstPlotMs)} ms after the address was entered`);
  expect(problems).toEqual([]);
  await close();
});

test("zooming from ten years to ten milliseconds by wheel keeps the picture whole, and is true at the end", async () => {
  const { page, problems, close } = await open(browser, view([PROBE]));
  await settled(page);
  expect(seconds(page)).toBeGreaterThan(TEN_YEARS);
  await shoot(page, "server-ten-years");
  const target = data.burst + 10_000_500_000n;
  for (let step = 0; seconds(page) > 0.01 && step < 150; step++) {
    // A wheel turns at the pointer, which is exact to a pixel only: it follows the instant.
    await pointAt(page, target);
    const requests = (await counters(page)).loader.requests;
    await page.mouse.wheel(0, -400);
    await settled(page);
    expect(
      (await drawnColumns(page)).drawn,
      `${seconds(page)} s, ${(await counters(page)).loader.requests - requests} requests`,
    ).toBeGreaterThan(0);
  }
  await pointAt(page, target);
  await settled(page);
  await shoot(page, "server-ten-milliseconds");
  expect(seconds(page)).toBeLessThan(0.01);
  const seen = await counters(page);
  expect(seen.explorer.blankFrames).toBe(0);
  expect(seen.loader.inFlightMax).toBeLessThanOrEqual(LIMIT);
  // The nearest event to the target is number 10,000 or 10,001 of the burst.
  const values = [10_000, 10_001].map((k) => (20 + 5 * Math.sin(k / 40) + Math.sin(k * 7.3)).toFixed(3));
  const reading = (await page.locator(".reading").first().textContent()) ?? "";
  expect(values.map(Number)).toContain(Number(reading.replace("−", "-")));
  tellSteps("a step whenever the page is at rest", seen);
  expect(problems).toEqual([]);
  await close();
}, 180_000);

test("zooming by wheel without waiting for anything keeps the picture whole too", async () => {
  const { page, problems, close } = await open(browser, view([NORTH]));
  await settled(page);
  const at = await middle(page);
  await page.mouse.move(at.x, at.y);
  const before = seconds(page);
  for (let step = 0; step < 26; step++) {
    await page.mouse.wheel(0, -400);
    await page.waitForTimeout(200);
  }
  await settled(page);
  // How far depends on how many turns of the wheel a busy browser takes for one.
  expect(seconds(page)).toBeLessThan(before / 2);
  const seen = await counters(page);
  expect(seen.explorer.blankFrames).toBe(0);
  expect(seen.loader.inFlightMax).toBeLessThanOrEqual(LIMIT);
  expect(seen.loader.failed).toBe(0);
  tellSteps("a step every 200 ms", seen);
  expect(problems).toEqual([]);
  await close();
}, 60_000);

test("zooming by keys, fast and back, never shows a blank frame", async () => {
  const { page, problems, close } = await open(browser, view([NORTH, WIND]));
  await settled(page);
  const before = seconds(page);
  for (let k = 0; k < 100 && !(seconds(page) < 0.01); k++) {
    await page.keyboard.press("w");
    await page.waitForTimeout(30);
    if (k % 12 === 11) await settled(page);
  }
  await settled(page);
  expect(seconds(page)).toBeLessThan(0.01);
  expect((await drawnColumns(page)).drawn).toBeGreaterThan(300);
  for (let k = 0; k < 120 && !(seconds(page) >= before); k++) {
    await page.keyboard.press("s");
    await page.waitForTimeout(30);
    if (k % 12 === 11) await settled(page);
  }
  await settled(page);
  const seen = await counters(page);
  expect(seen.explorer.blankFrames).toBe(0);
  expect(seen.loader.inFlightMax).toBeLessThanOrEqual(LIMIT);
  expect(seen.loader.failed).toBe(0);
  expect(problems).toEqual([]);
  await close();
}, 120_000);

test("a gap of two months is a gap, whatever the zoom", async () => {
  const { page, problems, close } = await open(browser, view([NORTH]));
  await settled(page);
  const { drawn, all } = await drawnColumns(page);
  // 1,500 of 87,660 hours are missing, and a twenty-fifth on both sides is room.
  expect(drawn / all).toBeGreaterThan(0.9);
  expect(drawn / all).toBeLessThan(0.965);
  expect(problems).toEqual([]);
  await close();
});

test("fields of text cannot be chosen; a link to one says why; odd names work", async () => {
  const valve = "valve,id=v\\ 1";
  const { page, problems, close } = await open(
    browser,
    view([`${valve}.turns\\.total`, `${valve}.open`, `${valve}.state`]),
  );
  await settled(page);
  expect(await page.locator(".plot").count()).toBe(3);
  expect((await drawnColumns(page, 0)).drawn).toBeGreaterThan(300);
  expect((await drawnColumns(page, 1)).drawn).toBeGreaterThan(300);
  expect(await page.locator(".plot").nth(2).locator(".legend .error").textContent()).toContain("text");
  await page.getByLabel("Search streams and fields").fill("valve");
  await page.waitForFunction(() => document.querySelector(".tree-foot")?.textContent?.startsWith("1 stream"));
  expect(await page.locator('.row[aria-disabled="true"] .row-name').textContent()).toBe("state");
  await shoot(page, "server-fields");
  expect(problems).toEqual([]);
  await close();
});

test("a link shows the same to somebody else", async () => {
  const first = await open(browser, view([NORTH, PROBE]));
  await settled(first.page);
  await pointAt(first.page, data.burst);
  for (let k = 0; k < 12; k++) await first.page.mouse.wheel(0, -300);
  await first.page.getByRole("radio", { name: "All in one plot" }).click();
  await settled(first.page);
  const url = first.page.url();
  const second = await open(browser, url, { timezoneId: "Asia/Kolkata" });
  await settled(second.page);
  expect(second.page.url()).toBe(url);
  expect(await second.page.locator(".plot").count()).toBe(1);
  expect(await second.page.locator(".legend-item").count()).toBe(2);
  expect([...first.problems, ...second.problems]).toEqual([]);
  await first.close();
  await second.close();
});

test("live values are drawn as they are written, late ones too", async () => {
  const start = nowInstant() - 60_000_000_000n;
  await server.write(
    Array.from({ length: 60 }, (_, k) => `tank,id=t1 level=${k % 10} ${start + BigInt(k) * 1_000_000_000n}`),
  );
  const { page, problems, close } = await open(browser, view(["tank,id=t1.level"]));
  await settled(page);
  await page.keyboard.press("l");
  await page.waitForFunction(() => location.hash.includes("live=1"));
  await page.waitForTimeout(500);
  for (let k = 0; k < 12; k++) {
    await server.write([`tank,id=t1 level=${20 + k} ${nowInstant()}`]);
    await page.waitForTimeout(120);
  }
  await page.waitForFunction(() => document.querySelector(".reading")?.textContent === "31");
  const edge = state(page).view?.to ?? 0n;
  expect(Number(nowInstant() - edge) / 1e9).toBeLessThan(5);
  // An event between two others, written after them.
  await server.write([`tank,id=t1 level=90 ${start + 30_500_000_000n}`]);
  await page.waitForTimeout(600);
  await page.keyboard.press("ArrowLeft");
  await settled(page);
  await pointAt(page, start + 30_500_000_000n);
  await settled(page);
  expect(await page.locator(".reading").first().textContent()).toMatch(/^90/);
  await shoot(page, "server-live");
  expect((await counters(page)).explorer.blankFrames).toBe(0);
  expect(problems).toEqual([]);
  await close();
});

test("a link to a stream that does not exist yet says so, and shows it once it does", async () => {
  const { page, problems, close } = await open(
    browser,
    view(["later,id=1.v"], "&from=1700000000000000000&to=1700000010000000000"),
  );
  await page.locator(".legend .error").waitFor();
  expect(await page.locator(".legend .error").textContent()).toContain("there is no stream “later,id=1”");
  await server.write(Array.from({ length: 10 }, (_, k) => `later,id=1 v=${k} ${1_700_000_000n + BigInt(k)}000000000`));
  await page.locator(".legend .error").waitFor({ state: "detached", timeout: 20_000 });
  await settled(page);
  expect((await drawnColumns(page)).drawn).toBeGreaterThan(300);
  expect(problems).toEqual([]);
  await close();
});

test("every row in view can be saved, and no other", async () => {
  const from = data.first + 1_000n * 3_600_000_000_000n;
  const day = `&from=${from}&to=${from + 24n * 3_600_000_000_000n - 1n}`;
  const { page, problems, close } = await open(browser, view([NORTH], day));
  await settled(page);
  await page.getByRole("button", { name: "Save" }).click();
  const item = page.getByRole("menuitem", { name: /Every row/ });
  const [file] = await Promise.all([page.waitForEvent("download"), item.click()]);
  const rows = readFileSync(await file.path(), "utf8")
    .trim()
    .split("\n");
  expect(rows[0]).toContain("temperature");
  expect(rows[0]).toContain("wind");
  expect(rows).toHaveLength(1 + 24);
  expect(problems).toEqual([]);
  await close();
});

test("storage shows what the server tells", async () => {
  const { page, problems, close } = await open(browser, `${server.url}#/storage`);
  await page.locator(".figures").waitFor();
  const text = await page.locator("main").innerText();
  for (const part of [
    "Bytes per event",
    "Write amplification",
    "weather",
    "probe",
    "press",
    "valve",
    "stored for the first time",
  ]) {
    expect(text).toContain(part);
  }
  await shoot(page, "server-storage");
  expect(problems).toEqual([]);
  await close();
});

test("storage tells what a fast tier holds and repeats, and what it does not have room for", async () => {
  const tiered = new Headwater();
  const now = nowInstant();
  tiered.import(
    Array.from({ length: 5_000 }, (_, k) => `pump,id=a flow=${k % 97} ${now - BigInt(k) * 1_000_000_000n}`),
  );
  const tier = ["--tier-fast", `${tiered.db}-fast`, "--tier-parts", "log,pins,index,newest"];
  const url = await tiered.start(...tier);
  const { page, problems, close } = await open(browser, `${url}#/storage`);
  const media = page.locator(".card").filter({ has: page.getByRole("heading", { name: "Media" }) });
  const row = media.getByRole("row", { name: /Newest partitions/ });
  await row.waitFor();
  // Copies are made in the background.
  await expect
    .poll(async () => (await row.locator(".num").allTextContents())[2], { timeout: 20_000 })
    .toMatch(/^[1-9]/);
  const text = await media.innerText();
  for (const part of [`${tiered.db}-fast`, "in order", "log and pinned rows", "Index of segments", "2.00 GiB"]) {
    expect(text).toContain(part);
  }
  await shoot(page, "server-tiers");
  expect(problems).toEqual([]);
  await close();
  await tiered.remove();
});

describe("when the server goes away", () => {
  test("the page says so, keeps what it shows, and goes on by itself", async () => {
    const { page, close } = await open(browser, view([NORTH]));
    await settled(page);
    const before = await drawnColumns(page);
    await server.stop();
    for (let k = 0; k < 6; k++) await page.keyboard.press("w");
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("alert").textContent()).toContain("The server is not reachable");
    expect((await drawnColumns(page)).drawn).toBeGreaterThan(before.drawn * 0.9);
    await shoot(page, "server-gone");
    await server.start();
    await page.getByRole("alert").waitFor({ state: "detached", timeout: 20_000 });
    await settled(page);
    expect((await counters(page)).explorer.blankFrames).toBe(0);
    await close();
  });
});

test("an empty database turns into a live plot with the first point", async () => {
  const fresh = new Headwater();
  const url = await fresh.start();
  const { page, problems, close } = await open(browser, url);
  await page.getByRole("heading", { name: "Send a first point" }).waitFor();
  await fresh.write([`room,sensor=desk temperature=21.5,humidity=48 ${nowInstant()}`]);
  await page.locator(".plot").first().waitFor({ timeout: 10_000 });
  await page.waitForFunction(() => location.hash.includes("live=1"));
  for (let k = 0; k < 8; k++) {
    await fresh.write([`room,sensor=desk temperature=${21 + k / 10},humidity=${48 + (k % 3)} ${nowInstant()}`]);
    await page.waitForTimeout(150);
  }
  await page.waitForFunction(() => document.querySelector(".reading")?.textContent === "21.7");
  expect(await page.locator(".plot").count()).toBe(2);
  await shoot(page, "server-first-point");
  expect(problems).toEqual([]);
  await close();
  await fresh.remove();
});

test("a server with tokens asks for one, and shows what it may read", async () => {
  const guarded = new Headwater();
  guarded.import([`room,sensor=desk temperature=21.5 ${nowInstant()}`, `vault,door=1 open=1 ${nowInstant()}`]);
  const token = guarded.token("room");
  const url = await guarded.start();
  const { page, problems, close } = await open(browser, url);
  const dialog = page.getByRole("dialog", { name: "This server requires a token" });
  await dialog.waitFor();
  await shoot(page, "token");
  await dialog.getByLabel("Token").fill("nonsense");
  await page.keyboard.press("Enter");
  await dialog.getByText("is unknown or has been revoked").waitFor();
  await dialog.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.locator(".plot").first().waitFor();
  await settled(page);
  expect(await page.locator(".tree-foot").textContent()).toContain("1 stream");
  expect(await page.locator(".tree").textContent()).not.toContain("vault");
  expect(page.url()).not.toContain(token);
  const at = await middle(page);
  await page.mouse.move(at.x, at.y);
  // What is stored altogether is told to who may read all of it: the page asks, and does without.
  expect(problems.filter((problem) => !problem.includes("status of 403"))).toEqual([]);
  await page.goto(`${url}#/storage`);
  await page.getByRole("alert").waitFor();
  await close();
  await guarded.remove();
});

test("the sample data of the repository make a good picture", async () => {
  const weather = new Headwater();
  const fields = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"];
  const file = join(import.meta.dirname, "../../data/weather_nyc_2013.csv.gz");
  const columns = fields.flatMap((field) => ["--field", `${field}:f64`]);
  const table = ["--table", "weather", "--time", "epoch_ms:ms", "--tag", "origin", "--null", "NA"];
  weather.run(["import", "--db", weather.db, ...table, ...columns, file]);
  const url = await weather.start();
  const channels = ["JFK.temp", "JFK.pressure", "JFK.wind_speed"].map((name) => `c=weather,origin=${name}`);
  const { page, problems, close } = await open(browser, `${url}#/view?${channels.join("&")}`, {
    viewport: { width: 1120, height: 640 },
  });
  await settled(page);
  await pointAt(page, 1_374_000_000_000_000_000n);
  await settled(page);
  for (const plot of [0, 1, 2])
    expect(await page.locator(".plot").nth(plot).locator(".reading").count()).toBeGreaterThan(0);
  expect((await drawnColumns(page)).drawn).toBeGreaterThan(500);
  await shoot(page, "sample-data");
  expect(problems).toEqual([]);
  await close();
  await weather.remove();
});
