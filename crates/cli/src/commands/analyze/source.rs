//! Sources of events for `analyze`: a CSV file, or a stream of a database that holds times of
//! arrival.

use super::Analyze;
use crate::address::Address;
use crate::failure::Failure;
use crate::input::Input;
use crate::progress::bytes_bar;
use headwater::late::{EVENTS_KEPT, Study};
use headwater::{Column, Options, Reader, ScanSpec, ValueRef, Values};
use headwater_wire::csv::{CsvOptions, CsvParser, TimeFormat};
use std::collections::HashMap;
use std::path::Path;

/// Rows read at once.
const ROWS: usize = 65_536;

/// Events with their device, in any order.
#[derive(Default)]
struct Recording {
    /// Arrival (or the row's place), device, generation.
    rows: Vec<(i64, u32, i64)>,
    has_arrivals: bool,
}

impl Recording {
    fn push(&mut self, arrival: Option<i64>, device: u32, generation: i64) -> Result<(), Failure> {
        if self.rows.len() >= EVENTS_KEPT {
            return Err(Failure::failed(format!(
                "more than {EVENTS_KEPT} events: analyze a part of them"
            )));
        }
        let at = arrival.unwrap_or(self.rows.len() as i64);
        self.rows.push((at, device, generation));
        Ok(())
    }

    fn play(mut self, study: &mut Study) {
        // Stable: events that arrive at one instant stay in the order of the file.
        self.rows.sort_by_key(|row| row.0);
        for (arrival, device, generation) in self.rows {
            study.observe(device, generation, self.has_arrivals.then_some(arrival));
        }
    }
}

/// Splits `COLUMN[:FORMAT]` where what follows the last colon is a format.
fn column_and_format(text: &str) -> (&str, Option<TimeFormat>) {
    match text.rsplit_once(':') {
        Some((column, format)) => match TimeFormat::parse(format) {
            Ok(format) => (column, Some(format)),
            Err(_) => (text, None),
        },
        None => (text, None),
    }
}

pub(super) fn read_csv(analyze: &Analyze, study: &mut Study) -> Result<(), Failure> {
    let Some(generation) = &analyze.generation else {
        return Err(Failure::usage(
            "a file needs --generation COLUMN[:FORMAT], the column with the time of generation; a stream of a database needs --db DIR",
        ));
    };
    let path = Path::new(&analyze.source);
    let file = path.display().to_string();
    let input = Input::open(path)?;
    let bar = bytes_bar(input.bytes);
    let reader = input
        .decompressed(bar.clone())
        .map_err(|error| Failure::failed(format!("cannot read {file}: {error}")))?;
    let arrival = analyze.arrival.as_deref().map(column_and_format);
    let mut options = CsvOptions::new("events", generation.clone());
    options.delimiter = analyze.delimiter;
    let mut fields: Vec<String> = arrival
        .iter()
        .map(|(column, _)| format!("{column}:string"))
        .collect();
    fields.extend(analyze.by.iter().map(|column| format!("{column}:string")));
    if fields.is_empty() {
        return Err(Failure::usage(
            "a file needs --arrival COLUMN[:FORMAT], or --by COLUMN when its rows stand in order of arrival",
        ));
    }
    options.fields = Some(fields);
    let mut parser =
        CsvParser::new(reader, options).map_err(|error| Failure::of_csv(&file, &error))?;
    let mut recording = Recording {
        has_arrivals: arrival.is_some(),
        ..Recording::default()
    };
    let mut devices: HashMap<String, u32> = HashMap::new();
    let mut unread = 0u64;
    while let Some(parsed) = parser
        .next_batch(ROWS)
        .map_err(|error| Failure::of_csv(&file, &error))?
    {
        unread += parsed.refused_counts.total() + parsed.empty_rows;
        let format = match &arrival {
            Some((_, Some(format))) => format.clone(),
            _ => parser.time_format().clone(),
        };
        for entry in parsed.batch.into_entries() {
            let column = |name: &str| entry.fields.iter().find(|(f, _)| f == name).map(|(_, c)| c);
            for (row, generation) in entry.times.iter().enumerate() {
                let at = match &arrival {
                    None => None,
                    Some((name, _)) => {
                        let text = column(name).and_then(|c| text_at(c, row));
                        match text.and_then(|text| format.read(text).ok()) {
                            Some(at) => Some(at.as_nanos()),
                            None => {
                                unread += 1;
                                continue;
                            }
                        }
                    }
                };
                let device = analyze
                    .by
                    .iter()
                    .map(|name| column(name).and_then(|c| text_at(c, row)).unwrap_or(""))
                    .collect::<Vec<_>>()
                    .join("\0");
                let next = devices.len() as u32;
                let device = *devices.entry(device).or_insert(next);
                recording.push(at, device, *generation)?;
            }
        }
    }
    bar.finish_and_clear();
    if unread > 0 {
        eprintln!("{unread} rows without both times are left out");
    }
    recording.play(study);
    Ok(())
}

fn text_at(column: &Column, row: usize) -> Option<&str> {
    match (column.values(), column.is_present(row)) {
        (Values::String(text), true) => std::str::from_utf8(text.get(row)).ok(),
        _ => None,
    }
}

pub(super) fn read_database(
    analyze: &Analyze,
    dir: &Path,
    study: &mut Study,
) -> Result<(), Failure> {
    let per_unit: i64 = match analyze.unit.as_str() {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" => 1,
        other => {
            return Err(Failure::usage(format!(
                "--unit {other}: expected s, ms, us or ns"
            )));
        }
    };
    let reader = Reader::open(Options {
        memory_budget_bytes: analyze.memory,
        ..Options::new(dir)
    })?;
    let snapshot = reader.snapshot();
    let address = Address::of_streams(&snapshot, &analyze.source)?;
    let Some((field, _)) = address.field else {
        return Err(Failure::failed(format!(
            "`{}` names no field: name the one that holds the time of arrival",
            analyze.source
        )));
    };
    let mut recording = Recording {
        has_arrivals: true,
        ..Recording::default()
    };
    let mut unread = 0u64;
    for (device, stream) in (0u32..).zip(&address.streams) {
        let spec = ScanSpec {
            fields: Some(vec![field.clone()]),
            ..ScanSpec::default()
        };
        for chunk in snapshot.scan(stream, &spec)? {
            let chunk = chunk?;
            let Some(column) = chunk.columns.first() else {
                continue;
            };
            for (row, generation) in chunk.times.iter().enumerate() {
                match column.get(row).and_then(|v| nanos(v, per_unit)) {
                    Some(arrival) => recording.push(Some(arrival), device, *generation)?,
                    None => unread += 1,
                }
            }
        }
    }
    if unread > 0 {
        eprintln!("{unread} events without a time of arrival are left out");
    }
    recording.play(study);
    Ok(())
}

fn nanos(value: ValueRef<'_>, per_unit: i64) -> Option<i64> {
    match value {
        ValueRef::I64(v) => v.checked_mul(per_unit),
        ValueRef::U64(v) => i64::try_from(v).ok()?.checked_mul(per_unit),
        ValueRef::F64(v) => {
            let nanos = v * per_unit as f64;
            (nanos.abs() < 9.2e18).then_some(nanos as i64)
        }
        _ => None,
    }
}
