/** The range of a vertical scale: what is seen, with room, reached by easing so that zooming does not make it jump. */

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
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (digit === 2.5 ? 1 : 0));
  const ticks: number[] = [];
  for (let k = Math.ceil(low / step - 1e-9) + 0; k * step <= high + step * 1e-9 && ticks.length < 100; k++)
    ticks.push(k * step);
  return { ticks, decimals };
}
