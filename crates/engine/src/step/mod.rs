//! Steps: take events out of a shard's memory, store them in segments, commit, publish.
//!
//! Protocol (docs/format/segment.md): 1 write every group; 2 sync the log up to the step's sequence and each file, and the directory if
//! a file is new; 3 one metadata transaction; 4 publish to readers; 5 free log files.
//! Invariants: a step takes every event of its streams and times with a sequence up to its own, which is at most the
//! published one; each stream's cover in a partition says exactly that.
//! Concurrency: one step of a shard at a time; writers and readers go on, they are excluded only while memory is looked at
//! and while the result is published.
//! Failure: before the transaction nothing has changed, and new files are removed again: a full disk aborts the step and is
//! reported by the writer that waits for memory; any other failure latches the database. A transaction that failed may be on
//! the medium all the same: the database latches, and every file stays until the next opening knows.

mod compact;
mod cutter;
mod erase;
mod plan;
mod stream_op;
mod sweep;

pub(crate) use compact::{age_partition, compact_partition, compaction_wanted};
pub(crate) use plan::{Buffers, ShardView, Urgency, buffers_to_store, full_buffers};
pub(crate) use sweep::sweep;

use crate::catalog::Table;
use crate::core::Core;
use crate::counters::{CLOCK, COMPACTION_DAY, COMPACTION_DAY_BYTES};
use crate::ids::{SegmentId, Sequence, ShardIndex, StreamId, TableId};
use crate::late::{FlushRule, Split};
use crate::memory::{Chunk, sorted_rows};
use crate::meta::{MetaChange, PartitionRecord};
use crate::partitions::{PartitionSet, Span, choose_span};
use crate::segment::{
    Cover, GroupWriter, Partition, SegmentFile, SegmentHeader, SegmentState, StreamDelta,
    StreamState,
};
use crate::shard::{Shard, StepScratch};
use crate::{Error, Result};
use cutter::{Destination, SharedLeaves};
use headwater_codec::{ClosedRange, Rows, Timestamp};
use headwater_io::OpenMode;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stream_op::{OpContext, OpOutput, store_rows};

/// A step touches at most this many partitions; the rest waits for the next.
const PARTITIONS_MAX: usize = 16;
/// A step takes at most this many streams, so that what it holds of them stays small beside the memory budget.
const STREAMS_MAX: usize = 8192;
/// Times looked at when a partition is placed.
const PLACING_SAMPLES: usize = 8192;

/// What was taken of one stream.
struct Taken {
    stream: StreamId,
    table: Arc<Table>,
    range: ClosedRange,
    rows: Rows,
}

/// The part of a stream's rows that one partition stores.
struct Part {
    taken: usize,
    rows: std::ops::Range<usize>,
}

enum Place {
    Existing(Arc<Partition>),
    New(Span),
}

struct Work {
    place: Place,
    table: Arc<Table>,
    parts: Vec<Part>,
}

/// A written group, not yet committed.
struct Written {
    partition: Arc<Partition>,
    state: Arc<SegmentState>,
    group: GroupWriter,
    is_new: bool,
    rows: usize,
    /// Stream, what was taken of it here, and the newest time of its main run.
    streams: Vec<(StreamId, TableId, ClosedRange, Option<i64>)>,
}

/// Runs one step of a shard. False when there was nothing to do.
pub(crate) fn run_step(
    core: &Core,
    index: ShardIndex,
    buffers: Buffers,
    urgency: Urgency,
) -> Result<bool> {
    let shard = core.shard(index)?;
    let mut scratch = shard.stepping.lock();
    core.log.check_failure()?;
    let sequence = core.log.published();
    // First of all: nothing may be stored beside events that a delete up to this sequence removes.
    sweep::sweep_up_to(core, index, shard, &mut scratch, sequence)?;
    let taken = take(core, shard, buffers, urgency, sequence)?;
    if taken.is_empty() {
        return Ok(false);
    }
    let partitions = Arc::clone(&shard.state.lock().partitions);
    let busy = shard.state.lock().busy.clone();
    let works = place(core, &partitions, &busy, &taken)?;
    if works.is_empty() {
        return Ok(false);
    }
    let mut written = Vec::with_capacity(works.len());
    let result = (|| {
        for work in works {
            written.push(write_group(
                core,
                index,
                &mut scratch,
                sequence,
                &taken,
                work,
            )?);
        }
        make_durable(core, sequence, &written)
    })();
    if let Err(error) = result {
        discard(&written);
        if error.kind() != crate::ErrorKind::Full {
            core.log.latch(error.clone());
        }
        return Err(error);
    }
    commit(core, sequence, &written, &[])?;
    publish(core, shard, sequence, &written);
    core.counters.count_flush();
    free_log(core)?;
    Ok(true)
}

/// Removes a new file when writing it fails, so that attempts on a full disk do not fill it further.
struct RemoveUnlessKept {
    file: Arc<SegmentFile>,
    armed: bool,
}

impl RemoveUnlessKept {
    fn new(file: &Arc<SegmentFile>, is_new: bool) -> RemoveUnlessKept {
        RemoveUnlessKept {
            file: Arc::clone(file),
            armed: is_new,
        }
    }

    fn keep(mut self) -> Arc<SegmentFile> {
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

/// New files of a step that failed are not part of the database.
fn discard(written: &[Written]) {
    for one in written.iter().filter(|w| w.is_new) {
        one.partition.file.set_replaced();
    }
}

/// Looks up what a step stores. Nothing is removed yet.
fn take(
    core: &Core,
    shard: &Shard,
    buffers: Buffers,
    urgency: Urgency,
    sequence: Sequence,
) -> Result<Vec<Taken>> {
    struct Candidate {
        stream: StreamId,
        table: TableId,
        watermark: Option<i64>,
        bytes: usize,
        flank_rows: usize,
        late_rows: usize,
        first_sequence: Sequence,
    }
    let (mut candidates, shard_bytes) = {
        let state = shard.state.lock();
        let candidates: Vec<Candidate> = state
            .active()
            .filter_map(|(stream, slot)| {
                let memory = &slot.memory;
                Some(Candidate {
                    stream,
                    table: slot.table,
                    watermark: memory.watermark,
                    bytes: memory.bytes,
                    flank_rows: memory.flank_rows,
                    late_rows: memory.late_rows,
                    first_sequence: memory.first_sequence()?,
                })
            })
            .filter(|c| c.first_sequence <= sequence)
            .collect();
        (candidates, state.bytes)
    };
    let exact = matches!(core.options.flush_rule, FlushRule::LabExact { .. });
    let retain = core.options.late_policy.retain_events as usize;
    let mut tables: HashMap<TableId, Arc<Table>> = HashMap::new();
    let mut table_of = |id: TableId| -> Result<Arc<Table>> {
        if let Some(table) = tables.get(&id) {
            return Ok(Arc::clone(table));
        }
        let table = core
            .catalog
            .table(id)
            .ok_or_else(|| Error::internal(format!("no table {}", id.0)))?;
        tables.insert(id, Arc::clone(&table));
        Ok(table)
    };
    // What to free: half of what the shard holds. Streams with whole leaves first, then the largest; for a log that is too
    // long the streams with the oldest events.
    match urgency {
        Urgency::Memory => candidates.sort_by_key(|c| std::cmp::Reverse((c.bytes, c.stream))),
        Urgency::Log | Urgency::All => candidates.sort_by_key(|c| (c.first_sequence, c.stream)),
    }
    let goal = match urgency {
        Urgency::All => usize::MAX,
        Urgency::Memory | Urgency::Log if exact => usize::MAX,
        Urgency::Memory | Urgency::Log => shard_bytes / 2,
    };
    let mut out: Vec<Taken> = Vec::new();
    let mut freed = 0;
    let rounds: &[bool] = if urgency == Urgency::Memory && !exact {
        &[true, false]
    } else {
        &[false]
    };
    let mut done = vec![false; candidates.len()];
    for whole_leaves in rounds {
        for (candidate, done) in candidates.iter().zip(&mut done) {
            if freed >= goal || out.len() >= STREAMS_MAX {
                break;
            }
            if *done {
                continue;
            }
            let table = table_of(candidate.table)?;
            if *whole_leaves
                && candidate.flank_rows + candidate.late_rows < table.leaf_events as usize
            {
                continue;
            }
            let chunks: Vec<Arc<Chunk>> = {
                let state = shard.state.lock();
                let memory = state.memory(candidate.stream);
                memory.map_or_else(Vec::new, |m| {
                    m.flank.iter().chain(&m.late).cloned().collect()
                })
            };
            let (range, rows) = take_stream(
                &chunks,
                candidate.watermark,
                buffers,
                if urgency == Urgency::Memory {
                    retain
                } else {
                    0
                },
                *whole_leaves,
                sequence,
                &table,
            );
            if rows.is_empty() {
                continue;
            }
            *done = true;
            freed +=
                candidate.bytes * rows.len() / (candidate.flank_rows + candidate.late_rows).max(1);
            out.push(Taken {
                stream: candidate.stream,
                table,
                range,
                rows,
            });
        }
    }
    out.sort_by_key(|t| (t.table.id, t.stream));
    Ok(out)
}

fn take_stream(
    chunks: &[Arc<Chunk>],
    watermark: Option<i64>,
    buffers: Buffers,
    retain: usize,
    whole_leaves: bool,
    sequence: Sequence,
    table: &Table,
) -> (ClosedRange, Rows) {
    let all = match buffers {
        Buffers::Late => plan::take_range(Buffers::Late, watermark, None),
        Buffers::Flank => plan::take_range(Buffers::Flank, watermark, Some(i64::MAX)),
        Buffers::Both => ClosedRange::ALL,
    };
    if all.is_empty() {
        return (ClosedRange::EMPTY, Rows::default());
    }
    let mut rows = sorted_rows(chunks, &all, sequence, table, None);
    if buffers == Buffers::Late || (retain == 0 && !whole_leaves) {
        return (all, rows);
    }
    let flank_from = watermark.map_or(0, |w| rows.times.partition_point(|t| *t <= w));
    let flank = rows.times.get(flank_from..).unwrap_or_default();
    let cut = plan::cut(flank, retain, table.leaf_events as usize, whole_leaves);
    let range = plan::take_range(buffers, watermark, cut);
    if range.is_empty() {
        return (range, Rows::default());
    }
    let end = rows.times.partition_point(|t| *t <= range.last.as_nanos());
    rows.truncate(end);
    (range, rows)
}

/// Divides what was taken over partitions, at most [`PARTITIONS_MAX`] of them, the oldest first.
fn place(
    core: &Core,
    partitions: &PartitionSet,
    busy: &std::collections::HashSet<SegmentId>,
    taken: &[Taken],
) -> Result<Vec<Work>> {
    let mut works: Vec<Work> = Vec::new();
    let mut by_table: BTreeMap<TableId, Vec<usize>> = BTreeMap::new();
    for (index, one) in taken.iter().enumerate() {
        by_table.entry(one.table.id).or_default().push(index);
    }
    for (table_id, members) in by_table {
        let Some(table) = members
            .first()
            .and_then(|m| taken.get(*m))
            .map(|t| Arc::clone(&t.table))
        else {
            continue;
        };
        let mut spans: Vec<(ClosedRange, Place)> = partitions
            .of(table_id)
            .iter()
            .map(|p| (p.record.span(), Place::Existing(Arc::clone(p))))
            .collect();
        add_new_spans(core, partitions, &table, &members, taken, &mut spans);
        spans.sort_by_key(|(range, _)| range.first);
        for (range, place) in spans {
            let parts: Vec<Part> = members
                .iter()
                .filter_map(|m| {
                    let times = &taken.get(*m)?.rows.times;
                    let from = times.partition_point(|t| *t < range.first.as_nanos());
                    let to = times.partition_point(|t| *t <= range.last.as_nanos());
                    (from < to).then_some(Part {
                        taken: *m,
                        rows: from..to,
                    })
                })
                .collect();
            let is_busy = matches!(&place, Place::Existing(p) if busy.contains(&p.id()));
            if !parts.is_empty() && !is_busy {
                works.push(Work {
                    place,
                    table: Arc::clone(&table),
                    parts,
                });
            }
        }
    }
    works.truncate(PARTITIONS_MAX);
    Ok(works)
}

/// Chooses spans for the times no partition owns.
fn add_new_spans(
    core: &Core,
    partitions: &PartitionSet,
    table: &Table,
    members: &[usize],
    taken: &[Taken],
    spans: &mut Vec<(ClosedRange, Place)>,
) {
    let mut homeless: Vec<i64> = Vec::new();
    for one in members.iter().filter_map(|m| taken.get(*m)) {
        let mut from = 0;
        while let Some(time) = one.rows.times.get(from) {
            let rest = one.rows.times.get(from..).unwrap_or_default();
            match partitions.owner(table.id, *time) {
                Some(owner) => {
                    let last = owner.record.span().last.as_nanos();
                    from += rest.partition_point(|t| *t <= last);
                }
                None => {
                    homeless.push(*time);
                    from += 1;
                }
            }
        }
    }
    if homeless.is_empty() {
        return;
    }
    homeless.sort_unstable();
    let (events, bytes) = partitions
        .of(table.id)
        .iter()
        .fold((0u64, 0u64), |(e, b), p| {
            (e + p.record.events, b + p.record.live_bytes)
        });
    let columns = table.fields.len() as f64 + 1.0;
    let per_event = if events >= 10_000 {
        bytes as f64 / events as f64
    } else {
        3.0 * columns
    };
    let target_bytes = match core.options.flush_rule {
        FlushRule::Production => core.options.partition_target_bytes,
        // The papers know one run and no partitions.
        FlushRule::LabExact { .. } => u64::MAX,
    };
    // Each sampled time stands for several events.
    let stride = homeless.len().div_ceil(PLACING_SAMPLES).max(1);
    let mut times: Vec<i64> = homeless;
    for _ in 0..PARTITIONS_MAX * 4 {
        if times.is_empty() {
            return;
        }
        let sampled: Vec<i64> = times.iter().step_by(stride).copied().collect();
        let existing: Vec<ClosedRange> = spans.iter().map(|(r, _)| *r).collect();
        let span = choose_span(
            &sampled,
            &existing,
            per_event * stride as f64,
            target_bytes,
            table.life.level_max(),
        );
        let range = span.range();
        let before = times.len();
        times.retain(|t| !range.contains(Timestamp::from_nanos(*t)));
        if times.len() == before {
            return;
        }
        spans.push((range, Place::New(span)));
    }
}

fn write_group(
    core: &Core,
    shard: ShardIndex,
    scratch: &mut StepScratch,
    sequence: Sequence,
    taken: &[Taken],
    work: Work,
) -> Result<Written> {
    let (old, state, span) = match &work.place {
        Place::Existing(partition) => {
            let state = core.store.state(partition)?;
            let span = Span {
                level: partition.record.level,
                bucket: partition.record.bucket,
            };
            (Some(Arc::clone(partition)), state, span)
        }
        Place::New(span) => (None, Arc::new(SegmentState::default()), *span),
    };
    let id = match &old {
        Some(partition) => partition.id(),
        None => SegmentId(core.next_segment.fetch_add(1, Ordering::Relaxed)),
    };
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
    let context = OpContext {
        store: &core.store,
        segment: id,
        table: &work.table,
        top: span.level,
        scope: core.options.late_policy.merge_scope,
        late_runs_max: core.options.late_runs_max,
        exact_cut: matches!(core.options.flush_rule, FlushRule::LabExact { .. }),
        bucket_events: core.options.bucket_events,
        counters: &core.counters,
    };
    let hints = scratch.hints.entry(work.table.id).or_default();
    let mut shared = SharedLeaves::new(work.table.leaf_events as usize);
    let nothing = StreamState::default();
    let mut deltas: Vec<StreamDelta> = Vec::with_capacity(work.parts.len());
    let mut streams = Vec::with_capacity(work.parts.len());
    let range = span.range();
    for part in &work.parts {
        let Some(one) = taken.get(part.taken) else {
            continue;
        };
        let known = state.stream(one.stream);
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
        let mut out = OpOutput {
            group: &mut group,
            hints,
            shared: &mut shared,
        };
        store_rows(
            &context,
            &mut out,
            one.stream,
            stream_state,
            rows.as_ref().unwrap_or(&one.rows),
            &mut delta,
        )?;
        // No wider than what is stored here: that is all replay has to skip, and it takes fewer bytes.
        let times = one.rows.times.get(part.rows.clone()).unwrap_or_default();
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
    attach_shared(shared.finish(&mut group, hints)?, &mut deltas);
    attach_keys(core, &state, &mut deltas)?;
    let table = (state.table.as_ref() != Some(&*work.table)).then(|| (*work.table).clone());
    let previous = old
        .as_ref()
        .map(|p| (p.record.footer_offset, p.record.footer_bytes));
    let (footer, finished) = group.finish(previous, sequence, table, deltas)?;
    let next = state.with_footer(&footer, u64::from(finished.footer_bytes));
    for (stream, _, _, watermark) in &mut streams {
        *watermark = next.stream(*stream).and_then(|s| s.watermark());
    }
    let partition = Arc::new(Partition {
        record: PartitionRecord {
            groups: old.as_ref().map_or(0, |p| p.record.groups) + 1,
            ..record(
                &header,
                sequence,
                &next,
                finished,
                expiry(old.as_deref().map(|p| &p.record), &group),
            )
        },
        file: guard.keep(),
    });
    core.counters
        .bytes(0, group.bytes.leaf, group.bytes.index, 0);
    let rows = work.parts.iter().map(|p| p.rows.len()).sum();
    Ok(Written {
        partition,
        state: Arc::new(next),
        group,
        is_new: old.is_none(),
        rows,
        streams,
    })
}

fn open_group(
    core: &Core,
    id: SegmentId,
    old: Option<&Partition>,
    header: &SegmentHeader,
) -> Result<(GroupWriter, Arc<SegmentFile>)> {
    let path = core.store.path(id);
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
    let committed = old.map_or(0, |p| p.record.committed_bytes);
    let segment_file = old.map_or_else(|| core.store.segment_file(id), |p| Arc::clone(&p.file));
    Ok((
        GroupWriter::new(file, path, committed, header),
        segment_file,
    ))
}

/// The first and the last expiry in a partition, as its record tells them.
pub(crate) type Expiry = (Option<i64>, Option<i64>);

/// The expiries in a partition after one more group.
fn expiry(before: Option<&PartitionRecord>, group: &GroupWriter) -> Expiry {
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
    state: &SegmentState,
    finished: crate::segment::FinishedGroup,
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
        events: state.sums.events,
        // Footers are in use too: what a rewriting would save of them is small, and not the same for every table.
        live_bytes: state.sums.live_bytes + state.footer_bytes,
        groups: 0,
        leaves: state.sums.leaves,
        late_runs: state.sums.late_runs,
        aged: state.is_aged(),
        expires_first: expiry.0,
        expires_last: expiry.1,
    }
}

/// Entries of shared leaves go to the deltas of their streams.
fn attach_shared(
    entries: Vec<(StreamId, Destination, crate::segment::LeafEntry)>,
    deltas: &mut [StreamDelta],
) {
    for (stream, destination, entry) in entries {
        let Ok(at) = deltas.binary_search_by_key(&stream, |d| d.stream) else {
            continue;
        };
        if let Some(delta) = deltas.get_mut(at) {
            match destination {
                Destination::Main => delta.added.push(entry),
                Destination::LateRun => delta.late_runs.push(vec![entry]),
            }
        }
    }
}

/// A segment names the streams it holds, so that the metadata can be rebuilt from segments alone.
fn attach_keys(core: &Core, state: &SegmentState, deltas: &mut [StreamDelta]) -> Result<()> {
    let new: Vec<StreamId> = deltas
        .iter()
        .map(|d| d.stream)
        .filter(|s| !state.streams().contains(*s))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let keys = core.stream_keys(&new)?;
    for delta in deltas {
        if let Some(key) = keys.get(&delta.stream) {
            delta.key = Some(key.clone());
        }
    }
    Ok(())
}

impl Core {
    /// The counters as of a step: events still in memory are counted again when the log is replayed.
    fn saved_counters(&self, written: &[Written]) -> Vec<(&'static str, u64)> {
        let in_memory: usize = self
            .shards
            .iter()
            .map(|s| {
                let state = s.state.lock();
                state.flank_events + state.late_events
            })
            .sum();
        let stored: usize = written.iter().map(|w| w.rows).sum();
        let waiting = in_memory.saturating_sub(stored) as u64;
        let mut saved = self.counters.snapshot();
        if let Some((_, accepted)) = saved.first_mut() {
            *accepted = accepted.saturating_sub(waiting);
        }
        let (day, bytes) = *self.compacted.lock();
        let now = self.env.clock.now().as_nanos().max(0).unsigned_abs();
        saved.extend([
            (CLOCK, now),
            (COMPACTION_DAY, day),
            (COMPACTION_DAY_BYTES, bytes),
        ]);
        saved
    }

    /// The key bytes of streams.
    pub(crate) fn stream_keys(&self, streams: &[StreamId]) -> Result<HashMap<StreamId, Box<[u8]>>> {
        // Pending ones first: a commit in between moves them to the metadata, never away from both.
        let mut keys: HashMap<StreamId, Box<[u8]>> = HashMap::with_capacity(streams.len());
        let pending = self.catalog.pending_keys();
        let mut missing = Vec::new();
        for stream in streams {
            match pending.get(stream) {
                Some(key) => drop(keys.insert(*stream, key.clone())),
                None => missing.push(*stream),
            }
        }
        for record in self.meta.streams(missing)? {
            keys.insert(record.id, record.key);
        }
        if keys.len() < streams.len() {
            // Gone, and yet there are events that a delete has not reached.
            let dropped = self.meta.dropped()?.into_iter().map(|(_, record)| record);
            for record in self.catalog.pending_dropped().into_iter().chain(dropped) {
                if streams.contains(&record.id) {
                    keys.insert(record.id, record.key);
                }
            }
        }
        Ok(keys)
    }
}

/// Step 2 of the protocol.
fn make_durable(core: &Core, sequence: Sequence, written: &[Written]) -> Result<()> {
    // The log first: what a segment holds must not outlive the definitions and the numbers in the log. A table may have been
    // changed after the step's sequence, and rows have been stored in its new types.
    let changed = core.catalog.newest_pending_table().unwrap_or_default();
    core.log.sync_up_to(sequence.max(changed))?;
    for one in written {
        one.group.sync()?;
    }
    if written.iter().any(|w| w.is_new) {
        let dir = core.store.dir();
        core.store
            .files()
            .sync_dir(dir)
            .map_err(|e| Error::io("sync", dir, e))?;
    }
    Ok(())
}

/// Step 3 of the protocol.
fn commit(
    core: &Core,
    sequence: Sequence,
    written: &[Written],
    removed: &[SegmentId],
) -> Result<()> {
    let mut commit = core.commit.lock();
    let (definitions, next_stream) = core.catalog.pending_up_to(sequence);
    let log = core.log.stats();
    core.counters
        .bytes(log.bytes_written - commit.log_bytes_counted, 0, 0, 0);
    commit.log_bytes_counted = log.bytes_written;
    let change = MetaChange {
        step_sequence: sequence,
        definitions,
        next_stream,
        partitions: written
            .iter()
            .map(|w| (w.partition.id(), w.partition.record.clone()))
            .collect(),
        removed: removed.to_vec(),
        next_segment: core.next_segment.load(Ordering::Relaxed),
        log_first_generation: core.log_cut.load(Ordering::Relaxed),
        counters: core.saved_counters(written),
        producers: core.producers.unsaved_up_to(sequence),
    };
    if let Err(error) = core.meta.commit(&change) {
        core.log.latch(error.clone());
        return Err(error);
    }
    commit.log_generation = change.log_first_generation;
    let meta_bytes = core.meta.written_bytes();
    core.counters
        .bytes(0, 0, 0, meta_bytes - commit.meta_bytes_counted);
    commit.meta_bytes_counted = meta_bytes;
    core.catalog.applied_up_to(sequence);
    core.producers.saved_up_to(sequence);
    Ok(())
}

/// Step 4: readers see the new partitions and no longer the events in memory, at one instant.
fn publish(core: &Core, shard: &Shard, sequence: Sequence, written: &[Written]) {
    let separate = matches!(core.options.late_policy.split, Split::Separate { .. });
    let mut state = shard.state.lock();
    let keep = state.has_snapshots();
    let version = state.version + 1;
    let mut partitions = (*state.partitions).clone();
    let mut taken: BTreeMap<StreamId, (TableId, Vec<ClosedRange>, Option<i64>)> = BTreeMap::new();
    for one in written {
        core.store.put_state(&one.partition, Arc::clone(&one.state));
        partitions.put(Arc::clone(&one.partition));
        for (stream, table, range, watermark) in &one.streams {
            let slot = taken.entry(*stream).or_insert((*table, Vec::new(), None));
            slot.1.push(*range);
            slot.2 = slot.2.max(*watermark);
        }
    }
    let before = state.bytes;
    for (stream, (table, ranges, watermark)) in taken {
        let (retired, _) = state.with_stream(stream, table, |memory| {
            memory.remove_stored(&ranges, sequence, watermark, version, keep, separate);
            memory.has_retired()
        });
        if retired {
            state.note_retired(stream);
        }
    }
    state.version = version;
    state.partitions = Arc::new(partitions);
    state.step_sequence = state.step_sequence.max(sequence);
    let change = state.bytes as isize - before as isize;
    drop(state);
    core.memory_changed(change);
}

/// Step 5: names the log files that are no longer needed to the next commit, and frees those the last one named.
fn free_log(core: &Core) -> Result<()> {
    recycle(core)?;
    let generation = core.log.first_generation_needed(core.first_needed());
    core.log_cut.fetch_max(generation, Ordering::Relaxed);
    Ok(())
}

fn recycle(core: &Core) -> Result<()> {
    let committed = core.commit.lock().log_generation;
    core.log
        .recycle_below(committed)
        .inspect_err(|error| core.log.latch(error.clone()))
}

/// Commits nothing but the position of the log, so that files named by the last step are freed.
pub(crate) fn commit_log_cut(core: &Core) -> Result<()> {
    let generation = core.log.first_generation_needed(core.first_needed());
    core.log_cut.fetch_max(generation, Ordering::Relaxed);
    let sequence = core.log.published();
    make_durable(core, sequence, &[])?;
    commit(core, sequence, &[], &[])?;
    recycle(core)
}
