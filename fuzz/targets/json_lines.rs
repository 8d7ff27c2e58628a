//! JSON lines: every line is counted once, in large and in small batches, and what cannot be JSON
//! is refused under its number.
#![no_main]

use headwater_fuzz as _;
use headwater_types::{FieldType, Timestamp};
use headwater_wire::lineprotocol::ParserOptions;
use headwater_wire::message::JsonLines;
use libfuzzer_sys::fuzz_target;

/// Longest line.
const LINE_BYTES: usize = 1 << 10;

/// Lines read, and the numbers of those that hold no JSON.
fn read(data: &[u8], bytes: usize) -> (u64, Vec<u64>) {
    let mut rules = JsonLines::<&[u8]>::rules("t");
    rules.time = Some("t".to_owned());
    rules.tag_members = vec!["g".to_owned()];
    rules.types = vec![("n".to_owned(), FieldType::I64)];
    let mut options = ParserOptions::new(Timestamp::from_nanos(1_700_000_000_000_000_000));
    options.line_bytes_max = LINE_BYTES;
    let mut lines = JsonLines::new(data, rules, options).expect("the rules go together");
    let (mut count, mut refused) = (0, Vec::new());
    while let Some(parsed) = lines
        .next_batch(bytes)
        .expect("reading memory does not fail")
    {
        let numbers = count + 1..=count + parsed.line_count;
        count += parsed.line_count;
        assert_eq!(parsed.lines.len(), parsed.batch.entries().len());
        for (lines, entry) in parsed.lines.iter().zip(parsed.batch.entries()) {
            assert_eq!(lines.len(), entry.times.len());
            assert!(lines.iter().all(|line| numbers.contains(line)));
        }
        for line in &parsed.refused {
            assert!(numbers.contains(&line.line));
            refused.extend((line.code.as_str() == "E_PARSE").then_some(line.line));
        }
    }
    (count, refused)
}

fuzz_target!(|data: &[u8]| {
    let whole = read(data, 1 << 20);
    let ends = data.iter().filter(|byte| **byte == b'\n').count();
    let lines = ends + usize::from(!data.is_empty() && !data.ends_with(b"\n"));
    assert_eq!(whole.0, lines as u64);
    // A batch keeps the first thousand refusals.
    if lines <= 1_000 {
        assert_eq!(whole, read(data, 1));
    }
});
