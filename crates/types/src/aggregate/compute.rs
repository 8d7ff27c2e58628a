//! Aggregates of rows: two passes over the slice (sum, then squared differences from the mean), in
//! blocks with several accumulators each, block sums added with compensation of their rounding.
//!
//! Invariants: the sum of a block of finite values is finite unless it overflows, so that one test
//! per block finds NaN, infinities and overflow; the second pass corrects the mean by the mean of
//! the differences.

use super::merge::add_compensated;
use super::{Aggregate, Carry, Extremes};
use crate::column::{Bitmap, Column, Values};
use std::ops::Range;

/// Values per block: its plain sum is within about 20 roundings.
const BLOCK: usize = 128;
const LANES: usize = 8;

pub(super) fn aggregate_column(
    times_ns: &[i64],
    column: &Column,
    range: Range<usize>,
) -> Aggregate {
    let end = range.end.min(column.len()).min(times_ns.len());
    let range = range.start.min(end)..end;
    let times = times_ns.get(range.clone()).unwrap_or_default();
    let mut out = Aggregate::EMPTY;
    match column.presence() {
        None => {
            out.count = times.len() as u64;
            out.time_sum = sum_i64(times);
        }
        Some(bits) => {
            let times = present(times, bits, range.start);
            out.count = times.len() as u64;
            out.time_sum = sum_i64(&times);
        }
    }
    if out.count == 0 {
        return out;
    }
    macro_rules! each {
        ($values:expr, $kernel:expr) => {{
            let values = $values.get(range.clone()).unwrap_or_default();
            match column.presence() {
                None => $kernel(values, &mut out),
                Some(bits) => $kernel(&present(values, bits, range.start), &mut out),
            }
        }};
    }
    match column.values() {
        Values::F64(v) => each!(v, of_f64),
        Values::I64(v) => each!(v, of_i64),
        Values::U64(v) => each!(v, of_u64),
        Values::Bool(v) => each!(v, of_bool),
        Values::String(_) | Values::Bytes(_) => {}
    }
    out
}

/// Values whose bit is set; `first` is the bit of the first value.
fn present<T: Copy>(values: &[T], bits: &Bitmap, first: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(values.len());
    out.extend(
        values
            .iter()
            .enumerate()
            .filter(|(i, _)| bits.get(first + i))
            .map(|(_, v)| *v),
    );
    out
}

/// Exact sum: the halves are summed separately, which cannot overflow for any slice.
fn sum_i64(values: &[i64]) -> i128 {
    let mut total = 0i128;
    for block in values.chunks(1 << 20) {
        let (mut low, mut high) = (0u64, 0i64);
        for v in block {
            low += *v as u64 & 0xffff_ffff;
            high += *v >> 32;
        }
        total += (i128::from(high) << 32) + i128::from(low);
    }
    total
}

fn sum_u64(values: &[u64]) -> i128 {
    let mut total = 0i128;
    for block in values.chunks(1 << 20) {
        let (mut low, mut high) = (0u64, 0u64);
        for v in block {
            low += *v & 0xffff_ffff;
            high += *v >> 32;
        }
        total += (i128::from(high) << 32) + i128::from(low);
    }
    total
}

fn of_i64(values: &[i64], out: &mut Aggregate) {
    let (low, high) = min_and_max(values);
    out.extremes = Extremes::I64(low, high);
    out.sum = sum_i64(values);
    if high.wrapping_sub(low) as u64 <= NARROW {
        out.m2 = narrow_m2(values, |v| v.wrapping_sub(low) as u32);
        return;
    }
    let mean = out.sum as f64 / values.len() as f64;
    set_m2(values, |v| *v as f64 - mean, out);
}

/// Smallest and largest of at least one value, in lanes so that comparisons do not wait for each
/// other.
#[inline(always)]
fn min_and_max<T: Copy + Ord + Default>(values: &[T]) -> (T, T) {
    let first = values.first().copied().unwrap_or_default();
    let (mut lows, mut highs) = ([first; LANES], [first; LANES]);
    for group in values.chunks(LANES) {
        for ((low, high), v) in lows.iter_mut().zip(&mut highs).zip(group) {
            *low = (*low).min(*v);
            *high = (*high).max(*v);
        }
    }
    (
        lows.into_iter().min().unwrap_or_default(),
        highs.into_iter().max().unwrap_or_default(),
    )
}

/// Integers this close together have exact sums of squares.
const NARROW: u64 = 1 << 24;

/// M2 from the exact sums of differences from the smallest value, all at most [`NARROW`], and of
/// their squares.
#[inline(always)]
fn narrow_m2<T>(values: &[T], difference: impl Fn(&T) -> u32) -> f64 {
    let (mut sum, mut squares) = (0u128, 0u128);
    // A square is at most 2^48, and there are 2^12 of them.
    for block in values.chunks(1 << 12) {
        let (mut block_sum, mut block_squares) = (0u64, 0u64);
        for v in block {
            let difference = u64::from(difference(v));
            block_sum += difference;
            block_squares += difference * difference;
        }
        sum += u128::from(block_sum);
        squares += u128::from(block_squares);
    }
    let n = values.len() as u128;
    (n * squares - sum * sum) as f64 / n as f64
}

fn of_u64(values: &[u64], out: &mut Aggregate) {
    let (low, high) = min_and_max(values);
    out.extremes = Extremes::U64(low, high);
    out.sum = sum_u64(values);
    if high - low <= NARROW {
        out.m2 = narrow_m2(values, |v| (v - low) as u32);
        return;
    }
    let mean = out.sum as f64 / values.len() as f64;
    set_m2(values, |v| *v as f64 - mean, out);
}

fn of_bool(values: &[bool], out: &mut Aggregate) {
    let ones: u64 = values.iter().map(|v| u64::from(*v)).sum();
    let n = values.len() as u64;
    out.extremes = Extremes::I64(i64::from(ones == n), i64::from(ones > 0));
    out.sum = i128::from(ones);
    out.m2 = (ones as f64 * (n - ones) as f64) / n as f64;
}

fn of_f64(values: &[f64], out: &mut Aggregate) {
    if let Some(sum) = sum_of_finite(values) {
        finite_f64(values, sum, out);
        return;
    }
    let mut finite = Vec::with_capacity(values.len());
    for v in values {
        if v.is_finite() {
            finite.push(*v);
        } else if v.is_nan() {
            out.nan += 1;
        } else if *v > 0.0 {
            out.positive_infinite += 1;
        } else {
            out.negative_infinite += 1;
        }
    }
    if finite.is_empty() {
        return;
    }
    match sum_of_finite(&finite) {
        Some(sum) => finite_f64(&finite, sum, out),
        None => overflowing_f64(&finite, out),
    }
}

/// Sums blocks of `term(value)` in lanes, and the blocks with compensated rounding.
#[inline(always)]
fn sum_blocks<T>(values: &[T], term: impl Fn(&T) -> f64) -> (f64, f64) {
    let (mut high, mut low) = (0.0, 0.0);
    for block in values.chunks(BLOCK) {
        let mut lanes = [0.0f64; LANES];
        let whole = block.chunks_exact(LANES);
        let rest = whole.remainder();
        for group in whole {
            for (lane, value) in lanes.iter_mut().zip(group) {
                *lane += term(value);
            }
        }
        for (lane, value) in lanes.iter_mut().zip(rest) {
            *lane += term(value);
        }
        let [a, b, c, d, e, f, g, h] = lanes;
        (high, low) = add_compensated(high, low, ((a + b) + (c + d)) + ((e + f) + (g + h)));
    }
    (high, low)
}

/// The sum, or `None` if a value is not finite or a partial sum overflows.
fn sum_of_finite(values: &[f64]) -> Option<(f64, f64)> {
    let (high, low) = sum_blocks(values, |v| *v);
    high.is_finite().then_some((high, low))
}

/// Aggregates finite values whose sum is finite.
fn finite_f64(values: &[f64], (sum, rest): (f64, f64), out: &mut Aggregate) {
    let n = values.len() as f64;
    let (low, high) = min_and_max_f64(values);
    out.extremes = Extremes::F64(low, high);
    let rough = ((sum + rest) / n).clamp(low, high);
    let (differences, rest) = sum_blocks(values, |v| v - rough);
    let correction = (differences + rest) / n;
    let (squares, squares_rest) = sum_blocks(values, |v| (v - rough) * (v - rough));
    let taken = correction * (differences + rest);
    let correction = if correction.is_finite() {
        correction
    } else {
        0.0
    };
    let (mean, carry) = add_compensated(rough, 0.0, correction);
    (out.mean, out.carry.mean) = if mean >= low && mean <= high {
        (mean, carry)
    } else {
        (mean.clamp(low, high), 0.0)
    };
    let (m2, carry) = add_compensated(squares, squares_rest, -taken);
    (out.m2, out.carry.m2) = if m2.is_nan() {
        (f64::INFINITY, 0.0)
    } else if low == high {
        (0.0, 0.0)
    } else {
        (m2.max(0.0), carry)
    };
}

/// Aggregates finite values whose sum overflows: computed at a scale that does not overflow.
fn overflowing_f64(values: &[f64], out: &mut Aggregate) {
    const DOWN: f64 = 5.421_010_862_427_522e-20; // 2^-64
    const UP: f64 = 18_446_744_073_709_551_616.0; // 2^64
    let scaled: Vec<f64> = values.iter().map(|v| v * DOWN).collect();
    let (sum, rest) = sum_blocks(&scaled, |v| *v);
    finite_f64(&scaled, (sum, rest), out);
    let (low, high) = min_and_max_f64(values);
    out.extremes = Extremes::F64(low, high);
    out.mean = (out.mean * UP).clamp(low, high);
    out.m2 = (out.m2 * UP) * UP;
    out.carry = Carry::NONE;
}

/// Smallest and largest value by total order; requires at least one value and no NaN.
fn min_and_max_f64(values: &[f64]) -> (f64, f64) {
    let mut lows = [f64::INFINITY; LANES];
    let mut highs = [f64::NEG_INFINITY; LANES];
    let whole = values.chunks_exact(LANES);
    let rest = whole.remainder();
    for group in whole.chain(std::iter::once(rest)) {
        for ((low, high), v) in lows.iter_mut().zip(&mut highs).zip(group) {
            *low = if *v < *low { *v } else { *low };
            *high = if *v > *high { *v } else { *high };
        }
    }
    let mut low = lows.into_iter().fold(f64::INFINITY, f64::min);
    let mut high = highs.into_iter().fold(f64::NEG_INFINITY, f64::max);
    // Comparison treats the two zeros as equal, total order does not.
    let has = |bits: u64| values.iter().any(|v| v.to_bits() == bits);
    if low == 0.0 {
        low = if has((-0.0f64).to_bits()) { -0.0 } else { 0.0 };
    }
    if high == 0.0 {
        high = if has(0.0f64.to_bits()) { 0.0 } else { -0.0 };
    }
    (low, high)
}

/// Sum of squares of differences from the mean, corrected by their sum.
#[inline(always)]
fn set_m2<T>(values: &[T], difference: impl Fn(&T) -> f64, out: &mut Aggregate) {
    let (sum, rest) = sum_blocks(values, &difference);
    let (squares, squares_rest) = sum_blocks(values, |v| difference(v) * difference(v));
    let sum = sum + rest;
    let (m2, carry) = add_compensated(squares, squares_rest, -(sum * (sum / values.len() as f64)));
    out.m2 = m2.max(0.0);
    out.carry.m2 = carry;
}
