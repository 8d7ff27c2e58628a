//! Columns of floats: decimals as integers, constants, pco, or eight bytes each.

use super::encoding_cache::{Choice, ColumnEncodings, Encoding};
use super::pages::{Pages, Selection};
use super::{codec, integers, pco_pages};
use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::decimal::{decimals, from_integer, power};

/// Minimum number of values for pco: for fewer, its tables cost more than they save.
const PCO_FROM: usize = 96;

/// Appends the payload of at least one value and returns its codec.
pub(super) fn put(
    values: &[f64],
    pages: &Pages,
    known: &mut ColumnEncodings,
    out: &mut Vec<u8>,
) -> u8 {
    let mut whole = Vec::new();
    if let Some(found) = decimals(values, &mut whole) {
        out.put_u8(found.places);
        out.put_varint(found.exceptions.len() as u64);
        let mut before = 0;
        for (index, bits) in &found.exceptions {
            out.put_varint(u64::from(*index - before));
            out.put_u64(*bits);
            before = *index;
        }
        return codec::DECIMAL | integers::put(&whole, pages, &mut known.integers, out);
    }
    if let Some((first, rest)) = values.split_first()
        && rest.iter().all(|v| v.to_bits() == first.to_bits())
    {
        out.put_u64(first.to_bits());
        return codec::CONSTANT;
    }
    if let Some(payload) = pco_payload(values, pages, &mut known.floats) {
        out.extend_from_slice(&payload);
        return codec::PCO;
    }
    out.reserve(values.len() * 8);
    for v in values {
        out.put_u64(v.to_bits());
    }
    codec::RAW
}

/// pco's payload when it saves a thirty-second at least.
fn pco_payload(values: &[f64], pages: &Pages, known: &mut Option<Choice>) -> Option<Vec<u8>> {
    if values.len() < PCO_FROM {
        return None;
    }
    let raw = values.len() * 8;
    let worth = |len: usize| len < raw - raw / 32;
    let bits_of = |len: usize| len as f32 * 8.0 / values.len() as f32;
    let mut chunk = None;
    if let Some(choice) = known {
        choice.age += 1;
        match choice.encoding {
            Encoding::Plain if !choice.is_stale(choice.bits) => return None,
            Encoding::Plain => {}
            Encoding::Pco(mode, order) => {
                chunk = pco_pages::with(values, pages, mode, order)
                    .filter(|chunk| !choice.is_stale(bits_of(chunk.len)));
            }
        }
    }
    if chunk.is_none() {
        let found = pco_pages::search(values, pages)?;
        if !worth(found.len) {
            *known = Some(Choice::new(Encoding::Plain, 64.0));
            return None;
        }
        *known = Some(Choice::new(found.encoding, bits_of(found.len)));
        chunk = Some(found);
    }
    chunk?.write().filter(|payload| worth(payload.len()))
}

/// Reads the selected values.
pub(super) fn take(
    codec: u8,
    cursor: &mut Cursor<'_>,
    pages: &Pages,
    selection: &Selection,
) -> Result<Vec<f64>, DecodeError> {
    match codec {
        codec::CONSTANT => {
            let bits = cursor.u64("a constant")?;
            Ok(vec![f64::from_bits(bits); selection.values.len()])
        }
        codec::RAW => {
            cursor.take(selection.values.start * 8, "floats")?;
            let bytes = cursor.take(selection.values.len() * 8, "floats")?;
            let (words, _) = bytes.as_chunks::<8>();
            Ok(words.iter().map(|w| f64::from_le_bytes(*w)).collect())
        }
        codec::PCO => pco_pages::read(cursor, pages, selection),
        _ if codec & codec::DECIMAL != 0 => {
            let places = cursor.u8("decimal places")?;
            let power =
                power(places).ok_or_else(|| cursor.expected("at most 12 decimal places"))?;
            let most = (cursor.remaining() / 9).min(pages.total()) as u64;
            let count = cursor.varint_up_to(most, "a number of exceptions")?;
            let mut exceptions = Vec::with_capacity(count);
            let mut index = 0usize;
            for _ in 0..count {
                let most = (pages.total() - 1).saturating_sub(index) as u64;
                index += cursor.varint_up_to(most, "the index of an exception")?;
                exceptions.push((index, cursor.u64("an exception")?));
            }
            let integers = integers::take(codec & !codec::DECIMAL, cursor, pages, selection)?;
            let mut out: Vec<f64> = integers.iter().map(|i| from_integer(*i, power)).collect();
            for (index, bits) in exceptions {
                if let Some(slot) = index
                    .checked_sub(selection.values.start)
                    .and_then(|i| out.get_mut(i))
                {
                    *slot = f64::from_bits(bits);
                }
            }
            Ok(out)
        }
        _ => Err(cursor.expected("a codec of floats")),
    }
}
