/** A search by value in a table's fields, and the bar that goes from one mark of the plots to the next. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { replayRows, type ReplayRow } from "../api/replay";
import { fetchStreams, type StreamInfo } from "../api/streams";
import { useEmitter, useShared } from "../context";
import { streamLabel } from "../lib/channel";
import { formatCount } from "../lib/format";
import { formatInstant } from "../lib/time";
import { Icon } from "./icons";
import { useMenu } from "./menu";

const OPERATORS = ["=", "!=", "<", "<=", ">", ">="] as const;
export const HITS_MAX = 1_000;

export function FindButton(): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const [open, setOpen] = useState(false);
  const menu = useMenu(open, () => setOpen(false));
  return (
    <div class="menu-place" ref={menu}>
      <button
        type="button"
        class="ghost"
        aria-haspopup="dialog"
        aria-expanded={open}
        aria-label="Find values"
        title="Find rows by their values"
        disabled={explorer.channels.all.length === 0}
        onClick={() => setOpen(!open)}
      >
        <Icon name="search" />
      </button>
      {open && <FindForm onDone={() => setOpen(false)} />}
    </div>
  );
}

function FindForm({ onDone }: { onDone: () => void }): JSX.Element {
  const { client, explorer } = useShared();
  const streams = [...new Set(explorer.channels.all.map((channel) => channel.stream))];
  const [stream, setStream] = useState(streams[0] ?? "");
  const [infos, setInfos] = useState<readonly StreamInfo[]>([]);
  const [field, setField] = useState(explorer.channels.all[0]?.field ?? "");
  const [operator, setOperator] = useState<string>("=");
  const [value, setValue] = useState("");
  const [isWhole, setWhole] = useState(false);
  const [said, setSaid] = useState<string>();
  const running = useRef<AbortController | undefined>(undefined);
  const { table, tags } = streamLabel(stream);
  const fields = infos.find((info) => info.stream === stream)?.fields.filter(({ type }) => type !== "bytes") ?? [];

  useEffect(() => {
    void fetchStreams(client, { names: streams, past: explorer.past }).then(
      (outcome) => outcome.ok && setInfos(outcome.value.streams),
    );
    return () => running.current?.abort();
  }, [client]);

  const find = async (): Promise<void> => {
    running.current?.abort();
    const control = new AbortController();
    running.current = control;
    setSaid("Searching …");
    const hits: ReplayRow[] = [];
    const outcome = await replayRows(
      client,
      {
        table,
        ...(isWhole ? {} : { tags }),
        filter: `${field} ${operator} ${value}`,
        fields: [field],
        limit: HITS_MAX + 1,
        past: explorer.past,
      },
      (rows) => {
        hits.push(...rows.filter((row) => isWhole || row.stream === stream));
        setSaid(`${formatCount(hits.length)} found …`);
      },
      control.signal,
    );
    if (control.signal.aborted) return;
    if (!outcome.ok) {
      setSaid(outcome.error.message);
      return;
    }
    if (hits.length === 0) {
      setSaid("No matches.");
      return;
    }
    explorer.marking.set({
      title: `${field} ${operator} ${value}`,
      all: hits.slice(0, HITS_MAX).map((row) => ({
        from: row.time,
        to: row.time,
        stream: row.stream,
        tags: [],
        text: `${row.stream} ${field} ${String(row.fields[field])}`,
      })),
      more: outcome.value > HITS_MAX,
      field,
    });
    explorer.marking.go(1);
    onDone();
  };

  return (
    <form
      class="popover form right"
      aria-label="Find rows by their values"
      onSubmit={(event) => {
        event.preventDefault();
        void find();
      }}
    >
      {streams.length > 1 && (
        <label class="field">
          <span>Stream</span>
          <select value={stream} onChange={(event) => setStream(event.currentTarget.value)}>
            {streams.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      )}
      <div class="find-row">
        <select aria-label="Field" value={field} onChange={(event) => setField(event.currentTarget.value)}>
          {fields.length === 0 && <option>{field}</option>}
          {fields.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <select aria-label="Comparison" value={operator} onChange={(event) => setOperator(event.currentTarget.value)}>
          {OPERATORS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
        <input
          type="text"
          aria-label="Value"
          spellcheck={false}
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
      </div>
      <label class="check">
        <input type="checkbox" checked={isWhole} onChange={(event) => setWhole(event.currentTarget.checked)} />
        <span>In all streams of {table}</span>
      </label>
      <div class="actions">
        <span class="soft" role="status">
          {said ?? "Text needs no quotes. An index is used where there is one."}
        </span>
        <span class="spring" />
        <button type="submit" class="primary" disabled={value.trim() === ""}>
          Find
        </button>
      </div>
    </form>
  );
}

/** The marks that plots show: what was looked for, and a way from one to the next. */
export function MarkBar(): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const { marking } = explorer;
  const { marks, at, current } = marking;
  if (!marks) return null;
  const isShown = current === undefined || marking.isShown(current);
  const count = `${marks.more ? "first " : ""}${formatCount(marks.all.length)}`;
  return (
    <div class="markbar" role="group" aria-label="Marks">
      <span class="mark-title" title={marks.title}>
        <b>{marks.title}</b>
      </span>
      <span class="soft mark-count">{at === undefined ? count : `${formatCount(at + 1)} of ${count}`}</span>
      <button
        type="button"
        class="ghost small"
        aria-label="Previous mark"
        title="Previous mark (P)"
        onClick={() => marking.go(-1)}
      >
        <Icon name="up" />
      </button>
      <button
        type="button"
        class="ghost small"
        aria-label="Next mark"
        title="Next mark (N)"
        onClick={() => marking.go(1)}
      >
        <Icon name="down" />
      </button>
      <span class="mark-text" role="status">
        {current && `${formatInstant(current.from, explorer.zone, 3)}  ${current.text}`}
      </span>
      {!isShown && (
        <button type="button" class="link" onClick={() => marking.showStream()}>
          Show this stream
        </button>
      )}
      <span class="spring" />
      <button
        type="button"
        class="ghost small"
        aria-label="Remove the marks"
        title="Remove the marks"
        onClick={() => marking.set(undefined)}
      >
        <Icon name="close" />
      </button>
    </div>
  );
}
