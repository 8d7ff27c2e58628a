//! CSV gives the same rows in large and in small batches, and what is written back is read as the
//! same rows.
#![no_main]

use headwater_fuzz as _;
use headwater_types::{Batch, FieldType, Timestamp, Value};
use headwater_wire::csv::{CsvOptions, CsvParser, CsvWriter, CsvWriterOptions};
use libfuzzer_sys::fuzz_target;

const TAG: &str = "tag";
/// Marks absent values in what is written back; no value that it would be confused with is written.
const ABSENT: &str = "\\N";

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    let first_line = rest.split(|b| *b == b'\n').next().unwrap_or_default();
    let columns: Vec<String> = String::from_utf8_lossy(first_line)
        .trim_end()
        .split(',')
        .map(str::to_owned)
        .collect();
    let mut options = CsvOptions::new("table", columns.first().cloned().unwrap_or_default());
    options.record_bytes_max = 1 << 12;
    if columns.iter().skip(1).any(|c| c == TAG) {
        options.tags = vec![TAG.into()];
    }
    if mode & 1 == 1 {
        options.null_texts = vec!["NA".into()];
    }
    if mode & 2 == 2 {
        options.time.push_str(
            [
                ":s",
                ":ms",
                ":ns",
                ":rfc3339",
                ":%Y-%m-%d %H:%M@Europe/Berlin",
            ][usize::from(mode >> 4) % 5],
        );
    }
    let declared = mode & 4 == 4;
    if declared {
        let fields = columns.iter().skip(1).filter(|c| *c != TAG);
        options.types = fields
            .enumerate()
            .map(|(i, c)| format!("{c}:{}", FieldType::ALL[(i + usize::from(*mode >> 5)) % 6]))
            .collect();
    }
    let Some(rows) = read(rest, &options, 1 << 20) else {
        return;
    };
    if !declared {
        // The type of a column may follow from rows of its batch: with other batches, other rows
        // fit.
        drop(read(rest, &options, 3));
        return;
    }
    assert_eq!(
        read(rest, &options, 3),
        Some(rows.clone()),
        "rows depend on the size of the batches"
    );
    write_back(&rows);
});

/// Table and tag, time, and the values that are there.
type Row = (String, i64, Vec<(String, Value)>);

fn read(text: &[u8], options: &CsvOptions, batch: usize) -> Option<Vec<Row>> {
    let mut parser = CsvParser::new(text, options.clone()).ok()?;
    let mut rows = Vec::new();
    while let Some(parsed) = parser.next_batch(batch).expect("a slice can be read") {
        assert!(parsed.refused.len() as u64 <= parsed.refused_counts.total());
        assert_eq!(parsed.lines.len(), parsed.batch.entries().len());
        collect(&parsed.batch, &mut rows);
    }
    // Inside a batch rows stand by stream. The sort keeps rows of one time in their order.
    rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    Some(rows)
}

fn collect(batch: &Batch, rows: &mut Vec<Row>) {
    for entry in batch.entries() {
        let tag = entry.name.tag(TAG).unwrap_or_default();
        for (row, time) in entry.times.iter().enumerate() {
            let values = entry.fields.iter().filter_map(|(name, column)| {
                Some((name.clone(), plain(column.get(row)?.to_owned())))
            });
            let mut values: Vec<(String, Value)> = values.collect();
            values.sort_by(|a, b| a.0.cmp(&b.0));
            rows.push((tag.to_owned(), *time, values));
        }
    }
}

/// NaN and -0.0 as values that compare as they should: CSV keeps the sign of zero and no payload of
/// a NaN.
fn plain(value: Value) -> Value {
    match value {
        Value::F64(v) if v.is_nan() => Value::String("NaN".into()),
        Value::F64(v) => Value::U64(v.to_bits()),
        value => value,
    }
}

fn write_back(rows: &[Row]) {
    let mut fields: Vec<(String, FieldType)> = Vec::new();
    for (name, value) in rows.iter().flat_map(|r| &r.2) {
        if !fields.iter().any(|(n, _)| n == name) {
            fields.push((name.clone(), value.as_ref().field_type()));
        }
    }
    // Floats were made comparable, so their text is not what the writer would write; names may need
    // to be changed.
    let is_plain = |(name, field_type): &(String, FieldType)| {
        name != "time" && name != TAG && !matches!(field_type, FieldType::F64 | FieldType::U64)
    };
    if fields.is_empty() || !fields.iter().all(is_plain) {
        return;
    }
    let names: Vec<&str> = fields.iter().map(|(n, _)| n.as_str()).collect();
    let mut writer = CsvWriter::new(
        &[TAG],
        &names,
        CsvWriterOptions {
            null_text: ABSENT.into(),
            ..CsvWriterOptions::default()
        },
    );
    let mut text = Vec::new();
    writer.write_header(&mut text);
    for (tag, time, values) in rows {
        let tags: &[(&str, &str)] = if tag.is_empty() { &[] } else { &[(TAG, tag)] };
        writer.start_stream(&headwater_types::StreamName::new(
            "table",
            tags.iter().copied(),
        ));
        let row = names.iter().map(|name| {
            values
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.as_ref())
        });
        writer.write_row(&mut text, Timestamp::from_nanos(*time), row);
    }
    if writer.ambiguous_values() > 0 {
        return;
    }
    let mut options = CsvOptions::new("table", "time:rfc3339");
    options.tags = vec![TAG.into()];
    options.types = fields
        .iter()
        .map(|(name, field_type)| format!("{name}:{field_type}"))
        .collect();
    options.null_texts = vec![ABSENT.into()];
    let again = read(&text, &options, 1 << 20);
    assert_eq!(
        again.as_deref(),
        Some(rows),
        "{}",
        String::from_utf8_lossy(&text)
    );
}
