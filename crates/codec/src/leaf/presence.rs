//! Presence of the rows of a column: all, a bitmap, or run lengths, whichever is smallest.

use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::presence::{bits_from, put_bits};
use headwater_types::Bitmap;

pub(super) const ALL: u8 = 0;
pub(super) const BITMAP: u8 = 1;
pub(super) const RUNS: u8 = 2;

pub(super) fn name(kind: u8) -> &'static str {
    match kind {
        ALL => "all",
        BITMAP => "bitmap",
        RUNS => "runs",
        _ => "unknown",
    }
}

/// Appends the smaller form and returns its number. Runs start with absent rows and alternate; the
/// last is omitted.
pub(super) fn put(bits: Option<&Bitmap>, out: &mut Vec<u8>) -> u8 {
    let Some(bits) = bits else {
        return ALL;
    };
    let limit = bits.len().div_ceil(8);
    let mut runs = Vec::with_capacity(limit.min(256));
    let (mut state, mut start, mut count) = (false, 0, 0u64);
    let mut at = 0;
    while at < bits.len() && runs.len() < limit {
        at = next_change(bits, at, state);
        if at < bits.len() {
            runs.put_varint((at - start) as u64);
            count += 1;
            start = at;
            state = !state;
        }
    }
    let mut head = Vec::new();
    head.put_varint(count);
    if at >= bits.len() && head.len() + runs.len() < limit {
        out.extend_from_slice(&head);
        out.extend_from_slice(&runs);
        RUNS
    } else {
        put_bits(bits, out);
        BITMAP
    }
}

/// First index from `at` on whose bit is not `state`, or the length.
fn next_change(bits: &Bitmap, at: usize, state: bool) -> usize {
    let mut at = at;
    while at < bits.len() {
        let word = bits.words().get(at / 64).copied().unwrap_or(0);
        let other = if state { !word } else { word } >> (at % 64);
        if other != 0 {
            return (at + other.trailing_zeros() as usize).min(bits.len());
        }
        at = (at / 64 + 1) * 64;
    }
    bits.len()
}

/// Reads the bytes of [`put`].
pub(super) fn take(
    kind: u8,
    rows: usize,
    cursor: &mut Cursor<'_>,
) -> Result<Option<Bitmap>, DecodeError> {
    match kind {
        ALL => Ok(None),
        BITMAP => {
            let bytes = cursor.take(rows.div_ceil(8), "the bits of present rows")?;
            Ok(bits_from(bytes, rows))
        }
        RUNS => {
            let most = rows.min(cursor.remaining()) as u64;
            let count = cursor.varint_up_to(most, "a number of runs of present rows")?;
            let mut bits = Bitmap::default();
            let mut state = false;
            for _ in 0..count {
                let left = (rows - bits.len()) as u64;
                bits.push_many(state, cursor.varint_up_to(left, "a run of present rows")?);
                state = !state;
            }
            bits.push_many(state, rows - bits.len());
            Ok(Some(bits))
        }
        _ => Err(cursor.expected("a presence codec below 3")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn both_forms_round_trip() {
        for (rows, every, kind) in [
            (300, 2, BITMAP),
            (2048, 700, RUNS),
            (5, 3, BITMAP),
            (64, 64, RUNS),
            (4096, 4095, RUNS),
        ] {
            for flip in [false, true] {
                let mut bits = Bitmap::default();
                for i in 0..rows {
                    bits.push((i % every == 0) ^ flip);
                }
                let mut out = Vec::new();
                assert_eq!(put(Some(&bits), &mut out), kind, "{rows} {every}");
                let mut cursor = Cursor::new(&out);
                assert_eq!(take(kind, rows, &mut cursor).unwrap().unwrap(), bits);
                cursor.finish().unwrap();
            }
        }
    }
}
