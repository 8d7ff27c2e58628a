//! A line-protocol parser that knows the names already gives what a new one gives, and what one
//! gives that sees each line alone.
#![no_main]

use headwater_fuzz::assert_same_batches;
use headwater_types::{Timestamp, ValueRef};
use headwater_wire::ParsedBatch;
use headwater_wire::lineprotocol::{LineParser, ParserOptions};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

fn options() -> ParserOptions {
    ParserOptions {
        line_bytes_max: 1 << 16,
        // Counted over all lines of a stream, so a line alone never reaches it.
        fields_max: usize::MAX,
        ..ParserOptions::new(NOW)
    }
}

/// A row: stream, time, and the values by field. Integers count as floats where the two meet in one
/// column.
type Row = (String, i64, BTreeMap<String, String>);

fuzz_target!(|data: &[u8]| {
    let mut parser = LineParser::new(options());
    let unknown = parser.parse(data, 1);
    // Twice: the second time the order of the streams is known too.
    for _ in 0..2 {
        // Lines without a time have moved it on.
        parser.options_mut().now = NOW;
        let known = parser.parse(data, 1);
        assert_same_batches(&known.batch, &unknown.batch);
        assert_eq!(
            (&known.lines, &known.refused),
            (&unknown.lines, &unknown.refused)
        );
    }
    // A quoted string may go on over the end of a line.
    if data.contains(&b'"') {
        return;
    }
    let rows = rows(&unknown);
    let mut refused = unknown.refused.iter();
    let mut now = NOW;
    for (number, line) in (1..).zip(data.split(|b| *b == b'\n')) {
        let mut parser = LineParser::new(options());
        parser.options_mut().now = now;
        let alone = parser.parse(line, number);
        now = parser.options_mut().now;
        match alone.refused.first() {
            // Only the first thousand are kept.
            Some(fault) if unknown.refused_counts.total() <= 1_000 => {
                assert_eq!(Some(fault), refused.next());
            }
            _ => {}
        }
        let mut expected = self::rows(&alone);
        assert_eq!(
            rows.get(&number),
            expected.remove(&number).as_ref(),
            "line {number}: {}",
            String::from_utf8_lossy(line)
        );
    }
});

fn rows(parsed: &ParsedBatch) -> BTreeMap<u64, Row> {
    let mut rows = BTreeMap::new();
    for (entry, lines) in parsed.batch.entries().iter().zip(&parsed.lines) {
        for (row, (time, line)) in entry.times.iter().zip(lines).enumerate() {
            let values = entry.fields.iter().filter_map(|(field, column)| {
                let value = match column.get(row)? {
                    ValueRef::I64(v) if (v as f64) as i128 == i128::from(v) => {
                        format!("{:?}", v as f64)
                    }
                    ValueRef::F64(v) => format!("{v:?}"),
                    other => format!("{other:?}"),
                };
                Some((field.clone(), value))
            });
            let row = (entry.name.to_string(), *time, values.collect());
            assert!(rows.insert(*line, row).is_none(), "line {line} comes twice");
        }
    }
    rows
}
