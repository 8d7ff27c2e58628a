/** The SQL console in a browser: against made-up answers, and against the real server. */
import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { launch, open, shoot, type Watched } from "./browser";
import { Headwater } from "./headwater";
import { hasNoOverflow } from "./look";
import { serveMock } from "./mockpage";

let browser: Browser;

beforeAll(async () => {
  browser = await launch();
});

afterAll(async () => {
  await browser.close();
  await Headwater.removeAll();
});

/** Without the browser's own line about an answer of 400, which the page shows as an error. */
const unexpected = ({ problems }: Watched): string[] => problems.filter((each) => !/status of 400/.test(each));

const editor = (page: Page) => page.getByRole("textbox", { name: "SQL" });
const said = (page: Page) => page.getByRole("status");

async function run(page: Page, sql: string): Promise<void> {
  await editor(page).fill(sql);
  await page.keyboard.press("Control+Enter");
}

describe("before made-up answers", () => {
  let site: Awaited<ReturnType<typeof serveMock>>;
  beforeAll(async () => {
    site = await serveMock();
  });
  afterAll(() => site.stop());

  test("a statement is completed, run and shown as table and chart, by keyboard alone", async () => {
    const watched = await open(browser, `${site.url}#/sql`);
    const { page } = watched;
    await page.locator(".sql-examples button").nth(1).waitFor();
    await shoot(page, "sql-first-look");
    await editor(page).focus();
    await page.keyboard.type("sel");
    const offers = page.getByRole("listbox", { name: "Completion" });
    expect(await offers.getByRole("option").first().textContent()).toContain("SELECT");
    await page.keyboard.press("Tab");
    await page.keyboard.type(" * from wea");
    expect(await offers.getByRole("option").count()).toBe(1);
    await shoot(page, "sql-completion");
    await page.keyboard.press("Enter");
    expect(await editor(page).inputValue()).toBe("SELECT * from weather");
    await page.keyboard.type(" w where w.si");
    await page.keyboard.press("Enter");
    expect(await editor(page).inputValue()).toBe("SELECT * from weather w where w.site");
    await page.keyboard.press("Control+Enter");
    await page.getByText("240 rows").waitFor();
    expect(await page.locator(".result th").allTextContents()).toEqual(["time", "station", "mean"]);
    const number = page.locator(".result tbody td.num").first();
    expect(await number.evaluate((cell) => getComputedStyle(cell).textAlign)).toBe("right");
    await shoot(page, "sql-table");
    await page.getByRole("radio", { name: "Chart" }).click();
    await page.locator(".result-chart canvas").waitFor();
    const labels = await page.locator(".result-chart .u-legend .u-label").allTextContents();
    expect(labels.slice(1)).toEqual(["south", "north"]);
    await shoot(page, "sql-chart");
    expect(unexpected(watched)).toEqual([]);
    await watched.close();
  });

  test("a mistake is marked at its place, with what may help, until the text is changed", async () => {
    const watched = await open(browser, `${site.url}#/sql`);
    const { page } = watched;
    // The second of two statements runs: the caret stands in it.
    await run(page, "SELECT 1;\nSELECT *\n  FROM nowhere");
    const alert = page.locator(".sql-error");
    await alert.waitFor();
    expect(await alert.textContent()).toContain("Line 2, column 8: there is no table `nowhere`");
    expect(await alert.textContent()).toContain("did you mean `weather`?");
    expect(await page.locator(".sql-mark").allTextContents()).toEqual(["nowhere"]);
    expect(await editor(page).getAttribute("aria-invalid")).toBe("true");
    await shoot(page, "sql-mistake");
    await page.keyboard.type(";");
    expect(await page.locator(".sql-mark").count()).toBe(0);
    expect(unexpected(watched)).toEqual([]);
    await watched.close();
  });

  test("many rows scroll smoothly, since only those in view are there, and are saved whole", async () => {
    const watched = await open(browser, `${site.url}#/sql`);
    const { page } = watched;
    await run(page, "SELECT many");
    await page.getByText("there are more").waitFor();
    expect(await page.locator(".result tbody tr").count()).toBeLessThan(80);
    await page.locator(".result-scroll").evaluate((element) => (element.scrollTop = element.scrollHeight));
    await page.getByText("text 9999", { exact: true }).waitFor();
    expect(await page.locator(".result tbody tr").count()).toBeLessThan(80);
    await shoot(page, "sql-many-rows");
    const waiting = page.waitForEvent("download");
    await page.getByRole("button", { name: "CSV" }).click();
    const text = readFileSync(await (await waiting).path(), "utf8");
    expect(text.split("\n").length).toBe(12_002);
    expect(unexpected(watched)).toEqual([]);
    await watched.close();
  });

  test("what lasts can be cancelled; what ran is in the history, and the draft survives a reload", async () => {
    const watched = await open(browser, `${site.url}#/sql`);
    const { page } = watched;
    await run(page, "SELECT sleep");
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("Cancelled").waitFor();
    await run(page, "INSERT INTO t VALUES (1)");
    await page.getByRole("cell", { name: "inserted" }).waitFor();
    await run(page, "SELECT 42");
    await page.getByText("1 row ·").waitFor();
    await page.reload();
    expect(await editor(page).inputValue()).toBe("SELECT 42");
    await page.getByRole("button", { name: "History" }).click();
    const items = page.getByRole("menuitem");
    expect(await items.allTextContents()).toEqual(["SELECT 42", "INSERT INTO t VALUES (1)"]);
    await items.nth(1).click();
    expect(await editor(page).inputValue()).toBe("INSERT INTO t VALUES (1)");
    expect(unexpected(watched)).toEqual([]);
    await watched.close();
  });

  test("fits a phone, and the dark", async () => {
    const watched = await open(browser, `${site.url}#/sql`, {
      viewport: { width: 360, height: 720 },
      colorScheme: "dark",
    });
    const { page } = watched;
    await page.locator(".sql-examples button").nth(1).waitFor();
    expect(await hasNoOverflow(page)).toBe(true);
    await run(page, "SELECT weather");
    await page.getByText("240 rows").waitFor();
    await shoot(page, "sql-phone-dark");
    await page.getByRole("radio", { name: "Chart" }).click();
    await page.locator(".result-chart canvas").waitFor();
    expect(await hasNoOverflow(page)).toBe(true);
    await shoot(page, "sql-phone-chart");
    expect(unexpected(watched)).toEqual([]);
    await watched.close();
  });
});

describe("on the real server", () => {
  let server: Headwater;
  beforeAll(async () => {
    server = new Headwater();
    const lines = [];
    for (let k = 0; k < 400; k++) {
      const at = 1_700_000_000_000_000_000n + BigInt(k) * 3_600_000_000_000n;
      for (const site of ["north", "harbour"])
        lines.push(`weather,site=${site} temperature=${k / 8},count=${k}i ${at}`);
    }
    server.import([...lines, "yard,id=x v=1 1700000000000000000"]);
    await server.start();
  });

  test("completion knows the tables, rows come exact, and mistakes have their place", async () => {
    const watched = await open(browser, `${server.url}#/sql`);
    const { page } = watched;
    await page
      .getByRole("button", { name: /FROM weather/ })
      .nth(1)
      .click();
    await page.keyboard.press("Control+Enter");
    await said(page)
      .getByText(/\d+ rows/)
      .waitFor();
    await page.getByRole("radio", { name: "Chart" }).click();
    const labels = page.locator(".result-chart .u-legend .u-label");
    await labels.nth(2).waitFor();
    expect((await labels.allTextContents()).slice(1).sort()).toEqual(["harbour", "north"]);
    await shoot(page, "sql-server-chart");
    await page.getByRole("radio", { name: "Table" }).click();
    await run(page, "SELECT count(*) AS n, max(count) AS newest FROM weather WHERE site = 'north'");
    await page.getByText("1 row ·").waitFor();
    expect(await page.locator(".result tbody td").allTextContents()).toEqual(["400", "399"]);
    await run(page, "SELECT temperatur\nFROM weather");
    await page.locator(".sql-mark").waitFor();
    expect(await page.locator(".sql-mark").allTextContents()).toEqual(["temperatur"]);
    expect(await page.locator(".sql-error").textContent()).toContain("temperature");
    await shoot(page, "sql-server-mistake");
    expect(unexpected(watched)).toEqual([]);
    await watched.close();
  });

  test("a token sees its own tables only", async () => {
    const token = server.token("weather,site=north");
    const watched = await open(browser, `${server.url}#/sql`);
    const { page } = watched;
    await page
      .getByRole("dialog")
      .waitFor({ timeout: 10_000 })
      .catch(() => page.reload());
    await page.getByRole("dialog").locator("input").first().fill(token);
    await page.keyboard.press("Enter");
    await page
      .getByRole("button", { name: /FROM weather/ })
      .first()
      .waitFor();
    await run(page, "SELECT count(*) FROM weather");
    await page.getByText("1 row ·").waitFor();
    expect(await page.locator(".result tbody td").allTextContents()).toEqual(["400"]);
    await run(page, "SELECT * FROM yard");
    await page.locator(".sql-error").waitFor();
    await run(page, "SHOW TABLES");
    await said(page).getByText(/row/).waitFor();
    expect(await page.locator(".result").textContent()).not.toContain("yard");
    await watched.close();
  });
});
