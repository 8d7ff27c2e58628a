//! Ranges that readers of a copy missed, by the reader on whose behalf they were read.
//!
//! Invariants: a range is recorded for the reader that missed it, and for no other: whoever pays
//! for fetching pays for its own reads. Their number is bounded, and so is the number of readers;
//! those that came first are dropped first. Concurrency: one lock, held for a lookup. The reader is
//! a property of the thread.

use crate::storage::segment::MissedRange;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Maximum ranges of a reader that are remembered until they are taken; later ones are dropped, and
/// recorded at a later read.
const RANGES_MAX: usize = 1_024;
/// Maximum readers with ranges that were not taken.
const READERS_MAX: usize = 256;

thread_local! {
    /// 0 = reads that are not on behalf of a reader.
    static READER: Cell<u64> = const { Cell::new(0) };
}

/// Sets the reader of before when it is dropped.
struct Restore(u64);

impl Drop for Restore {
    fn drop(&mut self) {
        READER.set(self.0);
    }
}

/// Runs reads of this thread on behalf of a reader: the ranges of copies that they miss are
/// recorded for it, and [`crate::RemoteCopy::take_missed_of`] returns them. Numbers of readers are
/// chosen by the caller, above 0 and growing.
pub fn reading_for<T>(reader: u64, call: impl FnOnce() -> T) -> T {
    let _before = Restore(READER.replace(reader));
    call()
}

/// Ranges that readers missed, each reader's in the order of its reads.
#[derive(Debug, Default)]
pub(super) struct MissedRanges(Mutex<BTreeMap<u64, Vec<MissedRange>>>);

impl MissedRanges {
    /// True when reads of this thread are on behalf of a reader.
    pub(super) fn has_reader() -> bool {
        READER.get() != 0
    }

    /// Records a range for the reader of this thread.
    pub(super) fn put(&self, missed: MissedRange) {
        let mut all = self.0.lock();
        let ranges = all.entry(READER.get()).or_default();
        if ranges.len() < RANGES_MAX && !ranges.contains(&missed) {
            ranges.push(missed);
        }
        if all.len() > READERS_MAX {
            // Requests that ended early do not take their ranges.
            let first = all.keys().copied().find(|reader| *reader != 0);
            first.map(|reader| all.remove(&reader));
        }
    }

    /// Takes the ranges of a reader.
    pub(super) fn take(&self, reader: u64) -> Vec<MissedRange> {
        self.0.lock().remove(&reader).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests")]
    use super::*;

    fn range(offset: u64) -> MissedRange {
        MissedRange {
            segment: 1,
            offset,
            bytes: 10,
        }
    }

    #[test]
    fn a_range_is_recorded_for_the_reader_that_missed_it() {
        let missed = MissedRanges::default();
        missed.put(range(0));
        reading_for(7, || {
            missed.put(range(10));
            reading_for(8, || missed.put(range(20)));
            missed.put(range(30));
            missed.put(range(10));
        });
        missed.put(range(40));
        assert_eq!(missed.take(7), [range(10), range(30)]);
        assert_eq!(missed.take(7), []);
        assert_eq!(missed.take(8), [range(20)]);
        assert_eq!(missed.take(0), [range(0), range(40)]);
        let panicked = std::panic::catch_unwind(|| reading_for(9, || panic!("a read failed")));
        assert!(panicked.is_err() && READER.get() == 0);
    }

    #[test]
    fn readers_that_never_come_back_are_dropped() {
        let missed = MissedRanges::default();
        missed.put(range(0));
        for reader in 1..=1_000 {
            reading_for(reader, || missed.put(range(reader)));
        }
        assert_eq!(missed.0.lock().len(), READERS_MAX);
        assert_eq!(missed.take(0), [range(0)]);
        assert_eq!(missed.take(1_000), [range(1_000)]);
        assert_eq!(missed.take(1), []);
        for at in 0..2_000 {
            reading_for(2_000, || missed.put(range(at)));
        }
        assert_eq!(missed.take(2_000).len(), RANGES_MAX);
    }
}
