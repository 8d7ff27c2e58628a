//! `headwater diff`: what differs between two states of a database.

use crate::arguments::{RangeArgs, parse_tag};
use crate::failure::Failure;
use crate::http::encoded;
use crate::output::Output;
use crate::server::Server;
use crate::store::{DbArgs, DbTarget, TargetArgs};
use clap::Args;
use headwater::{ClosedRange, DiffSpec, DiffStretch, Reader, Snapshot};
use headwater_wire::instant::format_instant;
use serde_json::{Value, json};
use std::time::Duration;

/// Name of the current state.
const NOW: &str = "now";
/// Longest comparison by a server; it reports differences as it finds them.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Show the spans of time in which the rows of streams differ between two snapshots
#[derive(Debug, Args)]
#[command(after_help = "\
Works while another process has the database open, or through a server with --url. Prints a line for each span: stream, first
and last instant, rows that only A has (removed), that only B has (added), and that have other values (changed). Data that
both share is not read. Only rows are compared, not aggregates whose rows were removed. The exit code is 0 whether or not
something differs.

Examples:
  headwater diff --db ./data before-the-import now
  headwater diff --db ./data monday tuesday --table weather --where origin=EWR --json
  headwater diff --url http://127.0.0.1:7373 monday now")]
pub(crate) struct Diff {
    #[command(flatten)]
    target: TargetArgs,

    /// Name of a snapshot, or `now`
    #[arg(value_name = "A")]
    before: String,

    /// Name of a snapshot, or `now`
    #[arg(value_name = "B")]
    after: String,

    /// Only this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,

    /// Only streams with this tag; may be repeated, also with several values of one tag
    #[arg(long = "where", value_name = "TAG=VALUE", value_parser = parse_tag)]
    filters: Vec<(String, String)>,

    #[command(flatten)]
    range: RangeArgs,

    /// Print a line of JSON for each span
    #[arg(long)]
    json: bool,
}

/// A line of the answer, and the sums.
#[derive(Default)]
struct Report {
    as_json: bool,
    streams: u64,
    /// Rows removed, added and changed.
    sums: [u64; 3],
}

impl Report {
    /// Prints a line for a stretch.
    fn stretch(
        &self,
        stream: &str,
        stretch: &DiffStretch,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let (first, last) = (stretch.range.first, stretch.range.last);
        let (first, last) = (format_instant(first), format_instant(last));
        let DiffStretch {
            removed,
            added,
            changed,
            ..
        } = stretch;
        let line = match self.as_json {
            true => json!({
                "stream": stream, "first": first, "last": last,
                "removed": removed, "added": added, "changed": changed,
            })
            .to_string(),
            false => {
                format!("{stream} {first} {last} removed={removed} added={added} changed={changed}")
            }
        };
        out.buffer.extend_from_slice(line.as_bytes());
        out.buffer.push(b'\n');
        out.pass_on()
    }

    /// Takes a line of a server; true for the last one.
    fn line(&mut self, line: &str, out: &mut Output) -> Result<bool, Failure> {
        let said: Value = serde_json::from_str(line).map_err(|error| {
            Failure::failed(format!(
                "the server sent `{line}`, which is not JSON: {error}"
            ))
        })?;
        if let Some(error) = said.get("error") {
            let message = error.get("message").and_then(Value::as_str);
            let message = message.unwrap_or("no reason was given");
            return Err(Failure::failed(format!(
                "the comparison was interrupted: {message}"
            )));
        }
        let unknown = || {
            Failure::failed(format!(
                "the server sent `{line}`, which is not a line of a comparison: is it as new as this program?"
            ))
        };
        let number = |key: &str| {
            let number = said.get(key).and_then(Value::as_u64);
            number.ok_or_else(unknown)
        };
        let sums = [number("removed")?, number("added")?, number("changed")?];
        let Some(stream) = said.get("stream").and_then(Value::as_str) else {
            (self.streams, self.sums) = (number("streams")?, sums);
            return Ok(true);
        };
        let instant = |key: &str| {
            let instant = said.get(key).and_then(Value::as_str);
            let nanos = instant.and_then(|text| text.parse().ok());
            nanos.ok_or_else(unknown)
        };
        let [removed, added, changed] = sums;
        let stretch = DiffStretch {
            range: ClosedRange::nanos(instant("first")?, instant("last")?),
            removed,
            added,
            changed,
        };
        self.stretch(stream, &stretch, out)?;
        Ok(false)
    }

    fn end(&self) {
        let ([removed, added, changed], streams) = (self.sums, self.streams);
        eprintln!(
            "{streams} streams differ: {removed} rows removed, {added} added, {changed} changed"
        );
    }
}

impl Diff {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut out = Output::new();
        let mut report = Report {
            as_json: self.json,
            ..Report::default()
        };
        match self.target.open_for(LONGEST)? {
            DbTarget::Local(db) => self.local(&db, &mut report, &mut out)?,
            DbTarget::Remote(server) => self.remote(&server, &mut report, &mut out)?,
        }
        out.finish()?;
        report.end();
        Ok(())
    }

    fn local(&self, db: &DbArgs, report: &mut Report, out: &mut Output) -> Result<(), Failure> {
        let reader = db.open_to_read()?;
        let before = state(&reader, &self.before)?;
        let after = state(&reader, &self.after)?;
        let spec = DiffSpec {
            table: self.table.clone(),
            tags: self.filters.clone(),
            range: self.range.range(),
        };
        let mut failed = None;
        let compared = before.diff(&after, &spec, |found| {
            report.streams += 1;
            let stream = found.stream.to_string();
            for stretch in &found.stretches {
                let of = [stretch.removed, stretch.added, stretch.changed];
                for (sum, more) in report.sums.iter_mut().zip(of) {
                    *sum += more;
                }
                if failed.is_none() {
                    failed = report.stretch(&stream, stretch, out).err();
                }
            }
            Ok(())
        });
        match failed {
            Some(failed) => Err(failed),
            None => Ok(compared?),
        }
    }

    /// Prints the report of a server.
    fn remote(
        &self,
        server: &Server,
        report: &mut Report,
        out: &mut Output,
    ) -> Result<(), Failure> {
        let mut is_whole = false;
        server.lines(&self.path(), |line| {
            is_whole = report.line(line, out)?;
            Ok(true)
        })?;
        match is_whole {
            true => Ok(()),
            false => Err(Failure::failed(
                "the answer was interrupted: not all differences were printed; try again",
            )),
        }
    }

    /// Path of the request to a server.
    fn path(&self) -> String {
        let mut path = format!(
            "/api/v1/diff?before={}&after={}",
            encoded(&self.before),
            encoded(&self.after)
        );
        if let Some(table) = &self.table {
            path.push_str(&format!("&table={}", encoded(table)));
        }
        for (tag, value) in &self.filters {
            path.push_str(&format!("&tag={}", encoded(&format!("{tag}={value}"))));
        }
        for (name, at) in self.range.texts() {
            path.push_str(&format!("&{name}={}", encoded(&at)));
        }
        path
    }
}

fn state(reader: &Reader, name: &str) -> Result<Snapshot, Failure> {
    match name {
        NOW => Ok(reader.snapshot()),
        name => Ok(reader.snapshot_named(name)?),
    }
}
