/** The lines of an answer over its times. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { useEmitter, useShared } from "../context";
import type { ChartData } from "../lib/result";
import { isZone } from "../lib/time";

/** Labels of the time axis: from which distance of marks on, the label, and what a label adds when year, day or minute change. */
const LABELS: uPlot.Axis.DynamicValues | uPlot.Axis.Values = [
  [31_536_000, "{YYYY}", null, null, null, null, null, null, 1],
  [2_419_200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86_400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, ":{ss}", "\n{D} {MMM} {YYYY} {HH}:{mm}", null, "\n{D} {MMM} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
  [0.001, ":{ss}.{fff}", "\n{D} {MMM} {YYYY} {HH}:{mm}", null, "\n{D} {MMM} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

export function ResultChart({ chart }: { chart: ChartData }): JSX.Element {
  const { explorer, theme } = useShared();
  useEmitter(theme.changed);
  const place = useRef<HTMLDivElement>(null);
  const { zone } = explorer;
  const { palette } = theme;

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    // The legend stands below the plot.
    const size = (): { width: number; height: number } => ({
      width: element.clientWidth,
      height: Math.max(140, element.clientHeight - 20 - 24 * Math.ceil(chart.lines.length / 3)),
    });
    const axis = {
      stroke: palette.muted,
      grid: { stroke: palette.grid, width: 1 },
      ticks: { stroke: palette.grid, width: 1 },
    };
    const made = new uPlot(
      {
        ...size(),
        tzDate: (at) =>
          zone === "local" || !isZone(zone)
            ? new Date(at * 1000)
            : uPlot.tzDate(new Date(at * 1000), zone === "utc" ? "Etc/UTC" : zone),
        axes: [
          { ...axis, values: LABELS },
          { ...axis, size: 64 },
        ],
        series: [
          { label: "time", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
          ...chart.lines.map(({ label }, k) => ({
            label,
            stroke: palette.series[k % palette.series.length] ?? palette.ink,
            width: 1.4,
            spanGaps: true,
            points: { show: chart.x.length < 100 },
          })),
        ],
      },
      [[...chart.x], ...chart.lines.map(({ values }) => [...values])],
      element,
    );
    const observer = new ResizeObserver(() => made.setSize(size()));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [chart, palette, zone]);

  return (
    <>
      {chart.left > 0 && (
        <p class="hint">
          {chart.left} more lines cannot be shown: group by fewer tags, or select some of them with WHERE.
        </p>
      )}
      <div
        class="result-chart"
        ref={place}
        role="img"
        aria-label={`Chart of ${chart.lines.map((l) => l.label).join(", ")}`}
      />
    </>
  );
}
