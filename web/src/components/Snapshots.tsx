/** Named snapshots: which there are, making and dropping them, and the plots as of one. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { createSnapshot, dropSnapshot, fetchSnapshots, type Snapshots } from "../api/snapshots";
import { fetchStreams } from "../api/streams";
import { useEmitter, useShared } from "../context";
import { formatBytes, formatCount } from "../lib/format";
import { formatInstant } from "../lib/time";
import { Icon } from "./icons";
import { useMenu } from "./menu";

export function SnapshotButton(): JSX.Element {
  const { explorer } = useShared();
  useEmitter(explorer.changed);
  const [open, setOpen] = useState(false);
  const menu = useMenu(open, () => setOpen(false));
  return (
    <div class="menu-place" ref={menu}>
      <button
        type="button"
        class={explorer.past === undefined ? "ghost" : "ghost on"}
        aria-haspopup="dialog"
        aria-expanded={open}
        aria-label="Snapshots"
        title="Named snapshots of the database"
        onClick={() => setOpen(!open)}
      >
        <Icon name="camera" />
      </button>
      {open && <List onDone={() => setOpen(false)} />}
    </div>
  );
}

function List({ onDone }: { onDone: () => void }): JSX.Element {
  const { client, explorer } = useShared();
  const [found, setFound] = useState<Snapshots>();
  const [name, setName] = useState("");
  const [said, setSaid] = useState<string>();
  /** The one of which it was asked whether it is to go. */
  const [doubtful, setDoubtful] = useState<string>();
  /** Whoever may not manage everything is told no list, and may look at one whose name they know. */
  const [isTold, setTold] = useState(true);

  const list = async (signal?: AbortSignal): Promise<void> => {
    const outcome = await fetchSnapshots(client, signal);
    if (signal?.aborted) return;
    if (outcome.ok) setFound(outcome.value);
    else setSaid(outcome.error.message);
    setTold(outcome.ok);
  };
  useEffect(() => {
    const control = new AbortController();
    void list(control.signal);
    return () => control.abort();
  }, [client]);

  const look = (at: string): void => {
    explorer.lookAt(at);
    onDone();
  };
  const make = async (): Promise<void> => {
    setSaid("Creating …");
    const outcome = await createSnapshot(client, name.trim());
    setSaid(
      outcome.ok ? `“${outcome.value.name}” has ${formatCount(outcome.value.events)} events.` : outcome.error.message,
    );
    if (!outcome.ok) return;
    setName("");
    await list();
  };
  const drop = async (gone: string): Promise<void> => {
    setDoubtful(undefined);
    const outcome = await dropSnapshot(client, gone);
    setSaid(outcome.ok ? `“${gone}” was dropped.` : outcome.error.message);
    if (outcome.ok && explorer.past === gone) explorer.lookAt(undefined);
    await list();
  };

  return (
    <form
      class="popover form right snapshots"
      aria-label="Named snapshots"
      onSubmit={(event) => {
        event.preventDefault();
        if (isTold) void make();
        else look(name.trim());
      }}
    >
      {found && (
        <ul aria-label="List of snapshots">
          {found.all.map((one) => (
            <li key={one.name}>
              <button type="button" class="link" aria-label={`Show ${one.name}`} onClick={() => look(one.name)}>
                <b>{one.name}</b>
              </button>
              <span class="soft">
                {one.created !== undefined && formatInstant(one.created, explorer.zone, 0)}, {formatCount(one.events)}{" "}
                events, {formatBytes(one.keptBytes)} kept
              </span>
              <span class="spring" />
              {doubtful === one.name ? (
                <button type="button" class="link error" onClick={() => void drop(one.name)}>
                  Confirm drop
                </button>
              ) : (
                <button
                  type="button"
                  class="ghost small"
                  aria-label={`Drop ${one.name}`}
                  title="Drop it"
                  onClick={() => setDoubtful(one.name)}
                >
                  <Icon name="close" />
                </button>
              )}
            </li>
          ))}
          {found.ended.map((one) => (
            <li key={`ended ${one.name} ${one.ended}`} class="soft">
              {one.name} ended{one.ended !== undefined && ` ${formatInstant(one.ended, explorer.zone, 0)}`}:{" "}
              {one.reason}
            </li>
          ))}
        </ul>
      )}
      <div class="find-row">
        <input
          type="text"
          aria-label="Name"
          placeholder={isTold ? "Name of a new snapshot" : "Name of one"}
          spellcheck={false}
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <button type="submit" class="primary" disabled={name.trim() === ""}>
          {isTold ? "Create a snapshot" : "Look"}
        </button>
      </div>
      <span class="soft" role="status">
        {said ?? "A snapshot preserves the current state until it is dropped."}
      </span>
    </form>
  );
}

/** Says that the plots are of the past, and leads back. */
export function PastBar(): JSX.Element | null {
  const { client, explorer } = useShared();
  useEmitter(explorer.changed);
  const { past } = explorer;
  const [problem, setProblem] = useState<string>();
  // Of one that is not there, or has ended, there is nothing to plot that could say so.
  useEffect(() => {
    setProblem(undefined);
    if (past === undefined) return;
    const control = new AbortController();
    void fetchStreams(client, { limit: 0, past }, control.signal).then((outcome) => {
      if (!outcome.ok && !control.signal.aborted) setProblem(outcome.error.message);
    });
    return () => control.abort();
  }, [client, past]);
  if (past === undefined) return null;
  return (
    <div class="markbar" role="group" aria-label="Snapshot">
      <Icon name="camera" />
      <span>
        As of <b>{past}</b>
      </span>
      {problem !== undefined && (
        <span class="error" role="alert">
          {problem}
        </span>
      )}
      <span class="spring" />
      <button type="button" class="link" onClick={() => explorer.lookAt(undefined)}>
        Back to now
      </button>
    </div>
  );
}
