//! Messages: topics and payloads as rows.

use crate::support::rows_of;
use headwater_types::{FieldType, Timestamp, Value};
use headwater_wire::ParsedBatch;
use headwater_wire::csv::TimeFormat;
use headwater_wire::lineprotocol::ParserOptions;
use headwater_wire::message::{
    MessageParser, MessageRules, PayloadForm, TimeReading, TopicPattern,
};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

fn rules(topic: &str, payload: PayloadForm) -> MessageRules {
    MessageRules::new(TopicPattern::parse(topic).unwrap(), payload)
}

fn in_table(topic: &str, payload: PayloadForm) -> MessageRules {
    let mut rules = rules(topic, payload);
    rules.table = Some("t".to_owned());
    rules
}

/// Stream, field, time and value of everything; fields of a row in the order of their names.
fn values_of(parsed: &ParsedBatch) -> Vec<(String, String, i64, Value)> {
    let rows = rows_of(parsed).into_iter();
    rows.flat_map(|(name, time, _, values)| {
        let row = values.into_iter();
        row.map(move |(field, value)| (name.to_string(), field, time, value))
    })
    .collect()
}

fn read(rules: Vec<MessageRules>, messages: &[(&str, &str)]) -> ParsedBatch {
    for one in &rules {
        one.check().unwrap();
    }
    let mut parser = MessageParser::new(rules, ParserOptions::new(NOW));
    for (number, (topic, payload)) in (1..).zip(messages) {
        parser.add(topic, payload.as_bytes(), NOW, number);
    }
    parser.take()
}

/// The one value of the one row that a message gives.
fn one(rules: MessageRules, topic: &str, payload: &str) -> (String, String, i64, Value) {
    let parsed = read(vec![rules], &[(topic, payload)]);
    assert_eq!(parsed.refused, [], "{payload}");
    let rows = values_of(&parsed);
    assert_eq!(rows.len(), 1, "{payload}");
    rows.into_iter().next().unwrap()
}

#[test]
fn levels_of_the_topic_are_table_tags_and_field() {
    let value = in_table("plant/{site}/{device}/{field#}", PayloadForm::Value);
    let (stream, field, time, value) = one(value, "plant/oslo/pump 1/motor/temp", " 21.5\n");
    assert_eq!(stream, "t,device=pump\\ 1,site=oslo");
    assert_eq!((field.as_str(), time), ("motor/temp", NOW.as_nanos()));
    assert_eq!(value, Value::F64(21.5));
    let mut named = rules("{table}/{id}", PayloadForm::Value);
    named.field = Some("v".to_owned());
    named.tags = vec![("plant".to_owned(), "north".to_owned())];
    let (stream, field, _, value) = one(named, "pumps/p1", "true");
    assert_eq!(
        (stream.as_str(), field.as_str()),
        ("pumps,id=p1,plant=north", "v")
    );
    assert_eq!(value, Value::Bool(true));
}

#[test]
fn bare_values_are_numbers_booleans_and_texts() {
    for (payload, expected) in [
        ("21", Value::F64(21.0)),
        ("+5", Value::F64(5.0)),
        ("-1e-3", Value::F64(-0.001)),
        ("9007199254740992", Value::F64(9_007_199_254_740_992.0)),
        ("FALSE", Value::Bool(false)),
        ("running", Value::String("running".to_owned())),
        ("\"a \\\"b\\\"\"", Value::String("a \"b\"".to_owned())),
    ] {
        let (.., value) = one(in_table("v/{field}", PayloadForm::Value), "v/x", payload);
        assert_eq!(value, expected, "{payload}");
    }
    // JSON's null is no value, and makes no field of text; in quotes it is a text.
    let rules = || vec![in_table("v/{field}", PayloadForm::Value)];
    let parsed = read(rules(), &[("v/x", " null "), ("v/x", "")]);
    assert!(parsed.batch.is_empty() && parsed.refused.is_empty());
    assert_eq!(parsed.empty_rows, 2);
    let quoted = one(rules().remove(0), "v/x", "\"null\"");
    assert_eq!(quoted.3, Value::String("null".to_owned()));
    let typed = |field_type| {
        let mut rules = in_table("v/{field}", PayloadForm::Value);
        rules.types = vec![("x".to_owned(), field_type)];
        rules
    };
    for (field_type, payload, expected) in [
        (
            FieldType::I64,
            "9007199254740993",
            Value::I64(9_007_199_254_740_993),
        ),
        (FieldType::U64, "18446744073709551615", Value::U64(u64::MAX)),
        (FieldType::Bool, "1", Value::Bool(true)),
        (FieldType::String, "007", Value::String("007".to_owned())),
        (FieldType::Bytes, "0x0aff", Value::Bytes(vec![10, 255])),
        (FieldType::F64, "\"2.5\"", Value::F64(2.5)),
    ] {
        assert_eq!(
            one(typed(field_type), "v/x", payload).3,
            expected,
            "{payload}"
        );
    }
    for (field_type, payload, code) in [
        (None, "NaN", "E_TYPE"),
        (None, "9007199254740993", "E_TYPE"),
        (None, "1e999", "E_TYPE"),
        (None, "\"open", "E_PARSE"),
        (Some(FieldType::I64), "1.5", "E_TYPE"),
        (Some(FieldType::U64), "-1", "E_TYPE"),
        (Some(FieldType::Bool), "on", "E_TYPE"),
        (Some(FieldType::Bytes), "xyz", "E_TYPE"),
        (Some(FieldType::F64), "true", "E_TYPE"),
    ] {
        let rules = match field_type {
            Some(field_type) => typed(field_type),
            None => in_table("v/{field}", PayloadForm::Value),
        };
        let parsed = read(vec![rules], &[("v/x", ""), ("v/x", payload)]);
        let refused = &parsed.refused[0];
        assert_eq!(
            (refused.line, refused.code.as_str()),
            (2, code),
            "{payload}"
        );
        assert_eq!(parsed.batch.row_count(), 0);
    }
    // An empty payload takes back what a broker keeps: nothing to store, nothing wrong.
    let parsed = read(
        vec![in_table("v/{field}", PayloadForm::Value)],
        &[("v/x", " ")],
    );
    assert_eq!((parsed.batch.row_count(), parsed.empty_rows), (0, 1));
    assert_eq!(parsed.refused, []);
}

#[test]
fn members_of_an_object_are_fields_tags_and_time() {
    let mut json = in_table("j/{device}", PayloadForm::Json);
    json.time = Some("ts".to_owned());
    json.time_format = TimeReading::As(TimeFormat::parse("ms").unwrap());
    json.tag_members = vec!["meta.line".to_owned()];
    json.types = vec![("n".to_owned(), FieldType::I64)];
    let text = r#"{"ts": 1700000000123.5, "meta": {"line": 7}, "temp": 21, "n": 3, "a": {"b": [true, null, "x"]}}"#;
    let parsed = read(vec![json], &[("j/d1", text)]);
    assert_eq!(parsed.refused, []);
    let time = 1_700_000_000_123_500_000;
    let stream = "t,device=d1,meta.line=7";
    let expected = [
        ("a.b.0", Value::Bool(true)),
        ("a.b.2", Value::String("x".to_owned())),
        ("n", Value::I64(3)),
        ("temp", Value::F64(21.0)),
    ];
    let expected = expected.map(|(f, v)| (stream.to_owned(), f.to_owned(), time, v));
    assert_eq!(values_of(&parsed), expected);
}

#[test]
fn one_member_may_be_the_value_of_the_field_that_the_topic_names() {
    let mut json = in_table("j/{field}", PayloadForm::Json);
    json.value = Some("reading.v".to_owned());
    json.time = Some("at".to_owned());
    let text = r#"{"at":"2023-11-14T22:13:20.25Z","reading":{"v":4.5,"quality":"good"}}"#;
    let (_, field, time, value) = one(json, "j/pressure", text);
    assert_eq!(
        (field.as_str(), time),
        ("pressure", 1_700_000_000_250_000_000)
    );
    assert_eq!(value, Value::F64(4.5));
}

#[test]
fn the_rows_of_an_array_are_stored_or_refused_one_by_one() {
    let mut json = in_table("j", PayloadForm::Json);
    json.time = Some("t".to_owned());
    let text = r#"[{"t":1700000000,"v":1},{"v":2},{"t":1700000002,"v":3},{"t":1700000003}]"#;
    let parsed = read(vec![json.clone()], &[("j", text)]);
    assert_eq!(parsed.batch.row_count(), 2);
    assert_eq!((parsed.refused.len(), parsed.empty_rows), (1, 1));
    assert_eq!(parsed.refused[0].code.as_str(), "E_TIME");
    assert_eq!(parsed.lines, [[1, 1]]);
    // What is not JSON as a whole is refused as a whole.
    let parsed = read(vec![json], &[("j", r#"[{"t":1700000000,"v":1},{"#)]);
    assert_eq!(parsed.batch.row_count(), 0);
    assert_eq!(parsed.refused[0].code.as_str(), "E_PARSE");
}

#[test]
fn lines_of_line_protocol_count_for_their_message() {
    let mut lines = rules("lp/#", PayloadForm::LineProtocol);
    lines.time_format = TimeReading::As(TimeFormat::parse("ms").unwrap());
    let messages = [
        ("lp/a", "m,d=1 v=1 1700000000000\nm,d=1 v=2\n"),
        ("lp", "m,d=1 v=bad\n# comment\nm,d=1 v=3 1700000000002"),
    ];
    let parsed = read(vec![lines], &messages);
    assert_eq!(parsed.lines, [[1, 1, 2]]);
    assert_eq!((parsed.refused.len(), parsed.refused[0].line), (1, 2));
    let times = &parsed.batch.entries()[0].times;
    assert_eq!(times[1], NOW.as_nanos());
    assert_eq!(times[2], 1_700_000_000_002_000_000);
}

#[test]
fn the_first_rules_that_match_count_and_other_topics_are_refused() {
    let special = {
        let mut rules = in_table("a/special/{field}", PayloadForm::Value);
        rules.table = Some("special".to_owned());
        rules
    };
    let parsed = read(
        vec![special, in_table("a/{d}/{field}", PayloadForm::Value)],
        &[
            ("a/special/x", "1"),
            ("a/b/x", "2"),
            ("c", "3"),
            ("a//x", "4"),
        ],
    );
    let streams: Vec<String> = values_of(&parsed).into_iter().map(|row| row.0).collect();
    assert_eq!(streams, ["special", "t,d=b"]);
    let refused: Vec<(u64, &str)> = parsed
        .refused
        .iter()
        .map(|r| (r.line, r.code.as_str()))
        .collect();
    assert_eq!(refused, [(3, "E_TOPIC"), (4, "E_PARSE")]);
}

#[test]
fn rules_that_make_no_sense_name_the_key() {
    let with = |topic: &str, payload, change: fn(&mut MessageRules)| {
        let mut rules = rules(topic, payload);
        change(&mut rules);
        rules.check().unwrap_err().key
    };
    let nothing: fn(&mut MessageRules) = |_| {};
    let table: fn(&mut MessageRules) = |r| r.table = Some("t".to_owned());
    assert_eq!(with("a/{x}", PayloadForm::LineProtocol, nothing), "topic");
    assert_eq!(with("a", PayloadForm::LineProtocol, table), "table");
    assert_eq!(
        with("a", PayloadForm::LineProtocol, |r| {
            r.time_format = TimeReading::As(TimeFormat::Rfc3339);
        }),
        "time_format"
    );
    assert_eq!(with("a/{field}", PayloadForm::Value, nothing), "table");
    assert_eq!(with("{table}/{field}", PayloadForm::Value, table), "table");
    assert_eq!(with("a/{x}", PayloadForm::Value, table), "field");
    assert_eq!(with("a/{field}", PayloadForm::Json, table), "value");
    assert_eq!(
        with("a/{d}", PayloadForm::Json, |r| {
            r.table = Some("t".to_owned());
            r.tag_members = vec!["d".to_owned()];
        }),
        "tag_members"
    );
    assert_eq!(
        with("a/{field}", PayloadForm::Value, |r| {
            r.table = Some("t".to_owned());
            r.time = Some("ts".to_owned());
        }),
        "time"
    );
}

proptest! {
    #[test]
    fn any_number_and_any_text_come_back(bits: u64, whole: i64, text in "[^\\x00]{1,20}", device in "[^\\x00/+#]{1,8}") {
        let value = f64::from_bits(bits);
        let mut json = in_table("j/{device}", PayloadForm::Json);
        json.types = vec![("n".to_owned(), FieldType::I64)];
        let payload = serde_json::json!({ "n": whole, "s": text, "f": 0 }).to_string();
        let payload = if value.is_finite() {
            payload.replace("\"f\":0", &format!("\"f\":{value:?}"))
        } else {
            payload
        };
        let topic = format!("j/{device}");
        let parsed = read(vec![json], &[(&topic, &payload)]);
        prop_assert_eq!(&parsed.refused, &[]);
        let entry = &parsed.batch.entries()[0];
        prop_assert_eq!(entry.name.tag("device"), Some(device.as_str()));
        for (_, field, _, found) in values_of(&parsed) {
            match (field.as_str(), found) {
                ("n", found) => prop_assert_eq!(found, Value::I64(whole)),
                ("s", found) => prop_assert_eq!(found, Value::String(text.clone())),
                (_, Value::F64(found)) => {
                    let expected = if value.is_finite() { value } else { 0.0 };
                    prop_assert_eq!(found.to_bits(), expected.to_bits());
                }
                (field, found) => prop_assert!(false, "{field} {found:?}"),
            }
        }
    }

    #[test]
    fn a_message_means_the_same_whatever_stands_around_it(
        payloads in proptest::collection::vec("[0-9a-z{}\":,.\\[\\] -]{0,12}", 1..8),
    ) {
        let rules = || {
            let mut json = in_table("j/{device}", PayloadForm::Json);
            json.time = Some("t".to_owned());
            vec![json, in_table("v/{field}", PayloadForm::Value), rules("lp", PayloadForm::LineProtocol)]
        };
        for topic in ["j/1", "v/x", "lp"] {
            let messages: Vec<(&str, &str)> = payloads.iter().map(|p| (topic, p.as_str())).collect();
            let together = read(rules(), &messages);
            let mut rows = 0;
            let mut refused = 0;
            for message in &messages {
                let alone = read(rules(), &[*message]);
                rows += alone.batch.row_count();
                refused += alone.refused.len();
            }
            prop_assert_eq!(together.batch.row_count(), rows);
            prop_assert_eq!(together.refused.len(), refused);
        }
    }
}

#[test]
fn rows_without_a_time_get_instants_of_their_own_within_messages_and_across() {
    let all = vec![
        in_table("json", PayloadForm::Json),
        rules("lines", PayloadForm::LineProtocol),
    ];
    let mut parser = MessageParser::new(all, ParserOptions::new(NOW));
    let arrived = |later: i64| Timestamp::from_nanos(NOW.as_nanos() + later);
    parser.add("json", br#"[{"a":1},{"a":2},{"a":3}]"#, arrived(0), 1);
    parser.add("json", br#"{"a":4}"#, arrived(1), 2);
    parser.add("lines", b"machines a=5\nmachines a=6", arrived(10), 3);
    parser.add("json", br#"{"a":7}"#, arrived(20), 4);
    let parsed = parser.take();
    assert!(parsed.refused.is_empty(), "{:?}", parsed.refused);
    let mut times: Vec<i64> = Vec::new();
    for entry in parsed.batch.entries() {
        times.extend(entry.times.iter().map(|time| time - NOW.as_nanos()));
    }
    times.sort_unstable();
    assert_eq!(times, [0, 1, 2, 3, 10, 11, 20]);
}
