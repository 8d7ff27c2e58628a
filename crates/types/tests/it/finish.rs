//! What aggregates are finished to, against the rows they are of, by both rules for what is not
//! finite.

use headwater_types::aggregate::Sum;
use headwater_types::{Aggregate, Column, Extremes, Value, Values};
use proptest::prelude::*;

/// The aggregate of the values, put together from pieces of this length.
fn merged(values: &Values, piece: usize) -> Aggregate {
    let column = Column::from_values(values.clone());
    let times: Vec<i64> = (0..column.len() as i64).collect();
    let mut all = Aggregate::EMPTY;
    for start in (0..column.len()).step_by(piece.max(1)) {
        all.merge(&Aggregate::of(&times, &column, start..start + piece.max(1)));
    }
    all
}

/// The same class of number, and close where both are finite.
fn same(found: Option<f64>, expected: Option<f64>, scale: f64) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some(a), Some(b)) if a.is_nan() || b.is_nan() => a.is_nan() && b.is_nan(),
        (Some(a), Some(b)) if a.is_infinite() || b.is_infinite() => a == b,
        (Some(a), Some(b)) => (a - b).abs() <= 1e-11 * scale.max(1.0),
        _ => false,
    }
}

/// Variance of values that may not be finite, as a loop over rows computes it.
fn variance(values: &[f64], divisor: usize) -> Option<f64> {
    if divisor == 0 || values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    Some(squares / divisor as f64)
}

fn a_float() -> impl Strategy<Value = f64> {
    prop_oneof![
        12 => -1e6..1e6f64,
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(f64::NAN),
        1 => Just(-f64::NAN),
        1 => Just(-0.0),
    ]
}

/// The numbers of floats, by one of the two rules.
struct Expected {
    sum: Option<f64>,
    mean: Option<f64>,
    variance: Option<f64>,
    sample_variance: Option<f64>,
}

impl Expected {
    fn of(values: &[f64]) -> Expected {
        let n = values.len();
        let sum = (n > 0).then(|| values.iter().sum::<f64>());
        Expected {
            sum,
            mean: sum.map(|sum| sum / n as f64),
            variance: variance(values, n),
            sample_variance: variance(values, n.saturating_sub(1)),
        }
    }
}

proptest! {
    #[test]
    fn floats_are_finished_as_their_rows_are_by_either_rule(
        values in prop::collection::vec(a_float(), 0..40),
        piece in 1usize..12,
    ) {
        let a = merged(&Values::F64(values.clone()), piece);
        let scale = values.iter().filter(|v| v.is_finite()).map(|v| v.abs()).sum::<f64>();
        let squares = scale * scale;
        let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        let f = Expected::of(&finite);
        prop_assert!(same(a.sum().map(Sum::as_f64), f.sum, scale));
        prop_assert!(same(a.mean(), f.mean, scale));
        prop_assert!(same(a.variance(), f.variance, squares));
        prop_assert!(same(a.stddev(), f.variance.map(f64::sqrt), scale * 1e3));
        prop_assert!(same(a.sample_variance(), f.sample_variance, squares));
        prop_assert!(same(a.sample_stddev(), f.sample_variance.map(f64::sqrt), scale * 1e3));
        let low = finite.iter().copied().min_by(f64::total_cmp);
        let high = finite.iter().copied().max_by(f64::total_cmp);
        prop_assert_eq!(a.extremes.min(), low.map(Value::F64));
        prop_assert_eq!(a.extremes.max(), high.map(Value::F64));
        let spread = low.zip(high).map(|(low, high)| Sum::Float(high - low));
        prop_assert_eq!(a.spread(), spread);

        let i = Expected::of(&values);
        let ieee = a.ieee();
        prop_assert!(same(ieee.sum().map(Sum::as_f64), i.sum, scale));
        prop_assert!(same(ieee.mean(), i.mean, scale));
        prop_assert!(same(ieee.variance(), i.variance, squares));
        prop_assert!(same(ieee.stddev(), i.variance.map(f64::sqrt), scale * 1e3));
        prop_assert!(same(ieee.sample_variance(), i.sample_variance, squares));
        prop_assert!(same(ieee.sample_stddev(), i.sample_variance.map(f64::sqrt), scale * 1e3));
        let nan = values.iter().copied().filter(|v| v.is_nan());
        let nan = nan.clone().min_by(f64::total_cmp).zip(nan.max_by(f64::total_cmp));
        let bits = |pair: Option<(f64, f64)>| pair.map(|(a, b)| (a.to_bits(), b.to_bits()));
        let low = values.iter().copied().min_by(f64::total_cmp);
        let high = values.iter().copied().max_by(f64::total_cmp);
        prop_assert_eq!(bits(ieee.extremes(nan)), bits(low.zip(high)));
    }

    #[test]
    fn integers_are_exact_and_both_rules_are_one(
        values in prop::collection::vec(any::<i64>(), 0..40),
        piece in 1usize..12,
    ) {
        let a = merged(&Values::I64(values.clone()), piece);
        let sum = values.iter().map(|v| i128::from(*v)).sum::<i128>();
        let sum = (!values.is_empty()).then_some(Sum::Integer(sum));
        prop_assert_eq!(a.sum(), sum);
        prop_assert_eq!(a.ieee().sum(), sum);
        prop_assert_eq!(a.ieee().mean(), a.mean());
        prop_assert_eq!(a.ieee().variance(), a.variance());
        prop_assert_eq!(a.ieee().sample_variance(), a.sample_variance());
        let (low, high) = (values.iter().min(), values.iter().max());
        prop_assert_eq!(a.extremes.min(), low.map(|v| Value::I64(*v)));
        prop_assert_eq!(a.extremes.max(), high.map(|v| Value::I64(*v)));
        let spread = low.zip(high).map(|(l, h)| Sum::Integer(i128::from(*h) - i128::from(*l)));
        prop_assert_eq!(a.spread(), spread);
    }
}

#[test]
fn without_a_value_that_counts_there_is_no_number() {
    let infinite = merged(&Values::F64(vec![f64::INFINITY]), 1);
    assert_eq!(infinite.extremes, Extremes::None);
    assert_eq!((infinite.sum(), infinite.spread()), (None, None));
    assert_eq!((infinite.mean(), infinite.stddev()), (None, None));
    assert_eq!(infinite.ieee().sum(), Some(Sum::Float(f64::INFINITY)));
    assert_eq!(infinite.ieee().sample_variance(), None, "one value");
    let text = merged(&Values::U64(Vec::new()), 1);
    assert_eq!(
        (text.ieee().sum(), text.ieee().extremes(None)),
        (None, None)
    );
    let one = merged(&Values::U64(vec![u64::MAX]), 1);
    assert_eq!(one.sample_stddev(), None);
    assert_eq!(
        one.extremes.as_f64(),
        Some((u64::MAX as f64, u64::MAX as f64))
    );
}
