//! State of the log in the metadata: its needed files, and the started ones.
//!
//! Invariants: neither number decreases; a started file had its header on the medium before its
//! generation is recorded here.

use super::{Meta, STATE};
use crate::wal::Needed;
use crate::{Error, Result};
use redb::ReadableTable;

/// Key in the state of the newest started generation.
pub(super) const LOG_NEWEST: &str = "log_newest_generation";

impl Meta {
    pub(crate) fn log_first_generation(&self) -> Result<u64> {
        Ok(self.state("log_first_generation")?.unwrap_or(0))
    }

    /// The needed part of the log.
    pub(crate) fn log_needed(&self) -> Result<Needed> {
        Ok(Needed {
            first_generation: self.log_first_generation()?,
            newest_generation: self.state(LOG_NEWEST)?.unwrap_or(0),
            sequence: self.step_sequence()?,
        })
    }

    /// Records that a log file of this generation was started: from now on it must exist as long as
    /// it is needed.
    pub(crate) fn log_begun(&self, generation: u64) -> Result<()> {
        let transaction = self.begin_write()?;
        {
            let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
            raise(&mut state, LOG_NEWEST, generation)?;
        }
        transaction.commit().map_err(Error::meta)
    }
}

/// Raises a number of the state; it never decreases.
pub(super) fn raise(state: &mut redb::Table<'_, &str, u64>, key: &str, value: u64) -> Result<()> {
    let old = state
        .get(key)
        .map_err(Error::meta)?
        .map_or(0, |v| v.value());
    state.insert(key, old.max(value)).map_err(Error::meta)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::common::ids::Sequence;
    use crate::metadata::tables::MetaChange;
    use headwater_io::{Env, OpenMode};
    use std::path::Path;
    use std::sync::Arc;

    /// The rows of the state: name, 0, number.
    fn rows(meta: &Meta) -> Vec<u8> {
        let transaction = meta.begin_read().unwrap().unwrap();
        let state = transaction.open_table(STATE).unwrap();
        let mut bytes = Vec::new();
        for row in state.iter().unwrap() {
            let (key, value) = row.unwrap();
            bytes.extend_from_slice(key.value().as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(&value.value().to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_state_of_a_database_stands_under_its_names() {
        let files = Env::memory().files;
        let path = Path::new("/meta.redb");
        let file = files.open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, Arc::clone(&file), 2, 77).unwrap();
        meta.log_begun(6).unwrap();
        meta.log_begun(5).unwrap();
        let change = MetaChange {
            step_sequence: Sequence(1_000),
            next_segment: 40,
            log_first_generation: 4,
            ..MetaChange::default()
        };
        meta.commit(&change).unwrap();
        crate::golden::check("state", &rows(&meta));
        let needed = meta.log_needed().unwrap();
        assert_eq!(
            (needed.first_generation, needed.newest_generation),
            (4, 6),
            "neither falls, and a step that begins no file changes only the first"
        );

        // A database of an earlier version, which did not write it.
        let transaction = meta.begin_write().unwrap();
        {
            let mut state = transaction.open_table(STATE).unwrap();
            state.remove("log_newest_generation").unwrap();
        }
        transaction.commit().unwrap();
        drop(meta);
        let meta = Meta::open(path, file).unwrap().unwrap();
        assert_eq!(meta.log_needed().unwrap().newest_generation, 0);
    }
}
