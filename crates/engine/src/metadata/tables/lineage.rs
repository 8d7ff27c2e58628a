//! Names of the states of a database: its incarnation, its openings, the number of the state; and
//! the contents of a state, read at one instant.
//!
//! Invariants: every transaction that changes the content of a state increments the number by one.
//! Each process that does so draws a number that no other process has, its *opening*, in the first
//! of these transactions: so a state is named by its opening and its number, and two databases that
//! continued from the same copy of the files never give two states the same name. A database that
//! is made from a backup, or repaired, is another incarnation from its next transaction on.
//! Concurrency: redb's own.

use super::hashes::hashes_at;
use super::{Backing, Meta, PARTITIONS, STATE, STREAMS};
use crate::common::ids::{SegmentId, Sequence, TableId};
use crate::metadata::ledger::GroupHashes;
use crate::metadata::tables::PartitionRecord;
use crate::{Error, Result};
use headwater_io::Chance;
use parking_lot::Mutex;
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::sync::Arc;

/// By the number of the first state of each opening: a random number.
const OPENINGS: TableDefinition<'_, u64, u64> = TableDefinition::new("openings");
/// The sequence of the newest delete of each table.
const DELETES: TableDefinition<'_, u32, u64> = TableDefinition::new("deletes");
const STATE_NUMBER: &str = "state_number";
const INCARNATION: &str = "incarnation";
/// Maximum openings remembered: a copy whose openings are all missing has another history.
const OPENINGS_MAX: u64 = 4096;

/// Names for the states that a transaction makes.
#[derive(Debug, Default)]
pub(super) struct StateNames {
    /// `None`: the number increases, and no opening is begun.
    chance: Option<Arc<dyn Chance>>,
    /// The next transaction begins another incarnation.
    renews: bool,
    /// True when the opening is in the metadata.
    has_opened: Mutex<bool>,
}

impl StateNames {
    pub(super) fn by(chance: Arc<dyn Chance>, renews: bool) -> StateNames {
        StateNames {
            chance: Some(chance),
            renews,
            has_opened: Mutex::new(false),
        }
    }

    pub(super) fn renews(&self) -> bool {
        self.renews
    }
}

/// The history of a database, without forgotten openings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    pub(crate) identity: u64,
    /// 0 = no state has been named yet.
    pub(crate) incarnation: u64,
    /// Number of the newest state.
    pub(crate) number: u64,
    /// The number of the first state of each opening, sorted ascending, and its random number.
    pub(crate) openings: Vec<(u64, u64)>,
}

impl Lineage {
    /// The opening of the newest state; 0 without one.
    pub(crate) fn opening(&self) -> u64 {
        self.openings.last().map_or(0, |(_, opening)| *opening)
    }

    /// True when the database is or was in the state of this opening and number.
    pub(crate) fn contains(&self, opening: u64, number: u64) -> bool {
        let mut openings = self.openings.iter();
        let Some((first, _)) = openings.find(|(_, known)| *known == opening) else {
            return false;
        };
        let end = openings.next().map_or(self.number + 1, |(next, _)| *next);
        (*first..end).contains(&number)
    }
}

/// Contents of the metadata at one instant.
pub(crate) struct NamedState {
    transaction: redb::ReadTransaction,
    pub(crate) lineage: Lineage,
    pub(crate) shards: u16,
    /// Stored records of streams, sorted by number.
    pub(crate) streams: Vec<Box<[u8]>>,
    /// Sorted by number.
    pub(crate) partitions: Vec<(SegmentId, PartitionRecord)>,
}

fn read_number(state: &impl ReadableTable<&'static str, u64>, key: &str) -> Result<u64> {
    let number = state.get(key).map_err(Error::meta)?;
    Ok(number.map_or(0, |v| v.value()))
}

/// A random number that is not 0.
fn some_number(chance: &dyn Chance) -> u64 {
    chance.next_u64().max(1)
}

fn lineage(transaction: &redb::ReadTransaction) -> Result<Lineage> {
    let state = transaction.open_table(STATE).map_err(Error::meta)?;
    let mut lineage = Lineage {
        identity: read_number(&state, "identity")?,
        incarnation: read_number(&state, INCARNATION)?,
        number: read_number(&state, STATE_NUMBER)?,
        openings: Vec::new(),
    };
    match transaction.open_table(OPENINGS) {
        Ok(table) => {
            for entry in table.iter().map_err(Error::meta)? {
                let (first, opening) = entry.map_err(Error::meta)?;
                lineage.openings.push((first.value(), opening.value()));
            }
        }
        Err(redb::TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(Error::meta(error)),
    }
    Ok(lineage)
}

impl Meta {
    /// The metadata; their next transaction begins another incarnation.
    pub(crate) fn renewing(self, chance: &Arc<dyn Chance>) -> Meta {
        Meta {
            naming: StateNames::by(Arc::clone(chance), true),
            ..self
        }
    }

    /// Names the state that a transaction makes.
    pub(super) fn name_state(&self, transaction: &redb::WriteTransaction) -> Result<()> {
        let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
        let number = read_number(&state, STATE_NUMBER)?.saturating_add(1);
        state.insert(STATE_NUMBER, number).map_err(Error::meta)?;
        let Some(chance) = &self.naming.chance else {
            return Ok(());
        };
        let mut openings = transaction.open_table(OPENINGS).map_err(Error::meta)?;
        let mut has_opened = self.naming.has_opened.lock();
        if read_number(&state, INCARNATION)? == 0 || (self.naming.renews && !*has_opened) {
            state
                .insert(INCARNATION, some_number(&**chance))
                .map_err(Error::meta)?;
            openings.retain(|_, _| false).map_err(Error::meta)?;
        }
        if !*has_opened {
            openings
                .insert(number, some_number(&**chance))
                .map_err(Error::meta)?;
            while openings.len().map_err(Error::meta)? > OPENINGS_MAX {
                openings.pop_first().map_err(Error::meta)?;
            }
            *has_opened = true;
        }
        Ok(())
    }

    /// Names the present state, if no state has been named yet.
    pub(crate) fn begin_lineage(&self) -> Result<()> {
        let transaction = self.begin_write()?;
        let is_named = {
            let state = transaction.open_table(STATE).map_err(Error::meta)?;
            read_number(&state, INCARNATION)? != 0
        };
        if is_named {
            return transaction.abort().map_err(Error::meta);
        }
        self.name_state(&transaction)?;
        transaction.commit().map_err(Error::meta)
    }

    /// True when a state of this opening has a name.
    pub(crate) fn has_named_opening(&self) -> bool {
        self.naming.chance.is_none() || *self.naming.has_opened.lock()
    }

    /// Names the present state as one of this opening, if no state has been named by it yet; true
    /// if it did. Definitions that are only in the log change no number: without this, two
    /// databases that continue from one copy of the files would give different definitions one
    /// name.
    pub(crate) fn begin_opening(&self) -> Result<bool> {
        if self.has_named_opening() {
            return Ok(false);
        }
        let transaction = self.begin_write()?;
        self.name_state(&transaction)?;
        transaction.commit().map_err(Error::meta)?;
        Ok(true)
    }

    /// Begins another incarnation with the next state, which this call makes.
    pub(crate) fn begin_incarnation(&self) -> Result<()> {
        let transaction = self.begin_write()?;
        {
            let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
            state.insert(INCARNATION, 0).map_err(Error::meta)?;
        }
        *self.naming.has_opened.lock() = false;
        self.name_state(&transaction)?;
        transaction.commit().map_err(Error::meta)
    }

    /// The history of the database.
    pub(crate) fn lineage(&self) -> Result<Lineage> {
        match &self.backing {
            Backing::Stored(db) => lineage(&db.begin_read().map_err(Error::meta)?),
            Backing::Fixed(fixed) => Ok(Lineage {
                identity: fixed.identity(),
                ..Lineage::default()
            }),
        }
    }

    /// The contents of a state, as of one transaction.
    pub(crate) fn named_state(&self) -> Result<NamedState> {
        let transaction = self.stored()?.begin_read().map_err(Error::meta)?;
        let lineage = lineage(&transaction)?;
        let state = transaction.open_table(STATE).map_err(Error::meta)?;
        let shards = read_number(&state, "shards")?.max(1);
        let mut streams = Vec::new();
        let table = transaction.open_table(STREAMS).map_err(Error::meta)?;
        for entry in table.iter().map_err(Error::meta)? {
            let (_, record) = entry.map_err(Error::meta)?;
            streams.push(record.value().into());
        }
        let table = transaction.open_table(PARTITIONS).map_err(Error::meta)?;
        let partitions = self.partitions_of(&table)?;
        Ok(NamedState {
            lineage,
            shards: u16::try_from(shards)
                .map_err(|_| self.damaged("a shard count below 65536", shards))?,
            streams,
            partitions,
            transaction,
        })
    }

    /// Hashes of the groups of a segment as of then.
    pub(crate) fn named_hashes(
        &self,
        named: &NamedState,
        id: SegmentId,
    ) -> Result<Vec<GroupHashes>> {
        hashes_at(self, &named.transaction, id)
    }

    /// The newest delete of each table that had one.
    pub(crate) fn newest_deletes(&self) -> Result<Vec<(TableId, Sequence)>> {
        let Some(table) = self.table(DELETES)? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (table, sequence) = entry.map_err(Error::meta)?;
            out.push((TableId(table.value()), Sequence(sequence.value())));
        }
        Ok(out)
    }

    /// Writes the newest deletes of some tables.
    pub(super) fn commit_deletes(
        &self,
        transaction: &redb::WriteTransaction,
        newest: &[(TableId, Sequence)],
    ) -> Result<()> {
        if newest.is_empty() {
            return Ok(());
        }
        let mut table = transaction.open_table(DELETES).map_err(Error::meta)?;
        for (id, sequence) in newest {
            let known = table.get(id.0).map_err(Error::meta)?;
            let known = known.map_or(0, |v| v.value());
            table
                .insert(id.0, known.max(sequence.0))
                .map_err(Error::meta)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::metadata::tables::MetaChange;
    use headwater_io::{Env, OpenMode};
    use std::path::Path;

    fn partition(id: u64) -> MetaChange {
        MetaChange {
            partitions: vec![(SegmentId(id), PartitionRecord::of_nothing())],
            ..MetaChange::default()
        }
    }

    #[test]
    fn states_are_named_by_opening_and_number_and_a_renewed_database_is_another() {
        let env = Env::memory();
        let path = Path::new("/meta.redb");
        let file = env.files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, Arc::clone(&file), 2, 77).unwrap();
        let named = |meta: &Meta| meta.named_state().unwrap().lineage;
        let naming = || StateNames::by(Arc::clone(&env.chance), false);
        let first = Meta {
            naming: naming(),
            ..meta
        };
        assert_eq!((named(&first).incarnation, named(&first).number), (0, 0));
        first.commit(&MetaChange::default()).unwrap();
        assert_eq!(
            named(&first).number,
            0,
            "what changes nothing that a state names makes no state"
        );
        first.commit(&partition(1)).unwrap();
        first.commit(&partition(2)).unwrap();
        let before = named(&first);
        assert_eq!((before.number, before.openings.len()), (2, 1));
        assert!(before.incarnation != 0 && before.identity == 77);
        drop(first);
        let reopened = |naming| Meta {
            naming,
            ..Meta::open(path, Arc::clone(&file)).unwrap().unwrap()
        };
        let second = reopened(naming());
        assert_eq!(named(&second), before, "opening alone writes nothing");
        second.commit(&partition(3)).unwrap();
        let after = named(&second);
        assert_eq!(after.incarnation, before.incarnation);
        assert_ne!(after.opening(), before.opening());
        let known = |number| after.contains(before.opening(), number);
        assert!(!known(0) && known(1) && known(2) && !known(3));
        assert!(after.contains(after.opening(), 3) && !after.contains(after.opening(), 4));
        // A database that continued from the same files is another history.
        assert!(!before.contains(after.opening(), 3));
        drop(second);
        let renewed = reopened(StateNames::by(Arc::clone(&env.chance), true));
        renewed.commit(&MetaChange::default()).unwrap();
        renewed.commit(&partition(4)).unwrap();
        let renewed = named(&renewed);
        assert_ne!(renewed.incarnation, after.incarnation);
        assert_eq!((renewed.number, renewed.openings.len()), (5, 1));
    }

    #[test]
    fn the_newest_delete_of_a_table_never_falls() {
        let files = Env::memory().files;
        let path = Path::new("/meta.redb");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, file, 1, 7).unwrap();
        assert!(meta.newest_deletes().unwrap().is_empty());
        for sequence in [9, 4] {
            let change = MetaChange {
                deletes: vec![(TableId(3), Sequence(sequence))],
                ..MetaChange::default()
            };
            meta.commit(&change).unwrap();
        }
        let newest = meta.newest_deletes().unwrap();
        assert_eq!(newest, [(TableId(3), Sequence(9))]);
    }
}
