//! Messages of a broker: no panic; the same rows and refusals whether the parser has seen the topic
//! before or not.
#![no_main]

use headwater_fuzz::assert_same_batches;
use headwater_types::{FieldType, Timestamp};
use headwater_wire::ParsedBatch;
use headwater_wire::lineprotocol::ParserOptions;
use headwater_wire::message::{MessageParser, MessageRules, PayloadForm, TopicPattern};
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);
const HOUR_NS: i64 = 3_600_000_000_000;

fn rules() -> Vec<MessageRules> {
    let of = |topic: &str, payload| {
        let pattern = TopicPattern::parse(topic).expect("a pattern");
        let mut rules = MessageRules::new(pattern, payload);
        if payload != PayloadForm::LineProtocol {
            rules.table = Some("t".to_owned());
        }
        rules
    };
    let mut json = of("j/{device}", PayloadForm::Json);
    json.time = Some("t".to_owned());
    json.tag_members = vec!["line".to_owned()];
    json.types = vec![("n".to_owned(), FieldType::I64)];
    let mut typed = of("i/{field}", PayloadForm::Value);
    typed.types = vec![("x".to_owned(), FieldType::Bytes)];
    vec![
        json,
        of("o/{device}", PayloadForm::Json),
        typed,
        of("v/{device}/{field#}", PayloadForm::Value),
        of("lp/#", PayloadForm::LineProtocol),
    ]
}

fn parser() -> MessageParser {
    let rules = rules();
    assert!(rules.iter().all(|rules| rules.check().is_ok()));
    MessageParser::new(rules, ParserOptions::new(NOW))
}

// The first line is the topic, what follows is the payload.
fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|b| *b == b'\n').unwrap_or(data.len());
    let Ok(topic) = std::str::from_utf8(&data[..end]) else {
        return;
    };
    let payload = data.get(end + 1..).unwrap_or_default();
    let read = |parser: &mut MessageParser, at: Timestamp| {
        parser.add(topic, payload, at, 7);
        parser.take()
    };
    let first = read(&mut parser(), NOW);
    // One that read the same an hour before, whose instants are given.
    let mut knows = parser();
    read(&mut knows, Timestamp::from_nanos(NOW.as_nanos() - HOUR_NS));
    let second = read(&mut knows, NOW);
    for parsed in [&first, &second] {
        check(parsed);
    }
    assert_same_batches(&first.batch, &second.batch);
    assert_eq!(first.refused, second.refused);
    assert_eq!(first.empty_rows, second.empty_rows);
});

fn check(parsed: &ParsedBatch) {
    assert_eq!(parsed.lines.len(), parsed.batch.entries().len());
    for (lines, entry) in parsed.lines.iter().zip(parsed.batch.entries()) {
        assert_eq!(lines.len(), entry.times.len());
        assert!(lines.iter().all(|line| *line == 7));
        assert!(
            entry
                .fields
                .iter()
                .all(|(_, column)| column.len() == entry.times.len())
        );
    }
    assert!(parsed.refused.iter().all(|refused| refused.line == 7));
}
