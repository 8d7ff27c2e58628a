/** What makes the page pleasant: plots that say where data are, legends, links relative to now, rows behind a point. */
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { launch, open, settled, shoot } from "./browser";
import { drawnColumns, drawnHeight, middle, seconds, state } from "./look";
import { serveMock } from "./mockpage";

const NORTH = "weather,site=north.temperature";
const HARBOUR = "weather,site=harbour.temperature";
const VIBRATION = "motor,id=m1,hall=3.vibration";
const HOUR = 3_600_000_000_000n;

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

const view = (channels: readonly string[], rest = ""): string =>
  `${site.url}#/view?${channels.map((channel) => `c=${encodeURIComponent(channel)}`).join("&")}${rest}`;

const presses = (count: number): string[] =>
  Array.from({ length: count }, (_, k) => `press,line=L${k % 12},machine=press-${String(k).padStart(4, "0")}.pressure`);

describe("an empty plot", () => {
  test("says where data are, and goes there", async () => {
    const long = 1_000_000_000n * 1_000_000_000n;
    const { page, problems, close } = await open(browser, view([NORTH], `&from=${long}&to=${long + HOUR}`));
    const nothing = page.locator(".nothing");
    await nothing.waitFor();
    expect(await nothing.textContent()).toMatch(/^No data in this range\. Data from \d{4}-.* to \d{4}-.*Go there$/);
    await shoot(page, "nothing-here");
    await page.getByRole("button", { name: "Go there" }).click();
    await settled(page);
    expect((await drawnColumns(page)).drawn).toBeGreaterThan(300);
    expect(await nothing.count()).toBe(0);
    expect(problems).toEqual([]);
    await close();
  });

  test("says so when there is no such stream, no such field, or no name at all", async () => {
    const { page, close } = await open(browser, view(["nosuch,x=y.z"]));
    const nothing = page.locator(".nothing");
    await nothing.waitFor();
    expect(await nothing.textContent()).toBe("There is no stream “nosuch,x=y”.");
    await shoot(page, "no-such-stream");
    await page.goto(view(["weather,site=north.nosuch"]));
    await page.getByText("This stream has no field “nosuch”.").waitFor();
    await page.goto(view([NORTH, "justaword"]));
    await page.getByText("“justaword” is not a channel").waitFor();
    await page.getByRole("button", { name: "Leave it out" }).click();
    await page.getByText("“justaword” is not a channel").waitFor({ state: "detached" });
    await close();
  });
});

describe("many plots", () => {
  const scrolled = (page: Page): Promise<number> =>
    page.evaluate(() => document.querySelector(".plots")?.scrollTop ?? 0);

  test("are reached by the wheel and by keys; with Ctrl the wheel zooms", async () => {
    const { page, problems, close } = await open(browser, view(presses(15)));
    await settled(page);
    const before = seconds(page);
    const at = await middle(page);
    await page.mouse.move(at.x, at.y);
    await page.mouse.wheel(0, 400);
    await page.waitForFunction(() => (document.querySelector(".plots")?.scrollTop ?? 0) > 100);
    await page.getByText("the wheel scrolls, Ctrl + wheel zooms").waitFor();
    expect(seconds(page)).toBe(before);
    const there = await scrolled(page);
    await page.keyboard.press("PageDown");
    await page.waitForFunction((y) => (document.querySelector(".plots")?.scrollTop ?? 0) > y + 200, there);
    await shoot(page, "many-plots");
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -400);
    await page.keyboard.up("Control");
    await settled(page);
    expect(seconds(page)).toBeLessThan(before);
    expect(problems).toEqual([]);
    await close();
  });

  test("change places and heights, and a link keeps both", async () => {
    const { page, problems, close } = await open(browser, view([NORTH, VIBRATION]));
    await settled(page);
    await page.getByRole("button", { name: "Move the plot up" }).nth(1).click();
    await settled(page);
    expect(state(page).channels).toEqual([VIBRATION, NORTH]);
    const handle = page.getByRole("separator").first();
    const box = await handle.boundingBox();
    const height = (await page.locator(".chart").first().boundingBox())?.height ?? 0;
    await page.mouse.move((box?.x ?? 0) + 200, (box?.y ?? 0) + 2);
    await page.mouse.down();
    await page.mouse.move((box?.x ?? 0) + 200, (box?.y ?? 0) - 98, { steps: 4 });
    await page.mouse.up();
    await settled(page);
    const { heights } = state(page);
    expect(Math.abs((heights.get(VIBRATION) ?? 0) - (height - 100))).toBeLessThanOrEqual(3);
    await page.reload();
    await settled(page);
    expect((await page.locator(".chart").first().boundingBox())?.height).toBe(heights.get(VIBRATION));
    await page.getByRole("separator").first().dblclick();
    await settled(page);
    expect(state(page).heights.size).toBe(0);
    expect(problems).toEqual([]);
    await close();
  });
});

test("the legend of many channels is a table that can be read", async () => {
  const { page, problems, close } = await open(browser, view([NORTH, HARBOUR, ...presses(7)], "&layout=all"));
  await settled(page);
  const at = await middle(page);
  await page.mouse.move(at.x, at.y);
  await settled(page);
  const rows = page.locator(".legend tbody tr");
  expect(await rows.count()).toBe(9);
  expect(await page.locator(".legend thead th").allTextContents()).toEqual([
    "Field and stream",
    "At the cursor",
    "last",
    "min",
    "mean",
    "max",
    "",
  ]);
  const cells = await rows.first().locator("td, th").allTextContents();
  expect(cells[0]).toBe("temperature");
  expect(cells[1]).toBe("weather site=north");
  const [last, min, mean, max] = cells.slice(3, 7).map((text) => Number(text.replace("−", "-")));
  expect(min).toBeLessThan(mean ?? NaN);
  expect(mean).toBeLessThan(max ?? NaN);
  expect(last).not.toBeNaN();
  // No two rows lie on one another.
  const tops = await rows.evaluateAll((all) => all.map((row) => row.getBoundingClientRect().top));
  tops.slice(1).forEach((top, k) => expect(top - (tops[k] ?? 0)).toBeGreaterThan(18));
  await shoot(page, "legend-table");
  expect(problems).toEqual([]);
  await close();
});

test("two fields in one plot have a scale each, and are kept as they are together", async () => {
  const { page, problems, close } = await open(browser, view([NORTH, VIBRATION], "&layout=all"));
  await settled(page);
  expect(await page.locator(".legend .legend-name").allTextContents()).toEqual([
    "temperature",
    "vibration right scale",
  ]);
  // Either fills a good part of the plot, whatever the size of the other's values.
  await shoot(page, "two-scales");
  for (const which of [0, 1]) expect(await drawnHeight(page, which)).toBeGreaterThan(0.3);
  await page.getByRole("button", { name: "Keep the scale as it is" }).click();
  await settled(page);
  const { locks } = state(page);
  expect([...locks.keys()]).toEqual(["*", "*:2"]);
  await page.reload();
  await settled(page);
  expect(state(page).locks).toEqual(locks);
  await page.getByRole("button", { name: "Let the scale follow the values" }).click();
  await settled(page);
  expect(state(page).locks.size).toBe(0);
  // With a third field there is one scale again.
  await page.goto(view([NORTH, VIBRATION, ...presses(1)], "&layout=all"));
  await settled(page);
  expect(await page.locator(".legend .right-scale").count()).toBe(0);
  expect(problems).toEqual([]);
  await close();
});

test("streams stand under their tables, and long names keep their end", async () => {
  const { page, problems, close } = await open(browser, view([NORTH]));
  await settled(page);
  const tables = await page.locator(".row-table").allTextContents();
  expect(tables).toEqual(["weather2", "motor2", "press3\u202f000"]);
  expect(await page.locator(".row-stream").allTextContents()).toEqual(["site=north", "site=harbour"]);
  await page.getByRole("treeitem", { name: /^press/ }).click();
  await page.getByText("press-0000").first().waitFor();
  await page.evaluate(() =>
    (document.querySelector<HTMLElement>(".side") ?? document.body).style.setProperty("width", "200px"),
  );
  const tail = page.locator(".row-stream .cut-tail").filter({ hasText: "0000" });
  const [cut, row] = [await tail.boundingBox(), await page.locator(".row-stream").nth(2).boundingBox()];
  expect((cut?.x ?? 999) + (cut?.width ?? 999)).toBeLessThanOrEqual((row?.x ?? 0) + (row?.width ?? 0));
  await shoot(page, "streams-by-table");
  expect(problems).toEqual([]);
  await close();
});

test("a view relative to now moves on, stays relative in its link, and ends when somebody moves", async () => {
  const { page, problems, close } = await open(browser, view([NORTH], "&from=now-24h&to=now&refresh=1"));
  await settled(page, 100);
  expect(await page.locator(".range").textContent()).toContain("now-24h – now");
  const edge = (): Promise<string> =>
    page.evaluate(() => document.querySelector(".unseen[role=status]")?.textContent ?? "");
  await page.waitForFunction(() => document.querySelector(".unseen[role=status]")?.textContent !== "");
  const early = await edge();
  // Milliseconds of the ends are told: a later look is another span.
  await page.waitForFunction((before) => document.querySelector(".unseen[role=status]")?.textContent !== before, early);
  expect(page.url()).toContain("from=now-24h&to=now&refresh=1");
  await shoot(page, "relative");
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction(() => /from=\d{19}&to=\d{19}/.test(location.hash));
  // From the form too.
  await page.locator(".range").click();
  await page.getByRole("button", { name: "The last 1 h, following the newest data" }).click();
  await page.waitForFunction(() => location.hash.includes("from=now-1h&to=now"));
  expect(problems).toEqual([]);
  await close();
});

test("a click shows the rows behind a point", async () => {
  const { page, problems, close } = await open(browser, view([NORTH]));
  await settled(page);
  const at = await middle(page);
  await page.mouse.click(at.x, at.y);
  const rows = page.getByRole("region", { name: "Rows at the point" });
  await rows.locator("tbody tr").first().waitFor();
  expect(await rows.textContent()).toContain("weather,site=north");
  expect(await rows.locator("thead th").allTextContents()).toEqual(["time", "temperature", "wind"]);
  await shoot(page, "rows");
  await page.getByRole("button", { name: "Close the rows" }).click();
  expect(await rows.count()).toBe(0);
  expect(problems).toEqual([]);
  await close();
});

test("times are told once where a zone is UTC's, and in a zone that was chosen", async () => {
  const there = await open(browser, view([NORTH]), { timezoneId: "UTC" });
  await settled(there.page);
  const at = await middle(there.page);
  await there.page.mouse.move(at.x, at.y);
  await settled(there.page);
  expect(await there.page.locator(".flag > span").count()).toBe(1);
  expect(await there.page.locator(".flag").textContent()).toMatch(/^[\d-]+ [\d:]+ UTC$/);
  await there.page.locator(".range").click();
  await there.page.getByLabel("Time zone").selectOption("Asia/Tokyo");
  await shoot(there.page, "range-form");
  await there.page.keyboard.press("Escape");
  await there.page.mouse.move(at.x, at.y);
  await settled(there.page);
  expect(await there.page.locator(".flag").textContent()).toContain("UTC+09:00");
  // Kept for the next visit.
  await there.page.reload();
  await settled(there.page);
  expect(await there.page.locator(".range .zone").textContent()).toBe("UTC+09:00");
  expect(there.problems).toEqual([]);
  await there.close();
});

test("the link is copied by a button", async () => {
  const { page, problems, close } = await open(browser, view([NORTH]), {
    permissions: ["clipboard-read", "clipboard-write"],
  });
  await settled(page);
  await page.getByRole("button", { name: "Copy link" }).click();
  await page.getByText("The link is copied.").waitFor();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(page.url());
  expect(problems).toEqual([]);
  await close();
});

test("SQL has its tables beside it, names statements, and plots an answer", async () => {
  const { page, problems, close } = await open(browser, `${site.url}#/sql`);
  const schema = page.getByRole("complementary", { name: "Tables and columns" });
  await schema.getByText("temperature").waitFor();
  expect(await schema.locator("summary .schema-name").allTextContents()).toEqual(["motor", "press", "weather"]);
  const editor = page.getByRole("textbox", { name: "SQL" });
  await editor.fill("SELECT  FROM weather");
  await editor.evaluate((area: HTMLTextAreaElement) => area.setSelectionRange(7, 7));
  await schema.getByRole("button", { name: "temperature" }).click();
  expect(await editor.inputValue()).toBe("SELECT temperature FROM weather");
  await page.getByRole("button", { name: "Saved" }).click();
  await page.getByLabel("Name of the statement").fill("temperatures");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.keyboard.press("Escape");
  await editor.fill("SELECT 1");
  await page.getByRole("button", { name: "Saved" }).click();
  await page.getByRole("menuitem", { name: "temperatures" }).click();
  expect(await editor.inputValue()).toBe("SELECT temperature FROM weather");
  await page.getByRole("button", { name: "Plot this" }).click();
  await page.locator(".result-chart canvas").waitFor();
  await shoot(page, "sql-schema");
  expect(problems).toEqual([]);
  await close();
});
