//! Rewrites a partition: late runs merged, leaves full, dead bytes dropped; split in parts when it
//! is too large.
//!
//! Invariants: the new segments have exactly the old one's rows, and the aged buckets
//! ([`super::carried`]); covers that replay may still need are copied too; during the rewriting the
//! partition is busy and accepts no groups, and the swap is one commit. By the new records no
//! reason for a rewriting remains afterwards: a split narrows spans, the other reasons need more
//! than one group or an expiry that has passed. So data is not rewritten twice without new groups,
//! also over restarts; should that happen, [`settle`] records it. Failure: nothing changes; the new
//! files are removed. A damaged leaf ends the attempt: the partition stays as it is.

use super::carried;
use super::commit::{commit, free_log, keep_committed, make_durable};
use super::cutter::SharedLeaves;
use super::rewriting::{Purpose, Rewriting};
use super::stream_writer::GroupOutput;
use super::write::{
    Expiry, RemoveOnFailure, WrittenGroup, attach_keys, attach_shared, discard, expiry, open_group,
    record,
};
use crate::common::counters::{Cause, Counters};
use crate::common::ids::{SegmentId, Sequence, ShardIndex, StreamId};
use crate::core::Core;
use crate::core::shard::{Shard, ShardState};
use crate::metadata::catalog::{Table, TableLifetime};
use crate::metadata::tables::PartitionRecord;
use crate::read::unreadable::set_aside;
use crate::storage::partitions::Span;
use crate::storage::segment::{
    ChangedPages, Cover, Covers, FinishedGroup, GROUP_STREAMS, GroupEnd, GroupWriter, Partition,
    Replaces, SegmentHeader, SegmentState, StreamDelta, StreamState, close_new,
};
use crate::{Error, ErrorKind, Result};
use headwater_codec::leaf::EncodingCache;
use headwater_types::{ClosedRange, Level, Timestamp};
use std::sync::Arc;

/// Minimum bytes of a partition that is rewritten for its dead bytes.
const BYTES_MIN: u64 = 64 << 10;
/// Groups after which a partition of small leaves is rewritten.
const SMALL_LEAF_GROUPS: u32 = 64;

/// True when a partition should be rewritten. `thorough` = whenever it would become smaller or
/// tidier at all.
pub(crate) fn needs_compaction(core: &Core, partition: &Partition, thorough: bool) -> bool {
    let record = &partition.record;
    if core.mode.is_exact() || core.store.stubs().is_claimed(partition.id()) {
        return false;
    }
    let Some(table) = core.catalog.table(record.table) else {
        return false;
    };
    if record.aged || record.events == 0 {
        return false;
    }
    if is_too_wide(&table, record.level) {
        return true;
    }
    if has_expired(core, record, thorough) {
        return true;
    }
    if thorough {
        // A single group has late runs only beside aged buckets, where they stay.
        return record.groups > 1;
    }
    let leaf_events = u64::from(table.leaf_events);
    let dead = record.committed_bytes.saturating_sub(record.live_bytes);
    is_too_large(core, record) && record.level > Level::MIN
        || (record.committed_bytes >= BYTES_MIN
            && dead * 2 > record.committed_bytes
            && record.groups > 1)
        || rounds(core, partition, core.options.groups_max)
        || (record.events < record.leaves * leaf_events / 8
            && rounds(core, partition, SMALL_LEAF_GROUPS))
}

/// True when the partition's rows of a stream are spread over at least `least` groups. With very
/// many streams a group has only some of them: rewriting all groups would not join rows.
fn rounds(core: &Core, partition: &Partition, least: u32) -> bool {
    // Readers detect unreadable data.
    partition.record.groups >= least
        && core
            .store
            .rounds(partition)
            .is_ok_and(|rounds| rounds >= least)
}

/// True when a partition is too large. Only bytes in use count: a split does not reduce the bytes
/// that a rewriting would drop.
fn is_too_large(core: &Core, record: &PartitionRecord) -> bool {
    record.live_bytes > core.options.partition_bytes_max
}

/// True when the partition spans too much time for its rows to be removed on time.
fn is_too_wide(table: &Table, level: Level) -> bool {
    table
        .lifetime
        .level_max()
        .is_some_and(|most| level.get() > most && level > Level::MIN)
}

/// True when enough rows have expired for a rewriting: about half, if values expire in the order of
/// arrival; with `thorough`, any.
fn has_expired(core: &Core, record: &PartitionRecord, thorough: bool) -> bool {
    let Some(first) = record.expires_first else {
        return false;
    };
    let due = match record.expires_last {
        _ if thorough => first,
        Some(last) => {
            let (first, last) = (first.as_nanos(), last.as_nanos());
            Timestamp::from_nanos(first.saturating_add(last.saturating_sub(first) / 2))
        }
        None => return false,
    };
    due <= core.now_for(record.table)
}

/// Rewrites the partition with this segment, if it still exists, at the configured rate.
/// `yields_to_writers` = fails with `busy` when writers wait for memory that only this partition
/// can accept.
pub(crate) fn compact_partition(
    core: &Core,
    index: ShardIndex,
    id: SegmentId,
    yields_to_writers: bool,
) -> Result<bool> {
    rewrite_partition(core, index, id, Purpose::Compaction, yields_to_writers)
}

/// Removes the rows of a partition and keeps only their buckets. Memory must not have rows of the
/// partition, and no more may arrive.
pub(crate) fn age_partition(core: &Core, index: ShardIndex, id: SegmentId) -> Result<bool> {
    rewrite_partition(core, index, id, Purpose::Aging, false)
}

fn rewrite_partition(
    core: &Core,
    index: ShardIndex,
    id: SegmentId,
    purpose: Purpose,
    yields_to_writers: bool,
) -> Result<bool> {
    let _latch = core.log.latch_on_panic("rewrote a partition");
    let _working = headwater_io::queue::Purpose::Compaction.begin();
    let _alone = core.compaction.begin();
    let shard = core.shards.get(index)?;
    let partition = {
        let _step = shard.stepping.lock();
        let found = {
            let state = shard.state.lock();
            state.partitions.all().find(|p| p.id() == id).cloned()
        };
        // A sweep removes an empty partition, so it is not rewritten. A freed one stays as it is.
        let stubs = core.store.stubs();
        let is_whole = |p: &Arc<Partition>| {
            p.unreadable.is_none() && !p.record.is_empty() && !stubs.is_claimed(p.id())
        };
        let Some(partition) = found.filter(is_whole) else {
            return Ok(false);
        };
        let lifetime = core
            .catalog
            .table(partition.record.table)
            .map(|t| t.lifetime);
        let mut state = shard.state.lock();
        if purpose == Purpose::Aging && !lifetime.is_some_and(|l| may_age(&l, &state, &partition)) {
            return Ok(false);
        }
        if !state.busy.insert(id) {
            return Ok(false);
        }
        partition
    };
    core.compaction.begin_rewriting();
    let result = rewrite(core, index, &partition, purpose, yields_to_writers);
    shard.state.lock().busy.remove(&id);
    if let Err(error) = &result
        && core.store.state(&partition).is_err()
    {
        let _step = shard.stepping.lock();
        set_aside(core, shard, error);
    }
    result.map(|()| true)
}

/// True when no rows can arrive in a partition any more, and memory has none of its rows. "Aged to"
/// goes back only while no partition is rewritten.
fn may_age(lifetime: &TableLifetime, state: &ShardState, partition: &Partition) -> bool {
    let span = partition.record.span();
    lifetime.aged_to.ends(span.last) && !state.has_rows_in(partition.record.table, &span)
}

fn rewrite(
    core: &Core,
    index: ShardIndex,
    partition: &Arc<Partition>,
    purpose: Purpose,
    yields_to_writers: bool,
) -> Result<()> {
    let shard = core.shards.get(index)?;
    let table = core
        .catalog
        .table(partition.record.table)
        .ok_or_else(|| Error::internal("a partition refers to an unknown table"))?;
    let state = core.store.state(partition)?;
    let committed_generation = core.commits.log_generation();
    let job = PartitionRewrite {
        core,
        index,
        old: partition,
        state: &state,
        table: &table,
        purpose,
        yields_to_writers,
        still_in_log: core.log.sequence_before(committed_generation),
    };
    let Some(spans) = job.spans()? else {
        return Ok(());
    };
    let parts = u16::try_from(spans.len()).map_err(|_| Error::internal("65536 parts"))?;
    let mut written = Vec::with_capacity(spans.len());
    let result = job.write_spans(spans, parts, &mut written);
    let _step = shard.stepping.lock();
    let sequence = partition.record.sequence;
    if purpose == Purpose::Aging && is_to_be_erased(shard, partition) {
        // The events could not be removed from buckets any more: the delete goes first.
        discard(&written);
        return Ok(());
    }
    if let Err(error) = result.and_then(|()| make_durable(core, sequence, &written)) {
        discard(&written);
        if error.kind() == ErrorKind::Io || error.kind() == ErrorKind::Internal {
            core.log.latch(error.clone());
        }
        return Err(error);
    }
    commit(core, sequence, &written, &[partition.id()])?;
    let events: u64 = written.iter().map(|w| w.partition.record.events).sum();
    core.counters.events_written(Cause::Compaction, events);
    publish_swap(core, shard, partition, &written);
    keep_committed(core, &written);
    core.store.forget(partition.id());
    partition.file.set_replaced();
    if let [one] = &*written {
        settle(core, &partition.record, &one.partition);
    }
    free_log(core)
}

/// Replaces a partition by its rewritten partitions, for readers and writers.
fn publish_swap(core: &Core, shard: &Shard, old: &Partition, written: &[WrittenGroup]) {
    let mut state = shard.state.lock();
    let mut partitions = (*state.partitions).clone();
    partitions.remove(old.record.table, old.id());
    for one in written {
        core.store
            .put_state(&one.partition, Arc::clone(&one.state), &one.pages);
        state.ending |= one.partition.record.is_empty();
        partitions.put(Arc::clone(&one.partition));
    }
    state.version += 1;
    state.partitions = Arc::new(partitions);
}

/// Makes sure that a rewriting without effect is not repeated before new groups arrive.
fn settle(core: &Core, old: &PartitionRecord, new: &Partition) {
    let record = &new.record;
    let same = (record.level, record.bucket, record.events, record.late_runs)
        == (old.level, old.bucket, old.events, old.late_runs)
        && record.expires_first == old.expires_first
        && old.groups <= 1;
    if same && (needs_compaction(core, new, false) || needs_compaction(core, new, true)) {
        tracing::warn!(
            segment = new.id().0,
            "rewriting a partition changed nothing; it is skipped until it receives rows"
        );
        core.compaction.settle(new.id(), record.footer_offset);
    }
}

/// True when a delete concerns the partition and has not been carried out in it.
pub(super) fn is_to_be_erased(shard: &Shard, partition: &Partition) -> bool {
    let record = &partition.record;
    shard.state.lock().tombstones.iter().any(|t| {
        t.sequence > record.sequence && t.table == record.table && t.range.overlaps(&record.span())
    })
}

/// The partition's own span, or the parts it is split into: the first halves that both have rows. A
/// partition that cannot be split, because all of it is in one smallest span, gets that span and is
/// not considered again.
fn target_spans(
    core: &Core,
    table: &Table,
    partition: &Partition,
    state: &SegmentState,
) -> Result<Vec<Span>> {
    let own = Span {
        level: partition.record.level,
        bucket: partition.record.bucket,
    };
    let too_large = is_too_large(core, &partition.record);
    if !too_large && !is_too_wide(table, own.level) {
        return Ok(vec![own]);
    }
    let gone = carried::spans(core, table, partition, state)?;
    let holds = |range: &ClosedRange| -> Result<bool> {
        if gone.iter().any(|span| span.overlaps(range)) {
            return Ok(true);
        }
        for number in state.pages() {
            let found = core.store.page(state, number)?.iter().any(|(_, s)| {
                let mut leaves = s.main.iter().chain(s.late.iter().flatten());
                leaves.any(|l| l.range().overlaps(range))
            });
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut span = own;
    while let Some([low, high]) = span.halves() {
        if !too_large && !is_too_wide(table, span.level) {
            return Ok(vec![span]);
        }
        match (holds(&low.range())?, holds(&high.range())?) {
            (true, true) => return Ok(vec![low, high]),
            (true, false) => span = low,
            (false, true) => span = high,
            (false, false) => break,
        }
    }
    Ok(vec![span])
}

/// True when there is a later partition of the table in the shard.
fn is_followed(core: &Core, index: ShardIndex, partition: &Partition) -> Result<bool> {
    let record = &partition.record;
    let state = core.shards.get(index)?.state.lock();
    let newest = state.partitions.of(record.table).last();
    Ok(newest.is_some_and(|newest| newest.record.span().first > record.span().last))
}

/// A rewriting: the partition, and the purpose.
struct PartitionRewrite<'a> {
    core: &'a Core,
    index: ShardIndex,
    old: &'a Partition,
    state: &'a SegmentState,
    table: &'a Arc<Table>,
    purpose: Purpose,
    yields_to_writers: bool,
    /// Covers up to this sequence are not needed any more: replay begins after it.
    still_in_log: Sequence,
}

impl PartitionRewrite<'_> {
    /// Chooses the spans of the new segments; `None` = the partition stays as it is.
    fn spans(&self) -> Result<Option<Vec<Span>>> {
        let PartitionRewrite {
            core,
            old,
            state,
            table,
            ..
        } = *self;
        if self.purpose == Purpose::Aging {
            return Ok(Some(vec![Span {
                level: old.record.level,
                bucket: old.record.bucket,
            }]));
        }
        let spans = target_spans(core, table, old, state)?;
        if let [_, part, ..] | [part] = &*spans
            && part.level < old.record.level
            && carried::is_wider_than(core, table, old, state, part.level)?
        {
            tracing::info!(
                segment = old.id().0,
                "a partition is not split: its aged buckets are wider than its parts would be"
            );
            core.compaction.leave_alone(old.id());
            return Ok(None);
        }
        Ok(Some(spans))
    }

    /// Writes a segment for each of the spans, `parts` in number, until one fails.
    fn write_spans(
        &self,
        spans: Vec<Span>,
        parts: u16,
        written: &mut Vec<WrittenGroup>,
    ) -> Result<()> {
        // Segments that are written together have consecutive ids, so a repair can tell whether all
        // of them exist.
        let first_id = self.core.segment_ids.take_many(parts);
        for (part, span) in (0..parts).zip(spans) {
            let replaces = Replaces {
                id: self.old.id(),
                footer_offset: self.old.record.footer_offset,
                part,
                parts,
                covers_after: self.still_in_log,
            };
            let id = SegmentId(first_id.0 + u64::from(part));
            written.push(self.write_span(id, span, replaces)?);
        }
        Ok(())
    }

    /// Writes the part of the partition in a span, page by page.
    fn write_span(&self, id: SegmentId, span: Span, replaces: Replaces) -> Result<WrittenGroup> {
        let core = self.core;
        let mut writer = SpanWriter::begin(self, id, span, replaces)?;
        for number in self.state.pages() {
            if self.yields_to_writers
                && core.compaction.is_blocking_job()
                && !core.memory.has_room()
            {
                return Err(Error::new(
                    ErrorKind::Busy,
                    "writers wait for memory, and only a flush into the partition being rewritten frees it",
                ));
            }
            // Page by page, like all other data: for all streams at once they would be the largest
            // object in memory.
            let covers = core
                .store
                .page_covers(self.state, number, replaces.covers_after)?;
            let covers = Covers::of(covers);
            for (stream, stream_state) in core.store.page(self.state, number)?.iter() {
                writer.stream(stream, &stream_state, &covers)?;
            }
        }
        writer.finish()
    }
}

/// Writer of one new segment of a rewriting, group by group.
struct SpanWriter<'a> {
    rewriting: Rewriting<'a>,
    definition: &'a Arc<Table>,
    header: SegmentHeader,
    // Removes the file on failure, before the group closes it.
    guard: RemoveOnFailure,
    group: GroupWriter,
    encodings: EncodingCache,
    shared: SharedLeaves,
    /// Changes of streams for the next footer.
    deltas: Vec<StreamDelta>,
    /// Aged buckets were copied.
    carries: bool,
    /// The segment with its finished groups.
    next: SegmentState,
    /// The last finished group.
    finished: Option<FinishedGroup>,
}

impl<'a> SpanWriter<'a> {
    /// Opens the file of a new segment.
    fn begin(
        job: &PartitionRewrite<'a>,
        id: SegmentId,
        span: Span,
        replaces: Replaces,
    ) -> Result<SpanWriter<'a>> {
        let PartitionRewrite {
            core,
            index,
            old,
            table,
            purpose,
            ..
        } = *job;
        let header = SegmentHeader {
            replaces: Some(replaces),
            id,
            table: table.id,
            shard: index,
            level: span.level,
            bucket: span.bucket,
        };
        let now = table.lifetime.expires.then(|| core.now_for(table.id));
        let (group, file) = open_group(core, id, None, &header)?;
        let guard = RemoveOnFailure::new(&file, true);
        let range = span.range();
        let is_last = range.last < old.record.span().last || is_followed(core, index, old)?;
        Ok(SpanWriter {
            rewriting: Rewriting {
                core,
                old,
                table,
                range,
                top: span.level,
                purpose,
                now,
                is_last,
            },
            definition: table,
            header,
            guard,
            group,
            encodings: EncodingCache::thorough(),
            shared: SharedLeaves::new(table.leaf_events as usize),
            deltas: Vec::new(),
            carries: false,
            next: core.store.new_state(id),
            finished: None,
        })
    }

    /// Writes a stream's part in the span, with its covers, and ends the group when it has enough
    /// streams.
    fn stream(&mut self, stream: StreamId, state: &StreamState, covers: &Covers) -> Result<()> {
        let mut delta = StreamDelta {
            stream,
            ..StreamDelta::default()
        };
        let mut out = GroupOutput {
            group: &mut self.group,
            encodings: &mut self.encodings,
            shared: &mut self.shared,
        };
        let carried = self.rewriting.carried(state)?;
        self.carries |= carried.is_some();
        let rows = match carried {
            Some(buckets) => self
                .rewriting
                .beside(state, buckets, &mut out, &mut delta)?,
            None => self.rewriting.stream(state, &mut out, &mut delta)?,
        };
        let kept = covers.of_stream(stream);
        delta.covers.extend(kept.filter_map(|c| {
            let cut = c.range.intersect(&self.rewriting.range);
            (!cut.is_empty()).then_some(Cover {
                sequence: c.sequence,
                range: cut,
            })
        }));
        if rows > 0 || !delta.covers.is_empty() || delta.base.is_some() {
            self.deltas.push(delta);
        }
        if self.deltas.len() >= GROUP_STREAMS {
            self.end_group(false)?;
        }
        Ok(())
    }

    /// Ends a group with the changes gathered; `is_end` = it is the last one.
    fn end_group(&mut self, is_end: bool) -> Result<FinishedGroup> {
        let Rewriting { core, old, .. } = self.rewriting;
        let mut deltas = std::mem::take(&mut self.deltas);
        let entries = self.shared.finish(&mut self.group, &mut self.encodings)?;
        attach_shared(entries, &mut deltas)?;
        let new: Vec<StreamId> = deltas.iter().map(|d| d.stream).collect();
        attach_keys(core, &new, &mut deltas)?;
        let previous = self.finished.map(|f| (f.footer_offset, f.footer_bytes));
        let definition = previous.is_none().then(|| (**self.definition).clone());
        let end = GroupEnd {
            previous,
            sequence: old.record.sequence,
            table: definition,
            streams: deltas,
        };
        let is_whole = is_end && previous.is_none();
        let (state, written) = close_new(&core.store, &mut self.group, &self.next, is_whole, end)?;
        self.next = state;
        self.finished = Some(written);
        Ok(written)
    }

    /// Ends the last group and makes the new partition.
    fn finish(mut self) -> Result<WrittenGroup> {
        let finished = self.end_group(true)?;
        let Rewriting { core, old, .. } = self.rewriting;
        let (sequence, expiry) = (old.record.sequence, self.expiry());
        // The policy counts it as one group, regardless of the number of groups written.
        let record = PartitionRecord {
            groups: 1,
            ..record(&self.header, sequence, &self.next.sums, finished, expiry)
        };
        let SpanWriter {
            guard, group, next, ..
        } = self;
        core.counters
            .bytes(0, group.bytes.leaf, group.bytes.index, 0);
        let partition = Arc::new(Partition::new(record, guard.keep()));
        Ok(WrittenGroup {
            partition,
            state: Arc::new(next),
            pages: ChangedPages::default(),
            group,
            is_new: true,
            rows: 0,
            counts: Counters::default(),
            streams: Vec::new(),
        })
    }

    /// Determines the expiries of the new partition. Buckets do not record the expiry of their
    /// rows.
    fn expiry(&self) -> Expiry {
        let old = &self.rewriting.old.record;
        match self.rewriting.purpose {
            Purpose::Aging => expiry(Some(old), &self.group),
            Purpose::Compaction if self.carries => {
                let (first, end) = expiry(None, &self.group);
                let no_rows = self.group.expiry.is_none();
                (
                    first,
                    old.expires_last
                        .filter(|o| no_rows || end.is_some_and(|e| e <= *o)),
                )
            }
            Purpose::Compaction => expiry(None, &self.group),
        }
    }
}
