/** Local data of a stream, as a map of levels and time, with a cursor that says why. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { fetchPresence, type Presence } from "../api/presence";
import { fetchStreams, isPlottable, type StreamInfo } from "../api/streams";
import type { ApiError } from "../api/client";
import { useEmitter, useShared } from "../context";
import { writeRoute } from "../lib/address";
import { channelOf } from "../lib/channel";
import { formatBytes } from "../lib/format";
import { cellWords, lineWords, runsOf, sinceWords, spanOfCells, whyWords, type Cell } from "../lib/presence";
import { formatInstant, nowInstant, type Span, type Zone } from "../lib/time";
import { fitted } from "../lib/view";

const BINS = 96;
const REFRESH_MS = 5_000;
const SEARCH_WAIT_MS = 200;
const FOUND_MAX = 12;

const CELLS: readonly (readonly [Cell, string])[] = [
  ["here", "here"],
  ["older", "here in an older version"],
  ["elsewhere", "at a connected edge"],
  ["away", "cannot be reached"],
];

/** The map of a stream that is chosen by name. */
export function PresenceCard(): JSX.Element {
  const { client, session, explorer } = useShared();
  const [stream, setStream] = useState<string | undefined>(() => explorer.channels.all[0]?.stream);
  const [map, setMap] = useState<Presence>();
  const [error, setError] = useState<ApiError>();

  useEffect(() => {
    if (stream === undefined) return;
    const control = new AbortController();
    const load = (): void => {
      if (document.hidden) return;
      void fetchPresence(client, { stream, bins: BINS }, control.signal).then((outcome) => {
        if (control.signal.aborted) return;
        setError(outcome.ok ? undefined : outcome.error);
        if (outcome.ok) setMap(outcome.value);
      });
    };
    load();
    const timer = setInterval(load, REFRESH_MS);
    const stop = session.changed.subscribe(load);
    return () => {
      control.abort();
      clearInterval(timer);
      stop();
    };
  }, [client, session, stream]);

  return (
    <section class="card" aria-label="Local data of a stream">
      <h2>Local data of a stream</h2>
      <StreamField stream={stream} onChoose={setStream} />
      {error && (
        <p class="notice error" role="alert">
          {error.message}
        </p>
      )}
      {map && map.stream === stream && <PresenceMap map={map} zone={explorer.zone} />}
    </section>
  );
}

interface StreamFieldProps {
  readonly stream: string | undefined;
  readonly onChoose: (stream: string) => void;
}

/** A field that finds streams by words of their names; the first there is is chosen where none was. */
function StreamField({ stream, onChoose }: StreamFieldProps): JSX.Element {
  const { client } = useShared();
  const [text, setText] = useState(stream ?? "");
  const [found, setFound] = useState<readonly StreamInfo[]>([]);

  const find = async (signal?: AbortSignal): Promise<readonly StreamInfo[]> => {
    // A whole name is found by its words.
    const search = text.replace(/[,=\\]+/g, " ");
    const outcome = await fetchStreams(client, { search, limit: FOUND_MAX }, signal);
    if (!outcome.ok || signal?.aborted) return [];
    setFound(outcome.value.streams);
    return outcome.value.streams;
  };
  const choose = (name: string): void => {
    setText(name);
    onChoose(name);
  };

  useEffect(() => {
    const control = new AbortController();
    const search = async (): Promise<void> => {
      const [first] = await find(control.signal);
      if (stream === undefined && text === "" && first) choose(first.stream);
    };
    const timer = setTimeout(() => void search(), text === "" ? 0 : SEARCH_WAIT_MS);
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [client, text]);

  return (
    <form
      class="presence-form"
      onSubmit={(event) => {
        event.preventDefault();
        // What was found so far may be for what was typed before.
        void find().then((now) => {
          const best = now.find((each) => each.stream === text) ?? now[0];
          if (best) choose(best.stream);
        });
      }}
    >
      <label>
        <span class="soft">Stream</span>
        <input
          type="search"
          list="presence-streams"
          spellcheck={false}
          value={text}
          placeholder="words of its name"
          onInput={(event) => {
            const value = event.currentTarget.value;
            setText(value);
            if (found.some((each) => each.stream === value)) onChoose(value);
          }}
        />
      </label>
      <datalist id="presence-streams">
        {found.map((each) => (
          <option key={each.stream} value={each.stream} />
        ))}
      </datalist>
      {stream !== undefined && <PlotLink stream={stream} found={found} />}
    </form>
  );
}

/** A link to the plots of a stream's first fields. */
function PlotLink({ stream, found }: { stream: string; found: readonly StreamInfo[] }): JSX.Element | null {
  const { explorer } = useShared();
  const info = found.find((each) => each.stream === stream);
  const fields = info?.fields.filter((field) => isPlottable(field.type)) ?? [];
  if (!info || fields.length === 0) return null;
  const span = info.first !== undefined && info.last !== undefined ? fitted(info.first, info.last) : undefined;
  const channels = fields.slice(0, 2).map((field) => channelOf(stream, field.name));
  const state = { ...explorer.state(), channels, view: span, rolling: undefined, live: false };
  return <a href={writeRoute({ page: "view", state })}>Plots of it</a>;
}

interface Place {
  readonly line: number;
  readonly cell: number;
}

export function PresenceMap({ map, zone }: { map: Presence; zone: Zone }): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const [place, setPlace] = useState<Place>();
  // Coarse at the top, as the plots are read: overview first.
  const lines = [...map.lines].sort((a, b) => (b.level ?? -Infinity) - (a.level ?? -Infinity));
  const count = Math.max(1, ...lines.map((line) => line.cells.length));
  const at = place && { line: Math.min(place.line, lines.length - 1), cell: Math.min(place.cell, count - 1) };
  const now = nowInstant();

  const move = (event: KeyboardEvent): void => {
    const from = at ?? { line: lines.length - 1, cell: 0 };
    const step = event.shiftKey ? Math.ceil(count / 12) : 1;
    const by: Readonly<Record<string, readonly [number, number]>> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -step],
      ArrowRight: [0, step],
      Home: [0, -count],
      End: [0, count],
    };
    const [down, right] = by[event.key] ?? [];
    if (event.key === "Escape") setPlace(undefined);
    if (down === undefined || right === undefined) return;
    event.preventDefault();
    const inside = (value: number, most: number): number => Math.min(most, Math.max(0, value));
    setPlace(
      at ? { line: inside(from.line + down, lines.length - 1), cell: inside(from.cell + right, count - 1) } : from,
    );
  };

  return (
    <>
      <div
        class="presence"
        role="application"
        tabIndex={0}
        aria-label="Map of local data: move with the arrows, the text below describes the cell"
        onKeyDown={move}
        onPointerLeave={() => setPlace(undefined)}
      >
        {lines.map((line, index) => (
          <div class="lane" key={String(line.level)}>
            <span class="lane-name" title={line.level === undefined ? "Rows" : `Level ${line.level}: buckets of this`}>
              {lineWords(line.level)}
            </span>
            <div
              class="lane-track"
              onPointerMove={(event) => {
                const box = event.currentTarget.getBoundingClientRect();
                const cell = Math.floor(((event.clientX - box.left) / box.width) * count);
                setPlace({ line: index, cell: Math.min(count - 1, Math.max(0, cell)) });
              }}
            >
              {runsOf(map, line).map(({ cell, first, end }) => (
                <div
                  key={first}
                  class={`cell ${cell}`}
                  style={{ left: `${(first / count) * 100}%`, width: `${((end - first) / count) * 100}%` }}
                />
              ))}
              {at?.line === index && (
                <div class="cell-at" style={{ left: `${(at.cell / count) * 100}%`, width: `${100 / count}%` }} />
              )}
            </div>
            <span class="num soft lane-missing">{line.missing > 0 ? `${formatBytes(line.missing)} missing` : ""}</span>
          </div>
        ))}
      </div>
      <Ends span={map} zone={zone} />
      <p class="presence-said" role="status">
        {at && lines[at.line]
          ? said(map, lines[at.line]?.level, at.cell, zone) +
            cellWords(map, lines[at.line] ?? { level: undefined, cells: "", missing: 0 }, at.cell, now, zone)
          : "Point at a cell, or move with the arrows."}
      </p>
      <ul class="presence-key" aria-label="Colours">
        {CELLS.map(([cell, words]) => (
          <li key={cell}>
            <span class={`cell ${cell}`} /> {words}
          </li>
        ))}
      </ul>
      <h3>Why</h3>
      <ul class="presence-why">
        {map.sources.map((source) => (
          <li key={String(source.from)}>
            {map.sources.length > 1 && (
              <b>
                {formatInstant(source.from, zone, 0)} – {formatInstant(source.to, zone, 0)}:{" "}
              </b>
            )}
            {whyWords(source, zone).join("; ")}
            {source.edge !== undefined && (
              <span class={source.isConnected ? "soft" : "error"}>. {sinceWords(source, now, zone)}.</span>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}

function Ends({ span, zone }: { span: Span; zone: Zone }): JSX.Element {
  return (
    <p class="soft lane-ends presence-ends">
      <span>{formatInstant(span.from, zone, 0)}</span>
      <span>{formatInstant(span.to, zone, 0)}</span>
    </p>
  );
}

function said(map: Presence, level: number | undefined, cell: number, zone: Zone): string {
  const { from, to } = spanOfCells(map, cell, cell + 1);
  const what = level === undefined ? "Rows" : `Buckets of ${lineWords(level)}`;
  return `${what}, ${formatInstant(from, zone, 0)} – ${formatInstant(to, zone, 0)}: `;
}
