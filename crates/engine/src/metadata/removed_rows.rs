//! Rows that a retention removed while the log still has them.
//!
//! The retention cutoff of a table may go back, and the covers of the rows were removed with the
//! rows: without a record of the removal, rows in the log would reappear at the next opening, or in
//! a reader beside the owner.
//!
//! Invariants: the metadata get such a record in the commit that removes its rows, and memory loses
//! the same rows; the record is dropped when the log begins after it.

use crate::common::ids::{Sequence, ShardIndex, TableId};
use crate::metadata::catalog::Cutoff;
use headwater_types::Timestamp;
use parking_lot::Mutex;

/// Removed rows of a table in a shard: rows before an instant, of log records up to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovedMark {
    pub(crate) table: TableId,
    pub(crate) shard: ShardIndex,
    pub(crate) sequence: Sequence,
    pub(crate) before: Cutoff,
}

impl RemovedMark {
    pub(crate) fn removes(&self, time: Timestamp, sequence: Sequence) -> bool {
        sequence <= self.sequence && self.before.ends(time)
    }

    /// True when this record covers the other one.
    fn includes(&self, other: &RemovedMark) -> bool {
        (self.table, self.shard) == (other.table, other.shard)
            && self.sequence >= other.sequence
            && self.before >= other.before
    }
}

/// Records to add, and records to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemovedChange {
    pub(crate) new: Vec<RemovedMark>,
    pub(crate) removed: Vec<RemovedMark>,
}

#[derive(Debug, Default)]
pub(crate) struct Removed(Mutex<Vec<RemovedMark>>);

impl Removed {
    /// Loads the records from the metadata.
    pub(crate) fn of(saved: Vec<RemovedMark>) -> Removed {
        Removed(Mutex::new(saved))
    }

    /// The records of a table in a shard.
    pub(crate) fn of_table(&self, table: TableId, shard: ShardIndex) -> Vec<RemovedMark> {
        let all = self.0.lock();
        let own = all.iter().filter(|m| (m.table, m.shard) == (table, shard));
        own.copied().collect()
    }

    /// The change by a commit that adds `new`, when the log begins after `begins_behind`.
    pub(crate) fn change(&self, new: &[RemovedMark], begins_behind: Sequence) -> RemovedChange {
        let all = self.0.lock();
        let is_gone = |mark: &&RemovedMark| {
            mark.sequence <= begins_behind || new.iter().any(|m| m.includes(mark))
        };
        RemovedChange {
            new: new.to_vec(),
            removed: all.iter().filter(is_gone).copied().collect(),
        }
    }

    /// Applies a committed change.
    pub(crate) fn changed(&self, change: &RemovedChange) {
        let mut all = self.0.lock();
        all.retain(|mark| !change.removed.contains(mark));
        all.extend(change.new.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(before: i64, sequence: u64) -> RemovedMark {
        RemovedMark {
            table: TableId(1),
            shard: ShardIndex(0),
            sequence: Sequence(sequence),
            before: Cutoff::at(Timestamp::from_nanos(before)),
        }
    }

    #[test]
    fn a_mark_stays_until_the_log_begins_behind_it_or_another_says_more() {
        let removed = Removed::default();
        for new in [mark(10, 5), mark(7, 6), mark(20, 7)] {
            removed.changed(&removed.change(&[new], Sequence(0)));
        }
        let left = || removed.of_table(TableId(1), ShardIndex(0));
        assert_eq!(left(), [mark(20, 7)]);
        removed.changed(&removed.change(&[mark(5, 9)], Sequence(6)));
        assert_eq!(left(), [mark(20, 7), mark(5, 9)]);
        let ends = |time, sequence| {
            let time = Timestamp::from_nanos(time);
            left().iter().any(|m| m.removes(time, Sequence(sequence)))
        };
        assert!(ends(19, 7) && !ends(19, 8) && !ends(20, 7) && ends(4, 9));
        removed.changed(&removed.change(&[], Sequence(7)));
        assert_eq!(left(), [mark(5, 9)]);
        assert!(removed.of_table(TableId(2), ShardIndex(0)).is_empty());
    }
}
