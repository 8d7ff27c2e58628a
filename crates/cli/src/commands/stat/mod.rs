//! `headwater stat`: sizes, counts and write amplification; with `--late`, what is known of late
//! events. JSON has every stat of `headwater::STATS`; the text is a selection, made in `text`.

mod late;

use super::shown_table::{ShownTable, table_list};
use crate::failure::Failure;
use crate::grid::{Heading, bytes, grouped, render};
use crate::output::{print, print_json};
use crate::store::DbArgs;
use clap::{Args, ValueEnum};
use headwater::{STATS, StatValue, Stats, TableInfo};
use serde_json::{Map, Value};

/// Show sizes, counts and write amplification
#[derive(Debug, Args)]
#[command(after_help = "\
wa_events is events written to leaves per event accepted; wa_bytes is bytes written, log, leaves, index and metadata
together, per byte accepted (8 for a time or number, 1 for a boolean, the length of text).
--late shows, for each shard: the policy for late events in force (*), what every other one is predicted to write per
event, what a replay counted, and the newest changes with their reasons.")]
pub(crate) struct Stat {
    #[command(flatten)]
    db: DbArgs,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = StatFormat::Table)]
    format: StatFormat,

    /// Show how late events are, and the policies for them
    #[arg(long)]
    late: bool,
}

/// Format of the output.
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
                StatFormat::Json => print_json(&late::LateStats::of(&report)),
                StatFormat::Table => print(&late::text(&report)),
            };
        }
        let stats = db.stats()?;
        let tables = db.tables();
        match self.format {
            StatFormat::Json => print_json(&as_json(&stats)),
            StatFormat::Table => print(&text(&stats, &tables)),
        }
    }
}

/// Every stat under its stable name; durations in seconds.
fn as_json(stats: &Stats) -> Map<String, Value> {
    let shown = STATS.iter().map(|stat| match (stat.value)(stats) {
        StatValue::Count(count) => (stat.name.to_owned(), count.into()),
        StatValue::Ratio(ratio) => (stat.name.to_owned(), ratio.into()),
        StatValue::Duration(duration) => (
            format!("{}_seconds", stat.name),
            duration.as_secs_f64().into(),
        ),
    });
    shown.collect()
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
