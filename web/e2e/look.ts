/** What the tests see of the page: what is drawn, where the view is, what is written. */
import type { Page } from "playwright-core";
import { readRoute, type ViewState } from "../src/lib/address";
import { width } from "../src/lib/view";

/** The state in the page's address. */
export function state(page: Page): ViewState {
  const route = readRoute(new URL(page.url()).hash);
  if (route.page !== "view") throw new Error(`not a view: ${page.url()}`);
  return route.state;
}

/** Width of the view in seconds, as the address has it. */
export function seconds(page: Page): number {
  const { view } = state(page);
  return view ? width(view) / 1e9 : NaN;
}

/** How many of a plot's pixel columns show something of the series' colour: its line, band or dots. */
export function drawnColumns(page: Page, plot = 0): Promise<{ drawn: number; all: number }> {
  return page.evaluate((index) => {
    const canvas = document.querySelectorAll<HTMLCanvasElement>(".chart canvas")[index];
    const swatch = document.querySelectorAll<HTMLElement>(".legend .swatch")[index];
    const context = canvas?.getContext("2d");
    if (!canvas || !swatch || !context) return { drawn: 0, all: 0 };
    const [r = 0, g = 0, b = 0] = (getComputedStyle(swatch).backgroundColor.match(/\d+/g) ?? []).map(Number);
    const left = Math.round(66 * devicePixelRatio);
    const all = canvas.width - left - Math.round(20 * devicePixelRatio);
    const { data } = context.getImageData(left, 0, all, canvas.height);
    // The hue of the series, at whatever strength: which channels exceed which.
    const tint = [r - g, g - b, b - r];
    let drawn = 0;
    for (let x = 0; x < all; x++) {
      for (let y = 0; y < canvas.height; y++) {
        const at = (y * all + x) * 4;
        const alpha = data[at + 3] ?? 0;
        if (alpha === 0) continue;
        const [pr = 0, pg = 0, pb = 0] = [data[at], data[at + 1], data[at + 2]];
        const here = [pr - pg, pg - pb, pb - pr];
        const likeness = tint.reduce((sum, t, k) => sum + t * (here[k] ?? 0), 0);
        const size = Math.hypot(...tint) * Math.hypot(...here);
        if (size > 0 && likeness / size > 0.95 && Math.hypot(...here) > 20) {
          drawn++;
          break;
        }
      }
    }
    return { drawn, all };
  }, plot);
}

/** From where to where line and band of a channel of the first plot reach, as a share of the plot's height. */
export function drawnHeight(page: Page, which: number): Promise<number> {
  return page.evaluate((index) => {
    const canvas = document.querySelector<HTMLCanvasElement>(".chart canvas");
    const swatch = document.querySelectorAll<HTMLElement>(".legend .swatch")[index];
    const context = canvas?.getContext("2d");
    if (!canvas || !swatch || !context) return 0;
    const [r = 0, g = 0, b = 0] = (getComputedStyle(swatch).backgroundColor.match(/\d+/g) ?? []).map(Number);
    const tint = [r - g, g - b, b - r];
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    let [first, last] = [canvas.height, 0];
    for (let at = 0; at < data.length; at += 4) {
      const [pr = 0, pg = 0, pb = 0] = [data[at], data[at + 1], data[at + 2]];
      const here = [pr - pg, pg - pb, pb - pr];
      const size = Math.hypot(...tint) * Math.hypot(...here);
      const likeness = tint.reduce((sum, t, k) => sum + t * (here[k] ?? 0), 0);
      if ((data[at + 3] ?? 0) < 40 || !(size > 0) || likeness / size < 0.97 || Math.hypot(...here) < 60) continue;
      const y = Math.floor(at / 4 / canvas.width);
      first = Math.min(first, y);
      last = Math.max(last, y);
    }
    return (last - first) / canvas.height;
  }, which);
}

/** The middle of the first plot, in page coordinates. */
export async function middle(page: Page): Promise<{ x: number; y: number }> {
  const box = await page.locator(".chart").first().boundingBox();
  if (!box) throw new Error("no plot");
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

/**
 * Whether nothing is wider than the screen. A phone's browser makes the page as wide as its widest part, and tells that
 * width as the window's: what was asked for is compared.
 */
export async function hasNoOverflow(page: Page): Promise<boolean> {
  const width = page.viewportSize()?.width ?? 0;
  return page.evaluate(
    (asked) => document.documentElement.scrollWidth <= asked && document.body.scrollWidth <= asked,
    width,
  );
}
