//! Writing of log columns: one look at a column, then the first codec that fits.

use super::{UNITS, codec};
use crate::bytes::PutBytes;
use crate::decimal::{decimals, single};
use crate::pack::{pack_bools, put_integers};
use crate::presence::{compact, put_bits};
use crate::text::{Dictionary, lengths};
use headwater_types::Rows;
use headwater_types::{Column, Values, VarBytes};
use headwater_types::{FieldId, FieldType};

/// Text shorter than this is not worth compressing.
const LZ4_FROM: usize = 64;
/// Most entries of a dictionary.
const DICTIONARY_MAX: usize = 255;

pub(super) fn rows(rows: &Rows, out: &mut Vec<u8>) {
    out.put_varint(rows.len() as u64);
    out.put_varint(rows.columns.len() as u64);
    // Integers of one column after the other.
    let mut integers = Vec::new();
    times(&rows.times, &mut integers, out);
    let mut next = 0u64;
    for (FieldId(field), value) in &rows.columns {
        let field = u64::from(*field);
        assert!(field >= next, "columns rise by field");
        assert!(
            value.len() == rows.len(),
            "columns are as long as the times"
        );
        out.put_varint(field - next);
        next = field + 1;
        column(value, &mut integers, out);
    }
}

fn times(times: &[i64], integers: &mut Vec<i64>, out: &mut Vec<u8>) {
    if times.is_empty() {
        return;
    }
    let unit = UNITS
        .iter()
        .rposition(|unit| times.iter().all(|t| t % unit == 0))
        .unwrap_or(0);
    out.put_u8(unit as u8);
    match UNITS.get(unit) {
        Some(divisor) if unit > 0 => {
            integers.clear();
            integers.extend(times.iter().map(|t| t / divisor));
            put_integers(integers, out);
        }
        _ => put_integers(times, out),
    }
}

fn column(column: &Column, integers: &mut Vec<i64>, out: &mut Vec<u8>) {
    let values = compact(column);
    let partial = column.presence().filter(|_| !values.is_empty());
    let head = column.field_type() as u8 | u8::from(partial.is_some()) << 3;
    let at = out.len();
    out.put_u8(head);
    if let Some(bits) = partial {
        put_bits(bits, out);
    }
    let codec = match &*values {
        empty if empty.is_empty() => codec::ABSENT,
        Values::F64(v) => floats(v, integers, out),
        Values::I64(v) => {
            put_integers(v, out);
            codec::INTEGERS
        }
        Values::U64(v) => {
            integers.clear();
            integers.extend(v.iter().map(|v| *v as i64));
            put_integers(integers, out);
            codec::INTEGERS
        }
        Values::Bool(v) => bools(v, out),
        Values::String(v) | Values::Bytes(v) => text(v, out),
    };
    if let Some(byte) = out.get_mut(at) {
        *byte |= codec << 4;
    }
}

fn floats(values: &[f64], integers: &mut Vec<i64>, out: &mut Vec<u8>) -> u8 {
    // A single row is the common small write: the same bytes as below without an allocation.
    if let [value] = values {
        if let Some((places, integer)) = single(*value) {
            out.put_u8(places);
            put_integers(&[integer], out);
            return codec::DECIMALS;
        }
        out.put_u64(value.to_bits());
        return codec::REPEATED;
    }
    if let Some(found) = decimals(values, integers) {
        out.put_u8(found.places);
        let codec = if found.exceptions.is_empty() {
            codec::DECIMALS
        } else {
            out.put_varint(found.exceptions.len() as u64);
            let mut before = 0;
            for (index, bits) in &found.exceptions {
                out.put_varint(u64::from(*index - before));
                out.put_u64(*bits);
                before = *index;
            }
            codec::DECIMALS_EXCEPT
        };
        put_integers(integers, out);
        return codec;
    }
    if let Some((first, rest)) = values.split_first()
        && rest.iter().all(|v| v.to_bits() == first.to_bits())
    {
        out.put_u64(first.to_bits());
        return codec::REPEATED;
    }
    out.reserve(values.len() * 8);
    for v in values {
        out.put_u64(v.to_bits());
    }
    codec::RAW
}

fn bools(values: &[bool], out: &mut Vec<u8>) -> u8 {
    if let Some((first, rest)) = values.split_first()
        && rest.iter().all(|v| v == first)
    {
        out.put_u8(u8::from(*first));
        return codec::REPEATED;
    }
    pack_bools(values, out);
    codec::BITS
}

fn text(values: &VarBytes, out: &mut Vec<u8>) -> u8 {
    if values.len() >= 4
        && let Some(dictionary) = Dictionary::of(values, (values.len() / 4).min(DICTIONARY_MAX))
    {
        let entries = &dictionary.entries;
        if entries.len() == 1 {
            out.put_prefixed(entries.bytes());
            return codec::REPEATED;
        }
        out.put_varint(entries.len() as u64);
        put_integers(&lengths(entries), out);
        out.extend_from_slice(entries.bytes());
        put_integers(&dictionary.codes, out);
        return codec::DICTIONARY;
    }
    put_integers(&lengths(values), out);
    let bytes = values.bytes();
    if bytes.len() >= LZ4_FROM {
        let packed = lz4_flex::block::compress(bytes);
        if packed.len() < bytes.len() - bytes.len() / 8 {
            out.put_prefixed(&packed);
            return codec::LZ4;
        }
    }
    out.extend_from_slice(bytes);
    codec::RAW
}

/// Types that a codec may encode; the decoder refuses other types.
pub(super) fn allowed(codec: u8, field_type: FieldType) -> bool {
    match codec {
        codec::ABSENT => true,
        codec::RAW => !matches!(
            field_type,
            FieldType::I64 | FieldType::U64 | FieldType::Bool
        ),
        codec::REPEATED => !matches!(field_type, FieldType::I64 | FieldType::U64),
        codec::INTEGERS => matches!(field_type, FieldType::I64 | FieldType::U64),
        codec::DECIMALS | codec::DECIMALS_EXCEPT => field_type == FieldType::F64,
        codec::BITS => field_type == FieldType::Bool,
        codec::LZ4 | codec::DICTIONARY => {
            matches!(field_type, FieldType::String | FieldType::Bytes)
        }
        _ => false,
    }
}
