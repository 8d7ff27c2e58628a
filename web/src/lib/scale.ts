/** The range of a vertical scale: what is seen, with room, reached by easing so that zooming does not make it jump. */
import { formatFixed, formatValue } from "./format";

export type Range = readonly [low: number, high: number];

/** The range that shows values, with a twentieth of room; a single value gets a range around it. */
export function roomy([low, high]: Range): Range {
  const size = high - low;
  if (!(size > 0)) {
    const half = low === 0 ? 1 : Math.abs(low) * 0.05;
    return [low - half, high + half];
  }
  const room = Math.max(size * 0.06, Math.abs(high + low) * 1e-12);
  return [low - room, high + room];
}

/** Time constant of the easing. */
const EASE_MS = 90;

/** The range after `elapsed` ms on the way to `goal`; `goal` itself when the rest is not visible. */
export function eased(now: Range | undefined, goal: Range, elapsed: number): Range {
  if (!now) return goal;
  const size = goal[1] - goal[0];
  const before = now[1] - now[0];
  // Far apart, a straight way would show a flat line for most of it.
  if (!(before > 0) || size / before > 50 || before / size > 50) return goal;
  const share = 1 - Math.exp(-elapsed / EASE_MS);
  const next: Range = [now[0] + (goal[0] - now[0]) * share, now[1] + (goal[1] - now[1]) * share];
  const tolerance = size * 2e-3;
  return Math.abs(next[0] - goal[0]) < tolerance && Math.abs(next[1] - goal[1]) < tolerance ? goal : next;
}

export function union(a: Range | undefined, b: Range | undefined): Range | undefined {
  if (!a || !b) return a ?? b;
  return [Math.min(a[0], b[0]), Math.max(a[1], b[1])];
}

/** Round steps for marks: 1, 2, 2.5, 5 times a power of ten, at most `count` in a range. */
export function valueTicks([low, high]: Range, count: number): { ticks: number[]; decimals: number } {
  const size = high - low;
  if (!(size > 0) || !Number.isFinite(size)) return { ticks: [low], decimals: 3 };
  const least = size / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(least));
  const digit = [1, 2, 2.5, 5, 10].find((each) => each * power >= least * 0.999) ?? 10;
  const step = digit * power;
  const decimals = decimalsOf(step);
  const ticks: number[] = [];
  for (let k = Math.ceil(low / step - 1e-9) + 0; k * step <= high + step * 1e-9 && ticks.length < 100; k++)
    ticks.push(k * step);
  return { ticks, decimals };
}

/** More digits than this have no room at the axis. */
const AXIS_DIGITS_MAX = 6;

/**
 * Labels of marks at equal steps, all different. Where that takes too many digits, the lowest mark tells roughly where it
 * is, and the others how much they are above it.
 */
export function axisLabels(marks: readonly number[]): string[] {
  const [first = 0, second = first] = marks;
  const step = Math.abs(second - first);
  const size = Math.max(...marks.map(Math.abs));
  if (!(step > 0)) return marks.map((mark) => formatValue(mark));
  const decimals = decimalsOf(step);
  if (size < 1e6 && decimals <= AXIS_DIGITS_MAX) return marks.map((mark) => formatFixed(mark, decimals));
  const digits = Math.ceil(Math.log10(size / step)) + 2;
  if (digits <= AXIS_DIGITS_MAX) return marks.map((mark) => (Math.abs(mark) < step / 2 ? "0" : exponent(mark, digits)));
  return marks.map((mark, index) => (index === 0 ? exponent(mark, 4) : `+${formatValue(mark - first, 4)}`));
}

function exponent(value: number, digits: number): string {
  const [mantissa = "", power = ""] = value.toExponential(digits - 1).split("e");
  return `${Number(mantissa)}e${Number(power)}`.replaceAll("-", "−");
}

/** How many decimals a step of the form 1, 2, 2.5 or 5 times a power of ten has. */
function decimalsOf(step: number): number {
  const power = Math.floor(Math.log10(step) + 1e-9);
  const digit = step / 10 ** power;
  return Math.max(0, -power + (Math.abs(digit - 2.5) < 0.01 ? 1 : 0));
}
