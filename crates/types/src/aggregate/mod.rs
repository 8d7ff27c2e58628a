//! Aggregates of one field over any set of its events.
//!
//! Invariants: `count >= nan + positive_infinite + negative_infinite`; `extremes` is
//! [`Extremes::None`] exactly when no value is finite (or the type has no order); counts, extremes,
//! `sum` and `time_sum` are exact. Accuracy, for any division of the events into parts and any
//! order of merging them: the mean differs from the exact one by at most 1e-12 of the largest
//! magnitude, the deviation by at most 1e-12·√(mean² + variance), as long as `m2` neither overflows
//! (deviations above about 1e153; it is then +Inf) nor vanishes (below about 1e-153). Finite input
//! never results in NaN. Source: EVENT paper, section 3 (aggregates beside the child pointers of
//! the TAB+-tree); mean and deviation by Chan's rule, computed in twice the precision of a double
//! so that long chains of merges do not drift.

mod compute;
mod finish;
mod merge;
mod settle;

pub use finish::{Ieee, Sum};
pub use settle::settled_m2;

use crate::column::Column;
use std::ops::Range;

/// Smallest and largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extremes {
    /// No value, or a type without order.
    None,
    /// Finite floats, by total order (`-0.0` is below `0.0`).
    F64(f64, f64),
    /// Integers; booleans count as 0 and 1.
    I64(i64, i64),
    /// Unsigned integers.
    U64(u64, u64),
}

/// Difference of `mean` and `m2` from the running values: the rounding that a chain of merges
/// carries along.
///
/// A carry is precision and no part of the value: any two are equal, and bucket blocks do not store
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carry {
    /// To be added to [`Aggregate::mean`]; at most half a unit in its last place.
    pub mean: f64,
    /// To be added to [`Aggregate::m2`].
    pub m2: f64,
}

impl Carry {
    /// Zero rounding errors.
    pub const NONE: Carry = Carry { mean: 0.0, m2: 0.0 };
}

impl PartialEq for Carry {
    fn eq(&self, _: &Carry) -> bool {
        true
    }
}

/// Count, extremes, mean, deviation and mean time of the present values of one field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregate {
    /// Number of present values, including those that are not finite.
    pub count: u64,
    /// Values that are NaN.
    pub nan: u64,
    /// Values that are +Inf.
    pub positive_infinite: u64,
    /// Values that are -Inf.
    pub negative_infinite: u64,
    /// Smallest and largest finite value.
    pub extremes: Extremes,
    /// Mean of the finite values of a float field; 0 for integers and booleans, whose mean is
    /// [`Aggregate::mean()`].
    pub mean: f64,
    /// Sum of squared differences from the mean, over the finite values.
    pub m2: f64,
    /// Exact sum of integers and booleans; 0 for other types.
    pub sum: i128,
    /// Exact sum of the timestamps (ns since 1970) of the present values.
    pub time_sum: i128,
    /// Rounding carried from merge to merge.
    pub carry: Carry,
}

impl Aggregate {
    /// Aggregate of no values.
    pub const EMPTY: Aggregate = Aggregate {
        count: 0,
        nan: 0,
        positive_infinite: 0,
        negative_infinite: 0,
        extremes: Extremes::None,
        mean: 0.0,
        m2: 0.0,
        sum: 0,
        time_sum: 0,
        carry: Carry::NONE,
    };

    /// Aggregate of rows `range` of a column; `times_ns` are the times of all rows of the column. A
    /// range beyond the rows is cut to them.
    ///
    /// ```
    /// use headwater_types::{Aggregate, Column, Values};
    /// let column = Column::from_values(Values::F64(vec![1.0, 2.0, 6.0]));
    /// let aggregate = Aggregate::of(&[10, 20, 30], &column, 0..3);
    /// assert_eq!(aggregate.mean(), Some(3.0));
    /// assert_eq!(aggregate.mean_time(), Some(20));
    /// ```
    #[must_use]
    pub fn of(times_ns: &[i64], column: &Column, range: Range<usize>) -> Aggregate {
        compute::aggregate_column(times_ns, column, range)
    }

    /// Merges another aggregate of the same field. If one of the two is from before the field was
    /// widened from integers to floats, the result is of floats.
    pub fn merge(&mut self, other: &Aggregate) {
        merge::merge(self, other);
    }

    /// Number of finite values.
    #[must_use]
    pub fn finite(&self) -> u64 {
        self.count
            .saturating_sub(self.nan)
            .saturating_sub(self.positive_infinite)
            .saturating_sub(self.negative_infinite)
    }

    /// Mean of the finite values; `None` without a finite value, and for strings and bytes.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let finite = self.finite();
        match self.extremes {
            Extremes::None => None,
            _ if finite == 0 => None,
            Extremes::F64(..) => Some(self.mean),
            Extremes::I64(..) | Extremes::U64(..) => Some(self.sum as f64 / finite as f64),
        }
    }

    /// Mean timestamp of the present values, in nanoseconds since 1970, rounded down.
    #[must_use]
    pub fn mean_time(&self) -> Option<i64> {
        if self.count == 0 {
            None
        } else {
            Some(self.time_sum.div_euclid(i128::from(self.count)) as i64)
        }
    }

    /// The same aggregate for a field that was widened from an integer type to f64.
    #[must_use]
    pub fn widened_to_f64(self) -> Aggregate {
        let (low, high) = match self.extremes {
            Extremes::I64(low, high) => (low as f64, high as f64),
            Extremes::U64(low, high) => (low as f64, high as f64),
            Extremes::None | Extremes::F64(..) => return Aggregate { sum: 0, ..self },
        };
        Aggregate {
            extremes: Extremes::F64(low, high),
            mean: self.mean().unwrap_or_default().clamp(low, high),
            sum: 0,
            carry: Carry {
                mean: 0.0,
                m2: self.carry.m2,
            },
            ..self
        }
    }

    /// The aggregate in the form in which it is stored: without rounding errors, and with `m2`
    /// rounded to a multiple of a power of two so that the deviation changes by at most
    /// 2e-13·√(mean² + variance), which merges do not increase. Stored blocks of settled aggregates
    /// are smaller; settling is idempotent.
    #[must_use]
    pub fn settled(self) -> Aggregate {
        let mean = self.mean().unwrap_or_default();
        Aggregate {
            m2: settled_m2(self.finite(), mean, self.m2),
            carry: Carry::NONE,
            ..self
        }
    }
}
