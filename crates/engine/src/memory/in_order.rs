//! Rows in memory that are read in place, for readers that copy them once, to their destination.
//!
//! Invariants: the rows, put end to end, are those of [`super::sorted_rows`].

use super::sort::rows_within;
use crate::common::ids::Sequence;
use crate::memory::chunk::{Chunk, Sequences};
use crate::metadata::catalog::Table;
use headwater_types::{ClosedRange, FieldId};
use std::ops::Range;
use std::sync::Arc;

/// Sorts chunks by time, without invisible ones. False when their rows cannot be read in place:
/// because they must be sorted, merged or converted first.
pub(crate) fn lie_in_order(
    chunks: &mut Vec<Arc<Chunk>>,
    sequence: Sequence,
    table: &Table,
    fields: &[FieldId],
) -> bool {
    chunks.retain(|c| c.first_sequence <= sequence);
    let apart = |w: &[Arc<Chunk>]| matches!(w, [a, b] if a.span.last < b.span.first);
    if !chunks.windows(2).all(apart) {
        chunks.sort_by_key(|c| c.span.first);
        if !chunks.windows(2).all(apart) {
            return false;
        }
    }
    chunks.iter().all(|chunk| {
        let in_order = chunk.rising || chunk.sorted && table.keeps_duplicates();
        let seen = chunk.last_sequence <= sequence
            || matches!(&chunk.sequences, Sequences::Many(all) if all.is_sorted());
        let as_they_are = |field: &FieldId| {
            let column = chunk.rows.column(*field);
            let known = table.field(*field);
            column.is_none_or(|c| known.is_some_and(|f| f.field_type == c.field_type()))
        };
        in_order && seen && fields.iter().all(as_they_are)
    })
}

/// The rows in a range of a chunk that [`lie_in_order`] left in the list.
pub(crate) fn rows_in(chunk: &Chunk, range: &ClosedRange, sequence: Sequence) -> Range<usize> {
    rows_within(chunk, range, sequence).unwrap_or_default()
}
