//! The newest delete of each table, whether it has been carried out or not: older data may include
//! deleted rows, for a reader that does not know the deletes.
//!
//! Invariants: a sequence never decreases, and is in the metadata before the log may forget the
//! record.

use crate::common::ids::{Sequence, TableId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct NewestDeletes(Mutex<BTreeMap<TableId, Newest>>);

#[derive(Clone, Copy, Debug)]
struct Newest {
    sequence: Sequence,
    is_saved: bool,
}

impl NewestDeletes {
    /// Loads the entries of the metadata.
    pub(crate) fn load(&self, saved: Vec<(TableId, Sequence)>) {
        let saved = saved.into_iter().map(|(table, sequence)| {
            let newest = Newest {
                sequence,
                is_saved: true,
            };
            (table, newest)
        });
        self.0.lock().extend(saved);
    }

    /// Notes a delete that is in the log.
    pub(crate) fn note(&self, table: TableId, sequence: Sequence) {
        let mut all = self.0.lock();
        if all
            .get(&table)
            .is_none_or(|known| known.sequence < sequence)
        {
            let newest = Newest {
                sequence,
                is_saved: false,
            };
            all.insert(table, newest);
        }
    }

    pub(crate) fn all(&self) -> Vec<(TableId, Sequence)> {
        let all = self.0.lock();
        all.iter()
            .map(|(t, newest)| (*t, newest.sequence))
            .collect()
    }

    /// The entries that are not in the metadata yet.
    pub(crate) fn unsaved(&self) -> Vec<(TableId, Sequence)> {
        let all = self.0.lock();
        let unsaved = all.iter().filter(|(_, newest)| !newest.is_saved);
        unsaved.map(|(t, newest)| (*t, newest.sequence)).collect()
    }

    /// Marks these entries as saved in the metadata.
    pub(crate) fn saved(&self, these: &[(TableId, Sequence)]) {
        let mut all = self.0.lock();
        for (table, sequence) in these {
            if let Some(newest) = all.get_mut(table) {
                newest.is_saved |= newest.sequence == *sequence;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_kept_until_the_metadata_hold_it() {
        let deletes = NewestDeletes::default();
        let (a, b) = (TableId(1), TableId(2));
        deletes.load(vec![(a, Sequence(5))]);
        assert!(deletes.unsaved().is_empty());
        deletes.note(a, Sequence(4));
        deletes.note(b, Sequence(6));
        assert_eq!(deletes.unsaved(), [(b, Sequence(6))]);
        let unsaved = deletes.unsaved();
        deletes.note(b, Sequence(7));
        deletes.saved(&unsaved);
        assert_eq!(deletes.unsaved(), [(b, Sequence(7))]);
        deletes.saved(&deletes.unsaved());
        assert!(deletes.unsaved().is_empty());
        assert_eq!(deletes.all(), [(a, Sequence(5)), (b, Sequence(7))]);
    }
}
