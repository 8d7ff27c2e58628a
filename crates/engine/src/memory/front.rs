//! The front of a list of chunks, merged once for all its readers.
//!
//! Points that are written again stay in memory as versions until a job stores them, and each query
//! would merge all of them. So a reader that finds many versions merges the chunks at the front of
//! a list once and caches the result here; later readers read that chunk and those behind.
//!
//! Invariants: a front is only ever read: jobs, deletes, snapshots of older states and the log use
//! the chunks themselves, which stay. A front stands for the first so many chunks of its list, as
//! they are: any change of one of them or of their order drops it.
//! Concurrency: made without a lock, installed under the shard's, if the list still begins with the
//! chunks it was made of.
//! Failure: none; without a front the chunks are read.

use super::sorted_rows;
use crate::common::ids::Sequence;
use crate::memory::chunk::{Chunk, Sequences};
use crate::metadata::catalog::Table;
use headwater_types::ClosedRange;
use headwater_types::invariant::part_of;
use std::sync::Arc;

/// So many rows are not worth the merging.
const ROWS_LEAST: usize = 64;

/// The merged front of a list.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// The table in whose types the rows are.
    table: Option<Arc<Table>>,
    /// Chunks that were looked at.
    count: usize,
    /// Their rows.
    rows: usize,
    /// One row for each time of theirs; none when there were too few versions to be worth it.
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

    /// The chunk to read instead of the first chunks of the list, and the number of these; none for
    /// a snapshot in whose table a field still had another type.
    pub(super) fn merged(&self, table: &Arc<Table>) -> Option<(&Arc<Chunk>, usize)> {
        let own = self.table.as_ref()?;
        let mut both = own.fields.iter().zip(&table.fields);
        let same = Arc::ptr_eq(own, table) || both.all(|(a, b)| a.field_type == b.field_type);
        self.merged
            .as_ref()
            .filter(|_| same)
            .map(|chunk| (chunk, self.count))
    }

    /// The chunks to merge, if the list has become so long that it should be merged again: as many
    /// rows have come as there were, so all merging together costs a row about as much as two.
    pub(super) fn due(&self, list: &[Arc<Chunk>], rows: usize) -> Option<Due> {
        let known = self
            .merged
            .as_ref()
            .map_or(self.rows, |merged| merged.len());
        if list.len() < 2 || rows.saturating_sub(self.rows) < ROWS_LEAST.max(known) {
            return None;
        }
        let behind = part_of(list, self.count.., "chunks behind a merged front");
        let merged = self.merged.as_ref();
        let sources = match merged.filter(|m| may_be_read(m, behind.iter(), m.last_sequence)) {
            Some(merged) => [merged].into_iter().chain(behind).cloned().collect(),
            None => list.to_vec(),
        };
        Some(Due {
            list: list.to_vec(),
            sources,
            rows,
        })
    }
}

/// A front to be made.
pub(crate) struct Due {
    list: Vec<Arc<Chunk>>,
    sources: Vec<Arc<Chunk>>,
    rows: usize,
}

impl Due {
    /// True when the list still begins as it did.
    pub(super) fn begins(&self, list: &[Arc<Chunk>]) -> bool {
        let same = |(mine, now): (&Arc<Chunk>, &Arc<Chunk>)| Arc::ptr_eq(mine, now);
        self.list.len() <= list.len() && self.list.iter().zip(list).all(same)
    }

    /// Merges the chunks. A result of half of the rows at most is cached, otherwise only the fact
    /// that it was tried. Rows of chunks that stand apart in time, as those of events in order do,
    /// have no versions, and are not merged to find that out.
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

/// So many rows at least have no second version: those of rising chunks whose span meets no
/// other's.
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

/// True when a reader of everything up to `sequence` may read a merged front beside these chunks:
/// the rows of the front have the sequence of the newest of its chunks, so none of the others may
/// have come in between where it may have the same times.
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
