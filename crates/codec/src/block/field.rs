//! The aggregates of one field in a block, column by column.

use super::moments::{Sums, from_ordered, ordered};
use super::plain::{put_plain, take_plain};
use super::wide::{put_wide, skip_wide, take_wide};
use super::{cut, inside};
use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::decimal::{from_integer, places_of, power, to_integer};
use crate::pack::{Scratch, put_integers, skip_integers, take_integers};
use headwater_types::FieldType;
use headwater_types::aggregate::Carry;
use headwater_types::{Aggregate, Extremes};
use std::ops::Range;

/// Bits of the head byte, beside the type in the low three.
const COUNTS: u8 = 1 << 3;
const NOT_FINITE: u8 = 1 << 4;
const OWN_TIMES: u8 = 1 << 5;
const PLAIN: u8 = 1 << 6;

/// Bits of the byte before the moments.
const DECIMAL: u8 = 1;
const MEAN_FROM_SUM: u8 = 2;
const M2_FROM_SQUARES: u8 = 4;
const M2_SETTLED: u8 = 8;

/// Writes header and aggregates; `before` are the previous field's.
pub(super) fn put(
    field_type: FieldType,
    aggregates: &[Aggregate],
    rows: &[u64],
    middles: &[i128],
    before: Option<&[Aggregate]>,
    out: &mut Vec<u8>,
) {
    if !aggregates.iter().all(|a| is_regular(field_type, a)) {
        out.put_u8(field_type as u8 | PLAIN);
        put_plain(aggregates, out);
        return;
    }
    let counts = aggregates.iter().zip(rows).any(|(a, r)| a.count != *r);
    let not_finite = aggregates.iter().any(|a| a.finite() != a.count);
    let own_times = before.is_none_or(|before| {
        aggregates
            .iter()
            .zip(before)
            .any(|(a, b)| a.time_sum != b.time_sum)
    });
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.put_u8(
        field_type as u8
            | flag(counts, COUNTS)
            | flag(not_finite, NOT_FINITE)
            | flag(own_times, OWN_TIMES),
    );
    if counts {
        let missing: Vec<i64> = aggregates
            .iter()
            .zip(rows)
            .map(|(a, r)| r.wrapping_sub(a.count) as i64)
            .collect();
        put_integers(&missing, out);
    }
    if not_finite {
        put_each(aggregates, |a| a.nan as i64, out);
        put_each(aggregates, |a| a.positive_infinite as i64, out);
        put_each(aggregates, |a| a.negative_infinite as i64, out);
    }
    if own_times {
        let offsets: Vec<i128> = aggregates
            .iter()
            .zip(middles)
            .map(|(a, middle)| {
                let expected = middle.wrapping_mul(i128::from(a.count));
                a.time_sum.wrapping_sub(expected)
            })
            .collect();
        put_wide(&offsets, out);
    }
    let active: Vec<&Aggregate> = aggregates.iter().filter(|a| a.finite() > 0).collect();
    if active.is_empty() {
        return;
    }
    match field_type {
        FieldType::F64 => put_floats(&active, out),
        FieldType::I64 | FieldType::U64 | FieldType::Bool => put_numbers(&active, out),
        FieldType::String | FieldType::Bytes => {}
    }
}

/// Whether the aggregate can be encoded column by column, as all results of [`Aggregate::of`] and
/// of merging can.
fn is_regular(field_type: FieldType, a: &Aggregate) -> bool {
    let zero = 0.0f64.to_bits();
    let odd = a
        .nan
        .checked_add(a.positive_infinite)
        .and_then(|odd| odd.checked_add(a.negative_infinite));
    let Some(finite) = odd.and_then(|odd| a.count.checked_sub(odd)) else {
        return false;
    };
    let (no_mean, no_m2) = (a.mean.to_bits() == zero, a.m2.to_bits() == zero);
    if !field_type.is_numeric() || finite == 0 {
        return a.extremes == Extremes::None && no_mean && no_m2 && a.sum == 0;
    }
    match (field_type, a.extremes) {
        (FieldType::F64, Extremes::F64(..)) => a.sum == 0,
        (FieldType::I64 | FieldType::Bool, Extremes::I64(..)) => no_mean && odd == Some(0),
        (FieldType::U64, Extremes::U64(..)) => no_mean && odd == Some(0),
        _ => false,
    }
}

fn put_each(aggregates: &[Aggregate], f: impl Fn(&Aggregate) -> i64, out: &mut Vec<u8>) {
    let values: Vec<i64> = aggregates.iter().map(f).collect();
    put_integers(&values, out);
}

/// Half of the maximum sum of differences from the smallest value.
fn expected_sum(finite: u64, spread: u64) -> i128 {
    i128::from(finite).wrapping_mul(i128::from(spread)) / 2
}

fn extremes_f64(a: &Aggregate) -> (f64, f64) {
    match a.extremes {
        Extremes::F64(low, high) => (low, high),
        _ => (0.0, 0.0),
    }
}

fn put_floats(active: &[&Aggregate], out: &mut Vec<u8>) {
    let places = active.iter().try_fold(0, |places, a| {
        let (low, high) = extremes_f64(a);
        places_of(high, places_of(low, places)?)
    });
    let decimal = places.and_then(|places| decimal_floats(active, places));
    let plain = plain_floats(active);
    match decimal {
        Some(decimal) if decimal.len() < plain.len() => out.extend_from_slice(&decimal),
        _ => out.extend_from_slice(&plain),
    }
}

fn plain_floats(active: &[&Aggregate]) -> Vec<u8> {
    let mut out = Vec::with_capacity(active.len() * 24);
    out.put_u8(0);
    let of = |f: &dyn Fn(&Aggregate) -> i64| active.iter().map(|a| f(a)).collect::<Vec<_>>();
    put_integers(&of(&|a| ordered(extremes_f64(a).0)), &mut out);
    put_integers(
        &of(&|a| ordered(extremes_f64(a).1).wrapping_sub(ordered(extremes_f64(a).0))),
        &mut out,
    );
    put_integers(
        &of(&|a| ordered(a.mean).wrapping_sub(ordered(extremes_f64(a).0))),
        &mut out,
    );
    put_m2_bits(active, &mut out);
    out
}

/// M2 without the low bits that are zero everywhere.
fn put_m2_bits(active: &[&Aggregate], out: &mut Vec<u8>) {
    let shift = active
        .iter()
        .map(|a| a.m2.to_bits().trailing_zeros().min(63))
        .min()
        .unwrap_or(0);
    out.put_u8(shift as u8);
    let values: Vec<i64> = active
        .iter()
        .map(|a| (a.m2.to_bits() >> shift) as i64)
        .collect();
    put_integers(&values, out);
}

/// Reads M2 of `count` aggregates, and returns those in `part`.
fn take_m2_bits(
    cursor: &mut Cursor<'_>,
    count: usize,
    part: &Range<usize>,
    active: &mut [&mut Aggregate],
) -> Result<(), DecodeError> {
    let shift = cursor.u8("a shift of M2")?;
    if shift > 63 {
        return Err(cursor.expected("a shift of M2 below 64"));
    }
    let mut scratch = Scratch::new();
    let values = inside(scratch.take(cursor, count)?, part);
    for (a, value) in active.iter_mut().zip(values) {
        a.m2 = f64::from_bits((*value as u64) << shift);
    }
    Ok(())
}

/// Moments of floats whose extremes are decimals; `None` if one is not.
fn decimal_floats(active: &[&Aggregate], places: u8) -> Option<Vec<u8>> {
    let power = power(places)?;
    let mut lows = Vec::with_capacity(active.len());
    let mut spreads = Vec::with_capacity(active.len());
    for a in active {
        let (low, high) = extremes_f64(a);
        let low = to_integer(low, places)?;
        lows.push(low);
        spreads.push(to_integer(high, places)?.wrapping_sub(low));
    }
    let mut out = vec![DECIMAL, places];
    put_integers(&lows, &mut out);
    put_integers(&spreads, &mut out);
    let sums = sums_of_means(active, &lows, power);
    let from_sum = sums.as_ref().map(|sums| {
        let mut out = Vec::with_capacity(active.len() * 4);
        put_sums(sums, &spreads, &mut out);
        let rest: Vec<i64> = active
            .iter()
            .zip(sums)
            .map(|(a, s)| ordered(a.mean).wrapping_sub(ordered(s.mean(power))))
            .collect();
        put_integers(&rest, &mut out);
        out
    });
    let mut direct = Vec::new();
    let means: Vec<i64> = active
        .iter()
        .map(|a| ordered(a.mean).wrapping_sub(ordered(extremes_f64(a).0)))
        .collect();
    put_integers(&means, &mut direct);
    let mut flags = DECIMAL;
    match (sums, from_sum) {
        (Some(sums), Some(bytes)) if bytes.len() < direct.len() => {
            flags |= MEAN_FROM_SUM;
            out.extend_from_slice(&bytes);
            flags |= put_m2(active, &sums, power, &mut out);
        }
        _ => {
            out.extend_from_slice(&direct);
            put_m2_bits(active, &mut out);
        }
    }
    if let Some(head) = out.first_mut() {
        *head = flags;
    }
    Some(out)
}

/// Sums derived from the means, if they are small enough.
fn sums_of_means(active: &[&Aggregate], lows: &[i64], power: f64) -> Option<Vec<Sums>> {
    active
        .iter()
        .zip(lows)
        .map(|(a, low)| {
            let (finite, low) = (a.finite(), i128::from(*low));
            let sum = Sums::sum_for(a.mean, finite, low, power)?;
            Some(Sums { finite, low, sum })
        })
        .collect()
}

fn put_sums(sums: &[Sums], spreads: &[i64], out: &mut Vec<u8>) {
    let values: Vec<i128> = sums
        .iter()
        .zip(spreads)
        .map(|(s, spread)| s.sum.wrapping_sub(expected_sum(s.finite, *spread as u64)))
        .collect();
    put_wide(&values, out);
}

/// Encodes M2 by squares if that is smaller; returns the flags of the encoding.
fn put_m2(active: &[&Aggregate], sums: &[Sums], power: f64, out: &mut Vec<u8>) -> u8 {
    let mut direct = Vec::new();
    put_m2_bits(active, &mut direct);
    let ts: Option<Vec<i64>> = active
        .iter()
        .zip(sums)
        .map(|(a, s)| s.t_for(a.m2, power))
        .collect();
    let mut best = (0, direct);
    if let Some(ts) = ts {
        let mut squares = Vec::new();
        put_integers(&ts, &mut squares);
        for settle in [true, false] {
            let rest: Vec<i64> = active
                .iter()
                .zip(sums)
                .zip(&ts)
                .map(|((a, s), t)| {
                    let mean = a.mean().unwrap_or_default();
                    ordered(a.m2).wrapping_sub(ordered(s.m2(*t, power, mean, settle)))
                })
                .collect();
            let mut bytes = squares.clone();
            put_integers(&rest, &mut bytes);
            if bytes.len() < best.1.len() {
                let settled = if settle { M2_SETTLED } else { 0 };
                best = (M2_FROM_SQUARES | settled, bytes);
            }
        }
    }
    out.extend_from_slice(&best.1);
    best.0
}

/// Integers and booleans: extremes, exact sums, M2.
fn put_numbers(active: &[&Aggregate], out: &mut Vec<u8>) {
    let mut lows = Vec::with_capacity(active.len());
    let mut spreads = Vec::with_capacity(active.len());
    let mut sums = Vec::with_capacity(active.len());
    for a in active {
        let (low, high, wide) = match a.extremes {
            Extremes::I64(low, high) => (low, high, i128::from(low)),
            Extremes::U64(low, high) => (low as i64, high as i64, i128::from(low)),
            Extremes::F64(..) | Extremes::None => (0, 0, 0),
        };
        let finite = a.finite();
        lows.push(low);
        spreads.push(high.wrapping_sub(low));
        sums.push(Sums {
            finite,
            low: wide,
            sum: a.sum.wrapping_sub(wide.wrapping_mul(i128::from(finite))),
        });
    }
    let at = out.len();
    out.put_u8(0);
    put_integers(&lows, out);
    put_integers(&spreads, out);
    put_sums(&sums, &spreads, out);
    let flags = put_m2(active, &sums, 1.0, out);
    if let Some(head) = out.get_mut(at) {
        *head = flags;
    }
}

/// Context for reading the fields of a block.
pub(super) struct Shape<'a> {
    /// Rows of every bucket.
    pub(super) rows: &'a [u64],
    /// The requested buckets, by their positions.
    pub(super) part: &'a Range<usize>,
    /// Middles of those buckets.
    pub(super) middles: &'a [i128],
}

/// Reads the bytes of [`put`], and returns the aggregates of the requested buckets. Of a field that
/// is not `wanted` only counts and sums of times are valid, since the next field's may depend on
/// them. `before` are the same buckets of the previous field.
pub(super) fn take(
    cursor: &mut Cursor<'_>,
    shape: &Shape<'_>,
    before: Option<&[Aggregate]>,
    wanted: bool,
) -> Result<(FieldType, Vec<Aggregate>), DecodeError> {
    let Shape {
        rows,
        part,
        middles,
    } = *shape;
    let head = cursor.u8("the head of a field")?;
    let field_type = FieldType::from_number(head & 7)
        .ok_or_else(|| cursor.expected("a field type from 1 to 6"))?;
    if head & PLAIN != 0 {
        if head & !(7 | PLAIN) != 0 {
            return Err(cursor.expected("no flags beside plain"));
        }
        return Ok((field_type, cut(take_plain(cursor, rows.len())?, part)));
    }
    if head >> 7 != 0 {
        return Err(cursor.expected("field flags below 128"));
    }
    let mut out: Vec<Aggregate> = rows
        .iter()
        .map(|count| Aggregate {
            count: *count,
            ..Aggregate::EMPTY
        })
        .collect();
    if head & COUNTS != 0 {
        let missing = take_integers(cursor, rows.len())?;
        for (a, missing) in out.iter_mut().zip(missing) {
            a.count = a.count.wrapping_sub(missing as u64);
        }
    }
    if head & NOT_FINITE != 0 {
        let nan = take_integers(cursor, rows.len())?;
        let positive = take_integers(cursor, rows.len())?;
        let negative = take_integers(cursor, rows.len())?;
        for (((a, nan), positive), negative) in out.iter_mut().zip(nan).zip(positive).zip(negative)
        {
            a.nan = nan as u64;
            a.positive_infinite = positive as u64;
            a.negative_infinite = negative as u64;
        }
    }
    // The places of a list with a value for each bucket that has finite ones.
    let filled = |list: &[Aggregate]| list.iter().filter(|a| a.finite() > 0).count();
    let count = filled(&out);
    let skipped = filled(out.get(..part.start).unwrap_or_default());
    let mut scratch = Scratch::new();
    let offsets = match head & OWN_TIMES {
        0 => None,
        _ => Some(take_wide(cursor, rows.len(), part, &mut scratch)?),
    };
    let mut out = cut(out, part);
    match (offsets, before) {
        (Some(offsets), _) => {
            for ((a, offset), middle) in out.iter_mut().zip(offsets.iter()).zip(middles) {
                let expected = middle.wrapping_mul(i128::from(a.count));
                a.time_sum = offset.wrapping_add(expected);
            }
        }
        (None, Some(before)) => {
            for (a, b) in out.iter_mut().zip(before) {
                a.time_sum = b.time_sum;
            }
        }
        (None, None) => return Err(cursor.expected("sums of times of the first field")),
    }
    if field_type.is_numeric() && count > 0 {
        if wanted {
            let mut active: Vec<&mut Aggregate> =
                out.iter_mut().filter(|a| a.finite() > 0).collect();
            let part = skipped..skipped + active.len();
            take_moments(cursor, field_type, count, &part, &mut active)?;
        } else {
            skip_moments(cursor, field_type, count)?;
        }
    }
    Ok((field_type, out))
}

/// Reads the form of a field's moments: its flags, and the power of ten of its decimals.
fn take_form(cursor: &mut Cursor<'_>, float: bool) -> Result<(u8, f64), DecodeError> {
    let flags = cursor.u8("encoding of mean and M2")?;
    let known = if float && flags & DECIMAL != 0 {
        DECIMAL | MEAN_FROM_SUM | M2_FROM_SQUARES | M2_SETTLED
    } else if float {
        0
    } else {
        M2_FROM_SQUARES | M2_SETTLED
    };
    if flags & !known != 0 {
        return Err(cursor.expected("a known encoding of mean and M2"));
    }
    if flags & DECIMAL == 0 {
        return Ok((flags, 1.0));
    }
    let places = cursor.u8("decimal places")?;
    match power(places) {
        Some(power) => Ok((flags, power)),
        None => Err(cursor.expected("at most 12 decimal places")),
    }
}

/// Skips the moments of `count` aggregates.
fn skip_moments(
    cursor: &mut Cursor<'_>,
    field_type: FieldType,
    count: usize,
) -> Result<(), DecodeError> {
    let float = field_type == FieldType::F64;
    let (flags, _) = take_form(cursor, float)?;
    // Smallest values and spreads.
    skip_integers(cursor, count)?;
    skip_integers(cursor, count)?;
    if !float || flags & MEAN_FROM_SUM != 0 {
        skip_wide(cursor, count)?;
    }
    if float {
        skip_integers(cursor, count)?;
    }
    if flags & M2_FROM_SQUARES == 0 {
        cursor.u8("a shift of M2")?;
    } else {
        skip_integers(cursor, count)?;
    }
    skip_integers(cursor, count)
}

/// Reads the moments of `count` aggregates, and returns those in `part`.
fn take_moments(
    cursor: &mut Cursor<'_>,
    field_type: FieldType,
    count: usize,
    part: &Range<usize>,
    active: &mut [&mut Aggregate],
) -> Result<(), DecodeError> {
    let (mut lows, mut spreads, mut scratch) = (Scratch::new(), Scratch::new(), Scratch::new());
    let float = field_type == FieldType::F64;
    let (flags, power) = take_form(cursor, float)?;
    let decimal = flags & DECIMAL != 0;
    let lows = inside(lows.take(cursor, count)?, part);
    let spreads = inside(spreads.take(cursor, count)?, part);
    for ((a, low), spread) in active.iter_mut().zip(lows).zip(spreads) {
        let high = low.wrapping_add(*spread);
        a.extremes = match field_type {
            FieldType::F64 if decimal => {
                Extremes::F64(from_integer(*low, power), from_integer(high, power))
            }
            FieldType::F64 => Extremes::F64(from_ordered(*low), from_ordered(high)),
            FieldType::U64 => Extremes::U64(*low as u64, high as u64),
            _ => Extremes::I64(*low, high),
        };
    }
    let mut sums = Vec::with_capacity(active.len());
    if !float || flags & MEAN_FROM_SUM != 0 {
        let differences = take_wide(cursor, count, part, &mut scratch)?;
        for (((a, low), spread), difference) in
            active.iter().zip(lows).zip(spreads).zip(differences.iter())
        {
            let finite = a.finite();
            let low = match field_type {
                FieldType::U64 => i128::from(*low as u64),
                _ => i128::from(*low),
            };
            let sum = difference.wrapping_add(expected_sum(finite, *spread as u64));
            sums.push(Sums { finite, low, sum });
        }
    }
    if !float {
        for (a, s) in active.iter_mut().zip(&sums) {
            a.sum = s.sum.wrapping_add(s.low.wrapping_mul(i128::from(s.finite)));
        }
    } else {
        let rest = inside(scratch.take(cursor, count)?, part);
        for (index, (a, rest)) in active.iter_mut().zip(rest).enumerate() {
            let base = match sums.get(index) {
                Some(s) => s.mean(power),
                None => extremes_f64(a).0,
            };
            a.mean = from_ordered(ordered(base).wrapping_add(*rest));
        }
    }
    if flags & M2_FROM_SQUARES == 0 {
        return take_m2_bits(cursor, count, part, active);
    }
    if sums.len() != active.len() {
        return Err(cursor.expected("sums beside squares"));
    }
    let settle = flags & M2_SETTLED != 0;
    let mut more = Scratch::new();
    let ts = inside(scratch.take(cursor, count)?, part);
    let rest = inside(more.take(cursor, count)?, part);
    for (((a, s), t), rest) in active.iter_mut().zip(&sums).zip(ts).zip(rest) {
        let mean = a.mean().unwrap_or_default();
        let base = s.m2(*t, power, mean, settle);
        a.m2 = from_ordered(ordered(base).wrapping_add(*rest));
        a.carry = Carry::NONE;
    }
    Ok(())
}
