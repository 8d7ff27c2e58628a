//! Writes rows as CSV.
//!
//! Invariants: [`super::CsvParser`] reads the output back to the same bits (except the payload of a
//! NaN) when the types are declared; a column's cells have one index in every row; bytes are `0x`
//! and base-16 digits.

use super::time::TimeFormat;
use crate::free_name;
use headwater_types::{StreamName, Timestamp, ValueRef};
use std::io::Write;

/// Options of writing rows.
#[derive(Clone, Debug)]
pub struct CsvWriterOptions {
    /// Text for absent values. Empty by default; then an empty string cannot be distinguished from
    /// an absent one.
    pub null_text: String,
    /// Between cells.
    pub delimiter: u8,
    /// Form of times; patterns count as RFC 3339.
    pub time: TimeFormat,
}

impl Default for CsvWriterOptions {
    fn default() -> Self {
        CsvWriterOptions {
            null_text: String::new(),
            delimiter: b',',
            time: TimeFormat::Rfc3339,
        }
    }
}

/// Writes `time`, the tags and the fields of one table.
///
/// ```
/// use headwater_types::{StreamName, Timestamp, ValueRef};
/// use headwater_wire::csv::{CsvWriter, CsvWriterOptions};
/// let mut out = Vec::new();
/// let mut writer = CsvWriter::new(&["station"], &["temp"], CsvWriterOptions::default());
/// writer.write_header(&mut out);
/// writer.start_stream(&StreamName::new("weather", [("station", "EWR")]));
/// writer.write_row(&mut out, Timestamp::from_nanos(0), [Some(ValueRef::F64(39.0))]);
/// assert_eq!(out, b"time,station,temp\n1970-01-01T00:00:00Z,EWR,39.0\n");
/// ```
#[derive(Debug)]
pub struct CsvWriter {
    options: CsvWriterOptions,
    tags: Vec<String>,
    header: Vec<String>,
    /// The cells of the present stream's tags, each with its delimiter in front.
    tag_cells: Vec<u8>,
    ambiguous: u64,
}

impl CsvWriter {
    /// Columns `time`, `tags`, `fields`, in this order. A duplicate name gets the suffix `_1`,
    /// `_2`, ….
    pub fn new<T: AsRef<str>, F: AsRef<str>>(
        tags: &[T],
        fields: &[F],
        options: CsvWriterOptions,
    ) -> CsvWriter {
        let mut header: Vec<String> = vec!["time".to_owned()];
        let names = tags
            .iter()
            .map(AsRef::as_ref)
            .chain(fields.iter().map(AsRef::as_ref));
        for name in names {
            let free = free_name(name, |name| header.iter().any(|known| known == name));
            header.push(free);
        }
        CsvWriter {
            options,
            tags: tags.iter().map(|t| t.as_ref().to_owned()).collect(),
            header,
            tag_cells: Vec::new(),
            ambiguous: 0,
        }
    }

    /// Appends the header line.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        for (index, name) in self.header.iter().enumerate() {
            if index > 0 {
                out.push(self.options.delimiter);
            }
            push_cell(out, name.as_bytes(), self.options.delimiter);
        }
        out.push(b'\n');
    }

    /// Sets the stream of the following rows.
    pub fn start_stream(&mut self, name: &StreamName) {
        self.tag_cells.clear();
        for tag in &self.tags {
            self.tag_cells.push(self.options.delimiter);
            match name.tag(tag) {
                Some(value) => push_cell(
                    &mut self.tag_cells,
                    value.as_bytes(),
                    self.options.delimiter,
                ),
                None => self
                    .tag_cells
                    .extend_from_slice(self.options.null_text.as_bytes()),
            }
        }
    }

    /// Appends a row. `values` are in the order of the fields; `None` is absent.
    pub fn write_row<'v>(
        &mut self,
        out: &mut Vec<u8>,
        at: Timestamp,
        values: impl IntoIterator<Item = Option<ValueRef<'v>>>,
    ) {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{}", self.options.time.show(at));
        out.extend_from_slice(&self.tag_cells);
        for value in values {
            out.push(self.options.delimiter);
            match value {
                None => out.extend_from_slice(self.options.null_text.as_bytes()),
                Some(value) => self.push_value(out, value),
            }
        }
        out.push(b'\n');
    }

    /// Number of values that read back as absent, since their text is the text for absent values.
    #[must_use]
    pub fn ambiguous_values(&self) -> u64 {
        self.ambiguous
    }

    fn push_value(&mut self, out: &mut Vec<u8>, value: ValueRef<'_>) {
        // Writing to a vector cannot fail.
        let _ = match value {
            ValueRef::F64(v) => write!(out, "{v:?}"),
            ValueRef::I64(v) => write!(out, "{v}"),
            ValueRef::U64(v) => write!(out, "{v}"),
            ValueRef::Bool(v) => write!(out, "{v}"),
            ValueRef::String(text) => {
                self.ambiguous += u64::from(text == self.options.null_text);
                push_cell(out, text.as_bytes(), self.options.delimiter);
                Ok(())
            }
            ValueRef::Bytes(bytes) => {
                out.extend_from_slice(b"0x");
                bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
        };
    }
}

/// A cell, in quotes where needed.
fn push_cell(out: &mut Vec<u8>, cell: &[u8], delimiter: u8) {
    let needs_quotes = cell
        .iter()
        .any(|b| matches!(b, b'"' | b'\n' | b'\r') || *b == delimiter);
    if !needs_quotes {
        out.extend_from_slice(cell);
        return;
    }
    out.push(b'"');
    for byte in cell {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}
