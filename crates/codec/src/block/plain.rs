//! Aggregates one after another, for those that cannot be encoded as columns.

use super::wide::take_i128;
use crate::bytes::{Cursor, DecodeError, PutBytes};
use headwater_types::{Aggregate, Extremes};

/// Writes every part of every aggregate.
pub(super) fn put_plain(aggregates: &[Aggregate], out: &mut Vec<u8>) {
    for a in aggregates {
        for count in [a.count, a.nan, a.positive_infinite, a.negative_infinite] {
            out.put_varint(count);
        }
        let (kind, low, high) = match a.extremes {
            Extremes::None => (0, 0, 0),
            Extremes::F64(low, high) => (1, low.to_bits(), high.to_bits()),
            Extremes::I64(low, high) => (2, low as u64, high as u64),
            Extremes::U64(low, high) => (3, low, high),
        };
        out.put_u8(kind);
        for word in [low, high, a.mean.to_bits(), a.m2.to_bits()] {
            out.put_u64(word);
        }
        out.extend_from_slice(&a.sum.to_le_bytes());
        out.extend_from_slice(&a.time_sum.to_le_bytes());
    }
}

/// Reads the bytes of [`put_plain`].
pub(super) fn take_plain(
    cursor: &mut Cursor<'_>,
    count: usize,
) -> Result<Vec<Aggregate>, DecodeError> {
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        let mut a = Aggregate {
            count: cursor.varint("a count")?,
            nan: cursor.varint("a count of NaN")?,
            positive_infinite: cursor.varint("a count of +Inf")?,
            negative_infinite: cursor.varint("a count of -Inf")?,
            ..Aggregate::EMPTY
        };
        let kind = cursor.u8("a kind of extremes")?;
        let low = cursor.u64("the smallest value")?;
        let high = cursor.u64("the largest value")?;
        a.extremes = match kind {
            0 => Extremes::None,
            1 => Extremes::F64(f64::from_bits(low), f64::from_bits(high)),
            2 => Extremes::I64(low as i64, high as i64),
            3 => Extremes::U64(low, high),
            _ => return Err(cursor.expected("a kind of extremes below 4")),
        };
        a.mean = f64::from_bits(cursor.u64("a mean")?);
        a.m2 = f64::from_bits(cursor.u64("an M2")?);
        a.sum = take_i128(cursor, "a sum")?;
        a.time_sum = take_i128(cursor, "a sum of times")?;
        out.push(a);
    }
    Ok(out)
}
