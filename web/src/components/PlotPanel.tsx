/** One plot: legend, vertical scale and grid (uPlot), and the channels painted into it on each frame. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { useShared } from "../context";
import type { Channel } from "../explore/channels";
import type { Explorer } from "../explore/explorer";
import { isOnTheRight, scalesOf, type Plot, type Scale } from "../explore/plots";
import { hatch, mark as paintMark, paint } from "../explore/paint";
import { isOf } from "../lib/marks";
import { axisLabels, valueTicks, type Range } from "../lib/scale";
import type { Palette, Theme } from "../lib/theme";
import { timeTicks } from "../lib/ticks";
import { fractionOf } from "../lib/view";
import { cursorPoint, Legend } from "./Legend";
import { AwayNote, Nothing } from "./Nothing";

/** Room for the time marks: about one per this many pixels. */
export const TICK_PX = 84;

export interface Frame {
  readonly width: number;
  readonly gutter: number;
  readonly right: number;
}

interface PlotPanelProps {
  readonly plot: Plot;
  readonly frame: Frame;
  readonly height: number;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

export function PlotPanel({ plot, frame, height, isFirst, isLast }: PlotPanelProps): JSX.Element {
  const { explorer, theme } = useShared();
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const latest = useRef(plot);
  latest.current = plot;
  const hasRight = scalesOf(plot).length > 1;

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = makeChart(element, explorer, theme, () => latest.current, frame, height);
    chart.current = made;
    const draw = (): void => drawChart(made, explorer, latest.current);
    const stops = [explorer.painted.subscribe(draw), theme.changed.subscribe(draw)];
    draw();
    return () => {
      for (const stop of stops) stop();
      made.destroy();
      chart.current = undefined;
    };
  }, [explorer, theme, frame.gutter, frame.right, hasRight]);

  useLayoutEffect(() => {
    chart.current?.setSize({ width: frame.width, height });
  }, [frame.width, height]);

  return (
    <section class="plot" data-plot={plot.key} aria-label={`Plot of ${plot.channels.map((c) => c.name).join(", ")}`}>
      <Legend plot={plot} isFirst={isFirst} isLast={isLast} />
      <div class="chart-place">
        <div class="chart" data-picture="canvas" ref={place} />
        <Nothing plot={plot} />
        <AwayNote plot={plot} />
      </div>
      <Handle plotKey={plot.key} height={height} />
    </section>
  );
}

function makeChart(
  element: HTMLElement,
  explorer: Explorer,
  theme: Theme,
  plot: () => Plot,
  frame: Frame,
  height: number,
): uPlot {
  const palette = (): Palette => theme.palette;
  const grid = { stroke: () => palette().grid, width: 1 };
  const hasRight = scalesOf(plot()).length > 1;
  const vertical: uPlot.Axis = {
    gap: 6,
    grid,
    ticks: { show: false },
    stroke: () => palette().muted,
    font: "11px system-ui, sans-serif",
    splits: (u, _axis, low, high) => valueTicks([low, high], markCount(u.bbox.height / devicePixelRatio)).ticks,
    values: (_u, splits) => axisLabels(splits),
  };
  return new uPlot(
    {
      width: frame.width,
      height,
      padding: [6, hasRight ? 0 : frame.right, 7, 0],
      legend: { show: false },
      cursor: { show: false },
      // Positions are fractions of the view: a double could not hold the instants themselves.
      scales: {
        x: { time: false, auto: false, range: [0, 1] },
        y: { auto: false, range: [0, 1] },
        y2: { auto: false, range: [0, 1] },
      },
      series: [{}, { show: false }, { show: false, scale: "y2" }],
      axes: [
        {
          size: 0,
          grid,
          ticks: { show: false },
          splits: (u) => {
            const ticks = timeTicks(explorer.view, u.bbox.width / devicePixelRatio / TICK_PX, explorer.zone);
            return ticks.map((tick) => fractionOf(explorer.view, tick.at));
          },
          values: (_u, splits) => splits.map(() => ""),
        },
        { ...vertical, size: frame.gutter },
        // Its marks are at other heights than those on the left: one grid is enough.
        { ...vertical, scale: "y2", side: 1, size: frame.right, grid: { show: false }, show: hasRight },
      ],
      hooks: { draw: [(u) => paintChart(u, explorer, plot(), palette())] },
    },
    [
      [0, 1],
      [null, null],
      [null, null],
    ],
    element,
  );
}

/** How many marks a vertical scale of a height has room for. */
function markCount(height: number): number {
  return Math.min(9, Math.max(2, height / 34));
}

function drawChart(chart: uPlot, explorer: Explorer, plot: Plot): void {
  const [left, right] = scalesOf(plot);
  const set = (name: string, scale: Scale): void => {
    const [low, high] = explorer.scale(scale.key);
    chart.setScale(name, { min: low, max: high });
  };
  chart.batch(() => {
    set("y", left);
    set("y2", right ?? left);
    chart.redraw(false, true);
  });
}

function paintChart(chart: uPlot, explorer: Explorer, plot: Plot, palette: Palette): void {
  const size = Number(explorer.view.to - explorer.view.from);
  const { left, top, width, height } = chart.bbox;
  const ratio = devicePixelRatio;
  const context = chart.ctx;
  const [onTheLeft, onTheRight] = scalesOf(plot);
  const rangeOf = (channel: Channel): Range =>
    explorer.scale((isOnTheRight(plot, channel) ? onTheRight : undefined)?.key ?? onTheLeft.key);
  for (const channel of plot.channels) {
    for (const mark of explorer.away.marks(channel, explorer.view, explorer.level, explorer.zone)) {
      const [from, to] = [fractionOf(explorer.view, mark.from), fractionOf(explorer.view, mark.to)];
      hatch({ context, left, top, width, height, ratio }, from, to, mark.isInReach ? palette.muted : palette.danger);
    }
  }
  for (const channel of plot.channels) {
    if (!channel.points) continue;
    const line = palette.series[channel.colour] ?? palette.ink;
    const style = { line, band: `${line}38`, stepped: channel.type === "bool" };
    const [low, high] = rangeOf(channel);
    paint({ context, left, top, width, height, ratio }, channel.points, size, low, high, style);
  }
  paintMarks({ context, left, top, width, height, ratio }, explorer, plot, palette);
  if (explorer.cursor === undefined) return;
  context.save();
  for (const channel of plot.channels) {
    const at = cursorPoint(explorer, channel);
    if (!channel.points || at === undefined) continue;
    const value = channel.points.mean[at] ?? NaN;
    const [low, high] = rangeOf(channel);
    const x = left + ((channel.points.x[at] ?? 0) / size) * width;
    const y = top + (1 - (value - low) / (high - low)) * height;
    if (!(x >= left && x <= left + width && y >= top && y <= top + height)) continue;
    context.beginPath();
    context.arc(x, y, 4 * ratio, 0, 2 * Math.PI);
    context.fillStyle = palette.series[channel.colour] ?? palette.ink;
    context.fill();
    context.lineWidth = 2 * ratio;
    context.strokeStyle = palette.surface;
    context.stroke();
  }
  context.restore();
}

/** Marks closer together than this are drawn as one, in CSS pixels. */
const MARKS_APART = 1.5;

function paintMarks(frame: Parameters<typeof paintMark>[0], explorer: Explorer, plot: Plot, palette: Palette): void {
  const { view } = explorer;
  const { marks, at } = explorer.marking;
  const apart = (MARKS_APART * frame.ratio) / frame.width;
  let free = -Infinity;
  for (const [k, mark] of (marks?.all ?? []).entries()) {
    const isCurrent = k === at;
    if (mark.to < view.from || mark.from > view.to) continue;
    const [from, to] = [fractionOf(view, mark.from), fractionOf(view, mark.to)];
    if (from < free && !isCurrent) continue;
    if (!plot.channels.some((channel) => isOf(mark, channel.stream))) continue;
    paintMark(frame, from, to, palette.accent, isCurrent);
    free = from + apart;
  }
}

interface HandleProps {
  readonly plotKey: string;
  readonly height: number;
}

const STEP_PX = 20;

/** The strip below a plot that changes its height, by pointer or by arrows; a double click gives it back. */
function Handle({ plotKey, height }: HandleProps): JSX.Element {
  const { explorer } = useShared();
  const drag = useRef<{ readonly y: number; readonly height: number } | undefined>(undefined);
  return (
    <div
      class="handle"
      role="separator"
      aria-orientation="horizontal"
      aria-label="Height of the plot"
      aria-valuenow={height}
      tabIndex={0}
      title="Drag for another height; double click to fit"
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        drag.current = { y: event.clientY, height };
      }}
      onPointerMove={(event) => {
        if (drag.current) explorer.setHeight(plotKey, drag.current.height + event.clientY - drag.current.y);
      }}
      onPointerUp={() => (drag.current = undefined)}
      onPointerCancel={() => (drag.current = undefined)}
      onDblClick={() => explorer.setHeight(plotKey, undefined)}
      onKeyDown={(event) => {
        if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
        event.preventDefault();
        event.stopPropagation();
        explorer.setHeight(plotKey, height + (event.key === "ArrowDown" ? STEP_PX : -STEP_PX));
      }}
    />
  );
}
