//! Rounds M2 to the precision that the promise about deviations needs.
//!
//! Invariant: a pure function of integers and exponents, part of the block format
//! (docs/format/block.md), so its results never change; it is idempotent.

/// Retained bits of `n·σ·rms`.
const KEPT_BITS: i32 = 41;

/// `floor(log2(x))` for positive normal `x`, read from the exponent bits; -1023 for zero and
/// subnormals.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// Mantissa bits that are never rounded away, however small the deviation is beside the mean.
const LEAST_KEPT_BITS: i32 = 4;

/// `m2` rounded (half to even) to a multiple of `2^q`, `q = e(n) + floor((v + r) / 2) - 41` with
/// `v = e(m2) - e(n)`, `r = max(v, 2·e(mean))` and `e` the binary exponent, but with at least four
/// mantissa bits; unchanged when it is zero, negative, subnormal, not finite or would become so.
#[must_use]
pub fn settled_m2(finite: u64, mean: f64, m2: f64) -> f64 {
    if finite == 0 || m2 <= 0.0 || !m2.is_normal() {
        return m2;
    }
    // Only a value that is rounded up to the next power of two has another quantum when it is
    // settled again; it has a single bit and is a multiple of that quantum, too.
    let n = exponent(finite as f64);
    let variance = exponent(m2) - n;
    let square = variance.max(2 * exponent(mean));
    let quantum = n + (variance + square).div_euclid(2) - KEPT_BITS;
    let last_place = exponent(m2) - 52;
    let dropped = (quantum - last_place).min(52 - LEAST_KEPT_BITS);
    if dropped <= 0 {
        return m2;
    }
    let bits = m2.to_bits();
    let half = 1u64 << (dropped - 1);
    let odd = (bits >> dropped) & 1;
    let rounded = f64::from_bits((bits + half - 1 + odd) >> dropped << dropped);
    if rounded.is_finite() { rounded } else { m2 }
}
