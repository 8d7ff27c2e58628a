//! Between columns with absent rows and the values that are present, end to end.
//!
//! Invariant: spreading compacted values restores the column; absent slots are zero or empty.

use headwater_types::{Bitmap, Column, Values, VarBytes};
use std::borrow::Cow;

/// Calls `f` with the index of each set bit, ascending.
#[inline(always)]
fn each_set(bits: &Bitmap, mut f: impl FnMut(usize)) {
    for (index, word) in bits.words().iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            f(index * 64 + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}

fn gather<T: Copy>(values: &[T], bits: &Bitmap) -> Vec<T> {
    let mut out = Vec::with_capacity(values.len());
    each_set(bits, |at| out.extend(values.get(at).copied()));
    out
}

fn gather_text(values: &VarBytes, bits: &Bitmap) -> VarBytes {
    let mut out = VarBytes::new();
    each_set(bits, |at| out.push(values.get(at)));
    out
}

/// The present values of a column.
pub(crate) fn compact(column: &Column) -> Cow<'_, Values> {
    let Some(bits) = column.presence() else {
        return Cow::Borrowed(column.values());
    };
    Cow::Owned(match column.values() {
        Values::F64(v) => Values::F64(gather(v, bits)),
        Values::I64(v) => Values::I64(gather(v, bits)),
        Values::U64(v) => Values::U64(gather(v, bits)),
        Values::Bool(v) => Values::Bool(gather(v, bits)),
        Values::String(v) => Values::String(gather_text(v, bits)),
        Values::Bytes(v) => Values::Bytes(gather_text(v, bits)),
    })
}

fn scatter<T: Copy + Default>(values: &[T], bits: &Bitmap) -> Vec<T> {
    let mut out = vec![T::default(); bits.len()];
    let mut values = values.iter();
    each_set(bits, |at| {
        if let (Some(slot), Some(value)) = (out.get_mut(at), values.next()) {
            *slot = *value;
        }
    });
    out
}

fn scatter_text(values: &VarBytes, bits: &Bitmap) -> Option<VarBytes> {
    let mut ends = Vec::with_capacity(bits.len());
    let mut theirs = values.ends().iter();
    let mut end = 0;
    for at in 0..bits.len() {
        if bits.get(at) {
            end = *theirs.next()?;
        }
        ends.push(end);
    }
    VarBytes::from_parts(ends, values.bytes().to_vec())
}

/// Column with these present values; `None` if their number is not the number of set bits, or text
/// is not UTF-8.
pub(crate) fn spread(values: Values, bits: Option<Bitmap>) -> Option<Column> {
    let Some(bits) = bits else {
        return Column::from_parts(values, None);
    };
    if values.len() != bits.count_ones() {
        return None;
    }
    let values = match values {
        Values::F64(v) => Values::F64(scatter(&v, &bits)),
        Values::I64(v) => Values::I64(scatter(&v, &bits)),
        Values::U64(v) => Values::U64(scatter(&v, &bits)),
        Values::Bool(v) => Values::Bool(scatter(&v, &bits)),
        Values::String(v) => Values::String(scatter_text(&v, &bits)?),
        Values::Bytes(v) => Values::Bytes(scatter_text(&v, &bits)?),
    };
    Column::from_parts(values, Some(bits))
}

/// Appends the bits as `ceil(len / 8)` bytes, low bit first.
pub(crate) fn put_bits(bits: &Bitmap, out: &mut Vec<u8>) {
    let end = out.len() + bits.len().div_ceil(8);
    for word in bits.words() {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.truncate(end);
}

/// Bits encoded by [`put_bits`]; `None` if there are too few bytes.
pub(crate) fn bits_from(bytes: &[u8], len: usize) -> Option<Bitmap> {
    let words = bytes
        .chunks(8)
        .map(|chunk| {
            chunk
                .iter()
                .rev()
                .fold(0u64, |word, byte| word << 8 | u64::from(*byte))
        })
        .collect();
    Bitmap::from_words(words, len)
}
