//! Decoding of chosen rows and columns of a leaf.

use super::header::{ColumnEntry, Header};
use super::pages::{Pages, Selection};
use super::{codec, floats, integers, presence, text};
use crate::bytes::{Cursor, DecodeError};
use crate::pack::unpack_bools;
use crate::presence::spread;
use headwater_types::Rows;
use headwater_types::{Bitmap, Column, Values};
use headwater_types::{FieldId, FieldType};
use std::ops::Range;

pub(super) fn read(
    leaf: &[u8],
    header: &Header,
    range: Range<usize>,
    fields: Option<&[FieldId]>,
) -> Result<Rows, DecodeError> {
    let end = range.end.min(header.rows);
    let range = range.start.min(end)..end;
    let pages = Pages::new(header.rows, None);
    let mut out = Rows::default();
    if header.rows == 0 {
        return Ok(out);
    }
    let selection = pages.selection(range.clone(), None);
    let entry = &header.times;
    out.times = in_column(leaf, entry, |cursor| {
        integers::take(entry.codec, cursor, &pages, &selection)
    })?;
    let asked = fields.map(|fields| {
        let mut asked = fields.to_vec();
        asked.sort_unstable();
        asked
    });
    for entry in &header.columns {
        if let Some(asked) = &asked
            && asked.binary_search(&entry.field).is_err()
        {
            continue;
        }
        let column = in_column(leaf, entry, |cursor| {
            column(entry, cursor, header.rows, range.clone(), &pages)
        })?;
        out.columns.push((entry.field, column));
    }
    Ok(out)
}

/// Runs `read` on a verified payload; errors state the offset in the leaf.
fn in_column<T>(
    leaf: &[u8],
    entry: &ColumnEntry,
    read: impl FnOnce(&mut Cursor<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let mut cursor = Cursor::new(entry.verified(leaf)?);
    read(&mut cursor).map_err(|e| DecodeError {
        offset: e.offset + entry.offset,
        ..e
    })
}

fn column(
    entry: &ColumnEntry,
    cursor: &mut Cursor<'_>,
    rows: usize,
    range: Range<usize>,
    all: &Pages,
) -> Result<Column, DecodeError> {
    let bits = presence::take(entry.presence, rows, cursor)?;
    let own;
    let pages = match &bits {
        None => all,
        bits => {
            own = Pages::new(rows, bits.as_ref());
            &own
        }
    };
    if pages.total() == 0 {
        return Err(cursor.expected("a present row in a column of a leaf"));
    }
    let selection = pages.selection(range.clone(), bits.as_ref());
    let values = values(entry, cursor, pages, &selection)?;
    let bits = bits.map(|bits| {
        let mut cut = Bitmap::default();
        cut.extend_from(&bits, range);
        cut
    });
    spread(values, bits).ok_or_else(|| cursor.expected("UTF-8 text"))
}

fn values(
    entry: &ColumnEntry,
    cursor: &mut Cursor<'_>,
    pages: &Pages,
    selection: &Selection,
) -> Result<Values, DecodeError> {
    let codec = entry.codec;
    Ok(match entry.field_type {
        FieldType::F64 => Values::F64(floats::take(codec, cursor, pages, selection)?),
        FieldType::I64 => Values::I64(integers::take(codec, cursor, pages, selection)?),
        FieldType::U64 => {
            let signed = integers::take(codec, cursor, pages, selection)?;
            Values::U64(signed.into_iter().map(|v| v as u64).collect())
        }
        FieldType::Bool => Values::Bool(bools(codec, cursor, selection.values.clone())?),
        FieldType::String => Values::String(text::take(codec, cursor, pages, selection)?),
        FieldType::Bytes => Values::Bytes(text::take(codec, cursor, pages, selection)?),
    })
}

fn bools(
    codec: u8,
    cursor: &mut Cursor<'_>,
    values: Range<usize>,
) -> Result<Vec<bool>, DecodeError> {
    match codec {
        codec::CONSTANT => match cursor.u8("a boolean")? {
            byte @ (0 | 1) => Ok(vec![byte == 1; values.len()]),
            _ => Err(cursor.expected("a boolean")),
        },
        codec::BITS => {
            let skipped = values.start / 8;
            cursor.take(skipped, "booleans")?;
            let bytes = cursor.take(values.end.div_ceil(8) - skipped, "booleans")?;
            let mut out = Vec::new();
            unpack_bools(bytes, values.end - skipped * 8, &mut out);
            out.drain(..values.start - skipped * 8);
            Ok(out)
        }
        _ => Err(cursor.expected("a codec of booleans")),
    }
}
