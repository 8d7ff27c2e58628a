//! The header of a leaf: checksum, row count, first times of the pages, directory of the columns.

use super::{COLUMNS_MAX, PAGE_ROWS, ROWS_MAX};
use crate::bytes::{Cursor, DecodeError, PutBytes};
use crate::checksum::{crc32c, crc32c_append};
use headwater_types::{FieldId, FieldType};

const MAGIC: [u8; 2] = *b"HL";
const VERSION: u8 = 1;
/// Flag: the header checksum covers the payloads too, and the directory has no column checksums.
const CHECKSUM_COVERS_PAYLOADS: u8 = 1;
/// Offset of the header checksum, followed by the covered bytes.
const CHECKSUM_AT: usize = 4;
const BODY_AT: usize = 8;
/// Payloads up to this size share the checksum of the header.
const JOINT_CHECKSUM_BYTES_MAX: usize = 1024;
const PAGE_SHIFT: u8 = 8;
const _: () = assert!(1 << PAGE_SHIFT == PAGE_ROWS);

/// Entry of a column in the directory.
#[derive(Clone, Debug)]
pub(super) struct ColumnEntry {
    pub(super) field: FieldId,
    /// I64 for the times.
    pub(super) field_type: FieldType,
    /// Form of presence: a constant of [`super::presence`].
    pub(super) presence: u8,
    /// Codec: a constant of [`super::codec`].
    pub(super) codec: u8,
    /// Location of the payload in the leaf.
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Checksum of the column; `None` if the header checksum covers it.
    pub(super) checksum: Option<u32>,
}

impl ColumnEntry {
    /// The payload.
    pub(super) fn payload<'a>(&self, leaf: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        self.offset
            .checked_add(self.len)
            .and_then(|end| leaf.get(self.offset..end))
            .ok_or(DecodeError {
                expected: "the payload of a leaf column",
                offset: self.offset,
            })
    }

    /// The payload, its checksum verified.
    pub(super) fn verified<'a>(&self, leaf: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let payload = self.payload(leaf)?;
        match self.checksum {
            Some(checksum) if checksum != crc32c(payload) => Err(DecodeError {
                expected: "a leaf column that matches its checksum",
                offset: self.offset,
            }),
            _ => Ok(payload),
        }
    }
}

/// A checked header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) rows: usize,
    pub(super) page_first_times: Vec<i64>,
    pub(super) times: ColumnEntry,
    /// Columns, by ascending field.
    pub(super) columns: Vec<ColumnEntry>,
}

/// A column as the encoder made it.
pub(super) struct Encoded {
    pub(super) field: FieldId,
    pub(super) field_type: FieldType,
    pub(super) presence: u8,
    pub(super) codec: u8,
    pub(super) payload: Vec<u8>,
}

/// The bytes of a leaf. The first of `columns` are the times.
pub(super) fn write(rows: usize, page_first_times: &[i64], columns: &[Encoded]) -> Vec<u8> {
    let payloads: usize = columns.iter().map(|c| c.payload.len()).sum();
    let whole = payloads <= JOINT_CHECKSUM_BYTES_MAX;
    let mut body = Vec::with_capacity(32 + columns.len() * 12 + page_first_times.len() * 8);
    body.put_varint(rows as u64);
    body.put_u8(PAGE_SHIFT);
    body.put_varint(columns.len().saturating_sub(1) as u64);
    let mut before = 0i64;
    for time in page_first_times {
        body.put_signed(time.wrapping_sub(before));
        before = *time;
    }
    let mut next = 0u32;
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            body.put_varint(u64::from(column.field.0.wrapping_sub(next)));
            next = column.field.0.wrapping_add(1);
            body.put_u8(column.field_type as u8 | column.presence << 4);
        }
        body.put_u8(column.codec);
        body.put_varint(column.payload.len() as u64);
        if !whole {
            body.put_u32(crc32c(&column.payload));
        }
    }
    let mut out = Vec::with_capacity(BODY_AT + 4 + body.len() + payloads);
    out.extend_from_slice(&MAGIC);
    out.put_u8(VERSION);
    out.put_u8(if whole { CHECKSUM_COVERS_PAYLOADS } else { 0 });
    out.put_u32(0);
    out.put_prefixed(&body);
    let header_end = out.len();
    for column in columns {
        out.extend_from_slice(&column.payload);
    }
    let covered = if whole { out.len() } else { header_end };
    let checksum = header_checksum(&out, covered);
    if let Some(slot) = out.get_mut(CHECKSUM_AT..BODY_AT) {
        slot.copy_from_slice(&checksum.to_le_bytes());
    }
    out
}

/// Checksum of the first four bytes and of the bytes from the header body to `covered`.
fn header_checksum(leaf: &[u8], covered: usize) -> u32 {
    let first = crc32c(leaf.get(..CHECKSUM_AT).unwrap_or_default());
    crc32c_append(first, leaf.get(BODY_AT..covered).unwrap_or_default())
}

impl Header {
    pub(super) fn read(leaf: &[u8]) -> Result<Header, DecodeError> {
        let mut cursor = Cursor::new(leaf);
        if cursor.take(2, "the leaf magic HL")? != MAGIC {
            return Err(cursor.expected("the leaf magic HL"));
        }
        if cursor.u8("the leaf version")? != VERSION {
            return Err(cursor.expected("leaf version 1"));
        }
        let flags = cursor.u8("leaf flags")?;
        if flags & !CHECKSUM_COVERS_PAYLOADS != 0 {
            return Err(cursor.expected("no leaf flags but 1"));
        }
        let whole = flags & CHECKSUM_COVERS_PAYLOADS != 0;
        let checksum = cursor.u32("the checksum of the leaf header")?;
        let body = cursor.prefixed("the leaf header")?;
        let payloads_at = cursor.offset();
        let covered = if whole { leaf.len() } else { payloads_at };
        if header_checksum(leaf, covered) != checksum {
            return Err(DecodeError {
                expected: "a leaf header that matches its checksum",
                offset: CHECKSUM_AT,
            });
        }
        let body_at = payloads_at - body.len();
        Self::parse(body, payloads_at, leaf.len(), whole).map_err(|e| DecodeError {
            offset: e.offset + body_at,
            ..e
        })
    }

    fn parse(
        body: &[u8],
        payloads_at: usize,
        leaf_len: usize,
        whole: bool,
    ) -> Result<Header, DecodeError> {
        let mut cursor = Cursor::new(body);
        let rows = cursor.varint_up_to(ROWS_MAX as u64, "at most 65,536 rows")?;
        if cursor.u8("the page size")? != PAGE_SHIFT {
            return Err(cursor.expected("pages of 2^8 rows"));
        }
        let count = cursor.varint_up_to(COLUMNS_MAX as u64, "at most 4,096 columns")?;
        let pages = rows.div_ceil(PAGE_ROWS);
        // A first time has at least one byte and a column three.
        if cursor.remaining() < pages + count * 3 {
            return Err(cursor.expected("a directory of all pages and columns"));
        }
        let mut page_first_times = Vec::with_capacity(pages);
        let mut before = 0i64;
        for _ in 0..pages {
            before = before.wrapping_add(cursor.signed("the first time of a page")?);
            page_first_times.push(before);
        }
        let mut offset = payloads_at;
        let mut entry = |cursor: &mut Cursor<'_>, field, field_type, presence| {
            let codec = cursor.u8("a column codec")?;
            let len = cursor.varint_up_to(
                leaf_len.saturating_sub(offset) as u64,
                "a column payload that fits the leaf",
            )?;
            let checksum = if whole {
                None
            } else {
                Some(cursor.u32("a column checksum")?)
            };
            let entry = ColumnEntry {
                field,
                field_type,
                presence,
                codec,
                offset,
                len,
                checksum,
            };
            offset += len;
            Ok::<_, DecodeError>(entry)
        };
        let times = entry(&mut cursor, FieldId(0), FieldType::I64, 0)?;
        let mut columns = Vec::with_capacity(count);
        let mut next = 0u64;
        for _ in 0..count {
            let field = next
                .checked_add(cursor.varint("a field")?)
                .and_then(|f| u32::try_from(f).ok())
                .ok_or_else(|| cursor.expected("a field below 2^32"))?;
            next = u64::from(field) + 1;
            let kind = cursor.u8("a field type")?;
            let field_type = FieldType::from_number(kind & 15)
                .ok_or_else(|| cursor.expected("a field type from 1 to 6"))?;
            columns.push(entry(&mut cursor, FieldId(field), field_type, kind >> 4)?);
        }
        if offset != leaf_len {
            return Err(cursor.expected("payloads up to the end of the leaf"));
        }
        cursor.finish()?;
        Ok(Header {
            rows,
            page_first_times,
            times,
            columns,
        })
    }
}
