//! `headwater aggregate`: count, extremes, mean, sum, deviation, first and last of a field, whole
//! or in bins.

use crate::address::Address;
use crate::arguments::{RangeArgs, parse_duration, parse_time};
use crate::failure::Failure;
use crate::grid::{Heading, grouped, render};
use crate::output::{Format, print, print_json};
use crate::store::DbArgs;
use crate::values::{JsonValue, Number, text_of};
use clap::Args;
use headwater::{AggregateSpec, Bin, Bins, Timestamp, Value};
use headwater_wire::instant::format_instant;
use serde::Serialize;

/// Aggregate a field over a range, whole or in bins
#[derive(Debug, Args)]
#[command(after_help = "\
Mean, deviation, minimum and maximum are those of the finite values; the count is that of all present ones.
The sum of integers is exact. Bins without a value are left out.

Example:
  headwater aggregate --db ./data weather,origin=EWR.temp --from 2013-07-01 --to 2013-08-01 --every 1d --format table")]
pub(crate) struct Aggregate {
    #[command(flatten)]
    db: DbArgs,

    /// The field, as TABLE,TAG=VALUE.FIELD
    #[arg(value_name = "STREAM.FIELD")]
    address: String,

    #[command(flatten)]
    range: RangeArgs,

    /// Width of the bins; without it one for the whole range
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    every: Option<i64>,

    /// An instant at which a bin begins
    #[arg(long, value_name = "T", value_parser = parse_time, allow_hyphen_values = true, default_value = "0", hide_default_value = true)]
    origin: Timestamp,

    /// Leave out first and last: they need every row, the rest comes from the index
    #[arg(long)]
    no_first_last: bool,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Aggregate {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        let snapshot = db.snapshot();
        let (stream, field, _) = Address::of_field(&snapshot, &self.address)?;
        let bins = match self.every {
            None => Bins::Whole,
            Some(width_ns) => Bins::Every {
                width_ns,
                origin_ns: self.origin.as_nanos(),
            },
        };
        let spec = AggregateSpec {
            range: self.range.range(),
            bins,
            first_last: !self.no_first_last,
        };
        let mut found = snapshot.aggregate(&stream, &field, &spec)?;
        if found.is_empty() && bins == Bins::Whole {
            found.push(empty_bin(spec.range.first));
        }
        let rows: Vec<Row<'_>> = found
            .iter()
            .map(|bin| Row::of(bin, self.start_of(bin)))
            .collect();
        match self.format {
            Format::Json => print_json(&rows),
            Format::Csv => print(&csv(&rows)),
            Format::Table => print(&table(&rows)),
        }
    }

    /// The start of a bin; that of the whole range only when it was given.
    fn start_of(&self, bin: &Bin) -> Option<Timestamp> {
        if self.every.is_some() {
            Some(bin.start)
        } else {
            self.range.from
        }
    }
}

fn empty_bin(start: Timestamp) -> Bin {
    Bin {
        start,
        aggregate: headwater::Aggregate::EMPTY,
        first: None,
        last: None,
    }
}

/// A bin as it is printed.
#[derive(Serialize)]
struct Row<'a> {
    start: Option<String>,
    start_ns: Option<i64>,
    count: u64,
    min: Number,
    max: Number,
    mean: Number,
    sum: Number,
    stddev: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<Event<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Event<'a>>,
}

/// A time and a value.
#[derive(Serialize)]
struct Event<'a> {
    time: String,
    time_ns: i64,
    value: JsonValue<'a>,
}

impl<'a> Event<'a> {
    fn of((time, value): &'a (Timestamp, Value)) -> Event<'a> {
        Event {
            time: format_instant(*time),
            time_ns: time.as_nanos(),
            value: JsonValue(value.as_ref()),
        }
    }
}

impl<'a> Row<'a> {
    fn of(bin: &'a Bin, start: Option<Timestamp>) -> Row<'a> {
        let aggregate = &bin.aggregate;
        Row {
            start: start.map(format_instant),
            start_ns: start.map(Timestamp::as_nanos),
            count: aggregate.count,
            min: Number::min(aggregate),
            max: Number::max(aggregate),
            mean: Number::of(aggregate.mean()),
            sum: Number::sum(aggregate),
            stddev: Number::of(aggregate.stddev()),
            first: bin.first.as_ref().map(Event::of),
            last: bin.last.as_ref().map(Event::of),
        }
    }
}

fn csv(rows: &[Row<'_>]) -> String {
    let mut out =
        "start,count,min,max,mean,sum,stddev,first_time,first,last_time,last\n".to_owned();
    for row in rows {
        let (first_time, first) = event_cells(row.first.as_ref());
        let (last_time, last) = event_cells(row.last.as_ref());
        let cells = [
            row.start.clone().unwrap_or_default(),
            row.count.to_string(),
            row.min.to_string(),
            row.max.to_string(),
            row.mean.to_string(),
            row.sum.to_string(),
            row.stddev.to_string(),
            first_time,
            super::csv_cell(&first),
            last_time,
            super::csv_cell(&last),
        ];
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

fn event_cells(event: Option<&Event<'_>>) -> (String, String) {
    event.map_or_else(Default::default, |e| (e.time.clone(), text_of(e.value.0)))
}

fn table(rows: &[Row<'_>]) -> String {
    let mut headings = vec![
        Heading::text("start"),
        Heading::number("count"),
        Heading::number("min"),
        Heading::number("max"),
        Heading::number("mean"),
        Heading::number("sum"),
        Heading::number("stddev"),
    ];
    let has_ends = rows.iter().any(|r| r.first.is_some());
    if has_ends {
        headings.extend([Heading::number("first"), Heading::number("last")]);
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![
                row.start.clone().unwrap_or_else(|| "(all)".to_owned()),
                grouped(row.count),
                short(row.min),
                short(row.max),
                short(row.mean),
                short(row.sum),
                short(row.stddev),
            ];
            if has_ends {
                cells.push(event_cells(row.first.as_ref()).1);
                cells.push(event_cells(row.last.as_ref()).1);
            }
            cells
        })
        .collect();
    render(&headings, &cells)
}

/// A number with at most six digits after the point, for reading.
fn short(number: Number) -> String {
    match number {
        Number::F64(value) if value.is_finite() && value.abs() < 1e15 => {
            let text = format!("{value:.6}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            if text.parse() == Ok(0.0) && value != 0.0 {
                format!("{value:.3e}")
            } else {
                text.to_owned()
            }
        }
        other => other.to_string(),
    }
}
