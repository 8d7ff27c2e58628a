//! Blocks of up to 256 integers in as few bits as their range, or the range of their differences,
//! needs.
//!
//! A block is a tag byte, one or two zigzag varints and the packed bits (docs/format/light.md,
//! "integer block"). All arithmetic wraps, so any `i64` values round-trip. Invariant: a block can
//! be decoded from its bytes and the number of its values; decoding reads exactly the encoded
//! bytes. Failure: a bad tag or too few bytes is a [`DecodeError`]; no memory is allocated.

mod bits;
mod bools;

pub(crate) use bools::{pack_bools, unpack_bools};

use crate::bytes::{Cursor, DecodeError, PutBytes};
use bits::{pack, packed_len, unpack};

/// Values in a full block.
pub(crate) const BLOCK: usize = 256;

/// Tags from here on: differences, of width `tag - DELTA`.
const DELTA: u8 = 65;
/// Tags from here on are not in use.
const TAG_END: u8 = 130;

/// The best encoding of a block.
#[derive(Clone, Copy)]
struct Plan {
    delta: bool,
    width: u8,
    /// Smallest value, or the value before the first.
    base: i64,
    /// Smallest difference.
    least: i64,
}

fn width_of(range: u64) -> u8 {
    (64 - range.leading_zeros()) as u8
}

/// Bytes of a zigzag varint.
fn signed_len(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    usize::from(width_of(raw | 1)).div_ceil(7)
}

fn plan(values: &[i64]) -> Plan {
    let first = values.first().copied().unwrap_or_default();
    let (mut low, mut high) = (first, first);
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    let mut before = first;
    for v in values.iter().skip(1) {
        let difference = v.wrapping_sub(before);
        before = *v;
        low = low.min(*v);
        high = high.max(*v);
        least = least.min(difference);
        most = most.max(difference);
    }
    let direct = Plan {
        delta: false,
        width: width_of(high.wrapping_sub(low) as u64),
        base: low,
        least: 0,
    };
    if values.len() < 3 {
        return direct;
    }
    let delta = Plan {
        delta: true,
        width: width_of(most.wrapping_sub(least) as u64),
        base: first.wrapping_sub(least),
        least,
    };
    if delta.len(values.len()) < direct.len(values.len()) {
        delta
    } else {
        direct
    }
}

impl Plan {
    fn len(&self, count: usize) -> usize {
        let head = if self.delta {
            1 + signed_len(self.base) + signed_len(self.least)
        } else {
            1 + signed_len(self.base)
        };
        head + packed_len(count, self.width)
    }
}

/// Bytes that [`put_block`] would write.
pub(crate) fn block_len(values: &[i64]) -> usize {
    plan(values).len(values.len())
}

/// Writes one block of at most 256 values.
pub(crate) fn put_block(values: &[i64], out: &mut Vec<u8>) {
    let plan = plan(values);
    let Plan {
        delta,
        width,
        base,
        least,
    } = plan;
    if delta {
        out.put_u8(DELTA + width);
        out.put_signed(base);
        out.put_signed(least);
        let mut before = base;
        let raw = values.iter().map(|v| {
            let raw = v.wrapping_sub(before).wrapping_sub(least) as u64;
            before = *v;
            raw
        });
        pack(raw, width, out);
    } else {
        out.put_u8(width);
        out.put_signed(base);
        pack(
            values.iter().map(|v| v.wrapping_sub(base) as u64),
            width,
            out,
        );
    }
}

/// Reads the header before the packed bits of `count` values, and returns the number of packed
/// bytes.
fn take_head(cursor: &mut Cursor<'_>, count: usize) -> Result<(Plan, usize), DecodeError> {
    let tag = cursor.u8("integer block tag")?;
    if tag >= TAG_END {
        return Err(cursor.expected("an integer block tag below 130"));
    }
    let (delta, width) = if tag >= DELTA {
        (true, tag - DELTA)
    } else {
        (false, tag)
    };
    let base = cursor.signed("integer block base")?;
    let least = if delta {
        cursor.signed("integer block least difference")?
    } else {
        0
    };
    let plan = Plan {
        delta,
        width,
        base,
        least,
    };
    Ok((plan, packed_len(count, width)))
}

/// Reads one block into `out`, whose length is the number of values: at most 256.
pub(crate) fn take_block(cursor: &mut Cursor<'_>, out: &mut [i64]) -> Result<(), DecodeError> {
    let (plan, packed) = take_head(cursor, out.len())?;
    let Plan {
        delta,
        width,
        base,
        least,
    } = plan;
    let packed = cursor.take(packed, "packed integers")?;
    if width == 0 {
        if delta {
            let mut value = base;
            for slot in out {
                value = value.wrapping_add(least);
                *slot = value;
            }
        } else {
            out.fill(base);
        }
        return Ok(());
    }
    unpack(packed, width, out);
    if delta {
        let mut value = base;
        for slot in out {
            value = value.wrapping_add(least).wrapping_add(*slot);
            *slot = value;
        }
    } else {
        for slot in out {
            *slot = slot.wrapping_add(base);
        }
    }
    Ok(())
}

/// Writes any number of values as blocks, one after the other.
pub(crate) fn put_integers(values: &[i64], out: &mut Vec<u8>) {
    for block in values.chunks(BLOCK) {
        put_block(block, out);
    }
}

/// Reads `count` values that [`put_integers`] wrote. The caller has bounded `count`.
pub(crate) fn take_integers(
    cursor: &mut Cursor<'_>,
    count: usize,
) -> Result<Vec<i64>, DecodeError> {
    if cursor.remaining() < count.div_ceil(BLOCK).saturating_mul(2) {
        return Err(cursor.expected("two bytes for each integer block"));
    }
    let mut out = vec![0i64; count];
    for block in out.chunks_mut(BLOCK) {
        take_block(cursor, block)?;
    }
    Ok(out)
}

/// Scratch space for a list of at most [`BLOCK`] values that is read once, without an allocation.
pub(crate) struct Scratch([i64; BLOCK]);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch([0; BLOCK])
    }

    /// As [`take_integers`], for at most [`BLOCK`] values.
    pub(crate) fn take(
        &mut self,
        cursor: &mut Cursor<'_>,
        count: usize,
    ) -> Result<&[i64], DecodeError> {
        let Some(out) = self.0.get_mut(..count) else {
            return Err(cursor.expected("at most 256 integers"));
        };
        if count > 0 {
            take_block(cursor, out)?;
        }
        Ok(out)
    }
}

/// Skips `count` values encoded by [`put_integers`].
pub(crate) fn skip_integers(cursor: &mut Cursor<'_>, count: usize) -> Result<(), DecodeError> {
    for start in (0..count).step_by(BLOCK) {
        let (_, packed) = take_head(cursor, (count - start).min(BLOCK))?;
        cursor.take(packed, "packed integers")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn check(values: &[i64]) {
        let mut out = Vec::new();
        put_integers(values, &mut out);
        let len: usize = values.chunks(BLOCK).map(block_len).sum();
        assert_eq!(out.len(), len);
        let mut cursor = Cursor::new(&out);
        assert_eq!(take_integers(&mut cursor, values.len()).unwrap(), values);
        cursor.finish().unwrap();
        let mut scratch = Scratch::new();
        let found = scratch.take(&mut Cursor::new(&out), values.len());
        match values.len() {
            ..=BLOCK => assert_eq!(found.unwrap(), values),
            _ => assert!(found.is_err()),
        }
        let mut cursor = Cursor::new(&out);
        skip_integers(&mut cursor, values.len()).unwrap();
        cursor.finish().unwrap();
        for cut in 0..out.len().min(40) {
            assert!(take_integers(&mut Cursor::new(&out[..cut]), values.len()).is_err());
        }
    }

    #[test]
    fn every_width_and_many_lengths_round_trip() {
        for width in 0..=64u32 {
            for count in [1usize, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, 515] {
                let mask = if width == 0 {
                    0
                } else {
                    u64::MAX >> (64 - width)
                };
                let mut x = 0x9e37_79b9_7f4a_7c15u64;
                let values: Vec<i64> = (0..count)
                    .map(|_| {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        ((x ^ (x >> 29)) & mask) as i64
                    })
                    .collect();
                check(&values);
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_round_trip() {
        check(&[i64::MIN, i64::MAX, i64::MIN, 0, -1, 1, i64::MAX, i64::MAX]);
        check(&[i64::MAX; 300]);
        check(
            &(0..1000)
                .map(|i: i64| i.wrapping_mul(i64::MAX / 3))
                .collect::<Vec<_>>(),
        );
    }

    #[test]
    fn a_regular_sequence_takes_a_few_bytes() {
        let values: Vec<i64> = (0..256)
            .map(|i| 1_700_000_000_000_000_000 + i * 1_000_000_000)
            .collect();
        assert!(block_len(&values) <= 16);
    }

    proptest! {
        #[test]
        fn any_values_round_trip(values in prop::collection::vec(any::<i64>(), 1..600)) {
            check(&values);
        }

        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..600), count in 0usize..3000) {
            let _ = take_integers(&mut Cursor::new(&bytes), count);
        }
    }
}
