/** One plot: legend, vertical scale and grid (uPlot), and the channels painted into it on each frame. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { useEmitter, useShared } from "../context";
import type { Channel } from "../explore/channels";
import type { Explorer, Plot } from "../explore/explorer";
import { paint } from "../explore/paint";
import { streamLabel } from "../lib/channel";
import { closest } from "../lib/compose";
import { formatCount, formatReading, formatValue } from "../lib/format";
import { axisLabels, valueTicks } from "../lib/scale";
import type { Palette, Theme } from "../lib/theme";
import { timeTicks } from "../lib/ticks";
import { fractionOf } from "../lib/view";
import { Icon } from "./icons";

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
}

export function PlotPanel({ plot, frame, height }: PlotPanelProps): JSX.Element {
  const { explorer, theme } = useShared();
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const latest = useRef(plot);
  latest.current = plot;

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
  }, [explorer, theme, frame.gutter]);

  useLayoutEffect(() => {
    chart.current?.setSize({ width: frame.width, height });
  }, [frame.width, height]);

  return (
    <section class="plot" aria-label={`Plot of ${plot.channels.map((c) => c.name).join(", ")}`}>
      <Legend plot={plot} />
      <div class="chart" data-picture="canvas" ref={place} />
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
  return new uPlot(
    {
      width: frame.width,
      height,
      padding: [6, frame.right, 7, 0],
      legend: { show: false },
      cursor: { show: false },
      // Positions are fractions of the view: a double could not hold the instants themselves.
      scales: { x: { time: false, auto: false, range: [0, 1] }, y: { auto: false, range: [0, 1] } },
      series: [{}, { show: false }],
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
        {
          size: frame.gutter,
          gap: 6,
          grid,
          ticks: { show: false },
          stroke: () => palette().muted,
          font: "11px system-ui, sans-serif",
          splits: (u, _axis, low, high) => valueTicks([low, high], markCount(u.bbox.height / devicePixelRatio)).ticks,
          values: (_u, splits) => axisLabels(splits),
        },
      ],
      hooks: { draw: [(u) => paintChart(u, explorer, plot(), palette())] },
    },
    [
      [0, 1],
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
  const [low, high] = explorer.scale(plot.key);
  chart.batch(() => {
    chart.setScale("y", { min: low, max: high });
    chart.redraw(false, true);
  });
}

function paintChart(chart: uPlot, explorer: Explorer, plot: Plot, palette: Palette): void {
  const size = Number(explorer.view.to - explorer.view.from);
  const { left, top, width, height } = chart.bbox;
  const ratio = devicePixelRatio;
  const context = chart.ctx;
  const [low, high] = explorer.scale(plot.key);
  for (const channel of plot.channels) {
    if (!channel.points) continue;
    const line = palette.series[channel.colour] ?? palette.ink;
    const style = { line, band: `${line}38`, stepped: channel.type === "bool" };
    paint({ context, left, top, width, height, ratio }, channel.points, size, low, high, style);
  }
  if (explorer.cursor === undefined) return;
  context.save();
  for (const channel of plot.channels) {
    const at = cursorPoint(explorer, channel);
    if (!channel.points || at === undefined) continue;
    const value = channel.points.mean[at] ?? NaN;
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

/** The point the cursor points at; none in a gap. */
function cursorPoint(explorer: Explorer, channel: Channel): number | undefined {
  const { points } = channel;
  if (!points || explorer.cursor === undefined) return undefined;
  const size = Number(explorer.view.to - explorer.view.from);
  const position = explorer.cursor * size;
  const index = closest(points, position);
  if (index === undefined) return undefined;
  const x = points.x[index] ?? 0;
  // Between two connected points the nearer one counts, however far; beyond an end only what is close.
  const isInside =
    x <= position ? index + 1 < points.length && points.start[index + 1] === 0 : points.start[index] === 0;
  return isInside || Math.abs(x - position) < size / 60 ? index : undefined;
}

function Legend({ plot }: { plot: Plot }): JSX.Element {
  const { explorer, theme } = useShared();
  useEmitter(explorer.painted);
  useEmitter(theme.changed);
  const isLocked = explorer.locks.has(plot.key);
  return (
    <div class="legend" data-picture="text">
      {plot.channels.map((channel) => (
        <LegendItem key={channel.name} channel={channel} />
      ))}
      <button
        type="button"
        class={isLocked ? "ghost small lock on" : "ghost small lock"}
        aria-pressed={isLocked}
        aria-label={isLocked ? "Let the scale follow the values" : "Keep the scale as it is"}
        title={isLocked ? "Let the scale follow the values" : "Keep the scale as it is"}
        onClick={() => explorer.toggleLock(plot.key)}
      >
        <Icon name={isLocked ? "lock" : "unlock"} />
      </button>
    </div>
  );
}

function LegendItem({ channel }: { channel: Channel }): JSX.Element {
  const { explorer, theme } = useShared();
  const colour = theme.palette.series[channel.colour] ?? theme.palette.ink;
  const { table, tags } = streamLabel(channel.stream);
  const refused = explorer.loader.refused.get(channel.name);
  const where = [table, ...tags.map(([key, value]) => `${key}=${value}`)].join(" ");
  return (
    <span class="legend-item" data-label={`${channel.field}  ${where}`} data-colour={colour}>
      <span class="swatch" style={{ backgroundColor: colour }} />
      <b>{channel.field}</b>
      <span class="soft where">{where}</span>
      {refused ? <span class="error">{refused.message}</span> : <Reading channel={channel} />}
      <button
        type="button"
        class="ghost small remove"
        aria-label={`Remove ${channel.name}`}
        title="Remove"
        onClick={() => explorer.toggle(channel.name)}
      >
        <Icon name="close" />
      </button>
    </span>
  );
}

/** The value under the cursor; while live and without one, the newest. */
function Reading({ channel }: { channel: Channel }): JSX.Element | null {
  const { explorer } = useShared();
  const { points } = channel;
  const newest = channel.tail[channel.tail.length - 1];
  if (explorer.cursor === undefined && explorer.live && newest) {
    return <span class="reading">{formatReading(newest.value)}</span>;
  }
  const index = cursorPoint(explorer, channel);
  if (!points || index === undefined) return null;
  const count = points.count[index] ?? 0;
  const mean = points.mean[index] ?? NaN;
  if (count <= 1) return <span class="reading">{formatReading(mean)}</span>;
  return (
    <span class="reading">
      {formatValue(mean)}{" "}
      <span class="soft">
        {formatValue(points.min[index] ?? NaN)} … {formatValue(points.max[index] ?? NaN)} · {formatCount(count)}
      </span>
    </span>
  );
}
