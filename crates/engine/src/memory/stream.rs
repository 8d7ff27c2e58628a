//! The events of one stream that are not yet in a segment.

use super::front::{Front, FrontRequest, may_be_read};
use crate::common::ids::Sequence;
use crate::memory::chunk::{Chunk, Sequences};
use crate::memory::pins::{
    OpenSnapshots, PinnedChunk, PinnedChunkFile, PinnedChunkLocation, PinnedRows, SnapshotPoint,
};
use crate::metadata::catalog::Table;
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Rows, Timestamp};
use std::sync::Arc;

/// Two neighbouring chunks smaller than this are joined, so that one-line writes do not cost a
/// chunk each.
const JOIN_ROWS: usize = 512;
/// Rows up to which a chunk without other references grows.
const APPEND_ROWS: usize = 2048;

/// Events of one stream in memory.
///
/// Invariants: flank times are above the watermark, late times at or below it (policy `separate`);
/// under `conventional` all events are in the flank. `pinned` has chunks that a job took, for
/// readers with an older version; `bytes` counts all other chunks.
#[derive(Debug, Default)]
pub(crate) struct StreamMemory {
    pub(crate) flank: Vec<Arc<Chunk>>,
    pub(crate) late: Vec<Arc<Chunk>>,
    /// Merged first chunks of the flank, and of the late buffer.
    fronts: [Front; 2],
    pinned: Vec<PinnedChunk>,
    /// Bytes of the pinned chunks in memory.
    pinned_bytes: usize,
    /// Newest time in the main runs; `None` = no stored rows.
    pub(crate) watermark: Option<Timestamp>,
    /// The watermark was looked up (or the stream is new).
    pub(crate) watermark_known: bool,
    pub(crate) flank_rows: usize,
    pub(crate) late_rows: usize,
    pub(crate) bytes: usize,
    /// Late events are in a separate buffer.
    separate: bool,
}

impl StreamMemory {
    /// True for an event that belongs to the flank: only this code decides lateness.
    #[inline]
    pub(crate) fn is_in_order(&self, time: Timestamp) -> bool {
        self.watermark.is_none_or(|w| time > w)
    }

    /// Inserts rows; `separate` = late events have a separate buffer. Returns bytes added.
    pub(crate) fn insert(&mut self, rows: Rows, sequence: Sequence, separate: bool) -> isize {
        self.divide(separate);
        let before = self.bytes as isize;
        let sequences = Sequences::One(sequence);
        let in_order = |time: &i64| self.is_in_order(Timestamp::from_nanos(*time));
        let all_in_order = rows.times.iter().all(in_order);
        if !separate || all_in_order {
            if self.append(&rows, sequence) {
                return self.bytes as isize - before;
            }
            if let Some(chunk) = Chunk::new(rows, sequences, 0) {
                self.push(chunk, true);
            }
        } else if let Some(chunk) = Chunk::new(rows, sequences, 0) {
            let watermark = self.watermark;
            if let Some(part) = chunk.select(0, |t, _| watermark.is_none_or(|w| t > w)) {
                self.push(part, true);
            }
            if let Some(part) = chunk.select(0, |t, _| watermark.is_some_and(|w| t <= w)) {
                self.push(part, false);
            }
        }
        self.bytes as isize - before
    }

    /// Divides the events by the policy: late events with the others, or separately. Readers see
    /// the same rows: a split chunk has the age of the original.
    pub(crate) fn divide(&mut self, separate: bool) {
        if self.separate == separate {
            return;
        }
        self.separate = separate;
        self.fronts = Default::default();
        if !separate {
            self.flank.append(&mut self.late);
            self.flank_rows += self.late_rows;
            self.late_rows = 0;
            return;
        }
        let Some(watermark) = self.watermark else {
            return;
        };
        if self.flank.iter().all(|c| c.span.first > watermark) {
            return;
        }
        let chunks = std::mem::take(&mut self.flank);
        self.flank_rows = 0;
        self.bytes -= chunks.iter().map(|c| c.bytes).sum::<usize>();
        for chunk in chunks {
            if chunk.span.first > watermark || chunk.span.last <= watermark {
                let in_order = chunk.span.first > watermark;
                self.push(chunk, in_order);
                continue;
            }
            if let Some(part) = chunk.select(chunk.born, |t, _| t > watermark) {
                self.push(part, true);
            }
            if let Some(part) = chunk.select(chunk.born, |t, _| t <= watermark) {
                self.push(part, false);
            }
        }
    }

    /// Adds rows to the newest chunk of the flank, if no reader or job references it: small writes
    /// then cost a copy and no chunk.
    fn append(&mut self, rows: &Rows, sequence: Sequence) -> bool {
        let [flank, _] = &self.fronts;
        if flank.count() == self.flank.len() {
            return false;
        }
        let Some(chunk) = self.flank.last_mut().and_then(Arc::get_mut) else {
            return false;
        };
        let before = chunk.bytes;
        if chunk.born != 0
            || chunk.len() + rows.len() > APPEND_ROWS
            || !chunk.append(rows, sequence)
        {
            return false;
        }
        self.bytes = self.bytes + chunk.bytes - before;
        self.flank_rows += rows.len();
        true
    }

    fn push(&mut self, chunk: Arc<Chunk>, in_order: bool) {
        let [flank, late] = &self.fronts;
        let (list, rows, kept) = if in_order {
            (&mut self.flank, &mut self.flank_rows, flank.count())
        } else {
            (&mut self.late, &mut self.late_rows, late.count())
        };
        *rows += chunk.len();
        self.bytes += chunk.bytes;
        list.push(chunk);
        // Like the carry of a binary counter: a chunk is joined with its neighbour when the
        // neighbour is not much larger, so a row is copied at most log2(JOIN_ROWS) times.
        while let [rest @ .., a, b] = list.as_slice()
            && rest.len() >= kept
            && a.len() + b.len() <= JOIN_ROWS
            && a.len() <= b.len() * 2
            && a.born == b.born
        {
            let Some(joined) = a.joined(b) else { break };
            self.bytes = self.bytes + joined.bytes - a.bytes - b.bytes;
            list.truncate(list.len() - 2);
            list.push(joined);
        }
    }

    /// The smallest sequence of an event in memory.
    pub(crate) fn first_sequence(&self) -> Option<Sequence> {
        self.flank
            .iter()
            .chain(&self.late)
            .map(|c| c.first_sequence)
            .min()
    }

    pub(crate) fn rows(&self) -> usize {
        self.flank_rows + self.late_rows
    }

    /// The chunks, visible with this version of the shard, that may have rows in a range.
    pub(crate) fn visible(&self, version: u64, range: &ClosedRange) -> Vec<PinnedRows> {
        let live = self.live(range).filter(|c| c.born <= version);
        let pinned = self
            .pinned
            .iter()
            .filter_map(|p| p.visible_to(version, range));
        live.map(|c| PinnedRows::Memory(Arc::clone(c)))
            .chain(pinned.cloned())
            .collect()
    }

    /// The visible chunks like [`StreamMemory::visible`], for a reader of all rows up to `sequence`
    /// without deletes, of a table in which a row replaces another one of its time: a merged front
    /// replaces its chunks.
    pub(crate) fn visible_merged(
        &self,
        table: &Arc<Table>,
        version: u64,
        sequence: Sequence,
        range: &ClosedRange,
    ) -> Vec<PinnedRows> {
        if self
            .pinned
            .iter()
            .any(|p| p.visible_to(version, range).is_some())
        {
            return self.visible(version, range);
        }
        let [flank, late] = &self.fronts;
        let lists = [(&self.flank, flank), (&self.late, late)];
        let mut out = Vec::new();
        for (own, (list, front)) in lists.iter().enumerate() {
            let merged = front.merged(table).filter(|(merged, count)| {
                let mut replaced = part_of(list, ..*count, "chunks of a front").iter();
                let behind = part_of(list, *count.., "chunks behind a front").iter();
                let [(flank, _), (late, _)] = lists;
                let other = if own == 0 { late } else { flank };
                replaced.all(|c| c.born <= version)
                    && may_be_read(merged, behind.chain(other), sequence)
            });
            let (merged, count) = match merged {
                Some((merged, count)) => (Some(merged), count),
                None => (None, 0),
            };
            let behind = part_of(list, count.., "chunks behind a front").iter();
            let seen = merged.into_iter().chain(behind);
            let seen = seen.filter(|c| c.born <= version && c.span.overlaps(range));
            out.extend(seen.map(|c| PinnedRows::Memory(Arc::clone(c))));
        }
        out
    }

    /// The chunks that a reader of all rows up to `sequence` should merge for all later readers: by
    /// list.
    pub(crate) fn due_fronts(&self, version: u64, sequence: Sequence) -> [Option<FrontRequest>; 2] {
        let seen = |list: &[Arc<Chunk>]| {
            let mut list = list.iter();
            list.all(|c| c.born <= version && c.last_sequence <= sequence)
        };
        let [flank, late] = &self.fronts;
        let lists = [
            (&self.flank, self.flank_rows, flank),
            (&self.late, self.late_rows, late),
        ];
        lists.map(|(list, rows, front)| front.due(list, rows).filter(|_| seen(list)))
    }

    /// Caches merged fronts for readers, where the lists still begin with the same chunks.
    pub(crate) fn keep_fronts(&mut self, due: [Option<(FrontRequest, Front)>; 2]) {
        let lists = [&self.flank, &self.late];
        for ((made, list), front) in due.into_iter().zip(lists).zip(&mut self.fronts) {
            if let Some((due, made)) = made
                && due.begins(list)
            {
                *front = made;
            }
        }
    }

    /// Bytes of fronts merged for readers.
    pub(crate) fn front_bytes(&self) -> usize {
        self.fronts.iter().map(Front::bytes).sum()
    }

    /// The chunks, visible with the newest version, that may have rows in a range.
    pub(crate) fn live(&self, range: &ClosedRange) -> impl Iterator<Item = &Arc<Chunk>> {
        let range = *range;
        let all = self.flank.iter().chain(&self.late);
        all.filter(move |c| c.span.overlaps(&range))
    }

    /// Removes the events that a job stored: events in `range` with a sequence up to `sequence`.
    /// Remaining events that are now at or below the watermark are late. `version` is the shard's
    /// new one; `open` snapshots, all of older ones, still see the removed events.
    pub(crate) fn remove_stored(
        &mut self,
        taken: &[ClosedRange],
        sequence: Sequence,
        watermark: Option<Timestamp>,
        version: u64,
        open: &OpenSnapshots,
        separate: bool,
    ) {
        self.watermark = self.watermark.max(watermark);
        self.watermark_known = true;
        self.separate = separate;
        self.fronts = Default::default();
        let chunks: Vec<Arc<Chunk>> = self.flank.drain(..).chain(self.late.drain(..)).collect();
        self.flank_rows = 0;
        self.late_rows = 0;
        self.bytes = 0;
        let is_taken =
            |t: Timestamp, s: Sequence| s <= sequence && taken.iter().any(|r| r.contains(t));
        let watermark = self.watermark;
        let in_order = |t: Timestamp| watermark.is_none_or(|w| t > w);
        for chunk in chunks {
            let untouched =
                chunk.first_sequence > sequence || taken.iter().all(|r| !chunk.span.overlaps(r));
            let one_side = !separate || in_order(chunk.span.first) == in_order(chunk.span.last);
            if untouched && one_side {
                let flank = !separate || in_order(chunk.span.first);
                self.push(chunk, flank);
                continue;
            }
            let pinned = PinnedChunk::new(&chunk, version, open);
            let born = birth_of_rest(&chunk, pinned.as_ref(), version, open);
            if separate {
                if let Some(part) = chunk.select(born, |t, s| !is_taken(t, s) && in_order(t)) {
                    self.push(part, true);
                }
                if let Some(part) = chunk.select(born, |t, s| !is_taken(t, s) && !in_order(t)) {
                    self.push(part, false);
                }
            } else if let Some(part) = chunk.select(born, |t, s| !is_taken(t, s)) {
                self.push(part, true);
            }
            self.pin(pinned);
        }
    }

    /// Removes the events for which `stays` returns false. `version` is the shard's new one; `open`
    /// snapshots, all of older ones, still see the removed events. False when there was no such
    /// event.
    pub(crate) fn remove_deleted(
        &mut self,
        stays: &impl Fn(Timestamp, Sequence) -> bool,
        version: u64,
        open: &OpenSnapshots,
    ) -> bool {
        let mut removed = false;
        self.fronts = Default::default();
        for in_order in [true, false] {
            let list = if in_order {
                std::mem::take(&mut self.flank)
            } else {
                std::mem::take(&mut self.late)
            };
            let mut left = Vec::with_capacity(list.len());
            for chunk in list {
                let count = (0..chunk.len())
                    .zip(&chunk.rows.times)
                    .filter(|(row, time)| {
                        stays(Timestamp::from_nanos(**time), chunk.sequences.get(*row))
                    })
                    .count();
                if count == chunk.len() {
                    left.push(chunk);
                    continue;
                }
                removed = true;
                let gone = chunk.len() - count;
                if in_order {
                    self.flank_rows -= gone;
                } else {
                    self.late_rows -= gone;
                }
                let pinned = PinnedChunk::new(&chunk, version, open);
                let born = birth_of_rest(&chunk, pinned.as_ref(), version, open);
                let part = chunk.select(born, stays);
                self.bytes += part.as_ref().map_or(0, |p| p.bytes);
                left.extend(part);
                self.bytes -= chunk.bytes;
                self.pin(pinned);
            }
            if in_order {
                self.flank = left;
            } else {
                self.late = left;
            }
        }
        removed
    }

    fn pin(&mut self, pinned: Option<PinnedChunk>) {
        self.pinned_bytes += pinned.as_ref().map_or(0, PinnedChunk::bytes);
        self.pinned.extend(pinned);
    }

    /// Drops chunks that only a closed snapshot saw; drop `files` without a lock.
    pub(crate) fn unpin(
        &mut self,
        open: &OpenSnapshots,
        closed: SnapshotPoint,
        files: &mut Vec<Arc<PinnedChunkFile>>,
    ) {
        let gone = self.pinned.extract_if(.., |p| !p.keep(open, closed));
        files.extend(gone.filter_map(PinnedChunk::into_file));
        self.pinned.shrink_to(self.pinned.len() * 2);
        self.pinned_bytes = self.pinned.iter().map(PinnedChunk::bytes).sum();
    }

    /// Bytes of pinned chunks in memory.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// The span of all rows that some snapshot may see, in memory or pinned; `None` without rows.
    pub(crate) fn span(&self) -> Option<ClosedRange> {
        let live = self.flank.iter().chain(&self.late).map(|c| c.span);
        let pinned = self.pinned.iter().map(PinnedChunk::span);
        live.chain(pinned)
            .reduce(|a, b| ClosedRange::new(a.first.min(b.first), a.last.max(b.last)))
    }

    /// Number of pinned chunks, in memory or in files.
    pub(crate) fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    pub(crate) fn pinned_chunks(&self) -> impl Iterator<Item = Arc<Chunk>> {
        self.pinned.iter().filter_map(|p| p.in_memory().cloned())
    }

    /// Records that the rows of a pinned chunk are in a file now.
    pub(crate) fn pin_moved(&mut self, chunk: &Arc<Chunk>, place: &PinnedChunkLocation) {
        for pinned in &mut self.pinned {
            let bytes = pinned.bytes();
            pinned.moved(chunk, place);
            self.pinned_bytes -= bytes - pinned.bytes();
        }
    }
}

/// The version from which on readers see the rest of a chunk: readers of the pinned chunk must not
/// see the rest too. Without such readers the chunk may grow again.
fn birth_of_rest(
    chunk: &Chunk,
    pinned: Option<&PinnedChunk>,
    version: u64,
    open: &OpenSnapshots,
) -> u64 {
    match pinned {
        Some(_) => version,
        None if open.is_empty() => 0,
        None => chunk.born,
    }
}
