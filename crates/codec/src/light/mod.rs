//! Light codecs for the records of the commit log: fast to write and to read, smaller than raw
//! columns.
//!
//! Invariants: rows are restored bit for bit; a record states its end, so that several can be
//! concatenated; all rows that [`within_limits`] accepts can be decoded. Failure: any input results
//! in rows or a [`DecodeError`]; memory is below [`HEAP_BYTES_MAX`]. There is no checksum: the log
//! record around the rows has one. Format: docs/format/light.md.

mod decode;
mod encode;

use crate::bytes::{Cursor, DecodeError};
use headwater_types::Rows;
use headwater_types::Values;

/// Most rows in one record.
pub const ROWS_MAX: usize = 1 << 24;
/// Most bytes of text and byte strings in one record, all columns together.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// Maximum memory of the columns of one record in bytes: 8 a row for times and numbers, 1 for
/// booleans, 4 for strings, plus the strings' bytes.
pub const HEAP_BYTES_MAX: usize = 1 << 30;

/// Column codecs; the numbers are part of the format.
mod codec {
    pub(super) const ABSENT: u8 = 0;
    pub(super) const RAW: u8 = 1;
    pub(super) const REPEATED: u8 = 2;
    pub(super) const INTEGERS: u8 = 3;
    pub(super) const DECIMALS: u8 = 4;
    pub(super) const DECIMALS_EXCEPT: u8 = 5;
    pub(super) const BITS: u8 = 6;
    pub(super) const LZ4: u8 = 7;
    pub(super) const DICTIONARY: u8 = 8;
}

/// Powers of a thousand that times are divided by when all are multiples.
const UNITS: [i64; 4] = [1, 1_000, 1_000_000, 1_000_000_000];

/// Appends `rows` to `out`.
///
/// # Panics
/// If the columns are not sorted by field or differ in length from the times.
pub fn encode_rows(rows: &Rows, out: &mut Vec<u8>) {
    encode::rows(rows, out);
}

/// Decodes the bytes of [`encode_rows`], bit for bit.
///
/// # Errors
/// If the bytes are not valid rows.
pub fn decode_rows(cursor: &mut Cursor<'_>) -> Result<Rows, DecodeError> {
    decode::rows(cursor)
}

/// Whether [`decode_rows`] accepts the encoding of these rows. A batch of 16 MiB is far within the
/// limits.
#[must_use]
pub fn within_limits(rows: &Rows) -> bool {
    let (mut text, mut heap) = (0usize, rows.len().saturating_mul(8));
    for (_, column) in &rows.columns {
        let slots = column.len();
        heap = heap.saturating_add(slots.saturating_mul(slot_bytes(column.field_type())));
        if let Values::String(v) | Values::Bytes(v) = column.values() {
            text = text.saturating_add(v.bytes().len());
        }
    }
    rows.len() <= ROWS_MAX && text <= TEXT_BYTES_MAX && heap <= HEAP_BYTES_MAX
}

/// Bytes of a slot in memory.
fn slot_bytes(field_type: headwater_types::FieldType) -> usize {
    use headwater_types::FieldType;
    match field_type {
        FieldType::F64 | FieldType::I64 | FieldType::U64 => 8,
        FieldType::Bool => 1,
        FieldType::String | FieldType::Bytes => 4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::Column;
    use headwater_types::FieldId;

    #[test]
    fn one_line_takes_few_bytes() {
        let rows = Rows {
            times: vec![1_700_000_000_000_000_000],
            columns: vec![
                (FieldId(0), Column::from_values(Values::F64(vec![21.5]))),
                (FieldId(1), Column::from_values(Values::I64(vec![-7]))),
                (FieldId(2), Column::from_values(Values::Bool(vec![true]))),
            ],
        };
        let mut out = Vec::new();
        encode_rows(&rows, &mut out);
        assert!(out.len() <= 24, "{} bytes", out.len());
        let mut cursor = Cursor::new(&out);
        assert_eq!(decode_rows(&mut cursor).unwrap(), rows);
        cursor.finish().unwrap();
    }
}
