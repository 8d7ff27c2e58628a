//! Deletes that copies of the database have not confirmed yet: a copy that retains data removed
//! here applies them to that data, too. Deletes newer than named snapshots, which never confirm a
//! delete, are retained in the same way.
//!
//! Invariants: while there is a copy, every delete with a number above `from` is retained, carried
//! out or not, and is in the metadata before the log may forget its record. A delete is dropped
//! when all copies have confirmed a state that includes it, or when there are too many: then `from`
//! is raised. Concurrency: one lock; no other is taken under it.

use crate::common::ids::{Sequence, TableId};
use crate::metadata::tables::{EndsChange, SavedEnds};
use crate::storage::tombstone::DeleteRecord;
use headwater_codec::{Cursor, DecodeError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum copies of a database.
const COPIES_MAX: usize = 64;
/// Maximum of deletes that are retained for copies, and of their bytes.
const DELETES_MAX: usize = 10_000;
const BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By name: the number up to which the copy knows all deletes.
    copies: BTreeMap<String, Sequence>,
    from: Sequence,
    deletes: BTreeMap<Sequence, RetainedDelete>,
    /// Still in the metadata, but not needed any more.
    obsolete: BTreeSet<Sequence>,
    bytes: usize,
}

#[derive(Debug)]
struct RetainedDelete {
    record: DeleteRecord,
    bytes: usize,
    is_saved: bool,
}

impl Inner {
    fn newest(&self) -> Sequence {
        let newest = self.deletes.last_key_value();
        newest.map_or(self.from, |(sequence, _)| self.from.max(*sequence))
    }

    /// Forgets deletes up to a number.
    fn forget_to(&mut self, to: Sequence) {
        while let Some(first) = self.deletes.first_entry()
            && *first.key() <= to
        {
            let (sequence, kept) = first.remove_entry();
            self.bytes -= kept.bytes;
            if kept.is_saved {
                self.obsolete.insert(sequence);
            }
        }
        self.from = self.from.max(to);
    }

    fn change(&self, is_due: bool) -> EndsChange {
        let new = self.deletes.iter().filter(|(_, kept)| !kept.is_saved);
        let new: Vec<_> = new.map(|(s, kept)| (*s, kept.record.encode())).collect();
        EndsChange {
            from: self.from,
            copies: self.copies.iter().map(|(n, s)| (n.clone(), *s)).collect(),
            is_due: is_due || !new.is_empty() || !self.obsolete.is_empty(),
            obsolete: self.obsolete.iter().copied().collect(),
            new,
        }
    }
}

impl Ends {
    /// Loads the entries of the metadata, of a database whose newest delete has this number.
    ///
    /// # Errors
    /// A record that cannot be decoded.
    pub(crate) fn load(&self, saved: SavedEnds, newest: Sequence) -> Result<(), DecodeError> {
        let mut inner = self.0.lock();
        // Without copies no delete was retained.
        inner.from = match saved.copies.is_empty() {
            true => newest,
            false => saved.from,
        };
        inner.copies = saved.copies.into_iter().collect();
        for (sequence, record) in saved.deletes {
            let kept = RetainedDelete {
                record: DeleteRecord::decode(&mut Cursor::new(&record))?,
                bytes: record.len(),
                is_saved: true,
            };
            inner.bytes += kept.bytes;
            inner.deletes.insert(sequence, kept);
        }
        Ok(())
    }

    /// Notes a delete that is in the log.
    pub(crate) fn note(&self, sequence: Sequence, record: &DeleteRecord) {
        let mut inner = self.0.lock();
        if inner.copies.is_empty() {
            inner.from = inner.from.max(sequence);
            return;
        }
        if sequence <= inner.from || inner.deletes.contains_key(&sequence) {
            return;
        }
        let bytes = record.encode().len();
        inner.bytes += bytes;
        let kept = RetainedDelete {
            record: record.clone(),
            bytes,
            is_saved: false,
        };
        inner.deletes.insert(sequence, kept);
        while inner.deletes.len() > DELETES_MAX || inner.bytes > BYTES_MAX {
            let oldest = inner.deletes.first_key_value().map(|(s, _)| *s);
            inner.forget_to(oldest.unwrap_or(sequence));
        }
    }

    /// Adds a copy of this name, which knows all deletes so far. `None` when it exists, otherwise
    /// the change that must be in the metadata before the copy receives any data; an error when
    /// there are too many.
    pub(crate) fn add_copy(&self, name: &str) -> Result<Option<EndsChange>, usize> {
        let mut inner = self.0.lock();
        if inner.copies.contains_key(name) {
            return Ok(None);
        }
        if inner.copies.len() >= COPIES_MAX {
            return Err(COPIES_MAX);
        }
        let newest = inner.newest();
        inner.copies.insert(name.to_owned(), newest);
        Ok(Some(inner.change(true)))
    }

    /// Removes a copy that no longer exists. Returns the change for the metadata; `None` when there
    /// was no such copy.
    pub(crate) fn remove_copy(&self, name: &str) -> Option<EndsChange> {
        let mut inner = self.0.lock();
        inner.copies.remove(name)?;
        let known = inner.copies.values().min().copied();
        let to = known.unwrap_or_else(|| inner.newest());
        inner.forget_to(to);
        Some(inner.change(true))
    }

    /// Records that a copy knows deletes up to this number.
    pub(crate) fn confirm(&self, name: &str, sequence: Sequence) {
        let mut inner = self.0.lock();
        let newest = inner.newest();
        if let Some(known) = inner.copies.get_mut(name) {
            *known = sequence.min(newest).max(*known);
        }
        if let Some(to) = inner.copies.values().min().copied() {
            inner.forget_to(to);
        }
    }

    /// Retained deletes up to a record of the log: all those above the first number.
    pub(crate) fn up_to(
        &self,
        sequence: Sequence,
        is_meant: &dyn Fn(TableId) -> bool,
    ) -> (Sequence, Vec<(Sequence, DeleteRecord)>) {
        let inner = self.0.lock();
        let deletes = inner.deletes.range(..=sequence);
        let meant = deletes.filter(|(_, kept)| is_meant(kept.record.table));
        let deletes = meant.map(|(s, kept)| (*s, kept.record.clone())).collect();
        (inner.from.min(sequence), deletes)
    }

    /// The number of the newest delete, and the number up to which deletes may be missing.
    pub(crate) fn newest_and_from(&self) -> (Sequence, Sequence) {
        let inner = self.0.lock();
        (inner.newest(), inner.from)
    }

    /// Names of copies or snapshots with retained deletes that `is_meant` does not accept.
    pub(crate) fn others(&self, is_meant: &dyn Fn(&str) -> bool) -> Vec<String> {
        let inner = self.0.lock();
        let others = inner.copies.keys().filter(|name| !is_meant(name));
        others.cloned().collect()
    }

    /// The changes that are not in the metadata yet.
    pub(crate) fn unsaved(&self) -> EndsChange {
        self.0.lock().change(false)
    }

    /// Marks the change as saved in the metadata.
    pub(crate) fn saved(&self, change: &EndsChange) {
        let mut inner = self.0.lock();
        for (sequence, _) in &change.new {
            match inner.deletes.get_mut(sequence) {
                Some(kept) => kept.is_saved = true,
                // It was confirmed meanwhile.
                None => drop(inner.obsolete.insert(*sequence)),
            }
        }
        for sequence in &change.obsolete {
            inner.obsolete.remove(sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::ClosedRange;

    fn delete(table: u32) -> DeleteRecord {
        DeleteRecord {
            table: TableId(table),
            streams: None,
            range: ClosedRange::ALL,
            drops_streams: false,
        }
    }

    fn retained(ends: &Ends) -> (u64, Vec<u64>) {
        let (from, deletes) = ends.up_to(Sequence(u64::MAX), &|_| true);
        (from.0, deletes.iter().map(|(s, _)| s.0).collect())
    }

    #[test]
    fn a_delete_stays_until_every_copy_has_confirmed_it() {
        let ends = Ends::default();
        ends.note(Sequence(3), &delete(1));
        assert_eq!(retained(&ends), (3, vec![]), "nobody has to be told");
        assert!(ends.add_copy("a").unwrap().is_some_and(|c| c.is_due));
        assert!(ends.add_copy("a").unwrap().is_none());
        ends.note(Sequence(5), &delete(1));
        ends.add_copy("b").unwrap();
        ends.note(Sequence(7), &delete(2));
        ends.note(Sequence(7), &delete(2));
        assert_eq!(retained(&ends), (3, vec![5, 7]));
        assert_eq!(ends.up_to(Sequence(6), &|_| true).1.len(), 1);
        assert_eq!(ends.up_to(Sequence(9), &|t| t.0 == 2).1.len(), 1);
        let change = ends.unsaved();
        assert!(change.is_due && change.new.len() == 2);
        ends.confirm("a", Sequence(100));
        assert_eq!(retained(&ends), (5, vec![7]));
        // One was confirmed while the change was being written.
        ends.saved(&change);
        assert_eq!(ends.unsaved().obsolete, [Sequence(5)]);
        ends.saved(&ends.unsaved());
        assert!(!ends.unsaved().is_due);
        ends.confirm("b", Sequence(6));
        assert!(!ends.unsaved().is_due, "nothing is written for that alone");
        ends.confirm("nobody", Sequence(90));
        assert_eq!(retained(&ends), (6, vec![7]));
        assert!(ends.remove_copy("b").is_some_and(|c| c.is_due));
        assert_eq!(retained(&ends), (7, vec![]), "a has confirmed it");
        assert!(ends.remove_copy("b").is_none());
    }

    #[test]
    fn more_deletes_than_may_be_are_told_of_as_unknown() {
        let ends = Ends::default();
        ends.add_copy("a").unwrap();
        let most = u64::try_from(DELETES_MAX).unwrap();
        for sequence in 1..=most + 2 {
            ends.note(Sequence(sequence), &delete(0));
        }
        let (from, deletes) = retained(&ends);
        assert_eq!((from, deletes.len()), (2, DELETES_MAX));
    }

    #[test]
    fn what_the_metadata_hold_comes_back() {
        let ends = Ends::default();
        let saved = SavedEnds {
            from: Sequence(4),
            copies: vec![("a".into(), Sequence(4))],
            deletes: vec![(Sequence(6), delete(1).encode())],
        };
        ends.load(saved, Sequence(6)).unwrap();
        // The log repeats it.
        ends.note(Sequence(6), &delete(1));
        ends.note(Sequence(3), &delete(1));
        assert_eq!(retained(&ends), (4, vec![6]));
        assert!(!ends.unsaved().is_due);
        let nobody = Ends::default();
        nobody.load(SavedEnds::default(), Sequence(6)).unwrap();
        assert_eq!(retained(&nobody), (6, vec![]));
    }
}
