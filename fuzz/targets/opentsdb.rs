//! Points and questions of OpenTSDB: every point is a row, or refused; questions stay within their
//! bounds.
#![no_main]

use headwater_fuzz as _;
use headwater_types::Timestamp;
use headwater_wire::opentsdb::{
    Question, parse_metric, parse_points, parse_question, parse_time, points,
};
use headwater_wire::query::Query;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = points(bytes) {
        let parsed = parse_points(&found);
        let rows = parsed.batch.row_count() as u64;
        assert_eq!(parsed.line_count, found.len() as u64);
        assert_eq!(rows + parsed.refused_counts.total(), parsed.line_count);
        assert_eq!(parsed.lines.len(), parsed.batch.entries().len());
        for (entry, lines) in parsed.batch.entries().iter().zip(&parsed.lines) {
            assert_eq!(entry.times.len(), lines.len());
            assert!(lines.iter().all(|l| (1..=parsed.line_count).contains(l)));
        }
    }
    let now = Timestamp::from_nanos(1_700_000_000_000_000_000);
    if let Ok(question) = parse_question(bytes, now) {
        check(&question);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = parse_time(text, now);
    let _ = parse_metric(text);
    if let Ok(query) = Query::parse(text)
        && let Ok(question) = Question::of_address(&query, now)
    {
        check(&question);
    }
});

fn check(question: &Question) {
    assert!(!question.range.is_empty() && !question.queries.is_empty());
    for query in &question.queries {
        assert!(!query.metric.is_empty() && query.filters.len() <= 256);
        let every = query.downsample.and_then(|d| d.every_ns);
        assert!(every.is_none_or(|ns| ns > 0));
    }
}
