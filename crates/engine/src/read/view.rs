//! A stream in a snapshot.

use crate::Result;
use crate::common::ids::{Sequence, StreamId};
use crate::common::ranges::union;
use crate::core::Core;
use crate::memory::chunk::Chunk;
use crate::memory::expiry::{with_expiries, without_companions, without_expired};
use crate::memory::sorted_rows;
use crate::metadata::catalog::Table;
use crate::read::merge::{Hidden, Source};
use crate::storage::partitions::PartitionSet;
use crate::storage::segment::{Partition, StreamContents};
use headwater_types::{ClosedRange, FieldId, Rows, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;

pub(crate) struct StreamView {
    pub(crate) core: Arc<Core>,
    pub(crate) table: Arc<Table>,
    pub(crate) stream: StreamId,
    pub(crate) sequence: Sequence,
    pub(crate) partitions: Arc<PartitionSet>,
    /// Chunks without deleted rows.
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// Deletes that may not be carried out in a partition yet.
    pub(crate) deletes: Vec<(Sequence, ClosedRange)>,
    /// Values that expire up to this instant no longer exist; `None` = no value of the table
    /// expires.
    pub(crate) now: Option<Timestamp>,
}

impl StreamView {
    /// The events in memory, sorted and merged.
    pub(crate) fn memory_rows(&self, range: &ClosedRange, fields: Option<&[FieldId]>) -> Rows {
        sorted_rows(&self.chunks, range, self.sequence, &self.table, fields)
    }

    /// The fields to read in order to compute these fields.
    pub(crate) fn fields_to_read(&self, fields: &[FieldId]) -> Vec<FieldId> {
        if self.now.is_some() {
            with_expiries(fields)
        } else {
            fields.to_vec()
        }
    }

    /// Rows as a reader sees them: without expired values, which are removed after all rows of one
    /// time have been merged.
    pub(crate) fn settled<'a>(&self, rows: &'a Rows) -> Cow<'a, Rows> {
        match self.now {
            None => Cow::Borrowed(rows),
            Some(now) => Cow::Owned(without_companions(without_expired(rows.clone(), now))),
        }
    }

    /// As [`StreamView::settled`], by value.
    pub(crate) fn settled_rows(&self, rows: Rows) -> Rows {
        match self.now {
            None => rows,
            Some(now) => without_companions(without_expired(rows, now)),
        }
    }

    /// Partitions that may have events in a range, by time.
    pub(crate) fn partitions_in(&self, range: &ClosedRange) -> Vec<Arc<Partition>> {
        // Partitions that are deleted, or before the retention cutoff, need not be read.
        let is_gone = |p: &Partition| {
            p.unreadable.is_some() && self.hidden(p).swallows(&p.span().intersect(range))
        };
        self.partitions
            .overlapping(self.table.id, range)
            .filter(|p| !is_gone(p))
            .cloned()
            .collect()
    }

    /// Stretches of a partition whose stored events are deleted or expired; sorted, disjoint.
    pub(crate) fn hidden(&self, partition: &Partition) -> Hidden {
        let cut = self.table.lifetime.retention_cutoff;
        let piece = partition.piece.as_deref();
        if self.deletes.is_empty() && !cut.is_set() && piece.is_none() {
            return Hidden::default();
        }
        let span = partition.record.span();
        let of_piece = piece.map(|piece| piece.hidden(self.table.id, self.stream, &span));
        let since = self
            .deletes
            .iter()
            .filter(|(sequence, _)| *sequence > partition.record.sequence)
            .map(|(_, range)| range.intersect(&span));
        let before_cut = cut
            .last_before()
            .map(|last| ClosedRange::new(Timestamp::MIN, last).intersect(&span));
        let all = since
            .chain(before_cut)
            .chain(of_piece.into_iter().flatten());
        Hidden(union(all.collect()).into())
    }

    /// State of the stream in a partition.
    pub(crate) fn state(&self, partition: &Partition) -> Result<Option<StreamContents>> {
        let store = &self.core.store;
        store.stream_contents(&*store.state(partition)?, self.stream)
    }
}

/// The runs of a stream in a partition as merge sources, oldest first; only leaves that meet the
/// range.
pub(crate) fn run_sources(
    view: &StreamView,
    partition: &Partition,
    state: &StreamContents,
    range: &ClosedRange,
) -> Result<Vec<Source>> {
    let main = state.leaves_in(&view.core.store, range)?;
    let main = Source::leaves(partition.id(), main.iter().copied());
    let mut sources = vec![main.without(view.hidden(partition))];
    sources.extend(late_sources(view, partition, state, range));
    Ok(sources)
}

/// As [`run_sources`], only the late runs.
pub(crate) fn late_sources(
    view: &StreamView,
    partition: &Partition,
    state: &StreamContents,
    range: &ClosedRange,
) -> Vec<Source> {
    let id = partition.id();
    let hidden = view.hidden(partition);
    let mut sources = Vec::new();
    for run in state.late() {
        let inside: Vec<_> = run
            .iter()
            .filter(|l| l.range().overlaps(range))
            .copied()
            .collect();
        if !inside.is_empty() {
            sources.push(Source::leaves(id, inside).without(hidden.clone()));
        }
    }
    sources
}
