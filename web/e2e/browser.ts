/** Debian's Chromium, driven by playwright-core. Nothing is downloaded. */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";

export const SCREENSHOTS = join(
  process.env["CARGO_TARGET_DIR"] ?? join(import.meta.dirname, "../../target"),
  "screenshots",
);

export function findChromium(): string {
  const named = process.env["CHROMIUM"];
  if (named) return named;
  for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
    try {
      return execFileSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).trim();
    } catch {
      // The next name may be there.
    }
  }
  throw new Error(
    "no Chromium: the browser tests need one. Install it with `apt-get install chromium fonts-dejavu-core`, or name one in CHROMIUM.",
  );
}

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: findChromium(),
    headless: true,
    args: ["--disable-dev-shm-usage", "--disable-gpu"],
  });
}

/** A page that collects what must not happen: errors, refusals of the content policy, requests to elsewhere. */
export interface Watched {
  readonly page: Page;
  readonly problems: string[];
  close(): Promise<void>;
}

export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Watched> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    locale: "en-GB",
    timezoneId: "Europe/Berlin",
    ...options,
  });
  const page = await context.newPage();
  const problems: string[] = [];
  const origin = new URL(url).origin;
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A refused token is shown by the browser as a failed load; the page deals with it.
    if (message.type() === "error" && !/status of 401/.test(message.text()))
      problems.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(origin) && !/^(data|blob):/.test(request.url())) {
      problems.push(`request to elsewhere: ${request.url()}`);
    }
  });
  await page.goto(url);
  return { page, problems, close: () => context.close() };
}

export async function shoot(page: Page, name: string): Promise<void> {
  mkdirSync(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
}

/** What the page counts of itself. */
export interface Counters {
  readonly explorer: {
    frames: number;
    blankFrames: number;
    firstPlotMs: number;
    steps: number;
    stepMsSum: number;
    stepMsMax: number;
  };
  readonly loader: { requests: number; inFlightMax: number; abandoned: number; failed: number };
}

export function counters(page: Page): Promise<Counters> {
  return page.evaluate(() => (globalThis as unknown as { headwater: Counters }).headwater);
}

/** Waits until nothing moves and nothing is asked for: frames, requests and the address stand still for a while. */
export async function settled(page: Page, quietMs = 350): Promise<void> {
  // What was quiet before does not count: the next frame may not have come yet.
  await page.evaluate(() => delete (globalThis as unknown as { seen?: unknown }).seen);
  await page.waitForFunction(
    (quiet) => {
      const { explorer, loader } = (globalThis as unknown as { headwater: Counters }).headwater;
      // Before the first plot everything is still on its way.
      if (explorer.firstPlotMs === 0) return false;
      const state = globalThis as unknown as { seen?: { at: number; mark: string } };
      const mark = `${explorer.frames} ${loader.requests} ${location.hash}`;
      if (state.seen?.mark !== mark) state.seen = { at: performance.now(), mark };
      return performance.now() - state.seen.at > quiet;
    },
    quietMs,
    { polling: 50, timeout: 15_000 },
  );
}
