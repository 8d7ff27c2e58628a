//! The streams of a file and the rows collected for the batch being built.
//!
//! Invariants: a stream's `columns` are indexed like the fields of the layout; a column that is
//! `None` has no value in this batch, a column shorter than `times` has no values at its end.

use crate::column_builder::{ColumnBuilder, ParsedValue};
use crate::parsed_batch::ParsedBatch;
use csv::ByteRecord;
use headwater_types::{FieldType, StreamName, StreamRows};
use std::collections::HashMap;
use std::sync::Arc;

/// Ends a tag in a key; no UTF-8 text contains it.
const KEY_END: u8 = 0xFF;

/// All streams found in the file.
#[derive(Debug, Default)]
pub(super) struct Streams {
    by_key: HashMap<Arc<[u8]>, usize>,
    streams: Vec<Stream>,
    active: Vec<usize>,
    last: usize,
    key: Vec<u8>,
    name_bytes: usize,
}

#[derive(Debug)]
struct Stream {
    key: Arc<[u8]>,
    name: StreamName,
    times: Vec<i64>,
    lines: Vec<u64>,
    columns: Vec<Option<ColumnBuilder>>,
    rows_hint: usize,
}

impl Streams {
    /// The stream of a record's tag cells. `name_of` is called for new names.
    pub(super) fn find<E>(
        &mut self,
        record: &ByteRecord,
        cells: impl Iterator<Item = usize>,
        name_of: impl FnOnce() -> Result<StreamName, E>,
    ) -> Result<usize, E> {
        self.key.clear();
        for cell in cells {
            self.key
                .extend_from_slice(record.get(cell).unwrap_or_default());
            self.key.push(KEY_END);
        }
        if let Some(stream) = self.streams.get(self.last)
            && *stream.key == *self.key
        {
            return Ok(self.last);
        }
        self.last = match self.by_key.get(self.key.as_slice()) {
            Some(at) => *at,
            None => {
                let name = name_of()?;
                let key: Arc<[u8]> = self.key.as_slice().into();
                self.by_key.insert(Arc::clone(&key), self.streams.len());
                self.name_bytes += key.len() * 4 + 400;
                self.streams.push(Stream {
                    key,
                    name,
                    times: Vec::new(),
                    lines: Vec::new(),
                    columns: Vec::new(),
                    rows_hint: 0,
                });
                self.streams.len() - 1
            }
        };
        Ok(self.last)
    }

    /// Appends a row. Every value has the type of its column.
    pub(super) fn add_row(
        &mut self,
        stream: usize,
        time_ns: i64,
        line: u64,
        values: &[(usize, ParsedValue<'_>)],
        scratch: &mut Vec<u8>,
    ) {
        let Some(rows) = self.streams.get_mut(stream) else {
            return;
        };
        let row = rows.times.len();
        if row == 0 {
            self.active.push(stream);
            rows.times.reserve(rows.rows_hint);
            rows.lines.reserve(rows.rows_hint);
        }
        let rows_hint = rows.rows_hint;
        for (field, found) in values {
            if rows.columns.len() <= *field {
                rows.columns.resize_with(field + 1, || None);
            }
            if let Some(column) = rows.columns.get_mut(*field) {
                let column =
                    column.get_or_insert_with(|| ColumnBuilder::new(found.field_type(), rows_hint));
                column.pad_to(row);
                column.push(*found, scratch);
            }
        }
        rows.times.push(time_ns);
        rows.lines.push(line);
    }

    /// True when f64 represents every integer of a field in this batch exactly.
    pub(super) fn is_exact_in_f64(&self, field: usize) -> bool {
        self.columns_of(field)
            .all(|c| c.field_type() != FieldType::I64 || c.is_exact_in_f64())
    }

    fn columns_of(&self, field: usize) -> impl Iterator<Item = &ColumnBuilder> {
        self.active
            .iter()
            .filter_map(move |at| self.streams.get(*at)?.columns.get(field)?.as_ref())
    }

    /// Turns the integers of a field in this batch into floats.
    pub(super) fn widen_to_f64(&mut self, field: usize) {
        for at in &self.active {
            if let Some(stream) = self.streams.get_mut(*at)
                && let Some(Some(column)) = stream.columns.get_mut(field)
            {
                column.widen_to_f64();
            }
        }
    }

    /// Moves the collected rows into `parsed`. Names stay cached, unless they exceed `bytes_max`.
    pub(super) fn take_rows<'n>(
        &mut self,
        field_name: impl Fn(usize) -> &'n str,
        bytes_max: usize,
        parsed: &mut ParsedBatch,
    ) {
        let columns: usize = self.streams.iter().map(|s| s.columns.len()).sum();
        if self.name_bytes + columns * size_of::<Option<ColumnBuilder>>() <= bytes_max {
            for at in self.active.drain(..) {
                if let Some(stream) = self.streams.get_mut(at) {
                    let name = stream.name.clone();
                    stream.take_rows(name, &field_name, parsed);
                }
            }
            return;
        }
        self.active.clear();
        self.by_key.clear();
        self.name_bytes = 0;
        self.last = 0;
        for mut stream in self.streams.drain(..) {
            if !stream.times.is_empty() {
                let name = std::mem::replace(&mut stream.name, StreamName::new("", NO_TAGS));
                stream.take_rows(name, &field_name, parsed);
            }
        }
    }
}

const NO_TAGS: [(&str, &str); 0] = [];

impl Stream {
    fn take_rows<'n>(
        &mut self,
        name: StreamName,
        field_name: impl Fn(usize) -> &'n str,
        parsed: &mut ParsedBatch,
    ) {
        let mut rows = StreamRows::new(name);
        rows.times = std::mem::take(&mut self.times);
        self.rows_hint = rows.times.len();
        rows.fields.reserve_exact(self.columns.len());
        for (field, column) in self.columns.iter_mut().enumerate() {
            if let Some(mut column) = column.take() {
                column.pad_to(rows.times.len());
                rows.fields
                    .push((field_name(field).to_owned(), column.into_column()));
            }
        }
        parsed.batch.push(rows);
        parsed.lines.push(std::mem::take(&mut self.lines));
    }
}
