//! Reads rows in place, for programs that copy them once, to their own memory.
//!
//! A scan copies rows into memory of the reader: most of the cost of a small read, and half of a
//! large one from memory. Where a stream's rows in a range only have to be concatenated (leaves of
//! main runs, followed by chunks of memory, as events in order make them), they are passed on as
//! they are in the cache of decoded leaves and in memory. Everything else (late events, deletes,
//! expiry, filters, widened fields) is scanned.
//!
//! Invariants: the concatenated chunks equal the result of a scan. Concurrency: chunks and decoded
//! columns are shared by reference count; no lock is held while the reader's code runs. Failure:
//! the first error ends the read.

use super::scan::{ScanChunk, ScanSpec, requested_field, requested_fields};
use super::single::{ResolvedStream, SingleSnapshot};
use crate::Result;
use crate::common::ids::SegmentId;
use crate::memory::chunk::Chunk;
use crate::memory::{lie_in_order, rows_in};
use crate::metadata::catalog::Table;
use crate::storage::segment::{AheadOfReader, LeafCaching, LeafColumns, LeafEntry};
use headwater_types::{
    ClosedRange, Column, FieldId, FieldType, Rows, StreamName, ValueRef, Values,
};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Some rows of a read, by time, valid during the call by [`crate::Snapshot::visit`].
#[derive(Clone, Debug)]
pub struct RowBlock<'a> {
    times: &'a [i64],
    /// The rows of the columns that belong to the block.
    rows: Range<usize>,
    columns: Columns<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Columns<'a> {
    Memory(&'a Rows, RequestedFields<'a>),
    Leaf(&'a LeafColumns, RequestedFields<'a>),
    Own(&'a [Column]),
}

/// The requested range and fields.
#[derive(Clone, Copy, Debug)]
struct RequestedFields<'a> {
    fields: &'a [FieldId],
    table: &'a Table,
}

impl<'a> RowBlock<'a> {
    /// The rows of a chunk, which has at least one.
    pub(super) fn of(chunk: &'a ScanChunk) -> RowBlock<'a> {
        RowBlock {
            times: &chunk.times,
            rows: 0..chunk.times.len(),
            columns: Columns::Own(&chunk.columns),
        }
    }

    /// Number of rows, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Nanoseconds since 1970 UTC.
    #[must_use]
    pub fn times(&self) -> &'a [i64] {
        self.times
    }

    /// Number of requested fields.
    #[must_use]
    pub fn width(&self) -> usize {
        match self.columns {
            Columns::Memory(_, wanted) | Columns::Leaf(_, wanted) => wanted.fields.len(),
            Columns::Own(columns) => columns.len(),
        }
    }

    /// The type of a field, by its position among the requested fields.
    #[must_use]
    pub fn field_type(&self, place: usize) -> Option<FieldType> {
        match self.columns {
            Columns::Memory(_, wanted) | Columns::Leaf(_, wanted) => {
                let field = wanted.table.field(*wanted.fields.get(place)?)?;
                Some(field.field_type)
            }
            Columns::Own(columns) => columns.get(place).map(Column::field_type),
        }
    }

    /// The values of a field, by its position among the requested fields; `None` when no row of the
    /// block has a value.
    #[must_use]
    pub fn column(&self, place: usize) -> Option<ColumnSlice<'a>> {
        let column = match self.columns {
            Columns::Memory(rows, wanted) => {
                let field = wanted.fields.get(place)?;
                rows.column(*field)?
            }
            Columns::Leaf(columns, wanted) => columns.column(*wanted.fields.get(place)?)?,
            Columns::Own(columns) => columns.get(place)?,
        };
        Some(ColumnSlice {
            column,
            rows: self.rows.clone(),
        })
    }
}

/// Values of one field: a slot for each row of a [`RowBlock`]; some rows may have no value.
#[derive(Clone, Debug)]
pub struct ColumnSlice<'a> {
    column: &'a Column,
    rows: Range<usize>,
}

impl<'a> ColumnSlice<'a> {
    /// The type of the field.
    #[must_use]
    pub fn field_type(&self) -> FieldType {
        self.column.field_type()
    }

    /// True when every row is known to have a value.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.column.presence().is_none()
    }

    /// True when a row has a value.
    #[must_use]
    pub fn is_present(&self, row: usize) -> bool {
        row < self.rows.len() && self.column.is_present(self.rows.start + row)
    }

    /// The value of a row, if it has one.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<ValueRef<'a>> {
        if row >= self.rows.len() {
            return None;
        }
        self.column.get(self.rows.start + row)
    }

    /// The slots of a field of floats; `None` for another type.
    #[must_use]
    pub fn f64s(&self) -> Option<&'a [f64]> {
        match self.column.values() {
            Values::F64(values) => values.get(self.rows.clone()),
            _ => None,
        }
    }

    /// The slots of a field of signed integers; `None` for another type.
    #[must_use]
    pub fn i64s(&self) -> Option<&'a [i64]> {
        match self.column.values() {
            Values::I64(values) => values.get(self.rows.clone()),
            _ => None,
        }
    }

    /// The slots of a field of unsigned integers; `None` for another type.
    #[must_use]
    pub fn u64s(&self) -> Option<&'a [u64]> {
        match self.column.values() {
            Values::U64(values) => values.get(self.rows.clone()),
            _ => None,
        }
    }
}

/// See [`crate::Snapshot::visit`].
pub(super) fn visit(
    snapshot: &SingleSnapshot,
    found: ResolvedStream<'_>,
    spec: &ScanSpec,
    mut each: impl FnMut(RowBlock<'_>),
) -> Result<()> {
    let table = found.table;
    let one;
    let many;
    let fields: &[FieldId] = match spec.fields.as_deref() {
        Some([name]) => {
            one = [requested_field(table, name)?];
            &one
        }
        _ => {
            many = requested_fields(table, spec)?;
            &many
        }
    };
    if let Some(lying) = ConcatenatedRows::find(snapshot, &found, spec, fields)? {
        return lying.hand_out(
            snapshot,
            RequestedFields { fields, table },
            &spec.range,
            &mut each,
        );
    }
    for chunk in snapshot.scan_found(found, spec)? {
        each(RowBlock::of(&chunk?));
    }
    Ok(())
}

impl SingleSnapshot {
    /// As `Snapshot::visit`.
    pub(super) fn visit(
        &self,
        stream: &StreamName,
        spec: &ScanSpec,
        each: impl FnMut(RowBlock<'_>),
    ) -> Result<()> {
        visit(self, self.find(stream)?, spec, each)
    }
}

/// Rows that only have to be concatenated.
struct ConcatenatedRows {
    /// Leaves before the chunks, in order.
    leaves: Vec<(SegmentId, LeafEntry)>,
    chunks: Vec<Arc<Chunk>>,
}

impl ConcatenatedRows {
    /// `None` when the rows of the stream have to be scanned.
    fn find(
        snapshot: &SingleSnapshot,
        found: &ResolvedStream<'_>,
        spec: &ScanSpec,
        fields: &[FieldId],
    ) -> Result<Option<ConcatenatedRows>> {
        let (table, seen, range) = (found.table, found.snapshot, &spec.range);
        let lifetime = &table.lifetime;
        if !spec.filters.is_empty()
            || !spec.any_of.is_empty()
            || lifetime.expires
            || lifetime.retention_cutoff.is_set()
        {
            return Ok(None);
        }
        if snapshot.has_deletes(found) {
            return Ok(None);
        }
        let mut leaves = Vec::new();
        for partition in seen.partitions.overlapping(table.id, range) {
            if partition.piece.is_some() {
                return Ok(None);
            }
            let store = &snapshot.core().store;
            let Some(state) = store.stream_contents(&*store.state(partition)?, found.stream)?
            else {
                continue;
            };
            let late = state.late().iter().flatten();
            if late.into_iter().any(|leaf| leaf.range().overlaps(range)) {
                return Ok(None);
            }
            let inside = state.leaves_in(store, range)?;
            leaves.extend(inside.iter().map(|leaf| (partition.id(), *leaf)));
        }
        let mut chunks = snapshot.chunks_to_read(found, range)?;
        if !lie_in_order(&mut chunks, snapshot.at(), table, fields) {
            return Ok(None);
        }
        if let (Some((_, leaf)), Some(chunk)) = (leaves.last(), chunks.first())
            && leaf.last >= chunk.span.first
        {
            return Ok(None);
        }
        Ok(Some(ConcatenatedRows { leaves, chunks }))
    }

    fn hand_out(
        self,
        snapshot: &SingleSnapshot,
        wanted: RequestedFields<'_>,
        range: &ClosedRange,
        each: &mut impl FnMut(RowBlock<'_>),
    ) -> Result<()> {
        // Each field once: a request may name it twice.
        let mut read = Cow::Borrowed(wanted.fields);
        if !self.leaves.is_empty() && !read.is_sorted_by(|a, b| a < b) {
            let fields = read.to_mut();
            fields.sort_unstable();
            fields.dedup();
        }
        let store = &snapshot.core().store;
        let mut ahead = AheadOfReader::default();
        for (at, (segment, leaf)) in self.leaves.iter().enumerate() {
            let from_here = self.leaves.iter().skip(at);
            let next = ahead.go_on(store, from_here.map(|(id, leaf)| Some((*id, leaf))));
            let leaf = (*segment, leaf, next);
            let columns = store.leaf_columns_in(leaf, range, &read, LeafCaching::ReadAgain)?;
            if columns.times().is_empty() {
                continue;
            }
            if columns.are_of(wanted.table) {
                each(RowBlock {
                    times: columns.times(),
                    rows: columns.rows().clone(),
                    columns: Columns::Leaf(&columns, wanted),
                });
                continue;
            }
            let rows = columns.into_rows(wanted.table);
            each(RowBlock {
                times: &rows.times,
                rows: 0..rows.len(),
                columns: Columns::Memory(&rows, wanted),
            });
        }
        for chunk in &self.chunks {
            let rows = rows_in(chunk, range, snapshot.at());
            if let Some(times) = chunk.rows.times.get(rows.clone())
                && !times.is_empty()
            {
                each(RowBlock {
                    times,
                    rows,
                    columns: Columns::Memory(&chunk.rows, wanted),
                });
            }
        }
        Ok(())
    }
}
