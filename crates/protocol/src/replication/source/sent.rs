//! Ranges that were sent since the start, of what was written since then: a copy that confirms to
//! have more than that is mistaken, or lies.
//!
//! Invariants: what was written before the start may have been sent by an earlier process, and is
//! not known here. Concurrency: plain data. Failure: none.

use headwater_engine::State;
use headwater_types::ByteRange;
use headwater_types::byte_range::joined;
use std::collections::{BTreeMap, BTreeSet};

/// Sent ranges by segment.
#[derive(Debug, Default)]
pub(super) struct SentRanges {
    /// Committed bytes of each segment at the start; `None` = nothing is recorded.
    before: Option<BTreeMap<u64, u64>>,
    /// Number of the state that was taken last.
    number: u64,
    /// Sorted, disjoint ranges.
    sent: BTreeMap<u64, Vec<ByteRange>>,
}

impl SentRanges {
    /// Records from now on what is sent of a database that has this state.
    pub(super) fn begin(&mut self, state: &State) {
        let segments = state.segments().map(|s| (s.id, s.bytes));
        self.before.get_or_insert_with(|| segments.collect());
    }

    /// Forgets segments that are gone in the newest state.
    pub(super) fn keep(&mut self, state: &State) {
        let number = state.name().number;
        let Some(before) = &mut self.before else {
            return;
        };
        if std::mem::replace(&mut self.number, number) != number {
            let segments: BTreeSet<u64> = state.segments().map(|s| s.id).collect();
            self.sent.retain(|id, _| segments.contains(id));
            before.retain(|id, _| segments.contains(id));
        }
    }

    /// Records a range that is sent.
    pub(super) fn add(&mut self, segment: u64, range: ByteRange) {
        if self.before.is_some() {
            let ranges = self.sent.entry(segment).or_default();
            ranges.push(range);
            *ranges = joined(std::mem::take(ranges));
        }
    }

    /// True if a copy may have all of a segment of this length.
    pub(super) fn may_be_whole(&self, segment: u64, bytes: u64) -> bool {
        let Some(before) = &self.before else {
            return true;
        };
        let mut from = before.get(&segment).copied().unwrap_or(0);
        for range in self.sent.get(&segment).into_iter().flatten() {
            if range.start() <= from {
                from = from.max(range.end());
            }
        }
        from >= bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_may_be_whole_once_what_was_written_since_the_start_was_sent() {
        let mut all = SentRanges::default();
        assert!(all.may_be_whole(1, 10), "nothing is recorded");
        all.before = Some(BTreeMap::from([(1, 100)]));
        assert!(all.may_be_whole(1, 100) && !all.may_be_whole(1, 101));
        assert!(!all.may_be_whole(2, 50));
        for (start, end) in [(30, 50), (0, 10), (10, 20)] {
            all.add(2, ByteRange::new(start, end));
            assert!(!all.may_be_whole(2, 50));
        }
        all.add(2, ByteRange::new(15, 35));
        assert!(all.may_be_whole(2, 50) && !all.may_be_whole(2, 51));
        all.add(1, ByteRange::new(110, 130));
        assert!(!all.may_be_whole(1, 130));
        all.add(1, ByteRange::new(90, 110));
        assert!(all.may_be_whole(1, 130));
    }
}
