//! Leaves: compressed rows of one or several streams.
//!
//! Invariants: rows are restored bit for bit; a page of 256 rows is decoded without its neighbours;
//! the header and every column have a checksum; values read back do not depend on the
//! [`EncodingCache`]. Failure: any input results in rows or a [`DecodeError`] with the expected
//! content and its offset; memory is bounded by [`ROWS_MAX`], [`COLUMNS_MAX`] and
//! [`TEXT_BYTES_MAX`]. Concurrency: a [`Leaf`] is immutable and shared by reference count. Format:
//! docs/format/leaf.md. `leaf/encode.rs` chooses the codec of a column; `integers`, `floats`,
//! `text` and `presence` contain both directions of each; `pages` assigns values to pages.

mod decode;
mod encode;
mod encoding_cache;
mod floats;
mod header;
mod integers;
mod pages;
mod pco_pages;
mod presence;
mod text;

pub use encoding_cache::EncodingCache;

use crate::bytes::DecodeError;
use headwater_types::Rows;
use headwater_types::{FieldId, FieldType};
use std::ops::Range;
use std::sync::Arc;

/// Rows in a page.
pub const PAGE_ROWS: usize = 256;
/// Most rows in a leaf.
pub const ROWS_MAX: usize = 65_536;
/// Most columns in a leaf.
pub const COLUMNS_MAX: usize = 4_096;
/// Most bytes of text or byte strings in one column of a leaf.
pub const TEXT_BYTES_MAX: usize = 1 << 30;

/// Codecs of a column; the numbers are part of the format.
mod codec {
    pub(super) const CONSTANT: u8 = 0;
    pub(super) const ARITHMETIC: u8 = 1;
    pub(super) const PACKED: u8 = 2;
    pub(super) const PCO: u8 = 3;
    pub(super) const RAW: u8 = 4;
    pub(super) const BITS: u8 = 5;
    pub(super) const DICTIONARY: u8 = 6;
    pub(super) const ZSTD: u8 = 7;
    /// Set beside one of the first four: floats as decimals.
    pub(super) const DECIMAL: u8 = 0x10;

    pub(super) fn name(codec: u8) -> &'static str {
        const DECIMAL_CONSTANT: u8 = DECIMAL | CONSTANT;
        const DECIMAL_ARITHMETIC: u8 = DECIMAL | ARITHMETIC;
        const DECIMAL_PACKED: u8 = DECIMAL | PACKED;
        const DECIMAL_PCO: u8 = DECIMAL | PCO;
        match codec {
            CONSTANT => "constant",
            ARITHMETIC => "arithmetic",
            PACKED => "packed",
            PCO => "pco",
            RAW => "raw",
            BITS => "bits",
            DICTIONARY => "dictionary",
            ZSTD => "zstd",
            DECIMAL_CONSTANT => "decimal constant",
            DECIMAL_ARITHMETIC => "decimal arithmetic",
            DECIMAL_PACKED => "decimal packed",
            DECIMAL_PCO => "decimal pco",
            _ => "unknown",
        }
    }
}

/// Description of a column of a leaf, for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// The field; `None` for the times.
    pub field: Option<FieldId>,
    /// Type of the values; i64 for the times.
    pub field_type: FieldType,
    /// Codec of the values, as in docs/format/leaf.md.
    pub codec: &'static str,
    /// Encoding of the present rows: `all`, `bitmap` or `runs`.
    pub presence: &'static str,
    /// Size of the payload.
    pub encoded_bytes: usize,
}

/// Encodes rows (one stream's, sorted by time, or several streams' one after another) as one leaf.
/// A column without present rows is omitted.
///
/// # Panics
/// If there are more than [`ROWS_MAX`] rows or [`COLUMNS_MAX`] columns, or columns are not sorted
/// by field, differ in length from the times, or have more than [`TEXT_BYTES_MAX`] of text.
#[must_use]
pub fn encode_leaf(rows: &Rows, encodings: &mut EncodingCache) -> Vec<u8> {
    encode::leaf(rows, encodings)
}

/// A leaf with a verified header. Owns the bytes; columns are decoded on request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leaf {
    bytes: Arc<[u8]>,
    header: Arc<header::Header>,
}

impl Leaf {
    /// Checks header and lengths, not the column checksums.
    ///
    /// # Errors
    /// If the header is invalid or damaged.
    pub fn open(bytes: Arc<[u8]>) -> Result<Leaf, DecodeError> {
        let header = Arc::new(header::Header::read(&bytes)?);
        Ok(Leaf { bytes, header })
    }

    /// Rows in the leaf.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.header.rows
    }

    /// Fields with a column in this leaf, ascending.
    pub fn fields(&self) -> impl Iterator<Item = FieldId> + '_ {
        self.header.columns.iter().map(|c| c.field)
    }

    /// First timestamp of each page.
    #[must_use]
    pub fn page_first_times(&self) -> &[i64] {
        &self.header.page_first_times
    }

    /// The columns, times first.
    pub fn columns(&self) -> impl Iterator<Item = ColumnInfo> + '_ {
        let times = std::iter::once((None, &self.header.times));
        let fields = self.header.columns.iter().map(|c| (Some(c.field), c));
        times.chain(fields).map(|(field, entry)| ColumnInfo {
            field,
            field_type: entry.field_type,
            codec: codec::name(entry.codec),
            presence: presence::name(entry.presence),
            encoded_bytes: entry.len,
        })
    }

    /// Size of the encoded leaf.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Approximate memory of this leaf: its bytes and the parsed header.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len()
            + self.header.page_first_times.len() * 8
            + self.header.columns.len() * size_of::<header::ColumnEntry>()
    }

    /// Decodes rows `range` (cut to the rows of the leaf) of the times and of `fields` (`None` =
    /// all); only the pages with these rows are decoded, and the checksums of the columns read are
    /// verified. A field without a column here is not in the result.
    ///
    /// # Errors
    /// When bytes are damaged.
    pub fn read(
        &self,
        range: Range<usize>,
        fields: Option<&[FieldId]>,
    ) -> Result<Rows, DecodeError> {
        decode::read(&self.bytes, &self.header, range, fields)
    }

    /// Verifies the checksum of every column without decoding it.
    ///
    /// # Errors
    /// When bytes are damaged.
    pub fn verify(&self) -> Result<(), DecodeError> {
        for entry in std::iter::once(&self.header.times).chain(&self.header.columns) {
            entry.verified(&self.bytes)?;
        }
        Ok(())
    }
}
