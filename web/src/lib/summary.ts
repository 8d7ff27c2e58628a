/** What a legend tells of the points in view. Pure. */
import type { Points } from "./compose";

export interface Summary {
  /** The newest in view. */
  readonly last: number;
  readonly min: number;
  /** Of all events, each counted once. */
  readonly mean: number;
  readonly max: number;
}

/** @param size the width of the view in nanoseconds; `undefined` where no point lies in it */
export function summaryOf(points: Points | undefined, size: number): Summary | undefined {
  let [last, min, max, sum, count] = [NaN, Infinity, -Infinity, 0, 0];
  for (let i = 0; i < (points?.length ?? 0); i++) {
    const x = points?.x[i] ?? -1;
    const mean = points?.mean[i] ?? NaN;
    if (!points || x < 0 || x > size || Number.isNaN(mean)) continue;
    const weight = points.count[i] ?? 0;
    last = mean;
    min = Math.min(min, points.min[i] ?? mean);
    max = Math.max(max, points.max[i] ?? mean);
    sum += mean * weight;
    count += weight;
  }
  return count > 0 ? { last, min, mean: sum / count, max } : undefined;
}
