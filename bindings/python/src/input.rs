//! Input columns, borrowed from numpy arrays or Arrow arrays, and their conversion to the engine's
//! batches.
//!
//! Invariants: an absent row's slot becomes zero or empty, whatever the caller's array contains
//! there. This module does not use Python: the pointers were read while Python's lock was held, and
//! the caller keeps the arrays alive.

use crate::arrow_columns::{self, from_parts};
use crate::errors::{Outcome, Problem};
use arrow_array::ArrayRef;
use headwater::{Bitmap, Column, FieldType, StreamName, StreamRows, Values, VarBytes};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// Pairs of tag and value.
pub(crate) type Tags = Vec<(String, String)>;

/// Text or bytes of any length, end to end.
#[derive(Default)]
pub(crate) struct Text {
    pub(crate) ends: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Text {
    pub(crate) fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    fn start(&self, row: usize) -> usize {
        row.checked_sub(1)
            .and_then(|r| self.ends.get(r).copied())
            .unwrap_or(0)
    }

    fn get(&self, row: usize) -> &[u8] {
        let end = self.ends.get(row).copied().unwrap_or(0);
        self.bytes.get(self.start(row)..end).unwrap_or_default()
    }
}

/// The values of one field.
pub(crate) enum Source<'a> {
    F64(&'a [f64]),
    I64(&'a [i64]),
    U64(&'a [u64]),
    /// Booleans; nonzero bytes are true.
    Bool(&'a [u8]),
    /// Strings or bytes.
    Text(FieldType, &'a Text),
    /// numpy's `U`: UCS-4, this many units each, padded with zeros.
    Utf32(&'a [u32], usize),
    /// numpy's `S`: this many bytes each, padded with zeros.
    Fixed(&'a [u8], usize),
    Arrow(&'a ArrayRef),
}

/// A field with its values. `absent` has a byte for each row; a nonzero byte means that the row has
/// no value.
pub(crate) struct Field<'a> {
    pub(crate) name: String,
    pub(crate) source: Source<'a>,
    pub(crate) absent: Option<&'a [u8]>,
}

/// Values of `slice[rows]`, with zeros for absent rows.
fn numbers<T: Copy + Default>(values: &[T], rows: &Range<usize>, absent: Option<&[u8]>) -> Vec<T> {
    let values = values.get(rows.clone()).unwrap_or_default();
    match absent.and_then(|a| a.get(rows.clone())) {
        None => values.to_vec(),
        Some(absent) => values
            .iter()
            .zip(absent)
            .map(|(v, a)| if *a == 0 { *v } else { T::default() })
            .collect(),
    }
}

/// Bitmap of present rows; `None` = all.
fn presence(rows: &Range<usize>, absent: Option<&[u8]>) -> Option<Bitmap> {
    let absent = absent?.get(rows.clone())?;
    if absent.iter().all(|a| *a == 0) {
        return None;
    }
    let mut bits = Bitmap::default();
    for a in absent {
        bits.push(*a == 0);
    }
    Some(bits)
}

/// A column from text of rows; empty where absent.
fn text<'v>(
    rows: &Range<usize>,
    absent: Option<&[u8]>,
    mut value: impl FnMut(usize) -> Outcome<Cow<'v, [u8]>>,
) -> Outcome<VarBytes> {
    let mut out = VarBytes::new();
    out.reserve_exact(rows.len());
    let mut total = 0usize;
    for row in rows.clone() {
        if absent.and_then(|a| a.get(row)).is_some_and(|a| *a != 0) {
            out.push(b"");
            continue;
        }
        let value = value(row)?;
        total += value.len();
        if u32::try_from(total).is_err() {
            return Err(Problem::invalid(
                "more than 4 GiB of text in one batch: split the write",
            ));
        }
        out.push(&value);
    }
    Ok(out)
}

fn trimmed<T: PartialEq + Default>(units: &[T]) -> &[T] {
    let zero = T::default();
    let len = units
        .iter()
        .rposition(|u| *u != zero)
        .map_or(0, |at| at + 1);
    units.get(..len).unwrap_or_default()
}

impl Field<'_> {
    /// The rows as a column of the engine.
    pub(crate) fn column(&self, rows: Range<usize>) -> Outcome<Column> {
        let absent = self.absent;
        let values = match &self.source {
            Source::F64(v) => Values::F64(numbers(v, &rows, absent)),
            Source::I64(v) => Values::I64(numbers(v, &rows, absent)),
            Source::U64(v) => Values::U64(numbers(v, &rows, absent)),
            Source::Bool(v) => {
                let bytes = numbers(v, &rows, absent);
                Values::Bool(bytes.into_iter().map(|b| b != 0).collect())
            }
            Source::Text(kind, source) => {
                let text = text(&rows, absent, |row| Ok(Cow::Borrowed(source.get(row))))?;
                match kind {
                    FieldType::Bytes => Values::Bytes(text),
                    _ => Values::String(text),
                }
            }
            Source::Utf32(units, width) => Values::String(text(&rows, absent, |row| {
                let units = units
                    .get(row * width..(row + 1) * width)
                    .unwrap_or_default();
                let mut out = String::with_capacity(*width);
                for unit in trimmed(units) {
                    out.push(char::from_u32(*unit).ok_or_else(|| {
                        Problem::invalid(format!(
                            "field `{}`, row {row}: U+{unit:04X} cannot be encoded in UTF-8",
                            self.name
                        ))
                    })?);
                }
                Ok(Cow::Owned(out.into_bytes()))
            })?),
            Source::Fixed(bytes, width) => Values::Bytes(text(&rows, absent, |row| {
                let bytes = bytes.get(row * width..(row + 1) * width);
                Ok(Cow::Borrowed(trimmed(bytes.unwrap_or_default())))
            })?),
            Source::Arrow(array) => return arrow_columns::column(&self.name, array, rows),
        };
        from_parts(values, presence(&rows, absent))
    }

    /// Bytes of the rows as the engine counts them for the size of a batch, or a few more.
    fn bytes(&self, rows: &Range<usize>) -> usize {
        match &self.source {
            Source::F64(_) | Source::I64(_) | Source::U64(_) => 8 * rows.len(),
            Source::Bool(_) => rows.len(),
            Source::Text(_, text) => text.start(rows.end) - text.start(rows.start),
            Source::Utf32(_, width) => 4 * width * rows.len(),
            Source::Fixed(_, width) => width * rows.len(),
            Source::Arrow(array) => arrow_columns::bytes(array, rows),
        }
    }
}

/// A tag of every row: an index into `values`, or negative if absent.
pub(crate) struct Tag<'a> {
    pub(crate) key: String,
    pub(crate) codes: Cow<'a, [i32]>,
    pub(crate) values: Vec<String>,
}

/// Rows of a table that are passed together.
pub(crate) struct TableRows<'a> {
    pub(crate) table: String,
    /// Tags of all rows.
    pub(crate) fixed: Vec<(String, String)>,
    /// Tags by row.
    pub(crate) tags: Vec<Tag<'a>>,
    /// Nanoseconds since 1970 UTC.
    pub(crate) times: Cow<'a, [i64]>,
    pub(crate) fields: Vec<Field<'a>>,
}

/// Input rows of an entry of a batch.
#[derive(Clone)]
pub(crate) enum Origin {
    /// Consecutive rows, from this one on.
    From(usize),
    /// Selected rows, from a first one on.
    Picked(usize, Vec<u32>),
}

impl Origin {
    /// The row of the input that is row `row` of the entry.
    pub(crate) fn row(&self, row: usize) -> usize {
        match self {
            Origin::From(first) => first + row,
            Origin::Picked(first, rows) => first + rows.get(row).map_or(0, |r| *r as usize),
        }
    }
}

impl TableRows<'_> {
    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// Bytes of the rows, for the size of a batch.
    pub(crate) fn bytes(&self, rows: &Range<usize>) -> usize {
        let fields: usize = self.fields.iter().map(|f| f.bytes(rows)).sum();
        8 * rows.len() + fields
    }

    /// The stream of a row with these codes of the tags by row.
    fn name(&self, codes: &[i32]) -> StreamName {
        let by_row = self.tags.iter().zip(codes).filter_map(|(tag, code)| {
            let value = tag.values.get(usize::try_from(*code).ok()?)?;
            Some((tag.key.clone(), value.clone()))
        });
        StreamName::new(self.table.clone(), self.fixed.iter().cloned().chain(by_row))
    }

    /// The rows as entries of a batch, one for each stream, in the order of their first rows.
    pub(crate) fn entries(
        &self,
        rows: Range<usize>,
        first_row: usize,
        mut put: impl FnMut(StreamRows, Origin),
    ) -> Outcome<()> {
        let first = first_row + rows.start;
        let times = self.times.get(rows.clone()).unwrap_or_default();
        let mut columns = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            columns.push((field.name.clone(), field.column(rows.clone())?));
        }
        if self.tags.is_empty() {
            let mut entry = StreamRows::new(self.name(&[]));
            entry.times = times.to_vec();
            entry.fields = columns;
            put(entry, Origin::From(first));
            return Ok(());
        }
        let groups = self.groups(&rows);
        let single = groups.len() == 1;
        for (codes, picked) in groups {
            let mut entry = StreamRows::new(self.name(&codes));
            if single {
                entry.times = times.to_vec();
                entry.fields = std::mem::take(&mut columns);
                put(entry, Origin::From(first));
                break;
            }
            let at = |row: &u32| times.get(*row as usize).copied().unwrap_or_default();
            entry.times = picked.iter().map(at).collect();
            entry.fields = columns
                .iter()
                .map(|(name, column)| (name.clone(), column.gather(&picked)))
                .collect();
            put(entry, Origin::Picked(first, picked));
        }
        Ok(())
    }

    /// The rows (counted from `rows.start`) of each combination of tags.
    fn groups(&self, rows: &Range<usize>) -> Vec<(Vec<i32>, Vec<u32>)> {
        let mut groups: Vec<(Vec<i32>, Vec<u32>)> = Vec::new();
        let mut known: HashMap<Vec<i32>, usize> = HashMap::new();
        let mut codes: Vec<i32> = Vec::with_capacity(self.tags.len());
        let mut current = usize::MAX;
        for (index, row) in rows.clone().enumerate() {
            codes.clear();
            codes.extend(
                self.tags
                    .iter()
                    .map(|tag| tag.codes.get(row).copied().unwrap_or(-1).max(-1)),
            );
            // Frames are mostly ordered by device, or have few of them.
            if groups.get(current).is_none_or(|(c, _)| *c != codes) {
                current = match known.get(&codes) {
                    Some(at) => *at,
                    None => {
                        known.insert(codes.clone(), groups.len());
                        groups.push((codes.clone(), Vec::new()));
                        groups.len() - 1
                    }
                };
            }
            if let Some((_, picked)) = groups.get_mut(current) {
                // A part has fewer than 2^32 rows: it fits into a batch.
                picked.push(u32::try_from(index).unwrap_or(u32::MAX));
            }
        }
        groups
    }
}
