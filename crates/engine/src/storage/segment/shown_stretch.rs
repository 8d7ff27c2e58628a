//! A stretch of a partition in a copy that does not show the whole partition.
//!
//! Invariants: shown stretches of partitions of one table and shard are disjoint, as whole
//! partitions are. Concurrency: plain data.

use crate::common::ids::{Sequence, StreamId, TableId};
use crate::storage::tombstone::Tombstone;
use headwater_types::ClosedRange;

/// The shown stretch of a partition, and the deletes in it since it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownStretch {
    pub(crate) span: ClosedRange,
    pub(crate) deletes: Vec<Tombstone>,
}

impl ShownStretch {
    /// Stretches of the partition's own span that are hidden for a stream.
    pub(crate) fn hidden(
        &self,
        table: TableId,
        stream: StreamId,
        own: &ClosedRange,
    ) -> Vec<ClosedRange> {
        let concerned = self.deletes.iter().filter(|t| t.concerns(table, stream));
        let mut out: Vec<ClosedRange> = concerned.map(|t| t.range.intersect(own)).collect();
        if let Some(last) = self.span.first.previous() {
            out.push(ClosedRange::new(own.first, last).intersect(own));
        }
        if let Some(first) = self.span.last.next() {
            out.push(ClosedRange::new(first, own.last).intersect(own));
        }
        out
    }

    /// Sequence of the newest delete.
    pub(crate) fn newest_delete(&self) -> Sequence {
        let newest = self.deletes.iter().map(|t| t.sequence).max();
        newest.unwrap_or_default()
    }
}
