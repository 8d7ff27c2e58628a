//! Lists of 128-bit sums, nearly always narrow: a unit and integer blocks, or sixteen bytes each.

use super::{cut, inside};
use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::pack::{Scratch, put_integers, skip_integers};
use std::ops::Range;

/// Powers of a thousand that sums of times are divided by when all are multiples.
const UNITS: [i64; 4] = [1, 1_000, 1_000_000, 1_000_000_000];
/// Instead of a unit: sixteen bytes each.
const WIDE: u8 = 255;

pub(super) fn put_wide(values: &[i128], out: &mut Vec<u8>) {
    let unit = UNITS
        .iter()
        .rposition(|unit| values.iter().all(|v| v % i128::from(*unit) == 0))
        .unwrap_or(0);
    let divisor = i128::from(UNITS.get(unit).copied().unwrap_or(1));
    let narrow: Option<Vec<i64>> = values
        .iter()
        .map(|v| i64::try_from(v / divisor).ok())
        .collect();
    match narrow {
        Some(narrow) => {
            out.put_u8(unit as u8);
            put_integers(&narrow, out);
        }
        None => {
            out.put_u8(WIDE);
            for v in values {
                out.extend_from_slice(&v.to_le_bytes());
            }
        }
    }
}

pub(super) fn take_i128(
    cursor: &mut Cursor<'_>,
    expected: &'static str,
) -> Result<i128, DecodeError> {
    let low = cursor.u64(expected)?;
    let high = cursor.i64(expected)?;
    Ok(i128::from(high) << 64 | i128::from(low))
}

pub(super) fn skip_wide(cursor: &mut Cursor<'_>, count: usize) -> Result<(), DecodeError> {
    match cursor.u8("a unit of sums")? {
        WIDE => cursor.take(count.saturating_mul(16), "wide sums").map(drop),
        _ => skip_integers(cursor, count),
    }
}

/// Sums as they were read.
pub(super) enum WideSums<'a> {
    /// Each is a number times the factor.
    Narrow(&'a [i64], i64),
    Wide(Vec<i128>),
}

impl WideSums<'_> {
    pub(super) fn iter(&self) -> impl Iterator<Item = i128> + '_ {
        let (narrow, factor, wide) = match self {
            WideSums::Narrow(narrow, factor) => (*narrow, *factor, &[][..]),
            WideSums::Wide(wide) => (&[][..], 1, wide.as_slice()),
        };
        let factor = i128::from(factor);
        let narrow = narrow.iter().map(move |v| i128::from(*v) * factor);
        narrow.chain(wide.iter().copied())
    }
}

/// Reads `count` sums, and returns those in `part`.
pub(super) fn take_wide<'a>(
    cursor: &mut Cursor<'_>,
    count: usize,
    part: &Range<usize>,
    scratch: &'a mut Scratch,
) -> Result<WideSums<'a>, DecodeError> {
    let unit = cursor.u8("a unit of sums")?;
    if unit == WIDE {
        let all: Result<Vec<i128>, DecodeError> = (0..count)
            .map(|_| take_i128(cursor, "a wide sum"))
            .collect();
        return Ok(WideSums::Wide(cut(all?, part)));
    }
    let Some(factor) = UNITS.get(usize::from(unit)) else {
        return Err(cursor.expected("a unit of sums below 4"));
    };
    let narrow = scratch.take(cursor, count)?;
    Ok(WideSums::Narrow(inside(narrow, part), *factor))
}
