//! What the metadata know of the log: which of its files are needed, and which were begun.
//!
//! Invariants: neither number falls; a file of a generation that is named as begun had its header
//! on the medium by then.

use super::{Meta, STATE};
use crate::log::Needed;
use crate::{Error, Result};
use redb::ReadableTable;

/// The state that says which log files were begun.
pub(super) const LOG_NEWEST: &str = "log_newest_generation";

impl Meta {
    pub(crate) fn log_first_generation(&self) -> Result<u64> {
        Ok(self.state("log_first_generation")?.unwrap_or(0))
    }

    /// What the log has to hold.
    pub(crate) fn log_needed(&self) -> Result<Needed> {
        Ok(Needed {
            first_generation: self.log_first_generation()?,
            newest_generation: self.state(LOG_NEWEST)?.unwrap_or(0),
            sequence: self.step_sequence()?,
        })
    }

    /// Says that a log file of this generation was begun: from now on it must be there for as long
    /// as it is needed.
    pub(crate) fn log_begun(&self, generation: u64) -> Result<()> {
        let transaction = self.begin_write()?;
        {
            let mut state = transaction.open_table(STATE).map_err(Error::meta)?;
            raise(&mut state, LOG_NEWEST, generation)?;
        }
        transaction.commit().map_err(Error::meta)
    }
}

/// Sets a number of the state that never falls.
pub(super) fn raise(state: &mut redb::Table<'_, &str, u64>, key: &str, value: u64) -> Result<()> {
    let old = state
        .get(key)
        .map_err(Error::meta)?
        .map_or(0, |v| v.value());
    state.insert(key, old.max(value)).map_err(Error::meta)?;
    Ok(())
}
