/** The range of time in view: what it is, and a form to choose another, relative to now or not, and its zone. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { readRolling, type Rolling } from "../lib/address";
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
import { useMenu } from "./menu";

const PRESETS: readonly (readonly [label: string, text: string, length: bigint])[] = [
  ["5 min", "5m", 5n * MINUTE],
  ["1 h", "1h", HOUR],
  ["24 h", "24h", DAY],
  ["7 d", "7d", 7n * DAY],
  ["30 d", "30d", 30n * DAY],
  ["1 y", "365d", 365n * DAY],
];

const REFRESHES: readonly (readonly [seconds: number, label: string])[] = [
  [0, "when there is new data"],
  [5, "every 5 s"],
  [30, "every 30 s"],
  [60, "every minute"],
  [300, "every 5 minutes"],
];

export function RangeButton(): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.painted);
  useEmitter(explorer.changed);
  const [open, setOpen] = useState(false);
  const menu = useMenu(open, () => setOpen(false));
  const { view, zone, rolling } = explorer;
  const [from, to] = rolling ? [rolling.from, rolling.to] : rangeText(view, zone);
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
  useEmitter(explorer.changed);
  const { zone } = explorer;
  const [from, setFrom] = useState(() => explorer.rolling?.from ?? formatInstant(explorer.view.from, zone, 9));
  const [to, setTo] = useState(() => explorer.rolling?.to ?? formatInstant(explorer.view.to, zone, 9));
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
    explorer.setZone(next);
    // What is relative to now is the same everywhere.
    if (start !== null && !isRelative(from)) setFrom(formatInstant(start, next, 9));
    if (end !== null && !isRelative(to)) setTo(formatInstant(end, next, 9));
  };
  /** What was typed, if one of its ends is relative to now; the other is written so that every zone reads it alike. */
  const typed = (): Rolling | undefined => {
    if (start === null || end === null) return undefined;
    return readRolling(isRelative(from) ? from : String(start), isRelative(to) ? to : String(end));
  };
  return (
    <form
      class="popover form"
      aria-label="Range of time"
      onSubmit={(event) => {
        event.preventDefault();
        if (problem !== undefined || start === null || end === null) return;
        const rolling = typed();
        if (rolling) explorer.follow(rolling);
        else explorer.show({ from: start, to: end });
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
      <div class="presets" role="group" aria-label="The latest span, up to now and following it">
        <span class="soft">Up to now, and following</span>
        {PRESETS.slice(0, -1).map(([label, text]) => (
          <button
            type="button"
            key={label}
            class="chip"
            aria-label={`The last ${label}, following the newest data`}
            onClick={() => {
              explorer.follow({ from: `now-${text}`, to: "now" });
              onDone();
            }}
          >
            {label}
          </button>
        ))}
      </div>
      <div class="presets" role="group" aria-label="Up to the newest data">
        <span class="soft">Up to the newest data</span>
        {PRESETS.map(([label, , length]) => (
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
      <label class="field">
        <span>Reload</span>
        <select
          value={String(explorer.refresh)}
          onChange={(event) => explorer.setRefresh(Number(event.currentTarget.value))}
        >
          {!REFRESHES.some(([seconds]) => seconds === explorer.refresh) && (
            <option value={String(explorer.refresh)}>{`every ${explorer.refresh} s`}</option>
          )}
          {REFRESHES.map(([seconds, label]) => (
            <option key={seconds} value={String(seconds)}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <ZoneField zone={zone} onChoose={choose} />
      <div class="actions">
        <span class="spring" />
        <button type="submit" class="primary" disabled={problem !== undefined}>
          Show
        </button>
      </div>
      {problem !== undefined && <p class="error">{problem}</p>}
    </form>
  );
}

function isRelative(text: string): boolean {
  return /^\s*now/i.test(text);
}

function ZoneField({ zone, onChoose }: { zone: Zone; onChoose: (zone: Zone) => void }): JSX.Element {
  const zones = useMemo(() => {
    const known = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];
    return known.includes(zone) || zone === "local" || zone === "utc" ? known : [zone, ...known];
  }, [zone]);
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return (
    <label class="field">
      <span>Time zone</span>
      <select value={zone} onChange={(event) => onChoose(event.currentTarget.value)}>
        <option value="local">{`Of this computer (${here})`}</option>
        <option value="utc">UTC</option>
        {zones.map((each) => (
          <option key={each} value={each}>
            {each.replaceAll("_", " ")}
          </option>
        ))}
      </select>
    </label>
  );
}
