//! `corr(y, x)`: Pearson's correlation coefficient.
//!
//! As in PostgreSQL the result is NULL if one of the two numbers is constant, and NaN if both vary
//! and a value is infinite or NaN; the SQL library's result is NULL there, and loses digits if
//! values are large relative to their differences.
//!
//! Invariant: retracting rows that were added leaves the state of the other rows, so pairs with a
//! value that is not finite are counted separately from the sums, which they would corrupt
//! permanently.
//!
//! Source: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating Formulae and a Pairwise Algorithm for
//! Computing Sample Variances", 1979.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Correlation {
    signature: Signature,
}

impl Correlation {
    pub(super) fn new() -> Correlation {
        let number = DataType::Float64;
        Correlation {
            signature: Signature::exact(vec![number.clone(), number], Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for Correlation {
    fn name(&self) -> &str {
        "corr"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Moments::default()))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field =
            |number| Field::new(format!("{}[{number}]", args.name), DataType::Float64, false);
        Ok((0..STATE).map(field).map(Arc::new).collect())
    }
}

/// Number of values in a state.
const STATE: usize = 14;

/// One of the two numbers of pairs: the mean, and the sum of squared distances from it.
#[derive(Clone, Copy, Debug, Default)]
struct Axis {
    mean: f64,
    squares: f64,
}

impl Axis {
    fn at(mean: f64) -> Axis {
        Axis { mean, squares: 0.0 }
    }

    /// Adds `other`, or subtracts it if `sign` is −1.
    fn join(&mut self, other: Axis, sign: f64, weights: Weights) {
        let apart = other.mean - self.mean;
        let squares = other.squares + apart * apart * weights.both;
        self.squares = (self.squares + sign * squares).max(0.0);
        self.mean += sign * apart * weights.other;
    }
}

/// The weights for merging two sets of pairs.
#[derive(Clone, Copy)]
struct Weights {
    other: f64,
    both: f64,
}

/// Sums of the squares and the product of the distances from the mean, of pairs.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    first: Axis,
    second: Axis,
    products: f64,
}

impl Sums {
    /// Sums of one pair.
    fn of(first: f64, second: f64) -> Sums {
        Sums {
            count: 1.0,
            first: Axis::at(first),
            second: Axis::at(second),
            products: 0.0,
        }
    }

    /// Adds other pairs.
    fn add(&mut self, other: Sums) {
        self.join(other, 1.0);
    }

    /// Subtracts pairs that were added before.
    fn retract(&mut self, other: Sums) {
        if self.count <= other.count {
            *self = Sums::default();
        } else {
            self.join(other, -1.0);
        }
    }

    /// Adds pairs, or subtracts them if `sign` is −1.
    fn join(&mut self, other: Sums, sign: f64) {
        let count = self.count + sign * other.count;
        if count == 0.0 {
            return;
        }
        let weights = Weights {
            other: other.count / count,
            both: self.count * other.count / count,
        };
        let first = other.first.mean - self.first.mean;
        let second = other.second.mean - self.second.mean;
        self.products += sign * (other.products + first * second * weights.both);
        self.first.join(other.first, sign, weights);
        self.second.join(other.second, sign, weights);
        self.count = count;
    }

    /// The covariance over both deviations; `None` if one number is constant.
    fn correlation(&self) -> Option<f64> {
        let (first, second) = (self.first.squares, self.second.squares);
        let both = first * second;
        let spread = match both.is_normal() {
            true => both.sqrt(),
            false => first.sqrt() * second.sqrt(),
        };
        // Rounding must not leave the range of a correlation.
        (first > 0.0 && second > 0.0).then(|| (self.products / spread).clamp(-1.0, 1.0))
    }
}

/// The pairs of a group or a window.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    /// Sums over pairs of two finite numbers.
    finite: Sums,
    /// The finite first numbers of the other pairs, as pairs with zero.
    firsts: Sums,
    /// The finite second numbers of the other pairs, as pairs with zero.
    seconds: Sums,
    /// Number of first values that are not finite.
    odd_firsts: f64,
    /// Number of second values that are not finite.
    odd_seconds: f64,
}

/// A change of sums by pairs.
type Change = fn(&mut Sums, Sums);

impl Moments {
    /// Calls `change` with each pair without NULL; `sign` is −1 to subtract pairs.
    fn each(&mut self, values: &[ArrayRef], change: Change, sign: f64) {
        let [first, second] = values else { return };
        let first = first.as_primitive::<Float64Type>();
        let second = second.as_primitive::<Float64Type>();
        for pair in first.iter().zip(second) {
            if let (Some(first), Some(second)) = pair {
                self.pair(first, second, change, sign);
            }
        }
    }

    fn pair(&mut self, first: f64, second: f64, change: Change, sign: f64) {
        match (first.is_finite(), second.is_finite()) {
            (true, true) => change(&mut self.finite, Sums::of(first, second)),
            (true, false) => {
                change(&mut self.firsts, Sums::of(first, 0.0));
                self.odd_seconds += sign;
            }
            (false, true) => {
                change(&mut self.seconds, Sums::of(second, 0.0));
                self.odd_firsts += sign;
            }
            (false, false) => {
                self.odd_firsts += sign;
                self.odd_seconds += sign;
            }
        }
    }

    fn value(&self) -> Option<f64> {
        if self.odd_firsts == 0.0 && self.odd_seconds == 0.0 {
            return self.finite.correlation();
        }
        let varies = |odd: f64, mut paired: Sums, alone: Sums| {
            paired.add(alone);
            odd > 0.0 || paired.first.squares > 0.0
        };
        let swapped = Sums {
            first: self.finite.second,
            ..self.finite
        };
        let first = varies(self.odd_firsts, self.finite, self.firsts);
        let second = varies(self.odd_seconds, swapped, self.seconds);
        (first && second).then_some(f64::NAN)
    }

    /// The state as numbers.
    fn numbers(&self) -> [f64; STATE] {
        let (all, firsts, seconds) = (&self.finite, &self.firsts, &self.seconds);
        [
            all.count,
            all.first.mean,
            all.first.squares,
            all.second.mean,
            all.second.squares,
            all.products,
            firsts.count,
            firsts.first.mean,
            firsts.first.squares,
            seconds.count,
            seconds.first.mean,
            seconds.first.squares,
            self.odd_firsts,
            self.odd_seconds,
        ]
    }

    /// Adds the pairs of a state.
    fn add(&mut self, numbers: [f64; STATE]) {
        let [count, m0, s0, m1, s1, products, rest @ ..] = numbers;
        let [firsts, m2, s2, seconds, m3, s3, odd_firsts, odd_seconds] = rest;
        let axis = |mean, squares| Axis { mean, squares };
        let alone = |count, first| Sums {
            count,
            first,
            ..Sums::default()
        };
        self.finite.add(Sums {
            count,
            first: axis(m0, s0),
            second: axis(m1, s1),
            products,
        });
        self.firsts.add(alone(firsts, axis(m2, s2)));
        self.seconds.add(alone(seconds, axis(m3, s3)));
        self.odd_firsts += odd_firsts;
        self.odd_seconds += odd_seconds;
    }
}

impl Accumulator for Moments {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, Sums::add, 1.0);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, Sums::retract, -1.0);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |numbers| numbers.len());
        for row in 0..rows {
            let mut numbers = [0.0; STATE];
            for (number, state) in numbers.iter_mut().zip(states) {
                *number = state.as_primitive::<Float64Type>().value(row);
            }
            self.add(numbers);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let numbers = self.numbers().into_iter();
        Ok(numbers.map(|n| ScalarValue::Float64(Some(n))).collect())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.value()))
    }

    fn size(&self) -> usize {
        size_of::<Moments>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use arrow::array::Float64Array;

    fn columns(pairs: &[(f64, f64)]) -> Vec<ArrayRef> {
        let first: Float64Array = pairs.iter().map(|p| Some(p.0)).collect();
        let second: Float64Array = pairs.iter().map(|p| Some(p.1)).collect();
        vec![Arc::new(first), Arc::new(second)]
    }

    fn of(pairs: &[(f64, f64)]) -> Moments {
        let mut moments = Moments::default();
        moments.update_batch(&columns(pairs)).unwrap();
        moments
    }

    #[test]
    fn what_varies_has_a_correlation_and_a_constant_has_none() {
        assert_eq!(of(&[]).value(), None);
        assert_eq!(of(&[(1.0, 2.0)]).value(), None);
        assert_eq!(of(&[(1.0, 2.0), (2.0, 2.0)]).value(), None);
        assert_eq!(of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).value(), Some(1.0));
        assert_eq!(of(&[(1.0, 2.0), (2.0, -4.0)]).value(), Some(-1.0));
        // Values that vary little relative to their size.
        let far = [(1e9, 1.0), (1e9 + 1.0, 2.0), (1e9 + 2.0, 2.0)];
        let near = of(&[(0.0, 1.0), (1.0, 2.0), (2.0, 2.0)]).value().unwrap();
        assert!((of(&far).value().unwrap() - near).abs() < 1e-12);
    }

    #[test]
    fn a_value_that_is_not_finite_makes_it_nan_where_the_other_varies() {
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(of(&[(1.0, 2.0), (odd, 3.0)]).value().unwrap().is_nan());
            assert!(of(&[(1.0, 2.0), (3.0, odd)]).value().unwrap().is_nan());
            assert!(of(&[(odd, odd)]).value().unwrap().is_nan());
            // The second number is constant, including the rows whose first number is not finite.
            assert_eq!(of(&[(1.0, 2.0), (odd, 2.0)]).value(), None);
            assert_eq!(of(&[(odd, 2.0)]).value(), None);
        }
    }

    #[test]
    fn parts_join_and_retracted_rows_leave_no_trace() {
        let rows = [
            (1.0, 5.0),
            (f64::NAN, 6.0),
            (2.5, f64::INFINITY),
            (4.0, 1.0),
            (7.0, 2.0),
        ];
        for cut in 0..=rows.len() {
            let mut joined = of(&rows[..cut]);
            let state = of(&rows[cut..]).state().unwrap();
            let state: Vec<ArrayRef> = state.iter().map(|n| n.to_array().unwrap()).collect();
            joined.merge_batch(&state).unwrap();
            assert!(joined.value().unwrap().is_nan());
            let mut less = of(&rows);
            less.retract_batch(&columns(&rows[..cut])).unwrap();
            let (left, wanted) = (less.value(), of(&rows[cut..]).value());
            match (left, wanted) {
                (Some(left), Some(wanted)) if wanted.is_finite() => {
                    assert!((left - wanted).abs() < 1e-12, "{left} {wanted}");
                }
                (left, wanted) => assert_eq!(
                    left.map(f64::is_nan),
                    wanted.map(f64::is_nan),
                    "after {cut}"
                ),
            }
        }
    }
}
