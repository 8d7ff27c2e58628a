//! Blocks give every aggregate back, and say each moment in few bytes.

use crate::shapes::{Noise, named_columns, with_gaps};
use headwater_codec::block::{BLOCK_BUCKETS, BucketBlock};
use headwater_types::{Aggregate, Column, Extremes, FieldId, FieldType, Level, Values};
use proptest::prelude::*;

fn bits(a: &Aggregate) -> impl PartialEq + std::fmt::Debug + use<> {
    let extremes = match a.extremes {
        Extremes::None => (0, 0, 0),
        Extremes::F64(l, h) => (1, l.to_bits(), h.to_bits()),
        Extremes::I64(l, h) => (2, l as u64, h as u64),
        Extremes::U64(l, h) => (3, l, h),
    };
    (
        (a.count, a.nan, a.positive_infinite, a.negative_infinite),
        extremes,
        (a.mean.to_bits(), a.m2.to_bits()),
        (a.sum, a.time_sum),
    )
}

pub(crate) fn assert_same(found: &BucketBlock, expected: &BucketBlock) {
    assert_eq!(found.level, expected.level);
    assert_eq!(found.buckets, expected.buckets);
    assert_eq!(found.rows, expected.rows);
    assert_eq!(found.fields.len(), expected.fields.len());
    for (a, b) in found.fields.iter().zip(&expected.fields) {
        assert_eq!((a.0, a.1, a.2.len()), (b.0, b.1, b.2.len()));
        for (at, (x, y)) in a.2.iter().zip(&b.2).enumerate() {
            assert_eq!(bits(x), bits(y), "bucket {at} of {:?}", a.0);
        }
    }
}

fn check(block: &BucketBlock) -> usize {
    let bytes = block.encode();
    assert_same(&BucketBlock::decode(&bytes).unwrap(), block);
    // Some of the fields, whichever stand between them.
    let ids: Vec<FieldId> = block.fields.iter().map(|(f, ..)| *f).collect();
    for step in 1..4 {
        let only: Vec<FieldId> = ids.iter().skip(step - 1).step_by(step).copied().collect();
        let mut some = block.clone();
        some.fields.retain(|(f, ..)| only.contains(f));
        assert_same(&BucketBlock::decode_fields(&bytes, &only).unwrap(), &some);
    }
    assert_eq!(BucketBlock::decode_fields(&bytes, &[]).unwrap().fields, []);
    // Some of the buckets, and of the fields: the first and the last alone, a few in the middle,
    // all, none.
    let (first, last) = match (block.buckets.first(), block.buckets.last()) {
        (Some(first), Some(last)) => (*first, *last),
        _ => (0, 0),
    };
    let middle = block.buckets.get(block.buckets.len() / 2).copied();
    let middle = middle.unwrap_or_default();
    let behind = last.saturating_add(1);
    let parts = [
        first..=first,
        last..=last,
        middle.saturating_sub(2)..=middle.saturating_add(2),
        i64::MIN..=middle,
        first..=last,
        behind..=behind,
    ];
    for part in parts {
        let inside = |at: usize| part.contains(&block.buckets[at]);
        let places: Vec<usize> = (0..block.buckets.len()).filter(|at| inside(*at)).collect();
        for step in [1, 2] {
            let only: Vec<FieldId> = ids.iter().rev().step_by(step).copied().collect();
            let fields = block.fields.iter().filter(|(f, ..)| only.contains(f));
            let some = BucketBlock {
                level: block.level,
                buckets: places.iter().map(|at| block.buckets[*at]).collect(),
                rows: places.iter().map(|at| block.rows[*at]).collect(),
                fields: fields
                    .map(|(f, t, a)| (*f, *t, places.iter().map(|at| a[*at]).collect()))
                    .collect(),
            };
            let found = BucketBlock::decode_part(&bytes, Some(&only), part.clone()).unwrap();
            assert_same(&found, &some);
        }
        let whole = BucketBlock::decode_part(&bytes, None, part.clone()).unwrap();
        assert_eq!(whole.fields.len(), block.fields.len());
    }
    bytes.len()
}

/// Buckets of `each` rows a second apart, settled.
pub(crate) fn block_of(columns: Vec<Column>, each: usize, settled: bool) -> BucketBlock {
    let rows = columns.first().map_or(0, Column::len);
    let level = Level::new(7).unwrap();
    let times: Vec<i64> = (0..rows as i64)
        .map(|i| (1_700_000_000 / 128 * 128 + i) * 1_000_000_000)
        .collect();
    let pieces: Vec<_> = (0..rows)
        .step_by(each)
        .map(|i| i..(i + each).min(rows))
        .collect();
    BucketBlock {
        level,
        buckets: (0..pieces.len() as i64)
            .map(|i| 1_700_000_000 / 128 + i)
            .collect(),
        rows: pieces.iter().map(|p| p.len() as u64).collect(),
        fields: columns
            .into_iter()
            .enumerate()
            .map(|(at, column)| {
                let aggregates = pieces
                    .iter()
                    .map(|p| Aggregate::of(&times, &column, p.clone()))
                    .map(|a| if settled { a.settled() } else { a })
                    .collect();
                (FieldId(at as u32 * 3), column.field_type(), aggregates)
            })
            .collect(),
    }
}

#[test]
fn every_shape_round_trips_settled_or_not() {
    for (rows, each) in [(0, 1), (1, 1), (50, 7), (64 * 128, 128), (3000, 1)] {
        for settled in [false, true] {
            for seed in 0..3 {
                let full: Vec<Column> = named_columns(rows.min(256 * each), seed)
                    .into_iter()
                    .map(|(_, c)| c)
                    .collect();
                let mut columns = full.clone();
                columns.extend(
                    full.iter()
                        .map(|c| with_gaps(c, |row| row % 5 > 1 && row / 64 % 3 != 1)),
                );
                check(&block_of(columns, each, settled));
            }
        }
    }
}

#[test]
fn moments_of_decimals_take_few_bytes() {
    let mut noise = Noise(11);
    let mut walk = 2000i64;
    let rows = BLOCK_BUCKETS * 128;
    let decimals: Vec<f64> = (0..rows)
        .map(|_| {
            walk += noise.below(41) as i64 - 20;
            walk as f64 / 100.0
        })
        .collect();
    let noise: Vec<f64> = (0..rows).map(|_| noise.unit()).collect();
    let whole = |values: Vec<f64>, settled| {
        check(&block_of(
            vec![Column::from_values(Values::F64(values))],
            128,
            settled,
        )) as f64
            / BLOCK_BUCKETS as f64
    };
    let (a, b) = (whole(decimals.clone(), true), whole(decimals, false));
    let (c, d) = (whole(noise.clone(), true), whole(noise, false));
    println!(
        "bytes a bucket: decimals settled {a:.1}, as computed {b:.1}; noise settled {c:.1}, as computed {d:.1}"
    );
    assert!(a < 11.0 && b < 13.0 && c < 28.0 && d < 30.0);
}

#[test]
fn the_ends_of_time_round_trip() {
    for level in [-20, 0, 40] {
        let level = Level::new(level).unwrap();
        let times = [i64::MIN, i64::MAX];
        let column = Column::from_values(Values::I64(vec![i64::MIN, i64::MAX]));
        let buckets = times.map(|t| level.bucket_of(headwater_types::Timestamp::from_nanos(t)));
        check(&BucketBlock {
            level,
            buckets: buckets.to_vec(),
            rows: vec![1, 1],
            fields: vec![(
                FieldId(u32::MAX),
                FieldType::I64,
                vec![
                    Aggregate::of(&times, &column, 0..1),
                    Aggregate::of(&times, &column, 1..2),
                ],
            )],
        });
    }
}

fn any_aggregate() -> impl Strategy<Value = Aggregate> {
    let extremes = prop_oneof![
        Just(Extremes::None),
        (any::<u64>(), any::<u64>())
            .prop_map(|(a, b)| Extremes::F64(f64::from_bits(a), f64::from_bits(b))),
        (any::<f64>(), any::<f64>()).prop_map(|(a, b)| Extremes::F64(a, b)),
        (-50i32..50, 0i32..50)
            .prop_map(|(a, b)| Extremes::F64(f64::from(a) / 10.0, f64::from(a + b) / 10.0)),
        (any::<i64>(), any::<i64>()).prop_map(|(a, b)| Extremes::I64(a, b)),
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| Extremes::U64(a, b)),
    ];
    (
        (
            0u64..300,
            0u64..3,
            0u64..3,
            prop_oneof![Just(0u64), any::<u64>()],
        ),
        extremes,
        (prop_oneof![Just(0.0), any::<f64>()], any::<u64>()),
        (prop_oneof![Just(0i128), any::<i128>()], any::<i128>()),
    )
        .prop_map(
            |(counts, extremes, (mean, m2), (sum, time_sum))| Aggregate {
                count: counts.0,
                nan: counts.1,
                positive_infinite: counts.2,
                negative_infinite: counts.3,
                extremes,
                mean,
                m2: f64::from_bits(m2),
                sum,
                time_sum,
                ..Aggregate::EMPTY
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_aggregates_round_trip(
        count in 0usize..70,
        level in -20i32..=40,
        first: i64,
        step in 1u64..1000,
        kinds in prop::collection::vec(0usize..6, 0..4),
        pool in prop::collection::vec(any_aggregate(), 70),
        rows in prop::collection::vec(any::<u64>(), 70),
    ) {
        let first = first / 2;
        check(&BucketBlock {
            level: Level::new(level).unwrap(),
            buckets: (0..count as i64).map(|i| first + i * step as i64).collect(),
            rows: rows[..count].to_vec(),
            fields: kinds.iter().enumerate().map(|(at, kind)| {
                let mut aggregates = pool[..count].to_vec();
                aggregates.rotate_left(at.min(count));
                (FieldId(at as u32), FieldType::ALL[*kind], aggregates)
            }).collect(),
        });
    }

    #[test]
    fn any_floats_round_trip_as_buckets(
        values in prop::collection::vec(prop_oneof![any::<f64>(), (-500i32..500).prop_map(|i| f64::from(i) / 8.0)], 1..400),
        each in 1usize..50,
        settled: bool,
    ) {
        let values: Vec<f64> = values.into_iter().take(250 * each).collect();
        check(&block_of(vec![Column::from_values(Values::F64(values))], each, settled));
    }

    #[test]
    fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(BucketBlock::decode(&bytes).is_err());
        // With the right frame, the fields are read.
        if bytes.len() > 3 {
            bytes[0] = 0xb5;
            bytes[1] = 1;
            bytes[2] %= 61;
            bytes[3] %= 65;
        }
        let checksum = headwater_codec::checksum::crc32c(&bytes);
        bytes.extend(checksum.to_le_bytes());
        let _ = BucketBlock::decode(&bytes);
    }
}
