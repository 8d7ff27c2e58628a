//! Deletes that are retained although they were carried out: for copies of the database that have
//! not confirmed them, and for named snapshots that are older.

use super::{Meta, STATE, table_of};
use crate::common::ids::Sequence;
use crate::{Error, Result};
use redb::{ReadableTable, TableDefinition};

/// Consumers for which deletes are retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetainedFor {
    /// Copies of the database elsewhere.
    Copies,
    /// Named snapshots, by their numbers.
    Snapshots,
}

type Deletes = TableDefinition<'static, u64, &'static [u8]>;
type Confirmed = TableDefinition<'static, &'static str, u64>;

impl RetainedFor {
    /// By sequence: the record of a delete. Missing until there was a consumer.
    fn deletes(self) -> Deletes {
        TableDefinition::new(match self {
            RetainedFor::Copies => "ends",
            RetainedFor::Snapshots => "snapshot_deletes",
        })
    }

    /// By name of the consumer: the number up to which it has all deletes. Missing until there was
    /// a consumer.
    fn confirmed(self) -> Confirmed {
        TableDefinition::new(match self {
            RetainedFor::Copies => "copies",
            RetainedFor::Snapshots => "snapshots_know",
        })
    }

    /// Key in the state of the number up to which deletes may be missing.
    fn from(self) -> &'static str {
        match self {
            RetainedFor::Copies => "ends_from",
            RetainedFor::Snapshots => "snapshot_deletes_from",
        }
    }
}

/// Entries of the metadata for copies.
#[derive(Debug, Default)]
pub(crate) struct SavedEnds {
    pub(crate) from: Sequence,
    pub(crate) copies: Vec<(String, Sequence)>,
    /// Records of deletes.
    pub(crate) deletes: Vec<(Sequence, Vec<u8>)>,
}

/// Changes that are not in the metadata yet.
#[derive(Debug, Default)]
pub(crate) struct EndsChange {
    pub(crate) from: Sequence,
    pub(crate) copies: Vec<(String, Sequence)>,
    pub(crate) new: Vec<(Sequence, Vec<u8>)>,
    pub(crate) obsolete: Vec<Sequence>,
    /// True when there is something to write.
    pub(crate) is_due: bool,
}

impl EndsChange {
    /// The complete change, written even if only the consumers have changed.
    pub(crate) fn forced(self) -> EndsChange {
        EndsChange {
            is_due: true,
            ..self
        }
    }
}

impl Meta {
    /// The deletes retained for these consumers.
    pub(crate) fn ends(&self, kept_for: RetainedFor) -> Result<SavedEnds> {
        let mut saved = SavedEnds {
            from: Sequence(self.state(kept_for.from())?.unwrap_or(0)),
            ..SavedEnds::default()
        };
        let Some(transaction) = self.begin_read()? else {
            return Ok(saved);
        };
        let Some(copies) = table_of(&transaction, kept_for.confirmed())? else {
            return Ok(saved);
        };
        for entry in copies.iter().map_err(Error::meta)? {
            let (name, sequence) = entry.map_err(Error::meta)?;
            let copy = (name.value().to_owned(), Sequence(sequence.value()));
            saved.copies.push(copy);
        }
        let table = transaction
            .open_table(kept_for.deletes())
            .map_err(Error::meta)?;
        for entry in table.iter().map_err(Error::meta)? {
            let (sequence, record) = entry.map_err(Error::meta)?;
            let delete = (Sequence(sequence.value()), record.value().to_vec());
            saved.deletes.push(delete);
        }
        Ok(saved)
    }

    /// Writes the changes of deletes retained for copies, in a separate transaction.
    pub(crate) fn put_ends(&self, change: &EndsChange) -> Result<()> {
        let transaction = self.begin_write()?;
        self.commit_ends(&transaction, change, RetainedFor::Copies)?;
        transaction.commit().map_err(Error::meta)
    }

    pub(super) fn commit_ends(
        &self,
        transaction: &redb::WriteTransaction,
        change: &EndsChange,
        kept_for: RetainedFor,
    ) -> Result<()> {
        if !change.is_due {
            return Ok(());
        }
        let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
        state
            .insert(kept_for.from(), change.from.0)
            .map_err(Error::meta)?;
        let mut copies = transaction
            .open_table(kept_for.confirmed())
            .map_err(Error::meta)?;
        copies.retain(|_, _| false).map_err(Error::meta)?;
        for (name, sequence) in &change.copies {
            copies
                .insert(name.as_str(), sequence.0)
                .map_err(Error::meta)?;
        }
        let mut ends = transaction
            .open_table(kept_for.deletes())
            .map_err(Error::meta)?;
        for sequence in &change.obsolete {
            ends.remove(sequence.0).map_err(Error::meta)?;
        }
        for (sequence, record) in &change.new {
            ends.insert(sequence.0, record.as_slice())
                .map_err(Error::meta)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_io::{Env, OpenMode};
    use std::path::Path;

    #[test]
    fn what_copies_have_not_confirmed_is_there_at_the_next_opening() {
        let files = Env::memory().files;
        let path = Path::new("/meta.redb");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, file, 1, 7).unwrap();
        let saved = meta.ends(RetainedFor::Copies).unwrap();
        assert!(saved.copies.is_empty() && saved.deletes.is_empty());
        let first = EndsChange {
            from: Sequence(4),
            copies: vec![("cloud".into(), Sequence(4)), ("other".into(), Sequence(9))],
            new: vec![(Sequence(8), b"a".to_vec()), (Sequence(12), b"b".to_vec())],
            obsolete: Vec::new(),
            is_due: true,
        };
        meta.put_ends(&first).unwrap();
        let second = EndsChange {
            from: Sequence(10),
            copies: vec![("cloud".into(), Sequence(10))],
            new: Vec::new(),
            obsolete: vec![Sequence(8)],
            is_due: true,
        };
        meta.put_ends(&second).unwrap();
        let saved = meta.ends(RetainedFor::Copies).unwrap();
        assert_eq!(saved.from, Sequence(10));
        assert_eq!(saved.copies, [("cloud".to_owned(), Sequence(10))]);
        assert_eq!(saved.deletes, [(Sequence(12), b"b".to_vec())]);
    }
}
