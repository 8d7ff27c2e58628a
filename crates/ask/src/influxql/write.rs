//! Answers in InfluxDB 1's formats, JSON and CSV.
//!
//! Invariants: numbers are read back to the same bits; a float without a fraction is written
//! without one, as InfluxDB does; values that are not finite are `null`; the first column of rows
//! of data is their time, as RFC 3339 or as an integer of the requested unit.

use super::{Answer, Cell, Series};
use crate::error::Error;
use headwater::{Timestamp, Value};
use headwater_wire::instant::format_instant;
use headwater_wire::json::{push_i64, push_str, push_value};
use jiff::tz::TimeZone;

/// The unit of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Epoch {
    /// As text.
    #[default]
    Rfc3339,
    /// Integers of this many ns.
    Unit(i64),
}

impl Epoch {
    /// The unit of a value of the parameter `epoch`.
    #[must_use]
    pub fn named(name: &str) -> Option<Epoch> {
        Some(Epoch::Unit(match name {
            "" | "rfc3339" => return Some(Epoch::Rfc3339),
            "ns" | "n" => 1,
            "u" | "µ" | "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        }))
    }
}

/// Receives the bytes of an answer, piece by piece.
pub type Out<'a> = dyn FnMut(Vec<u8>) -> crate::error::Result<()> + 'a;

/// Form of a written answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// The form of times.
    pub epoch: Epoch,
    /// Rows per part of the answer, if it is chunked.
    pub chunk_rows: Option<usize>,
}

/// The answers of a request as one JSON document.
#[must_use]
pub fn json(answers: &[Result<Answer, Error>], form: Form) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"{\"results\":[");
    for (number, answer) in answers.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        whole(&mut out, number, answer, form);
    }
    out.extend_from_slice(b"]}\n");
    out
}

pub(super) fn begin(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(b"{\"statement_id\":");
    push_i64(out, number as i64);
}

pub(super) fn whole(out: &mut Vec<u8>, number: usize, answer: &Result<Answer, Error>, form: Form) {
    begin(out, number);
    match answer {
        Err(error) => push_error(out, error),
        Ok(answer) => {
            if let Some(series) = &answer.series {
                // An empty list, since a client of YCSB fails if the list is missing.
                out.extend_from_slice(b",\"series\":[");
                for (index, one) in series.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    let rows = (0, one.cells.len());
                    push_series(out, one, rows, form.epoch, answer.zone.as_ref(), false);
                }
                out.push(b']');
            }
            messages(out, answer);
        }
    }
    out.push(b'}');
}

/// Appends the reason for which a statement failed.
pub(super) fn push_error(out: &mut Vec<u8>, error: &Error) {
    out.extend_from_slice(b",\"error\":");
    push_str(out, error.message());
    out.extend_from_slice(b",\"code\":");
    push_str(out, error.kind().as_str());
}

pub(super) fn messages(out: &mut Vec<u8>, answer: &Answer) {
    if let Some(warning) = &answer.warning {
        out.extend_from_slice(b",\"messages\":[{\"level\":\"warning\",\"text\":");
        push_str(out, warning);
        out.extend_from_slice(b"}]");
    }
}

/// Appends a series as JSON, or some of its cells if the rest follows in another part.
pub(super) fn push_series(
    out: &mut Vec<u8>,
    series: &Series,
    (from, to): (usize, usize),
    epoch: Epoch,
    zone: Option<&TimeZone>,
    is_part: bool,
) {
    push_head(out, series);
    let cells = series.cells.get(from..to).unwrap_or_default();
    if !cells.is_empty() {
        out.extend_from_slice(b",\"values\":[");
        push_rows(out, cells, series.columns.len(), epoch, zone);
        out.push(b']');
    }
    if is_part {
        out.extend_from_slice(b",\"partial\":true");
    }
    out.push(b'}');
}

/// Appends the part of a series before its rows.
pub(super) fn push_head(out: &mut Vec<u8>, series: &Series) {
    out.push(b'{');
    if !series.name.is_empty() {
        out.extend_from_slice(b"\"name\":");
        push_str(out, &series.name);
        out.push(b',');
    }
    if !series.tags.is_empty() {
        out.extend_from_slice(b"\"tags\":{");
        for (index, (key, value)) in series.tags.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            push_str(out, key);
            out.push(b':');
            push_str(out, value);
        }
        out.extend_from_slice(b"},");
    }
    out.extend_from_slice(b"\"columns\":[");
    for (index, column) in series.columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_str(out, column);
    }
    out.push(b']');
}

/// Appends rows of `columns` columns, separated by commas.
pub(super) fn push_rows(
    out: &mut Vec<u8>,
    cells: &[Cell],
    width: usize,
    epoch: Epoch,
    zone: Option<&TimeZone>,
) {
    for (index, row) in cells.chunks(width.max(1)).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.push(b'[');
        for (index, cell) in row.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            push_cell(out, cell, epoch, zone);
        }
        out.push(b']');
    }
}

fn push_cell(out: &mut Vec<u8>, cell: &Cell, epoch: Epoch, zone: Option<&TimeZone>) {
    match (cell, epoch) {
        (Cell::Null, _) => out.extend_from_slice(b"null"),
        // Truncated, as in InfluxDB.
        (Cell::Time(at), Epoch::Unit(unit)) => push_i64(out, at / unit),
        (Cell::Time(at), Epoch::Rfc3339) => push_str(out, &time(Timestamp::from_nanos(*at), zone)),
        (Cell::Value(value), _) => push_number(out, value),
    }
}

fn time(at: Timestamp, zone: Option<&TimeZone>) -> String {
    let local = zone.and_then(|zone| {
        let instant = jiff::Timestamp::from_nanosecond(i128::from(at.as_nanos())).ok()?;
        let offset = zone.to_offset(instant);
        Some(instant.display_with_offset(offset).to_string())
    });
    local.unwrap_or_else(|| {
        let text = format_instant(at);
        // Without trailing zeros of the fraction, as InfluxDB writes it.
        match text.strip_suffix('Z').filter(|t| t.contains('.')) {
            Some(digits) => format!("{}Z", digits.trim_end_matches('0')),
            None => text,
        }
    })
}

/// Appends a number; a float without a fraction as an integer.
fn push_number(out: &mut Vec<u8>, value: &Value) {
    let from = out.len();
    push_value(out, value.as_ref());
    if matches!(value, Value::F64(_)) && out.get(from..).is_some_and(|text| text.ends_with(b".0")) {
        out.truncate(out.len() - 2);
    }
}

/// The answers of a request as CSV. Times are integers unless text was requested.
#[must_use]
pub fn csv(answers: &[Result<Answer, Error>], form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sheet = Sheet::default();
    for answer in answers {
        match answer {
            Err(error) => sheet.error(&mut out, error),
            Ok(answer) => {
                for series in answer.series.iter().flatten() {
                    sheet.series(&mut out, series, form, answer.zone.as_ref());
                }
            }
        }
    }
    out
}

/// State of an unfinished CSV text.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    has_output: bool,
    columns: Option<Vec<String>>,
}

impl Sheet {
    fn head(&mut self, out: &mut Vec<u8>) {
        if self.has_output {
            out.push(b'\n');
        }
        self.has_output = true;
    }

    pub(super) fn error(&mut self, out: &mut Vec<u8>, error: &Error) {
        self.head(out);
        out.extend_from_slice(b"error\n");
        push_text(out, error.message());
        out.push(b'\n');
        self.columns = None;
    }

    /// Appends rows of a series, with a header line if the columns changed.
    pub(super) fn series(
        &mut self,
        out: &mut Vec<u8>,
        series: &Series,
        form: Form,
        zone: Option<&TimeZone>,
    ) {
        if self.columns.as_ref() != Some(&series.columns) {
            self.head(out);
            out.extend_from_slice(b"name,tags");
            for column in &series.columns {
                out.push(b',');
                push_text(out, column);
            }
            out.push(b'\n');
            self.columns = Some(series.columns.clone());
        }
        rows(out, series, form, zone);
    }
}

fn rows(out: &mut Vec<u8>, series: &Series, form: Form, zone: Option<&TimeZone>) {
    let tags: Vec<String> = series
        .tags
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    let tags = tags.join(",");
    for row in series.cells.chunks(series.columns.len().max(1)) {
        push_text(out, &series.name);
        out.push(b',');
        push_text(out, &tags);
        for cell in row {
            out.push(b',');
            match cell {
                Cell::Null => {}
                Cell::Value(Value::String(text)) => push_text(out, text),
                Cell::Time(at) if form.epoch == Epoch::Rfc3339 => {
                    push_text(out, &time(Timestamp::from_nanos(*at), zone))
                }
                cell => push_cell(out, cell, form.epoch, zone),
            }
        }
        out.push(b'\n');
    }
}

/// Appends a text in CSV, quoted if necessary.
fn push_text(out: &mut Vec<u8>, text: &str) {
    if text.contains(['"', ',', '\n', '\r']) {
        out.push(b'"');
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn series() -> Series {
        Series {
            name: "m".to_owned(),
            tags: vec![("a,b".to_owned(), "x\"y".to_owned())],
            columns: ["time", "v", "t"].map(str::to_owned).to_vec(),
            cells: vec![
                Cell::Time(1_500_000_000),
                Cell::Value(Value::F64(2.0)),
                Cell::text("p,q"),
                Cell::Time(-1),
                Cell::Null,
                Cell::Value(Value::Bool(true)),
            ],
            ..Series::default()
        }
    }

    fn answers() -> [Result<Answer, Error>; 3] {
        let answer = Answer {
            series: Some(vec![series()]),
            ..Answer::default()
        };
        let warned = Answer {
            warning: Some("w".to_owned()),
            ..Answer::default()
        };
        [Ok(answer), Ok(warned), Err(super::super::invalid("no"))]
    }

    #[test]
    fn json_has_the_shape_of_influxdb() {
        let text = String::from_utf8(json(&answers(), Form::default())).unwrap();
        let expected = concat!(
            r#"{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"a,b":"x\"y"},"columns":["time","v","t"],"#,
            r#""values":[["1970-01-01T00:00:01.5Z",2,"p,q"],["1969-12-31T23:59:59.999999999Z",null,true]]}]},"#,
            r#"{"statement_id":1,"messages":[{"level":"warning","text":"w"}]},{"statement_id":2,"error":"no","code":"E_QUERY"}]}"#,
            "\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn csv_has_a_head_for_each_set_of_columns() {
        let form = Form {
            epoch: Epoch::Unit(1),
            chunk_rows: None,
        };
        let text = String::from_utf8(csv(&answers(), form)).unwrap();
        assert_eq!(
            text,
            "name,tags,time,v,t\nm,\"a,b=x\"\"y\",1500000000,2,\"p,q\"\nm,\"a,b=x\"\"y\",-1,,true\n\nerror\nno\n"
        );
    }
}
