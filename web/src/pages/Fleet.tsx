/** A cloud's edges, an edge's cloud, or a dispatcher's nodes: how it stands, what it costs, and what is where. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api/client";
import {
  changeFleet,
  fetchFleet,
  type Cloud,
  type Compared,
  type Conflicts,
  type Edge,
  type FleetNode,
  type FleetState,
} from "../api/fleet";
import { PresenceCard } from "../components/PresenceMap";
import { useEmitter, useShared } from "../context";
import { formatBytes, formatCount } from "../lib/format";
import { formatInstant, formatLength, nowInstant, type Instant, type Zone } from "../lib/time";

const REFRESH_MS = 2_000;

/** Why a copy lags, in words. */
const CAUSES: Readonly<Record<string, string>> = {
  not_connected: "not connected",
  quiet_hours: "quiet hours",
  day_cap: "the cap of its day is spent",
  month_cap: "the cap of its month is spent",
  rate: "its rate is used up for now",
  paused: "paused here",
  refused: "refused",
  failed: "cannot be stored",
  link: "on its way over the link",
  planner: "not subscribed to",
};

/** What the states mean, in words. */
const STATES: Readonly<Record<string, string>> = {
  invited: "invited, not joined yet",
  offline: "not connected",
  quiet: "quiet, as announced",
  current: "complete",
  catching: "on its way",
  paused: "paused",
  refused: "refused",
  failed: "cannot be stored",
  not_joined: "no cloud joined",
  connected: "connected",
};

export interface FleetProps {
  readonly say: (notice: string) => void;
}

type Act = (op: string, edge?: string) => void;

export function Fleet({ say }: FleetProps): JSX.Element {
  const { client, session, explorer } = useShared();
  useEmitter(explorer.changed);
  const [fleet, setFleet] = useState<FleetState>();
  const [error, setError] = useState<ApiError>();
  const [asked, setAsked] = useState(0);

  useEffect(() => {
    const control = new AbortController();
    const load = (): void => {
      if (document.hidden) return;
      void fetchFleet(client, control.signal).then((outcome) => {
        if (control.signal.aborted) return;
        setError(outcome.ok ? undefined : outcome.error);
        if (outcome.ok) setFleet(outcome.value);
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
  }, [client, session, asked]);

  const act: Act = (op, edge) => {
    void changeFleet(client, op, edge).then((outcome) => {
      if (!outcome.ok) say(outcome.error.message);
      setAsked((n) => n + 1);
    });
  };

  return (
    <main class="storage">
      {error && (
        <p class="notice error" role="alert">
          {error.message}
        </p>
      )}
      {fleet ? <Report fleet={fleet} zone={explorer.zone} act={act} /> : !error && <p class="hint">Reading …</p>}
      {(fleet ? fleet.edges !== undefined || fleet.nodes !== undefined : error?.status === 403) && <PresenceCard />}
    </main>
  );
}

function Report({ fleet, zone, act }: { fleet: FleetState; zone: Zone; act: Act }): JSX.Element {
  return (
    <>
      {fleet.cloud && <OfCloud cloud={fleet.cloud} zone={zone} act={act} />}
      {fleet.edges && <Edges edges={fleet.edges} zone={zone} act={act} />}
      {fleet.nodes && <Nodes nodes={fleet.nodes} />}
      {!fleet.cloud && !fleet.edges && !fleet.nodes && (
        <section class="card">
          <h2>This node is standalone</h2>
          <p>
            Started with <code>--role cloud</code> it holds copies of edges and answers for them; with{" "}
            <code>--role edge</code> the cloud that it joined copies it.
          </p>
        </section>
      )}
    </>
  );
}

function OfCloud({ cloud, zone, act }: { cloud: Cloud; zone: Zone; act: Act }): JSX.Element {
  const behind =
    cloud.stateNumber !== undefined && cloud.confirmedNumber !== undefined && cloud.stateNumber > cloud.confirmedNumber;
  return (
    <section class="card">
      <h2>The cloud of this edge</h2>
      <dl class="pairs">
        <dt>Cloud</dt>
        <dd>{cloud.url ?? "none joined: headwater join INVITATION"}</dd>
        {cloud.edge !== undefined && (
          <>
            <dt>Called there</dt>
            <dd>{cloud.edge}</dd>
          </>
        )}
        <dt>State</dt>
        <dd>
          {STATES[cloud.state] ?? cloud.state}
          {cloud.since !== undefined && ` for ${ago(cloud.since)}`}
        </dd>
        <dt>Proven to be there</dt>
        <dd>
          {size(cloud.confirmedBytes)}
          {behind ? ", and more is on its way" : ""}
        </dd>
        <dt>Sent today, this month</dt>
        <dd>
          {size(cloud.sentToday)}, {size(cloud.sentThisMonth)}
        </dd>
        <dt>Compared</dt>
        <dd>{compared(cloud.verified, cloud.isVerifying, zone)}</dd>
      </dl>
      {cloud.error !== undefined && <p class="notice error">{cloud.error}</p>}
      <p>
        <button type="button" onClick={() => act(cloud.state === "paused" ? "resume" : "pause")}>
          {cloud.state === "paused" ? "Go on" : "Pause"}
        </button>{" "}
        <button type="button" disabled={cloud.state !== "connected"} onClick={() => act("verify")}>
          Compare
        </button>
      </p>
    </section>
  );
}

function Edges({ edges, zone, act }: { edges: readonly Edge[]; zone: Zone; act: Act }): JSX.Element {
  const here = edges.reduce((sum, edge) => sum + (edge.bytes ?? 0), 0);
  const current = edges.filter((edge) => edge.state === "current").length;
  return (
    <section class="card">
      <h2>Edges</h2>
      {edges.length === 0 ? (
        <p class="soft">None yet: headwater edges add NAME prints an invitation.</p>
      ) : (
        <>
          <p class="soft">
            {formatCount(edges.length)} edges, {formatCount(current)} of them complete; {formatBytes(here)} in all
          </p>
          <div class="scroll">
            <table class="list">
              <thead>
                <tr>
                  <th>Edge</th>
                  <th>State</th>
                  <th>Wanted</th>
                  <th>Heard</th>
                  <th>All there</th>
                  <th title="Time since which something that the edge has stored may be missing here">Lag</th>
                  <th class="num">Here</th>
                  <th class="num">Missing</th>
                  <th class="num">Sent today</th>
                  <th class="num" title="Bytes written to its disk since it was started">
                    Written
                  </th>
                  <th>Compared</th>
                  <th>Version</th>
                  <th />
                </tr>
              </thead>
              <tbody>
                {edges.map((edge) => (
                  <Row key={edge.name} edge={edge} zone={zone} act={act} />
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
}

/** What a dispatcher knows of the nodes that answer for it. */
function Nodes({ nodes }: { nodes: readonly FleetNode[] }): JSX.Element {
  const live = nodes.filter((node) => node.isLive).length;
  const count = (value: number | undefined): string => (value === undefined ? "–" : formatCount(value));
  return (
    <section class="card">
      <h2>Nodes</h2>
      <p class="soft">
        {formatCount(live)} of {formatCount(nodes.length)} answer. Missing ranges of an edge are fetched by the node
        that it is connected to.
      </p>
      <div class="scroll">
        <table class="list">
          <thead>
            <tr>
              <th>Node</th>
              <th>State</th>
              <th class="num" title="Connected edges, of those of which it has data">
                Edges connected
              </th>
              <th class="num">Streams</th>
              <th class="num" title="Single tiles that it has beyond the subscriptions">
                Tiles
              </th>
            </tr>
          </thead>
          <tbody>
            {nodes.map((node) => (
              <tr key={node.url}>
                <th scope="row">
                  <a href={`${(node.publicUrl ?? node.url).replace(/\/$/, "")}/#/fleet`} rel="noreferrer">
                    {node.publicUrl ?? node.url}
                  </a>
                </th>
                <td>
                  {node.isLive ? "answers" : <span class="error">does not answer</span>}
                  {node.error !== undefined && <div class="soft">{node.error}</div>}
                </td>
                <td class="num">
                  {count(node.connected)} of {count(node.edges)}
                </td>
                <td class="num">{count(node.streams)}</td>
                <td class="num">{count(node.tiles)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** What is wanted of an edge. */
function Wanted({ want, rules }: Edge): JSX.Element {
  return (
    <>
      {want === "full" ? "all rows" : want === "nothing" ? "nothing" : `summaries from level ${want}`}
      {rules > 0 && <div class="soft">{rules === 1 ? "1 rule says" : `${rules} rules say`} otherwise</div>}
    </>
  );
}

/** What an edge may send, and did. */
function Budget({ edge }: { edge: Edge }): JSX.Element {
  const of = (most: number | undefined): string => (most === undefined ? "" : ` of ${formatBytes(most)}`);
  return (
    <>
      {size(edge.sentToday)}
      {of(edge.dayMax)}
      {edge.rate !== undefined && <div class="soft">{formatBytes(edge.rate)}/s</div>}
      {edge.monthMax !== undefined && (
        <div class="soft">
          {size(edge.sentThisMonth)}
          {of(edge.monthMax)} a month
        </div>
      )}
    </>
  );
}

/** How far the copy is behind, why, and for how long. */
function Lag({ lag, zone }: { lag: Edge["lag"]; zone: Zone }): JSX.Element {
  return (
    <>
      {lag.seconds === undefined ? "–" : formatLength(lag.seconds * 1e9)}
      {lag.cause !== undefined && <div class="soft">{CAUSES[lag.cause] ?? lag.cause}</div>}
      {lag.until !== undefined && <div class="soft">until {formatInstant(lag.until, zone, 0)}</div>}
      {lag.secondsLeft !== undefined && <div class="soft">{formatLength(lag.secondsLeft * 1e9)} left</div>}
      {lag.liveMs !== undefined && <div class="soft">newest values after {formatLength(lag.liveMs * 1e6)}</div>}
    </>
  );
}

/** What an edge shares with others, in words. */
export function conflicting(found: Conflicts): string {
  const streams = found.streams === 1 ? "1 stream is" : `${formatCount(found.streams)} streams are`;
  const least = found.isComplete ? "" : "at least ";
  return `${streams} also in another database; ${least}${formatCount(found.hiddenRows)} rows are hidden: headwater edges conflicts`;
}

function Row({ edge, zone, act }: { edge: Edge; zone: Zone; act: Act }): JSX.Element {
  const isThere = edge.state === "current" || edge.state === "catching";
  return (
    <tr>
      <th scope="row">{edge.name}</th>
      <td title={edge.error}>
        {STATES[edge.state] ?? edge.state}
        {edge.error !== undefined && <div class="soft">{edge.error}</div>}
        {edge.conflicts && <div class="soft">{conflicting(edge.conflicts)}</div>}
      </td>
      <td>
        <Wanted {...edge} />
      </td>
      <td>{since(edge.heard)}</td>
      <td>{since(edge.current)}</td>
      <td>
        <Lag lag={edge.lag} zone={zone} />
      </td>
      <td class="num">{size(edge.bytes)}</td>
      <td class="num">{size(edge.missing)}</td>
      <td class="num">
        <Budget edge={edge} />
      </td>
      <td class="num">{size(edge.written)}</td>
      <td>{compared(edge.verified, edge.isVerifying, zone)}</td>
      <td>{edge.version ?? "–"}</td>
      <td>
        <button
          type="button"
          aria-label={`${edge.state === "paused" ? "Go on with" : "Pause"} ${edge.name}`}
          onClick={() => act(edge.state === "paused" ? "resume" : "pause", edge.name)}
        >
          {edge.state === "paused" ? "Go on" : "Pause"}
        </button>{" "}
        <button
          type="button"
          aria-label={`Compare ${edge.name}`}
          disabled={!isThere}
          onClick={() => act("verify", edge.name)}
        >
          Compare
        </button>
      </td>
    </tr>
  );
}

function size(bytes: number | undefined): string {
  return bytes === undefined ? "–" : formatBytes(bytes);
}

function ago(at: Instant): string {
  return formatLength(Math.max(0, Number(nowInstant() - at)));
}

function since(at: Instant | undefined): string {
  return at === undefined ? "–" : `${ago(at)} ago`;
}

/** What a comparison found, in words. */
export function compared(found: Compared | undefined, isVerifying: boolean, zone: Zone): string {
  if (isVerifying) return "comparing …";
  if (!found) return "–";
  const at = found.at === undefined ? "" : `, ${formatInstant(found.at, zone, 0)}`;
  if (found.different > 0) return `${formatBytes(found.different)} DIFFER${at}`;
  if (found.missing > 0) return `equal, ${formatBytes(found.missing)} missing${at}`;
  return `${formatBytes(found.equal)} equal${at}`;
}
