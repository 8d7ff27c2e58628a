//! Writes the groups of a job (step 1 of the protocol), and computes the new records of partitions.
//!
//! Invariants: a written group has no effect until the metadata names it; a new file is removed
//! again unless it is committed.

use super::cutter::{Destination, SharedLeaves};
use super::partitioning::{PartitionWork, StreamPart, TargetPartition};
use super::stream_writer::{GroupOutput, StoreContext, StreamWriter};
use super::take::TakenRows;
use crate::common::counters::Counters;
use crate::common::ids::{SegmentId, Sequence, ShardIndex, StreamId, TableId};
use crate::core::Core;
use crate::core::policy_choice::InForce;
use crate::core::shard::StepScratch;
use crate::metadata::catalog::Table;
use crate::metadata::tables::PartitionRecord;
use crate::storage::partitions::Span;
use crate::storage::segment::{
    ChangedPages, ClosedGroup, Cover, FinishedGroup, GroupEnd, GroupWriter, PageCursor, Partition,
    SegmentFile, SegmentHeader, SegmentState, StreamDelta, StreamState, Sums, close,
};
use crate::{Error, Result};
use headwater_codec::leaf::EncodingCache;
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
    /// Stream, table, range of its rows taken here, and the newest time of its main run.
    pub(super) streams: Vec<(StreamId, TableId, ClosedRange, Option<Timestamp>)>,
}

/// Inputs of all groups of a job.
pub(super) struct StepRows<'a> {
    pub(super) core: &'a Core,
    pub(super) shard: ShardIndex,
    pub(super) in_force: &'a InForce,
    pub(super) sequence: Sequence,
    pub(super) inputs: &'a [TakenRows],
}

impl StepRows<'_> {
    /// Finds the taken rows that contain a part.
    fn input_of(&self, part: &StreamPart) -> Result<&TakenRows> {
        self.inputs.get(part.input).ok_or_else(|| {
            Error::internal(format!(
                "a job refers to stream {} of the {} that it took",
                part.input,
                self.inputs.len()
            ))
        })
    }

    /// Makes the context that the streams of a partition share.
    fn context<'b>(
        &'b self,
        target: &GroupTarget,
        table: &'b Table,
        counters: &'b Counters,
    ) -> StoreContext<'b> {
        let StepRows { core, in_force, .. } = *self;
        StoreContext {
            store: &core.store,
            segment: target.header.id,
            table,
            top: target.span.level,
            scope: in_force.candidate.policy.merge_scope,
            leaf_events: in_force.leaf_events(&core.options, table.leaf_events),
            rewrite_per_late: in_force.rewrite_per_late,
            late_runs_max: core.options.late_runs_max,
            exact_cut: core.mode.is_exact(),
            bucket_events: core.options.bucket_events,
            counters,
        }
    }
}

/// Target of a group: its partition before the group, and the header of the segment.
struct GroupTarget {
    /// `None` = the group is the first of a new partition.
    old: Option<Arc<Partition>>,
    state: Arc<SegmentState>,
    span: Span,
    header: SegmentHeader,
}

impl GroupTarget {
    /// Reads the state of the partition, or takes a segment id for a new one.
    fn of(step: &StepRows<'_>, work: &PartitionWork) -> Result<GroupTarget> {
        let core = step.core;
        let (old, state, span) = match &work.target {
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
        let header = SegmentHeader {
            replaces: None,
            id: state.segment(),
            table: work.table.id,
            shard: step.shard,
            level: span.level,
            bucket: span.bucket,
        };
        Ok(GroupTarget {
            old,
            state,
            span,
            header,
        })
    }

    /// Gathers the contents of the group's footer.
    fn end(&self, sequence: Sequence, table: &Table, streams: Vec<StreamDelta>) -> GroupEnd {
        let table = (self.state.table.as_deref() != Some(table)).then(|| table.clone());
        let previous = self
            .old
            .as_ref()
            .map(|p| (p.record.footer_offset, p.record.footer_bytes));
        GroupEnd {
            previous,
            sequence,
            table,
            streams,
        }
    }

    /// Makes the record of the partition with the group.
    fn record(
        &self,
        sequence: Sequence,
        sums: &Sums,
        finished: FinishedGroup,
        group: &GroupWriter,
    ) -> PartitionRecord {
        let before = self.old.as_deref().map(|p| &p.record);
        PartitionRecord {
            groups: before.map_or(0, |r| r.groups) + 1,
            ..record(
                &self.header,
                sequence,
                sums,
                finished,
                expiry(before, group),
            )
        }
    }
}

/// Writes the rows that a job stores in one partition.
pub(super) fn write_group(
    step: &StepRows<'_>,
    scratch: &mut StepScratch,
    work: PartitionWork,
) -> Result<WrittenGroup> {
    let StepRows { core, sequence, .. } = *step;
    let target = GroupTarget::of(step, &work)?;
    let old = target.old.as_deref();
    let (mut group, segment_file) = open_group(core, target.header.id, old, &target.header)?;
    let guard = RemoveOnFailure::new(&segment_file, old.is_none());
    let counts = Counters::default();
    let context = step.context(&target, &work.table, &counts);
    let encodings = scratch.encodings.entry(work.table.id).or_default();
    let mut cursor = PageCursor::new(&core.store, &target.state);
    let range = target.span.range();
    let GroupStreams {
        deltas,
        mut streams,
    } = store_parts(
        step,
        &context,
        (&work, range),
        &mut cursor,
        (&mut group, encodings),
    )?;
    let touched = cursor.touched();
    let end = target.end(sequence, &work.table, deltas);
    let ClosedGroup {
        state: next,
        pages,
        finished,
    } = close(&core.store, &mut group, &target.state, &touched, end)?;
    for (stream, _, _, watermark) in &mut streams {
        *watermark = pages.stream(&next, *stream).and_then(|s| s.watermark());
    }
    let partition = Arc::new(Partition::new(
        target.record(sequence, &next.sums, finished, &group),
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

/// Streams of a group: their changes, and the report on them.
struct GroupStreams {
    deltas: Vec<StreamDelta>,
    /// As in [`WrittenGroup::streams`]; the newest times are not known yet.
    streams: Vec<(StreamId, TableId, ClosedRange, Option<Timestamp>)>,
}

/// Stores all parts of a work in the group of its partition, which owns `range`.
fn store_parts(
    step: &StepRows<'_>,
    context: &StoreContext<'_>,
    (work, range): (&PartitionWork, ClosedRange),
    cursor: &mut PageCursor<'_>,
    (group, encodings): (&mut GroupWriter, &mut EncodingCache),
) -> Result<GroupStreams> {
    let mut shared = SharedLeaves::new(context.leaf_events());
    let nothing = StreamState::default();
    let mut deltas: Vec<StreamDelta> = Vec::with_capacity(work.parts.len());
    let mut streams = Vec::with_capacity(work.parts.len());
    let mut new = Vec::new();
    for part in &work.parts {
        let one = step.input_of(part)?;
        let known = cursor.stream(one.stream)?;
        if known.is_none() {
            new.push(one.stream);
        }
        let state = known.as_deref().unwrap_or(&nothing);
        let out = GroupOutput {
            group,
            encodings,
            shared: &mut shared,
        };
        let mut delta = store_part(context, out, (one, part), state)?;
        let covered = covered(one, part)?.intersect(&range);
        delta.covers.push(Cover {
            sequence: step.sequence,
            range: covered,
        });
        streams.push((one.stream, work.table.id, covered, None));
        deltas.push(delta);
    }
    attach_shared(shared.finish(group, encodings)?, &mut deltas)?;
    attach_keys(step.core, &new, &mut deltas)?;
    Ok(GroupStreams { deltas, streams })
}

/// Stores a part of a stream's rows; returns the change of the stream, without its cover.
fn store_part(
    context: &StoreContext<'_>,
    out: GroupOutput<'_>,
    (one, part): (&TakenRows, &StreamPart),
    state: &StreamState,
) -> Result<StreamDelta> {
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
        context,
        out,
        state,
        is_last: part.rows.end < one.rows.len(),
        delta: &mut delta,
    };
    writer.store(rows.as_ref().unwrap_or(&one.rows))?;
    Ok(delta)
}

/// Returns the range that a part covers, no wider than the rows stored here: replay need not skip
/// more, and the range takes fewer bytes.
fn covered(one: &TakenRows, part: &StreamPart) -> Result<ClosedRange> {
    let times = part_of(&one.rows.times, part.rows.clone(), "the rows of a part");
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return Err(Error::internal("a part of a job has no rows"));
    };
    Ok(ClosedRange::nanos(*first, *last).intersect(&one.range))
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
    finished: FinishedGroup,
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
        // Footers are in use too: a rewriting would save little of them, and a different amount for
        // every table.
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
            // Its rows would be in the file without an index entry.
            return Err(Error::internal(format!(
                "a shared leaf contains rows of stream {}, which is not among the group's {}",
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
/// alone: `new` are the streams that were not in it. A stream without a name was dropped and
/// forgotten: its rows are not read before they are erased.
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
pub(super) struct RemoveOnFailure {
    file: Arc<SegmentFile>,
    armed: bool,
}

impl RemoveOnFailure {
    pub(super) fn new(file: &Arc<SegmentFile>, is_new: bool) -> RemoveOnFailure {
        RemoveOnFailure {
            file: Arc::clone(file),
            armed: is_new,
        }
    }

    pub(super) fn keep(mut self) -> Arc<SegmentFile> {
        self.armed = false;
        Arc::clone(&self.file)
    }
}

impl Drop for RemoveOnFailure {
    fn drop(&mut self) {
        if self.armed {
            self.file.set_replaced();
        }
    }
}

/// Removes the new files of a job that failed: they are not part of the database.
pub(super) fn discard(written: &[WrittenGroup]) {
    for one in written.iter().filter(|w| w.is_new) {
        one.partition.file.set_replaced();
    }
}
