//! The engine's figures, as they were a moment ago.

use headwater::Stats;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Figures younger than this are not fetched anew.
const FRESH: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct EngineFigures {
    newest: Mutex<Option<(Instant, Stats)>>,
    fetching: AtomicBool,
}

impl EngineFigures {
    /// Whether the caller should fetch the figures and then call [`EngineFigures::fetched`]: they
    /// are old, and nobody else does.
    pub(crate) fn wants_fetching(&self) -> bool {
        let fresh = self
            .newest
            .lock()
            .as_ref()
            .is_some_and(|(at, _)| at.elapsed() < FRESH);
        !fresh && !self.fetching.swap(true, Ordering::AcqRel)
    }

    /// Takes what was fetched; `None` = the engine had an error.
    pub(crate) fn fetched(&self, stats: Option<Stats>) {
        if let Some(stats) = stats {
            *self.newest.lock() = Some((Instant::now(), stats));
        }
        self.fetching.store(false, Ordering::Release);
    }
}

/// Names, help, and how to read the figure.
type Figure = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Figure; 20] = [
    ("events_accepted", "Events accepted", |s| s.events_accepted),
    (
        "accepted_bytes",
        "Bytes accepted: 8 for a time or number, 1 for a boolean, the length of text",
        |s| s.bytes_accepted,
    ),
    ("flushes", "Steps that stored something", |s| s.flushes),
    (
        "merges",
        "Merges of late events, folds of late runs among them",
        |s| s.merges,
    ),
    (
        "log_syncs",
        "Syncs of the commit log since the start",
        |s| s.log_syncs,
    ),
    (
        "leaves_read",
        "Leaves read from files since the start",
        |s| s.leaves_read,
    ),
    ("pages_read", "Pages decoded since the start", |s| {
        s.pages_read
    }),
    (
        "blocks_read",
        "Bucket blocks read from files since the start",
        |s| s.blocks_read,
    ),
    (
        "segment_read_bytes",
        "Bytes read from segments since the start",
        |s| s.bytes_read,
    ),
    (
        "fast_tier_written_bytes",
        "Bytes written to the fast tier since the start",
        |s| s.fast_written_bytes,
    ),
    (
        "bulk_written_bytes",
        "Bytes written to all other media since the start",
        |s| s.bulk_written_bytes,
    ),
    (
        "fast_tier_index_reads",
        "Reads of segments that their index in the fast tier answered since the start",
        |s| s.fast_index_reads,
    ),
    (
        "fast_tier_index_dropped",
        "Parts of the index in the fast tier that were not in order and dropped since the start",
        |s| s.fast_index_dropped,
    ),
    (
        "fast_tier_index_refused",
        "How often there was no room for more of the index in the fast tier since the start",
        |s| s.fast_index_refused,
    ),
    (
        "fast_tier_newest_reads",
        "Reads of segments that copies of the newest in the fast tier answered since the start",
        |s| s.fast_newest_reads,
    ),
    (
        "fast_tier_newest_dropped",
        "Copies of segments in the fast tier that were not in order and dropped since the start",
        |s| s.fast_newest_dropped,
    ),
    (
        "fast_tier_newest_refused",
        "How often there was no room for more copies of segments in the fast tier since the start",
        |s| s.fast_newest_refused,
    ),
    (
        "damaged_parts",
        "Damaged leaves and blocks met since the start",
        |s| s.damaged_parts,
    ),
    (
        "written_events",
        "Events written to leaves, for any cause",
        Stats::events_written,
    ),
    (
        "compaction_events",
        "Events written again by compaction",
        |s| s.events_compaction,
    ),
];

const GAUGES: [Figure; 24] = [
    ("events", "Events stored or in memory", |s| s.events),
    (
        "events_in_memory",
        "Events in memory, not yet in segments",
        |s| s.events_in_memory,
    ),
    (
        "late_events_in_memory",
        "Late events among those in memory",
        |s| s.late_events_in_memory,
    ),
    ("series", "Streams", |s| s.streams),
    ("tables", "Tables", |s| s.tables),
    ("partitions", "Partitions", |s| s.partitions),
    (
        "partitions_unreadable",
        "Partitions that are damaged so that nothing of them can be read",
        |s| s.partitions_unreadable,
    ),
    ("late_runs", "Late runs that wait to be folded", |s| {
        s.late_runs
    }),
    ("disk_bytes", "Bytes of all files", |s| s.disk_bytes),
    ("snapshots", "Named snapshots", |s| s.snapshots),
    (
        "snapshot_bytes",
        "Bytes of segments that are there for named snapshots only",
        |s| s.snapshot_bytes,
    ),
    (
        "snapshot_bytes_max",
        "What these may take; 0 without a limit",
        |s| s.snapshot_bytes_max,
    ),
    (
        "fast_tier_bytes",
        "Bytes of all files in the fast tier",
        |s| s.fast_bytes,
    ),
    (
        "fast_tier_bytes_max",
        "What the log may take in the fast tier; 0 without a limit",
        |s| s.fast_bytes_max,
    ),
    (
        "log_mirror_behind_bytes",
        "Bytes of the log in the fast tier that its copy in bulk does not have",
        |s| s.log_mirror_behind_bytes,
    ),
    (
        "fast_tier_index_bytes",
        "Bytes of the index of segments that the fast tier repeats",
        |s| s.fast_index_bytes,
    ),
    (
        "fast_tier_newest_bytes",
        "Bytes of copies of the newest segments in the fast tier",
        |s| s.fast_newest_bytes,
    ),
    (
        "fast_tier_newest_segments",
        "Segments of which the fast tier has a copy",
        |s| s.fast_newest_segments,
    ),
    ("segment_bytes", "Bytes of segments", |s| s.segment_bytes),
    ("log_bytes", "Bytes of log files", |s| s.log_bytes),
    (
        "dead_bytes",
        "Bytes of segments that nothing refers to any more",
        |s| s.dead_bytes,
    ),
    ("memory_bytes", "Bytes of memory that events occupy", |s| {
        s.memory_bytes
    }),
    (
        "pinned_bytes",
        "Bytes of memory that hold what only open snapshots still see",
        |s| s.pinned_bytes,
    ),
    (
        "pinned_file_bytes",
        "Bytes of files that hold what only open snapshots still see",
        |s| s.pinned_file_bytes,
    ),
];

impl Collector for EngineFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some((at, stats)) = self.newest.lock().clone() else {
            return Ok(());
        };
        for (name, help, read) in COUNTERS {
            let metric = ConstCounter::new(read(&stats));
            let encoder =
                encoder.encode_descriptor(name, help, None, EncodeMetric::metric_type(&metric))?;
            metric.encode(encoder)?;
        }
        for (name, help, read) in GAUGES {
            gauge(&mut encoder, name, help, read(&stats) as f64)?;
        }
        let written = [
            ("log", stats.bytes_log),
            ("leaf", stats.bytes_leaf),
            ("index", stats.bytes_index),
            ("meta", stats.bytes_meta),
        ];
        let mut metric = encoder.encode_descriptor(
            "physical_written_bytes",
            "Bytes written to the medium, by kind of file",
            None,
            MetricType::Counter,
        )?;
        for (kind, bytes) in written {
            let labels = [("kind", kind)];
            ConstCounter::new(bytes).encode(metric.encode_family(&labels)?)?;
        }
        let medians = stats.log_sync_median.as_secs_f64();
        for (name, help, value) in [
            (
                "write_amplification_ratio",
                "Events written to leaves per event accepted",
                stats.wa_events(),
            ),
            (
                "write_amplification_bytes_ratio",
                "Bytes written to the medium per byte accepted",
                stats.wa_bytes(),
            ),
            (
                "bytes_per_event",
                "Bytes of segments per event in them",
                stats.bytes_per_event(),
            ),
            (
                "log_sync_median_seconds",
                "Median duration of the newest syncs of the commit log",
                medians,
            ),
            (
                "figures_age_seconds",
                "How old the engine's figures are",
                at.elapsed().as_secs_f64(),
            ),
        ] {
            gauge(&mut encoder, name, help, value)?;
        }
        Ok(())
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), std::fmt::Error> {
    let metric = ConstGauge::new(value);
    let encoder =
        encoder.encode_descriptor(name, help, None, EncodeMetric::metric_type(&metric))?;
    metric.encode(encoder)
}
