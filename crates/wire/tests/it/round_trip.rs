//! What the writers write, the parsers read back.

use crate::support::{Row, csv_options, parse_csv, parse_lines, rows_of};
use headwater_types::{FieldType, StreamName, Timestamp, Value};
use headwater_wire::csv::{CsvWriter, CsvWriterOptions, TimeFormat, TimeUnit};
use headwater_wire::lineprotocol::LineWriter;
use proptest::prelude::*;

const TYPES: [(&str, FieldType); 6] = [
    ("float", FieldType::F64),
    ("whole", FieldType::I64),
    ("count", FieldType::U64),
    ("flag", FieldType::Bool),
    ("text", FieldType::String),
    ("raw", FieldType::Bytes),
];

fn value(field_type: FieldType) -> BoxedStrategy<Value> {
    match field_type {
        FieldType::F64 => prop_oneof![
            any::<f64>().prop_map(Value::F64),
            any::<u64>().prop_map(|b| Value::F64(f64::from_bits(b))),
            Just(Value::F64(-0.0)),
            Just(Value::F64(f64::INFINITY)),
        ]
        .boxed(),
        FieldType::I64 => any::<i64>().prop_map(Value::I64).boxed(),
        FieldType::U64 => any::<u64>().prop_map(Value::U64).boxed(),
        FieldType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        FieldType::String => prop_oneof![
            any::<String>(),
            "[\"\\\\,=\n\r 'a]{0,8}",
            Just(String::new())
        ]
        .prop_map(Value::String)
        .boxed(),
        FieldType::Bytes => prop::collection::vec(any::<u8>(), 0..6)
            .prop_map(Value::Bytes)
            .boxed(),
    }
}

/// A time and a value per type, some absent.
fn row() -> impl Strategy<Value = (i64, Vec<Option<Value>>)> {
    let values: Vec<_> = TYPES
        .iter()
        .map(|(_, t)| prop::option::weighted(0.8, value(*t)))
        .collect();
    (any::<i64>(), values)
}

fn same(a: &[(String, Value)], b: &[(String, Value)]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((n, a), (m, b))| {
            n == m
                && match (a, b) {
                    // Text has one NaN.
                    (Value::F64(a), Value::F64(b)) if a.is_nan() => b.is_nan(),
                    _ => a.as_ref().same_bits(&b.as_ref()),
                }
        })
}

fn expected_rows(
    name: &StreamName,
    rows: &[(i64, Vec<Option<Value>>)],
    is_kept: impl Fn(&Value) -> bool,
) -> Vec<Row> {
    rows.iter()
        .map(|(time, values)| {
            let mut values: Vec<(String, Value)> = TYPES
                .iter()
                .zip(values)
                .filter_map(|((name, _), v)| Some(((*name).to_owned(), v.clone()?)))
                .filter(|(_, v)| is_kept(v))
                .collect();
            values.sort_by(|a, b| a.0.cmp(&b.0));
            (name.clone(), *time, 0, values)
        })
        .filter(|row| !row.3.is_empty())
        .collect()
}

fn check_equal(found: &[Row], expected: &[Row], text: &[u8]) -> Result<(), TestCaseError> {
    let text = String::from_utf8_lossy(text);
    prop_assert_eq!(found.len(), expected.len(), "{}", text);
    for (a, b) in found.iter().zip(expected) {
        prop_assert!(
            a.0 == b.0 && a.1 == b.1 && same(&a.3, &b.3),
            "{:?} {:?}\n{}",
            a,
            b,
            text
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn csv_reads_back_what_it_wrote(
        rows in prop::collection::vec(row(), 1..12),
        tag in "[a\"\\\\,=\n é]{1,6}",
        unit in 0usize..5,
    ) {
        let name = StreamName::new("t", [("device", tag)]);
        let units = [TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds, TimeUnit::Nanoseconds];
        let time = units.get(unit).map_or(TimeFormat::Rfc3339, |u| TimeFormat::Unit(*u));
        let null_text = "no value!".to_owned();
        let names: Vec<&str> = TYPES.iter().map(|(n, _)| *n).collect();
        let mut writer = CsvWriter::new(
            &["device"],
            &names,
            CsvWriterOptions { null_text: null_text.clone(), delimiter: b',', time },
        );
        let mut out = Vec::new();
        writer.write_header(&mut out);
        writer.start_stream(&name);
        for (at, values) in &rows {
            writer.write_row(&mut out, Timestamp::from_nanos(*at), values.iter().map(|v| v.as_ref().map(Value::as_ref)));
        }
        let mut options = csv_options(["time:s", "time:ms", "time:us", "time:ns", "time:rfc3339"][unit]);
        options.tags = vec!["device".to_owned()];
        options.null_texts = vec![null_text];
        options.types = TYPES.iter().map(|(n, t)| format!("{n}:{t}")).collect();
        let parsed = parse_csv(&out, options);
        prop_assert!(parsed.refused.is_empty(), "{:?}\n{}", parsed.refused, String::from_utf8_lossy(&out));
        check_equal(&rows_of(&parsed), &expected_rows(&name, &rows, |_| true), &out)?;
    }

    #[test]
    fn line_protocol_reads_back_what_it_wrote(
        rows in prop::collection::vec(row(), 1..12),
        table in "[a\u{FEFF}#\"\\\\,=\t é]{1,6}",
        tag in "[a\"\\\\,=\r é]{1,6}",
        prefix in "[a\"\\\\,= é]{1,4}",
    ) {
        let name = StreamName::new(table, [(tag.clone(), tag)]);
        let names: Vec<String> = TYPES.iter().map(|(n, _)| format!("{prefix}{n}")).collect();
        let mut writer = LineWriter::new();
        let started = writer.start_stream(&name, names.iter().map(String::as_str));
        prop_assume!(started.is_ok());
        let mut out = Vec::new();
        for (at, values) in &rows {
            writer.write_row(&mut out, Timestamp::from_nanos(*at), values.iter().map(|v| v.as_ref().map(Value::as_ref)));
        }
        let parsed = parse_lines(&out);
        prop_assert!(parsed.refused.is_empty(), "{:?}\n{}", parsed.refused, String::from_utf8_lossy(&out));
        let mut found = rows_of(&parsed);
        for (_, _, _, values) in &mut found {
            for (name, _) in values.iter_mut() {
                *name = name.strip_prefix(&prefix).unwrap().to_owned();
            }
        }
        let fits = |v: &Value| match v {
            Value::F64(v) => v.is_finite(),
            Value::Bytes(_) => false,
            _ => true,
        };
        let expected = expected_rows(&name, &rows, fits);
        prop_assert_eq!(writer.skipped().rows as usize, rows.len() - expected.len());
        check_equal(&found, &expected, &out)?;
    }
}

#[test]
fn names_line_protocol_cannot_hold_are_errors() {
    let mut writer = LineWriter::new();
    for name in [
        StreamName::new("a\nb", [("t", "v")]),
        StreamName::new("#a", [("t", "v")]),
        StreamName::new("a", [("t", "")]),
    ] {
        assert!(writer.start_stream(&name, ["f"]).is_err(), "{name}");
        let mut out = Vec::new();
        writer.write_row(
            &mut out,
            Timestamp::from_nanos(0),
            [Some(Value::Bool(true).as_ref())],
        );
        assert!(out.is_empty());
    }
    assert_eq!(writer.skipped().rows, 3);
}

#[test]
fn taken_column_names_get_a_number() {
    let mut out = Vec::new();
    CsvWriter::new(
        &["a", "b"],
        &["a", "time", "a_2"],
        CsvWriterOptions::default(),
    )
    .write_header(&mut out);
    assert_eq!(out, b"time,a,b,a_1,time_1,a_2\n");
}

#[test]
fn values_that_read_as_absent_are_counted() {
    let mut writer = CsvWriter::new(&[] as &[&str], &["s"], CsvWriterOptions::default());
    writer.write_row(
        &mut Vec::new(),
        Timestamp::from_nanos(0),
        [Some(Value::from("").as_ref())],
    );
    assert_eq!(writer.ambiguous_values(), 1);
}
