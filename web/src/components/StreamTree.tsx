/**
 * Tables, their streams and their fields, searchable, of any number: only rows in sight are in the page, and each table's
 * streams are fetched in pieces as they are scrolled to.
 *
 * Keyboard: one stop of the Tab key; arrows move, open and close, Enter and Space choose.
 */
import type { JSX, RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { fetchStreams, isPlottable, type StreamInfo } from "../api/streams";
import type { ApiError } from "../api/client";
import { LIST_LIMIT } from "../explore/first";
import { streamLabel } from "../lib/channel";
import { formatCount } from "../lib/format";
import { wordsOf } from "../lib/match";
import { keyOfRow, listed, rowsOf, type Listed, type Row } from "../lib/tree";
import { Icon } from "./icons";
import { ROW_PX, TreeRow } from "./TreeRow";

const OVERSCAN = 8;
const SEARCH_WAIT_MS = 140;
const REFRESH_MS = 10_000;
/** Streams of a piece of a table. */
const PIECE = 200;
/** So few streams are shown with their fields at once. */
const OPEN_ALL_MAX = 4;
/** Of so few streams all tables are open. */
const OPEN_TABLES_MAX = 60;

interface StreamTreeProps {
  readonly searchField: RefObject<HTMLInputElement | null>;
  /** Told what the list without a search holds, each time it is fetched. */
  readonly onStreams: (streams: readonly StreamInfo[], total: number) => void;
  readonly onFull: () => void;
}

export function StreamTree({ searchField, onStreams, onFull }: StreamTreeProps): JSX.Element {
  const { client, session, explorer, theme, first: early } = useShared();
  useEmitter(explorer.changed);
  useEmitter(theme.changed);
  const [search, setSearch] = useState("");
  /** The search that the list answers. */
  const [found, setFound] = useState("");
  const [lists, setLists] = useState<readonly Listed[]>([]);
  const [total, setTotal] = useState<number>();
  const [error, setError] = useState<ApiError>();
  /**
   * Tables and streams that were opened or closed by hand. Of the others those are open that are few, were found, or have
   * a channel on screen.
   */
  const [byHand, setByHand] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [active, setActive] = useState(0);
  const [scroll, setScroll] = useState(0);
  const [height, setHeight] = useState(600);
  const box = useRef<HTMLDivElement>(null);
  const loading = useRef<string | undefined>(undefined);

  const load = useCallback(
    async (text: string, signal: AbortSignal, isQuiet: boolean): Promise<void> => {
      const outcome = await (text === ""
        ? early.takeList(signal)
        : fetchStreams(client, { search: text, limit: LIST_LIMIT }, signal));
      if (signal.aborted) return;
      if (!outcome.ok) {
        setError(outcome.error);
        return;
      }
      const { streams, tables, total } = outcome.value;
      setError(undefined);
      setLists((before) => listed(tables, streams, isQuiet ? before : []));
      setTotal(total);
      setFound(text);
      if (text === "") onStreams(streams, total);
      if (!isQuiet) {
        setActive(0);
        if (box.current) box.current.scrollTop = 0;
      }
    },
    [client, early, onStreams],
  );

  // Not after the first frame, as other effects: the first plot waits for the list.
  useLayoutEffect(() => {
    const control = new AbortController();
    const begin = (): void => void load(search, control.signal, false);
    let timer: ReturnType<typeof setTimeout> | undefined;
    if (search === "") begin();
    else timer = setTimeout(begin, SEARCH_WAIT_MS);
    const again = session.changed.subscribe(() => void load(search, control.signal, true));
    // New streams and newest values appear by themselves.
    const refresher = setInterval(() => {
      if (!document.hidden) void load(search, control.signal, true);
    }, REFRESH_MS);
    return () => {
      control.abort();
      clearTimeout(timer);
      clearInterval(refresher);
      again();
    };
  }, [search, load, session]);

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const shown = explorer.channels.all.map((channel) => channel.stream).join("\n");
  const words = useMemo(() => wordsOf(found), [found]);
  const isTableOpen = (table: string): boolean =>
    byHand.get(`table ${table}`) ??
    (words.length > 0 ||
      (total ?? 0) <= OPEN_TABLES_MAX ||
      lists.length === 1 ||
      explorer.channels.all.some(({ stream }) => streamLabel(stream).table === table));
  const isStreamOpen = ({ stream, fields }: StreamInfo): boolean =>
    byHand.get(`stream ${stream}`) ??
    ((total ?? 0) <= OPEN_ALL_MAX ||
      explorer.channels.all.some((channel) => channel.stream === stream) ||
      // A search that names fields is for fields.
      words.some((word) => fields.some((field) => field.name.toLowerCase().includes(word))));
  const rows = useMemo(() => rowsOf(lists, { words, isTableOpen, isStreamOpen }), [lists, words, byHand, shown, total]);

  const first = Math.max(0, Math.floor(scroll / ROW_PX) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((scroll + height) / ROW_PX) + OVERSCAN);

  // A table's next piece is fetched when the end of what is known of it comes into sight.
  const end = rows.slice(first, last).find((row) => row.kind === "more")?.list;
  const wanted = end && `${end.table} ${end.streams.length}`;
  useEffect(() => {
    if (!end || wanted === undefined || loading.current === wanted) return;
    loading.current = wanted;
    const control = new AbortController();
    const after = end.streams[end.streams.length - 1]?.stream;
    const ask = { search: found, table: end.table, limit: PIECE, ...(after === undefined ? {} : { after }) };
    void fetchStreams(client, ask, control.signal).then((outcome) => {
      loading.current = undefined;
      if (control.signal.aborted || !outcome.ok) return;
      const { streams } = outcome.value;
      setLists((before) =>
        before.map((list) =>
          list.table === end.table && list.streams.length === end.streams.length
            ? // A piece without streams: they have gone since they were counted.
              {
                ...list,
                streams: [...list.streams, ...streams],
                ...(streams.length === 0 ? { total: list.streams.length } : {}),
              }
            : list,
        ),
      );
    });
    return () => {
      loading.current = undefined;
      control.abort();
    };
  }, [client, found, wanted]);

  const isOpen = (row: Row): boolean =>
    row.kind === "table" ? isTableOpen(row.list.table) : row.kind === "stream" && isStreamOpen(row.info);
  const open = (key: string, isNow: boolean): void => setByHand(new Map(byHand).set(key, isNow));
  const turn = (row: Row): void => open(keyOfRow(row), !isOpen(row));
  const choose = (row: Row | undefined): void => {
    if (row?.kind === "stream" || row?.kind === "table") turn(row);
    else if (row?.kind === "field" && isPlottable(row.field.type)) {
      // Both stay open when the last channel goes.
      setByHand(new Map(byHand).set(`stream ${row.info.stream}`, true).set(`table ${row.info.table}`, true));
      if (!explorer.toggle(row.channel)) onFull();
    }
  };
  const moveTo = (index: number): void => {
    const to = Math.min(rows.length - 1, Math.max(0, index));
    setActive(to);
    const element = box.current;
    if (!element) return;
    if (to * ROW_PX < element.scrollTop) element.scrollTop = to * ROW_PX;
    else if ((to + 1) * ROW_PX > element.scrollTop + element.clientHeight)
      element.scrollTop = (to + 1) * ROW_PX - element.clientHeight;
  };
  /** The stream of a field, the table of a stream. */
  const parentOf = (row: Row | undefined): number => {
    if (row?.kind === "field") return rows.findIndex((r) => r.kind === "stream" && r.info === row.info);
    if (row?.kind !== "stream") return -1;
    return rows.findIndex((r) => r.kind === "table" && r.list.table === row.info.table);
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    const row = rows[active];
    const page = Math.max(1, Math.floor(height / ROW_PX) - 1);
    const parent = parentOf(row);
    const canTurn = row?.kind === "stream" || row?.kind === "table";
    if (event.key === "ArrowDown") moveTo(active + 1);
    else if (event.key === "ArrowUp") moveTo(active - 1);
    else if (event.key === "PageDown") moveTo(active + page);
    else if (event.key === "PageUp") moveTo(active - page);
    else if (event.key === "Home") moveTo(0);
    else if (event.key === "End") moveTo(rows.length - 1);
    else if (event.key === "ArrowRight" && canTurn) row.isOpen ? moveTo(active + 1) : turn(row);
    else if (event.key === "ArrowLeft" && canTurn && row.isOpen) turn(row);
    else if (event.key === "ArrowLeft" && parent >= 0) moveTo(parent);
    else if (event.key === "Enter" || event.key === " ") choose(row);
    else return;
    event.preventDefault();
  };

  return (
    <div class="tree-panel">
      <label class="search">
        <Icon name="search" />
        <input
          ref={searchField}
          type="search"
          placeholder="Search streams and fields"
          aria-label="Search streams and fields"
          autocomplete="off"
          spellcheck={false}
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "ArrowDown" || event.key === "Enter") {
              event.preventDefault();
              box.current?.focus();
              // What was searched for is a field that can be shown.
              const field = rows.findIndex((row) => row.kind === "field" && isPlottable(row.field.type));
              if (search !== "" && field >= 0) moveTo(field);
            } else if (event.key === "Escape") {
              if (search === "") event.currentTarget.blur();
              setSearch("");
            }
          }}
        />
      </label>
      <div
        ref={box}
        class="tree"
        role="tree"
        tabIndex={0}
        aria-label="Streams"
        aria-multiselectable="true"
        aria-activedescendant={rows.length > 0 ? `row-${active}` : undefined}
        onKeyDown={onKeyDown}
        onScroll={(event) => setScroll(event.currentTarget.scrollTop)}
      >
        <div class="tree-all" role="presentation" style={{ height: `${rows.length * ROW_PX}px` }}>
          {rows.slice(first, last).map((row, index) => (
            <TreeRow
              key={keyOfRow(row)}
              row={row}
              words={words}
              index={first + index}
              isActive={first + index === active}
              colour={row.kind === "field" ? colourOf(row.channel) : undefined}
              onClick={() => {
                setActive(first + index);
                choose(row);
              }}
            />
          ))}
        </div>
        {total === 0 && search !== "" && <p class="empty">No stream matches “{search}”.</p>}
        {total === 0 && search === "" && <p class="empty">No data yet.</p>}
        {error && <p class="empty error">{error.message}</p>}
      </div>
      <p class="tree-foot" aria-live="polite">
        {total === undefined ? "…" : `${formatCount(total)} ${total === 1 ? "stream" : "streams"}`}
        {explorer.channels.all.length > 0 && ` · ${explorer.channels.all.length} shown`}
      </p>
    </div>
  );

  function colourOf(channel: string): string | undefined {
    const shown = explorer.channels.get(channel);
    return shown ? theme.palette.series[shown.colour] : undefined;
  }
}
