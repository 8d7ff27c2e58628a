/** All plots over one time axis, with the cursor across them and the gestures on them. */
import type { JSX, RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { scalesOf, type Plot } from "../explore/plots";
import { attachGestures } from "../explore/gestures";
import { formatInstant, formatLength } from "../lib/time";
import { fractionOf, instantAt } from "../lib/view";
import { legendHeight } from "./Legend";
import { PlotPanel, type Frame } from "./PlotPanel";
import { RowPanel, type Picked } from "./RowPanel";
import { TimeAxis } from "./TimeAxis";

const AXIS_PX = 38;
/** The strip below a plot that changes its height. */
const HANDLE_PX = 5;
const HEIGHT_MIN = 130;

interface PlotsProps {
  readonly area: RefObject<HTMLDivElement | null>;
  readonly say: (text: string) => void;
}

export function Plots({ area, say }: PlotsProps): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [mark, setMark] = useState<readonly [number, number]>();
  const [picked, setPicked] = useState<Picked>();
  const plots = explorer.plots();
  // Plots have one axis of time, so that where one has a scale on the right all leave room for it.
  const hasRight = plots.some((plot) => scalesOf(plot).length > 1);
  const frame = useMemo<Frame>(() => {
    const isNarrow = size.width < 520;
    const gutter = isNarrow ? 46 : 62;
    return { width: size.width, gutter, right: hasRight ? gutter : isNarrow ? 8 : 16 };
  }, [size.width, hasRight]);
  const frameNow = useRef(frame);
  frameNow.current = frame;
  const isTold = useRef(false);

  useEffect(() => {
    const element = area.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    const stop = attachGestures(element, explorer, {
      area: () => ({
        left: element.getBoundingClientRect().left + frameNow.current.gutter,
        width: frameNow.current.width - frameNow.current.gutter - frameNow.current.right,
      }),
      mark: setMark,
      pick: (fraction, on) => {
        const key = on.closest(".chart-place")?.closest<HTMLElement>("[data-plot]")?.dataset["plot"];
        setPicked(fraction === undefined || key === undefined ? undefined : { plot: key, fraction });
      },
      scrolled: () => {
        if (isTold.current) return;
        isTold.current = true;
        say("There are more plots than fit: the wheel scrolls, Ctrl + wheel zooms.");
      },
    });
    return () => {
      observer.disconnect();
      stop();
    };
  }, [explorer, area, say]);

  const inner = frame.width - frame.gutter - frame.right;
  useEffect(() => explorer.resize(inner), [explorer, inner]);

  const height = sharedHeight(plots, explorer.heights, size.height);
  const shown = plots.find((plot) => plot.key === picked?.plot);
  return (
    <>
      <div class="plots" ref={area}>
        {size.width > 0 && (
          <>
            {plots.map((plot, index) => (
              <PlotPanel
                key={plot.key}
                plot={plot}
                frame={frame}
                height={explorer.heights.get(plot.key) ?? height}
                isFirst={index === 0}
                isLast={index === plots.length - 1}
              />
            ))}
            <TimeAxis frame={frame} />
            <div class="over" style={{ left: `${frame.gutter}px`, width: `${Math.max(0, inner)}px` }}>
              <CursorLine inner={inner} />
              <Playhead inner={inner} />
              {mark && (
                <div
                  class="mark"
                  style={{
                    left: `${Math.min(...mark) * 100}%`,
                    width: `${Math.abs(mark[1] - mark[0]) * 100}%`,
                  }}
                />
              )}
            </div>
          </>
        )}
      </div>
      {picked && shown && <RowPanel plot={shown} picked={picked} onClose={() => setPicked(undefined)} />}
    </>
  );
}

/** What is left of the place for each plot whose height was not chosen. */
function sharedHeight(plots: readonly Plot[], heights: ReadonlyMap<string, number>, room: number): number {
  let left = room - AXIS_PX;
  let sharing = 0;
  for (const plot of plots) {
    const chosen = heights.get(plot.key);
    left -= legendHeight(plot) + HANDLE_PX + (chosen ?? 0);
    if (chosen === undefined) sharing++;
  }
  return Math.max(HEIGHT_MIN, Math.floor(left / Math.max(1, sharing)) - 1);
}

function CursorLine({ inner }: { inner: number }): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  const { cursor } = explorer;
  return cursor === undefined ? null : <div class="cursor" style={{ transform: `translateX(${cursor * inner}px)` }} />;
}

/** Position of the replay: what lies behind it has not happened yet. */
function Playhead({ inner }: { inner: number }): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  const { replay, view } = explorer;
  if (!replay.range) return null;
  const x = fractionOf(view, replay.at) * inner;
  return (
    <>
      <div class="future" style={{ left: `${Math.min(inner, Math.max(0, x))}px` }} />
      {x >= 0 && x <= inner && <div class="playhead" style={{ transform: `translateX(${x}px)` }} />}
    </>
  );
}

/** Tells those who cannot see the plots what is shown, a moment after it came to rest. */
export function Announcer(): JSX.Element {
  const { explorer } = useShared();
  const [text, setText] = useState("");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const stop = explorer.painted.subscribe(() => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        const { cursor, goal, zone } = explorer;
        const at = cursor === undefined ? "" : `, cursor at ${formatInstant(instantAt(goal, cursor), zone, 6)}`;
        setText(
          `Showing ${formatLength(Number(goal.to - goal.from))} from ${formatInstant(goal.from, zone, 3)} to ${formatInstant(goal.to, zone, 3)}${at}`,
        );
      }, 700);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [explorer]);
  return (
    <p class="unseen" role="status">
      {text}
    </p>
  );
}
