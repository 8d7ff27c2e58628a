/** The watches of the server, the matches of the one that is followed, as they come. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api/client";
import { fetchWatches, type Watch } from "../api/watches";
import { useEmitter, useShared } from "../context";
import { formatCount } from "../lib/format";
import { formatInstant } from "../lib/time";
import { Icon } from "./icons";

/** How often the list is asked for while it is shown. */
const LIST_MS = 5_000;
/** Matches that are listed; all of them are marked. */
const LISTED_MAX = 100;

export function WatchButton(): JSX.Element {
  const { watching } = useShared().explorer;
  useEmitter(watching.changed);
  return (
    <button
      type="button"
      class={watching.isOpen ? "ghost on" : "ghost"}
      aria-label="Watches"
      aria-pressed={watching.isOpen}
      title="Events of watches, live"
      onClick={() => watching.toggle()}
    >
      <Icon name="bell" />
    </button>
  );
}

export function WatchPanel(): JSX.Element | null {
  const { watching } = useShared().explorer;
  useEmitter(watching.changed);
  return watching.isOpen ? <Panel /> : null;
}

function Panel(): JSX.Element {
  const { client, explorer, session } = useShared();
  const { watching } = explorer;
  const [all, setAll] = useState<readonly Watch[]>();
  const [error, setError] = useState<ApiError>();

  useEffect(() => {
    const control = new AbortController();
    const ask = (): void => {
      if (document.hidden) return;
      void fetchWatches(client, control.signal).then((outcome) => {
        if (control.signal.aborted) return;
        if (outcome.ok) setAll(outcome.value);
        setError(outcome.ok ? undefined : outcome.error);
      });
    };
    ask();
    const timer = setInterval(ask, LIST_MS);
    // Whoever gives another token may see others.
    const unsubscribe = session.changed.subscribe(ask);
    return () => {
      clearInterval(timer);
      unsubscribe();
      control.abort();
    };
  }, [client, session]);

  return (
    <section class="watches" aria-label="Watches">
      <div class="watch-list" role="list" aria-label="List of watches">
        {error && error.status !== 401 && (
          <p class="error" role="alert">
            {error.message}
          </p>
        )}
        {all?.length === 0 && (
          <p class="soft">There is no visible watch. Create one with CREATE WATCH on the page SQL.</p>
        )}
        {all?.map((watch) => (
          <div role="listitem" key={watch.name}>
            <button
              type="button"
              class={watch.name === watching.name ? "ghost watch on" : "ghost watch"}
              aria-pressed={watch.name === watching.name}
              title={watch.definition}
              onClick={() => (watch.name === watching.name ? watching.stop() : watching.follow(watch))}
            >
              <b>{watch.name}</b>
              <span class="soft">{watch.table}</span>
              <span class={watch.isRunning ? "soft" : "error"} title={watch.stopped}>
                {watch.isRunning ? `${formatCount(watch.live)} live` : "stopped"}
              </span>
            </button>
          </div>
        ))}
      </div>
      {watching.name !== undefined && <Matches />}
    </section>
  );
}

/** Of the watch that is followed; the newest first. */
function Matches(): JSX.Element {
  const { explorer } = useShared();
  const { watching, marking } = explorer;
  useEmitter(explorer.changed);
  const { matches, missed, takenBack } = watching;
  const listed = matches.slice(-LISTED_MAX).reverse();
  const told = [
    `${watching.hasMore ? "newest " : ""}${formatCount(matches.length)} matches`,
    ...(takenBack > 0 ? [`${formatCount(takenBack)} retracted`] : []),
    ...(missed > 0 ? [`${formatCount(missed)} events are no longer stored`] : []),
    ...(watching.isConnected ? [] : [watching.error?.message ?? "connecting …"]),
  ];
  return (
    <div class="watch-matches">
      <div class="watch-head">
        <span role="status" aria-label="Events of the watch">
          {told.join(", ")}
        </span>
        <span class="spring" />
        {!watching.isDrawn && matches.length > 0 && (
          <button type="button" class="link" onClick={() => watching.draw()}>
            Mark on plots
          </button>
        )}
      </div>
      <ol aria-label="Matches">
        {listed.map((mark, k) => (
          <li key={mark.id}>
            <button
              type="button"
              class="link match"
              onClick={() => {
                if (!watching.isDrawn) watching.draw();
                marking.goTo(matches.length - 1 - k);
              }}
            >
              <span>{formatInstant(mark.from, explorer.zone, 3)}</span>
              <span class="soft">{mark.text}</span>
            </button>
          </li>
        ))}
      </ol>
    </div>
  );
}
