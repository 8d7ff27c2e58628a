//! Mean and M2 from integers.
//!
//! For values `d / p` with integers `d`, `p` a power of ten, let `s` be the sum of `d - low` and
//! `q` the sum of the squares of `d - low`. Then mean = (s + n·low) / (n·p) and M2 = (n·q - s²) /
//! (n·p²), so `s` and `t = q - ceil(s² / n)` determine mean and M2 except for the last few bits.
//! All of it is integer arithmetic, conversions and single divisions, so every machine computes the
//! same bits: these functions are part of the format.

use headwater_types::aggregate::settled_m2;

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
        // The conversion of 128 bits is a call.
        let total = i64::try_from(total).map_or_else(|_| total as f64, |narrow| narrow as f64);
        total / (self.finite as f64 * power)
    }

    /// `sum` for a mean; `None` if it is too large to encode.
    pub(super) fn sum_for(mean: f64, finite: u64, low: i128, power: f64) -> Option<i128> {
        const EXACT: f64 = 4_503_599_627_370_496.0; // 2^52
        let total = mean * (finite as f64 * power);
        if total.is_nan() || total.abs() >= EXACT {
            return None;
        }
        Some(total.round() as i128 - low.wrapping_mul(i128::from(finite)))
    }

    /// `ceil(sum² / n)` and the added remainder; `None` if the square is too large.
    fn square(&self) -> Option<(i128, i128)> {
        let n = i128::from(self.finite).max(1);
        let square = self.sum.checked_mul(self.sum)?;
        let rest = (n - square.rem_euclid(n)).rem_euclid(n);
        Some((square, rest))
    }

    /// `n·t + rest` where all of it fits 64 bits, which is nearly always: the same number at a
    /// third of the time.
    fn narrow_numerator(&self, t: i64) -> Option<i64> {
        let sum = i64::try_from(self.sum).ok()?.unsigned_abs();
        let n = self.finite.max(1);
        let over = sum.checked_mul(sum)? % n;
        let rest = if over == 0 { 0 } else { n - over };
        t.checked_mul(i64::try_from(n).ok()?)?
            .checked_add(i64::try_from(rest).ok()?)
    }

    /// M2, but for the last bits; settled as [`settled_m2`] does on request.
    pub(super) fn m2(&self, t: i64, power: f64, mean: f64, settle: bool) -> f64 {
        let numerator = match self.narrow_numerator(t) {
            Some(numerator) => numerator as f64,
            None => {
                let Some((_, rest)) = self.square() else {
                    return 0.0;
                };
                let n = i128::from(self.finite).max(1);
                // n·q - s² = n·(t + ceil(s²/n)) - s² = n·t + rest
                i128::from(t).wrapping_mul(n).wrapping_add(rest) as f64
            }
        };
        let m2 = numerator / (self.finite as f64 * (power * power));
        if settle {
            settled_m2(self.finite, mean, m2)
        } else {
            m2
        }
    }

    /// `t` for an M2; `None` if it is too large to encode.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn narrow_and_wide_arithmetic_agree(
            finite in prop_oneof![0u64..5, any::<u64>()],
            sum in prop_oneof![-100i128..1 << 40, any::<i64>().prop_map(i128::from), any::<i128>()],
            t in prop_oneof![-5i64..1 << 30, any::<i64>()],
        ) {
            let sums = Sums { finite, low: 0, sum };
            if let Some(narrow) = sums.narrow_numerator(t) {
                let (_, rest) = sums.square().unwrap_or_default();
                let n = i128::from(finite.max(1));
                prop_assert_eq!(i128::from(narrow), i128::from(t) * n + rest);
            }
        }
    }
}
