/** What is stored, at what cost, and what is done about late data. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api/client";
import {
  fetchStorage,
  type BrokerUse,
  type KeptUse,
  type LateUse,
  type PartitionUse,
  type StorageUse,
  type TableUse,
  type TierUse,
} from "../api/storage";
import { useEmitter, useShared } from "../context";
import { formatBytes, formatCount, formatShare, formatValue } from "../lib/format";
import { causeWords, choiceWords, kindWords, policyWords, tierWords } from "../lib/words";
import { DAY, formatInstant, formatLength, type Instant, type Zone } from "../lib/time";

const REFRESH_MS = 3_000;

export function Storage(): JSX.Element {
  const { client, session, explorer } = useShared();
  useEmitter(explorer.changed);
  const [use, setUse] = useState<StorageUse>();
  const [error, setError] = useState<ApiError>();

  useEffect(() => {
    const control = new AbortController();
    const load = (): void => {
      if (document.hidden) return;
      void fetchStorage(client, true, control.signal).then((outcome) => {
        if (control.signal.aborted) return;
        setError(outcome.ok ? undefined : outcome.error);
        if (outcome.ok) setUse(outcome.value);
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
  }, [client, session]);

  return (
    <main class="storage">
      {error && (
        <p class="notice error" role="alert">
          {error.message}
        </p>
      )}
      {use ? <Report use={use} zone={explorer.zone} /> : !error && <p class="hint">Reading …</p>}
    </main>
  );
}

function Report({ use, zone }: { use: StorageUse; zone: Zone }): JSX.Element {
  return (
    <>
      <div class="figures">
        <Figure label="On disk" value={map(use.bytesOnDisk, formatBytes)} />
        <Figure label="Bytes per event" value={map(use.bytesPerEvent, (v) => formatValue(v, 3))} />
        <Figure
          label="Write amplification"
          value={map(use.amplificationEvents, (v) => formatValue(v, 3))}
          note={map(use.amplificationBytes, (v) => `${formatValue(v, 3)} in bytes`)}
          title="Events written to leaves for each event accepted"
        />
        <Figure label="Events accepted" value={map(use.eventsAccepted, formatCount)} />
        <Figure
          label="Memory"
          value={map(use.memoryUsed, formatBytes)}
          note={map(use.memoryBudget, (v) => `of ${formatBytes(v)}`)}
        />
        <Figure
          label="Up for"
          value={map(use.uptimeSeconds, (v) => formatLength(v * 1e9))}
          note={use.version === undefined ? undefined : `version ${use.version}`}
        />
      </div>
      <div class="columns">
        <Card title="Events written, by cause">
          {use.causes.length > 0 ? (
            <Bars rows={use.causes.map(([cause, count]) => [causeWords(cause), count])} format={formatCount} />
          ) : (
            <Missing />
          )}
          {use.kinds.length > 0 && (
            <>
              <h3>Bytes written, by kind</h3>
              <Bars rows={use.kinds.map(([kind, bytes]) => [kindWords(kind), bytes])} format={formatBytes} />
            </>
          )}
        </Card>
        <Late late={use.late} />
      </div>
      {use.tiers && <Tiers use={use.tiers} />}
      {use.broker && <Broker use={use.broker} />}
      <Card title="Tables">
        {use.tables.length > 0 ? (
          <div class="scroll">
            <table class="list">
              <thead>
                <tr>
                  <th>Table</th>
                  <th class="num">Streams</th>
                  <th class="num">Events</th>
                  <th class="num">Size</th>
                  <th class="num">Bytes/event</th>
                  <th class="num">Partitions</th>
                  <th title="The earliest event; not shown for a table with thousands of streams">From</th>
                  <th title="The latest event; not shown for a table with thousands of streams">To</th>
                </tr>
              </thead>
              <tbody>
                {use.tables.map((table) => (
                  <tr key={table.table}>
                    <th scope="row">{table.table}</th>
                    <td class="num">{map(table.streams, formatCount) ?? "–"}</td>
                    <td class="num">{map(table.events, formatCount) ?? "–"}</td>
                    <td class="num">{map(table.bytes, formatBytes) ?? "–"}</td>
                    <td class="num">
                      {table.bytes !== undefined && table.events ? formatValue(table.bytes / table.events, 3) : "–"}
                    </td>
                    <td class="num">{map(table.partitions, formatCount) ?? "–"}</td>
                    <td>{instant(table.first, zone)}</td>
                    <td>{instant(table.last, zone)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ) : (
          <Missing text="No tables yet." />
        )}
      </Card>
      <Card title="Partitions">
        {use.partitions.length > 0 ? (
          <Partitions tables={use.tables} partitions={use.partitions} total={use.partitionsTotal} zone={zone} />
        ) : (
          <Missing text="No partitions yet." />
        )}
      </Card>
    </>
  );
}

/** What each medium holds, what was written to it, and what the fast one has of the large one. */
function Tiers({ use }: { use: TierUse }): JSX.Element {
  const size = (value: number | undefined): string => map(value, formatBytes) ?? "–";
  const kept: readonly (readonly [string, KeptUse | undefined])[] = [
    ["Newest partitions", use.newest],
    ["Index of segments", use.index],
  ];
  const copies = (use.newest?.bytes ?? 0) + (use.index?.bytes ?? 0);
  const own = use.fastBytes === undefined ? undefined : Math.max(0, use.fastBytes - copies);
  return (
    <Card title="Media">
      <dl class="pairs">
        <dt>Fast</dt>
        <dd>
          {use.folder} ({use.parts})
        </dd>
        <dt>State</dt>
        <dd>{tierWords(use)}</dd>
        {use.mirrorBehind !== undefined && (
          <>
            <dt>Copy of the log is behind by</dt>
            <dd>{formatBytes(use.mirrorBehind)}</dd>
          </>
        )}
      </dl>
      <h3>Contents</h3>
      <Bars
        rows={[
          [
            `Fast: log and pinned rows${use.fastBytesMax === undefined ? "" : ` (of ${formatBytes(use.fastBytesMax)} for the log)`}`,
            own ?? NaN,
          ],
          ...kept.flatMap(([name, each]) =>
            each ? [[`Fast: copy of ${name.toLowerCase()}`, each.bytes ?? NaN] as const] : [],
          ),
          ["Large", use.bulkBytes ?? NaN],
        ]}
        format={(value) => (Number.isNaN(value) ? "–" : formatBytes(value))}
      />
      <h3>Written since the start</h3>
      <Bars
        rows={[
          ["Fast", use.fastWritten ?? NaN],
          ["Large", use.bulkWritten ?? NaN],
        ]}
        format={(value) => (Number.isNaN(value) ? "–" : formatBytes(value))}
      />
      {kept.some(([, each]) => each) && (
        <>
          <h3>Copies of the large device on the fast one</h3>
          <div class="scroll">
            <table class="list">
              <thead>
                <tr>
                  <th>Copied</th>
                  <th class="num">Held</th>
                  <th class="num">At the most</th>
                  <th class="num">Partitions</th>
                  <th class="num" title="Reads that it answered instead of the large device, since the start">
                    Reads
                  </th>
                  <th class="num" title="Parts that were damaged and are rebuilt, since the start">
                    Dropped
                  </th>
                  <th class="num" title="How often there was no room for more, since the start">
                    No room
                  </th>
                </tr>
              </thead>
              <tbody>
                {kept.map(
                  ([name, each]) =>
                    each && (
                      <tr key={name}>
                        <th scope="row">{name}</th>
                        <td class="num">{size(each.bytes)}</td>
                        <td class="num">{map(each.bytesMax, formatBytes) ?? "what fits"}</td>
                        <td class="num">{map(each.segments, formatCount) ?? "–"}</td>
                        <td class="num">{map(each.reads, formatCount) ?? "–"}</td>
                        <td class="num">{map(each.dropped, formatCount) ?? "–"}</td>
                        <td class="num">{map(each.refused, formatCount) ?? "–"}</td>
                      </tr>
                    ),
                )}
              </tbody>
            </table>
          </div>
        </>
      )}
    </Card>
  );
}

function Broker({ use }: { use: BrokerUse }): JSX.Element {
  const count = (value: number | undefined): string => map(value, formatCount) ?? "not available";
  return (
    <Card title="Messages from a broker">
      <dl class="pairs">
        <dt>{use.broker}</dt>
        <dd>{use.connected ? "connected" : "not connected"}</dd>
        <dt>Subscriptions</dt>
        <dd>
          {count(use.subscriptions)}
          {use.subscriptionsRefused ? `, ${formatCount(use.subscriptionsRefused)} of them refused by the broker` : ""}
        </dd>
        <dt>Messages received</dt>
        <dd>{count(use.received)}</dd>
        <dt>Stored or refused</dt>
        <dd>{count(use.done)}</dd>
        <dt>Waiting</dt>
        <dd>{count(use.waiting)}</dd>
        <dt>Values stored</dt>
        <dd>{count(use.values)}</dd>
      </dl>
      {use.refused.length > 0 && (
        <>
          <h3>Refused, by code</h3>
          <Bars rows={use.refused.map(([code, refused]) => [code, refused])} format={formatCount} />
        </>
      )}
    </Card>
  );
}

function Late({ late }: { late: LateUse | undefined }): JSX.Element {
  if (!late) {
    return (
      <Card title="Late data">
        <Missing />
      </Card>
    );
  }
  return (
    <Card title="Late data">
      <dl class="pairs">
        <dt>Share of late events</dt>
        <dd>{map(late.share, formatShare) ?? "not available"}</dd>
        <dt>Policy in force</dt>
        <dd title={late.policy}>{late.policy === undefined ? "not available" : choiceWords(late.policy)}</dd>
      </dl>
      {late.candidates.length > 0 && <Candidates late={late} />}
      {late.histogram.length > 0 && (
        <>
          <h3>How late, in events</h3>
          <Histogram bins={late.histogram} />
        </>
      )}
      {late.decisions.length > 0 && (
        <>
          <h3>Decisions</h3>
          <ul class="decisions">
            {late.decisions.map((decision, index) => (
              <li key={index}>
                <span title={decision.from}>{policyWords(decision.from)}</span> →{" "}
                <b title={decision.to}>{policyWords(decision.to)}</b>
                <span class="soft">
                  {" "}
                  {[
                    decision.shard === undefined ? "" : `shard ${decision.shard}`,
                    decision.atEvents === undefined ? "" : `after ${formatCount(decision.atEvents)} events`,
                    decision.reason,
                  ]
                    .filter(Boolean)
                    .join(", ")}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </Card>
  );
}

/** So many policies are compared; the best of them. */
const CANDIDATES_MAX = 8;

/** What each policy is predicted to write for an event; those in force stand out. */
function Candidates({ late }: { late: LateUse }): JSX.Element {
  // "adaptive: separate:0.5 and conventional": who decides, and what is in force in the shards.
  const inForce = (late.policy ?? "").replace(/^\w+: /, "").split(" and ");
  const sorted = [...late.candidates].sort((a, b) => (a.predicted ?? Infinity) - (b.predicted ?? Infinity));
  const chosen = inForce.flatMap((policy) => {
    // A candidate tells more than its policy; of those with the same one, the plainest is meant.
    const same = sorted.map((each) => each.policy).filter((name) => name === policy || name.startsWith(`${policy},`));
    return same.sort((a, b) => a.length - b.length).slice(0, 1);
  });
  const shown = sorted.filter(({ policy }, index) => index < CANDIDATES_MAX || chosen.includes(policy));
  // What all have in common tells nothing.
  const leaf = /,leaf=\d+$/.exec(sorted[0]?.policy ?? "")?.[0] ?? "";
  const common = sorted.every(({ policy }) => policy.endsWith(leaf)) ? leaf.length : 0;
  const label = (policy: string): string => policyWords(policy.slice(0, policy.length - common));
  return (
    <>
      <h3>
        Predicted write amplification
        {shown.length < sorted.length && ` (the best of ${sorted.length} policies)`}
      </h3>
      <Bars
        rows={shown.map(({ policy, predicted }) => [label(policy), predicted ?? NaN])}
        format={(v) => formatValue(v, 4)}
        chosen={chosen.map(label)}
      />
    </>
  );
}

/** Columns of a histogram whose bounds grow by factors. */
function Histogram({ bins }: { bins: LateUse["histogram"] }): JSX.Element {
  const most = Math.max(1, ...bins.map((bin) => bin.count));
  return (
    <div
      class="histogram"
      role="img"
      aria-label={`Histogram of delays: ${bins.map((b) => `${bound(b.bound)}: ${Math.round(b.count)}`).join(", ")}`}
    >
      {bins.map((bin, index) => (
        <div class="bin" key={index} title={`${bound(bin.bound)}: ${formatCount(Math.round(bin.count))}`}>
          <div class="bin-fill" style={{ height: `${(bin.count / most) * 100}%` }} />
          <span>{bin.bound === undefined ? "∞" : compact(bin.bound)}</span>
        </div>
      ))}
    </div>
  );
}

function bound(value: number | undefined): string {
  return value === undefined ? "more" : `up to ${formatCount(value)}`;
}

function compact(value: number): string {
  return value >= 1e6
    ? `${Number((value / 1e6).toPrecision(2))}M`
    : value >= 1e3
      ? `${Number((value / 1e3).toPrecision(2))}k`
      : String(value);
}

interface BarsProps {
  readonly rows: readonly (readonly [string, number])[];
  readonly format: (value: number) => string;
  readonly chosen?: readonly string[];
}

function Bars({ rows, format, chosen = [] }: BarsProps): JSX.Element {
  const most = Math.max(1e-300, ...rows.map(([, value]) => (Number.isNaN(value) ? 0 : value)));
  return (
    <table class="bars">
      <tbody>
        {rows.map(([label, value]) => (
          <tr key={label} class={chosen.includes(label) ? "chosen" : ""}>
            <th scope="row">{label}</th>
            <td class="bar">
              <div style={{ width: `${Number.isNaN(value) ? 0 : (value / most) * 100}%` }} />
            </td>
            <td class="num">{format(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Partitions wider than this are not yet divided by time. */
const AGES = 50n * 365n * DAY;

const later = (a: Instant, b: Instant): Instant => (a > b ? a : b);
const earlier = (a: Instant, b: Instant): Instant => (a < b ? a : b);

interface PartitionsProps {
  readonly tables: readonly TableUse[];
  readonly partitions: readonly PartitionUse[];
  readonly total: number | undefined;
  readonly zone: Zone;
}

/** Each table's partitions over time: darker means more bytes, a mark below that late runs wait. */
function Partitions({ tables: uses, partitions, total, zone }: PartitionsProps): JSX.Element {
  const placed = partitions.flatMap((p) => {
    if (p.start === undefined || p.end === undefined) return [];
    // A partition owns more time than there are data: the first and the last reach to the ends of time.
    const table = uses.find((each) => each.table === p.table);
    const start = table?.first === undefined ? p.start : later(p.start, table.first);
    const end = table?.last === undefined ? p.end : earlier(p.end, table.last);
    return [{ ...p, start, end: end > start ? end : start + 1n }];
  });
  // Where it is not told how far a table's data reach, its first partition would leave no room for the others.
  const narrow = placed.filter((p) => p.end - p.start < AGES);
  if (narrow.length === 0) {
    return <p class="soft">{`${formatCount(total ?? placed.length)} partitions, none of them divided by time yet.`}</p>;
  }
  const low = narrow.reduce((least, p) => (p.start < least ? p.start : least), narrow[0]?.start ?? 0n);
  const high = narrow.reduce((most, p) => (p.end > most ? p.end : most), narrow[0]?.end ?? 1n);
  const size = Math.max(1, Number(high - low));
  const most = Math.max(1, ...placed.map((p) => p.bytes));
  const tables = [...new Set(placed.map((p) => p.table))];
  return (
    <>
      <div class="lanes">
        {tables.map((table) => (
          <div class="lane" key={table}>
            <span class="lane-name">{table}</span>
            <div class="lane-track">
              {placed
                .filter((p) => p.table === table)
                .map((p, index) => (
                  <div
                    key={index}
                    class={p.lateRuns ? "part late" : "part"}
                    style={{
                      left: `${(Number(later(p.start, low) - low) / size) * 100}%`,
                      width: `${(Number(earlier(p.end, high) - later(p.start, low)) / size) * 100}%`,
                      opacity: 0.25 + 0.75 * Math.sqrt(p.bytes / most),
                    }}
                    title={`${instant(p.start, zone)} – ${instant(p.end, zone)}: ${formatBytes(p.bytes)}${
                      p.events === undefined ? "" : `, ${formatCount(p.events)} events`
                    }${p.lateRuns ? `, ${p.lateRuns} late runs` : ""}`}
                  />
                ))}
            </div>
          </div>
        ))}
      </div>
      <p class="soft lane-ends">
        <span>{instant(low, zone)}</span>
        <span>
          {total !== undefined && total > placed.length
            ? `the ${placed.length} largest of ${formatCount(total)} partitions`
            : `${formatCount(placed.length)} partitions`}
        </span>
        <span>{instant(high, zone)}</span>
      </p>
    </>
  );
}

interface FigureProps {
  readonly label: string;
  readonly value: string | undefined;
  readonly note?: string | undefined;
  readonly title?: string;
}

function Figure({ label, value, note, title }: FigureProps): JSX.Element {
  return (
    <div class="figure" {...(title === undefined ? {} : { title })}>
      <span class="figure-label">{label}</span>
      <span class={value === undefined ? "figure-value soft none" : "figure-value"}>{value ?? "not available"}</span>
      <span class="soft">{note ?? "\u00a0"}</span>
    </div>
  );
}

function Card({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section class="card">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Missing({ text = "Not available." }: { text?: string }): JSX.Element {
  return <p class="soft">{text}</p>;
}

function map<T>(value: number | undefined, format: (value: number) => T): T | undefined {
  return value === undefined ? undefined : format(value);
}

function instant(at: Instant | undefined, zone: Zone): string {
  return at === undefined ? "–" : formatInstant(at, zone, 0);
}
