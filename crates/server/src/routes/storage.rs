//! Storage statistics: stored data, and the cost of writing it.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::request::{self, answer, ok_if_found, query};
use crate::routes::{Needs, Route};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use headwater::{
    ErrorKind, LateReport, PartitionInfo, Snapshot, Stats, TableInfo, TierShares, Timestamp,
};
use headwater_wire::query::QueryError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest partitions in an answer.
const PARTITIONS_MAX: usize = 200;
/// Maximum streams of a table whose first and last events are reported: each stream needs a
/// look-up.
const STREAMS_MAX: usize = 4_096;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/storage", Needs::Read, storage)]
}

/// Body of the answer. Its names are a promise.
#[derive(Debug, Serialize)]
struct Storage {
    version: &'static str,
    uptime_seconds: u64,
    events: u64,
    events_in_memory: u64,
    streams: u64,
    events_accepted: u64,
    events_written: u64,
    bytes_accepted: u64,
    write_amplification: WriteAmplification,
    bytes_on_disk: u64,
    bytes_per_event: f64,
    tables: Vec<Table>,
    /// Number of partitions; `partitions` has the largest.
    partitions_total: u64,
    partitions: Vec<Partition>,
    memory: Memory,
    /// The fast tier; `None` without one.
    tiers: Option<Tiers>,
    /// `None` unless requested.
    late: Option<Late>,
    /// Messages from a broker; `None` without a broker.
    mqtt: Option<serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct WriteAmplification {
    events: f64,
    bytes: f64,
    /// Events written to leaves.
    by_cause: BTreeMap<&'static str, u64>,
    /// Bytes written to files.
    by_kind: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct Table {
    table: String,
    streams: u64,
    /// Rows in partitions; rows in memory are not counted by table.
    events: u64,
    bytes: u64,
    partitions: u64,
    /// The earliest and the latest event; `None` for a table without events, or of many streams.
    first: Option<String>,
    last: Option<String>,
}

#[derive(Debug, Serialize)]
struct Partition {
    table: String,
    start: String,
    end: String,
    bytes: u64,
    events: u64,
    late_runs: u64,
    /// Location of damage that makes the whole table unreadable; `None` where no such damage is
    /// known.
    unreadable: Option<String>,
}

#[derive(Debug, Serialize)]
struct Memory {
    used: u64,
    budget: u64,
}

#[derive(Debug, Serialize)]
struct Tiers {
    /// Folder of the fast tier.
    fast: String,
    /// Parts on the fast tier.
    parts: String,
    fast_bytes: u64,
    /// Limit of the log on the fast tier; `None` without a limit.
    fast_bytes_max: Option<u64>,
    bulk_bytes: u64,
    /// Bytes written to each since the start.
    fast_written_bytes: u64,
    bulk_written_bytes: u64,
    /// Bytes of the log that are not mirrored to bulk yet; `None` where the log is not mirrored.
    log_mirror_behind_bytes: Option<u64>,
    /// Bytes of the index of segments on the fast tier; `None` without an index there.
    fast_index_bytes: Option<u64>,
    /// Bytes of copies of the newest segments on the fast tier; `None` without copies there.
    fast_newest_bytes: Option<u64>,
    /// Statistics of the index on the fast tier; `None` without an index there.
    fast_index: Option<CacheStats>,
    /// Statistics of the copies of the newest segments on the fast tier; `None` without copies
    /// there.
    fast_newest: Option<CacheStats>,
}

/// Cache on the fast tier of data in bulk. Counts are since the start.
#[derive(Debug, Serialize)]
struct CacheStats {
    /// Cached segments; `None` for the index.
    segments: Option<u64>,
    /// Largest size; `None` = limited by the device only.
    bytes_max: Option<u64>,
    /// Reads that were answered in place of bulk.
    reads: u64,
    /// Damaged parts that were dropped.
    dropped: u64,
    /// Insertions refused for lack of space.
    refused: u64,
}

impl CacheStats {
    fn index(shares: TierShares, stats: &Stats) -> CacheStats {
        CacheStats {
            segments: None,
            bytes_max: shares.index,
            reads: stats.fast_index_reads,
            dropped: stats.fast_index_dropped,
            refused: stats.fast_index_refused,
        }
    }

    fn newest(app: &App, shares: TierShares, stats: &Stats) -> CacheStats {
        // The memory budget bounds the cache, regardless of the setting.
        let most = u64::try_from(app.opened_db.memory_budget_bytes())
            .unwrap_or(u64::MAX)
            .saturating_mul(32);
        CacheStats {
            segments: Some(stats.fast_newest_segments),
            bytes_max: Some(shares.newest.map_or(most, |share| share.min(most))),
            reads: stats.fast_newest_reads,
            dropped: stats.fast_newest_dropped,
            refused: stats.fast_newest_refused,
        }
    }
}

impl Tiers {
    fn of(app: &App, stats: &Stats) -> Option<Tiers> {
        let tier = app.opened_db.fast_tier()?;
        let shares = TierShares::of(&app.settings.engine, tier.parts);
        let is_copied = tier.parts.log && app.settings.engine.log_mirror.is_some();
        Some(Tiers {
            fast: tier.folder.display().to_string(),
            parts: tier.parts.to_string(),
            fast_bytes: stats.fast_bytes,
            fast_bytes_max: (stats.fast_bytes_max > 0).then_some(stats.fast_bytes_max),
            bulk_bytes: stats.disk_bytes.saturating_sub(stats.fast_bytes),
            fast_written_bytes: stats.fast_written_bytes,
            bulk_written_bytes: stats.bulk_written_bytes,
            log_mirror_behind_bytes: is_copied.then_some(stats.log_mirror_behind_bytes),
            fast_index_bytes: tier.parts.index.then_some(stats.fast_index_bytes),
            fast_newest_bytes: tier.parts.newest.then_some(stats.fast_newest_bytes),
            fast_index: tier.parts.index.then(|| CacheStats::index(shares, stats)),
            fast_newest: tier
                .parts
                .newest
                .then(|| CacheStats::newest(app, shares, stats)),
        })
    }
}

/// Statistics of late events, over all shards. Sums over all streams would reveal hidden streams,
/// so the client must be allowed to read all streams.
#[derive(Debug, Serialize)]
struct Late {
    /// Share of late events among the recent events.
    share: f64,
    /// Numbers of events by lateness, in events of their stream; the weight of an event decreases
    /// with its age.
    histogram: Vec<LateBucket>,
    /// Source of the policy, and the active policy.
    policy: String,
    /// Predicted writes per event of each policy, for the shard with most events.
    candidates: Vec<Candidate>,
    /// The newest changes of policy, shard by shard.
    decisions: Vec<Decision>,
}

#[derive(Debug, Serialize)]
struct LateBucket {
    le_events: u64,
    count: f64,
}

#[derive(Debug, Serialize)]
struct Candidate {
    policy: String,
    predicted: f64,
}

#[derive(Debug, Serialize)]
struct Decision {
    shard: usize,
    /// Events the shard had processed.
    at_events: u64,
    from: String,
    to: String,
    reason: String,
}

async fn storage(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["late"])?;
    let wants_late = match query.one("late")? {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => {
            return Err(QueryError::value("late", "expected true or false", other).into());
        }
    };
    if !access.reads_all() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "a token that reads everything (`read *`) is needed for the storage statistics",
        ));
    }
    let storage = app
        .blocking(move |app| {
            let db = app.db();
            let stats = db.stats()?;
            // Ranking the candidates takes longer than the rest of the request.
            let late = wants_late.then(|| db.late());
            Storage::of(app, &stats, db.partitions(), late.as_ref())
        })
        .await?;
    let body = serde_json::to_vec(&storage).map_err(|error| {
        tracing::error!(%error, "writing JSON failed");
        ApiError::internal()
    })?;
    Ok(answer(request::JSON, body))
}

impl Storage {
    fn of(
        app: &App,
        stats: &Stats,
        mut partitions: Vec<PartitionInfo>,
        late: Option<&LateReport>,
    ) -> Result<Storage, ApiError> {
        let snapshot = app.snapshot()?;
        let mut tables = Vec::new();
        for table in app.db().tables() {
            let mine = || partitions.iter().filter(|p| p.table == table.name);
            let ns = |at: Option<Timestamp>| at.map(|at| at.as_nanos().to_string());
            let (first, last) = ends(&snapshot, &table)?;
            tables.push(Table {
                streams: table.streams,
                events: mine().map(|p| p.events).sum(),
                bytes: mine().map(|p| p.bytes).sum(),
                partitions: mine().count() as u64,
                first: ns(first),
                last: ns(last),
                table: table.name.clone(),
            });
        }
        let partitions_total = partitions.len() as u64;
        partitions.sort_by_key(|p| std::cmp::Reverse(p.bytes));
        partitions.truncate(PARTITIONS_MAX);
        Ok(Storage {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: app.shell.uptime().as_secs(),
            events: stats.events,
            events_in_memory: stats.events_in_memory,
            streams: stats.streams,
            events_accepted: stats.events_accepted,
            events_written: stats.events_written(),
            bytes_accepted: stats.bytes_accepted,
            write_amplification: WriteAmplification {
                events: stats.wa_events(),
                bytes: stats.wa_bytes(),
                by_cause: BTreeMap::from([
                    ("flush", stats.events_flush),
                    ("merge", stats.events_merge),
                    ("late_run", stats.events_late_run),
                    ("fold", stats.events_fold),
                    ("compaction", stats.events_compaction),
                    ("delete", stats.events_delete),
                ]),
                by_kind: BTreeMap::from([
                    ("log", stats.bytes_log),
                    ("leaf", stats.bytes_leaf),
                    ("index", stats.bytes_index),
                    ("meta", stats.bytes_meta),
                ]),
            },
            bytes_on_disk: stats.disk_bytes,
            bytes_per_event: stats.bytes_per_event(),
            tables,
            partitions_total,
            partitions: partitions.into_iter().map(Partition::of).collect(),
            memory: Memory {
                used: stats.memory_bytes,
                budget: app.opened_db.memory_budget_bytes() as u64,
            },
            tiers: Tiers::of(app, stats),
            late: late.map(Late::of),
            mqtt: app.components.report("mqtt", app),
        })
    }
}

/// The earliest and the latest event of a table, from the statistics of files and memory. The
/// ranges of partitions do not contain these instants: the first partition reaches back to the
/// beginning of time.
fn ends(
    snapshot: &Snapshot,
    table: &TableInfo,
) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
    let mut ends: (Option<Timestamp>, Option<Timestamp>) = (None, None);
    let is_small = usize::try_from(table.streams).is_ok_and(|streams| streams <= STREAMS_MAX);
    if !is_small {
        return Ok(ends);
    }
    let streams = ok_if_found(snapshot.streams_after(&table.name, None, STREAMS_MAX))?;
    for stream in streams.unwrap_or_default() {
        let info = match snapshot.stream_info(&stream) {
            Ok(info) => info,
            // The entry of the partition reports that the partition is unreadable.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok((None, None)),
            Err(error) => return Err(error.into()),
        };
        ends.0 = ends.0.into_iter().chain(info.first).min();
        ends.1 = ends.1.into_iter().chain(info.last).max();
    }
    Ok(ends)
}

impl Partition {
    fn of(info: PartitionInfo) -> Partition {
        Partition {
            table: info.table,
            start: info.range.first.as_nanos().to_string(),
            end: info.range.last.as_nanos().to_string(),
            bytes: info.bytes,
            events: info.events,
            late_runs: info.late_runs,
            unreadable: info.unreadable.map(|damage| damage.to_string()),
        }
    }
}

impl Late {
    fn of(report: &LateReport) -> Late {
        let shards = &report.shards;
        let seen: f64 = shards.iter().map(|s| s.events as f64).sum();
        let late: f64 = shards.iter().map(|s| s.late_share * s.events as f64).sum();
        let mut histogram: BTreeMap<u64, f64> = BTreeMap::new();
        for (start, count) in shards.iter().flat_map(|s| &s.histogram) {
            // Octaves: the engine's buckets are finer, and do not cross powers of two.
            let bits = 64 - start.leading_zeros();
            let bound = 1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
            *histogram.entry(bound).or_default() += count;
        }
        let mut in_force: Vec<String> = shards
            .iter()
            .map(|s| s.in_force.policy.to_string())
            .collect();
        in_force.sort();
        in_force.dedup();
        let busiest = shards.iter().max_by_key(|s| s.events);
        Late {
            share: if seen > 0.0 { late / seen } else { 0.0 },
            histogram: histogram
                .into_iter()
                .filter(|(_, count)| *count > 0.0)
                .map(|(le_events, count)| LateBucket { le_events, count })
                .collect(),
            policy: format!("{}: {}", report.choice, in_force.join(" and ")),
            candidates: busiest
                .into_iter()
                .flat_map(|s| &s.candidates)
                .map(|c| Candidate {
                    policy: c.candidate.to_string(),
                    predicted: c.predicted,
                })
                .collect(),
            decisions: shards
                .iter()
                .enumerate()
                .flat_map(|(shard, s)| s.decisions.iter().map(move |d| (shard, d)))
                .map(|(shard, d)| Decision {
                    shard,
                    at_events: d.at_events,
                    from: d.from.to_string(),
                    to: d.to.to_string(),
                    reason: d.reason.to_string(),
                })
                .collect(),
        }
    }
}
