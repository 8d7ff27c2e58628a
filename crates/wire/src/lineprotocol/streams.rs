//! The streams a parser has met: their names, their fields, and the rows collected for the batch
//! being built.
//!
//! Invariants: `by_key` maps the exact bytes before the first space of a line to an index into
//! `keys`; several spellings may name one stream, and one of them is the canonical: sorted tags, no
//! needless escapes; a field without a column has no value in this batch, and columns shorter than
//! `times` have no values at their end, which are filled in when next needed; rows of a stream that
//! follow each other are in one entry as long as their types agree. Speed: with many streams of a
//! row each, the main cost is creating and dropping names, so names are shared and moved.

use super::faults::{no_fields, not_utf8};
use super::scan::{unescaped_end, unescaped_name};
use crate::column_builder::{ColumnBuilder, ParsedValue};
use crate::refusal::{Fault, RefusalCode, shown};
use headwater_types::{FieldType, StreamName, StreamRows};
use std::collections::HashMap;
use std::sync::Arc;

/// Up to this number of fields, a field is searched linearly.
const LINEAR_SEARCH_FIELDS_MAX: usize = 12;

/// Approximate bytes of a spelling in addition to its text, in the list, the map and the allocator.
const KEY_BYTES: usize = 150;
/// Approximate bytes of a stream in addition to its names and fields.
const STREAM_BYTES: usize = 400;

/// A spelling of a stream's name.
#[derive(Debug)]
struct Key {
    raw: Arc<[u8]>,
    stream: usize,
    /// The key that followed this key last time.
    successor: usize,
}

/// All streams in the cache of a parser.
#[derive(Debug, Default)]
pub(super) struct Streams {
    keys: Vec<Key>,
    by_key: HashMap<Arc<[u8]>, usize>,
    streams: Vec<Stream>,
    /// Streams with rows in this batch, in the order of their first rows.
    active: Vec<usize>,
    last_key: usize,
    name_bytes: usize,
    recent: RecentFields,
}

/// Keys of the most recently created fields, by their index in the line: other streams of the table
/// use the same.
#[derive(Debug, Default)]
pub(super) struct RecentFields {
    keys: Vec<Arc<FieldKey>>,
    /// Fields of all streams.
    count: usize,
}

/// The name of a field.
#[derive(Debug)]
pub(super) struct FieldKey {
    /// Spelling in the lines.
    pub(super) raw: Box<[u8]>,
    name: String,
}

/// A stream and its rows in the batch being built.
#[derive(Debug)]
pub(super) struct Stream {
    name: StreamName,
    pub(super) fields: Vec<Field>,
    /// Index of the fields, created when their number is large.
    by_field: Option<HashMap<Box<[u8]>, usize>>,
    times: Vec<i64>,
    lines: Vec<u64>,
    /// Rows before a field changed its type, as separate entries.
    earlier: Vec<(StreamRows, Vec<u64>)>,
    /// Rows in the batch before, to reserve memory by.
    rows_hint: usize,
}

/// A field of a stream.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) key: Arc<FieldKey>,
    /// `None` until the field has a value in this batch.
    column: Option<ColumnBuilder>,
    /// Line in which the field last occurred, to detect duplicates in one line.
    seen_at: u64,
}

impl Streams {
    /// The stream whose key is at the front of `line`, and the length of the key.
    ///
    /// # Errors
    /// When the key is malformed or not UTF-8, or is the end of the line.
    #[inline]
    pub(super) fn find(&mut self, line: &[u8]) -> Result<(usize, usize), Fault> {
        let guess = self.keys.get(self.last_key).map_or(0, |k| k.successor);
        if let Some(key) = self.keys.get(guess)
            && line.starts_with(&key.raw)
            && line.get(key.raw.len()) == Some(&b' ')
        {
            self.last_key = guess;
            return Ok((key.stream, key.raw.len()));
        }
        self.find_by_hash(line)
    }

    fn find_by_hash(&mut self, line: &[u8]) -> Result<(usize, usize), Fault> {
        let end = unescaped_end(line, |b| b == b' ');
        let raw = line.get(..end).unwrap_or_default();
        if end == line.len() {
            // Never cached: with a backslash at its end, the key would match again in front of a
            // space that belongs to a name.
            stream_name(raw)?;
            return Err(no_fields());
        }
        let at = match self.by_key.get(raw) {
            Some(at) => *at,
            None => self.learn(raw)?,
        };
        if let Some(last) = self.keys.get_mut(self.last_key) {
            last.successor = at;
        }
        self.last_key = at;
        Ok((self.keys.get(at).map_or(0, |k| k.stream), end))
    }

    fn learn(&mut self, raw: &[u8]) -> Result<usize, Fault> {
        let (name, is_canonical) = stream_name(raw)?;
        if is_canonical {
            return Ok(self.add_stream(raw, name));
        }
        let mut canonical = Vec::with_capacity(raw.len() + 8);
        push_canonical(&mut canonical, &name);
        let known = self.by_key.get(canonical.as_slice()).copied();
        let known = known.unwrap_or_else(|| self.add_stream(&canonical, name));
        let stream = self.keys.get(known).map_or(0, |k| k.stream);
        Ok(self.add_key(raw, stream))
    }

    fn add_stream(&mut self, canonical: &[u8], name: StreamName) -> usize {
        self.name_bytes += STREAM_BYTES + canonical.len() * 2;
        self.streams.push(Stream {
            name,
            fields: Vec::new(),
            by_field: None,
            times: Vec::new(),
            lines: Vec::new(),
            earlier: Vec::new(),
            rows_hint: 0,
        });
        self.add_key(canonical, self.streams.len() - 1)
    }

    fn add_key(&mut self, raw: &[u8], stream: usize) -> usize {
        let raw: Arc<[u8]> = raw.into();
        self.name_bytes += KEY_BYTES + raw.len();
        let at = self.keys.len();
        self.by_key.insert(Arc::clone(&raw), at);
        self.keys.push(Key {
            raw,
            stream,
            successor: at + 1,
        });
        at
    }

    /// A stream, and the fields that it can adopt from others.
    pub(super) fn get_mut(&mut self, stream: usize) -> Option<(&mut Stream, &mut RecentFields)> {
        Some((self.streams.get_mut(stream)?, &mut self.recent))
    }

    /// Notes that a stream has its first row in this batch.
    pub(super) fn activate(&mut self, stream: usize) {
        self.active.push(stream);
    }

    /// Returns the collected rows with their line numbers. Names stay cached, unless they exceed
    /// `bytes_max`.
    pub(super) fn take_rows(
        &mut self,
        bytes_max: usize,
        mut take: impl FnMut(StreamRows, Vec<u64>),
    ) {
        let field_bytes = self.recent.count * size_of::<Field>();
        if self.name_bytes + field_bytes <= bytes_max {
            for at in self.active.drain(..) {
                if let Some(stream) = self.streams.get_mut(at) {
                    stream
                        .earlier
                        .drain(..)
                        .for_each(|(rows, lines)| take(rows, lines));
                    let name = stream.name.clone();
                    let (rows, lines) = stream.take_rows(name);
                    take(rows, lines);
                }
            }
            return;
        }
        self.active.clear();
        self.keys.clear();
        self.by_key.clear();
        self.last_key = 0;
        self.name_bytes = 0;
        self.recent.count = 0;
        for mut stream in self.streams.drain(..) {
            if !stream.times.is_empty() {
                stream
                    .earlier
                    .drain(..)
                    .for_each(|(rows, lines)| take(rows, lines));
                let name = std::mem::replace(&mut stream.name, StreamName::new("", NO_TAGS));
                let (rows, lines) = stream.take_rows(name);
                take(rows, lines);
            }
        }
    }
}

const NO_TAGS: [(&str, &str); 0] = [];

impl RecentFields {
    /// A key for the field at index `at` of a line.
    fn key(&mut self, at: usize, raw: &[u8]) -> Result<Arc<FieldKey>, Fault> {
        if let Some(key) = self.keys.get(at)
            && *key.raw == *raw
        {
            return Ok(Arc::clone(key));
        }
        let text = std::str::from_utf8(raw).map_err(|_| not_utf8("the key of a field", raw))?;
        if text.is_empty() {
            return Err(Fault::new(
                RefusalCode::Parse,
                "expected the name of a field before `=`, found nothing",
            ));
        }
        let key = Arc::new(FieldKey {
            raw: raw.into(),
            name: unescaped_name(text),
        });
        match self.keys.get_mut(at) {
            Some(place) => *place = Arc::clone(&key),
            None => self.keys.push(Arc::clone(&key)),
        }
        Ok(key)
    }
}

impl Stream {
    /// The field whose key is `raw`, created when new.
    ///
    /// # Errors
    /// When the key is not a name, or the number of fields would exceed `fields_max`.
    pub(super) fn field(
        &mut self,
        raw: &[u8],
        recent: &mut RecentFields,
        fields_max: usize,
    ) -> Result<usize, Fault> {
        if let Some(at) = self.known_field(raw) {
            return Ok(at);
        }
        let key = recent.key(self.fields.len(), raw)?;
        // Two spellings of one name are possible only if one contains a backslash.
        if let Some(at) = self.fields.iter().position(|f| f.key.name == key.name) {
            return Ok(at);
        }
        if self.fields.len() >= fields_max {
            return Err(Fault::new(
                RefusalCode::LimitFields,
                format!(
                    "field {} would be field number {} of {}; at most {fields_max} are allowed",
                    shown(raw),
                    self.fields.len() + 1,
                    self.name
                ),
            ));
        }
        if let Some(index) = &mut self.by_field {
            index.insert(raw.into(), self.fields.len());
        }
        recent.count += 1;
        self.fields.push(Field {
            key,
            column: None,
            seen_at: 0,
        });
        Ok(self.fields.len() - 1)
    }

    fn known_field(&mut self, raw: &[u8]) -> Option<usize> {
        if self.fields.len() <= LINEAR_SEARCH_FIELDS_MAX {
            return self.fields.iter().position(|f| *f.key.raw == *raw);
        }
        let fields = &self.fields;
        let index = self.by_field.get_or_insert_with(|| {
            let keys = fields
                .iter()
                .enumerate()
                .map(|(at, f)| (f.key.raw.clone(), at));
            keys.collect()
        });
        index.get(raw).copied()
    }

    /// Takes back fields that a refused line has made.
    pub(super) fn forget_fields_from(&mut self, count: usize, recent: &mut RecentFields) {
        recent.count -= self.fields.len().saturating_sub(count);
        for field in self.fields.drain(count.min(self.fields.len())..) {
            if let Some(index) = &mut self.by_field {
                index.remove(&field.key.raw);
            }
        }
    }

    /// Keeps the last value of each field that `staged` names twice. `mark` is a number never used
    /// before.
    pub(super) fn keep_last(&mut self, staged: &mut Vec<(usize, ParsedValue<'_>)>, mark: u64) {
        staged.reverse();
        staged.retain(|(at, _)| {
            self.fields.get_mut(*at).is_some_and(|field| {
                let is_first = field.seen_at != mark;
                field.seen_at = mark;
                is_first
            })
        });
    }

    /// Appends a row. True when it is the stream's first row of this batch.
    ///
    /// A value whose type conflicts with previous rows starts a new entry: the table decides
    /// between the types.
    #[inline]
    pub(super) fn add_row(
        &mut self,
        staged: &[(usize, ParsedValue<'_>)],
        time_ns: i64,
        line: u64,
        scratch: &mut Vec<u8>,
    ) -> bool {
        let clashes = staged.iter().any(|(at, found)| {
            self.fields.get(*at).is_some_and(|field| {
                let column = field.column.as_ref();
                column.is_some_and(|c| c.field_type() != found.field_type() && !fits(c, *found))
            })
        });
        let is_first = self.times.is_empty();
        if clashes {
            self.cut_rows();
        }
        let row = self.times.len();
        let rows_hint = self.rows_hint;
        for (at, found) in staged {
            if let Some(field) = self.fields.get_mut(*at) {
                field.push(*found, row, rows_hint, scratch);
            }
        }
        if row == 0 {
            self.times.reserve(rows_hint);
            self.lines.reserve(rows_hint);
        }
        self.times.push(time_ns);
        self.lines.push(line);
        is_first
    }

    /// Closes the rows so far as a separate entry.
    #[cold]
    fn cut_rows(&mut self) {
        let rows_hint = self.rows_hint;
        let rows = self.take_rows(self.name.clone());
        self.earlier.push(rows);
        self.rows_hint = rows_hint;
    }

    fn take_rows(&mut self, name: StreamName) -> (StreamRows, Vec<u64>) {
        let times = std::mem::take(&mut self.times);
        self.rows_hint = times.len();
        let mut rows = StreamRows::new(name);
        rows.fields.reserve_exact(self.fields.len());
        for field in &mut self.fields {
            if let Some(mut column) = field.column.take() {
                column.pad_to(times.len());
                rows.fields
                    .push((field.key.name.clone(), column.into_column()));
            }
        }
        rows.times = times;
        (rows, std::mem::take(&mut self.lines))
    }
}

impl Field {
    #[inline]
    fn push(
        &mut self,
        found: ParsedValue<'_>,
        row: usize,
        rows_hint: usize,
        scratch: &mut Vec<u8>,
    ) {
        let column = self
            .column
            .get_or_insert_with(|| ColumnBuilder::new(found.field_type(), rows_hint));
        column.pad_to(row);
        if column.field_type() == FieldType::I64 && found.field_type() == FieldType::F64 {
            column.widen_to_f64();
        }
        column.push(found, scratch);
    }
}

/// True when a value of another type may be appended to the column, after widening one of the two
/// to f64.
#[cold]
fn fits(column: &ColumnBuilder, found: ParsedValue<'_>) -> bool {
    match (column.field_type(), found.field_type()) {
        (FieldType::F64, FieldType::I64) => found.is_exact_in_f64(),
        (FieldType::I64, FieldType::F64) => column.is_exact_in_f64(),
        _ => false,
    }
}

/// `table,tag=value,…` without its escapes, and whether this is its canonical spelling.
fn stream_name(raw: &[u8]) -> Result<(StreamName, bool), Fault> {
    let parse = |message: String| Fault::new(RefusalCode::Parse, message);
    let text = std::str::from_utf8(raw).map_err(|_| not_utf8("the table or a tag", raw))?;
    let table_end = unescaped_end(raw, |b| b == b',');
    let table = text.get(..table_end).unwrap_or_default();
    if table.is_empty() {
        return Err(parse(format!(
            "expected the name of a table first, found {}",
            shown(raw)
        )));
    }
    let mut tags: Vec<(String, String)> = Vec::new();
    let mut rest = text.get(table_end..).unwrap_or_default();
    while let Some(tail) = rest.strip_prefix(',') {
        let end = unescaped_end(tail.as_bytes(), |b| b == b',');
        let pair = tail.get(..end).unwrap_or_default();
        rest = tail.get(end..).unwrap_or_default();
        let equals = unescaped_end(pair.as_bytes(), |b| b == b'=');
        let key = pair.get(..equals).unwrap_or_default();
        let Some(value) = pair.get(equals + 1..) else {
            return Err(parse(format!(
                "expected tag=value after the comma, found {}; put a backslash before a comma or space that belongs to a name",
                shown(pair.as_bytes())
            )));
        };
        if key.is_empty() || value.is_empty() {
            return Err(parse(format!(
                "tag {} has no {}; leave the tag out instead",
                shown(pair.as_bytes()),
                if key.is_empty() { "name" } else { "value" }
            )));
        }
        if unescaped_end(value.as_bytes(), |b| b == b'=') < value.len() {
            return Err(parse(format!(
                "tag {} has a second `=`; write \\= inside a name or value",
                shown(pair.as_bytes())
            )));
        }
        let key = unescaped_name(key);
        if tags.iter().any(|(other, _)| *other == key) {
            return Err(parse(format!(
                "tag {} is repeated; a stream has one value per tag",
                shown(key.as_bytes())
            )));
        }
        tags.push((key, unescaped_name(value)));
    }
    let is_canonical = tags.is_sorted() && memchr::memchr(b'\\', raw).is_none();
    Ok((StreamName::new(unescaped_name(table), tags), is_canonical))
}

/// Appends the spelling of a field's name with the necessary backslashes only.
pub(crate) fn push_field(out: &mut Vec<u8>, name: &str) {
    push_escaped(out, name, b",= \\");
}

fn push_escaped(out: &mut Vec<u8>, text: &str, special: &[u8]) {
    for byte in text.bytes() {
        if special.contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// Appends the spelling with sorted tags and the necessary backslashes only.
pub(crate) fn push_canonical(out: &mut Vec<u8>, name: &StreamName) {
    let mut push = |text: &str, special: &[u8]| push_escaped(out, text, special);
    push(name.table(), b", \\");
    for (key, value) in name.tags() {
        push(",", b"");
        push(key, b",= \\");
        push("=", b"");
        push(value, b",= \\");
    }
}
