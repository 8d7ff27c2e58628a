//! `headwater analyze`: how late events are, and what each policy for them would write, before or
//! after they are stored.
//!
//! Invariant: everything said is computed by the library; this reads events and prints.

mod show;
mod source;

use crate::arguments::{parse_delimiter, parse_size};
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::progress::spinner;
use clap::{Args, ValueEnum};
use headwater::late::{Knobs, Study, StudySettings};
use std::path::PathBuf;

/// Approximate memory of an event.
const EVENT_BYTES: f64 = 40.0;

/// Study how late events are, and predict what each policy for them would write
#[derive(Debug, Args)]
#[command(after_help = "\
A file is CSV, plain, gzip or zstd, with a column of the time at which an event was generated and, where there is one, a
column of the time at which it arrived; without it rows are taken to stand in order of arrival. In a database, name a
field that holds the time of arrival.

Predicted is events written to leaves per event, by the model; replayed is the same, counted on the times of the device
with the most events; cost adds the overhead of leaves and flushes. kept back is the number of newest events that a
flush leaves in memory.

Examples:
  headwater analyze --generation t_g:ms --arrival t_a:ms --by device readings.csv.gz
  headwater analyze --db ./data lorawan,device=7.received --unit ms
  headwater analyze --generation t_g --memory-events 512 --leaf 512 --late-runs 0 --format json -")]
pub(crate) struct Analyze {
    /// CSV file, - for stdin; with --db an address TABLE,TAG=VALUE.FIELD of times of arrival
    #[arg(value_name = "FILE|STREAM.FIELD")]
    source: String,

    /// Directory of the database
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,

    /// Column of the time of generation; FORMAT is s, ms, us, ns, rfc3339 or STRFTIME[@ZONE] (CSV)
    #[arg(long, value_name = "COLUMN[:FORMAT]")]
    generation: Option<String>,

    /// Column of the time of arrival; without a FORMAT it has that of the generation (CSV)
    #[arg(long, value_name = "COLUMN[:FORMAT]")]
    arrival: Option<String>,

    /// Column that names the device; may be repeated (CSV)
    #[arg(long = "by", value_name = "COLUMN")]
    by: Vec<String>,

    /// Character between cells, or tab (CSV)
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, default_value = ",")]
    delimiter: u8,

    /// Unit of the field of arrival: s, ms, us or ns (database)
    #[arg(long, value_name = "UNIT", default_value = "ns")]
    unit: String,

    /// Memory the events would be stored with; half of it holds events
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    memory: usize,

    /// Events that fit into memory, of all devices, instead of --memory
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    memory_events: Option<u32>,

    /// Events of a leaf
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(16..=65_536), default_value = "2048")]
    leaf: u32,

    /// Late runs that may wait before they are merged; 0 = late events are merged at once, as in
    /// the papers
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=1_024), default_value = "16")]
    late_runs: u16,

    /// Only the policies of the paper: how memory is divided, with merges of every leaf in range
    #[arg(long)]
    paper: bool,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = AnalyzeFormat::Table)]
    format: AnalyzeFormat,
}

/// Format of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AnalyzeFormat {
    // For reading
    Table,
    // For programs
    Json,
}

impl Analyze {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut study = Study::new(StudySettings {
            memory_events: self
                .memory_events
                .map_or(self.memory as f64 / 2.0 / EVENT_BYTES, f64::from),
            leaf_events: self.leaf,
            late_runs_max: usize::from(self.late_runs),
            knobs: if self.paper {
                Knobs::paper()
            } else {
                Knobs::default()
            },
        });
        match &self.db {
            Some(dir) => source::read_database(&self, dir, &mut study)?,
            None => source::read_csv(&self, &mut study)?,
        }
        if study.events() == 0 {
            return Err(Failure::failed(
                "there is no event with the requested times",
            ));
        }
        let waiting = spinner("predicting and replaying");
        let report = study.report();
        waiting.finish_and_clear();
        match self.format {
            AnalyzeFormat::Json => print_json(&show::StudyStats::of(&report)),
            AnalyzeFormat::Table => print(&show::text(&report)),
        }
    }
}
