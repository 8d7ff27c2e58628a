/** What a plot shows, with its values: under the cursor, and newest, least, mean and greatest in view. */
import type { JSX } from "preact";
import { useEmitter, useShared } from "../context";
import type { Channel } from "../explore/channels";
import type { Explorer } from "../explore/explorer";
import { isOnTheRight, scalesOf, type Plot } from "../explore/plots";
import { streamLabel } from "../lib/channel";
import { closest } from "../lib/compose";
import { formatCount, formatReading, formatValue } from "../lib/format";
import { halves } from "../lib/match";
import { summaryOf } from "../lib/summary";
import { isEmptyHere } from "./Nothing";
import { Icon } from "./icons";

const LINE_PX = 30;
const ROW_PX = 23;
const HEAD_PX = 20;
/** More channels than this are scrolled. */
const ROWS_MAX = 6;

/** The height of a plot's legend in CSS pixels, as the style sheet has it. */
export function legendHeight({ channels }: Plot): number {
  return channels.length <= 1 ? LINE_PX : HEAD_PX + Math.min(ROWS_MAX, channels.length) * ROW_PX + 6;
}

interface LegendProps {
  readonly plot: Plot;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

const STATS = ["last", "min", "mean", "max"] as const;

export function Legend({ plot, isFirst, isLast }: LegendProps): JSX.Element {
  const { explorer, theme } = useShared();
  useEmitter(explorer.painted);
  useEmitter(theme.changed);
  const isLocked = scalesOf(plot).some((scale) => scale && explorer.locks.has(scale.key));
  const isTable = plot.channels.length > 1;
  return (
    <div class={isTable ? "legend many" : "legend"} data-picture="text" style={{ height: `${legendHeight(plot)}px` }}>
      <div class="legend-scroll">
        <table>
          {isTable && (
            <thead>
              <tr>
                <th scope="col" colSpan={2}>
                  Field and stream
                </th>
                <th class="num at" scope="col">
                  At the cursor
                </th>
                {STATS.map((name) => (
                  <th key={name} class={`num stat ${name}`} scope="col" title={`In view: ${name}`}>
                    {name}
                  </th>
                ))}
                <th />
              </tr>
            </thead>
          )}
          <tbody>
            {plot.channels.map((channel) => (
              <LegendRow key={channel.name} channel={channel} isRight={isOnTheRight(plot, channel)} />
            ))}
          </tbody>
        </table>
      </div>
      <div class="legend-tools">
        <button
          type="button"
          class="ghost small move"
          aria-label="Move the plot up"
          title="Move the plot up"
          disabled={isFirst}
          onClick={() => explorer.movePlot(plot.key, -1)}
        >
          <Icon name="up" />
        </button>
        <button
          type="button"
          class="ghost small move"
          aria-label="Move the plot down"
          title="Move the plot down"
          disabled={isLast}
          onClick={() => explorer.movePlot(plot.key, 1)}
        >
          <Icon name="down" />
        </button>
        <button
          type="button"
          class={isLocked ? "ghost small lock on" : "ghost small lock"}
          aria-pressed={isLocked}
          aria-label={isLocked ? "Let the scale follow the values" : "Keep the scale as it is"}
          title={isLocked ? "Let the scale follow the values" : "Keep the scale as it is"}
          onClick={() => explorer.toggleLock(plot)}
        >
          <Icon name={isLocked ? "lock" : "unlock"} />
        </button>
      </div>
    </div>
  );
}

interface LegendRowProps {
  readonly channel: Channel;
  /** Whether it is drawn by the scale on the right. */
  readonly isRight: boolean;
}

function LegendRow({ channel, isRight }: LegendRowProps): JSX.Element {
  const { explorer, theme } = useShared();
  const colour = theme.palette.series[channel.colour] ?? theme.palette.ink;
  const { table, tags } = streamLabel(channel.stream);
  const problem = channel.problem ?? explorer.loader.refused.get(channel.name)?.message;
  const where = [table, ...tags.map(([key, value]) => `${key}=${value}`)].join(" ");
  const [head, tail] = halves(where);
  const summary = summaryOf(channel.points, Number(explorer.view.to - explorer.view.from));
  const isElsewhere = problem === undefined && summary === undefined && isEmptyHere(explorer, channel);
  return (
    <tr class="legend-item" data-label={`${channel.field}  ${where}`} data-colour={colour} title={channel.name}>
      <th class="legend-name" scope="row">
        <span class="swatch" style={{ backgroundColor: colour }} />
        <b>{channel.field}</b>
        {isRight && <span class="right-scale soft"> right scale</span>}
      </th>
      <td class="legend-where soft">
        <span class="cut">
          <span class="cut-head">{head}</span>
          <span class="cut-tail">{tail}</span>
        </span>
      </td>
      {problem !== undefined ? (
        <td class="error" colSpan={5}>
          {problem}
        </td>
      ) : isElsewhere ? (
        <td class="soft" colSpan={5}>
          no data in view
        </td>
      ) : (
        <>
          <td class="num at">
            <Reading channel={channel} />
          </td>
          {STATS.map((name) => (
            <td key={name} class={`num stat ${name}`} data-name={name}>
              {summary ? formatValue(summary[name], 5) : ""}
            </td>
          ))}
        </>
      )}
      <td class="legend-end">
        <button
          type="button"
          class="ghost small remove"
          aria-label={`Remove ${channel.name}`}
          title="Remove"
          onClick={() => explorer.toggle(channel.name)}
        >
          <Icon name="close" />
        </button>
      </td>
    </tr>
  );
}

/** The value under the cursor; while live and without one, the newest. */
function Reading({ channel }: { channel: Channel }): JSX.Element | null {
  const { explorer } = useShared();
  const { points } = channel;
  const newest = channel.tail[channel.tail.length - 1];
  if (explorer.cursor === undefined && explorer.replay.range) {
    const played = explorer.replay.values.get(channel.name)?.value;
    return played === undefined ? null : <span class="reading">{formatReading(Number(played))}</span>;
  }
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

/** The point the cursor points at; none in a gap. */
export function cursorPoint(
  explorer: Explorer,
  channel: Channel,
  cursor: number | undefined = explorer.cursor,
): number | undefined {
  const { points } = channel;
  if (!points || cursor === undefined) return undefined;
  const size = Number(explorer.view.to - explorer.view.from);
  const position = cursor * size;
  const index = closest(points, position);
  if (index === undefined) return undefined;
  const x = points.x[index] ?? 0;
  // Between two connected points the nearer one counts, however far; beyond an end only what is close.
  const isInside =
    x <= position ? index + 1 < points.length && points.start[index + 1] === 0 : points.start[index] === 0;
  return isInside || Math.abs(x - position) < size / 60 ? index : undefined;
}
