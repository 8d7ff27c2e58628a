//! Named snapshots: their records, and their states.
//!
//! Invariants: a database with a snapshot has the format [`WITH_SNAPSHOTS`], or a later one, which
//! programs refuse that would remove the files of snapshots; without a snapshot the format is the
//! earlier one. A snapshot is added and removed in one transaction with its state, and with the
//! deletes retained for it. Format: docs/format/meta.md, docs/format/snapshot.md.

use super::{EndsChange, FORMAT_VERSION, Meta, RetainedFor, STATE, WITH_FREED, WITH_SNAPSHOTS};
use crate::{Error, Result};
use redb::{ReadableTable, TableDefinition};

/// By number: records of snapshots, including some ended ones. Missing until the first snapshot.
const SNAPSHOTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshots");
/// By number of the snapshot: the state, as bytes. Missing until the first snapshot.
const SNAPSHOT_STATES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshot_states");

/// Changes of snapshots, committed at once.
#[derive(Debug, Default)]
pub(crate) struct SnapshotChange {
    /// A new snapshot: its number, record and state.
    pub(crate) created: Option<(u64, Vec<u8>, Vec<u8>)>,
    /// Snapshots that end and are remembered as ended: number and record.
    pub(crate) ended: Vec<(u64, Vec<u8>)>,
    /// Snapshots that are forgotten completely.
    pub(crate) forgotten: Vec<u64>,
    /// Deletes retained for them.
    pub(crate) ends: EndsChange,
}

impl Meta {
    /// The records of all snapshots, by number.
    pub(crate) fn snapshots(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let Some(table) = self.table(SNAPSHOTS)? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (number, record) = entry.map_err(Error::meta)?;
            out.push((number.value(), record.value().to_vec()));
        }
        Ok(out)
    }

    /// True when there is a snapshot that has not ended.
    pub(super) fn has_snapshots(&self) -> Result<bool> {
        match self.table(SNAPSHOT_STATES)? {
            Some(states) => Ok(states.first().map_err(Error::meta)?.is_some()),
            None => Ok(false),
        }
    }

    /// The state of a snapshot; `None` = there is no such snapshot.
    pub(crate) fn snapshot_state(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let Some(table) = self.table(SNAPSHOT_STATES)? else {
            return Ok(None);
        };
        let state = table.get(number).map_err(Error::meta)?;
        Ok(state.map(|state| state.value().to_vec()))
    }

    /// Makes a change; durable when it returns.
    pub(crate) fn change_snapshots(&self, change: &SnapshotChange) -> Result<()> {
        let transaction = self.begin_write()?;
        let is_empty = {
            let mut records = transaction.open_table(SNAPSHOTS).map_err(Error::meta)?;
            let table = transaction.open_table(SNAPSHOT_STATES);
            let mut states = table.map_err(Error::meta)?;
            if let Some((number, record, state)) = &change.created {
                records
                    .insert(number, record.as_slice())
                    .map_err(Error::meta)?;
                states
                    .insert(number, state.as_slice())
                    .map_err(Error::meta)?;
            }
            for (number, record) in &change.ended {
                records
                    .insert(number, record.as_slice())
                    .map_err(Error::meta)?;
                states.remove(number).map_err(Error::meta)?;
            }
            for number in &change.forgotten {
                records.remove(number).map_err(Error::meta)?;
                states.remove(number).map_err(Error::meta)?;
            }
            states.first().map_err(Error::meta)?.is_none()
        };
        {
            let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
            let now = state.get("format_version").map_err(Error::meta)?;
            let has_freed = now.is_some_and(|version| version.value() == WITH_FREED);
            let version = match is_empty {
                _ if has_freed => WITH_FREED,
                true => FORMAT_VERSION,
                false => WITH_SNAPSHOTS,
            };
            state
                .insert("format_version", version)
                .map_err(Error::meta)?;
        }
        self.commit_ends(&transaction, &change.ends, RetainedFor::Snapshots)?;
        transaction.commit().map_err(Error::meta)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_io::{Env, OpenMode};
    use std::path::Path;

    fn version(meta: &Meta) -> u64 {
        meta.state("format_version").unwrap().unwrap()
    }

    #[test]
    fn the_format_is_a_later_one_as_long_as_there_is_a_snapshot() {
        let files = Env::memory().files;
        let path = Path::new("/meta.redb");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, file, 1, 7).unwrap();
        assert!(meta.snapshots().unwrap().is_empty());
        assert_eq!(meta.snapshot_state(1).unwrap(), None);
        assert_eq!(version(&meta), FORMAT_VERSION);
        for number in [1, 2] {
            let created = Some((number, b"record".to_vec(), b"state".to_vec()));
            let change = SnapshotChange {
                created,
                ..SnapshotChange::default()
            };
            meta.change_snapshots(&change).unwrap();
        }
        assert_eq!(version(&meta), WITH_SNAPSHOTS);
        let gone = SnapshotChange {
            forgotten: vec![1],
            ..SnapshotChange::default()
        };
        meta.change_snapshots(&gone).unwrap();
        assert_eq!(version(&meta), WITH_SNAPSHOTS);
        let ended = SnapshotChange {
            ended: vec![(2, b"ended".to_vec())],
            ..SnapshotChange::default()
        };
        meta.change_snapshots(&ended).unwrap();
        assert_eq!(version(&meta), FORMAT_VERSION);
        assert_eq!(meta.snapshots().unwrap(), [(2, b"ended".to_vec())]);
        assert_eq!(meta.snapshot_state(2).unwrap(), None);
    }
}
