//! Writes the groups of a job (step 1 of the protocol), and computes the new records of partitions.
//!
//! Invariants: nothing counts until the metadata names it; a file that is new is removed again
//! unless it is committed.

use super::cutter::{Destination, SharedLeaves};
use super::partitioning::{PartitionWork, TargetPartition};
use super::stream_writer::{GroupOutput, StoreContext, StreamWriter};
use super::take::TakenRows;
use crate::common::counters::Counters;
use crate::common::ids::{SegmentId, Sequence, ShardIndex, StreamId, TableId};
use crate::core::Core;
use crate::core::late_policy::InForce;
use crate::core::shard::StepScratch;
use crate::metadata::tables::PartitionRecord;
use crate::storage::partitions::Span;
use crate::storage::segment::{
    ChangedPages, ClosedGroup, Cover, GroupEnd, GroupWriter, PageCursor, Partition, SegmentFile,
    SegmentHeader, SegmentState, StreamDelta, StreamState, Sums, close,
};
use crate::{Error, Result};
use headwater_io::OpenMode;
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Timestamp};
use std::sync::Arc;

/// A written group, not yet committed.
pub(super) struct WrittenGroup {
    pub(super) partition: Arc<Partition>,
    pub(super) state: Arc<SegmentState>,
    pub(super) pages: ChangedPages,
    pub(super) group: GroupWriter,
    pub(super) is_new: bool,
    pub(super) rows: usize,
    /// Events written, by cause.
    pub(super) counts: Counters,
    /// Stream, its rows taken here, and the newest time of its main run.
    pub(super) streams: Vec<(StreamId, TableId, ClosedRange, Option<Timestamp>)>,
}

/// Inputs of all groups of a job.
pub(super) struct StepRows<'a> {
    pub(super) core: &'a Core,
    pub(super) shard: ShardIndex,
    pub(super) in_force: &'a InForce,
    pub(super) sequence: Sequence,
    pub(super) taken: &'a [TakenRows],
}

/// Writes the rows that a job stores in one partition.
pub(super) fn write_group(
    step: &StepRows<'_>,
    scratch: &mut StepScratch,
    work: PartitionWork,
) -> Result<WrittenGroup> {
    let StepRows {
        core,
        shard,
        in_force,
        sequence,
        taken,
    } = *step;
    let (old, state, span) = match &work.place {
        TargetPartition::Existing(partition) => {
            let state = core.store.state(partition)?;
            let span = Span {
                level: partition.record.level,
                bucket: partition.record.bucket,
            };
            (Some(Arc::clone(partition)), state, span)
        }
        TargetPartition::New(span) => {
            let id = core.segment_ids.take();
            (None, Arc::new(core.store.new_state(id)), *span)
        }
    };
    let id = state.segment();
    let header = SegmentHeader {
        replaces: None,
        id,
        table: work.table.id,
        shard,
        level: span.level,
        bucket: span.bucket,
    };
    let (mut group, segment_file) = open_group(core, id, old.as_deref(), &header)?;
    let guard = RemoveUnlessKept::new(&segment_file, old.is_none());
    let counts = Counters::default();
    let context = StoreContext {
        store: &core.store,
        segment: id,
        table: &work.table,
        top: span.level,
        scope: in_force.candidate.policy.merge_scope,
        leaf_events: in_force.leaf_events(&core.options, work.table.leaf_events),
        rewrite_per_late: in_force.rewrite_per_late,
        late_runs_max: core.options.late_runs_max,
        exact_cut: core.regime.is_exact(),
        bucket_events: core.options.bucket_events,
        counters: &counts,
    };
    let hints = scratch.hints.entry(work.table.id).or_default();
    let mut shared = SharedLeaves::new(context.leaf_events());
    let nothing = StreamState::default();
    let mut deltas: Vec<StreamDelta> = Vec::with_capacity(work.parts.len());
    let mut streams = Vec::with_capacity(work.parts.len());
    let range = span.range();
    let mut cursor = PageCursor::new(&core.store, &state);
    let mut new = Vec::new();
    for part in &work.parts {
        let Some(one) = taken.get(part.taken) else {
            return Err(Error::internal(format!(
                "a part of stream {} of {} that a step took",
                part.taken,
                taken.len()
            )));
        };
        let known = cursor.stream(one.stream)?;
        if known.is_none() {
            new.push(one.stream);
        }
        let stream_state = known.as_deref().unwrap_or(&nothing);
        let mut delta = StreamDelta {
            stream: one.stream,
            ..StreamDelta::default()
        };
        let rows = if part.rows == (0..one.rows.len()) {
            None
        } else {
            Some(one.rows.slice(part.rows.clone()))
        };
        let mut writer = StreamWriter {
            context: &context,
            out: GroupOutput {
                group: &mut group,
                hints,
                shared: &mut shared,
            },
            state: stream_state,
            is_last: part.rows.end < one.rows.len(),
            delta: &mut delta,
        };
        writer.store(rows.as_ref().unwrap_or(&one.rows))?;
        // No wider than the rows stored here: that is all replay has to skip, and it takes fewer
        // bytes.
        let times = part_of(&one.rows.times, part.rows.clone(), "the rows of a part");
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Err(Error::internal("a part of a step without rows"));
        };
        let covered = ClosedRange::nanos(*first, *last)
            .intersect(&one.range)
            .intersect(&range);
        delta.covers.push(Cover {
            sequence,
            range: covered,
        });
        streams.push((one.stream, work.table.id, covered, None));
        deltas.push(delta);
    }
    attach_shared(shared.finish(&mut group, hints)?, &mut deltas)?;
    attach_keys(core, &new, &mut deltas)?;
    let table = (state.table.as_deref() != Some(&*work.table)).then(|| (*work.table).clone());
    let previous = old
        .as_ref()
        .map(|p| (p.record.footer_offset, p.record.footer_bytes));
    let touched = cursor.touched();
    let end = GroupEnd {
        previous,
        sequence,
        table,
        streams: deltas,
    };
    let ClosedGroup {
        state: next,
        pages,
        finished,
    } = close(&core.store, &mut group, &state, &touched, end)?;
    for (stream, _, _, watermark) in &mut streams {
        *watermark = pages.stream(&next, *stream).and_then(|s| s.watermark());
    }
    let partition = Arc::new(Partition::new(
        PartitionRecord {
            groups: old.as_ref().map_or(0, |p| p.record.groups) + 1,
            ..record(
                &header,
                sequence,
                &next.sums,
                finished,
                expiry(old.as_deref().map(|p| &p.record), &group),
            )
        },
        guard.keep(),
    ));
    core.counters
        .bytes(0, group.bytes.leaf, group.bytes.index, 0);
    core.counters.absorb(&counts);
    let rows = work.parts.iter().map(|p| p.rows.len()).sum();
    Ok(WrittenGroup {
        partition,
        state: Arc::new(next),
        pages,
        group,
        is_new: old.is_none(),
        rows,
        counts,
        streams,
    })
}

pub(super) fn open_group(
    core: &Core,
    id: SegmentId,
    old: Option<&Partition>,
    header: &SegmentHeader,
) -> Result<(GroupWriter, Arc<SegmentFile>)> {
    let path = core.store.path(id);
    if let Some(old) = old {
        core.store.compare_file(id)?;
        core.store.check_before_append(old)?;
    }
    let mode = if old.is_some() {
        OpenMode::Write
    } else {
        OpenMode::CreateNew
    };
    let file = core
        .store
        .files()
        .open(&path, mode)
        .map_err(|e| Error::io("open", &path, e))?;
    let committed = old.map_or((0, None), |p| (p.record.committed_bytes, p.record.chain));
    let segment_file = old.map_or_else(|| core.store.segment_file(id), |p| Arc::clone(&p.file));
    Ok((
        GroupWriter::new(file, path, committed, header),
        segment_file,
    ))
}

/// The first and the last expiry in a partition, as in its record.
pub(crate) type Expiry = (Option<Timestamp>, Option<Timestamp>);

/// The expiries in a partition after one more group.
pub(super) fn expiry(before: Option<&PartitionRecord>, group: &GroupWriter) -> Expiry {
    match (before, group.expiry) {
        (Some(before), Some(new)) => {
            let joined = new.joined(before.expires_first, before.expires_last);
            (joined.first, joined.end())
        }
        (Some(before), None) => (before.expires_first, before.expires_last),
        (None, Some(new)) => (new.first, new.end()),
        (None, None) => (None, None),
    }
}

/// The record of a partition, but for the number of groups.
pub(crate) fn record(
    header: &SegmentHeader,
    sequence: Sequence,
    sums: &Sums,
    finished: crate::storage::segment::FinishedGroup,
    expiry: Expiry,
) -> PartitionRecord {
    PartitionRecord {
        table: header.table,
        shard: header.shard,
        level: header.level,
        bucket: header.bucket,
        committed_bytes: finished.end,
        footer_offset: finished.footer_offset,
        footer_bytes: finished.footer_bytes,
        sequence,
        events: sums.events,
        // Footers are in use too: a rewriting would save little of them, and not the same for every
        // table.
        live_bytes: sums.live_bytes + sums.footer_bytes,
        groups: 0,
        leaves: sums.leaves,
        late_runs: sums.late_runs,
        aged: sums.is_aged(),
        expires_first: expiry.0,
        expires_last: expiry.1,
        chain: finished.chain,
    }
}

/// Entries of shared leaves go to the deltas of their streams.
pub(super) fn attach_shared(
    entries: Vec<(StreamId, Destination, crate::storage::segment::LeafEntry)>,
    deltas: &mut [StreamDelta],
) -> Result<()> {
    for (stream, destination, entry) in entries {
        let at = deltas.binary_search_by_key(&stream, |d| d.stream);
        let Some(delta) = at.ok().and_then(|at| deltas.get_mut(at)) else {
            // Its rows would be in the file without a way to find them.
            return Err(Error::internal(format!(
                "a shared leaf holds rows of stream {}, which is none of the group's {}",
                stream.0,
                deltas.len()
            )));
        };
        match destination {
            Destination::Main => delta.added.push(entry),
            Destination::LateRun => delta.late_runs.push(vec![entry]),
        }
    }
    Ok(())
}

/// Attaches the keys of streams to a segment, so that the metadata can be rebuilt from segments
/// alone: `new` are the streams it did not have. A stream without a name was dropped, and
/// forgotten: nobody reads its rows before they are erased.
pub(super) fn attach_keys(core: &Core, new: &[StreamId], deltas: &mut [StreamDelta]) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let keys = core.catalog.stream_keys(&*core.meta, new)?;
    for delta in deltas {
        if let Some(key) = keys.get(&delta.stream) {
            delta.key = Some(key.clone());
        }
    }
    Ok(())
}

/// Removes a new file when writing it fails, so that attempts on a full disk do not fill it
/// further.
pub(super) struct RemoveUnlessKept {
    file: Arc<SegmentFile>,
    armed: bool,
}

impl RemoveUnlessKept {
    pub(super) fn new(file: &Arc<SegmentFile>, is_new: bool) -> RemoveUnlessKept {
        RemoveUnlessKept {
            file: Arc::clone(file),
            armed: is_new,
        }
    }

    pub(super) fn keep(mut self) -> Arc<SegmentFile> {
        self.armed = false;
        Arc::clone(&self.file)
    }
}

impl Drop for RemoveUnlessKept {
    fn drop(&mut self) {
        if self.armed {
            self.file.set_replaced();
        }
    }
}

/// New files of a job that failed are not part of the database.
pub(super) fn discard(written: &[WrittenGroup]) {
    for one in written.iter().filter(|w| w.is_new) {
        one.partition.file.set_replaced();
    }
}
