//! Valid points and queries, and the errors of invalid ones.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::query::Query;
use headwater_types::{ClosedRange, Timestamp, Value};
use proptest::prelude::*;

const S: i64 = 1_000_000_000;

#[test]
fn points_are_read_one_by_one() {
    let body = br#" [
        {"metric":"sys.load","timestamp":1700000000,"value":1,"tags":{"host":"a","dc":""}},
        {"metric":"sys.load","timestamp":1700000000500,"value":"2.5","tags":{"host":"a"},"x":[1,{"y":"]"}]},
        {"metric":"sys.procs","timestamp":"1700000001","value":"9007199254740993"},
        {"metric":"sys.load","timestamp":1.5,"value":1},
        {"metric":"","timestamp":1,"value":1},
        {"metric":"m","timestamp":1,"value":true},
        {"metric":"m","timestamp":1,"value":"NaN"},
        {"metric":"m","timestamp":1,"value":18446744073709551615},
        {"metric":"m","timestamp":-1,"value":1},
        {"metric":"m","value":1},
        {"metric":"m","timestamp":1,"value":1,"tags":{"a":5}},
        7,
        {"metric":"sys.load","timestamp":1700000002,"value":9007199254740993,"tags":{"host":"a"}}
    ] "#;
    let parsed = parse_points(&points(body).unwrap());
    let entries = parsed.batch.entries();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].name.to_string(), "sys.load,host=a");
    assert_eq!(
        entries[0].times,
        [1_700_000_000 * S, 1_700_000_000 * S + S / 2]
    );
    let values = entries[0].fields[0].1.to_values();
    assert_eq!(values, [Some(Value::F64(1.0)), Some(Value::F64(2.5))]);
    assert_eq!(
        entries[1].fields[0].1.to_values(),
        [Some(Value::I64(9_007_199_254_740_993))]
    );
    assert_eq!(parsed.lines, [vec![1, 2], vec![3]]);
    let refused: Vec<(u64, &str)> = parsed
        .refused
        .iter()
        .map(|r| (r.line, r.code.as_str()))
        .collect();
    assert_eq!(
        refused,
        [
            (4, "E_TIME"),
            (5, "E_PARSE"),
            (6, "E_PARSE"),
            (7, "E_PARSE"),
            (8, "E_PARSE"),
            (9, "E_TIME"),
            (10, "E_PARSE"),
            (11, "E_PARSE"),
            (12, "E_PARSE"),
            (13, "E_TYPE"),
        ]
    );
    assert!(
        parsed.refused[0]
            .original
            .starts_with("{\"metric\":\"sys.load\",\"timestamp\":1.5")
    );
}

#[test]
fn bodies_are_points_or_arrays_of_them() {
    assert_eq!(points(b" {\"a\":\"]\\\"\"} ").unwrap().len(), 1);
    assert_eq!(points(b"[]").unwrap().len(), 0);
    assert_eq!(points(b"[1,[2,3],\"a,\\\"]\"]").unwrap().len(), 3);
    for bad in ["", "5", "x"] {
        assert!(
            matches!(points(bad.as_bytes()), Err(PointsError::Shape(_))),
            "{bad}"
        );
    }
    for (bad, at) in [
        ("[", 1),
        ("[1,", 3),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1]]", 2),
        (" [1}", 3),
        ("[1] 2", 2),
    ] {
        assert_eq!(
            points(bad.as_bytes()),
            Err(PointsError::Broken(at)),
            "{bad}"
        );
    }
}

#[test]
fn times_are_counts_dates_or_relative() {
    let now = Timestamp::from_nanos(100_000 * S);
    for (text, expected) in [
        ("1700000000", Some(1_700_000_000 * S)),
        ("1700000000.25", Some(1_700_000_000 * S + S / 4)),
        ("1700000000123", Some(1_700_000_000 * S + 123_000_000)),
        ("4294967295", Some(4_294_967_295 * S)),
        ("4294967296", Some(4_294_967_296_000_000)),
        ("2023/11/14-22:13:20", Some(1_700_000_000 * S)),
        ("2023/11/14 22:13", Some(1_699_999_980 * S)),
        ("2023/11/14", Some(1_699_920_000 * S)),
        ("1h-ago", Some(96_400 * S)),
        ("500ms-ago", Some(100_000 * S - S / 2)),
        ("now", Some(100_000 * S)),
        ("", None),
        ("x-ago", None),
        ("1x-ago", None),
        ("0s-ago", None),
        ("2023/13/01", None),
        ("2023/11/14-1:2:3:4", None),
        ("9223372036854775807", None),
        ("1700000000123.5", None),
    ] {
        assert_eq!(
            parse_time(text, now).ok().map(Timestamp::as_nanos),
            expected,
            "{text}"
        );
    }
}

#[test]
fn questions_are_read_in_both_forms() {
    let now = Timestamp::from_nanos(100_000 * S);
    let json = br#"{"start":1000,"end":"2000","msResolution":true,"queries":[
        {"metric":"m","aggregator":"sum","downsample":"500s-avg-zero","rate":true,"rateOptions":{"counter":true,"counterMax":100},
         "tags":{"host":"*"},"filters":[{"type":"literal_or","tagk":"dc","groupBy":false,"filter":"a|b"}]}]}"#;
    let of_json = parse_question(json, now).unwrap();
    let address = Query::parse(
        "start=1000&end=2000&ms&m=sum:rate%7Bcounter,100%7D:500s-avg-zero:m%7Bhost=*%7D%7Bdc=literal_or(a%7Cb)%7D",
    )
    .unwrap();
    let of_address = Question::of_address(&address, now).unwrap();
    assert_eq!(of_json, of_address);
    assert_eq!(of_json.range, ClosedRange::nanos(1_000 * S, 2_000 * S));
    let query = &of_json.queries[0];
    assert_eq!(
        query.downsample,
        Some(Downsample {
            every_ns: Some(500 * S),
            function: Aggregator::Avg,
            fill: DownsampleFill::Zero
        })
    );
    assert_eq!(query.rate.unwrap().counter_max, Some(100.0));
    assert_eq!(
        query.filters[0].kind,
        FilterKind::Wildcard("*".to_owned(), true)
    );
    let dc = &query.filters[1];
    let values = ["a", "b"].map(str::to_owned).to_vec();
    assert_eq!((dc.key.as_str(), dc.group_by), ("dc", false));
    assert_eq!(dc.kind, FilterKind::Literal(values, false));
    let plain = parse_metric("none:sys.load").unwrap();
    assert_eq!(
        (plain.aggregator, plain.filters.len()),
        (Aggregator::None, 0)
    );
    let all = parse_metric("max:0all-dev:explicit_tags:a:b{}{x=regexp(a,b)}");
    assert!(all.is_err(), "a colon cannot stand in a metric here");
    let all = parse_metric("max:0all-dev:explicit_tags:b{}{x=regexp(a,b)}").unwrap();
    assert!(all.explicit_tags && all.downsample.unwrap().every_ns.is_none());
    assert_eq!(all.filters[0].kind, FilterKind::Regexp("a,b".to_owned()));
}

#[test]
fn what_is_no_question_is_said() {
    let now = Timestamp::from_nanos(0);
    for (json, part) in [
        ("", "expected {\"start\""),
        (r#"{"queries":[]}"#, "missing field `start`"),
        (r#"{"start":1,"end":2}"#, "Missing queries"),
        (r#"{"start":5,"end":2,"queries":[]}"#, "before the start"),
        (r#"{"start":"soon","queries":[]}"#, "`soon` is not a time"),
        (
            r#"{"start":1,"end":2,"queries":[{"aggregator":"sum"}]}"#,
            "Missing the metric",
        ),
        (
            r#"{"start":1,"end":2,"queries":[{"metric":"m"}]}"#,
            "Missing the aggregator",
        ),
        (
            r#"{"start":1,"end":2,"queries":[{"metric":"m","aggregator":"p99"}]}"#,
            "No such aggregation function: p99; there are avg",
        ),
        (
            r#"{"start":1,"end":2,"queries":[{"metric":"m","aggregator":"sum","downsample":"1x-avg"}]}"#,
            "expected an interval",
        ),
        (
            r#"{"start":1,"end":2,"queries":[{"metric":"m","aggregator":"sum","downsample":"1m-none"}]}"#,
            "NONE aggregator",
        ),
        (
            r#"{"start":1,"end":2,"queries":[{"metric":"m","aggregator":"sum","downsample":"1m"}]}"#,
            "expected an interval",
        ),
        (
            r#"{"start":1,"end":2,"queries":[{"metric":"m","aggregator":"sum","filters":[{"type":"x","tagk":"a"}]}]}"#,
            "unknown filter x",
        ),
        (
            r#"{"start":1,"end":2,"queries":[{"tsuids":["0001"],"aggregator":"sum"}]}"#,
            "TSUID",
        ),
        (
            r#"{"start":1,"end":2,"delete":true,"queries":[]}"#,
            "deleting",
        ),
        (
            r#"{"start":1,"end":2,"useCalendar":true,"queries":[]}"#,
            "calendar",
        ),
    ] {
        let error = parse_question(json.as_bytes(), now)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
    for m in [
        "sum",
        "sum:",
        "x:m",
        "sum:m{a}",
        "sum:m{a=b",
        "sum:rate{x}:m",
        "sum:rate{counter,x}:m",
        "sum:5:m",
    ] {
        assert!(parse_metric(m).is_err(), "{m}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text: String) {
        if let Ok(points) = points(&bytes) {
            let parsed = parse_points(&points);
            prop_assert_eq!(parsed.line_count, points.len() as u64);
        }
        let now = Timestamp::from_nanos(0);
        let _ = parse_question(&bytes, now);
        let _ = parse_metric(&text);
        let _ = parse_time(&text, now);
        if let Ok(query) = Query::parse(&text) {
            let _ = Question::of_address(&query, now);
        }
    }

    #[test]
    fn written_points_are_read(
        rows in prop::collection::vec((1i64..4_000_000_000, -1e9..1e9f64, "[a-c]"), 0..20)
    ) {
        let written: Vec<serde_json::Value> = rows
            .iter()
            .map(|(time, value, host)| serde_json::json!({"metric": "m", "timestamp": time, "value": value, "tags": {"host": host}}))
            .collect();
        let body = serde_json::to_vec(&written).unwrap();
        let parsed = parse_points(&points(&body).unwrap());
        prop_assert_eq!(parsed.refused_counts.total(), 0);
        prop_assert_eq!(parsed.batch.row_count(), rows.len());
        for (entry, lines) in parsed.batch.entries().iter().zip(&parsed.lines) {
            for ((row, time), line) in entry.times.iter().enumerate().zip(lines) {
                let (wanted, value, host) = &rows[*line as usize - 1];
                prop_assert_eq!(*time, wanted * S);
                prop_assert_eq!(entry.name.tag("host"), Some(host.as_str()));
                // The JSON parser may be wrong in the last bit.
                let Some(headwater_types::ValueRef::F64(found)) = entry.fields[0].1.get(row) else {
                    return Err(TestCaseError::fail("not a float"));
                };
                prop_assert!((found - value).abs() <= value.abs() * 1e-15);
            }
        }
    }
}
