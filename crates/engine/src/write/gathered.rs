//! The rows of a batch by stream, and the rows of undefined streams.

use super::pressure::wait_for_bulk;
use crate::Result;
use crate::common::ids::{ShardIndex, StreamId, TableId};
use crate::core::Core;
use crate::memory::expiry::owner_of;
use crate::metadata::catalog::Table;
use crate::write::widening::is_exact;
use headwater_types::invariant::part_of;
use headwater_types::{Column, FieldId, Rows, Values};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Valid rows of one stream.
pub(super) struct PreparedRows {
    pub(super) stream: StreamId,
    /// The table against which they were checked.
    pub(super) table: Arc<Table>,
    pub(super) shard: ShardIndex,
    pub(super) rows: Rows,
}

/// Rows of a stream that is not defined yet.
pub(super) struct RowsOfNewStream {
    pub(super) table: Arc<Table>,
    pub(super) key: Vec<u8>,
    pub(super) rows: Rows,
    pub(super) entry: usize,
    /// The rows' positions in the entry; `None` = all rows.
    pub(super) valid_rows: Option<Vec<usize>>,
}

/// The rows of a batch by stream.
pub(super) struct GroupedBatch<'a> {
    pub(super) core: &'a Core,
    pub(super) prepared: Vec<PreparedRows>,
    pub(super) unresolved: Vec<RowsOfNewStream>,
    by_stream: HashMap<StreamId, usize>,
}

impl<'a> GroupedBatch<'a> {
    pub(super) fn new(core: &'a Core) -> GroupedBatch<'a> {
        GroupedBatch {
            core,
            prepared: Vec::new(),
            unresolved: Vec::new(),
            by_stream: HashMap::new(),
        }
    }

    /// Adds rows of one stream, which may occur in several entries: they are joined.
    pub(super) fn add(&mut self, stream: StreamId, table: Arc<Table>, key: &[u8], rows: Rows) {
        if let Some(known) = self
            .by_stream
            .get(&stream)
            .and_then(|at| self.prepared.get_mut(*at))
        {
            let count = rows.len();
            known.rows.extend_from(&rows, 0..count);
            known.table = table;
            return;
        }
        self.by_stream.insert(stream, self.prepared.len());
        self.prepared.push(PreparedRows {
            stream,
            table,
            shard: self.core.shards.of_key(key),
            rows,
        });
    }

    /// The stream with these key bytes, if it is defined. A lookup that needs bulk does not begin
    /// while bulk stalls.
    pub(super) fn find_stream(&self, key: &[u8]) -> Result<Option<StreamId>> {
        let core = self.core;
        if core.bulk.as_ref().is_some_and(|bulk| bulk.is_on()) {
            if let Some(stream) = core.catalog.known_stream(key) {
                return Ok(Some(stream));
            }
            wait_for_bulk(core)?;
        }
        core.catalog.find_stream(&*core.meta, key)
    }

    /// The keys of the new streams of a table.
    pub(super) fn new_keys(&self, table: TableId) -> HashSet<Box<[u8]>> {
        let new = self.unresolved.iter().filter(|new| new.table.id == table);
        new.map(|new| new.key.as_slice().into()).collect()
    }

    /// All rows so far.
    pub(super) fn all_rows(&self) -> impl Iterator<Item = &Rows> {
        let new = self.unresolved.iter().map(|new| &new.rows);
        self.prepared.iter().map(|one| &one.rows).chain(new)
    }

    /// Rows that put another value into a field at a time at which an earlier row of the batch has
    /// one: the earlier values are replaced.
    pub(super) fn replaced(prepared: &[PreparedRows]) -> u64 {
        let last = prepared.iter().filter(|one| !one.table.keeps_duplicates());
        last.map(|one| replaced_in(&one.rows)).sum()
    }

    /// An integer of this batch, in a field, that a float cannot represent.
    pub(super) fn inexact_in(&self, table: TableId, field: FieldId) -> Option<i64> {
        let prepared = self.prepared.iter().map(|one| (&one.table, &one.rows));
        let new = self.unresolved.iter().map(|new| (&new.table, &new.rows));
        let columns = prepared
            .chain(new)
            .filter(|(of, _)| of.id == table)
            .filter_map(|(_, rows)| rows.column(field));
        for column in columns {
            if let Values::I64(values) = column.values() {
                let mut each = values.iter().enumerate();
                let beyond = each.find(|(row, v)| !is_exact(**v) && column.is_present(*row));
                if let Some((_, value)) = beyond {
                    return Some(*value);
                }
            }
        }
        None
    }
}

/// Replaced rows like [`GroupedBatch::replaced`], in one stream. Rows are mostly in order, with
/// distinct times: then one pass over the times suffices.
fn replaced_in(rows: &Rows) -> u64 {
    if rows.times.is_sorted_by(|a, b| a < b) {
        return 0;
    }
    let mut order: Vec<(i64, usize)> = rows.times.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let own = |(field, _): &&(FieldId, Column)| owner_of(*field).is_none();
    let mut count = 0;
    for equal in order
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|equal| equal.len() > 1)
    {
        for (at, (_, row)) in equal.iter().enumerate() {
            let earlier = part_of(equal, ..at, "rows of one instant");
            let replaces = rows.columns.iter().filter(own).any(|(_, column)| {
                column.is_present(*row) && earlier.iter().any(|(_, e)| column.is_present(*e))
            });
            count += u64::from(replaces);
        }
    }
    count
}
