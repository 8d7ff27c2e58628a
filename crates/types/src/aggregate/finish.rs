//! From an aggregate to results: sums, spreads, deviations, extremes.
//!
//! There are two rules for values that are not finite, and this module is the only implementation
//! of them (docs/aggregates.md):
//! - *Finite*, the methods of [`Aggregate`]: NaN and infinities are left out, as if they had not
//!   been written. So answer the front ends for time series: HTTP, tiles, InfluxQL, OpenTSDB, the
//!   command line, C, Go and Python.
//! - *IEEE*, [`Aggregate::ieee`]: the result of summing and comparing the rows themselves. SQL uses
//!   it, whether it reads rows or the pyramid.
//!
//! Invariants: without a value that counts, every result is `None` and never 0; if all values are
//! finite, both rules have the same results. Accuracy: sums, spreads and extremes of integers are
//! exact; a sum of floats is as exact as the mean, times the number of values.

use super::{Aggregate, Extremes};
use crate::value::Value;

/// A sum or a difference: exact where the values are integers or booleans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sum {
    /// Exact sum of integers and booleans.
    Integer(i128),
    /// Sum of floats. Values near the limits of a double can make it infinite.
    Float(f64),
}

impl Sum {
    /// The number as a double.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Sum::Integer(v) => v as f64,
            Sum::Float(v) => v,
        }
    }
}

impl Extremes {
    /// The smallest value; booleans are 0 and 1.
    #[must_use]
    pub fn min(self) -> Option<Value> {
        Some(match self {
            Extremes::None => return None,
            Extremes::F64(min, _) => Value::F64(min),
            Extremes::I64(min, _) => Value::I64(min),
            Extremes::U64(min, _) => Value::U64(min),
        })
    }

    /// The largest value; booleans are 0 and 1.
    #[must_use]
    pub fn max(self) -> Option<Value> {
        Some(match self {
            Extremes::None => return None,
            Extremes::F64(_, max) => Value::F64(max),
            Extremes::I64(_, max) => Value::I64(max),
            Extremes::U64(_, max) => Value::U64(max),
        })
    }

    /// Both extremes as doubles, for drawing and for consumers that only support doubles.
    #[must_use]
    pub fn as_f64(self) -> Option<(f64, f64)> {
        match self {
            Extremes::None => None,
            Extremes::F64(min, max) => Some((min, max)),
            Extremes::I64(min, max) => Some((min as f64, max as f64)),
            Extremes::U64(min, max) => Some((min as f64, max as f64)),
        }
    }
}

impl Aggregate {
    /// Sum of the finite values: exact for integers and booleans, mean times count for floats.
    /// `None` without a finite value, and for strings and bytes.
    ///
    /// ```
    /// use headwater_types::{Aggregate, Column, Values, aggregate::Sum};
    /// let of = |values| {
    ///     let column = Column::from_values(values);
    ///     Aggregate::of(&[1, 2, 3], &column, 0..3)
    /// };
    /// let integers = of(Values::I64(vec![i64::MAX, i64::MAX, 1]));
    /// assert_eq!(integers.sum(), Some(Sum::Integer(i128::from(i64::MAX) * 2 + 1)));
    /// let floats = of(Values::F64(vec![1.0, f64::INFINITY, 3.0]));
    /// assert_eq!(floats.sum(), Some(Sum::Float(4.0)));
    /// assert_eq!(floats.ieee().sum(), Some(Sum::Float(f64::INFINITY)));
    /// ```
    #[must_use]
    pub fn sum(&self) -> Option<Sum> {
        match self.extremes {
            Extremes::None => None,
            Extremes::F64(..) => self
                .mean()
                .map(|mean| Sum::Float(mean * self.finite() as f64)),
            Extremes::I64(..) | Extremes::U64(..) => Some(Sum::Integer(self.sum)),
        }
    }

    /// The largest finite value minus the smallest.
    #[must_use]
    pub fn spread(&self) -> Option<Sum> {
        match self.extremes {
            Extremes::None => None,
            Extremes::F64(min, max) => Some(Sum::Float(max - min)),
            Extremes::I64(min, max) => Some(Sum::Integer(i128::from(max) - i128::from(min))),
            Extremes::U64(min, max) => Some(Sum::Integer(i128::from(max) - i128::from(min))),
        }
    }

    /// Population variance of the finite values.
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        self.variance_over(self.finite())
    }

    /// Population standard deviation of the finite values.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// Sample variance of the finite values; `None` for fewer than two.
    #[must_use]
    pub fn sample_variance(&self) -> Option<f64> {
        self.variance_over(self.finite().saturating_sub(1))
    }

    /// Sample standard deviation of the finite values; `None` for fewer than two.
    #[must_use]
    pub fn sample_stddev(&self) -> Option<f64> {
        self.sample_variance().map(f64::sqrt)
    }

    fn variance_over(&self, divisor: u64) -> Option<f64> {
        match self.extremes {
            Extremes::None => None,
            _ if divisor == 0 => None,
            _ => Some((self.m2 / divisor as f64).max(0.0)),
        }
    }

    /// The same questions, answered with NaN and infinities counted as IEEE 754 counts them.
    #[must_use]
    pub fn ieee(&self) -> Ieee<'_> {
        Ieee(self)
    }
}

/// Results over the rows themselves, NaN and infinities included; see [`Aggregate::ieee`].
#[derive(Clone, Copy, Debug)]
pub struct Ieee<'a>(&'a Aggregate);

impl Ieee<'_> {
    /// Sum of all values: NaN if one is NaN or both infinities occur, else infinite if one is.
    #[must_use]
    pub fn sum(&self) -> Option<Sum> {
        match self.not_finite() {
            Some(value) => Some(Sum::Float(value)),
            None => self.0.sum(),
        }
    }

    /// Mean of all values, as [`Ieee::sum`].
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.not_finite().or_else(|| self.0.mean())
    }

    /// Population variance; NaN if one value is not finite.
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        self.not_finite()
            .map_or_else(|| self.0.variance(), |_| Some(f64::NAN))
    }

    /// Population standard deviation; NaN if one value is not finite.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// Sample variance: `None` for a single value, NaN if one of several is not finite.
    #[must_use]
    pub fn sample_variance(&self) -> Option<f64> {
        match self.not_finite() {
            Some(_) if self.0.count > 1 => Some(f64::NAN),
            Some(_) => None,
            None => self.0.sample_variance(),
        }
    }

    /// Standard deviation of a sample, as [`Ieee::sample_variance`].
    #[must_use]
    pub fn sample_stddev(&self) -> Option<f64> {
        self.sample_variance().map(f64::sqrt)
    }

    /// Lowest and highest float in the total order, in which `-NaN < -Inf < ... < +Inf < NaN`. An
    /// aggregate counts NaNs without their signs: `nan` has the lowest and the highest NaN, if
    /// known from the rows; without it NaNs are assumed positive. `None` without a value, and for
    /// fields that are not floats.
    #[must_use]
    pub fn extremes(&self, nan: Option<(f64, f64)>) -> Option<(f64, f64)> {
        let a = self.0;
        let mut all: Option<(f64, f64)> = match a.extremes {
            Extremes::F64(low, high) => Some((low, high)),
            Extremes::None => None,
            Extremes::I64(..) | Extremes::U64(..) => return None,
        };
        let mut widen = |low: f64, high: f64| {
            all = Some(match all {
                None => (low, high),
                Some((l, h)) => (Ieee::least(l, low), Ieee::greatest(h, high)),
            });
        };
        if a.positive_infinite > 0 {
            widen(f64::INFINITY, f64::INFINITY);
        }
        if a.negative_infinite > 0 {
            widen(f64::NEG_INFINITY, f64::NEG_INFINITY);
        }
        if a.nan > 0 {
            let (low, high) = nan.unwrap_or((f64::NAN, f64::NAN));
            widen(low, high);
        }
        all
    }

    /// The lower of two floats in the total order.
    #[must_use]
    pub fn least(a: f64, b: f64) -> f64 {
        if b.total_cmp(&a).is_lt() { b } else { a }
    }

    /// The higher of two floats in the total order.
    #[must_use]
    pub fn greatest(a: f64, b: f64) -> f64 {
        if b.total_cmp(&a).is_gt() { b } else { a }
    }

    /// Sum of the values that are not finite; `None` if all are finite.
    fn not_finite(&self) -> Option<f64> {
        let a = self.0;
        match (a.nan, a.positive_infinite, a.negative_infinite) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }
}
