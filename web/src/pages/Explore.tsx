/** Streams on the left, plots on the right; how to send a first point while there is nothing. */
import type { JSX, RefObject } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { StreamInfo } from "../api/streams";
import { fetchStreams, isPlottable } from "../api/streams";
import { FirstSteps } from "../components/FirstSteps";
import { MarkBar } from "../components/Find";
import { Announcer, Plots } from "../components/Plots";
import { PastBar } from "../components/Snapshots";
import { StreamTree } from "../components/StreamTree";
import { Toolbar, Trouble } from "../components/Toolbar";
import { Transport } from "../components/Transport";
import { WatchPanel } from "../components/Watches";
import { useEmitter, useShared } from "../context";
import type { Explorer } from "../explore/explorer";
import { LIST_LIMIT } from "../explore/first";
import { CHANNELS_MAX } from "../lib/address";
import { channelOf } from "../lib/channel";
import { MINUTE, nowInstant } from "../lib/time";

const FIRST_POLL_MS = 1_000;
/** So many fields of the first stream are shown when nothing was chosen. */
const CHOSEN_MAX = 2;

interface ExploreProps {
  readonly searchField: RefObject<HTMLInputElement | null>;
  readonly isTreeOpen: boolean;
  readonly onTreeClose: () => void;
  readonly say: (text: string) => void;
}

export function Explore({ searchField, isTreeOpen, onTreeClose, say }: ExploreProps): JSX.Element {
  const { client, explorer, first } = useShared();
  useEmitter(explorer.changed);
  const [isEmpty, setEmpty] = useState(false);
  const plots = useRef<HTMLDivElement>(null);
  const wasEmpty = useRef(false);
  // Asked for beside the list of streams, so that a first look waits for one answer only.
  const likely = useMemo(
    () => (explorer.channels.all.length === 0 ? first.takeLikely() : Promise.resolve([])),
    [first, explorer],
  );

  const onStreams = useCallback(
    (streams: readonly StreamInfo[], total: number) => {
      if (total === 0) {
        wasEmpty.current = true;
        setEmpty(true);
        return;
      }
      setEmpty(false);
      if (explorer.channels.all.length === 0)
        void chooseFirst(explorer, streams, wasEmpty.current ? undefined : likely);
    },
    [explorer, likely],
  );

  // An empty database is asked often, so that the first point is seen at once.
  useEffect(() => {
    if (!isEmpty) return;
    const control = new AbortController();
    const timer = setInterval(() => {
      if (document.hidden) return;
      void fetchStreams(client, { limit: LIST_LIMIT }, control.signal).then((outcome) => {
        if (outcome.ok && outcome.value.total > 0) onStreams(outcome.value.streams, outcome.value.total);
      });
    }, FIRST_POLL_MS);
    return () => {
      clearInterval(timer);
      control.abort();
    };
  }, [client, isEmpty, onStreams]);

  const hasChannels = explorer.channels.all.length > 0;
  return (
    <main class={isTreeOpen ? "explore tree-open" : "explore"}>
      {!isEmpty && (
        <aside class="side" id="streams" aria-label="Streams">
          <StreamTree
            searchField={searchField}
            onStreams={onStreams}
            onFull={() => say(`At most ${CHANNELS_MAX} channels at once: remove one first.`)}
          />
        </aside>
      )}
      {isTreeOpen && (
        <button type="button" class="shade" aria-label="Close the list of streams" onClick={onTreeClose} />
      )}
      {isEmpty && !hasChannels ? (
        <section class="content">
          <FirstSteps />
        </section>
      ) : (
        <section class="content" aria-label="Plots">
          <Toolbar plots={plots} say={say} />
          <PastBar />
          <Transport />
          <WatchPanel />
          <MarkBar />
          <Trouble />
          {hasChannels ? (
            <Plots area={plots} say={say} />
          ) : (
            <p class="hint">Choose a channel from the list of streams.</p>
          )}
          <Announcer />
        </section>
      )}
    </main>
  );
}

/** Shows something of a stream with many events, so that the first look is at data. */
async function chooseFirst(
  explorer: Explorer,
  streams: readonly StreamInfo[],
  likely: Promise<readonly StreamInfo[]> | undefined,
): Promise<void> {
  const isFirstPoint = likely === undefined;
  const best = mostEvents([...streams, ...((await likely) ?? [])]);
  // Meanwhile somebody may have chosen.
  if (!best || explorer.channels.all.length > 0) return;
  const fields = best.fields.filter((field) => isPlottable(field.type));
  explorer.select(
    fields.slice(0, CHOSEN_MAX).map((field) => channelOf(best.stream, field.name)),
    [best],
  );
  const age = nowInstant() - (best.last ?? 0n);
  if (isFirstPoint && age < 10n * MINUTE && age > -10n * MINUTE) {
    explorer.show({ from: nowInstant() - 2n * MINUTE, to: nowInstant() });
    explorer.setLive(true);
  }
}

function mostEvents(streams: readonly StreamInfo[]): StreamInfo | undefined {
  return streams
    .filter((info) => info.fields.some((field) => isPlottable(field.type)))
    .sort((a, b) => (b.events ?? 0) - (a.events ?? 0))[0];
}
