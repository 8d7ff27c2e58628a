//! Mean and M2 from integers.
//!
//! For values `d / p` with integers `d`, `p` a power of ten, let `s` be the sum of `d - low` and `q` that of its squares.
//! Then mean = (s + n·low) / (n·p) and M2 = (n·q - s²) / (n·p²), so `s` and `t = q - ceil(s² / n)` say both but for the
//! last few bits. All of it is integer arithmetic, conversions and single divisions, so that every machine computes the
//! same bits: these functions are part of the format.

use crate::aggregate::settled_m2;

/// The integers of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    /// Finite values, at least one.
    pub(super) finite: u64,
    /// Smallest value, as an integer.
    pub(super) low: i128,
    /// Sum of the differences from the smallest.
    pub(super) sum: i128,
}

impl Sums {
    /// The mean, but for the last bits.
    pub(super) fn mean(&self, power: f64) -> f64 {
        let total = self
            .sum
            .wrapping_add(self.low.wrapping_mul(i128::from(self.finite)));
        total as f64 / (self.finite as f64 * power)
    }

    /// `sum` for a mean; `None` when it is too large to say.
    pub(super) fn sum_for(mean: f64, finite: u64, low: i128, power: f64) -> Option<i128> {
        const EXACT: f64 = 4_503_599_627_370_496.0; // 2^52
        let total = mean * (finite as f64 * power);
        if total.is_nan() || total.abs() >= EXACT {
            return None;
        }
        Some(total.round() as i128 - low.wrapping_mul(i128::from(finite)))
    }

    /// `ceil(sum² / n)` and the rest that was added; `None` when the square is too large.
    fn square(&self) -> Option<(i128, i128)> {
        let n = i128::from(self.finite).max(1);
        let square = self.sum.checked_mul(self.sum)?;
        let rest = (n - square.rem_euclid(n)).rem_euclid(n);
        Some((square, rest))
    }

    /// M2, but for the last bits; settled as [`settled_m2`] does when asked to.
    pub(super) fn m2(&self, t: i64, power: f64, mean: f64, settle: bool) -> f64 {
        let Some((_, rest)) = self.square() else {
            return 0.0;
        };
        let n = i128::from(self.finite).max(1);
        // n·q - s² = n·(t + ceil(s²/n)) - s² = n·t + rest
        let numerator = i128::from(t).wrapping_mul(n).wrapping_add(rest);
        let m2 = numerator as f64 / (self.finite as f64 * (power * power));
        if settle {
            settled_m2(self.finite, mean, m2)
        } else {
            m2
        }
    }

    /// `t` for an M2; `None` when it is too large to say.
    pub(super) fn t_for(&self, m2: f64, power: f64) -> Option<i64> {
        const EXACT: f64 = 1_125_899_906_842_624.0; // 2^50
        let scaled = m2 * (power * power);
        if scaled.is_nan() || scaled.abs() >= EXACT {
            return None;
        }
        let (_, rest) = self.square()?;
        Some((scaled - rest as f64 / self.finite as f64).round() as i64)
    }
}

/// Bits of a double as an integer in the same order: neighbours differ by one.
pub(super) fn ordered(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ ((bits >> 63) & i64::MAX)
}

/// The double of [`ordered`].
pub(super) fn from_ordered(ordered: i64) -> f64 {
    f64::from_bits((ordered ^ ((ordered >> 63) & i64::MAX)) as u64)
}
