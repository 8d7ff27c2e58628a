//! Columnar formats of exports, as a program with SQL has them.
//!
//! Invariant: a writer gets whole chunks of one stream after the other, and is finished once.

use headwater::{FieldType, ScanChunk, StreamName};
use std::error::Error;

/// Writer of rows in a columnar format.
pub(crate) trait ColumnarWriter: Send {
    /// Adds the rows of a chunk, and appends the bytes that are complete.
    ///
    /// # Errors
    /// When the format cannot represent the rows.
    fn write(
        &mut self,
        stream: &StreamName,
        chunk: &ScanChunk,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Appends the remaining bytes.
    ///
    /// # Errors
    /// As [`ColumnarWriter::write`].
    fn finish(self: Box<Self>, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Opens a writer for tags and fields.
type Open = fn(
    &[String],
    &[(String, FieldType)],
) -> Result<Box<dyn ColumnarWriter>, Box<dyn Error + Send + Sync>>;

/// A columnar format.
#[derive(Debug)]
pub(crate) struct ColumnarFormat {
    /// Name in the parameter `format`.
    pub(crate) name: &'static str,
    pub(crate) content_type: &'static str,
    /// Content disposition of a download.
    pub(crate) disposition: &'static str,
    pub(crate) open: Open,
}
