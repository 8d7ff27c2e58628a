//! A shard: streams that share memory and one flush worker.
//!
//! Invariants: a stream stays in its shard; `version` increases with every published job;
//! `partitions` is the set as of `version`; snapshots are registered under the same lock that
//! publishes, so a job knows which older versions are read; `bytes` counts events not yet stored,
//! and memory that only older snapshots see counts in `pinned`; a stream with only a watermark in
//! memory uses 16 bytes and its slot in a map. Concurrency: one lock, for short work in memory
//! only; one job at a time ([`Shard::stepping`]).

use crate::memory::chunk::Chunk;
mod parked;

pub(crate) use parked::{Parked, parked_bytes_max};

use crate::common::ids::{NumberMap, SegmentId, Sequence, StreamId, TableId};
use crate::memory::StreamMemory;
use crate::memory::pins::{
    OpenSnapshots, PINNED_CHUNK_BYTES, PinnedChunkFile, PinnedChunkLocation, PinnedRows,
    SnapshotPoint,
};
use crate::storage::partitions::PartitionSet;
use crate::storage::tombstone::Tombstone;
use headwater_codec::leaf::EncodingCache;
use headwater_late::{Analyzer, Split};
use headwater_types::{ClosedRange, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) state: Mutex<ShardState>,
    /// Locked while a job of this shard runs.
    pub(crate) stepping: Mutex<StepScratch>,
}

/// Buffers that jobs of a shard reuse.
#[derive(Debug, Default)]
pub(crate) struct StepScratch {
    pub(crate) encodings: HashMap<TableId, EncodingCache>,
}

#[derive(Debug, Default)]
pub(crate) struct ShardState {
    /// Streams with events in memory, and streams with an unknown or no watermark.
    streams: NumberMap<StreamId, Box<ShardStream>>,
    /// Watermarks of the other streams used since opening.
    idle: NumberMap<StreamId, Timestamp>,
    pub(crate) bytes: usize,
    pub(crate) flank_events: usize,
    pub(crate) late_events: usize,
    pub(crate) version: u64,
    pub(crate) partitions: Arc<PartitionSet>,
    /// Deletes not yet carried out in every partition and in memory, by sequence.
    pub(crate) tombstones: Arc<Vec<Tombstone>>,
    /// Data of a table may have ended: a sweep has to check.
    pub(crate) ending: bool,
    /// Every delete up to here has been carried out, except in unreadable partitions.
    pub(crate) swept: Sequence,
    /// Events of the spans of such partitions.
    pub(crate) parked: Parked,
    /// Sequence of the newest published job.
    pub(crate) step_sequence: Sequence,
    pub(crate) snapshots: OpenSnapshots,
    /// Streams with events in memory that were stored since, and that older snapshots see.
    pinned_streams: BTreeSet<StreamId>,
    pinned: PinnedChunkTotals,
    /// Partitions a compaction is rewriting: they accept no groups.
    pub(crate) busy: HashSet<SegmentId>,
    /// Statistics of late events, and the policy in force.
    pub(crate) analyzer: Analyzer,
    /// The analyzer has changed since the last commit.
    pub(crate) unsaved_analyzer: bool,
    /// No evaluation before this moment of the monotonic clock, so that evaluations take little of
    /// the time.
    pub(crate) evaluate_from: Duration,
    /// The policy was changed: the next job first divides memory by the new one.
    pub(crate) repartition: bool,
    /// Arrival of the first of the late events in memory, by the monotonic clock.
    pub(crate) late_since: Option<Duration>,
}

/// Memory of a stream with events in addition to these: its [`ShardStream`] and its slot in a map.
const ACTIVE_BYTES: usize = size_of::<ShardStream>() + 48;

/// A snapshot's view of a shard.
#[derive(Clone, Debug)]
pub(crate) struct ShardSnapshot {
    pub(crate) version: u64,
    pub(crate) partitions: Arc<PartitionSet>,
    pub(crate) tombstones: Arc<Vec<Tombstone>>,
}

/// A stream with data in memory.
#[derive(Debug)]
pub(crate) struct ShardStream {
    pub(crate) table: TableId,
    pub(crate) memory: StreamMemory,
}

/// Totals of pinned memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PinnedChunkTotals {
    /// Bytes of chunks in memory.
    rows: usize,
    /// Chunks, in memory or in files.
    count: usize,
}

impl PinnedChunkTotals {
    fn of(memory: &StreamMemory) -> PinnedChunkTotals {
        PinnedChunkTotals {
            rows: memory.pinned_bytes(),
            count: memory.pinned_count(),
        }
    }

    fn change(&mut self, before: PinnedChunkTotals, after: PinnedChunkTotals) {
        self.rows = self.rows + after.rows - before.rows;
        self.count = self.count + after.count - before.count;
    }
}

/// Memory of a stream's events, and of the stream's own entry.
fn bytes_of(memory: &StreamMemory) -> usize {
    let active = if memory.rows() > 0 { ACTIVE_BYTES } else { 0 };
    memory.bytes + memory.front_bytes() + active
}

impl Shard {
    pub(crate) fn new(partitions: PartitionSet, analyzer: Analyzer) -> Shard {
        let state = ShardState {
            partitions: Arc::new(partitions),
            version: 1,
            ending: true,
            analyzer,
            ..ShardState::default()
        };
        Shard {
            state: Mutex::new(state),
            stepping: Mutex::new(StepScratch::default()),
        }
    }
}

impl ShardState {
    /// Changes one stream's memory and updates the shard's sums. Returns the change in bytes.
    pub(crate) fn with_stream<T>(
        &mut self,
        stream: StreamId,
        table: TableId,
        change: impl FnOnce(&mut StreamMemory) -> T,
    ) -> (T, isize) {
        let idle = &mut self.idle;
        let slot = self.streams.entry(stream).or_insert_with(|| {
            let mut memory = StreamMemory::default();
            memory.watermark = idle.remove(&stream);
            memory.watermark_known = memory.watermark.is_some();
            Box::new(ShardStream { table, memory })
        });
        let memory = &mut slot.memory;
        let (bytes, flank, late) = (bytes_of(memory), memory.flank_rows, memory.late_rows);
        let pinned = PinnedChunkTotals::of(memory);
        let result = change(memory);
        let bytes_now = bytes_of(memory);
        self.bytes = self.bytes + bytes_now - bytes;
        self.flank_events = self.flank_events + memory.flank_rows - flank;
        self.late_events = self.late_events + memory.late_rows - late;
        let pinned_now = PinnedChunkTotals::of(memory);
        self.pinned.change(pinned, pinned_now);
        if pinned_now.count > 0 {
            self.pinned_streams.insert(stream);
        }
        self.rest(stream);
        (result, bytes_now as isize - bytes as isize)
    }

    /// True when the policy in force has a separate buffer for late events.
    pub(crate) fn separates(&self) -> bool {
        matches!(
            self.analyzer.in_force().policy.split,
            Split::Separate { .. }
        )
    }

    /// Keeps only the watermark of a stream without other data in memory.
    fn rest(&mut self, stream: StreamId) {
        let memory = self.streams.get(&stream).map(|s| &s.memory);
        if let Some(memory) = memory
            && memory.rows() == 0
            && memory.pinned_count() == 0
            && let (true, Some(watermark)) = (memory.watermark_known, memory.watermark)
        {
            self.streams.remove(&stream);
            self.idle.insert(stream, watermark);
            // A map for many streams is not retained for few.
            if self.streams.len() < self.streams.capacity() / 8 {
                self.streams.shrink_to(self.streams.len() * 2);
            }
        }
    }

    /// The watermark of a stream, if it is known: `Some(None)` = no stored rows.
    pub(crate) fn known_watermark(&self, stream: StreamId) -> Option<Option<Timestamp>> {
        if let Some(watermark) = self.idle.get(&stream) {
            return Some(Some(*watermark));
        }
        let memory = &self.streams.get(&stream)?.memory;
        memory.watermark_known.then_some(memory.watermark)
    }

    /// The events of a stream in memory, if any.
    pub(crate) fn memory(&self, stream: StreamId) -> Option<&StreamMemory> {
        self.streams.get(&stream).map(|s| &s.memory)
    }

    /// Streams with events in memory, in no particular order.
    pub(crate) fn active(&self) -> impl Iterator<Item = (StreamId, &ShardStream)> {
        let all = self.streams.iter().map(|(stream, slot)| (*stream, &**slot));
        all.filter(|(_, slot)| slot.memory.rows() > 0)
    }

    /// Streams of a table for which memory may have rows visible to some snapshot, by number, each
    /// with the span of the rows.
    pub(crate) fn streams_of(&self, table: TableId) -> Vec<(StreamId, ClosedRange)> {
        let of_table = self.streams.iter().filter(|(_, slot)| slot.table == table);
        let mut out: Vec<(StreamId, ClosedRange)> = of_table
            .filter_map(|(stream, slot)| Some((*stream, slot.memory.span()?)))
            .collect();
        out.sort_unstable_by_key(|(stream, _)| *stream);
        out
    }

    /// True when memory holds rows of a table in a range.
    pub(crate) fn has_rows_in(&self, table: TableId, range: &ClosedRange) -> bool {
        let of_table = self.active().filter(|(_, slot)| slot.table == table);
        let mut chunks =
            of_table.flat_map(|(_, slot)| slot.memory.flank.iter().chain(&slot.memory.late));
        let inside = |time: &i64| range.contains(Timestamp::from_nanos(*time));
        chunks.any(|chunk| range.overlaps(&chunk.span) && chunk.rows.times.iter().any(inside))
    }

    /// The smallest sequence of an event in memory.
    pub(crate) fn first_sequence(&self) -> Option<Sequence> {
        self.active()
            .filter_map(|(_, slot)| slot.memory.first_sequence())
            .min()
    }

    /// Registers a snapshot of the present version. The caller reports its sequence next.
    pub(crate) fn open_snapshot(&mut self) -> ShardSnapshot {
        self.snapshots.open(self.version);
        ShardSnapshot {
            version: self.version,
            partitions: Arc::clone(&self.partitions),
            tombstones: Arc::clone(&self.tombstones),
        }
    }

    /// Forgets a snapshot, and chunks that only it sees. Returns their files, to be dropped without
    /// the lock.
    pub(crate) fn close_snapshot(&mut self, closed: SnapshotPoint) -> Vec<Arc<PinnedChunkFile>> {
        self.snapshots.close(closed);
        let mut files = Vec::new();
        // Only a job that was published while it was open can have pinned chunks for it.
        if self.pinned_streams.is_empty() || closed.version == self.version {
            return files;
        }
        for stream in std::mem::take(&mut self.pinned_streams) {
            let Some(slot) = self.streams.get_mut(&stream) else {
                assert!(
                    self.streams.contains_key(&stream),
                    "stream {} has pinned events and no entry in memory",
                    stream.0
                );
                continue;
            };
            let before = PinnedChunkTotals::of(&slot.memory);
            slot.memory.unpin(&self.snapshots, closed, &mut files);
            let left = PinnedChunkTotals::of(&slot.memory);
            self.pinned.change(before, left);
            if left.count > 0 {
                self.pinned_streams.insert(stream);
            } else {
                self.rest(stream);
            }
        }
        files
    }

    pub(crate) fn has_snapshots(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// True when a sweep has work to do.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending || self.tombstones.iter().any(|t| t.sequence > self.swept)
    }

    /// Bytes of pinned chunks in memory.
    pub(crate) fn pinned_rows(&self) -> usize {
        self.pinned.rows
    }

    /// Bytes of pinned chunks in memory, and of the entries of all pinned chunks.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned.rows
            + self.pinned.count * PINNED_CHUNK_BYTES
            + self.pinned_streams.len() * ACTIVE_BYTES
    }

    /// Pinned chunks in memory.
    pub(crate) fn pinned_chunks(&self) -> Vec<(StreamId, Arc<Chunk>)> {
        let streams = self.pinned_streams.iter();
        let held = streams.filter_map(|s| Some((*s, &self.streams.get(s)?.memory)));
        held.flat_map(|(stream, memory)| memory.pinned_chunks().map(move |c| (stream, c)))
            .collect()
    }

    /// Records that the rows of a pinned chunk are in a file now.
    pub(crate) fn pin_moved(
        &mut self,
        stream: StreamId,
        chunk: &Arc<Chunk>,
        place: &PinnedChunkLocation,
    ) {
        if let Some(slot) = self.streams.get_mut(&stream) {
            let before = PinnedChunkTotals::of(&slot.memory);
            slot.memory.pin_moved(chunk, place);
            self.pinned
                .change(before, PinnedChunkTotals::of(&slot.memory));
        }
    }

    /// The chunks of a stream that a snapshot of this version sees and that may have rows in a
    /// range.
    pub(crate) fn visible(
        &self,
        stream: StreamId,
        version: u64,
        range: &ClosedRange,
    ) -> Vec<PinnedRows> {
        let memory = self.memory(stream);
        memory.map_or_else(Vec::new, |m| m.visible(version, range))
    }

    pub(crate) fn add_tombstone(&mut self, tombstone: &Tombstone) {
        Arc::make_mut(&mut self.tombstones).push(tombstone.clone());
    }
}
