//! Reports as JSON. Names are those of the engine's structs and keep their meaning; new ones may
//! come.

use headwater::{
    BackupReport, CheckReport, Damage, EndedSnapshot, LateReport, RepairReport, ShardLateReport,
    SnapshotInfo, Stats, TableInfo, Timestamp,
};
use serde_json::{Value, json};
use std::time::Duration;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn stats(s: &Stats) -> Value {
    json!({
        "events": s.events,
        "events_in_memory": s.events_in_memory,
        "late_events_in_memory": s.late_events_in_memory,
        "streams": s.streams,
        "tables": s.tables,
        "partitions": s.partitions,
        "leaves": s.leaves,
        "late_runs": s.late_runs,
        "disk_bytes": s.disk_bytes,
        "segment_bytes": s.segment_bytes,
        "log_bytes": s.log_bytes,
        "fast_bytes": s.fast_bytes,
        "fast_bytes_max": s.fast_bytes_max,
        "fast_written_bytes": s.fast_written_bytes,
        "bulk_written_bytes": s.bulk_written_bytes,
        "log_mirror_behind_bytes": s.log_mirror_behind_bytes,
        "fast_index_bytes": s.fast_index_bytes,
        "fast_index_reads": s.fast_index_reads,
        "fast_index_dropped": s.fast_index_dropped,
        "fast_index_refused": s.fast_index_refused,
        "fast_newest_bytes": s.fast_newest_bytes,
        "fast_newest_segments": s.fast_newest_segments,
        "fast_newest_reads": s.fast_newest_reads,
        "fast_newest_dropped": s.fast_newest_dropped,
        "fast_newest_refused": s.fast_newest_refused,
        "snapshots": s.snapshots,
        "snapshot_bytes": s.snapshot_bytes,
        "snapshot_bytes_max": s.snapshot_bytes_max,
        "dead_bytes": s.dead_bytes,
        "memory_bytes": s.memory_bytes,
        "pinned_bytes": s.pinned_bytes,
        "pinned_file_bytes": s.pinned_file_bytes,
        "events_accepted": s.events_accepted,
        "bytes_accepted": s.bytes_accepted,
        "events_written": s.events_written(),
        "events_flush": s.events_flush,
        "events_merge": s.events_merge,
        "events_late_run": s.events_late_run,
        "events_fold": s.events_fold,
        "events_compaction": s.events_compaction,
        "events_delete": s.events_delete,
        "bytes_log": s.bytes_log,
        "bytes_leaf": s.bytes_leaf,
        "bytes_index": s.bytes_index,
        "bytes_meta": s.bytes_meta,
        "wa_events": s.wa_events(),
        "wa_bytes": s.wa_bytes(),
        "bytes_per_event": s.bytes_per_event(),
        "flushes": s.flushes,
        "merges": s.merges,
        "log_syncs": s.log_syncs,
        "log_sync_median_ns": nanos(s.log_sync_median),
        "leaves_read": s.leaves_read,
        "pages_read": s.pages_read,
        "blocks_read": s.blocks_read,
        "bytes_read": s.bytes_read,
        "damaged_parts": s.damaged_parts,
        "partitions_unreadable": s.partitions_unreadable,
    })
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
