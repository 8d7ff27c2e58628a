/** All plots over one time axis, with the cursor across them and the gestures on them. */
import type { JSX, RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { attachGestures } from "../explore/gestures";
import { formatInstant, formatLength } from "../lib/time";
import { instantAt } from "../lib/view";
import { PlotPanel, type Frame } from "./PlotPanel";
import { TimeAxis } from "./TimeAxis";

const LEGEND_PX = 30;
const AXIS_PX = 38;
const HEIGHT_MIN = 130;

export function Plots({ area }: { area: RefObject<HTMLDivElement | null> }): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [mark, setMark] = useState<readonly [number, number]>();
  const frame = useMemo<Frame>(() => {
    const isNarrow = size.width < 520;
    return { width: size.width, gutter: isNarrow ? 46 : 62, right: isNarrow ? 8 : 16 };
  }, [size.width]);
  const frameNow = useRef(frame);
  frameNow.current = frame;

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
    });
    return () => {
      observer.disconnect();
      stop();
    };
  }, [explorer, area]);

  const inner = frame.width - frame.gutter - frame.right;
  useEffect(() => explorer.resize(inner), [explorer, inner]);

  const plots = explorer.plots();
  const height = Math.max(HEIGHT_MIN, Math.floor((size.height - AXIS_PX) / Math.max(1, plots.length)) - LEGEND_PX);
  return (
    <div class="plots" ref={area}>
      {size.width > 0 && (
        <>
          {plots.map((plot) => (
            <PlotPanel key={plot.key} plot={plot} frame={frame} height={height} />
          ))}
          <TimeAxis frame={frame} />
          <div class="over" style={{ left: `${frame.gutter}px`, width: `${Math.max(0, inner)}px` }}>
            <CursorLine inner={inner} />
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
  );
}

function CursorLine({ inner }: { inner: number }): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  const { cursor } = explorer;
  return cursor === undefined ? null : <div class="cursor" style={{ transform: `translateX(${cursor * inner}px)` }} />;
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
