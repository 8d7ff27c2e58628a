//! Reading of log columns. Every count is checked against the limits, and against the remaining
//! bytes, before memory is allocated.

use super::encode::allowed;
use super::{HEAP_BYTES_MAX, ROWS_MAX, TEXT_BYTES_MAX, UNITS, codec, slot_bytes};
use crate::bytes::{Cursor, DecodeError};
use crate::decimal::{from_integer, power};
use crate::pack::{take_integers, unpack_bools};
use crate::presence::{bits_from, spread};
use crate::text::{ends, look_up};
use headwater_types::Rows;
use headwater_types::{Bitmap, Column, Values, VarBytes};
use headwater_types::{FieldId, FieldType};

/// Memory that may still be allocated.
struct Budget {
    heap: usize,
    text: usize,
}

impl Budget {
    fn take_heap(&mut self, bytes: usize, cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
        match self.heap.checked_sub(bytes) {
            Some(left) => {
                self.heap = left;
                Ok(())
            }
            None => Err(cursor.expected("rows that take at most 1 GiB")),
        }
    }
}

pub(super) fn rows(cursor: &mut Cursor<'_>) -> Result<Rows, DecodeError> {
    let mut budget = Budget {
        heap: HEAP_BYTES_MAX,
        text: TEXT_BYTES_MAX,
    };
    let rows = cursor.varint_up_to(ROWS_MAX as u64, "at most 2^24 rows")?;
    // A column has at least two bytes.
    let most = (cursor.remaining() / 2) as u64;
    let columns = cursor.varint_up_to(most, "a number of columns that fits the bytes left")?;
    budget.take_heap(rows * 8, cursor)?;
    let times = times(cursor, rows)?;
    let mut out = Rows {
        times,
        columns: Vec::with_capacity(columns),
    };
    let mut next = 0u64;
    for _ in 0..columns {
        let skip = cursor.varint("a field")?;
        let field = next
            .checked_add(skip)
            .and_then(|f| u32::try_from(f).ok())
            .ok_or_else(|| cursor.expected("a field below 2^32"))?;
        next = u64::from(field) + 1;
        let column = column(cursor, rows, &mut budget)?;
        out.columns.push((FieldId(field), column));
    }
    Ok(out)
}

fn times(cursor: &mut Cursor<'_>, rows: usize) -> Result<Vec<i64>, DecodeError> {
    if rows == 0 {
        return Ok(Vec::new());
    }
    let unit = cursor.u8("a time unit")?;
    let Some(factor) = UNITS.get(usize::from(unit)) else {
        return Err(cursor.expected("a time unit below 4"));
    };
    let mut times = take_integers(cursor, rows)?;
    if unit > 0 {
        for t in &mut times {
            *t = t.wrapping_mul(*factor);
        }
    }
    Ok(times)
}

fn column(
    cursor: &mut Cursor<'_>,
    rows: usize,
    budget: &mut Budget,
) -> Result<Column, DecodeError> {
    let head = cursor.u8("a column head")?;
    let field_type = FieldType::from_number(head & 7)
        .ok_or_else(|| cursor.expected("a field type from 1 to 6"))?;
    let codec = head >> 4;
    if !allowed(codec, field_type) {
        return Err(cursor.expected("a codec of this field type"));
    }
    budget.take_heap(rows * slot_bytes(field_type), cursor)?;
    let bits = if head & 8 != 0 {
        let bytes = cursor.take(rows.div_ceil(8), "the bits of present rows")?;
        bits_from(bytes, rows)
    } else {
        None
    };
    if codec == codec::ABSENT {
        if bits.is_some() {
            return Err(cursor.expected("no bits for a column without values"));
        }
        return Ok(Column::absent(field_type, rows));
    }
    let count = bits.as_ref().map_or(rows, Bitmap::count_ones);
    if count == 0 {
        return Err(cursor.expected("a present row in a column with values"));
    }
    let values = values(cursor, field_type, codec, count, budget)?;
    spread(values, bits).ok_or_else(|| cursor.expected("UTF-8 text"))
}

fn values(
    cursor: &mut Cursor<'_>,
    field_type: FieldType,
    codec: u8,
    count: usize,
    budget: &mut Budget,
) -> Result<Values, DecodeError> {
    Ok(match field_type {
        FieldType::F64 => Values::F64(floats(cursor, codec, count)?),
        FieldType::I64 => Values::I64(take_integers(cursor, count)?),
        FieldType::U64 => {
            let signed = take_integers(cursor, count)?;
            Values::U64(signed.into_iter().map(|v| v as u64).collect())
        }
        FieldType::Bool => Values::Bool(bools(cursor, codec, count)?),
        FieldType::String => Values::String(text(cursor, codec, count, budget)?),
        FieldType::Bytes => Values::Bytes(text(cursor, codec, count, budget)?),
    })
}

fn floats(cursor: &mut Cursor<'_>, codec: u8, count: usize) -> Result<Vec<f64>, DecodeError> {
    match codec {
        codec::RAW => {
            let bytes = cursor.take(count * 8, "raw floats")?;
            let (words, _) = bytes.as_chunks::<8>();
            Ok(words.iter().map(|w| f64::from_le_bytes(*w)).collect())
        }
        codec::REPEATED => {
            let bits = cursor.u64("a float")?;
            Ok(vec![f64::from_bits(bits); count])
        }
        _ => {
            let places = cursor.u8("decimal places")?;
            let power =
                power(places).ok_or_else(|| cursor.expected("at most 12 decimal places"))?;
            let mut exceptions = Vec::new();
            if codec == codec::DECIMALS_EXCEPT {
                let most = (cursor.remaining() / 9).min(count) as u64;
                let len = cursor.varint_up_to(most, "exceptions that fit the bytes left")?;
                let mut index = 0;
                for _ in 0..len {
                    index += cursor.varint_up_to(count as u64, "the index of an exception")?;
                    exceptions.push((index, cursor.u64("an exception")?));
                }
            }
            let integers = take_integers(cursor, count)?;
            let mut out: Vec<f64> = integers.iter().map(|i| from_integer(*i, power)).collect();
            for (index, bits) in exceptions {
                match out.get_mut(index) {
                    Some(slot) => *slot = f64::from_bits(bits),
                    None => return Err(cursor.expected("the index of an exception")),
                }
            }
            Ok(out)
        }
    }
}

fn bools(cursor: &mut Cursor<'_>, codec: u8, count: usize) -> Result<Vec<bool>, DecodeError> {
    if codec == codec::REPEATED {
        return match cursor.u8("a boolean")? {
            byte @ (0 | 1) => Ok(vec![byte == 1; count]),
            _ => Err(cursor.expected("a boolean")),
        };
    }
    let bytes = cursor.take(count.div_ceil(8), "booleans")?;
    let mut out = Vec::new();
    unpack_bools(bytes, count, &mut out);
    Ok(out)
}

fn text(
    cursor: &mut Cursor<'_>,
    codec: u8,
    count: usize,
    budget: &mut Budget,
) -> Result<VarBytes, DecodeError> {
    const TOO_MUCH: &str = "text of at most 64 MiB";
    let out = match codec {
        codec::REPEATED => {
            let one = cursor.prefixed("a string")?;
            if one.len().saturating_mul(count) > budget.text {
                return Err(cursor.expected(TOO_MUCH));
            }
            let ends = (1..=count).map(|i| (i * one.len()) as u32).collect();
            VarBytes::from_parts(ends, one.repeat(count))
        }
        codec::DICTIONARY => {
            let most = cursor.remaining().min(count) as u64;
            let len = cursor.varint_up_to(most, "a number of dictionary entries")?;
            let entry_lengths = take_integers(cursor, len)?;
            let ends = ends(&entry_lengths, cursor.remaining())
                .ok_or_else(|| cursor.expected("the lengths of dictionary entries"))?;
            let total = ends.last().map_or(0, |end| *end as usize);
            let bytes = cursor.take(total, "dictionary entries")?.to_vec();
            let codes = take_integers(cursor, count)?;
            VarBytes::from_parts(ends, bytes).and_then(|d| look_up(&d, &codes, budget.text))
        }
        _ => {
            let lengths = take_integers(cursor, count)?;
            let ends = ends(&lengths, budget.text).ok_or_else(|| cursor.expected(TOO_MUCH))?;
            let total = ends.last().map_or(0, |end| *end as usize);
            let bytes = if codec == codec::LZ4 {
                let packed = cursor.prefixed("an lz4 block")?;
                // One byte of lz4 decompresses to at most 255.
                if total > packed.len().saturating_mul(256) {
                    return Err(cursor.expected("an lz4 block of the length of its text"));
                }
                let mut bytes = vec![0; total];
                match lz4_flex::block::decompress_into(packed, &mut bytes) {
                    Ok(len) if len == total => bytes,
                    _ => return Err(cursor.expected("an lz4 block of the length of its text")),
                }
            } else {
                cursor.take(total, "text")?.to_vec()
            };
            VarBytes::from_parts(ends, bytes)
        }
    };
    let out = out.ok_or_else(|| cursor.expected("codes of dictionary entries"))?;
    budget.text -= out.bytes().len().min(budget.text);
    Ok(out)
}
