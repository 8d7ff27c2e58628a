//! Frees rows at an edge if the cloud has them all, safe from its own loss.
//!
//! Invariants: rows are freed only in ranges that the cloud has proven over the current connection,
//! over which it has declared that its confirmations survive its own loss. No rows are freed
//! without a connection. Failure: rows that cannot be freed now are retried the next time, with a
//! line in the log.

use super::{Origin, Uplink};
use crate::error::{FleetError, medium};
use crate::status::{FreeStatus, FreedStatus};
use headwater_types::Timestamp;

/// Partitions that are freed at once, so that the connection does not wait for long.
const AT_ONCE: u64 = 4;

impl Uplink {
    /// Frees some of the rows that may be freed. Call repeatedly while connected.
    pub(super) fn free(&self) -> Result<(), FleetError> {
        let (Some(keep), Origin::Database(db)) = (self.settings.free_after, &self.origin) else {
            return Ok(());
        };
        if !self.known.lock().survives {
            return Ok(());
        }
        let proven = self.agent.lock().proven_now();
        let keep = i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX);
        let before = db.believed_now().as_nanos().saturating_sub(keep);
        let before = Timestamp::from_nanos(before);
        if let Err(error) = db.free_rows(&proven, before, AT_ONCE) {
            if db.state_number().is_err() {
                return Err(medium(error));
            }
            tracing::warn!(%error, "sync: rows that the cloud has could not be freed");
        }
        Ok(())
    }

    /// Freed rows, and the state of freeing.
    pub(super) fn freed(&self) -> headwater_engine::Result<Option<FreedStatus>> {
        let Origin::Database(db) = &self.origin else {
            return Ok(None);
        };
        let freed = db.freed_rows()?;
        let state = match self.settings.free_after {
            None if freed.partitions == 0 => return Ok(None),
            None => FreeStatus::Never,
            Some(_) if self.known.lock().survives => FreeStatus::Confirmed,
            Some(_) => FreeStatus::NotSafe,
        };
        Ok(Some(FreedStatus {
            state,
            partitions: freed.partitions,
            bytes: freed.bytes,
        }))
    }
}
