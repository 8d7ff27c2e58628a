/** The time axis below all plots. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { timeTicks } from "../lib/ticks";
import { digitsFor, floorDiv, formatInstant, MILLI, offsetText, zoneOffsetMs } from "../lib/time";
import { fractionOf, instantAt } from "../lib/view";
import { TICK_PX, type Frame } from "./PlotPanel";

const HEIGHT = 38;

export function TimeAxis({ frame }: { frame: Frame }): JSX.Element {
  const { explorer, theme } = useShared();
  const canvas = useRef<HTMLCanvasElement>(null);

  useEffect(() => {
    const draw = (): void => {
      const element = canvas.current;
      const context = element?.getContext("2d");
      if (!element || !context) return;
      const ratio = devicePixelRatio;
      element.width = Math.round(frame.width * ratio);
      element.height = HEIGHT * ratio;
      context.scale(ratio, ratio);
      context.font = "11px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "top";
      const { gutter, right, width } = frame;
      const inner = width - gutter - right;
      let free = 0;
      for (const tick of timeTicks(explorer.view, inner / TICK_PX, explorer.zone)) {
        const x = gutter + fractionOf(explorer.view, tick.at) * inner;
        context.fillStyle = theme.palette.grid;
        context.fillRect(Math.round(x), 0, 1, 4);
        context.fillStyle = theme.palette.muted;
        context.fillText(tick.label, x, 7);
        if (tick.context === undefined) continue;
        // A context that would run into the one before, or out of the page, is moved or left out.
        const half = context.measureText(tick.context).width / 2;
        const at = Math.min(Math.max(x, half + 4), width - half - 4);
        if (at - half < free) continue;
        context.fillStyle = theme.palette.ink;
        context.fillText(tick.context, at, 21);
        free = at + half + 14;
      }
    };
    const stops = [explorer.painted.subscribe(draw), theme.changed.subscribe(draw)];
    draw();
    return () => {
      for (const stop of stops) stop();
    };
  }, [explorer, theme, frame]);

  return (
    <div class="time-axis" data-picture="canvas" aria-hidden="true">
      <canvas ref={canvas} style={{ width: `${frame.width}px`, height: `${HEIGHT}px` }} />
      <Flag frame={frame} />
    </div>
  );
}

/** Half of the flag's width at most, so that it stays on the page. */
const FLAG_HALF_PX = 116;

/** When the cursor stands: in the chosen zone and in UTC, which may be the same. */
function Flag({ frame }: { frame: Frame }): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  const { cursor, view } = explorer;
  if (cursor === undefined) return null;
  const inner = frame.width - frame.gutter - frame.right;
  const at = instantAt(view, cursor);
  const digits = digitsFor(view, inner);
  const zone = explorer.zone === "utc" ? "local" : explorer.zone;
  const isApart = zoneOffsetMs(Number(floorDiv(at, MILLI)), zone) !== 0;
  const x = Math.min(Math.max(frame.gutter + cursor * inner, FLAG_HALF_PX), frame.width - FLAG_HALF_PX);
  return (
    <div class="flag" style={{ left: `${x}px` }}>
      {isApart && (
        <span>
          {formatInstant(at, zone, digits)} <span class="soft">{offsetText(at, zone)}</span>
        </span>
      )}
      <span>
        {formatInstant(at, "utc", digits)} <span class="soft">UTC</span>
      </span>
    </div>
  );
}
