//! What several modules need: batches as sorted text, and shorthands for parsing.

use headwater_types::{StreamName, Timestamp, Value};
use headwater_wire::ParsedBatch;
use headwater_wire::csv::{CsvOptions, CsvParser};
use headwater_wire::lineprotocol::{LineParser, ParserOptions, Precision};

/// The time of lines without one.
pub(crate) const NOW: i64 = 77;

/// A row: stream, time, line, and its present values by field name.
pub(crate) type Row = (StreamName, i64, u64, Vec<(String, Value)>);

pub(crate) fn rows_of(parsed: &ParsedBatch) -> Vec<Row> {
    let mut rows = Vec::new();
    assert_eq!(parsed.batch.entries().len(), parsed.lines.len());
    for (entry_index, entry) in parsed.batch.entries().iter().enumerate() {
        assert_eq!(parsed.lines[entry_index].len(), entry.times.len());
        for (_, column) in &entry.fields {
            assert_eq!(column.len(), entry.times.len());
            assert!(column.present_count() > 0, "a column without values");
        }
        for (row, time) in entry.times.iter().enumerate() {
            let mut values: Vec<(String, Value)> = entry
                .fields
                .iter()
                .filter_map(|(name, column)| Some((name.clone(), column.get(row)?.to_owned())))
                .collect();
            values.sort_by(|a, b| a.0.cmp(&b.0));
            let line = parsed.line_of(entry_index, row).unwrap();
            rows.push((entry.name.clone(), *time, line, values));
        }
    }
    rows.sort_by_key(|row| row.2);
    rows
}

/// `stream field=value … @time` per row, in the order of the lines.
pub(crate) fn shown_rows(parsed: &ParsedBatch) -> Vec<String> {
    rows_of(parsed)
        .into_iter()
        .map(|(name, time, _, values)| {
            let values: Vec<String> = values
                .into_iter()
                .map(|(field, value)| format!("{field}={}", shown(&value)))
                .collect();
            format!("{name} {} @{time}", values.join(" "))
        })
        .collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::F64(v) => format!("{v:?}"),
        Value::I64(v) => format!("{v}i"),
        Value::U64(v) => format!("{v}u"),
        Value::Bool(v) => format!("{v}"),
        Value::String(v) => format!("{v:?}"),
        Value::Bytes(v) => format!("{v:02x?}"),
    }
}

/// `line code` per refused line.
pub(crate) fn shown_refusals(parsed: &ParsedBatch) -> Vec<String> {
    parsed
        .refused
        .iter()
        .map(|r| format!("{} {}", r.line, r.code))
        .collect()
}

pub(crate) fn parse_lines(text: impl AsRef<[u8]>) -> ParsedBatch {
    let mut options = ParserOptions::new(Timestamp::from_nanos(NOW));
    options.precision = Precision::Nanoseconds;
    LineParser::new(options).parse(text.as_ref(), 1)
}

pub(crate) fn csv_options(time: &str) -> CsvOptions {
    CsvOptions::new("t", time)
}

/// A whole file as one batch.
pub(crate) fn parse_csv(text: impl AsRef<[u8]>, options: CsvOptions) -> ParsedBatch {
    let mut parser = match CsvParser::new(text.as_ref(), options) {
        Ok(parser) => parser,
        Err(error) => panic!("{error}"),
    };
    let parsed = parser.next_batch(usize::MAX).unwrap().unwrap_or_default();
    assert!(parser.next_batch(usize::MAX).unwrap().is_none());
    parsed
}
