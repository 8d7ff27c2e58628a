/** Draws the points of a channel: a band from least to greatest, the mean as a line, single events as dots. */
import type { Points } from "../lib/compose";

export interface Frame {
  readonly context: CanvasRenderingContext2D;
  /** The plot's area in canvas pixels. */
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** Canvas pixels per CSS pixel. */
  readonly ratio: number;
}

export interface Style {
  readonly line: string;
  readonly band: string;
  /** Draw steps instead of slopes: the value holds until the next one. */
  readonly stepped: boolean;
}

/** Dots appear when points are farther apart than this, in CSS pixels. */
const DOTS_APART = 14;

export function paint(frame: Frame, source: Line, size: number, low: number, high: number, style: Style): void {
  const { context, left, top, width, height, ratio } = frame;
  if (source.length === 0 || !(high > low)) return;
  const points = clipped(source, -size * MARGIN, size * (1 + MARGIN), style.stepped);
  const px = (i: number): number => left + ((points.x[i] ?? 0) / size) * width;
  // A locked scale may be far from the values; beyond some millions of pixels a canvas loses its way.
  const py = (value: number): number =>
    Math.min(top + height * 1000, Math.max(top - height * 1000, top + (1 - (value - low) / (high - low)) * height));

  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.lineJoin = "round";

  context.fillStyle = style.band;
  for (const [first, end] of stretches(points)) {
    if (end - first > 1) {
      context.beginPath();
      for (let i = first; i < end; i++) context.lineTo(px(i), py(points.max[i] ?? NaN));
      for (let i = end - 1; i >= first; i--) context.lineTo(px(i), py(points.min[i] ?? NaN));
      context.closePath();
      context.fill();
    } else {
      const upper = py(points.max[first] ?? NaN);
      context.fillRect(px(first) - ratio, upper, 2 * ratio, py(points.min[first] ?? NaN) - upper);
    }
  }

  context.strokeStyle = style.line;
  context.lineWidth = 1.4 * ratio;
  context.beginPath();
  for (const [first, end] of stretches(points)) {
    for (let i = first; i < end; i++) {
      const x = px(i);
      const y = py(points.mean[i] ?? NaN);
      if (i === first) context.moveTo(x, y);
      else {
        if (style.stepped) context.lineTo(x, py(points.mean[i - 1] ?? NaN));
        context.lineTo(x, y);
      }
    }
  }
  context.stroke();

  dots(frame, points, size, style, px, py);
  context.restore();
}

/** Distance of the lines of a hatching, in CSS pixels. */
const HATCH_PX = 9;

/** Marks a stretch, from and to as fractions of the width, by lines across it. */
export function hatch(frame: Frame, from: number, to: number, colour: string): void {
  const { context, left, top, width, height, ratio } = frame;
  const [low, high] = [left + Math.max(0, from) * width, left + Math.min(1, to) * width];
  if (!(high > low)) return;
  context.save();
  context.beginPath();
  context.rect(low, top, high - low, height);
  context.clip();
  context.globalAlpha = 0.06;
  context.fillStyle = colour;
  context.fillRect(low, top, high - low, height);
  context.globalAlpha = 0.26;
  context.strokeStyle = colour;
  context.lineWidth = ratio;
  context.beginPath();
  // Lines stand where they stood before, wherever the stretch begins.
  for (let x = left - height; x < left + width; x += HATCH_PX * ratio) {
    if (x + height < low || x > high) continue;
    context.moveTo(x, top + height);
    context.lineTo(x + height, top);
  }
  context.stroke();
  context.restore();
}

/** Marks an instant or a stretch, given as fractions of the width: a line with a flag at its top, or a band. */
export function mark(frame: Frame, from: number, to: number, colour: string, isCurrent: boolean): void {
  const { context, left, top, width, height, ratio } = frame;
  const [low, high] = [left + from * width, left + to * width];
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.fillStyle = colour;
  if (high - low > ratio) {
    context.globalAlpha = isCurrent ? 0.28 : 0.15;
    context.fillRect(low, top, high - low, height);
  }
  context.globalAlpha = isCurrent ? 1 : 0.7;
  context.fillRect(low - ratio / 2, top, (isCurrent ? 2 : 1) * ratio, height);
  context.beginPath();
  context.moveTo(low - 4 * ratio, top);
  context.lineTo(low + 4 * ratio, top);
  context.lineTo(low, top + 6 * ratio);
  context.fill();
  context.restore();
}

/** How far beyond the view lines are drawn, in widths. */
const MARGIN = 0.05;

type Line = Pick<Points, "length" | "x" | "mean" | "min" | "max" | "count" | "start">;

/**
 * The points, with those outside of [low, high] moved along their lines to the border: the next event may be a billion
 * widths away, where no canvas can draw to.
 */
export function clipped(points: Line, low: number, high: number, stepped: boolean): Line {
  const last = points.length - 1;
  const isOut = (i: number): boolean => i >= 0 && i <= last && ((points.x[i] ?? 0) < low || (points.x[i] ?? 0) > high);
  if (!isOut(0) && !isOut(last)) return points;
  const columns = [points.mean.slice(), points.min.slice(), points.max.slice()] as const;
  const x = points.x.slice();
  for (let i = 0; i <= last; i++) {
    if (!isOut(i)) continue;
    const here = points.x[i] ?? 0;
    // Left of the view the line to the next point is seen, right of it that from the one before.
    const other = here < low ? i + 1 : i - 1;
    if (other < 0 || other > last || points.start[Math.max(i, other)] === 1) continue;
    const border = here < low ? low : high;
    const share = (border - here) / ((points.x[other] ?? 0) - here);
    x[i] = border;
    [points.mean, points.min, points.max].forEach((source, k) => {
      const [from = NaN, to = NaN] = [source[i], source[other]];
      const column = columns[k];
      // A step's rise lies at the point itself: moved to the border, it stays outside of the view.
      if (column) column[i] = stepped ? from : from + (to - from) * share;
    });
  }
  return { ...points, x, mean: columns[0], min: columns[1], max: columns[2] };
}

function dots(
  { context, width, ratio }: Frame,
  points: Line,
  size: number,
  style: Style,
  px: (i: number) => number,
  py: (value: number) => number,
): void {
  const inView = points.x.reduce((sum, x) => sum + (x >= 0 && x <= size ? 1 : 0), 0);
  const areSparse = inView > 0 && width / inView > DOTS_APART * ratio;
  context.fillStyle = style.line;
  context.beginPath();
  for (let i = 0; i < points.length; i++) {
    const isAlone = points.start[i] === 1 && (i + 1 === points.length || points.start[i + 1] === 1);
    if (!isAlone && !(areSparse && points.count[i] === 1)) continue;
    const x = px(i);
    const y = py(points.mean[i] ?? NaN);
    // Far outside there is nothing to see.
    if (Number.isNaN(y) || (points.x[i] ?? 0) < -size || (points.x[i] ?? 0) > 2 * size) continue;
    context.moveTo(x + 2.4 * ratio, y);
    context.arc(x, y, 2.4 * ratio, 0, 2 * Math.PI);
  }
  context.fill();
}

/** Index ranges of points that belong together. */
function* stretches(points: Line): Generator<readonly [first: number, end: number]> {
  let first = 0;
  for (let i = 1; i <= points.length; i++) {
    if (i < points.length && points.start[i] === 0) continue;
    if (!Number.isNaN(points.mean[first] ?? NaN)) yield [first, i];
    first = i;
  }
}
