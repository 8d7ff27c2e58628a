//! Remote write, with messages made by prost.

use headwater_types::{StreamName, Value};
use headwater_wire::ParsedBatch;
use headwater_wire::prometheus::{MessageError, read, unpack};
use proptest::prelude::*;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    metadata: Vec<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    histograms: Vec<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(fixed32, tag = "9")]
    other: u32,
}

fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> TimeSeries {
    TimeSeries {
        labels: labels
            .iter()
            .map(|(name, value)| Label {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
            })
            .collect(),
        samples: samples
            .iter()
            .map(|(value, timestamp)| Sample {
                value: *value,
                timestamp: *timestamp,
            })
            .collect(),
        histograms: Vec::new(),
    }
}

fn parsed(timeseries: Vec<TimeSeries>) -> ParsedBatch {
    let metadata = vec![Metadata { kind: 1, other: 7 }];
    read(
        &WriteRequest {
            timeseries,
            metadata,
        }
        .encode_to_vec(),
    )
    .unwrap()
}

#[test]
fn a_series_is_a_stream_with_the_field_value() {
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let found = parsed(vec![
        series(
            &[("__name__", "up"), ("job", "a"), ("instance", "x:1")],
            &[(1.0, 1_700_000_000_123), (stale, 5), (f64::NAN, 6)],
        ),
        series(&[("__name__", "empty"), ("gone", "")], &[(0.0, 0)]),
        series(&[("__name__", "nothing")], &[]),
    ]);
    assert_eq!(found.refused, []);
    let entries = found.batch.entries();
    assert_eq!(entries.len(), 2);
    assert_eq!(
        entries[0].name,
        StreamName::new("up", [("instance", "x:1"), ("job", "a")])
    );
    assert_eq!(
        entries[0].times,
        [1_700_000_000_123_000_000, 5_000_000, 6_000_000]
    );
    let (field, column) = &entries[0].fields[0];
    assert_eq!(field, "value");
    let bits: Vec<Option<u64>> = column
        .to_values()
        .into_iter()
        .map(|value| match value {
            Some(Value::F64(value)) => Some(value.to_bits()),
            _ => None,
        })
        .collect();
    // A marker of staleness is no sample, its row has none; other NaN are what they are.
    assert_eq!(bits, [Some(1f64.to_bits()), None, Some(f64::NAN.to_bits())]);
    assert_eq!(entries[1].name.to_string(), "empty");
    assert_eq!(found.lines, [vec![1, 1, 1], vec![2]]);
}

#[test]
fn a_bad_series_changes_nothing_but_itself() {
    let good = || series(&[("__name__", "up")], &[(1.0, 1)]);
    let mut histogram = good();
    histogram.histograms.push(Metadata { kind: 1, other: 1 });
    let many: Vec<(String, String)> = (0..300)
        .map(|n| (format!("l{n}"), "v".to_owned()))
        .collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let found = parsed(vec![
        good(),
        series(&[("job", "a")], &[(1.0, 1)]),
        series(&[("__name__", "x"), ("", "a")], &[(1.0, 1)]),
        series(&[("__name__", "x"), ("a", "1"), ("a", "2")], &[(1.0, 1)]),
        series(&[("__name__", "x")], &[(1.0, i64::MAX)]),
        series(&many, &[(1.0, 1)]),
        histogram,
        good(),
    ]);
    let refused: Vec<(u64, &str)> = found
        .refused
        .iter()
        .map(|r| (r.line, r.code.as_str()))
        .collect();
    let expected = [
        (2, "E_PARSE"),
        (3, "E_PARSE"),
        (4, "E_PARSE"),
        (5, "E_TIME"),
        (6, "E_PARSE"),
        (7, "E_TYPE"),
    ];
    assert_eq!(refused, expected);
    // The samples beside a histogram are stored.
    assert_eq!(found.lines, [[1], [7], [8]]);
}

#[test]
fn malformed_messages_say_where() {
    let whole = WriteRequest {
        timeseries: vec![series(&[("__name__", "up")], &[(1.0, 1)])],
        metadata: Vec::new(),
    };
    let bytes = whole.encode_to_vec();
    for end in 1..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut at {end}");
    }
    for bytes in [
        &[0x0b][..],
        &[0x02, 0x00],
        &[0x08, 0x01],
        &[0xff; 12],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f],
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.to_string().contains("at byte"), "{error}");
    }
    // A label that is not UTF-8.
    let label = b"\x0a\x07\x0a\x05\x0a\x01a\x12\xff";
    assert!(read(label).is_err());
}

#[test]
fn a_block_says_how_large_it_is_before_it_is_unpacked() {
    let packed = snap::raw::Encoder::new()
        .compress_vec(&vec![0; 1 << 20])
        .unwrap();
    assert_eq!(unpack(&packed, 1 << 20).unwrap().len(), 1 << 20);
    let error = unpack(&packed, (1 << 20) - 1).unwrap_err();
    assert_eq!(
        error,
        MessageError::TooLarge {
            bytes: 1 << 20,
            max: (1 << 20) - 1
        }
    );
    assert!(matches!(
        unpack(b"\xff\x06\0\0sNaPpY", 10_000),
        Err(MessageError::Snappy(_))
    ));
    assert!(matches!(
        unpack(&packed[..packed.len() - 2], 2 << 20),
        Err(MessageError::Snappy(_))
    ));
}

proptest! {
    #[test]
    fn any_message_of_prost_is_read(
        all in proptest::collection::vec(
            (proptest::collection::btree_map("[a-z]{1,8}", "[^\\x00]{1,12}", 0..5), proptest::collection::vec((any::<u64>(), -1_000_000_000_000i64..2_000_000_000_000), 0..5)),
            0..6,
        )
    ) {
        let messages: Vec<TimeSeries> = all
            .iter()
            .map(|(labels, samples)| {
                let mut labels: Vec<(&str, &str)> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                labels.push(("__name__", "m"));
                let samples: Vec<(f64, i64)> = samples.iter().map(|(b, t)| (f64::from_bits(*b), *t)).collect();
                series(&labels, &samples)
            })
            .collect();
        let found = parsed(messages);
        prop_assert_eq!(&found.refused, &[]);
        let expected: Vec<_> = all.iter().filter(|(_, samples)| !samples.is_empty()).collect();
        prop_assert_eq!(found.batch.entries().len(), expected.len());
        for (entry, (labels, samples)) in found.batch.entries().iter().zip(expected) {
            let tags: Vec<(String, String)> = labels.clone().into_iter().collect();
            prop_assert_eq!(entry.name.tags(), &tags[..]);
            for (row, (bits, time)) in samples.iter().enumerate() {
                prop_assert_eq!(entry.times[row], time * 1_000_000);
                let value = entry.fields[0].1.to_values()[row].clone();
                let same = matches!(value, Some(Value::F64(value)) if value.to_bits() == *bits);
                prop_assert!(same);
            }
        }
    }
}
