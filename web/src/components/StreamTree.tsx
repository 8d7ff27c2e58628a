/**
 * Streams and their fields, searchable, of any number: only rows in sight are in the page, and the list is fetched in
 * pieces as it is scrolled.
 *
 * Keyboard: one stop of the Tab key; arrows move, open and close, Enter and Space choose.
 */
import type { JSX, RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { fetchStreams, isPlottable, type FieldInfo, type StreamInfo } from "../api/streams";
import type { ApiError } from "../api/client";
import { LIST_LIMIT } from "../explore/first";
import { channelOf } from "../lib/channel";
import { formatCount, formatValue } from "../lib/format";
import { Icon } from "./icons";

const ROW_PX = 28;
const OVERSCAN = 8;
const SEARCH_WAIT_MS = 140;
const REFRESH_MS = 10_000;
/** So few streams are shown with their fields at once. */
const OPEN_ALL_MAX = 4;

type Row =
  | { readonly kind: "stream"; readonly info: StreamInfo; readonly isOpen: boolean }
  | { readonly kind: "field"; readonly info: StreamInfo; readonly field: FieldInfo; readonly channel: string }
  | { readonly kind: "more" };

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
  const [streams, setStreams] = useState<readonly StreamInfo[]>([]);
  const [total, setTotal] = useState<number>();
  const [next, setNext] = useState<string>();
  const [error, setError] = useState<ApiError>();
  /** Streams that were opened or closed by hand; the others are open if they are few, or have a channel on screen. */
  const [byHand, setByHand] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [active, setActive] = useState(0);
  const [scroll, setScroll] = useState(0);
  const [height, setHeight] = useState(600);
  const box = useRef<HTMLDivElement>(null);
  const isLoading = useRef(false);

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
      setError(undefined);
      setStreams(outcome.value.streams);
      setTotal(outcome.value.total);
      setNext(outcome.value.next);
      if (text === "") onStreams(outcome.value.streams, outcome.value.total);
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
    // New streams and newest values appear by themselves, as long as the list has not been scrolled on.
    const refresher = setInterval(() => {
      if (!document.hidden && (box.current?.scrollTop ?? 0) < ROW_PX * 50) void load(search, control.signal, true);
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
  const isOpen = (stream: string): boolean =>
    byHand.get(stream) ??
    ((total ?? 0) <= OPEN_ALL_MAX || explorer.channels.all.some((channel) => channel.stream === stream));
  const rows = useMemo(() => {
    const out: Row[] = [];
    for (const info of streams) {
      const open = isOpen(info.stream);
      out.push({ kind: "stream", info, isOpen: open });
      if (!open) continue;
      for (const field of info.fields)
        out.push({ kind: "field", info, field, channel: channelOf(info.stream, field.name) });
    }
    if (next !== undefined) out.push({ kind: "more" });
    return out;
  }, [streams, byHand, shown, next, total]);

  const first = Math.max(0, Math.floor(scroll / ROW_PX) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((scroll + height) / ROW_PX) + OVERSCAN);

  // The next piece is fetched when the end comes into sight.
  useEffect(() => {
    if (next === undefined || last < rows.length || isLoading.current) return;
    isLoading.current = true;
    const control = new AbortController();
    void fetchStreams(client, { search, after: next, limit: 200 }, control.signal).then((outcome) => {
      isLoading.current = false;
      if (control.signal.aborted || !outcome.ok) return;
      setStreams((before) => [...before, ...outcome.value.streams]);
      setNext(outcome.value.next);
    });
    return () => {
      isLoading.current = false;
      control.abort();
    };
  }, [client, search, next, last >= rows.length]);

  const open = (stream: string, isNow = !isOpen(stream)): void => setByHand(new Map(byHand).set(stream, isNow));
  const choose = (row: Row | undefined): void => {
    if (row?.kind === "stream") open(row.info.stream);
    else if (row?.kind === "field" && isPlottable(row.field.type)) {
      // It stays open when its last channel goes.
      open(row.info.stream, true);
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

  const onKeyDown = (event: KeyboardEvent): void => {
    const row = rows[active];
    const page = Math.max(1, Math.floor(height / ROW_PX) - 1);
    const parent = row?.kind === "field" ? rows.findIndex((r) => r.kind === "stream" && r.info === row.info) : -1;
    if (event.key === "ArrowDown") moveTo(active + 1);
    else if (event.key === "ArrowUp") moveTo(active - 1);
    else if (event.key === "PageDown") moveTo(active + page);
    else if (event.key === "PageUp") moveTo(active - page);
    else if (event.key === "Home") moveTo(0);
    else if (event.key === "End") moveTo(rows.length - 1);
    else if (event.key === "ArrowRight" && row?.kind === "stream")
      row.isOpen ? moveTo(active + 1) : open(row.info.stream);
    else if (event.key === "ArrowLeft" && row?.kind === "stream" && row.isOpen) open(row.info.stream);
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
              key={row.kind === "more" ? "more" : row.kind === "stream" ? row.info.stream : row.channel}
              row={row}
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

interface TreeRowProps {
  readonly row: Row;
  readonly index: number;
  readonly isActive: boolean;
  readonly colour: string | undefined;
  readonly onClick: () => void;
}

function TreeRow({ row, index, isActive, colour, onClick }: TreeRowProps): JSX.Element {
  const common = {
    id: `row-${index}`,
    role: "treeitem" as const,
    style: { transform: `translateY(${index * ROW_PX}px)` },
    onClick,
  };
  if (row.kind === "more") {
    return (
      <div {...common} class="row soft">
        loading more…
      </div>
    );
  }
  if (row.kind === "stream") {
    const tags = row.info.tags.map(([key, value]) => `${key}=${value}`).join("  ");
    return (
      <div
        {...common}
        class={`row row-stream${isActive ? " active" : ""}`}
        aria-level={1}
        aria-expanded={row.isOpen}
        title={row.info.stream}
      >
        <span class={row.isOpen ? "turn open" : "turn"}>
          <Icon name="chevron" />
        </span>
        <span class="row-name">
          <b>{row.info.table}</b> <span class="soft">{tags}</span>
        </span>
      </div>
    );
  }
  const canPlot = isPlottable(row.field.type);
  return (
    <div
      {...common}
      class={`row row-field${isActive ? " active" : ""}${canPlot ? "" : " off"}`}
      aria-level={2}
      aria-selected={colour !== undefined}
      aria-disabled={!canPlot}
      title={canPlot ? `${row.channel} (${row.field.type})` : `${row.field.type} cannot be plotted`}
    >
      <span
        class={colour === undefined ? "box" : "box on"}
        style={colour === undefined ? {} : { backgroundColor: colour, borderColor: colour }}
      />
      <span class="row-name">{row.field.name}</span>
      <span class="row-value">{lastText(row.field)}</span>
    </div>
  );
}

function lastText(field: FieldInfo): string {
  const value = field.last?.value;
  if (value === undefined || value === null) return "";
  return typeof value === "number" ? formatValue(value, 5) : String(value);
}
