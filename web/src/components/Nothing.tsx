/** What plots say of what they do not show: where something lies, and who has what is not here. */
import type { JSX } from "preact";
import { useEmitter, useShared } from "../context";
import type { Channel } from "../explore/channels";
import type { Explorer } from "../explore/explorer";
import type { Plot } from "../explore/plots";
import { formatInstant, type Span } from "../lib/time";
import { fitted } from "../lib/view";

/** Whether it is known that nothing of a channel lies in view: neither an event nor a line between two. */
export function isEmptyHere(explorer: Explorer, channel: Channel): boolean {
  const { name, points, problem } = channel;
  if (problem !== undefined || explorer.loader.refused.has(name)) return true;
  if (explorer.away.isAway(channel, explorer.view, explorer.level)) return false;
  return points !== undefined && points.covered > 0.999 && points.range === undefined;
}

function reach(channels: readonly Channel[]): Span | undefined {
  let out: Span | undefined;
  for (const { extent } of channels) {
    if (!extent) continue;
    out = out
      ? { from: extent.from < out.from ? extent.from : out.from, to: extent.to > out.to ? extent.to : out.to }
      : extent;
  }
  return out;
}

export function Nothing({ plot }: { plot: Plot }): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  if (plot.channels.length === 0 || !plot.channels.every((channel) => isEmptyHere(explorer, channel))) return null;
  const problem = plot.channels
    .map(({ name, problem }) => problem ?? explorer.loader.refused.get(name)?.message)
    .find((text) => text !== undefined);
  if (problem !== undefined) {
    return (
      <p class="nothing error" role="alert">
        {problem.charAt(0).toUpperCase() + problem.slice(1)}.
      </p>
    );
  }
  const extent = reach(plot.channels);
  if (!extent) return <p class="nothing soft">No data yet.</p>;
  const [from, to] = [extent.from, extent.to].map((at) => formatInstant(at, explorer.zone, 0));
  const isWithin = extent.from < explorer.view.to && extent.to >= explorer.view.from;
  return (
    <p class="nothing">
      {isWithin ? "No values in this range." : "No data in this range."}{" "}
      <span class="soft">
        Data from {from} to {to}
      </span>{" "}
      <button type="button" class="link" onClick={() => explorer.show(fitted(extent.from, extent.to))}>
        Go there
      </button>
    </p>
  );
}

/** Of which stretches only an overview is here, or nothing; who has the rest, and since when that one cannot be reached. */
export function AwayNote({ plot }: { plot: Plot }): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  const words = new Set<string>();
  let isInReach = true;
  for (const channel of plot.channels) {
    for (const mark of explorer.away.marks(channel, explorer.view, explorer.level, explorer.zone)) {
      words.add(mark.words);
      isInReach &&= mark.isInReach;
    }
  }
  if (words.size === 0) return null;
  return (
    <p class={isInReach ? "away-note" : "away-note error"} role="status">
      Hatched: no finer values here. {[...words].join("; ")}.
    </p>
  );
}
