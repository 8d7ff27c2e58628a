//! What a segment holds: the fold of its footers up to the committed length.
//!
//! Invariants: a stream's main run is sorted and its leaves do not overlap (`keep`: they may share a border); blocks are
//! sorted by level and bucket; blocks of the base level cover every row of the main run.
//! Concurrency: immutable; a group makes a new state that shares what did not change.

use super::directory::{Change, Directory};
use super::format::{BlockEntry, Footer, LeafEntry, StreamDelta};
use crate::catalog::Table;
use crate::ids::StreamId;
use headwater_codec::{ClosedRange, Level};
use std::cell::Cell;
use std::sync::Arc;

/// What a segment holds of one stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamState {
    pub(crate) main: Vec<LeafEntry>,
    /// Oldest first; a later run's event wins over an earlier run's and over the main run's.
    pub(crate) late: Vec<Vec<LeafEntry>>,
    pub(crate) base: Option<Level>,
    pub(crate) blocks: Vec<BlockEntry>,
    pub(crate) stale: Vec<ClosedRange>,
    pub(crate) last_row: Option<Box<[u8]>>,
}

impl StreamState {
    pub(crate) fn main_rows(&self) -> u64 {
        self.main.iter().map(|l| u64::from(l.count)).sum()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.main_rows()
            + self
                .late
                .iter()
                .flatten()
                .map(|l| u64::from(l.count))
                .sum::<u64>()
    }

    /// True when the rows have gone and left their buckets.
    pub(crate) fn is_aged(&self) -> bool {
        self.main.is_empty() && self.late.is_empty() && !self.blocks.is_empty()
    }

    /// Newest time in the main run.
    pub(crate) fn main_end(&self) -> Option<i64> {
        self.main.last().map(|l| l.last)
    }

    /// What is newer than this can be appended. It is the newest time in the main run, or in a late run, if the main run has
    /// lost its end to a delete: a late run's event must not get a newer one below it.
    pub(crate) fn watermark(&self) -> Option<i64> {
        let late = self.late.iter().filter_map(|run| run.last());
        self.main_end().max(late.map(|l| l.last).max())
    }

    /// Blocks of one level, by bucket.
    pub(crate) fn blocks_of(&self, level: Level) -> &[BlockEntry] {
        let from = self.blocks.partition_point(|b| b.level < level);
        let to = self.blocks.partition_point(|b| b.level <= level);
        self.blocks.get(from..to).unwrap_or_default()
    }

    /// The leaf of the main run an event of this time belongs to: the last one that begins at or before it, else the first.
    pub(crate) fn owner(&self, time: i64) -> usize {
        self.main
            .partition_point(|l| l.first <= time)
            .saturating_sub(1)
    }

    pub(crate) fn apply(&mut self, delta: &StreamDelta) {
        if !delta.removed.is_empty() {
            let removed: std::collections::HashSet<(u64, u32)> =
                delta.removed.iter().copied().collect();
            self.main
                .retain(|l| !removed.contains(&(l.offset, l.row_start)));
        }
        if !delta.added.is_empty() {
            let at_end = match (self.main.last(), delta.added.first()) {
                (Some(last), Some(first)) => last.last <= first.first,
                _ => true,
            };
            self.main.extend_from_slice(&delta.added);
            if !at_end {
                self.main.sort_by_key(|l| (l.first, l.last));
            }
        }
        if delta.clear_late {
            self.late.clear();
        }
        self.late.extend(delta.late_runs.iter().cloned());
        if delta.base.is_some() {
            self.base = delta.base;
            if !delta.removed_blocks.is_empty() {
                self.blocks
                    .retain(|b| !delta.removed_blocks.contains(&b.offset));
            }
            self.blocks.extend_from_slice(&delta.added_blocks);
            self.blocks.sort_by_key(|b| (b.level, b.first_bucket));
        }
        if let Some(stale) = &delta.stale {
            self.stale.clone_from(stale);
        }
        if let Some(row) = &delta.last_row {
            self.last_row = Some(row.clone()).filter(|r| !r.is_empty());
        }
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        let leaves: u64 = self
            .main
            .iter()
            .chain(self.late.iter().flatten())
            .map(LeafEntry::share_bytes)
            .sum();
        leaves + self.blocks.iter().map(|b| u64::from(b.bytes)).sum::<u64>()
    }

    pub(crate) fn weight(&self) -> usize {
        let leaves = self.main.len() + self.late.iter().map(Vec::len).sum::<usize>();
        size_of::<StreamState>()
            + leaves * size_of::<LeafEntry>()
            + self.blocks.len() * size_of::<BlockEntry>()
            + self.last_row.as_ref().map_or(0, |r| r.len())
            + 64
    }
}

/// What a segment holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentState {
    streams: Directory,
    /// The newest table definition written to this segment.
    pub(crate) table: Option<Table>,
    pub(crate) footer_bytes: u64,
    pub(crate) sums: Sums,
}

/// Sums over the streams of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) events: u64,
    /// Leaves of main runs.
    pub(crate) leaves: u64,
    pub(crate) late_runs: u64,
    /// Bytes of leaves and blocks that something refers to.
    pub(crate) live_bytes: u64,
}

impl Sums {
    fn of(state: &StreamState) -> Sums {
        Sums {
            events: state.rows(),
            leaves: state.main.len() as u64,
            late_runs: state.late.len() as u64,
            live_bytes: state.live_bytes(),
        }
    }

    fn replace(&mut self, old: Sums, new: Sums) {
        let replaced = |sum: u64, old: u64, new: u64| (sum + new).saturating_sub(old);
        self.events = replaced(self.events, old.events, new.events);
        self.leaves = replaced(self.leaves, old.leaves, new.leaves);
        self.late_runs = replaced(self.late_runs, old.late_runs, new.late_runs);
        self.live_bytes = replaced(self.live_bytes, old.live_bytes, new.live_bytes);
    }
}

/// A change of a footer, which also keeps the sums.
struct Counted<'a> {
    delta: &'a StreamDelta,
    sums: &'a Cell<Sums>,
}

impl Change for Counted<'_> {
    fn stream(&self) -> StreamId {
        self.delta.stream
    }

    fn apply(&self, old: Option<&StreamState>) -> StreamState {
        let mut state = old.cloned().unwrap_or_default();
        let before = Sums::of(&state);
        state.apply(self.delta);
        let mut sums = self.sums.get();
        sums.replace(before, Sums::of(&state));
        self.sums.set(sums);
        state
    }
}

impl SegmentState {
    /// The state after one more group.
    pub(crate) fn with_footer(&self, footer: &Footer, footer_bytes: u64) -> SegmentState {
        let mut next = self.clone();
        next.apply(footer, footer_bytes);
        next
    }

    pub(crate) fn apply(&mut self, footer: &Footer, footer_bytes: u64) {
        let sums = Cell::new(self.sums);
        let counted = |delta| Counted { delta, sums: &sums };
        let mut changes: Vec<Counted<'_>> = footer.streams.iter().map(counted).collect();
        changes.sort_by_key(|c| c.delta.stream);
        self.streams.change(&changes);
        self.sums = sums.get();
        if let Some(table) = &footer.table {
            self.table = Some(table.clone());
        }
        self.footer_bytes += footer_bytes;
    }

    /// What it holds of a stream.
    pub(crate) fn stream(&self, stream: StreamId) -> Option<Arc<StreamState>> {
        self.streams.get(stream)
    }

    /// True when nothing is left in it, neither rows nor buckets.
    pub(crate) fn is_empty(&self) -> bool {
        self.sums.events == 0 && self.sums.live_bytes == 0
    }

    /// True when the rows have gone and left their buckets.
    pub(crate) fn is_aged(&self) -> bool {
        self.sums.events == 0 && self.sums.live_bytes > 0
    }

    /// Its streams, by number.
    pub(crate) fn streams(&self) -> &Directory {
        &self.streams
    }

    /// Bytes of memory, about.
    pub(crate) fn weight(&self) -> usize {
        size_of::<SegmentState>() + self.streams.weight()
    }
}
