//! Output formats of rows: JSON, CSV, Arrow streams and Parquet files, batch by batch.
//!
//! Purpose: one writer for the server, the command line and exports, so that answers look the same
//! in all of them.
//!
//! Invariants: the output of [`Writer`] is complete only after [`Writer::finish`]; a writer has one
//! batch in memory, or for Parquet one row group of about [`ROW_GROUP_BYTES`]. Integers keep all
//! their digits, floats are read back to the same bits; values that JSON cannot represent (NaN,
//! infinities) are `null` there.
//!
//! Failure: an error of a column that cannot be written names its type; bytes that were written
//! before stay.
#![allow(
    clippy::disallowed_methods,
    reason = "its deadlines, measurements and files are of a process, not of a database"
)]

mod cells;
mod events;
pub mod nan;

pub use cells::{Cells, TimeText, is_number, type_name};
pub use events::{EventBatches, event_schema, field_data_type, time_type};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use headwater_wire::json::push_str;
use nan::NanRows;
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::io;
use std::sync::Arc;

/// Bytes at which a row group of a Parquet file is closed, about.
pub const ROW_GROUP_BYTES: usize = 8 << 20;
/// Rows at which a row group of a Parquet file is closed.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Formats of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One object: `{"columns":[{"name":…,"type":…},…],"rows":[[…],…]}`.
    Json,
    /// Comma-separated values with a line of names.
    Csv,
    /// Arrow's stream format.
    Arrow,
    /// A Parquet file.
    Parquet,
}

impl Format {
    const ALL: [Format; 4] = [Format::Json, Format::Csv, Format::Arrow, Format::Parquet];

    /// Name of the format: `json`, `csv`, `arrow` or `parquet`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Arrow => "arrow",
            Format::Parquet => "parquet",
        }
    }

    /// The format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.name() == name)
    }

    /// The format of a file by its extension; `.arrow` and `.arrows` are Arrow streams.
    ///
    /// ```
    /// use headwater_columnar::Format;
    /// assert_eq!(Format::of_file("a/b.parquet"), Some(Format::Parquet));
    /// assert_eq!(Format::of_file("b.txt"), None);
    /// ```
    #[must_use]
    pub fn of_file(path: &str) -> Option<Format> {
        let ending = path.rsplit_once('.')?.1.to_ascii_lowercase();
        match ending.as_str() {
            "json" => Some(Format::Json),
            "csv" => Some(Format::Csv),
            "arrow" | "arrows" => Some(Format::Arrow),
            "parquet" | "pq" => Some(Format::Parquet),
            _ => None,
        }
    }

    /// The media type of the format.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Csv => "text/csv; charset=utf-8",
            Format::Arrow => "application/vnd.apache.arrow.stream",
            Format::Parquet => "application/vnd.apache.parquet",
        }
    }

    /// The first format that an `Accept` header names; weights (`q`) are ignored.
    ///
    /// ```
    /// use headwater_columnar::Format;
    /// assert_eq!(Format::accepted("text/html, text/csv;q=0.5"), Some(Format::Csv));
    /// assert_eq!(Format::accepted("*/*"), None);
    /// ```
    #[must_use]
    pub fn accepted(header: &str) -> Option<Format> {
        header.split(',').find_map(|part| {
            let media = part.split(';').next().unwrap_or_default().trim();
            Format::ALL.into_iter().find(|f| {
                let own = f.content_type().split(';').next().unwrap_or_default();
                media.eq_ignore_ascii_case(own)
            })
        })
    }
}

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// Arrow cannot write or convert a column.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// Parquet cannot represent a column.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

/// Writes batches of one schema in one format.
pub struct Writer {
    kind: FormatWriter,
    rows: u64,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

enum FormatWriter {
    Json { head: Vec<u8>, time: TimeText },
    Csv { head: Vec<u8>, time: TimeText },
    Arrow(Box<StreamWriter<Sink>>, Sink),
    Parquet(Box<ArrowWriter<Sink>>, NanRows, Sink),
}

/// Buffer that the writers of Arrow and Parquet write to, and that is drained from here.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    /// Replaces the metadata of a Parquet file, which are still in the buffer.
    fn replace_end(&self, end: &[u8]) -> Result<(), ParquetError> {
        let mut bytes = self.0.lock();
        let kept = bytes.len().checked_sub(nan::end_len(&bytes)?);
        let kept = kept.ok_or_else(|| ParquetError::General("metadata are not there".into()))?;
        bytes.truncate(kept);
        bytes.extend_from_slice(end);
        Ok(())
    }

    fn take_into(&self, out: &mut Vec<u8>) {
        out.append(&mut self.0.lock());
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Writer {
    /// A writer of batches of `schema`. No byte is written yet. `time` applies to JSON and CSV.
    ///
    /// # Errors
    /// When the format cannot represent a column of the schema.
    pub fn new(format: Format, schema: &SchemaRef, time: TimeText) -> Result<Writer, OutputError> {
        let kind = match format {
            Format::Json => FormatWriter::Json {
                head: json_head(schema),
                time,
            },
            Format::Csv => FormatWriter::Csv {
                head: csv_head(schema),
                time,
            },
            Format::Arrow => {
                let sink = Sink::default();
                FormatWriter::Arrow(Box::new(StreamWriter::try_new(sink.clone(), schema)?), sink)
            }
            Format::Parquet => {
                let sink = Sink::default();
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
                    .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                    .set_created_by(concat!("headwater ", env!("CARGO_PKG_VERSION")).to_owned())
                    .build();
                let writer =
                    ArrowWriter::try_new(sink.clone(), Arc::clone(schema), Some(properties))?;
                FormatWriter::Parquet(Box::new(writer), NanRows::default(), sink)
            }
        };
        Ok(Writer { kind, rows: 0 })
    }

    /// Rows written so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends the rows of a batch to `out`, or buffers them for the next row group.
    ///
    /// # Errors
    /// When a column cannot be written.
    pub fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), OutputError> {
        match &mut self.kind {
            FormatWriter::Json { head, time } => {
                out.append(head);
                let cells = all_cells(batch)?;
                for row in 0..batch.num_rows() {
                    if self.rows > 0 || row > 0 {
                        out.extend_from_slice(b",\n");
                    }
                    out.push(b'[');
                    for (index, cells) in cells.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        cells.push_json(out, row, *time);
                    }
                    out.push(b']');
                }
            }
            FormatWriter::Csv { head, time } => {
                out.append(head);
                let cells = all_cells(batch)?;
                for row in 0..batch.num_rows() {
                    for (index, each) in cells.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        each.push_csv(out, row, *time);
                    }
                    out.push(b'\n');
                }
            }
            FormatWriter::Arrow(writer, sink) => {
                if batch.num_rows() > 0 {
                    writer.write(batch)?;
                }
                sink.take_into(out);
            }
            FormatWriter::Parquet(writer, nans, sink) => {
                nans.add(batch);
                writer.write(batch)?;
                if writer.in_progress_size() >= ROW_GROUP_BYTES {
                    writer.flush()?;
                }
                sink.take_into(out);
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// As [`Writer::finish`], for an answer that was cut: JSON reports it with `"more":true`; the
    /// other formats cannot.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub fn finish_early(self, out: &mut Vec<u8>) -> Result<(), OutputError> {
        if let FormatWriter::Json { mut head, .. } = self.kind {
            out.append(&mut head);
            out.extend_from_slice(b"],\"more\":true}\n");
            return Ok(());
        }
        self.finish(out)
    }

    /// Ends an answer that failed midway. JSON reports it after the rows, as `"error":` and then
    /// `error`, which is JSON. The other formats end after the last row.
    pub fn fail(self, error: &str, out: &mut Vec<u8>) {
        if let FormatWriter::Json { mut head, .. } = self.kind {
            out.append(&mut head);
            out.extend_from_slice(b"],\"error\":");
            out.extend_from_slice(error.as_bytes());
            out.extend_from_slice(b"}\n");
        }
    }

    /// Appends the buffered bytes and the end of the format.
    ///
    /// # Errors
    /// When the buffered bytes cannot be written.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), OutputError> {
        match self.kind {
            FormatWriter::Json { mut head, .. } => {
                out.append(&mut head);
                out.extend_from_slice(b"]}\n");
            }
            FormatWriter::Csv { mut head, .. } => out.append(&mut head),
            FormatWriter::Arrow(mut writer, sink) => {
                writer.finish()?;
                sink.take_into(out);
            }
            FormatWriter::Parquet(writer, nans, sink) => {
                let metadata = writer.close()?;
                if let Some(end) = nans.end(&metadata)? {
                    sink.replace_end(&end)?;
                }
                sink.take_into(out);
            }
        }
        Ok(())
    }
}

fn all_cells(batch: &RecordBatch) -> Result<Vec<Cells>, ArrowError> {
    batch.columns().iter().map(Cells::of).collect()
}

fn json_head(schema: &SchemaRef) -> Vec<u8> {
    let mut head = b"{\"columns\":[".to_vec();
    for (index, field) in schema.fields().iter().enumerate() {
        if index > 0 {
            head.push(b',');
        }
        head.extend_from_slice(b"{\"name\":");
        push_str(&mut head, field.name());
        head.extend_from_slice(b",\"type\":");
        push_str(&mut head, type_name(field.data_type()));
        head.push(b'}');
    }
    head.extend_from_slice(b"],\"rows\":[");
    head
}

fn csv_head(schema: &SchemaRef) -> Vec<u8> {
    let mut head = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        if index > 0 {
            head.push(b',');
        }
        cells::push_csv_text(&mut head, field.name());
    }
    head.push(b'\n');
    head
}

#[cfg(test)]
mod tests;
