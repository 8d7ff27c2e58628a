//! The newest report of conflicts between the shown databases.
//!
//! Invariants: a report is replaced as a whole, together with the state that it is of. Where
//! neither a copy nor the node's own database has changed since, nothing is read again.
//! Concurrency: made from a snapshot without a lock. Failure: if a table cannot be read, the report
//! before stays, and the next one is made whatever has changed.

use super::EdgeCopies;
use crate::conflicts::ConflictReport;
use headwater_engine::{ConflictBounds, Result, Snapshot};
use std::sync::Arc;

/// A report, and the state that it is of.
#[derive(Debug, Default)]
pub(super) struct NewestReport {
    report: Arc<ConflictReport>,
    /// `None` before the first report, and after one that failed.
    of: Option<ReportedState>,
}

/// State of the shown databases: the number of changes of copies, and the number of the newest
/// record of the node's own database.
type ReportedState = (u64, u64);

impl EdgeCopies {
    /// The newest report; empty before the first.
    #[must_use]
    pub fn conflicts(&self) -> Arc<ConflictReport> {
        Arc::clone(&self.conflicts.lock().report)
    }

    /// Makes the newest report, from a snapshot of the node's own database and the copies.
    ///
    /// # Errors
    /// The engine's own: `corrupt`, `io`, `elsewhere` where a copy cannot be read.
    pub fn find_conflicts(&self, own: Snapshot) -> Result<()> {
        // Before the reading: a later change is read next time.
        let of = (self.changes(), own.sequence());
        self.report(own, of)
    }

    /// Makes the newest report if anything has changed since the one before. Returns false where
    /// nothing has. Rows that end without a write, by their age, are no change.
    ///
    /// # Errors
    /// As [`EdgeCopies::find_conflicts`].
    pub fn refresh_conflicts(&self, own: Snapshot) -> Result<bool> {
        let of = (self.changes(), own.sequence());
        if self.conflicts.lock().of == Some(of) {
            return Ok(false);
        }
        self.report(own, of)?;
        Ok(true)
    }

    fn report(&self, own: Snapshot, of: ReportedState) -> Result<()> {
        let merged = self.across(own);
        let made =
            merged.and_then(|merged| ConflictReport::of(&merged, &ConflictBounds::default()));
        let mut newest = self.conflicts.lock();
        newest.of = made.is_ok().then_some(of);
        newest.report = Arc::new(made?);
        Ok(())
    }
}
