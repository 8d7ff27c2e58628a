//! `headwater replay`: rows of many streams in the order of time.

use crate::arguments::{RangeArgs, parse_tag};
use crate::failure::Failure;
use crate::output::Output;
use crate::store::DbArgs;
use clap::{Args, ValueEnum};
use headwater::{ReplayCursor, ReplaySpec, Timestamp};
use headwater_wire::lineprotocol::LineWriter;
use headwater_wire::replay::{Pace, Position, push_row, quoted};
use std::time::Instant;

/// Print rows of many streams in the order of time, at full speed or at the pace of their times
#[derive(Debug, Args)]
#[command(after_help = "\
Rows of one time stand in the order of their streams. A cursor names the last row that was read, as TIME/ROW/STREAM: the time
in nanoseconds, and the number of the row among those of that stream and time, mostly 1. See docs/replay.md.

Examples:
  headwater replay --db ./data pumps --from now-1h --speed 60
  headwater replay --db ./data pumps --tag site=4 --format lp | curl --data-binary @- http://other:7373/write
  headwater replay --db ./data pumps --after '1700000000000000000/1/pumps,unit=3'")]
pub(crate) struct Replay {
    #[command(flatten)]
    db: DbArgs,

    /// The table
    #[arg(value_name = "TABLE")]
    table: String,

    /// Only streams with this tag; may be repeated, also with several values of one tag
    #[arg(long = "tag", value_name = "TAG=VALUE", value_parser = parse_tag)]
    tags: Vec<(String, String)>,

    #[command(flatten)]
    range: RangeArgs,

    /// Only this field; may be repeated
    #[arg(long = "field", value_name = "NAME")]
    fields: Vec<String>,

    /// Seconds of the data that pass in one second, or max
    #[arg(long, value_name = "SPEED", default_value = "max", value_parser = parse_pace)]
    speed: Pace,

    /// Continue after the row that this cursor names
    #[arg(long, value_name = "CURSOR", value_parser = parse_cursor)]
    after: Option<Position>,

    /// Most rows to print
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = ReplayFormat::Json)]
    format: ReplayFormat,
}

/// Format of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReplayFormat {
    // One object per line
    Json,
    // Line protocol
    Lp,
}

fn parse_pace(text: &str) -> Result<Pace, String> {
    Pace::parse(text).map_err(str::to_owned)
}

fn parse_cursor(text: &str) -> Result<Position, String> {
    Position::parse(text).ok_or_else(|| "expected TIME/ROW/STREAM".to_owned())
}

impl Replay {
    fn spec(&self) -> ReplaySpec {
        let mut spec = ReplaySpec::new(self.table.clone());
        for (tag, value) in &self.tags {
            match spec.tags.iter_mut().find(|(known, _)| known == tag) {
                Some((_, values)) => values.push(value.clone()),
                None => spec.tags.push((tag.clone(), vec![value.clone()])),
            }
        }
        spec.range = self.range.range();
        spec.fields = (!self.fields.is_empty()).then(|| self.fields.clone());
        spec.after = self.after.as_ref().map(|position| ReplayCursor {
            time: position.time,
            stream: position.stream.clone(),
            row: position.row,
        });
        spec
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        let snapshot = db.snapshot();
        let mut replay = snapshot.replay(&self.spec(), None)?;
        let fields = replay.fields().to_vec();
        let names: Vec<Vec<u8>> = fields.iter().map(|(name, _)| quoted(name)).collect();
        let mut out = Output::new();
        let mut lines = LineWriter::new();
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut begun: Option<(Instant, Timestamp)> = None;
        let mut started: Option<u32> = None;
        while let Some(chunk) = replay.next() {
            let chunk = chunk?;
            for row in chunk.rows() {
                // A row that has none of the fields is left out, and counted all the same.
                if !chunk
                    .columns
                    .iter()
                    .any(|column| column.is_present(row.index))
                {
                    continue;
                }
                let Some(stream) = replay.stream(row.stream).filter(|_| left > 0) else {
                    return out.finish();
                };
                left -= 1;
                let (start, first) = *begun.get_or_insert_with(|| (Instant::now(), row.time));
                let wait = self
                    .speed
                    .due(first, row.time)
                    .saturating_sub(start.elapsed());
                if !wait.is_zero() {
                    out.flush()?;
                    std::thread::sleep(wait);
                }
                let values = chunk.columns.iter().map(|column| column.get(row.index));
                match self.format {
                    ReplayFormat::Json => {
                        let values = names.iter().map(Vec::as_slice).zip(values);
                        let name = quoted(&stream.to_string());
                        push_row(&mut out.buffer, row.time, row.number, &name, values);
                        out.buffer.push(b'\n');
                    }
                    ReplayFormat::Lp => {
                        if started.replace(row.stream) != Some(row.stream) {
                            let names = fields.iter().map(|(name, _)| name.as_str());
                            lines
                                .start_stream(stream, names)
                                .map_err(|e| Failure::failed(format!("{stream}: {e}")))?;
                        }
                        lines.write_row(&mut out.buffer, row.time, values);
                    }
                }
                out.pass_on()?;
            }
        }
        out.finish()
    }
}
