/** The rows behind a point that was clicked, as they are stored. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { fetchRows, type Rows } from "../api/rows";
import type { ApiError } from "../api/client";
import { useShared } from "../context";
import type { Plot } from "../explore/plots";
import { formatCount, formatReading } from "../lib/format";
import { offsetOf, tileStart } from "../lib/level";
import { formatInstant, toBig, type Span } from "../lib/time";
import { cursorPoint } from "./Legend";
import { Icon } from "./icons";

/** What was clicked: a plot, and where in its width. */
export interface Picked {
  readonly plot: string;
  readonly fraction: number;
}

const ROWS_MAX = 20;
const STREAMS_MAX = 4;

interface Wanted {
  readonly stream: string;
  readonly span: Span;
  /** Events of the bucket, as the plot knows them. */
  readonly count: number;
}

interface Found extends Wanted {
  readonly rows: Rows | undefined;
  readonly error: ApiError | undefined;
}

interface RowPanelProps {
  readonly plot: Plot;
  readonly picked: Picked;
  readonly onClose: () => void;
}

export function RowPanel({ plot, picked, onClose }: RowPanelProps): JSX.Element {
  const { client, explorer } = useShared();
  const [found, setFound] = useState<readonly Found[]>();

  useEffect(() => {
    const control = new AbortController();
    const wanted = new Map<string, Wanted>();
    for (const channel of plot.channels) {
      const index = cursorPoint(explorer, channel, picked.fraction);
      if (index === undefined || wanted.has(channel.stream) || wanted.size >= STREAMS_MAX) continue;
      const at = explorer.view.from + toBig(channel.points?.x[index] ?? 0);
      // A bucket is a tile nine levels below.
      const level = explorer.level - 9;
      const number = offsetOf(level, at);
      wanted.set(channel.stream, {
        stream: channel.stream,
        span: { from: tileStart(level, number), to: tileStart(level, number + 1) },
        count: channel.points?.count[index] ?? 0,
      });
    }
    void Promise.all(
      [...wanted.values()].map(async (each): Promise<Found> => {
        const outcome = await fetchRows(client, each.stream, each.span, ROWS_MAX, control.signal, explorer.past);
        return {
          ...each,
          rows: outcome.ok ? outcome.value : undefined,
          error: outcome.ok ? undefined : outcome.error,
        };
      }),
    ).then((all) => {
      if (!control.signal.aborted) setFound(all);
    });
    return () => control.abort();
    // What was clicked stays what it was, however the view moves on.
  }, [client, explorer, picked]);

  return (
    <section class="rows" aria-label="Rows at the point">
      <button type="button" class="ghost small rows-close" aria-label="Close the rows" title="Close" onClick={onClose}>
        <Icon name="close" />
      </button>
      {!found && <p class="soft">Reading …</p>}
      {found?.length === 0 && <p class="soft">No point is near.</p>}
      {found?.map((each) => (
        <RowTable key={each.stream} found={each} />
      ))}
    </section>
  );
}

function RowTable({ found: { stream, rows, error, count } }: { found: Found }): JSX.Element {
  const { explorer } = useShared();
  if (!rows) return <p class="error">{error?.message}</p>;
  const more = rows.more
    ? `the first ${rows.time.length} of ${formatCount(Math.max(count, rows.time.length + 1))}`
    : "";
  return (
    <>
      <p>
        <b>{stream}</b>{" "}
        <span class="soft">{more !== "" ? more : rows.time.length === 1 ? "1 row" : `${rows.time.length} rows`}</span>
      </p>
      <div class="scroll">
        <table class="list">
          <thead>
            <tr>
              <th scope="col">time</th>
              {rows.fields.map(([name]) => (
                <th key={name} class="num" scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.time.map((at, k) => (
              <tr key={String(at)}>
                <td>{formatInstant(at, explorer.zone, 9).replace(/\.?0+$/, "")}</td>
                {rows.fields.map(([name, values]) => (
                  <td key={name} class="num">
                    {cell(values[k])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? formatReading(value) : String(value);
}
