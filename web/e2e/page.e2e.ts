/** The page in a browser, against made-up data: looks, moves, keys, sizes. The real server is in server.e2e.ts. */
import { readFileSync } from "node:fs";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LIMIT } from "../src/lib/loader";
import { counters, launch, open, settled, shoot } from "./browser";
import { drawnColumns, hasNoOverflow, middle, seconds, state } from "./look";
import { serveMock } from "./mockpage";

const NORTH = "weather,site=north.temperature";
const HARBOUR = "weather,site=harbour.temperature";
const WIND = "weather,site=north.wind";
const VIBRATION = "motor,id=m1,hall=3.vibration";
const TEN_YEARS = 3_650 * 86_400;

let browser: Browser;
let site: Awaited<ReturnType<typeof serveMock>>;

beforeAll(async () => {
  browser = await launch();
  site = await serveMock();
});

afterAll(async () => {
  await browser.close();
  await site.stop();
});

const view = (...channels: string[]): string =>
  `${site.url}#/view?${channels.map((channel) => `c=${encodeURIComponent(channel)}`).join("&")}`;

describe("the first look", () => {
  test("shows data without being asked, and keeps to the content policy", async () => {
    const { page, problems, close } = await open(browser, site.url);
    await settled(page);
    expect((await drawnColumns(page)).drawn).toBeGreaterThan(300);
    expect(await page.locator(".tree-foot").textContent()).toContain("3\u202f004 streams");
    expect(state(page).channels.length).toBeGreaterThan(0);
    await shoot(page, "first-look");
    expect(problems).toEqual([]);
    await close();
  });

  test("is followed by the colours of the system, and by a choice", async () => {
    const { page, problems, close } = await open(browser, view(NORTH, WIND), { colorScheme: "dark" });
    await settled(page);
    const background = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    expect(await background()).toBe("rgb(18, 23, 29)");
    const at = await middle(page);
    await page.mouse.move(at.x, at.y);
    await settled(page);
    expect((await drawnColumns(page)).drawn).toBeGreaterThan(300);
    await shoot(page, "dark");
    await page.getByRole("button", { name: /^Colours/ }).click();
    expect(await background()).toBe("rgb(255, 255, 255)");
    await page.reload();
    expect(await background()).toBe("rgb(255, 255, 255)");
    expect(problems).toEqual([]);
    await close();
  });
});

describe("searching", () => {
  test("finds one of three thousand streams and shows its field, by keyboard alone", async () => {
    const { page, problems, close } = await open(browser, view(NORTH));
    await settled(page);
    await page.keyboard.press("/");
    await page.keyboard.type("press-0042 load");
    await page.waitForFunction(() => document.querySelector(".tree-foot")?.textContent?.startsWith("1 stream"));
    expect(await page.locator(".row").count()).toBeLessThan(60);
    // Only the field that was searched for, with what was found marked.
    expect(await page.locator(".row-field .row-name").allTextContents()).toEqual(["load"]);
    expect(await page.locator(".row mark").allTextContents()).toEqual(["press-0042", "load"]);
    await page.keyboard.press("Enter");
    await shoot(page, "search");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Remove press,line=L6,machine=press-0042.load" }).waitFor();
    await settled(page);
    expect(state(page).channels).toEqual([NORTH, "press,line=L6,machine=press-0042.load"]);
    expect(problems).toEqual([]);
    await close();
  });

  test("keeps the page small while thousands of rows are scrolled", async () => {
    const { page, problems, close } = await open(browser, view(NORTH));
    await settled(page);
    const tree = page.getByRole("tree");
    await page.getByRole("treeitem", { name: /^press/ }).click();
    await tree.focus();
    for (let k = 0; k < 6; k++) {
      await page.keyboard.press("End");
      await page.waitForTimeout(150);
      expect(await page.locator(".row").count()).toBeLessThan(80);
    }
    const height = await page.evaluate(() => document.querySelector(".tree-all")?.clientHeight ?? 0);
    expect(height).toBeGreaterThan(28 * 500);
    expect(problems).toEqual([]);
    await close();
  });
});

describe("moving", () => {
  test("by wheel from ten years to ten milliseconds never shows a blank frame", async () => {
    const { page, problems, close } = await open(browser, view(VIBRATION));
    await settled(page);
    await page.evaluate((width) => {
      const at = Date.now();
      location.hash = location.hash.replace(
        /from=-?\d+&to=-?\d+/,
        `from=${BigInt(at - width * 1000)}000000&to=${at}000000`,
      );
    }, TEN_YEARS);
    await settled(page);
    expect(seconds(page)).toBeCloseTo(TEN_YEARS, -3);
    await shoot(page, "zoom-ten-years");
    // Where the data are: the last ninety days are at the right edge.
    const box = await page.locator(".chart").first().boundingBox();
    if (!box) throw new Error("no plot");
    await page.mouse.move(box.x + box.width - 22, box.y + 100);
    for (let steps = 0; seconds(page) > 0.01 && steps < 200; steps++) {
      await page.mouse.wheel(0, -300);
      await page.waitForTimeout(40);
      expect((await drawnColumns(page)).drawn, `${seconds(page)} s`).toBeGreaterThan(0);
      if (steps % 8 === 0) await settled(page);
    }
    await settled(page);
    await shoot(page, "zoom-ten-milliseconds");
    expect(seconds(page)).toBeLessThan(0.01);
    const seen = await counters(page);
    expect(seen.explorer.blankFrames).toBe(0);
    expect(seen.loader.inFlightMax).toBeLessThanOrEqual(LIMIT);
    expect(problems).toEqual([]);
    await close();
  });

  test("by keys goes in and out again, and sideways", async () => {
    const { page, problems, close } = await open(browser, view(NORTH, WIND));
    await settled(page);
    const before = seconds(page);
    expect(before).toBeGreaterThan(TEN_YEARS);
    for (let k = 0; k < 90 && !(seconds(page) < 0.01); k++) {
      await page.keyboard.press("w");
      await page.waitForTimeout(25);
      if (k % 10 === 9) await settled(page);
    }
    await settled(page);
    expect(seconds(page)).toBeLessThan(0.01);
    // Between two hourly events the line still crosses the view.
    expect((await drawnColumns(page)).drawn).toBeGreaterThan(300);
    await shoot(page, "between-two-events");
    const { view: here } = state(page);
    await page.keyboard.press("ArrowRight");
    await settled(page);
    expect(state(page).view?.from ?? 0n).toBeGreaterThan(here?.from ?? 0n);
    await page.keyboard.press("a");
    await settled(page);
    for (let k = 0; k < 120 && seconds(page) < TEN_YEARS; k++) {
      await page.keyboard.press("ArrowDown");
      await page.waitForTimeout(25);
      if (k % 10 === 9) await settled(page);
    }
    await page.keyboard.press("f");
    await settled(page);
    expect(seconds(page) / before).toBeCloseTo(1, 2);
    const seen = await counters(page);
    expect(seen.explorer.blankFrames).toBe(0);
    expect(seen.loader.inFlightMax).toBeLessThanOrEqual(LIMIT);
    expect(problems).toEqual([]);
    await close();
  });

  test("by dragging glides on and comes to rest; with Shift it marks a part", async () => {
    const { page, problems, close } = await open(browser, view(NORTH));
    await settled(page);
    const before = state(page).view;
    const at = await middle(page);
    await page.mouse.move(at.x, at.y);
    await page.mouse.down();
    for (let k = 1; k <= 8; k++) await page.mouse.move(at.x - 15 * k, at.y);
    const dragged = await page.evaluate(() => location.hash);
    await page.mouse.up();
    await settled(page);
    const after = state(page).view;
    expect(after && before && after.to - after.from).toBe(before && before.to - before.from);
    expect(after?.from ?? 0n).toBeGreaterThan(before?.from ?? 0n);
    expect(page.url()).not.toContain(dragged);
    await page.keyboard.down("Shift");
    await page.mouse.move(at.x - 100, at.y);
    await page.mouse.down();
    await page.mouse.move(at.x + 100, at.y, { steps: 4 });
    await shoot(page, "marking");
    await page.mouse.up();
    await page.keyboard.up("Shift");
    await settled(page);
    const share = seconds(page) / (Number((after?.to ?? 1n) - (after?.from ?? 0n)) / 1e9);
    expect(share).toBeGreaterThan(0.15);
    expect(share).toBeLessThan(0.3);
    expect(problems).toEqual([]);
    await close();
  });
});

test("a link shows the same nanoseconds, layout and locked scale to everyone", async () => {
  const first = await open(browser, view(NORTH, HARBOUR, WIND));
  await settled(first.page);
  for (let k = 0; k < 20; k++) await first.page.keyboard.press("w");
  await first.page.getByRole("radio", { name: "One plot per field name" }).click();
  await first.page.getByRole("button", { name: "Keep the scale as it is" }).first().click();
  await settled(first.page);
  const url = first.page.url();
  expect(url).toMatch(/from=\d{19}&to=\d{19}&layout=field&y=/);
  const second = await open(browser, url, { timezoneId: "America/New_York" });
  await settled(second.page);
  expect(second.page.url()).toBe(url);
  expect(await second.page.locator(".plot").count()).toBe(2);
  const at = await middle(second.page);
  await second.page.mouse.move(at.x, at.y);
  await settled(second.page);
  const flag = await second.page.locator(".flag").textContent();
  expect(flag).toMatch(/UTC−0[45]:00.*UTC/);
  await shoot(second.page, "link");
  expect([...first.problems, ...second.problems]).toEqual([]);
  await first.close();
  await second.close();
});

test("live follows the newest data until somebody moves", async () => {
  const { page, problems, close } = await open(browser, view(VIBRATION));
  await settled(page);
  await page.keyboard.press("l");
  await page.waitForFunction(() => location.hash.includes("live=1"));
  await page.waitForTimeout(700);
  const early = state(page).view?.to ?? 0n;
  await page.waitForTimeout(1500);
  const late = state(page).view?.to ?? 0n;
  expect(Number(late - early) / 1e9).toBeGreaterThan(0.8);
  expect(await page.getByRole("button", { name: "Live" }).getAttribute("aria-pressed")).toBe("true");
  expect(await page.locator(".legend .reading").count()).toBe(1);
  await shoot(page, "live");
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction(() => !location.hash.includes("live=1"));
  expect((await counters(page)).explorer.blankFrames).toBe(0);
  expect(problems).toEqual([]);
  await close();
});

test("an empty database shows how to begin, and turns into the plot", async () => {
  const empty = await serveMock({ emptyFor: 4_000 });
  const { page, problems, close } = await open(browser, empty.url);
  await page.getByRole("heading", { name: "Send a first point" }).waitFor();
  const code = page.locator(".snippet .code");
  expect(await code.textContent()).toContain(`curl ${empty.url}write`);
  await shoot(page, "empty");
  await page.getByRole("tab", { name: "Python" }).click();
  expect(await code.textContent()).toContain("urllib.request");
  await page.getByRole("tab", { name: "Telegraf" }).click();
  expect(await code.textContent()).toContain("outputs.influxdb_v2");
  await page.locator(".plot").first().waitFor({ timeout: 10_000 });
  await page.waitForFunction(() => location.hash.includes("live=1"));
  expect(problems).toEqual([]);
  await close();
  await empty.stop();
});

test("at 360 pixels everything is in reach, and fingers move the plots", async () => {
  const { page, problems, close } = await open(browser, view(NORTH, HARBOUR), {
    viewport: { width: 360, height: 740 },
    deviceScaleFactor: 2,
    hasTouch: true,
    isMobile: true,
  });
  await settled(page);
  expect(await hasNoOverflow(page)).toBe(true);
  await shoot(page, "narrow");
  await page.getByRole("button", { name: "Streams", exact: true }).tap();
  await page.getByRole("tree").waitFor();
  await page.waitForTimeout(250);
  await shoot(page, "narrow-streams");
  await page.getByRole("button", { name: "Close the list of streams" }).tap({ position: { x: 345, y: 400 } });
  await page.locator(".range").tap();
  await page.getByLabel("From").waitFor();
  expect(await hasNoOverflow(page)).toBe(true);
  await shoot(page, "narrow-range");
  await page.keyboard.press("Escape");
  // Nothing of a legend lies on something else.
  for (const row of await page.locator(".legend").all()) {
    const boxes = await row.locator("button:visible, .legend-name b").evaluateAll((all) =>
      all.map((each) => {
        const { left, right, top, bottom } = each.getBoundingClientRect();
        return { left, right, top, bottom };
      }),
    );
    boxes.forEach((a, k) =>
      boxes.slice(k + 1).forEach((b) => {
        const isApart = a.right <= b.left + 0.5 || b.right <= a.left + 0.5 || a.bottom <= b.top || b.bottom <= a.top;
        expect(isApart, JSON.stringify([a, b])).toBe(true);
      }),
    );
  }
  for (const button of await page.locator(".top button:visible").all()) {
    const box = await button.boundingBox();
    expect((box?.x ?? 0) + (box?.width ?? 999)).toBeLessThanOrEqual(360);
  }
  // Two fingers apart.
  const before = seconds(page);
  const touch = await page.context().newCDPSession(page);
  const at = await middle(page);
  const send = (type: "touchStart" | "touchMove" | "touchEnd", ...xs: number[]): Promise<unknown> =>
    touch.send("Input.dispatchTouchEvent", { type, touchPoints: xs.map((x, id) => ({ x, y: at.y, id })) });
  await send("touchStart", at.x - 30, at.x + 30);
  for (let k = 1; k <= 5; k++) await send("touchMove", at.x - 30 - 12 * k, at.x + 30 + 12 * k);
  await send("touchEnd");
  await settled(page);
  expect(before / seconds(page)).toBeGreaterThan(2);
  expect(before / seconds(page)).toBeLessThan(4);
  await page.goto(`${site.url}#/storage`);
  await page.locator(".figures").waitFor();
  expect(await hasNoOverflow(page)).toBe(true);
  await shoot(page, "narrow-storage");
  expect(problems).toEqual([]);
  await close();
});

test("storage tells sizes, amplification, partitions and late data", async () => {
  const { page, problems, close } = await open(browser, `${site.url}#/storage`);
  await page.locator(".figures").waitFor();
  const text = await page.locator("main").innerText();
  for (const part of [
    "Bytes per event",
    "1.66",
    "Write amplification",
    "1.03",
    "late ones apart, 50 % for those in order (chosen by what arrives)",
    "stored for the first time",
    "after 81\u202f920 events",
    "weather",
    "60 partitions",
    "mqtts://broker.example:8883",
    "E_TYPE",
    "1 part of copies damaged and rebuilt",
    "Newest partitions",
    "858 MiB",
    "2.00 GiB",
  ]) {
    expect(text).toContain(part);
  }
  expect(await page.locator(".bars .chosen th").allTextContents()).toEqual([
    "late ones apart, 50 % for those in order",
  ]);
  await shoot(page, "storage");
  await page.getByRole("link", { name: "Plots" }).click();
  await page.locator(".tree").waitFor();
  expect(problems).toEqual([]);
  await close();
});

test("what is shown can be saved", async () => {
  const { page, problems, close } = await open(browser, view(NORTH, WIND));
  await settled(page);
  const save = async (item: RegExp): Promise<Buffer> => {
    await page.getByRole("button", { name: "Save" }).click();
    const [file] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("menuitem", { name: item }).click(),
    ]);
    return readFileSync(await file.path());
  };
  const csv = (await save(/Points as shown/)).toString().trim().split("\n");
  expect(csv[0]).toBe("channel,time_ns,time_utc,mean,min,max,count");
  expect(csv.length).toBeGreaterThan(1000);
  expect(csv[1]).toMatch(
    /^"weather,site=north\.temperature",\d{19},\d{4}-\d\d-\d\dT[\d:.]+Z,-?[\d.]+,-?[\d.]+,-?[\d.]+,\d+$/,
  );
  const png = await save(/Picture/);
  expect(png.subarray(1, 4).toString()).toBe("PNG");
  expect(png.length).toBeGreaterThan(10_000);
  expect(problems).toEqual([]);
  await close();
});

test("help, ranges and focus work by keyboard alone", async () => {
  const { page, problems, close } = await open(browser, view(NORTH));
  await settled(page);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys and gestures" }).waitFor();
  await shoot(page, "help");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  // Every stop of the Tab key can be seen.
  const stops = new Set<string>();
  for (let k = 0; k < 40; k++) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return "";
      const ring = getComputedStyle(element.closest(".search") ?? element).outlineStyle;
      return `${element.getAttribute("aria-label") ?? element.textContent ?? element.tagName}|${ring}`;
    });
    if (stop === "") continue;
    expect(stop).not.toMatch(/\|none$/);
    stops.add(stop.split("|")[0] ?? "");
  }
  for (const wanted of ["Streams", "Zoom in", "Save", "Live", "All in one plot"]) {
    expect(
      [...stops].some((stop) => stop.includes(wanted)),
      wanted,
    ).toBe(true);
  }
  await page.locator(".range").focus();
  await page.keyboard.press("Enter");
  const from = page.getByLabel("From");
  await from.fill("2024-03-05 12:00");
  await page.getByLabel("To", { exact: true }).fill("2024-03-05 12:00:00.010");
  await shoot(page, "range");
  await page.keyboard.press("Enter");
  await settled(page);
  expect(seconds(page)).toBeCloseTo(0.01, 9);
  // A time in the zone of the browser, which is Berlin's: an hour ahead of UTC.
  expect(state(page).view?.from).toBe(BigInt(Date.UTC(2024, 2, 5, 11)) * 1_000_000n);
  await page.locator(".range").focus();
  await page.keyboard.press("Enter");
  await from.fill("next week");
  expect(await page.locator(".popover .error").textContent()).toContain("is not a time");
  expect(problems).toEqual([]);
  await close();
});
