//! The front of a list of chunks, merged once for all its readers.
//!
//! Rewritten points stay in memory as versions until a job stores them, and each query would merge
//! all of them. So a reader that finds many versions merges the chunks at the front of a list once
//! and caches the result here; later readers read the merged chunk and the chunks after it.
//!
//! Invariants: only readers use a front: jobs, deletes, snapshots of older states and the log use
//! the chunks themselves, which stay. A front represents a fixed number of unchanged chunks at the
//! start of its list: any change of one of them or of their order drops it. Concurrency: made
//! without a lock, installed under the shard's, if the list still begins with the same chunks.
//! Failure: none; without a front the chunks are read.

use super::sorted_rows;
use crate::common::ids::Sequence;
use crate::memory::chunk::{Chunk, Sequences};
use crate::metadata::catalog::Table;
use headwater_types::ClosedRange;
use headwater_types::invariant::part_of;
use std::sync::Arc;

/// Minimum rows that are worth merging.
const ROWS_MIN: usize = 64;

/// The merged front of a list.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// Table that defines the types of the rows.
    table: Option<Arc<Table>>,
    /// Number of chunks examined.
    count: usize,
    /// Number of their rows.
    rows: usize,
    /// One row for each of their times; `None` when there were too few versions.
    merged: Option<Arc<Chunk>>,
}

impl Front {
    /// Number of chunks of the list that may not change.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.merged.as_ref().map_or(0, |chunk| chunk.bytes)
    }

    /// The chunk to read instead of the first chunks of the list, and the number of these; `None`
    /// for a snapshot in whose table a field still had another type.
    pub(super) fn merged(&self, table: &Arc<Table>) -> Option<(&Arc<Chunk>, usize)> {
        let own = self.table.as_ref()?;
        let mut both = own.fields.iter().zip(&table.fields);
        let same = Arc::ptr_eq(own, table) || both.all(|(a, b)| a.field_type == b.field_type);
        self.merged
            .as_ref()
            .filter(|_| same)
            .map(|chunk| (chunk, self.count))
    }

    /// The chunks to merge, if the list has grown enough to merge it again: as many rows have
    /// arrived as there were, so that all merges together cost about two merges per row.
    pub(super) fn due(&self, list: &[Arc<Chunk>], rows: usize) -> Option<FrontRequest> {
        let known = self
            .merged
            .as_ref()
            .map_or(self.rows, |merged| merged.len());
        if list.len() < 2 || rows.saturating_sub(self.rows) < ROWS_MIN.max(known) {
            return None;
        }
        let behind = part_of(list, self.count.., "chunks behind a merged front");
        let merged = self.merged.as_ref();
        let sources = match merged.filter(|m| may_be_read(m, behind.iter(), m.last_sequence)) {
            Some(merged) => [merged].into_iter().chain(behind).cloned().collect(),
            None => list.to_vec(),
        };
        Some(FrontRequest {
            list: list.to_vec(),
            sources,
            rows,
        })
    }
}

/// A front to be made.
pub(crate) struct FrontRequest {
    list: Vec<Arc<Chunk>>,
    sources: Vec<Arc<Chunk>>,
    rows: usize,
}

impl FrontRequest {
    /// True when the list still begins with the same chunks.
    pub(super) fn begins(&self, list: &[Arc<Chunk>]) -> bool {
        let same = |(mine, now): (&Arc<Chunk>, &Arc<Chunk>)| Arc::ptr_eq(mine, now);
        self.list.len() <= list.len() && self.list.iter().zip(list).all(same)
    }

    /// Merges the chunks. A result of at most half of the rows is cached, otherwise only the fact
    /// of the attempt. Rows of chunks with disjoint times, such as events in order, have no
    /// versions, and are not merged to find that out.
    pub(crate) fn front(&self, table: &Arc<Table>) -> Front {
        let most = self.rows / 2;
        Front {
            table: Some(Arc::clone(table)),
            count: self.list.len(),
            rows: self.rows,
            merged: (rows_apart(&self.sources) <= most)
                .then(|| self.merged(table))
                .flatten()
                .filter(|merged| merged.len() <= most),
        }
    }

    fn merged(&self, table: &Arc<Table>) -> Option<Arc<Chunk>> {
        let newest = self.list.iter().map(|c| c.last_sequence).max()?;
        let all = sorted_rows(&self.sources, &ClosedRange::ALL, newest, table, None);
        Chunk::new(all, Sequences::One(newest), 0)
    }
}

/// Minimum number of rows without a second version: rows of ascending chunks whose span is disjoint
/// from all others.
fn rows_apart(chunks: &[Arc<Chunk>]) -> usize {
    let mut in_order: Vec<&Arc<Chunk>> = chunks.iter().collect();
    in_order.sort_unstable_by_key(|chunk| chunk.span.first);
    let mut apart = 0;
    let mut before = None;
    for (at, chunk) in in_order.iter().enumerate() {
        let next = in_order.get(at + 1).map(|next| next.span.first);
        let meets_before = before.is_some_and(|end| end >= chunk.span.first);
        if chunk.rising && !meets_before && next.is_none_or(|next| next > chunk.span.last) {
            apart += chunk.len();
        }
        before = before.max(Some(chunk.span.last));
    }
    apart
}

/// True when a reader of all rows up to `sequence` may read a merged front beside these chunks: the
/// rows of the front have the sequence of its newest chunk, so no other chunk that may share its
/// times may be between them in sequence.
pub(super) fn may_be_read<'a>(
    merged: &Chunk,
    mut others: impl Iterator<Item = &'a Arc<Chunk>>,
    sequence: Sequence,
) -> bool {
    merged.last_sequence <= sequence
        && others.all(|other| {
            other.first_sequence > merged.last_sequence || !other.span.overlaps(&merged.span)
        })
}
