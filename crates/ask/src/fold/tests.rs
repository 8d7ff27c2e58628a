//! Tests of merging the buckets of several streams.

#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

fn bucket(time: i64) -> Bucket {
    let found = Some(EndValue {
        time,
        value: Some(Value::I64(time)),
    });
    Bucket {
        rows: 1,
        aggregates: Vec::new(),
        nan: Vec::new(),
        ends: vec![found.clone(), found],
    }
}

fn ends() -> Vec<End> {
    let end = |last| End {
        last,
        of: EndOf::Field("v".to_owned()),
    };
    vec![end(false), end(true)]
}

#[test]
fn buckets_rise_however_they_come() {
    let mut all = Buckets::default();
    for number in [3, 5, 1, 5, 3, 4] {
        all.add(number, bucket(number as i64), &ends());
    }
    let mut more = Buckets::default();
    for number in [0, 4, 9] {
        more.add(number, bucket(number as i64), &ends());
    }
    all.merge(more, &ends());
    let found: Vec<(i128, u64)> = all.iter().map(|(n, b)| (n, b.rows)).collect();
    assert_eq!(found, [(0, 1), (1, 1), (3, 2), (4, 2), (5, 2), (9, 1)]);
}

#[test]
fn of_one_instant_the_first_stream_is_first_and_the_last_one_last() {
    let named = |name: i64| {
        let mut bucket = bucket(7);
        for end in bucket.ends.iter_mut().flatten() {
            end.value = Some(Value::I64(name));
        }
        bucket
    };
    let mut all = named(1);
    all.merge(named(2), &ends());
    all.merge(named(3), &ends());
    let values: Vec<Value> = all
        .ends
        .into_iter()
        .flatten()
        .filter_map(|e| e.value)
        .collect();
    assert_eq!(values, [Value::I64(1), Value::I64(3)]);
}
