//! Indexes, and the runs there are of them.
//!
//! Invariants: a run of an index is there only as long as the index; what is in the records is for
//! others to know.
//! Format: docs/format/meta.md, docs/format/index.md.

use super::Meta;
use crate::{Error, Result};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};

/// By number of the index.
const INDEXES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("indexes");
/// By segment, and number of the run.
const INDEX_RUNS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("index_runs");

/// By table, what it says of its indexes. Missing until one said something.
const INDEX_POLICIES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("index_policies");

/// A record with its key.
type Keyed<K> = (K, Vec<u8>);

/// What is changed about indexes, at once.
#[derive(Debug, Default)]
pub(crate) struct IndexChange {
    pub(crate) defined: Vec<Keyed<u32>>,
    pub(crate) dropped: Vec<u32>,
    pub(crate) runs: Vec<Keyed<(u64, u64)>>,
    pub(crate) forgotten: Vec<(u64, u64)>,
    pub(crate) policies: Vec<Keyed<u32>>,
    pub(crate) policies_gone: Vec<u32>,
}

impl Meta {
    /// The records of all indexes.
    pub(crate) fn indexes(&self) -> Result<Vec<Keyed<u32>>> {
        self.records(INDEXES)
    }

    /// What tables say of their indexes, by table.
    pub(crate) fn index_policies(&self) -> Result<Vec<Keyed<u32>>> {
        self.records(INDEX_POLICIES)
    }

    fn records(&self, of: TableDefinition<'_, u32, &'static [u8]>) -> Result<Vec<Keyed<u32>>> {
        let transaction = self.db.begin_read().map_err(Error::meta)?;
        let table = match transaction.open_table(of) {
            Ok(table) => table,
            // There never was one.
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(Error::meta(error)),
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (key, value) = entry.map_err(Error::meta)?;
            out.push((key.value(), value.value().to_vec()));
        }
        Ok(out)
    }

    /// The records of all runs.
    pub(crate) fn index_runs(&self) -> Result<Vec<Keyed<(u64, u64)>>> {
        let transaction = self.db.begin_read().map_err(Error::meta)?;
        let table = match transaction.open_table(INDEX_RUNS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(Error::meta(error)),
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
            if !change.policies.is_empty() || !change.policies_gone.is_empty() {
                let mut table = transaction
                    .open_table(INDEX_POLICIES)
                    .map_err(Error::meta)?;
                for (id, record) in &change.policies {
                    table.insert(id, record.as_slice()).map_err(Error::meta)?;
                }
                for id in &change.policies_gone {
                    table.remove(id).map_err(Error::meta)?;
                }
            }
        }
        transaction.commit().map_err(Error::meta)
    }
}
