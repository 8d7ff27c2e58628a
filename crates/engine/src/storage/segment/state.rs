//! The contents of a segment for a stream, and their sums: the fold of its footers up to the
//! committed length.
//!
//! Invariants: a stream's main run is sorted and its leaves do not overlap (`keep`: they may share
//! a border); blocks are sorted by level and bucket; blocks of the base level cover every row of
//! the main run.
//! Concurrency: plain data.

use super::format::{BlockEntry, Footer, LeafEntry, StreamDelta};
use crate::common::ids::StreamId;
use crate::metadata::catalog::Table;
use crate::metadata::tables::PartitionRecord;
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Level, Timestamp};
use std::collections::BTreeMap;

/// The contents of a segment for one stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamState {
    pub(crate) main: Vec<LeafEntry>,
    /// Late runs, oldest first; a later run's event wins over an earlier run's and over the main
    /// run's.
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

    /// True when the rows were removed and their buckets remain. Other rows are only in late runs
    /// and are counted in no bucket.
    pub(crate) fn is_aged(&self) -> bool {
        self.main.is_empty() && !self.blocks.is_empty()
    }

    /// Newest time in the main run.
    pub(crate) fn main_end(&self) -> Option<Timestamp> {
        self.main.last().map(|l| l.last)
    }

    /// Newest stored time; only newer rows can be appended. Equals the newest time in the main run,
    /// or in a late run if a delete removed the end of the main run: a newer event must not get
    /// below a late run's event.
    pub(crate) fn watermark(&self) -> Option<Timestamp> {
        let late = self.late.iter().filter_map(|run| run.last());
        self.main_end().max(late.map(|l| l.last).max())
    }

    /// Blocks of one level, by bucket.
    pub(crate) fn blocks_of(&self, level: Level) -> &[BlockEntry] {
        let from = self.blocks.partition_point(|b| b.level < level);
        let to = self.blocks.partition_point(|b| b.level <= level);
        part_of(&self.blocks, from..to, "blocks of a level")
    }

    /// The leaf of the main run for an event of this time: the last one that starts at or before
    /// it, otherwise the first.
    pub(crate) fn owner(&self, time: Timestamp) -> usize {
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

    /// As [`StreamState::apply`], by value: the parts of a first change are not copied.
    pub(super) fn take(&mut self, mut delta: StreamDelta) {
        if self.main.is_empty() {
            // Nothing can be removed, or precede the added leaves.
            self.main = std::mem::take(&mut delta.added);
        }
        let last_row = delta.last_row.take();
        self.apply(&delta);
        if let Some(row) = last_row {
            self.last_row = Some(row).filter(|r| !r.is_empty());
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

/// Sums over the streams of a segment, and over its footers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) events: u64,
    /// Leaves of main runs.
    pub(crate) leaves: u64,
    pub(crate) late_runs: u64,
    /// Bytes of leaves and blocks that something refers to.
    pub(crate) live_bytes: u64,
    pub(crate) footer_bytes: u64,
}

impl Sums {
    /// The sums of one stream.
    pub(crate) fn of(state: &StreamState) -> Sums {
        Sums {
            events: state.rows(),
            leaves: state.main.len() as u64,
            late_runs: state.late.len() as u64,
            live_bytes: state.live_bytes(),
            footer_bytes: 0,
        }
    }

    /// The sums of a partition with `footer_bytes` bytes of footers, from its record.
    pub(super) fn of_record(record: &PartitionRecord, footer_bytes: u64) -> Sums {
        Sums {
            events: record.events,
            leaves: record.leaves,
            late_runs: record.late_runs,
            live_bytes: record.live_bytes.saturating_sub(footer_bytes),
            footer_bytes,
        }
    }

    /// Replaces the sums of a stream.
    pub(crate) fn replace(&mut self, old: Sums, new: Sums) {
        let replaced = |sum: u64, old: u64, new: u64| (sum + new).saturating_sub(old);
        self.events = replaced(self.events, old.events, new.events);
        self.leaves = replaced(self.leaves, old.leaves, new.leaves);
        self.late_runs = replaced(self.late_runs, old.late_runs, new.late_runs);
        self.live_bytes = replaced(self.live_bytes, old.live_bytes, new.live_bytes);
    }

    /// True when neither rows nor buckets are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.events == 0 && self.live_bytes == 0
    }

    /// True when all rows were removed and some buckets remain.
    pub(crate) fn is_aged(&self) -> bool {
        self.events == 0 && self.live_bytes > 0
    }
}

/// The complete contents of a segment, in memory: for repairs, which read whole segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fold {
    pub(crate) streams: BTreeMap<StreamId, StreamState>,
    /// The newest table definition written to the segment.
    pub(crate) table: Option<Table>,
    pub(crate) sums: Sums,
}

impl Fold {
    /// Adds one more group.
    pub(crate) fn apply(&mut self, footer: &Footer, footer_bytes: u64) {
        for delta in &footer.streams {
            let state = self.streams.entry(delta.stream).or_default();
            let before = Sums::of(state);
            state.apply(delta);
            self.sums.replace(before, Sums::of(state));
        }
        if let Some(table) = &footer.table {
            self.table = Some(table.clone());
        }
        self.sums.footer_bytes += footer_bytes + footer.checkpoint.bytes();
    }
}
