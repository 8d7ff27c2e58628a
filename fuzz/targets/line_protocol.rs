//! Line protocol gives the same rows whole and in pieces, and what is written back parses to the
//! same rows.
#![no_main]

use headwater_fuzz::assert_same_batches;
use headwater_types::Timestamp;
use headwater_wire::ParsedBatch;
use headwater_wire::lineprotocol::{LineParser, LineStream, LineWriter, ParserOptions, Precision};
use libfuzzer_sys::fuzz_target;

fn options() -> ParserOptions {
    ParserOptions {
        line_bytes_max: 1 << 16,
        ..ParserOptions::new(Timestamp::from_nanos(1_700_000_000_000_000_000))
    }
}

fuzz_target!(|data: &[u8]| {
    let whole = LineParser::new(options()).parse(data, 1);
    check(&whole);

    // The stream cuts its input into pieces of its own; lines and rows must not depend on where.
    let mut pieces = LineStream::new(data, options());
    let mut counts = Counts::default();
    while let Some(part) = pieces.next_batch(64).expect("a slice can be read") {
        check(&part);
        counts.add(&part);
    }
    let mut at_once = Counts::default();
    at_once.add(&whole);
    assert_eq!(counts, at_once, "rows depend on the pieces");

    let mut text = Vec::new();
    let mut writer = LineWriter::new();
    for entry in whole.batch.entries() {
        if writer
            .start_stream(
                &entry.name,
                entry.fields.iter().map(|(name, _)| name.as_str()),
            )
            .is_err()
        {
            return;
        }
        for (row, time) in entry.times.iter().enumerate() {
            let values = entry.fields.iter().map(|(_, column)| column.get(row));
            writer.write_row(&mut text, Timestamp::from_nanos(*time), values);
        }
    }
    if !writer.skipped().is_empty() {
        return;
    }
    let mut exact = options();
    exact.precision = Precision::Nanoseconds;
    let again = LineParser::new(exact).parse(&text, 1);
    assert_eq!(again.refused, [], "{}", String::from_utf8_lossy(&text));
    assert_same_batches(&again.batch, &whole.batch);
});

fn check(parsed: &ParsedBatch) {
    assert_eq!(parsed.lines.len(), parsed.batch.entries().len());
    for (lines, entry) in parsed.lines.iter().zip(parsed.batch.entries()) {
        assert_eq!(lines.len(), entry.times.len());
        assert!(
            entry
                .fields
                .iter()
                .all(|(_, column)| column.len() == entry.times.len())
        );
    }
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    lines: u64,
    rows: usize,
    refused: u64,
}

impl Counts {
    fn add(&mut self, parsed: &ParsedBatch) {
        self.lines += parsed.line_count;
        self.rows += parsed.batch.row_count();
        self.refused += parsed.refused_counts.total();
    }
}
