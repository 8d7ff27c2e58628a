//! `corr(y, x)`: Pearson's correlation coefficient.
//!
//! As in PostgreSQL it is NULL where one of the two does not vary, and NaN where both vary and a
//! value is infinite or no number; the SQL library's is NULL there, and loses digits where values
//! are large beside their differences.
//!
//! Invariant: retracting the rows that were added leaves the state of the others, so pairs with a
//! value that is not finite are counted apart from the sums, which they would spoil for good.
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

/// Numbers in a state.
const STATE: usize = 14;

/// Sums of the squares and the product of the distances from the mean, of pairs.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    mean: [f64; 2],
    squares: [f64; 2],
    products: f64,
}

impl Sums {
    /// One pair.
    fn of(mean: [f64; 2]) -> Sums {
        Sums {
            count: 1.0,
            mean,
            ..Sums::default()
        }
    }

    /// Adds other pairs.
    fn add(&mut self, other: Sums) {
        self.join(other, 1.0);
    }

    /// Takes away pairs that were added.
    fn retract(&mut self, other: Sums) {
        if self.count <= other.count {
            *self = Sums::default();
        } else {
            self.join(other, -1.0);
        }
    }

    /// Adds pairs, or takes them away where `sign` is −1.
    fn join(&mut self, other: Sums, sign: f64) {
        let count = self.count + sign * other.count;
        if count == 0.0 {
            return;
        }
        let apart = [0, 1].map(|of| other.mean[of] - self.mean[of]);
        let weight = self.count * other.count / count;
        for (of, apart) in apart.into_iter().enumerate() {
            let squares = other.squares[of] + apart * apart * weight;
            self.squares[of] = (self.squares[of] + sign * squares).max(0.0);
            self.mean[of] += sign * apart * other.count / count;
        }
        self.products += sign * (other.products + apart[0] * apart[1] * weight);
        self.count = count;
    }

    /// Whether the first, or the second, of all pairs is one and the same number, here and in
    /// `other`.
    fn is_constant(&self, of: usize, other: &Sums) -> bool {
        let apart = self.count > 0.0 && other.count > 0.0 && self.mean[of] != other.mean[of];
        self.squares[of] == 0.0 && other.squares[of] == 0.0 && !apart
    }
}

/// The pairs of a group or a window.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    /// Those of two finite numbers.
    finite: Sums,
    /// Of the others, the finite number of each; the other is zero.
    half: [Sums; 2],
    /// How many of the others have one that is not finite, first and second.
    odd: [f64; 2],
}

impl Moments {
    /// Calls `with` for each pair without NULL.
    fn each(&mut self, values: &[ArrayRef], with: impl Fn(&mut Sums, Sums), sign: f64) {
        let [first, second] = values else { return };
        let first = first.as_primitive::<Float64Type>();
        let second = second.as_primitive::<Float64Type>();
        for (first, second) in first.iter().zip(second) {
            let (Some(first), Some(second)) = (first, second) else {
                continue;
            };
            match [first, second].map(f64::is_finite) {
                [true, true] => with(&mut self.finite, Sums::of([first, second])),
                finite => {
                    for (of, value) in [first, second].into_iter().enumerate() {
                        let mut mean = [0.0; 2];
                        if finite[of] {
                            mean[of] = value;
                            with(&mut self.half[of], Sums::of(mean));
                        } else {
                            self.odd[of] += sign;
                        }
                    }
                }
            }
        }
    }

    fn is_constant(&self, of: usize) -> bool {
        self.odd[of] == 0.0 && self.finite.is_constant(of, &self.half[of])
    }

    fn value(&self) -> Option<f64> {
        if self.is_constant(0) || self.is_constant(1) {
            return None;
        }
        if self.odd != [0.0; 2] {
            return Some(f64::NAN);
        }
        let of = &self.finite;
        let both = of.squares[0] * of.squares[1];
        let spread = match both.is_normal() {
            true => both.sqrt(),
            false => of.squares[0].sqrt() * of.squares[1].sqrt(),
        };
        // Rounding does not leave the range of a correlation.
        Some((of.products / spread).clamp(-1.0, 1.0))
    }

    /// The state as numbers.
    fn numbers(&self) -> [f64; STATE] {
        let (all, first, second) = (&self.finite, &self.half[0], &self.half[1]);
        [
            all.count,
            all.mean[0],
            all.mean[1],
            all.squares[0],
            all.squares[1],
            all.products,
            first.count,
            first.mean[0],
            first.squares[0],
            second.count,
            second.mean[1],
            second.squares[1],
            self.odd[0],
            self.odd[1],
        ]
    }

    /// Adds the pairs of a state.
    fn add(&mut self, numbers: [f64; STATE]) {
        let [count, mean0, mean1, squares0, squares1, products, rest @ ..] = numbers;
        let [first, mean_first, squares_first, rest @ ..] = rest;
        let [second, mean_second, squares_second, odd0, odd1] = rest;
        self.finite.add(Sums {
            count,
            mean: [mean0, mean1],
            squares: [squares0, squares1],
            products,
        });
        self.half[0].add(Sums {
            count: first,
            mean: [mean_first, 0.0],
            squares: [squares_first, 0.0],
            products: 0.0,
        });
        self.half[1].add(Sums {
            count: second,
            mean: [0.0, mean_second],
            squares: [0.0, squares_second],
            products: 0.0,
        });
        self.odd = [self.odd[0] + odd0, self.odd[1] + odd1];
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
        // One that varies little beside its size.
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
            // The other is constant, also over the rows whose first is not finite.
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
