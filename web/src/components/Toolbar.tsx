/** What is shown and how: range, fit, live, layout, export. */
import type { JSX, RefObject } from "preact";
import { useState } from "preact/hooks";
import { useEmitter, useShared } from "../context";
import { download, fileName, picture, rowsCsv, shownCsv } from "../explore/save";
import { writeRoute, type Layout } from "../lib/address";
import { FindButton } from "./Find";
import { Icon, type IconName } from "./icons";
import { useMenu } from "./menu";
import { SnapshotButton } from "./Snapshots";
import { WatchButton } from "./Watches";
import { RangeButton } from "./Range";

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
          class="ghost zoom"
          aria-label="Zoom out"
          title="Zoom out (S)"
          onClick={() => explorer.zoomBy(2, 0.5)}
        >
          <Icon name="minus" />
        </button>
        <button
          type="button"
          class="ghost zoom"
          aria-label="Zoom in"
          title="Zoom in (W)"
          onClick={() => explorer.zoomBy(0.5, 0.5)}
        >
          <Icon name="plus" />
        </button>
        <button type="button" class="ghost" title="Show all data (F)" onClick={() => explorer.fit()}>
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
      <ReplayButton />
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
      <FindButton />
      <WatchButton />
      <SnapshotButton />
      <CopyLink say={say} />
      <SaveMenu plots={plots} say={say} />
    </div>
  );
}

function ReplayButton(): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.replay.changed);
  const isOn = explorer.replay.range !== undefined;
  return (
    <button
      type="button"
      class={isOn ? "ghost on" : "ghost"}
      aria-label="Replay"
      aria-pressed={isOn}
      title="Replay the visible range (R)"
      disabled={explorer.channels.all.length === 0}
      onClick={() => explorer.playing.toggle()}
    >
      <Icon name="play" />
    </button>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** What went wrong with what is in view, and a way to try again. */
export function Trouble(): JSX.Element | null {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const error = explorer.loader.failure ?? explorer.listening.error;
  const [misnamed] = explorer.channels.misnamed;
  if (misnamed !== undefined) {
    return (
      <div class="trouble" role="alert">
        <span>{`“${misnamed}” is not a channel: a link names one as TABLE,TAG=VALUE.FIELD.`}</span>
        <button type="button" class="link" onClick={() => explorer.forgetMisnamed()}>
          Leave it out
        </button>
      </div>
    );
  }
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

/** Copies the address of what is shown, as it is at this moment. */
function CopyLink({ say }: { say: (text: string) => void }): JSX.Element {
  const { explorer } = useShared();
  const copy = (): void => {
    const url = new URL(writeRoute({ page: "view", state: explorer.state() }), location.href).href;
    // The clipboard is there on secure origins only; elsewhere the address itself has it.
    const done = navigator.clipboard?.writeText(url) ?? Promise.reject(new Error("the clipboard is not available"));
    done
      .then(() => say("The link is copied."))
      .catch(() => {
        history.replaceState(null, "", url);
        say("This browser does not allow copying here: the link is in the address bar.");
      });
  };
  return (
    <button
      type="button"
      class="ghost"
      aria-label="Copy link"
      title="Copy a link to this view"
      disabled={explorer.channels.all.length === 0}
      onClick={copy}
    >
      <Icon name="copy" />
    </button>
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
      else say("The picture could not be created.");
    } else {
      for (const stream of streams) {
        const rows = await rowsCsv(client, stream, explorer.view, explorer.past);
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
        title="Save this view"
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
