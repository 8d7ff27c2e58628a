/** What is shown and how: range, fit, live, layout, export. */
import type { JSX, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { download, fileName, picture, rowsCsv, shownCsv } from "../explore/save";
import type { Layout } from "../lib/address";
import {
  DAY,
  digitsFor,
  formatInstant,
  formatLength,
  HOUR,
  MINUTE,
  offsetText,
  parseInstant,
  type Span,
  type Zone,
} from "../lib/time";
import { Icon, type IconName } from "./icons";

const LAYOUTS: readonly (readonly [Layout, IconName, string])[] = [
  ["stack", "stack", "One plot per channel"],
  ["field", "group", "One plot per field name"],
  ["all", "overlay", "All in one plot"],
];

interface ToolbarProps {
  readonly plots: RefObject<HTMLDivElement | null>;
  readonly say: (text: string) => void;
}

export function Toolbar({ plots, say }: ToolbarProps): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  return (
    <div class="toolbar" role="toolbar" aria-label="View">
      <RangeButton />
      <div class="group">
        <button
          type="button"
          class="ghost"
          aria-label="Zoom out"
          title="Zoom out (S)"
          onClick={() => explorer.zoomBy(2, 0.5)}
        >
          <Icon name="minus" />
        </button>
        <button
          type="button"
          class="ghost"
          aria-label="Zoom in"
          title="Zoom in (W)"
          onClick={() => explorer.zoomBy(0.5, 0.5)}
        >
          <Icon name="plus" />
        </button>
        <button type="button" class="ghost" title="Show everything there is (F)" onClick={() => explorer.fit()}>
          <Icon name="fit" />
          <span class="wide">Fit</span>
        </button>
        <button
          type="button"
          class={explorer.live ? "ghost live on" : "ghost live"}
          aria-pressed={explorer.live}
          title="Follow the newest data (L)"
          onClick={() => explorer.setLive(!explorer.live)}
        >
          <Icon name="live" />
          <span class="wide">Live</span>
        </button>
      </div>
      <span class="spring" />
      <div class="group segmented" role="radiogroup" aria-label="Layout">
        {LAYOUTS.map(([layout, icon, title]) => (
          <button
            type="button"
            key={layout}
            role="radio"
            class={explorer.layout === layout ? "ghost on" : "ghost"}
            aria-checked={explorer.layout === layout}
            aria-label={title}
            title={title}
            onClick={() => explorer.setLayout(layout)}
          >
            <Icon name={icon} />
          </button>
        ))}
      </div>
      <SaveMenu plots={plots} say={say} />
    </div>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** What went wrong with what is in view, and a way to try again. */
export function Trouble(): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const error = explorer.loader.failure ?? explorer.liveError;
  if (!error || error.status === 401) return null;
  return (
    <div class="trouble" role="alert">
      <span>{sentence(error.message)}</span>
      <button type="button" class="link" onClick={() => explorer.retry()}>
        Try again
      </button>
    </div>
  );
}

const PRESETS: readonly (readonly [string, bigint])[] = [
  ["5 min", 5n * MINUTE],
  ["1 h", HOUR],
  ["24 h", DAY],
  ["7 d", 7n * DAY],
  ["30 d", 30n * DAY],
  ["1 y", 365n * DAY],
];

function RangeButton(): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  useEmitter(explorer.changed);
  const [open, setOpen] = useState(false);
  const menu = useMenu(open, () => setOpen(false));
  const { view, zone } = explorer;
  const [from, to] = rangeText(view, zone);
  return (
    <div class="menu-place" ref={menu}>
      <button type="button" class="range" aria-expanded={open} aria-haspopup="dialog" onClick={() => setOpen(!open)}>
        <span class="range-text">
          {from} <span class="soft">–</span> {to}
        </span>
        <span class="range-length">{formatLength(Number(view.to - view.from))}</span>
        <span class="soft zone">{offsetText(view.from, zone)}</span>
      </button>
      {open && <RangeForm onDone={() => setOpen(false)} />}
    </div>
  );
}

/** Both ends as short as the width of the view allows; the end repeats no date that the beginning has told. */
function rangeText(view: Span, zone: Zone): [string, string] {
  const size = view.to - view.from;
  const digits = size > 60n * DAY ? 0 : digitsFor(view, 200);
  // 10 characters are the date, 16 reach to the minute.
  const length = size > 60n * DAY ? 10 : size > DAY ? 16 : undefined;
  const from = formatInstant(view.from, zone, digits).slice(0, length);
  const to = formatInstant(view.to, zone, digits).slice(0, length);
  return [from, length !== 10 && to.slice(0, 10) === from.slice(0, 10) ? to.slice(11) : to];
}

function RangeForm({ onDone }: { onDone: () => void }): JSX.Element {
  const { explorer } = useShared();
  const { zone } = explorer;
  const [from, setFrom] = useState(() => formatInstant(explorer.view.from, zone, 9));
  const [to, setTo] = useState(() => formatInstant(explorer.view.to, zone, 9));
  const start = parseInstant(from, zone);
  const end = parseInstant(to, zone);
  const problem =
    start === null
      ? "“From” is not a time: try 2024-03-05 12:30, now-1h, or nanoseconds since 1970"
      : end === null
        ? "“To” is not a time: try 2024-03-05 12:30, now, or nanoseconds since 1970"
        : start >= end
          ? "“From” must be before “To”"
          : undefined;
  const choose = (next: Zone): void => {
    const [a, b] = [start, end];
    explorer.setZone(next);
    if (a !== null) setFrom(formatInstant(a, next, 9));
    if (b !== null) setTo(formatInstant(b, next, 9));
  };
  return (
    <form
      class="popover form"
      aria-label="Range of time"
      onSubmit={(event) => {
        event.preventDefault();
        if (problem !== undefined || start === null || end === null) return;
        explorer.show({ from: start, to: end });
        onDone();
      }}
    >
      <label class="field">
        <span>From</span>
        <input type="text" spellcheck={false} value={from} onInput={(event) => setFrom(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>To</span>
        <input type="text" spellcheck={false} value={to} onInput={(event) => setTo(event.currentTarget.value)} />
      </label>
      <div class="presets">
        {PRESETS.map(([label, length]) => (
          <button
            type="button"
            key={label}
            class="chip"
            onClick={() => {
              const last = explorer.channels.extent()?.to ?? explorer.view.to;
              explorer.show({ from: last - length, to: last + length / 50n });
              onDone();
            }}
          >
            {label}
          </button>
        ))}
        <button
          type="button"
          class="chip"
          onClick={() => {
            explorer.fit();
            onDone();
          }}
        >
          all
        </button>
      </div>
      <p class="soft">Buttons end at the newest data.</p>
      <div class="actions">
        <div class="group segmented" role="radiogroup" aria-label="Time zone">
          {(["local", "utc"] as const).map((each) => (
            <button
              type="button"
              key={each}
              role="radio"
              aria-checked={zone === each}
              class={zone === each ? "ghost on" : "ghost"}
              onClick={() => choose(each)}
            >
              {each === "utc" ? "UTC" : "Local"}
            </button>
          ))}
        </div>
        <span class="spring" />
        <button type="submit" class="primary" disabled={problem !== undefined}>
          Show
        </button>
      </div>
      {problem !== undefined && <p class="error">{problem}</p>}
    </form>
  );
}

function SaveMenu({ plots, say }: ToolbarProps): JSX.Element {
  const { client, explorer, theme } = useShared();
  const [open, setOpen] = useState(false);
  const menu = useMenu(open, () => setOpen(false));
  const streams = [...new Set(explorer.channels.all.map((channel) => channel.stream))];

  const save = async (what: "shown" | "rows" | "png"): Promise<void> => {
    setOpen(false);
    if (what === "shown") {
      download(new Blob([shownCsv(explorer)], { type: "text/csv" }), fileName(explorer, "csv"));
    } else if (what === "png") {
      const image = plots.current ? await picture(plots.current, theme.palette.surface, theme.palette.ink) : null;
      if (image) download(image, fileName(explorer, "png"));
      else say("The picture could not be made.");
    } else {
      for (const stream of streams) {
        const rows = await rowsCsv(client, stream, explorer.view);
        if (rows.ok) download(rows.value, `${stream.replace(/[^\w.-]+/g, "_")}.csv`);
        else say(`${stream}: ${rows.error.message}`);
      }
    }
  };

  return (
    <div class="menu-place" ref={menu}>
      <button
        type="button"
        class="ghost"
        aria-haspopup="menu"
        aria-expanded={open}
        title="Save what is shown"
        disabled={streams.length === 0}
        onClick={() => setOpen(!open)}
      >
        <Icon name="download" />
        <span class="wide">Save</span>
      </button>
      {open && (
        <div class="popover menu right" role="menu">
          <button type="button" role="menuitem" onClick={() => void save("png")}>
            Picture <span class="soft">PNG</span>
          </button>
          <button type="button" role="menuitem" onClick={() => void save("shown")}>
            Points as shown <span class="soft">CSV</span>
          </button>
          <button type="button" role="menuitem" onClick={() => void save("rows")}>
            Every row in view <span class="soft">CSV{streams.length > 1 ? `, ${streams.length} files` : ""}</span>
          </button>
        </div>
      )}
    </div>
  );
}

/** Closes a menu on Escape and on a click elsewhere; arrows move between its items. */
export function useMenu(open: boolean, close: () => void): RefObject<HTMLDivElement | null> {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (!open || !element) return;
    const items = (): HTMLElement[] => [...element.querySelectorAll<HTMLElement>("[role=menuitem], .popover input")];
    items()[0]?.focus();
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
        element.querySelector("button")?.focus();
      } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target instanceof HTMLButtonElement) {
        const all = items();
        const at = all.indexOf(event.target);
        if (at >= 0) {
          event.preventDefault();
          all[(at + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length]?.focus();
        }
      }
    };
    const onDown = (event: PointerEvent): void => {
      if (event.target instanceof Node && !element.contains(event.target)) close();
    };
    element.addEventListener("keydown", onKey);
    document.addEventListener("pointerdown", onDown);
    return () => {
      element.removeEventListener("keydown", onKey);
      document.removeEventListener("pointerdown", onDown);
    };
  }, [open]);
  return place;
}
