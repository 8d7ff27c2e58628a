//! Writes rows as line protocol.
//!
//! Invariants: [`super::LineParser`] reads the output back to the same bits with precision `ns`;
//! values that line protocol cannot express (NaN, infinities, bytes, names with line ends, empty
//! names) are left out and counted, never changed.

use headwater_types::{StreamName, Timestamp, ValueRef};
use std::io::Write;

/// A name that line protocol cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line protocol cannot represent the {what} {name:?}: {reason}")]
pub struct UnwritableName {
    /// `table`, `tag`, `value of a tag` or `field`.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// The reason.
    pub reason: &'static str,
}

/// Values that were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedValues {
    /// Floats that are NaN or infinite.
    pub not_finite: u64,
    /// Values of type bytes.
    pub bytes: u64,
    /// Rows left without any value.
    pub rows: u64,
}

impl SkippedValues {
    /// True when no value was left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == SkippedValues::default()
    }
}

/// The byte order mark of UTF-8 that some programs write at the beginning of a text.
pub(super) const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Writes the rows of one stream after another.
///
/// ```
/// use headwater_types::{StreamName, Timestamp, ValueRef};
/// use headwater_wire::lineprotocol::LineWriter;
/// let mut out = Vec::new();
/// let mut writer = LineWriter::new();
/// writer.start_stream(&StreamName::new("weather", [("station", "EWR")]), ["temp", "count"])?;
/// writer.write_row(&mut out, Timestamp::from_nanos(5), [Some(ValueRef::F64(39.0)), Some(ValueRef::I64(2))]);
/// assert_eq!(out, b"weather,station=EWR temp=39.0,count=2i 5\n");
/// # Ok::<(), headwater_wire::lineprotocol::UnwritableName>(())
/// ```
#[derive(Debug, Default)]
pub struct LineWriter {
    /// Table and tags with the space after them.
    prefix: Vec<u8>,
    /// Field keys with the `=` after them.
    keys: Vec<Vec<u8>>,
    /// True when the text already has a row.
    has_row: bool,
    skipped: SkippedValues,
}

impl LineWriter {
    /// A writer without a stream.
    #[must_use]
    pub fn new() -> LineWriter {
        LineWriter::default()
    }

    /// Says that the next row is the first of another text.
    pub fn begin_text(&mut self) {
        self.has_row = false;
    }

    /// Sets the stream and the fields of the following rows.
    ///
    /// # Errors
    /// When a name cannot be written; rows until the next success are then left out and counted.
    pub fn start_stream<'a>(
        &mut self,
        name: &StreamName,
        fields: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), UnwritableName> {
        self.prefix.clear();
        self.keys.clear();
        let mut prefix = Vec::new();
        push_name(&mut prefix, "table", name.table())?;
        if matches!(prefix.first(), Some(b'#')) {
            return Err(UnwritableName {
                what: "table",
                name: name.table().to_owned(),
                reason: "a line that starts with # is a comment",
            });
        }
        for (tag, value) in name.tags() {
            prefix.push(b',');
            push_name(&mut prefix, "tag", tag)?;
            prefix.push(b'=');
            push_name(&mut prefix, "value of a tag", value)?;
        }
        prefix.push(b' ');
        for field in fields {
            let mut key = Vec::new();
            push_name(&mut key, "field", field)?;
            key.push(b'=');
            self.keys.push(key);
        }
        self.prefix = prefix;
        Ok(())
    }

    /// Appends a row to `out`. `values` are in the order of the stream's fields; `None` is absent.
    pub fn write_row<'v>(
        &mut self,
        out: &mut Vec<u8>,
        at: Timestamp,
        values: impl IntoIterator<Item = Option<ValueRef<'v>>>,
    ) {
        let start = out.len();
        let mut is_first = true;
        if !self.prefix.is_empty() {
            // The first byte order mark of a text is part of its encoding, not of the name.
            if !self.has_row && self.prefix.starts_with(MARK) {
                out.extend_from_slice(MARK);
            }
            out.extend_from_slice(&self.prefix);
            for (key, value) in self.keys.iter().zip(values) {
                let Some(value) = value else { continue };
                match value {
                    ValueRef::F64(v) if !v.is_finite() => {
                        self.skipped.not_finite += 1;
                        continue;
                    }
                    ValueRef::Bytes(_) => {
                        self.skipped.bytes += 1;
                        continue;
                    }
                    _ => {}
                }
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                out.extend_from_slice(key);
                push_value(out, value);
            }
        }
        if is_first {
            out.truncate(start);
            self.skipped.rows += 1;
            return;
        }
        self.has_row = true;
        // Writing to a vector cannot fail.
        let _ = writeln!(out, " {}", at.as_nanos());
    }

    /// The values that were left out so far.
    #[must_use]
    pub fn skipped(&self) -> SkippedValues {
        self.skipped
    }
}

fn push_name(out: &mut Vec<u8>, what: &'static str, name: &str) -> Result<(), UnwritableName> {
    let reason = if name.is_empty() {
        Some("it is empty")
    } else if name.contains('\n') {
        Some("it contains a line end")
    } else if what == "table" && name.starts_with(['\t', '\r', '\u{b}', '\u{c}']) {
        Some("it starts with a space")
    } else {
        None
    };
    if let Some(reason) = reason {
        return Err(UnwritableName {
            what,
            name: name.to_owned(),
            reason,
        });
    }
    for byte in name.bytes() {
        if matches!(byte, b',' | b'=' | b' ' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    Ok(())
}

fn push_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    // Writing to a vector cannot fail.
    let _ = match value {
        ValueRef::F64(v) => write!(out, "{v:?}"),
        ValueRef::I64(v) => write!(out, "{v}i"),
        ValueRef::U64(v) => write!(out, "{v}u"),
        ValueRef::Bool(v) => write!(out, "{v}"),
        ValueRef::String(text) => {
            out.push(b'"');
            for byte in text.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(b'"');
            Ok(())
        }
        ValueRef::Bytes(_) => Ok(()),
    };
}
