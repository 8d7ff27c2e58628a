//! The table of stats: each number of [`Stats`] with its name, unit and help, described once.
//!
//! `headwater stat`, `/metrics`, the JSON of C, the fields of Go, the dictionary of Python and the
//! list in `docs/operate/metrics.md` are made from this table.
//!
//! Invariants: a name, once released, keeps its meaning; every field of [`Stats`] is in the table.
//! Concurrency: constants and pure functions.
//! Failure: none.

use super::stats::Stats;
use std::time::Duration;

/// One number of a database.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Name in JSON, C, Go, Python and `headwater stat`; durations get a suffix for their unit
    /// there.
    pub name: &'static str,
    /// Metric without the prefix `headwater_`; a counter gets the suffix `_total`.
    pub metric: MetricName,
    /// Kind of the number: the present state, or a sum since an instant.
    pub kind: StatKind,
    /// Unit of the number.
    pub unit: StatUnit,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// Reads the number.
    pub value: fn(&Stats) -> StatValue,
}

/// The name of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricName {
    /// A metric of its own.
    Plain(&'static str),
    /// A member of a family: the family's name, a label and its value.
    Labelled(&'static str, &'static str, &'static str),
}

/// Kind of a number: the present state, or a sum that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// The present state.
    Gauge,
    /// A sum since the database was made.
    Total,
    /// A sum since the database was opened.
    SinceOpening,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatUnit {
    /// A count of the things in the name.
    Count,
    /// A size in bytes.
    Bytes,
    /// A quotient.
    Ratio,
    /// A duration.
    Seconds,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StatValue {
    /// A count or a size.
    Count(u64),
    /// A quotient.
    Ratio(f64),
    /// A duration.
    Duration(Duration),
}

impl StatValue {
    /// The number as a float; a duration in seconds.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            StatValue::Count(count) => {
                // In units of 2^32 and of 1: a count that does not fit exactly is rounded once.
                let (high, low) = (count >> 32, count & u64::from(u32::MAX));
                let part = |part: u64| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
                part(high) * 4_294_967_296.0 + part(low)
            }
            StatValue::Ratio(ratio) => ratio,
            StatValue::Duration(duration) => duration.as_secs_f64(),
        }
    }
}

impl Stat {
    /// Help texts of the families of metrics, by their names.
    pub const FAMILIES: [(&'static str, &'static str); 2] = [
        (
            "physical_written_bytes",
            "Bytes written to media, by kind of file",
        ),
        (
            "written_events_by_cause",
            "Events written to leaves, by cause",
        ),
    ];
}

use MetricName::{Labelled, Plain};
use StatKind::{Gauge, SinceOpening, Total};
use StatUnit::{Bytes, Count, Ratio, Seconds};

const fn stat(
    name: &'static str,
    metric: MetricName,
    kind: StatKind,
    unit: StatUnit,
    help: &'static str,
    value: fn(&Stats) -> StatValue,
) -> Stat {
    Stat {
        name,
        metric,
        kind,
        unit,
        help,
        value,
    }
}

/// Every number of a database.
#[rustfmt::skip]
pub const STATS: [Stat; 60] = [
    stat("events", Plain("events"), Gauge, Count,
        "Events stored or in memory; an event with several fields counts once",
        |s| StatValue::Count(s.events)),
    stat("events_in_memory", Plain("events_in_memory"), Gauge, Count,
        "Events in memory, not yet in segments",
        |s| StatValue::Count(s.events_in_memory)),
    stat("late_events_in_memory", Plain("late_events_in_memory"), Gauge, Count,
        "Late events among those in memory",
        |s| StatValue::Count(s.late_events_in_memory)),
    stat("streams", Plain("series"), Gauge, Count,
        "Streams",
        |s| StatValue::Count(s.streams)),
    stat("tables", Plain("tables"), Gauge, Count,
        "Tables",
        |s| StatValue::Count(s.tables)),
    stat("partitions", Plain("partitions"), Gauge, Count,
        "Partitions",
        |s| StatValue::Count(s.partitions)),
    stat("partitions_unreadable", Plain("partitions_unreadable"), Gauge, Count,
        "Damaged partitions of which nothing can be read",
        |s| StatValue::Count(s.partitions_unreadable)),
    stat("partitions_freed", Plain("partitions_freed"), Gauge, Count,
        "Partitions whose rows were freed, because a cloud has them",
        |s| StatValue::Count(s.partitions_freed)),
    stat("leaves", Plain("leaves"), Gauge, Count,
        "Leaves of main runs",
        |s| StatValue::Count(s.leaves)),
    stat("late_runs", Plain("late_runs"), Gauge, Count,
        "Late runs that wait to be merged",
        |s| StatValue::Count(s.late_runs)),
    stat("disk_bytes", Plain("disk_bytes"), Gauge, Bytes,
        "Size of all files",
        |s| StatValue::Count(s.disk_bytes)),
    stat("segment_bytes", Plain("segment_bytes"), Gauge, Bytes,
        "Size of segments",
        |s| StatValue::Count(s.segment_bytes)),
    stat("log_bytes", Plain("log_bytes"), Gauge, Bytes,
        "Size of log files, including those retained for recycling",
        |s| StatValue::Count(s.log_bytes)),
    stat("dead_bytes", Plain("dead_bytes"), Gauge, Bytes,
        "Bytes of segments that nothing refers to",
        |s| StatValue::Count(s.dead_bytes)),
    stat("freed_bytes", Plain("freed_bytes"), Gauge, Bytes,
        "Bytes of rows that were freed, because a cloud has them",
        |s| StatValue::Count(s.freed_bytes)),
    stat("bytes_per_event", Plain("bytes_per_event"), Gauge, Ratio,
        "Bytes of segments per event in them",
        |s| StatValue::Ratio(s.bytes_per_event())),
    stat("fast_bytes", Plain("fast_tier_bytes"), Gauge, Bytes,
        "Size of all files in the fast tier, included in the size of all files",
        |s| StatValue::Count(s.fast_bytes)),
    stat("fast_bytes_max", Plain("fast_tier_bytes_max"), Gauge, Bytes,
        "Limit of the log in the fast tier; 0 = no limit",
        |s| StatValue::Count(s.fast_bytes_max)),
    stat("fast_written_bytes", Plain("fast_tier_written_bytes"), SinceOpening, Bytes,
        "Bytes written to the fast tier",
        |s| StatValue::Count(s.fast_written_bytes)),
    stat("bulk_written_bytes", Plain("bulk_written_bytes"), SinceOpening, Bytes,
        "Bytes written to all other media",
        |s| StatValue::Count(s.bulk_written_bytes)),
    stat("log_mirror_behind_bytes", Plain("log_mirror_behind_bytes"), Gauge, Bytes,
        "Bytes of the log in the fast tier not yet copied to the bulk device",
        |s| StatValue::Count(s.log_mirror_behind_bytes)),
    stat("fast_index_bytes", Plain("fast_tier_index_bytes"), Gauge, Bytes,
        "Size of the copy of the index of segments in the fast tier",
        |s| StatValue::Count(s.fast_index_bytes)),
    stat("fast_index_reads", Plain("fast_tier_index_reads"), SinceOpening, Count,
        "Reads of segments that the index in the fast tier answered",
        |s| StatValue::Count(s.fast_index_reads)),
    stat("fast_index_dropped", Plain("fast_tier_index_dropped"), SinceOpening, Count,
        "Parts of the index in the fast tier that were invalid and dropped",
        |s| StatValue::Count(s.fast_index_dropped)),
    stat("fast_index_refused", Plain("fast_tier_index_refused"), SinceOpening, Count,
        "Times that the fast tier had no room for more of the index",
        |s| StatValue::Count(s.fast_index_refused)),
    stat("fast_newest_bytes", Plain("fast_tier_newest_bytes"), Gauge, Bytes,
        "Size of the copies of the newest segments in the fast tier",
        |s| StatValue::Count(s.fast_newest_bytes)),
    stat("fast_newest_segments", Plain("fast_tier_newest_segments"), Gauge, Count,
        "Segments of which the fast tier has a copy",
        |s| StatValue::Count(s.fast_newest_segments)),
    stat("fast_newest_reads", Plain("fast_tier_newest_reads"), SinceOpening, Count,
        "Reads of segments that copies in the fast tier answered",
        |s| StatValue::Count(s.fast_newest_reads)),
    stat("fast_newest_dropped", Plain("fast_tier_newest_dropped"), SinceOpening, Count,
        "Copies of segments in the fast tier that were invalid and dropped",
        |s| StatValue::Count(s.fast_newest_dropped)),
    stat("fast_newest_refused", Plain("fast_tier_newest_refused"), SinceOpening, Count,
        "Times that the fast tier had no room for more copies of segments",
        |s| StatValue::Count(s.fast_newest_refused)),
    stat("snapshots", Plain("snapshots"), Gauge, Count,
        "Named snapshots",
        |s| StatValue::Count(s.snapshots)),
    stat("snapshot_bytes", Plain("snapshot_bytes"), Gauge, Bytes,
        "Size of segments retained only for named snapshots",
        |s| StatValue::Count(s.snapshot_bytes)),
    stat("snapshot_bytes_max", Plain("snapshot_bytes_max"), Gauge, Bytes,
        "Limit of the size of segments retained only for named snapshots; 0 = no limit",
        |s| StatValue::Count(s.snapshot_bytes_max)),
    stat("memory_bytes", Plain("memory_bytes"), Gauge, Bytes,
        "Memory that events occupy",
        |s| StatValue::Count(s.memory_bytes)),
    stat("pinned_bytes", Plain("pinned_bytes"), Gauge, Bytes,
        "Memory pinned only by open snapshots",
        |s| StatValue::Count(s.pinned_bytes)),
    stat("pinned_file_bytes", Plain("pinned_file_bytes"), Gauge, Bytes,
        "Size of files pinned only by open snapshots",
        |s| StatValue::Count(s.pinned_file_bytes)),
    stat("events_accepted", Plain("events_accepted"), Total, Count,
        "Events accepted",
        |s| StatValue::Count(s.events_accepted)),
    stat("bytes_accepted", Plain("accepted_bytes"), Total, Bytes,
        "Bytes accepted: 8 for a time or number, 1 for a boolean, the length of text",
        |s| StatValue::Count(s.bytes_accepted)),
    stat("events_written", Plain("written_events"), Total, Count,
        "Events written to leaves, for any cause",
        |s| StatValue::Count(s.events_written())),
    stat("events_flush", Labelled("written_events_by_cause", "cause", "flush"), Total, Count,
        "Events written by flushes in order",
        |s| StatValue::Count(s.events_flush)),
    stat("events_merge", Labelled("written_events_by_cause", "cause", "merge"), Total, Count,
        "Events written by merges of late events",
        |s| StatValue::Count(s.events_merge)),
    stat("events_late_run", Labelled("written_events_by_cause", "cause", "late_run"), Total, Count,
        "Events written as late runs",
        |s| StatValue::Count(s.events_late_run)),
    stat("events_fold", Labelled("written_events_by_cause", "cause", "fold"), Total, Count,
        "Events written by merges of late runs",
        |s| StatValue::Count(s.events_fold)),
    stat("events_compaction", Plain("compaction_events"), Total, Count,
        "Events written again by compaction",
        |s| StatValue::Count(s.events_compaction)),
    stat("events_delete", Labelled("written_events_by_cause", "cause", "delete"), Total, Count,
        "Events written by deletes of part of a leaf",
        |s| StatValue::Count(s.events_delete)),
    stat("bytes_log", Labelled("physical_written_bytes", "kind", "log"), Total, Bytes,
        "Bytes written to the log",
        |s| StatValue::Count(s.bytes_log)),
    stat("bytes_leaf", Labelled("physical_written_bytes", "kind", "leaf"), Total, Bytes,
        "Bytes of leaves written",
        |s| StatValue::Count(s.bytes_leaf)),
    stat("bytes_index", Labelled("physical_written_bytes", "kind", "index"), Total, Bytes,
        "Bytes of blocks, indexes and footers written",
        |s| StatValue::Count(s.bytes_index)),
    stat("bytes_meta", Labelled("physical_written_bytes", "kind", "meta"), Total, Bytes,
        "Bytes of metadata written",
        |s| StatValue::Count(s.bytes_meta)),
    stat("wa_events", Plain("write_amplification_ratio"), Gauge, Ratio,
        "Events written to leaves per event accepted",
        |s| StatValue::Ratio(s.wa_events())),
    stat("wa_bytes", Plain("write_amplification_bytes_ratio"), Gauge, Ratio,
        "Bytes written to media per byte accepted",
        |s| StatValue::Ratio(s.wa_bytes())),
    stat("flushes", Plain("flushes"), Total, Count,
        "Maintenance jobs that wrote rows to segments",
        |s| StatValue::Count(s.flushes)),
    stat("merges", Plain("merges"), Total, Count,
        "Merges of late events, including merges of late runs",
        |s| StatValue::Count(s.merges)),
    stat("log_syncs", Plain("log_syncs"), SinceOpening, Count,
        "Syncs of the log",
        |s| StatValue::Count(s.log_syncs)),
    stat("log_sync_median", Plain("log_sync_median_seconds"), Gauge, Seconds,
        "Median duration of the newest syncs of the log",
        |s| StatValue::Duration(s.log_sync_median)),
    stat("leaves_read", Plain("leaves_read"), SinceOpening, Count,
        "Leaves read from files",
        |s| StatValue::Count(s.leaves_read)),
    stat("pages_read", Plain("pages_read"), SinceOpening, Count,
        "Pages decoded",
        |s| StatValue::Count(s.pages_read)),
    stat("blocks_read", Plain("blocks_read"), SinceOpening, Count,
        "Bucket blocks read from files",
        |s| StatValue::Count(s.blocks_read)),
    stat("bytes_read", Plain("segment_read_bytes"), SinceOpening, Bytes,
        "Bytes read from segments",
        |s| StatValue::Count(s.bytes_read)),
    stat("damaged_parts", Plain("damaged_parts"), SinceOpening, Count,
        "Damaged leaves and blocks found",
        |s| StatValue::Count(s.damaged_parts)),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_metrics_stand_once_and_say_their_unit() {
        let names: BTreeSet<_> = STATS.iter().map(|stat| stat.name).collect();
        assert_eq!(names.len(), STATS.len());
        let mut metrics = BTreeSet::new();
        for stat in &STATS {
            let whole = match stat.metric {
                Plain(name) => name.to_owned(),
                Labelled(family, label, value) => {
                    assert!(Stat::FAMILIES.iter().any(|(name, _)| *name == family));
                    format!("{family}{{{label}={value}}}")
                }
            };
            assert!(metrics.insert(whole.clone()), "{whole} stands twice");
            let is_bytes =
                whole.contains("bytes") && !whole.contains("ratio") && !whole.contains("per_event");
            assert_eq!(stat.unit == Bytes, is_bytes, "{whole}");
            assert_eq!(stat.unit == Seconds, whole.ends_with("seconds"), "{whole}");
            assert!(!stat.help.ends_with('.'), "{whole}");
        }
    }

    /// Each field of [`Stats`] changes at least one number of the table.
    #[test]
    fn every_field_is_in_the_table() {
        let text = format!("{:?}", Stats::default());
        let fields = text.trim_start_matches("Stats { ").split(", ");
        for field in fields.filter_map(|field| field.split_once(": ")) {
            let named = STATS.iter().any(|stat| stat.name == field.0);
            assert!(named, "{} is not in the table", field.0);
        }
        let one = Stats {
            streams: 7,
            ..Stats::default()
        };
        let streams = STATS.iter().find(|stat| stat.name == "streams").unwrap();
        assert_eq!((streams.value)(&one), StatValue::Count(7));
    }
}
