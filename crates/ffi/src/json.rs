//! Reports as JSON. Names are those of the engine's structs and keep their meaning; new ones may
//! come.

use headwater::{
    BackupReport, CheckReport, Damage, EndedSnapshot, LateReport, RepairReport, STATS,
    ShardLateReport, SnapshotInfo, StatValue, Stats, TableInfo, Timestamp,
};
use serde_json::{Value, json};
use std::time::Duration;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Every stat under its name; durations in nanoseconds.
pub(crate) fn stats(stats: &Stats) -> Value {
    let shown = STATS.iter().map(|stat| match (stat.value)(stats) {
        StatValue::Count(count) => (stat.name.to_owned(), count.into()),
        StatValue::Ratio(ratio) => (stat.name.to_owned(), ratio.into()),
        StatValue::Duration(duration) => (format!("{}_ns", stat.name), nanos(duration).into()),
    });
    Value::Object(shown.collect())
}

fn damage(d: &Damage) -> Value {
    json!({
        "file": d.file.to_string_lossy(),
        "offset": d.offset,
        "expected": d.expected,
        "found": d.found,
    })
}

pub(crate) fn check(r: &CheckReport) -> Value {
    json!({
        "is_sound": r.is_sound(),
        "damages": r.damages.iter().map(damage).collect::<Vec<_>>(),
        "segments": r.segments,
        "leaves": r.leaves,
        "blocks": r.blocks,
        "rows": r.rows,
        "log_records": r.log_records,
    })
}

pub(crate) fn backup(r: &BackupReport) -> Value {
    json!({
        "number": r.number,
        "sequence": r.sequence,
        "files": r.files,
        "bytes": r.bytes,
        "bytes_copied": r.bytes_copied,
        "files_verified": r.files_verified,
        "files_mended": r.files_mended,
        "damages": r.damages.iter().map(damage).collect::<Vec<_>>(),
    })
}

pub(crate) fn repair(r: &RepairReport) -> Value {
    let findings = r
        .findings
        .iter()
        .map(|f| json!({ "damage": damage(&f.damage), "action": f.action }));
    json!({
        "findings": findings.collect::<Vec<_>>(),
        "lost": r.lost,
        "quarantined": r.quarantined.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>(),
        "after": check(&r.after),
    })
}

pub(crate) fn late(r: &LateReport) -> Value {
    json!({
        "choice": r.choice.to_string(),
        "late_merge_interval_ns": r.late_merge_interval.map(nanos),
        "shards": r.shards.iter().map(late_of_shard).collect::<Vec<_>>(),
    })
}

fn late_of_shard(s: &ShardLateReport) -> Value {
    let candidates = s.candidates.iter().map(|c| {
        json!({
            "policy": c.candidate.to_string(),
            "predicted": c.predicted,
            "replayed": c.replayed,
            "cost": c.cost,
        })
    });
    let decisions = s.decisions.iter().map(|d| {
        json!({
            "at_events": d.at_events,
            "from": d.from.to_string(),
            "to": d.to.to_string(),
            "expected_from": d.expected_from,
            "expected_to": d.expected_to,
            "reason": d.reason.to_string(),
        })
    });
    json!({
        "in_force": s.in_force.to_string(),
        "adaptive": s.adaptive,
        "events": s.events,
        "late_share": s.late_share,
        "memory_events": s.memory_events,
        "measured_wa": s.measured.map(|(wa, _)| wa),
        "measured_merges": s.measured.map(|(_, merges)| merges),
        "candidates": candidates.collect::<Vec<_>>(),
        "decisions": decisions.collect::<Vec<_>>(),
        "histogram": s.histogram,
        "quantiles": s.quantiles,
    })
}

pub(crate) fn snapshot(s: &SnapshotInfo) -> Value {
    json!({
        "name": s.name,
        "created_ns": s.created.as_nanos(),
        "ends_ns": s.ends.map(Timestamp::as_nanos),
        "sequence": s.sequence,
        "tables": s.tables,
        "streams": s.streams,
        "events": s.events,
        "bytes": s.bytes,
        "kept_bytes": s.kept_bytes,
        "own_bytes": s.own_bytes,
    })
}

pub(crate) fn snapshots(there: &[SnapshotInfo], ended: &[EndedSnapshot]) -> Value {
    let ended = ended.iter().map(|e| {
        json!({
            "name": e.name,
            "created_ns": e.created.as_nanos(),
            "ended_ns": e.ended.as_nanos(),
            "reason": e.why.reason(),
        })
    });
    json!({
        "snapshots": there.iter().map(snapshot).collect::<Vec<_>>(),
        "ended": ended.collect::<Vec<_>>(),
    })
}

pub(crate) fn table(t: &TableInfo) -> Value {
    let fields = t
        .fields
        .iter()
        .map(|f| json!({ "name": f.name, "type": f.field_type.name() }));
    json!({
        "name": t.name,
        "duplicates": t.duplicates.name(),
        "leaf_events": t.leaf_events,
        "tags": t.tags,
        "fields": fields.collect::<Vec<_>>(),
        "streams": t.streams,
        "retention_ns": t.retention.map(nanos),
        "raw_for_ns": t.raw_for.map(nanos),
        "cut_ns": t.cut.map(Timestamp::as_nanos),
        "aged_to_ns": t.aged_to.map(Timestamp::as_nanos),
    })
}
