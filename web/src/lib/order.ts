/** Searching in what is in order. */

/** Index of the first element of which something holds that holds of all behind it; the length if of none. */
export function lowerBoundBy<T>(sorted: readonly T[], holds: (element: T) => boolean): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const element = sorted[middle];
    if (element !== undefined && !holds(element)) low = middle + 1;
    else high = middle;
  }
  return low;
}
