//! Aged buckets, whose rows were removed, in the rewriting of their partition.
//!
//! Invariants: such buckets are the only record of acknowledged rows, so every rewriting of a
//! partition copies them; rows beside them stay in late runs, which buckets do not count, until
//! they are aged too. Earlier versions stored rows among such buckets, so that the buckets count
//! both: the aged part is the difference between a bucket and its rows. Failure: a damaged block
//! ends the rewriting: the partition stays as it is.

use super::cutter::{Destination, LeafCutter};
use super::rewriting::{Purpose, Rewriting};
use super::stream_writer::{GroupOutput, StoreContext, StreamWriter};
use super::throttle::note_compacted;
use crate::common::ids::SegmentId;
use crate::core::Core;
use crate::metadata::catalog::Table;
use crate::read::merge::{Merge, Source};
use crate::storage::segment::pyramid::{Buckets, PyramidWriter, add_rows, from_block};
use crate::storage::segment::{Partition, SegmentState, Store, StreamDelta, StreamState};
use crate::{ErrorKind, Result};
use headwater_types::{ClosedRange, Level, Rows};

/// The base buckets of aged rows; empty where the rows exist.
fn aged_buckets(
    store: &Store,
    table: &Table,
    segment: SegmentId,
    state: &StreamState,
) -> Result<Buckets> {
    let Some(base) = state.base.filter(|b| *b != Level::MAX) else {
        return Ok(Buckets::new());
    };
    if !state.is_aged() && !table.lifetime.ages() {
        return Ok(Buckets::new());
    }
    let mut buckets = Buckets::new();
    for entry in state.blocks_of(base) {
        let block = store.block(segment, entry)?;
        buckets.extend(from_block(&block, table));
    }
    if state.is_aged() {
        return Ok(buckets);
    }
    let counted: u64 = buckets.values().map(|b| b.rows).sum();
    if counted <= state.main_rows() {
        return Ok(Buckets::new());
    }
    let main = vec![Source::leaves(segment, state.main.iter().copied())];
    let mut merge = Merge::new(store, table, ClosedRange::ALL, None, main);
    let mut stored = Buckets::new();
    while let Some(rows) = merge.next_rows()? {
        add_rows(&mut stored, base, &rows);
    }
    for (number, rows) in stored {
        if let Some(bucket) = buckets.get_mut(&number) {
            *bucket = bucket.without(&rows);
        }
    }
    buckets.retain(|_, bucket| bucket.rows > 0);
    Ok(buckets)
}

/// The ranges where a partition has aged buckets; adjacent ranges are joined.
pub(super) fn spans(
    core: &Core,
    table: &Table,
    old: &Partition,
    state: &SegmentState,
) -> Result<Vec<ClosedRange>> {
    let mut spans: Vec<ClosedRange> = Vec::new();
    for number in state.pages() {
        for (_, stream) in core.store.page(state, number)?.iter() {
            let Some(base) = stream.base.filter(|b| *b != Level::MAX) else {
                continue;
            };
            for number in aged_buckets(&core.store, table, old.id(), &stream)?.into_keys() {
                let span = base.bucket_span(number);
                match spans.last_mut() {
                    Some(last)
                        if last.last.as_nanos().checked_add(1) == Some(span.first.as_nanos()) =>
                    {
                        last.last = span.last;
                    }
                    _ => spans.push(span),
                }
            }
        }
    }
    Ok(spans)
}

/// True when a partition has aged buckets that are wider than the buckets of a level.
pub(super) fn is_wider_than(
    core: &Core,
    table: &Table,
    old: &Partition,
    state: &SegmentState,
    level: Level,
) -> Result<bool> {
    for number in state.pages() {
        for (_, stream) in core.store.page(state, number)?.iter() {
            let wide = stream.base.is_some_and(|b| b > level && b != Level::MAX);
            if wide && !aged_buckets(&core.store, table, old.id(), &stream)?.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The aged buckets, where an earlier version stored rows among them; `None` elsewhere, and where
/// damage hides them.
pub(super) fn mixed(context: &StoreContext<'_>, state: &StreamState) -> Result<Option<Buckets>> {
    match aged_buckets(context.store, context.table, context.segment, state) {
        Ok(buckets) => Ok(Some(buckets).filter(|b| !b.is_empty())),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}

/// Separates a stream's rows from its aged buckets, and stores more rows: all rows are in late runs
/// from then on.
pub(super) fn set_apart(
    writer: &mut StreamWriter<'_, '_>,
    rows: &Rows,
    buckets: Buckets,
) -> Result<()> {
    let (state, top) = (writer.state, writer.context.top);
    let leaves = state.main.iter();
    writer.delta.removed = leaves.map(|l| (l.offset, l.row_start)).collect();
    writer.delta.last_row = Some(Box::default());
    writer.delta.clear_late = true;
    writer.delta.late_runs.push(state.main.clone());
    writer.delta.late_runs.extend(state.late.iter().cloned());
    writer.write_late_run(rows)?;
    writer.delta.removed_blocks = state.blocks.iter().map(|b| b.offset).collect();
    writer.delta.stale = Some(Vec::new());
    let mut pyramid = PyramidWriter::new(state.base.unwrap_or(top), top);
    pyramid.push_buckets(buckets, writer.out.group, writer.delta)?;
    pyramid.finish(writer.out.group, writer.delta)
}

impl Rewriting<'_> {
    /// The aged buckets in the range; `None` without any.
    pub(super) fn carried(&self, state: &StreamState) -> Result<Option<Buckets>> {
        let mut buckets = aged_buckets(&self.core.store, self.table, self.old.id(), state)?;
        if let Some(base) = state.base {
            buckets.retain(|n, _| self.range.contains(base.bucket_span(*n).first));
        }
        Ok(Some(buckets).filter(|b| !b.is_empty()))
    }

    /// Writes the buckets again, and the stream's rows beside them or, when they are aged, into
    /// them; returns the number of rows.
    pub(super) fn beside(
        &self,
        state: &StreamState,
        mut buckets: Buckets,
        out: &mut GroupOutput<'_>,
        delta: &mut StreamDelta,
    ) -> Result<u64> {
        let base = state.base.unwrap_or(self.top);
        let mut merge = self.merged(state);
        let mut count = 0;
        let mut held = Rows::default();
        let mut cutter: Option<LeafCutter> = None;
        while let Some(rows) = merge.next_rows()? {
            let rows = self.living(rows);
            count += rows.len() as u64;
            let before = out.group.bytes.leaf;
            match (&mut cutter, self.purpose) {
                (_, Purpose::Aging) => add_rows(&mut buckets, base, &rows),
                (Some(cutter), Purpose::Compaction) => {
                    cutter.push(&rows, out.group, out.encodings)?;
                }
                (None, Purpose::Compaction) => {
                    held.extend_from(&rows, 0..rows.len());
                    if held.len() > out.shared.rows_max() {
                        let mut begun = LeafCutter::new(self.table.leaf_events as usize);
                        begun.push(&std::mem::take(&mut held), out.group, out.encodings)?;
                        cutter = Some(begun);
                    }
                }
            }
            note_compacted(self.core, out.group.bytes.leaf - before);
        }
        if let Some(cutter) = cutter {
            delta
                .late_runs
                .push(cutter.finish(out.group, out.encodings)?);
        } else if !held.is_empty() {
            let run = Destination::LateRun;
            out.shared
                .push(delta.stream, run, &held, out.group, out.encodings)?;
        }
        let mut pyramid = PyramidWriter::new(base, self.top);
        pyramid.push_buckets(buckets, out.group, delta)?;
        pyramid.finish(out.group, delta)?;
        Ok(count)
    }
}
