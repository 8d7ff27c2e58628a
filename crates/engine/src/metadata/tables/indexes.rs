//! Indexes, and their runs.
//!
//! Invariants: a run exists only as long as its index; the number of an index is never reused; the
//! content of the records is opaque here. Format: docs/format/meta.md, docs/format/index.md.

use super::log::raise;
use super::{Meta, STATE};
use crate::{Error, Result};
use redb::{ReadableTable, TableDefinition};

/// By number of the index.
const INDEXES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("indexes");
/// By segment, and number of the run.
const INDEX_RUNS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("index_runs");

/// By table, the record of its index policy. Missing until a table had one.
const INDEX_POLICIES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("index_policies");

/// Key in the state of the number of the next index.
const NEXT_INDEX: &str = "next_index";

/// A record with its key.
type Keyed<K> = (K, Vec<u8>);

/// Changes of indexes, committed at once.
#[derive(Debug, Default)]
pub(crate) struct IndexChange {
    pub(crate) defined: Vec<Keyed<u32>>,
    pub(crate) dropped: Vec<u32>,
    pub(crate) runs: Vec<Keyed<(u64, u64)>>,
    pub(crate) forgotten: Vec<(u64, u64)>,
    pub(crate) policies: Vec<Keyed<u32>>,
    pub(crate) removed_policies: Vec<u32>,
}

impl Meta {
    /// The records of all indexes.
    pub(crate) fn indexes(&self) -> Result<Vec<Keyed<u32>>> {
        self.records(INDEXES)
    }

    /// The number of the next index, never used before. Without a stored number (earlier versions),
    /// it is derived from the existing indexes.
    pub(crate) fn next_index(&self) -> Result<u64> {
        let newest = self.indexes()?.last().map_or(0, |(id, _)| u64::from(*id));
        Ok(self.state(NEXT_INDEX)?.unwrap_or(0).max(newest + 1))
    }

    /// Index policies, by table.
    pub(crate) fn index_policies(&self) -> Result<Vec<Keyed<u32>>> {
        self.records(INDEX_POLICIES)
    }

    /// The records of all runs.
    pub(crate) fn index_runs(&self) -> Result<Vec<Keyed<(u64, u64)>>> {
        self.records(INDEX_RUNS)
    }

    fn records<K>(&self, of: TableDefinition<'_, K, &'static [u8]>) -> Result<Vec<Keyed<K>>>
    where
        K: for<'a> redb::Key<SelfType<'a> = K> + 'static,
    {
        let Some(table) = self.table(of)? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (key, value) = entry.map_err(Error::meta)?;
            out.push((key.value(), value.value().to_vec()));
        }
        Ok(out)
    }

    /// Makes a change; durable when it returns.
    pub(crate) fn change_indexes(&self, change: &IndexChange) -> Result<()> {
        let transaction = self.begin_write()?;
        {
            let defined = change.defined.iter().map(|(id, _)| *id);
            if let Some(newest) = defined.chain(change.dropped.iter().copied()).max() {
                let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
                raise(&mut state, NEXT_INDEX, u64::from(newest) + 1)?;
            }
            let mut table = transaction.open_table(INDEXES).map_err(Error::meta)?;
            for (id, record) in &change.defined {
                table.insert(id, record.as_slice()).map_err(Error::meta)?;
            }
            for id in &change.dropped {
                table.remove(id).map_err(Error::meta)?;
            }
            let mut table = transaction.open_table(INDEX_RUNS).map_err(Error::meta)?;
            for (key, record) in &change.runs {
                table.insert(key, record.as_slice()).map_err(Error::meta)?;
            }
            for key in &change.forgotten {
                table.remove(key).map_err(Error::meta)?;
            }
            if !change.policies.is_empty() || !change.removed_policies.is_empty() {
                let mut table = transaction
                    .open_table(INDEX_POLICIES)
                    .map_err(Error::meta)?;
                for (id, record) in &change.policies {
                    table.insert(id, record.as_slice()).map_err(Error::meta)?;
                }
                for id in &change.removed_policies {
                    table.remove(id).map_err(Error::meta)?;
                }
            }
        }
        transaction.commit().map_err(Error::meta)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use headwater_io::{Env, OpenMode};
    use std::path::Path;
    use std::sync::Arc;

    fn change(meta: &Meta, defined: &[u32], dropped: &[u32]) {
        let change = IndexChange {
            defined: defined.iter().map(|id| (*id, vec![1])).collect(),
            dropped: dropped.to_vec(),
            ..IndexChange::default()
        };
        meta.change_indexes(&change).unwrap();
    }

    #[test]
    fn no_number_of_an_index_is_given_twice() {
        let files = Env::memory().files;
        let path = Path::new("/meta.redb");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, Arc::clone(&file), 2, 77).unwrap();
        assert_eq!(meta.next_index().unwrap(), 1);
        change(&meta, &[1, 2, 3], &[]);
        assert_eq!(meta.next_index().unwrap(), 4);
        change(&meta, &[], &[3]);
        assert_eq!(meta.next_index().unwrap(), 4, "3 was given");
        drop(meta);
        let meta = Meta::open(path, file).unwrap().unwrap();
        assert_eq!(meta.next_index().unwrap(), 4, "and is after an opening");
        change(&meta, &[], &[1, 2]);
        assert_eq!(meta.next_index().unwrap(), 4, "also where none is left");

        // A database of an earlier version, which did not write it.
        change(&meta, &[6], &[]);
        let transaction = meta.begin_write().unwrap();
        {
            let mut state = transaction.open_table(STATE).unwrap();
            state.remove(NEXT_INDEX).unwrap();
        }
        transaction.commit().unwrap();
        assert_eq!(meta.next_index().unwrap(), 7);
        change(&meta, &[], &[6]);
        assert_eq!(meta.next_index().unwrap(), 7, "it is known from then on");
    }
}
