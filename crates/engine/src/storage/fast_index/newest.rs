//! Which segments are the newest: those of the latest spans of time that have room together.
//!
//! Invariants: what is kept is a row of neighbours from the latest span back; none is kept while a
//! later one is not wanted.
//! Concurrency: under the lock of who asks. Failure: none.

use super::file::bytes_of;
use crate::common::ids::SegmentId;
use headwater_types::Timestamp;
use std::collections::BTreeSet;

/// What a file takes beside the segment's bytes, for the records of a few batches.
const FILE_EXTRA_BYTES: u64 = 4096;

/// The place of a segment among others: where its span ends.
pub(super) type Place = (Timestamp, SegmentId);

/// The segments by the ends of their spans.
#[derive(Debug, Default)]
pub(super) struct ByEnd {
    all: BTreeSet<Place>,
    /// Those that have a file.
    kept: BTreeSet<Place>,
}

impl ByEnd {
    pub(super) fn add(&mut self, place: Place) {
        self.all.insert(place);
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.all.remove(&place);
        self.kept.remove(&place);
    }

    pub(super) fn note_kept(&mut self, place: Place, is_kept: bool) {
        if is_kept {
            self.kept.insert(place);
        } else {
            self.kept.remove(&place);
        }
    }

    /// How many have a file.
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// The oldest place that is wanted: spans that end before `cut` are not, nor is what has no
    /// room beside those that are newer. `bytes` says what a segment takes; `None` = nothing is
    /// wanted.
    pub(super) fn oldest_wanted(
        &self,
        cut: Timestamp,
        room: u64,
        bytes: impl Fn(SegmentId) -> u64,
    ) -> Option<Place> {
        let mut taken = 0u64;
        let mut oldest = None;
        for place in self.all.iter().rev() {
            taken = taken.saturating_add(bytes(place.1));
            if place.0 < cut || taken > room {
                break;
            }
            oldest = Some(*place);
        }
        oldest
    }

    /// Those with a file that are older than the oldest that is wanted.
    pub(super) fn kept_before(&self, oldest: Option<Place>) -> Vec<SegmentId> {
        let old = self.kept.iter();
        let old = old.take_while(|place| oldest.is_none_or(|oldest| **place < oldest));
        old.map(|(_, id)| *id).collect()
    }
}

/// What the file of a segment takes that ends here.
pub(super) fn file_bytes(end: u64) -> u64 {
    bytes_of(&[(0, end)]).saturating_add(FILE_EXTRA_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_have_room_are_wanted_and_none_behind_a_gap() {
        let mut all = ByEnd::default();
        let place = |end, id| (Timestamp::from_nanos(end), SegmentId(id));
        for (end, id) in [(10, 1), (20, 2), (20, 3), (30, 4)] {
            all.add(place(end, id));
        }
        let oldest = |cut, room| {
            // One in the middle is large.
            all.oldest_wanted(Timestamp::from_nanos(cut), room, |id| {
                if id.0 == 2 { 100 } else { 10 }
            })
            .map(|(_, id)| id.0)
        };
        assert_eq!(oldest(i64::MIN, 9), None);
        assert_eq!(oldest(i64::MIN, 10), Some(4));
        assert_eq!(oldest(i64::MIN, 119), Some(3));
        assert_eq!(oldest(i64::MIN, 120), Some(2));
        assert_eq!(oldest(i64::MIN, 130), Some(1));
        assert_eq!(oldest(20, 130), Some(2));
        assert_eq!(oldest(31, 130), None);
        for (end, id) in [(10, 1), (20, 2), (30, 4)] {
            all.note_kept(place(end, id), true);
        }
        let ids = |oldest| all.kept_before(oldest).len();
        assert_eq!(ids(None), 3);
        assert_eq!(ids(Some(place(20, 3))), 2);
        assert_eq!(ids(Some(place(10, 1))), 0);
        all.note_kept(place(30, 4), false);
        all.remove(place(10, 1));
        assert_eq!(all.kept_before(None), [SegmentId(2)]);
    }
}
