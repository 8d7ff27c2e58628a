//! Batches of a writer: columns per stream, by name.
//!
//! Invariants: the entries of a batch name each stream at most once if built through
//! [`Batch::stream`]; all columns of an entry have as many rows as it has times; tags are sorted by
//! key, without duplicate keys. A batch is one all-or-nothing write.

use crate::Timestamp;
use crate::column::{Column, Values};
use crate::value::{FieldType, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Names a stream: a table and its tags, sorted by key. A clone shares the text, so that naming a
/// stream in every batch is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamName(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Parts {
    table: String,
    tags: Vec<(String, String)>,
}

impl std::fmt::Debug for StreamName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamName")
            .field("table", &self.0.table)
            .field("tags", &self.0.tags)
            .finish()
    }
}

impl StreamName {
    /// A stream of `table` with these tags, in any order. Of duplicate keys the last value counts.
    ///
    /// ```
    /// let name = headwater_types::StreamName::new("weather", [("station", "EWR")]);
    /// assert_eq!(name.to_string(), "weather,station=EWR");
    /// ```
    pub fn new<K: Into<String>, V: Into<String>>(
        table: impl Into<String>,
        tags: impl IntoIterator<Item = (K, V)>,
    ) -> StreamName {
        let mut tags: Vec<(String, String)> = tags
            .into_iter()
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        tags.reverse();
        tags.sort_by(|a, b| a.0.cmp(&b.0));
        tags.dedup_by(|a, b| a.0 == b.0);
        StreamName(Arc::new(Parts {
            table: table.into(),
            tags,
        }))
    }

    /// The stream with the same tags in another table.
    ///
    /// ```
    /// let name = headwater_types::StreamName::new("weather", [("station", "EWR")]);
    /// assert_eq!(name.in_table("sky").to_string(), "sky,station=EWR");
    /// ```
    #[must_use]
    pub fn in_table(&self, table: impl Into<String>) -> StreamName {
        StreamName(Arc::new(Parts {
            table: table.into(),
            tags: self.0.tags.clone(),
        }))
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.0.table
    }

    /// The tags, sorted by key.
    #[must_use]
    pub fn tags(&self) -> &[(String, String)] {
        &self.0.tags
    }

    /// The value of one tag.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.0
            .tags
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// Parses `table,tag=value,…`; a backslash escapes the next character (comma, `=`, space,
    /// backslash).
    #[must_use]
    pub fn parse(text: &str) -> Option<StreamName> {
        let mut parts: Vec<Vec<String>> = vec![vec![String::new()]];
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => parts.last_mut()?.last_mut()?.push(chars.next()?),
                ',' => parts.push(vec![String::new()]),
                '=' if parts.len() > 1 && parts.last()?.len() == 1 => {
                    parts.last_mut()?.push(String::new())
                }
                c => parts.last_mut()?.last_mut()?.push(c),
            }
        }
        let mut parts = parts.into_iter();
        let table = parts.next()?.pop()?;
        if table.is_empty() {
            return None;
        }
        let mut tags = Vec::new();
        for mut part in parts {
            let value = part.pop()?;
            let key = part.pop()?;
            if key.is_empty() {
                return None;
            }
            tags.push((key, value));
        }
        Some(StreamName::new(table, tags))
    }
}

impl std::fmt::Display for StreamName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tags = self.0.tags.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let mut text = String::with_capacity(64);
        push_stream_text(&mut text, &self.0.table, tags);
        f.write_str(&text)
    }
}

/// Appends the text of a stream, in the display form of [`StreamName`]: for callers that have its
/// parts and no name.
///
/// ```
/// let mut text = String::new();
/// headwater_types::push_stream_text(&mut text, "a table", [("tag", "x=1")]);
/// assert_eq!(text, r"a\ table,tag=x\=1");
/// ```
pub fn push_stream_text<'a>(
    out: &mut String,
    table: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
) {
    // In the table's name an equals sign has no special meaning.
    push_escaped(out, table, b", \\");
    for (key, value) in tags {
        push_tag_text(out, key, value);
    }
}

/// Appends one tag of a stream's text, with the comma before it.
pub fn push_tag_text(out: &mut String, key: &str, value: &str) {
    out.push(',');
    push_escaped(out, key, b",= \\");
    out.push('=');
    push_escaped(out, value, b",= \\");
}

/// All of `special` are ASCII, so that a text may be cut before one of them.
fn push_escaped(out: &mut String, text: &str, special: &[u8]) {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|b| special.contains(&b)) {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        out.push('\\');
        let (one, behind) = from.split_at(1);
        out.push_str(one);
        rest = behind;
    }
    out.push_str(rest);
}

/// The rows of one stream inside a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRows {
    /// The stream.
    pub name: StreamName,
    /// Nanoseconds since 1970 UTC, in any order.
    pub times: Vec<i64>,
    /// Fields by name; each column has `times.len()` rows.
    pub fields: Vec<(String, Column)>,
}

impl StreamRows {
    /// No rows of `name`.
    #[must_use]
    pub fn new(name: StreamName) -> Self {
        StreamRows {
            name,
            times: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// Appends a row. Fields that are new in this row are absent in earlier rows; fields not named
    /// are absent in this row.
    ///
    /// # Errors
    /// If a field already has values of another type in this batch, or an integer cannot be
    /// converted exactly to the field's float type; the row is then not added.
    pub fn row<'a>(
        &mut self,
        time_ns: i64,
        values: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Result<(), MixedTypes> {
        let values: Vec<(&str, Value)> = values.into_iter().collect();
        for (field, value) in &values {
            let expected = self
                .fields
                .iter()
                .find(|(n, _)| n == field)
                .map(|(_, c)| c.field_type());
            let found = value.as_ref().field_type();
            if let Some(expected) = expected
                && expected != found
                && !(expected == FieldType::F64 && is_exact(value))
            {
                return Err(MixedTypes {
                    field: (*field).to_owned(),
                    expected,
                    found,
                });
            }
        }
        let before = self.times.len();
        self.times.push(time_ns);
        for (field, value) in values {
            let at = match self.fields.iter().position(|(n, _)| n == field) {
                Some(at) => at,
                None => {
                    self.fields.push((
                        field.to_owned(),
                        Column::absent(value.as_ref().field_type(), before),
                    ));
                    self.fields.len() - 1
                }
            };
            if let Some((_, column)) = self.fields.get_mut(at)
                && column.len() == before
            {
                let value = match (column.field_type(), value) {
                    (FieldType::F64, Value::I64(v)) => Value::F64(v as f64),
                    (_, value) => value,
                };
                column.push(value.as_ref());
            }
        }
        for (_, column) in &mut self.fields {
            if column.len() == before {
                column.push_absent(1);
            }
        }
        Ok(())
    }

    /// Adds a whole column of present values.
    #[must_use]
    pub fn with_column(mut self, field: impl Into<String>, values: Values) -> Self {
        self.fields
            .push((field.into(), Column::from_values(values)));
        self
    }
}

/// True for an integer that a float represents exactly: its span from the first to the last set bit
/// fits the mantissa.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::I64(value) => {
            let size = value.unsigned_abs();
            size.leading_zeros() + size.trailing_zeros() >= u64::BITS - f64::MANTISSA_DIGITS
        }
        _ => false,
    }
}

/// A row whose value has another type than the field had before in the batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` has type {expected} in this batch, found {found}")]
pub struct MixedTypes {
    /// The field.
    pub field: String,
    /// The type it had.
    pub expected: FieldType,
    /// The type of the refused value.
    pub found: FieldType,
}

/// Rows of any number of streams, written all or nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    entries: Vec<StreamRows>,
    /// Newest of the first `indexed` entries by name; built at the first lookup by name.
    by_name: HashMap<StreamName, usize>,
    indexed: usize,
    producer: Option<Producer>,
    expires_at: Option<Timestamp>,
    requires_all: bool,
}

/// Producer of a batch, and the batch's number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Names the producer; 1 to 255 bytes.
    pub name: String,
    /// Number of the batch; increases from batch to batch of a producer.
    pub number: u64,
}

impl Batch {
    /// Numbers the batch, so that writing it again after an error or a restart stores it once: a
    /// batch whose number is at most the newest stored one of this producer is acknowledged and not
    /// stored again. So a producer has to write its batches in the order of their numbers, and use
    /// each number for one content only.
    ///
    /// ```
    /// let mut batch = headwater_types::Batch::new();
    /// batch.set_producer("gateway-7", 42);
    /// assert_eq!(batch.producer().map(|p| p.number), Some(42));
    /// ```
    pub fn set_producer(&mut self, name: impl Into<String>, number: u64) {
        let name = name.into();
        self.producer = Some(Producer { name, number });
    }

    /// The producer, if the batch is numbered.
    #[must_use]
    pub fn producer(&self) -> Option<&Producer> {
        self.producer.as_ref()
    }

    /// Requires the batch to be stored as a whole: if a row is refused, no row is stored, and no
    /// table, field or stream of its rows is defined.
    ///
    /// ```
    /// let mut batch = headwater_types::Batch::new();
    /// batch.require_all();
    /// assert!(batch.requires_all());
    /// ```
    pub fn require_all(&mut self) {
        self.requires_all = true;
    }

    /// True when the batch is stored as a whole or not at all.
    #[must_use]
    pub fn requires_all(&self) -> bool {
        self.requires_all
    }

    /// An empty batch.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// The rows of one stream, to append to.
    pub fn stream(&mut self, name: &StreamName) -> &mut StreamRows {
        let pushed = self.entries.iter().enumerate().skip(self.indexed);
        for (at, rows) in pushed {
            self.by_name.insert(rows.name.clone(), at);
        }
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None => {
                self.by_name.insert(name.clone(), self.entries.len());
                self.entries.push(StreamRows::new(name.clone()));
                self.entries.len() - 1
            }
        };
        self.indexed = self.entries.len();
        &mut self.entries[at]
    }

    /// Adds whole columns of one stream. Rows of the same stream may be added several times.
    pub fn push(&mut self, rows: StreamRows) {
        self.entries.push(rows);
    }

    /// Sets the expiry of every value of this batch: no reader sees them from then on. A later
    /// write of the same field at the same time has its own expiry, or none.
    pub fn expire_at(&mut self, at: Timestamp) {
        self.expires_at = Some(at);
    }

    /// When the values end, if they do.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// The entries, in the order they were added.
    #[must_use]
    pub fn entries(&self) -> &[StreamRows] {
        &self.entries
    }

    /// The entries, by value.
    #[must_use]
    pub fn into_entries(self) -> Vec<StreamRows> {
        self.entries
    }

    /// Rows in all streams.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.entries.iter().map(|e| e.times.len()).sum()
    }

    /// Whether the batch has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row_count() == 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_stream_name_reads_back_what_it_prints() {
        let name = StreamName::new("a b,c", [("k=1", "v,\\x"), ("a", "")]);
        assert_eq!(StreamName::parse(&name.to_string()).unwrap(), name);
        assert!(StreamName::parse("").is_none() && StreamName::parse("t,x").is_none());
    }

    #[test]
    fn rows_fill_in_absent_values() {
        let mut batch = Batch::new();
        let rows = batch.stream(&StreamName::new("t", [("d", "1")]));
        rows.row(1, [("a", 1.5.into())]).unwrap();
        rows.row(2, [("b", true.into()), ("a", 3i64.into())])
            .unwrap();
        assert!(rows.row(3, [("b", 2.5.into())]).is_err());
        rows.row(4, []).unwrap();
        assert_eq!(rows.times, [1, 2, 4]);
        assert_eq!(
            rows.fields[0].1.to_values(),
            [Some(Value::F64(1.5)), Some(Value::F64(3.0)), None]
        );
        assert_eq!(
            rows.fields[1].1.to_values(),
            [None, Some(Value::Bool(true)), None]
        );
    }

    #[test]
    fn rows_are_found_by_name_however_they_came() {
        let name = |id: &str| StreamName::new("t", [("id", id)]);
        let mut batch = Batch::new();
        batch.push(StreamRows::new(name("1")));
        batch.push(StreamRows::new(name("2")));
        batch.push(StreamRows::new(name("1")));
        batch.stream(&name("1")).row(5, []).unwrap();
        assert_eq!(batch.entries()[2].times, [5]);
        batch.stream(&name("3")).row(6, []).unwrap();
        batch.push(StreamRows::new(name("2")));
        batch.stream(&name("2")).row(7, []).unwrap();
        batch.stream(&name("3")).row(8, []).unwrap();
        let times: Vec<&[i64]> = batch.entries().iter().map(|e| &*e.times).collect();
        assert_eq!(times, [&[][..], &[], &[5], &[6, 8], &[7]]);
    }
}
