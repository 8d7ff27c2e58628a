//! `headwater last`: the newest value of each field.

use crate::address::Address;
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{Format, print, print_json};
use crate::store::DbArgs;
use crate::values::{JsonValue, text_of};
use clap::Args;
use headwater::{LastValue, StreamName};
use headwater_wire::instant::format_instant;
use serde::Serialize;

/// Show the newest value of each field
#[derive(Debug, Args)]
pub(crate) struct Last {
    #[command(flatten)]
    db: DbArgs,

    /// A table, a stream or a field: TABLE[,TAG=VALUE][.FIELD]
    #[arg(value_name = "ADDRESS")]
    address: String,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Row<'a> {
    stream: String,
    field: &'a str,
    time: String,
    time_ns: i64,
    value: JsonValue<'a>,
}

impl Last {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        let snapshot = db.snapshot();
        let address = Address::of_streams(&snapshot, &self.address)?;
        let mut found: Vec<(StreamName, Vec<LastValue>)> = Vec::new();
        for stream in address.streams {
            let values = snapshot.last(&stream)?;
            found.push((stream, values));
        }
        let wanted = address.field.as_ref().map(|(name, _)| name.as_str());
        let rows: Vec<Row<'_>> = found
            .iter()
            .flat_map(|(stream, values)| values.iter().map(move |value| (stream, value)))
            .filter(|(_, value)| wanted.is_none_or(|field| field == value.field))
            .map(|(stream, value)| Row {
                stream: stream.to_string(),
                field: &value.field,
                time: format_instant(value.time),
                time_ns: value.time.as_nanos(),
                value: JsonValue(value.value.as_ref()),
            })
            .collect();
        match self.format {
            Format::Json => print_json(&rows),
            Format::Csv => print(&csv(&rows)),
            Format::Table => print(&table(&rows)),
        }
    }
}

fn csv(rows: &[Row<'_>]) -> String {
    let mut out = "stream,field,time,value\n".to_owned();
    for row in rows {
        let cells = [&row.stream, row.field, &row.time, &text_of(row.value.0)].map(super::csv_cell);
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

fn table(rows: &[Row<'_>]) -> String {
    let headings = [
        Heading::text("stream"),
        Heading::text("field"),
        Heading::text("time"),
        Heading::number("value"),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let value = text_of(row.value.0);
            vec![
                row.stream.clone(),
                row.field.to_owned(),
                row.time.clone(),
                value,
            ]
        })
        .collect();
    render(&headings, &cells)
}
