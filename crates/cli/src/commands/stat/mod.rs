//! `headwater stat`: sizes, counts and write amplification; with `--late`, what is known of late
//! events.

mod late;

use super::shown_table::{ShownTable, table_list};
use crate::failure::Failure;
use crate::grid::{Heading, bytes, grouped, render};
use crate::output::{print, print_json};
use crate::store::DbArgs;
use clap::{Args, ValueEnum};
use headwater::{Stats, TableInfo};
use serde::Serialize;

/// Show sizes, counts and write amplification
#[derive(Debug, Args)]
#[command(after_help = "\
wa_events is events written to leaves per event accepted; wa_bytes is bytes written, log, leaves, index and metadata
together, per byte accepted (8 for a time or number, 1 for a boolean, the length of text).
--late tells, for each shard: the policy for late events in force (*), what every other one is predicted to write per
event, what a replay counted, and the newest changes with their reasons.")]
pub(crate) struct Stat {
    #[command(flatten)]
    db: DbArgs,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = StatFormat::Table)]
    format: StatFormat,

    /// Show how late events are, and what is done about it
    #[arg(long)]
    late: bool,
}

/// How the figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatFormat {
    // For reading
    Table,
    // For programs
    Json,
}

impl Stat {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        if self.late {
            let report = db.late();
            return match self.format {
                StatFormat::Json => print_json(&late::LateFigures::of(&report)),
                StatFormat::Table => print(&late::text(&report)),
            };
        }
        let stats = db.stats()?;
        let tables = db.tables();
        match self.format {
            StatFormat::Json => print_json(&Figures::of(&stats)),
            StatFormat::Table => print(&text(&stats, &tables)),
        }
    }
}

/// The figures under their stable names.
#[derive(Serialize)]
struct Figures {
    events: u64,
    streams: u64,
    tables: u64,
    partitions: u64,
    partitions_unreadable: u64,
    leaves: u64,
    late_runs: u64,
    disk_bytes: u64,
    segment_bytes: u64,
    log_bytes: u64,
    fast_bytes: u64,
    fast_bytes_max: u64,
    fast_written_bytes: u64,
    bulk_written_bytes: u64,
    log_mirror_behind_bytes: u64,
    fast_index_bytes: u64,
    fast_index_refused: u64,
    fast_newest_bytes: u64,
    fast_newest_segments: u64,
    fast_newest_refused: u64,
    snapshots: u64,
    snapshot_bytes: u64,
    snapshot_bytes_max: u64,
    dead_bytes: u64,
    bytes_per_event: f64,
    wa_events: f64,
    wa_bytes: f64,
    events_accepted: u64,
    bytes_accepted: u64,
    events_in_memory: u64,
    events_written: u64,
    events_flush: u64,
    events_merge: u64,
    events_late_run: u64,
    events_fold: u64,
    events_compaction: u64,
    bytes_log: u64,
    bytes_leaf: u64,
    bytes_index: u64,
    bytes_meta: u64,
    flushes: u64,
    merges: u64,
}

impl Figures {
    fn of(stats: &Stats) -> Figures {
        Figures {
            events: stats.events,
            streams: stats.streams,
            tables: stats.tables,
            partitions: stats.partitions,
            partitions_unreadable: stats.partitions_unreadable,
            leaves: stats.leaves,
            late_runs: stats.late_runs,
            disk_bytes: stats.disk_bytes,
            segment_bytes: stats.segment_bytes,
            log_bytes: stats.log_bytes,
            fast_bytes: stats.fast_bytes,
            fast_bytes_max: stats.fast_bytes_max,
            fast_written_bytes: stats.fast_written_bytes,
            bulk_written_bytes: stats.bulk_written_bytes,
            log_mirror_behind_bytes: stats.log_mirror_behind_bytes,
            fast_index_bytes: stats.fast_index_bytes,
            fast_index_refused: stats.fast_index_refused,
            fast_newest_bytes: stats.fast_newest_bytes,
            fast_newest_segments: stats.fast_newest_segments,
            fast_newest_refused: stats.fast_newest_refused,
            snapshots: stats.snapshots,
            snapshot_bytes: stats.snapshot_bytes,
            snapshot_bytes_max: stats.snapshot_bytes_max,
            dead_bytes: stats.dead_bytes,
            bytes_per_event: stats.bytes_per_event(),
            wa_events: stats.wa_events(),
            wa_bytes: stats.wa_bytes(),
            events_accepted: stats.events_accepted,
            bytes_accepted: stats.bytes_accepted,
            events_in_memory: stats.events_in_memory,
            events_written: stats.events_written(),
            events_flush: stats.events_flush,
            events_merge: stats.events_merge,
            events_late_run: stats.events_late_run,
            events_fold: stats.events_fold,
            events_compaction: stats.events_compaction,
            bytes_log: stats.bytes_log,
            bytes_leaf: stats.bytes_leaf,
            bytes_index: stats.bytes_index,
            bytes_meta: stats.bytes_meta,
            flushes: stats.flushes,
            merges: stats.merges,
        }
    }
}

fn text(stats: &Stats, tables: &[TableInfo]) -> String {
    let line = |name: &str, value: String, note: String| vec![name.to_owned(), value, note];
    let mut rows = vec![
        line(
            "events",
            grouped(stats.events),
            format!("{} in memory", grouped(stats.events_in_memory)),
        ),
        line(
            "streams",
            grouped(stats.streams),
            format!("in {} tables", grouped(stats.tables)),
        ),
        line(
            "partitions",
            grouped(stats.partitions),
            format!(
                "{} leaves, {} late runs",
                grouped(stats.leaves),
                grouped(stats.late_runs)
            ),
        ),
        line(
            "on disk",
            bytes(stats.disk_bytes),
            format!(
                "segments {}, log {}, dead {}{}",
                bytes(stats.segment_bytes),
                bytes(stats.log_bytes),
                bytes(stats.dead_bytes),
                match stats.fast_bytes {
                    0 => String::new(),
                    fast => format!("; {} of it in the fast tier", bytes(fast)),
                }
            ),
        ),
        line(
            "per event",
            format!("{:.2} B", stats.bytes_per_event()),
            "segments / events".to_owned(),
        ),
        line(
            "wa_events",
            format!("{:.3}", stats.wa_events()),
            format!(
                "flush {}, merge {}, late runs {}, folds {}, compaction {}",
                grouped(stats.events_flush),
                grouped(stats.events_merge),
                grouped(stats.events_late_run),
                grouped(stats.events_fold),
                grouped(stats.events_compaction)
            ),
        ),
        line(
            "wa_bytes",
            format!("{:.3}", stats.wa_bytes()),
            format!(
                "log {}, leaves {}, index {}, metadata {}",
                bytes(stats.bytes_log),
                bytes(stats.bytes_leaf),
                bytes(stats.bytes_index),
                bytes(stats.bytes_meta)
            ),
        ),
    ];
    if stats.partitions_unreadable > 0 {
        let unreadable = line(
            "unreadable",
            grouped(stats.partitions_unreadable),
            "partitions are damaged: run `headwater check`, then `headwater repair`".to_owned(),
        );
        rows.insert(3, unreadable);
    }
    let mut out = render(
        &[Heading::text(""), Heading::number(""), Heading::text("")],
        &rows,
    );
    out = out.trim_start_matches('\n').to_owned();
    if !tables.is_empty() {
        out.push('\n');
        let shown: Vec<ShownTable> = tables.iter().map(ShownTable::of).collect();
        out.push_str(&table_list(&shown));
    }
    out
}
