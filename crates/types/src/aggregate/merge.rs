//! Merging of two aggregates: counts add up, minimum and maximum combine, mean and M2 follow Chan's
//! rule in twice the precision of a double.
//!
//! Invariant: finite parts result in a finite mean between the extremes; M2 is never NaN or
//! negative.

use super::{Aggregate, Extremes};

/// The rounded sum and its rounding error.
#[inline]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// Adds `more` to a double-double (Knuth's two-sum): the sum `high` and its rounding error `low`;
/// if the result is not finite, the rounding error is 0.
#[inline]
pub(super) fn add_compensated(high: f64, low: f64, more: f64) -> (f64, f64) {
    let (sum, rest) = two_sum(high, more);
    let (sum, rest) = two_sum(sum, rest + low);
    (sum, if rest.is_finite() { rest } else { 0.0 })
}

pub(super) fn merge(into: &mut Aggregate, other: &Aggregate) {
    if into.count == 0 {
        *into = *other;
        keep_mean_inside(into);
        return;
    }
    let mut other = *other;
    match (&into.extremes, &other.extremes) {
        (Extremes::F64(..), Extremes::I64(..) | Extremes::U64(..)) => {
            other = other.widened_to_f64();
        }
        (Extremes::I64(..) | Extremes::U64(..), Extremes::F64(..)) => {
            *into = into.widened_to_f64();
        }
        _ => {}
    }
    let (mine, theirs) = (into.finite(), other.finite());
    if mine == 0 {
        into.mean = other.mean;
        into.m2 = other.m2;
        into.carry = other.carry;
    } else if theirs > 0 {
        merge_moments(into, &other, mine as f64, theirs as f64);
    }
    into.count += other.count;
    into.nan += other.nan;
    into.positive_infinite += other.positive_infinite;
    into.negative_infinite += other.negative_infinite;
    into.sum = into.sum.wrapping_add(other.sum);
    into.time_sum = into.time_sum.wrapping_add(other.time_sum);
    into.extremes = merge_extremes(into.extremes, other.extremes);
    keep_mean_inside(into);
}

fn keep_mean_inside(into: &mut Aggregate) {
    if let Extremes::F64(low, high) = into.extremes
        && !(into.mean >= low && into.mean <= high)
    {
        into.mean = into.mean.clamp(low, high);
        into.carry.mean = 0.0;
    }
}

/// Both sides have finite values.
fn merge_moments(into: &mut Aggregate, other: &Aggregate, mine: f64, theirs: f64) {
    let all = mine + theirs;
    let share = theirs / all;
    let difference = match into.extremes {
        Extremes::None => return,
        Extremes::I64(..) | Extremes::U64(..) => {
            other.mean().unwrap_or_default() - into.mean().unwrap_or_default()
        }
        Extremes::F64(..) => {
            let (high, low) = two_sum(other.mean, -into.mean);
            let low = low + (other.carry.mean - into.carry.mean);
            let (mean, carry) = add_compensated(into.mean, into.carry.mean, high * share);
            let (mean, carry) = add_compensated(mean, carry, low * share);
            if mean.is_finite() {
                into.mean = mean;
                into.carry.mean = carry;
            } else {
                // The difference overflows; the weighted parts do not.
                into.mean = into.mean * (mine / all) + other.mean * share;
                into.carry.mean = 0.0;
            }
            if low.is_finite() { high + low } else { high }
        }
    };
    // Factors are grouped so that a small product does not meet an overflowing one.
    let between = (difference * share) * (difference * mine);
    let (m2, carry) = add_compensated(into.m2, into.carry.m2, other.m2);
    let (m2, carry) = add_compensated(m2, carry + other.carry.m2, between);
    into.m2 = if m2.is_nan() {
        f64::INFINITY
    } else {
        m2.max(0.0)
    };
    into.carry.m2 = carry;
}

fn merge_extremes(a: Extremes, b: Extremes) -> Extremes {
    match (a, b) {
        (Extremes::None, x) | (x, Extremes::None) => x,
        (Extremes::F64(a, b), Extremes::F64(c, d)) => Extremes::F64(
            if c.total_cmp(&a).is_lt() { c } else { a },
            if d.total_cmp(&b).is_gt() { d } else { b },
        ),
        (Extremes::I64(a, b), Extremes::I64(c, d)) => Extremes::I64(a.min(c), b.max(d)),
        (Extremes::U64(a, b), Extremes::U64(c, d)) => Extremes::U64(a.min(c), b.max(d)),
        // Two types of one field meet only when it was widened; `merge` has
        // converted both to f64.
        (a, _) => a,
    }
}
