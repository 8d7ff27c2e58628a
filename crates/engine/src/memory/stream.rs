//! The events of one stream that are not yet in a segment.

use crate::chunk::{Chunk, Sequences};
use crate::ids::Sequence;
use crate::pins::{OpenSnapshots, PinFile, PinLocation, Pinned, PinnedRows, SnapshotPoint};
use headwater_types::{ClosedRange, Rows};
use std::sync::Arc;

/// Two neighbouring chunks smaller than this are joined, so that one-line writes do not cost a
/// chunk each.
const JOIN_ROWS: usize = 512;
/// A chunk that nobody else holds takes rows until it has so many.
const APPEND_ROWS: usize = 2048;

/// What one stream holds in memory.
///
/// Invariants: flank times are above the watermark, late times at or below it (policy `separate`);
/// under `conventional` everything is in the flank. `pinned` holds chunks that a step took, for
/// readers with an older version; `bytes` are those of the others.
#[derive(Debug, Default)]
pub(crate) struct StreamMemory {
    pub(crate) flank: Vec<Arc<Chunk>>,
    pub(crate) late: Vec<Arc<Chunk>>,
    pinned: Vec<Pinned>,
    /// Bytes of those in memory.
    pinned_bytes: usize,
    /// Newest time in the main runs; `None` = nothing is stored.
    pub(crate) watermark: Option<i64>,
    /// The watermark was looked up (or the stream is new).
    pub(crate) watermark_known: bool,
    pub(crate) flank_rows: usize,
    pub(crate) late_rows: usize,
    pub(crate) bytes: usize,
    /// Late events are in a buffer of their own.
    separate: bool,
}

impl StreamMemory {
    /// True for an event that belongs to the flank: the one place where lateness is decided.
    #[inline]
    pub(crate) fn is_in_order(&self, time: i64) -> bool {
        self.watermark.is_none_or(|w| time > w)
    }

    /// Takes in rows; `separate` says whether late ones have a buffer of their own. Returns bytes
    /// added.
    pub(crate) fn insert(&mut self, rows: Rows, sequence: Sequence, separate: bool) -> isize {
        self.divide(separate);
        let before = self.bytes as isize;
        let sequences = Sequences::One(sequence);
        let all_in_order = rows.times.iter().all(|t| self.is_in_order(*t));
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

    /// Divides what is held as the policy asks for: late events with the others, or apart. Readers
    /// see the same rows: what is cut is of the age of what it was cut from.
    pub(crate) fn divide(&mut self, separate: bool) {
        if self.separate == separate {
            return;
        }
        self.separate = separate;
        if !separate {
            self.flank.append(&mut self.late);
            self.flank_rows += self.late_rows;
            self.late_rows = 0;
            return;
        }
        let Some(watermark) = self.watermark else {
            return;
        };
        if self.flank.iter().all(|c| c.first_time > watermark) {
            return;
        }
        let chunks = std::mem::take(&mut self.flank);
        self.flank_rows = 0;
        self.bytes -= chunks.iter().map(|c| c.bytes).sum::<usize>();
        for chunk in chunks {
            if chunk.first_time > watermark || chunk.last_time <= watermark {
                let in_order = chunk.first_time > watermark;
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

    /// Adds rows to the newest chunk of the flank, if no reader or step holds it: small writes then
    /// cost a copy and no chunk.
    fn append(&mut self, rows: &Rows, sequence: Sequence) -> bool {
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
        let (list, rows) = if in_order {
            (&mut self.flank, &mut self.flank_rows)
        } else {
            (&mut self.late, &mut self.late_rows)
        };
        *rows += chunk.len();
        self.bytes += chunk.bytes;
        list.push(chunk);
        // Like the carry of a binary counter: a chunk is joined with its neighbour when that is not
        // much larger, so a row is copied at most log2(JOIN_ROWS) times.
        while let [.., a, b] = list.as_slice()
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

    /// The smallest sequence of an event held.
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

    /// The chunks a reader with this version of the shard sees that may hold something in a range.
    pub(crate) fn visible(&self, version: u64, range: &ClosedRange) -> Vec<PinnedRows> {
        let live = self.live(range).filter(|c| c.born <= version);
        let pinned = self.pinned.iter().filter_map(|p| p.seen_by(version, range));
        live.map(|c| PinnedRows::Memory(Arc::clone(c)))
            .chain(pinned.cloned())
            .collect()
    }

    /// The chunks that a reader of the newest version sees and that may hold something in a range.
    pub(crate) fn live(&self, range: &ClosedRange) -> impl Iterator<Item = &Arc<Chunk>> {
        let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
        let all = self.flank.iter().chain(&self.late);
        all.filter(move |c| c.first_time <= last && c.last_time >= first)
    }

    /// Removes the events a step stored: those in `range` with a sequence up to `sequence`. What is
    /// left and now at or below the watermark is late. `version` is the shard's new one; `open`
    /// snapshots, all of older ones, still see what was removed.
    pub(crate) fn remove_stored(
        &mut self,
        taken: &[ClosedRange],
        sequence: Sequence,
        watermark: Option<i64>,
        version: u64,
        open: &OpenSnapshots,
        separate: bool,
    ) {
        self.watermark = self.watermark.max(watermark);
        self.watermark_known = true;
        self.separate = separate;
        let chunks: Vec<Arc<Chunk>> = self.flank.drain(..).chain(self.late.drain(..)).collect();
        self.flank_rows = 0;
        self.late_rows = 0;
        self.bytes = 0;
        let is_taken = |t: i64, s: Sequence| {
            s <= sequence
                && taken
                    .iter()
                    .any(|r| r.first.as_nanos() <= t && t <= r.last.as_nanos())
        };
        let watermark = self.watermark;
        let in_order = |t: i64| watermark.is_none_or(|w| t > w);
        for chunk in chunks {
            let untouched = chunk.first_sequence > sequence
                || taken.iter().all(|r| {
                    chunk.last_time < r.first.as_nanos() || chunk.first_time > r.last.as_nanos()
                });
            let one_side = !separate || in_order(chunk.first_time) == in_order(chunk.last_time);
            if untouched && one_side {
                let flank = !separate || in_order(chunk.first_time);
                self.push(chunk, flank);
                continue;
            }
            let pinned = Pinned::new(&chunk, version, open);
            let born = born_anew(&chunk, pinned.as_ref(), version, open);
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

    /// Removes the events for which `stays` says no. `version` is the shard's new one; `open`
    /// snapshots, all of older ones, still see what was removed. False when nothing was removed.
    pub(crate) fn remove_deleted(
        &mut self,
        stays: &impl Fn(i64, Sequence) -> bool,
        version: u64,
        open: &OpenSnapshots,
    ) -> bool {
        let mut removed = false;
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
                    .filter(|(row, time)| stays(**time, chunk.sequences.get(*row)))
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
                let pinned = Pinned::new(&chunk, version, open);
                let born = born_anew(&chunk, pinned.as_ref(), version, open);
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

    fn pin(&mut self, pinned: Option<Pinned>) {
        self.pinned_bytes += pinned.as_ref().map_or(0, Pinned::bytes);
        self.pinned.extend(pinned);
    }

    /// Lets go of what only a snapshot saw that was closed; `files` are to be let go of without a
    /// lock.
    pub(crate) fn unpin(
        &mut self,
        open: &OpenSnapshots,
        closed: SnapshotPoint,
        files: &mut Vec<Arc<PinFile>>,
    ) {
        let gone = self.pinned.extract_if(.., |p| !p.keep(open, closed));
        files.extend(gone.filter_map(Pinned::into_file));
        self.pinned.shrink_to(self.pinned.len() * 2);
        self.pinned_bytes = self.pinned.iter().map(Pinned::bytes).sum();
    }

    /// Bytes of pinned chunks in memory.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// How many chunks are pinned, in memory or in files.
    pub(crate) fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    pub(crate) fn pinned_chunks(&self) -> impl Iterator<Item = Arc<Chunk>> {
        self.pinned.iter().filter_map(|p| p.in_memory().cloned())
    }

    /// The rows of a pinned chunk are in a file now.
    pub(crate) fn pin_moved(&mut self, chunk: &Arc<Chunk>, place: &PinLocation) {
        for pinned in &mut self.pinned {
            let bytes = pinned.bytes();
            pinned.moved(chunk, place);
            self.pinned_bytes -= bytes - pinned.bytes();
        }
    }
}

/// From which version on readers see what is left of a chunk: those that see the pinned one must
/// not see both. Where nobody is there who could, it may grow again.
fn born_anew(chunk: &Chunk, pinned: Option<&Pinned>, version: u64, open: &OpenSnapshots) -> u64 {
    match pinned {
        Some(_) => version,
        None if open.is_empty() => 0,
        None => chunk.born,
    }
}
