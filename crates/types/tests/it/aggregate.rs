//! Aggregates against a reference in twice the precision of a double, for any cut and any order of
//! merging.

use crate::shapes::{Noise, with_gaps};
use headwater_types::{Aggregate, Column, Extremes, Value, Values};
use proptest::prelude::*;

/// A sum of two doubles; exact enough to judge doubles by.
#[derive(Clone, Copy)]
struct Wide(f64, f64);

impl Wide {
    fn plus(self, x: f64) -> Wide {
        let s = self.0 + x;
        let t = s - self.0;
        let e = (self.0 - (s - t)) + (x - t) + self.1;
        let h = s + e;
        Wide(h, e - (h - s))
    }
    fn get(self) -> f64 {
        self.0 + self.1
    }
}

/// Mean, variance and largest magnitude of finite values, at a scale at which nothing overflows.
fn reference(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    let sum = values.iter().fold(Wide(0.0, 0.0), |s, v| s.plus(*v));
    let rough = sum.get() / n;
    let rest = values
        .iter()
        .fold(Wide(0.0, 0.0), |s, v| s.plus(*v).plus(-rough));
    let mean = rough + rest.get() / n;
    let squares = values.iter().fold(Wide(0.0, 0.0), |s, v| {
        let d = v - mean;
        let q = d * d;
        s.plus(q).plus(d.mul_add(d, -q))
    });
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    (mean, squares.get() / n, largest)
}

fn assert_close(found: &Aggregate, values: &[f64]) {
    let (mean, variance, largest) = reference(values);
    let (got, deviation) = (found.mean().unwrap(), found.stddev().unwrap());
    assert!(
        (got - mean).abs() <= 1e-12 * largest,
        "mean {got} is not {mean}"
    );
    let limit = 1e-12 * (mean * mean + variance).sqrt();
    assert!(
        (deviation - variance.sqrt()).abs() <= limit,
        "deviation {deviation} is not {} (limit {limit})",
        variance.sqrt()
    );
}

fn of(values: &[f64]) -> Aggregate {
    let times = vec![1; values.len()];
    Aggregate::of(
        &times,
        &Column::from_values(Values::F64(values.to_vec())),
        0..values.len(),
    )
}

/// Merges pieces in an order that `noise` decides: neighbours, or any two.
fn merge_all(mut pieces: Vec<Aggregate>, noise: &mut Noise) -> Aggregate {
    let left_to_right = noise.below(3) == 0;
    while pieces.len() > 1 {
        let (a, b) = if left_to_right {
            (0, 1)
        } else {
            let a = noise.below(pieces.len() as u64) as usize;
            let b = noise.below(pieces.len() as u64 - 1) as usize;
            (a, if b >= a { b + 1 } else { b })
        };
        let other = pieces[b];
        pieces[a].merge(&other);
        if left_to_right {
            pieces.remove(b);
        } else {
            pieces.swap_remove(b);
        }
    }
    pieces.pop().unwrap_or(Aggregate::EMPTY)
}

#[test]
fn a_million_values_far_from_zero_with_a_small_deviation() {
    let mut noise = Noise(7);
    // The second half lies a little higher, so that a mean that stops moving is caught.
    let values: Vec<f64> = (0..1_000_000)
        .map(|i| 1e9 + noise.unit() * 2e-3 + if i < 500_000 { 0.0 } else { 0.01 })
        .collect();
    assert_close(&of(&values), &values);
    let mut one_by_one = Aggregate::EMPTY;
    for v in &values {
        one_by_one.merge(&of(&[*v]));
    }
    assert_close(&one_by_one, &values);
    assert_eq!(one_by_one.count, 1_000_000);
    let mut backwards = Aggregate::EMPTY;
    for chunk in values.chunks(77).rev() {
        let mut piece = of(chunk).settled();
        piece.merge(&backwards);
        backwards = piece;
    }
    assert_close(&backwards, &values);
}

#[test]
fn a_constant_has_itself_as_mean_and_no_deviation() {
    for value in [0.1, -7.3e300, 5e-324, f64::MAX, f64::MIN, 0.0] {
        let mut whole = of(&[value; 1000]);
        assert_eq!((whole.mean(), whole.stddev()), (Some(value), Some(0.0)));
        whole.merge(&of(&[value; 333]));
        assert_eq!(
            (whole.mean(), whole.stddev()),
            (Some(value), Some(0.0)),
            "{value}"
        );
    }
}

#[test]
fn the_largest_doubles_give_no_nan() {
    let values = [f64::MAX, f64::MAX, f64::MIN, f64::MAX, 1.0, f64::MAX];
    for split in 0..values.len() {
        let (a, b) = values.split_at(split);
        let mut whole = of(a);
        whole.merge(&of(b));
        let mean = whole.mean().unwrap();
        let expected = f64::MAX / 6.0 * 3.0;
        assert!((mean - expected).abs() <= 1e-12 * f64::MAX, "{mean}");
        assert_eq!(whole.variance(), Some(f64::INFINITY));
        assert!(!whole.settled().m2.is_nan());
    }
    let mut same = of(&[f64::MAX; 9]);
    same.merge(&of(&[f64::MAX; 2]));
    assert_eq!((same.mean(), same.variance()), (Some(f64::MAX), Some(0.0)));
}

#[test]
fn values_that_are_not_finite_are_counted_apart() {
    let values = [
        f64::NAN,
        1.0,
        f64::INFINITY,
        3.0,
        f64::NEG_INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
    ];
    let a = of(&values);
    assert_eq!(
        (a.count, a.nan, a.positive_infinite, a.negative_infinite),
        (8, 1, 1, 2)
    );
    assert_eq!((a.finite(), a.mean()), (4, Some(1.0)));
    let Extremes::F64(low, high) = a.extremes else {
        panic!("floats")
    };
    assert_eq!((low.to_bits(), high), ((-0.0f64).to_bits(), 3.0));
    let none = of(&[f64::NAN]);
    assert_eq!(
        (none.mean(), none.stddev(), none.extremes),
        (None, None, Extremes::None)
    );
    let mut merged = none;
    merged.merge(&a);
    assert_eq!((merged.count, merged.nan, merged.mean()), (9, 2, Some(1.0)));
}

#[test]
fn zeros_are_ordered_by_sign() {
    for (values, low, high) in [
        (vec![0.0, -0.0], -0.0f64, 0.0f64),
        (vec![-0.0, -0.0], -0.0, -0.0),
        (vec![0.0; 20], 0.0, 0.0),
        (vec![-1.0, -0.0], -1.0, -0.0),
        (vec![0.0, 1.0], 0.0, 1.0),
    ] {
        let mut merged = of(&values[..1]);
        merged.merge(&of(&values[1..]));
        for a in [of(&values), merged] {
            let Extremes::F64(l, h) = a.extremes else {
                panic!("floats")
            };
            assert_eq!(
                (l.to_bits(), h.to_bits()),
                (low.to_bits(), high.to_bits()),
                "{values:?}"
            );
        }
    }
}

#[test]
fn a_field_that_was_widened_merges_as_floats() {
    let column = Column::from_values(Values::I64(vec![1, 2, 6]));
    let ints = Aggregate::of(&[1, 2, 3], &column, 0..3);
    let floats = of(&[0.5]);
    for (mut a, b) in [
        (ints, floats),
        (floats, ints),
        (ints.widened_to_f64(), floats),
    ] {
        a.merge(&b);
        assert_eq!(
            (a.mean(), a.sum, a.extremes),
            (Some(2.375), 0, Extremes::F64(0.5, 6.0))
        );
        assert_close(&a, &[1.0, 2.0, 6.0, 0.5]);
    }
}

#[test]
fn strings_have_a_count_and_times_only() {
    let mut column = Column::new(headwater_types::FieldType::String);
    column.push(Value::from("a").as_ref());
    column.push_absent(1);
    column.push(Value::from("").as_ref());
    let a = Aggregate::of(&[10, 20, 40], &column, 0..3);
    assert_eq!(
        (a.count, a.time_sum, a.mean(), a.mean_time()),
        (2, 50, None, Some(25))
    );
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-1000i64..1000).prop_map(|i| i as f64 / 10.0),
        2 => any::<f64>().prop_filter("finite, and its square too", |v| v.is_finite() && v.abs() < 1e150),
        2 => 1e9f64..1e9 + 1.0,
        1 => Just(-0.0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn floats_in_any_cut_and_order(
        values in prop::collection::vec(float(), 1..300),
        cuts in prop::collection::vec(1usize..40, 1..20),
        seed: u64,
        settle: bool,
    ) {
        assert_close(&of(&values), &values);
        let mut noise = Noise(seed);
        let (mut pieces, mut at, mut turn) = (Vec::new(), 0, 0);
        while at < values.len() {
            let end = (at + cuts[turn % cuts.len()]).min(values.len());
            let piece = of(&values[at..end]);
            pieces.push(if settle { piece.settled() } else { piece });
            at = end;
            turn += 1;
        }
        let whole = merge_all(pieces, &mut noise);
        assert_close(&whole, &values);
        prop_assert_eq!(whole.extremes, of(&values).extremes);
        prop_assert_eq!(whole.count, values.len() as u64);
        let settled = whole.settled();
        prop_assert_eq!(settled.m2.to_bits(), settled.settled().m2.to_bits());
        assert_close(&settled, &values);
    }

    #[test]
    fn integers_are_exact(
        values in prop::collection::vec(prop_oneof![any::<i64>(), -100i64..100, Just(i64::MIN), Just(i64::MAX)], 1..200),
        times in prop::collection::vec(any::<i64>(), 200),
        split in 0usize..200,
        gaps in 1usize..5,
    ) {
        let times = &times[..values.len()];
        let column = with_gaps(&Column::from_values(Values::I64(values.clone())), |row| row % gaps == 0);
        let unsigned = with_gaps(
            &Column::from_values(Values::U64(values.iter().map(|v| *v as u64).collect())),
            |row| row % gaps == 0,
        );
        let split = split.min(values.len());
        let present: Vec<usize> = (0..values.len()).filter(|row| row % gaps == 0).collect();
        let signed: Vec<i64> = present.iter().map(|i| values[*i]).collect();
        for column in [&column, &unsigned] {
            let mut a = Aggregate::of(times, column, 0..split);
            a.merge(&Aggregate::of(times, column, split..values.len() + 7));
            prop_assert_eq!(a.count, present.len() as u64);
            prop_assert_eq!(a.time_sum, present.iter().map(|i| i128::from(times[*i])).sum::<i128>());
            if let Values::I64(_) = column.values() {
                prop_assert_eq!(a.sum, signed.iter().map(|v| i128::from(*v)).sum::<i128>());
                prop_assert_eq!(a.extremes, Extremes::I64(*signed.iter().min().unwrap(), *signed.iter().max().unwrap()));
                assert_close(&a, &signed.iter().map(|v| *v as f64).collect::<Vec<_>>());
            } else {
                let values: Vec<u64> = signed.iter().map(|v| *v as u64).collect();
                prop_assert_eq!(a.sum, values.iter().map(|v| i128::from(*v)).sum::<i128>());
                prop_assert_eq!(a.extremes, Extremes::U64(*values.iter().min().unwrap(), *values.iter().max().unwrap()));
                assert_close(&a, &values.iter().map(|v| *v as f64).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn booleans_count_as_zero_and_one(values in prop::collection::vec(any::<bool>(), 1..100), split in 0usize..100) {
        let times = vec![3; values.len()];
        let column = Column::from_values(Values::Bool(values.clone()));
        let split = split.min(values.len());
        let mut a = Aggregate::of(&times, &column, 0..split);
        a.merge(&Aggregate::of(&times, &column, split..values.len()));
        let floats: Vec<f64> = values.iter().map(|v| f64::from(u8::from(*v))).collect();
        assert_close(&a, &floats);
        prop_assert_eq!(a.sum, values.iter().filter(|v| **v).count() as i128);
    }
}
