//! Chooses the newest segments: the segments of the latest spans of time that fit together.
//!
//! Invariants: the segments with files are consecutive, from the latest span back; no segment has a
//! file while a later one should not have one. Concurrency: under the lock of the caller. Failure:
//! none.

use super::file::bytes_of;
use crate::common::ids::SegmentId;
use headwater_types::{ByteRange, Timestamp};
use std::collections::BTreeSet;

/// Bytes of a file in addition to the segment's bytes, for the records of a few batches.
const FILE_EXTRA_BYTES: u64 = 4096;

/// The position of a segment in the order of segments: the end of its span, and its number.
pub(super) type SegmentPosition = (Timestamp, SegmentId);

/// The segments by the ends of their spans.
#[derive(Debug, Default)]
pub(super) struct ByEnd {
    all: BTreeSet<SegmentPosition>,
    /// Segments that have a file.
    with_file: BTreeSet<SegmentPosition>,
}

impl ByEnd {
    pub(super) fn add(&mut self, position: SegmentPosition) {
        self.all.insert(position);
    }

    pub(super) fn remove(&mut self, position: SegmentPosition) {
        self.all.remove(&position);
        self.with_file.remove(&position);
    }

    pub(super) fn note_file(&mut self, position: SegmentPosition, has_file: bool) {
        if has_file {
            self.with_file.insert(position);
        } else {
            self.with_file.remove(&position);
        }
    }

    /// The number of segments that have a file.
    pub(super) fn file_count(&self) -> usize {
        self.with_file.len()
    }

    /// The oldest position that should have a file: excluded are spans that end before `cut`, and
    /// segments that do not fit beside newer ones. `bytes` returns the size of a segment's file;
    /// `None` = no segment should have a file.
    pub(super) fn oldest_with_file(
        &self,
        cut: Timestamp,
        room: u64,
        bytes: impl Fn(SegmentId) -> u64,
    ) -> Option<SegmentPosition> {
        let mut taken = 0u64;
        let mut oldest = None;
        for position in self.all.iter().rev() {
            taken = taken.saturating_add(bytes(position.1));
            if position.0 < cut || taken > room {
                break;
            }
            oldest = Some(*position);
        }
        oldest
    }

    /// Segments with a file that are older than `oldest`.
    pub(super) fn with_file_before(&self, oldest: Option<SegmentPosition>) -> Vec<SegmentId> {
        let old = self.with_file.iter();
        let old = old.take_while(|position| oldest.is_none_or(|oldest| **position < oldest));
        old.map(|(_, id)| *id).collect()
    }
}

/// Bytes of the file of a segment that ends at `end`.
pub(super) fn file_bytes(end: u64) -> u64 {
    bytes_of(&[ByteRange::new(0, end)]).saturating_add(FILE_EXTRA_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_have_room_are_wanted_and_none_behind_a_gap() {
        let mut all = ByEnd::default();
        let position = |end, id| (Timestamp::from_nanos(end), SegmentId(id));
        for (end, id) in [(10, 1), (20, 2), (20, 3), (30, 4)] {
            all.add(position(end, id));
        }
        let oldest = |cut, room| {
            // A segment in the middle is large.
            all.oldest_with_file(Timestamp::from_nanos(cut), room, |id| {
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
            all.note_file(position(end, id), true);
        }
        let ids = |oldest| all.with_file_before(oldest).len();
        assert_eq!(ids(None), 3);
        assert_eq!(ids(Some(position(20, 3))), 2);
        assert_eq!(ids(Some(position(10, 1))), 0);
        all.note_file(position(30, 4), false);
        all.remove(position(10, 1));
        assert_eq!(all.with_file_before(None), [SegmentId(2)]);
    }
}
