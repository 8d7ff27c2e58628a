//! `headwater diff`: what differs between two states of a database.

use crate::arguments::{RangeArgs, parse_tag};
use crate::failure::Failure;
use crate::output::Output;
use crate::store::DbArgs;
use clap::Args;
use headwater::{DiffSpec, DiffStretch, Reader, Snapshot, StreamDiff};
use headwater_wire::instant::format_instant;
use serde_json::json;

/// What stands for the state of now.
const NOW: &str = "now";

/// Say in which stretches of time the rows of streams differ between two snapshots
#[derive(Debug, Args)]
#[command(after_help = "\
Works beside the process that has the database open. A line for each stretch: stream, first and last instant, rows
that only A has (removed), that only B has (added), and that have other values (changed). What both have stored in the
same place is not read. Only rows are compared: of aggregates whose rows have gone nothing is told. Exit code 0 whether
something differs or not.

Examples:
  headwater diff --db ./data before-the-import now
  headwater diff --db ./data monday tuesday --table weather --where origin=EWR --json")]
pub(crate) struct Diff {
    #[command(flatten)]
    db: DbArgs,

    /// Name of a snapshot, or `now`
    #[arg(value_name = "A")]
    before: String,

    /// Name of a snapshot, or `now`
    #[arg(value_name = "B")]
    after: String,

    /// Only this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,

    /// Only streams with this tag; may be repeated
    #[arg(long = "where", value_name = "TAG=VALUE", value_parser = parse_tag)]
    filters: Vec<(String, String)>,

    #[command(flatten)]
    range: RangeArgs,

    /// Print a line of JSON for each stretch
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let reader = self.db.open_to_read()?;
        let before = state(&reader, &self.before)?;
        let after = state(&reader, &self.after)?;
        let spec = DiffSpec {
            table: self.table.clone(),
            tags: self.filters.clone(),
            range: self.range.range(),
        };
        let mut out = Output::new();
        let mut failed = None;
        let (mut streams, mut sums) = (0u64, [0u64; 3]);
        let compared = before.diff(&after, &spec, |found| {
            streams += 1;
            for stretch in &found.stretches {
                let of = [stretch.removed, stretch.added, stretch.changed];
                sums = std::array::from_fn(|i| {
                    sums.get(i).copied().unwrap_or(0) + of.get(i).copied().unwrap_or(0)
                });
                if failed.is_none() {
                    let line = self.line(&found, stretch);
                    out.buffer.extend_from_slice(line.as_bytes());
                    out.buffer.push(b'\n');
                    failed = out.pass_on().err();
                }
            }
            Ok(())
        });
        if let Some(failed) = failed {
            return Err(failed);
        }
        compared?;
        out.finish()?;
        let [removed, added, changed] = sums;
        eprintln!(
            "{streams} streams differ: {removed} rows removed, {added} added, {changed} changed"
        );
        Ok(())
    }

    fn line(&self, found: &StreamDiff, stretch: &DiffStretch) -> String {
        let (first, last) = (stretch.range.first, stretch.range.last);
        let (first, last) = (format_instant(first), format_instant(last));
        let DiffStretch {
            removed,
            added,
            changed,
            ..
        } = stretch;
        let stream = &found.stream;
        match self.json {
            true => json!({
                "stream": stream.to_string(), "first": first, "last": last,
                "removed": removed, "added": added, "changed": changed,
            })
            .to_string(),
            false => {
                format!("{stream} {first} {last} removed={removed} added={added} changed={changed}")
            }
        }
    }
}

fn state(reader: &Reader, name: &str) -> Result<Snapshot, Failure> {
    match name {
        NOW => Ok(reader.snapshot()),
        name => Ok(reader.snapshot_named(name)?),
    }
}
