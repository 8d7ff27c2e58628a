//! What all sessions of the door share.

use super::cancel::Cancels;
use super::kept::Kept;
use crate::host::{DoorSettings, Host, Statements};
use crate::metrics::Metrics;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// What a connection needs to become a session.
pub(super) struct Begins {
    pub(super) door: Arc<Door>,
    pub(super) cancels: Arc<Cancels>,
    /// One for each session that may be.
    pub(super) places: Arc<Semaphore>,
    /// Held until it has said who it is.
    pub(super) _start: OwnedSemaphorePermit,
    /// How long it has for it.
    pub(super) limit: Duration,
}

/// The door for PostgreSQL's clients.
pub struct Door {
    pub(super) host: Arc<dyn Host>,
    pub(super) statements: Statements,
    pub(super) settings: DoorSettings,
    pub(super) metrics: Metrics,
    /// Becomes true when the server stops.
    pub(super) stopping: watch::Receiver<bool>,
    /// What sessions keep between their statements.
    pub(super) kept: Arc<Kept>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Door {
    /// The door of a server, whose sessions end once `stopping` is true or its sender is gone.
    #[must_use]
    pub fn new(
        host: Arc<dyn Host>,
        statements: Statements,
        settings: DoorSettings,
        metrics: Metrics,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Door> {
        Arc::new(Door {
            host,
            statements,
            settings,
            metrics,
            stopping,
            kept: Kept::new(),
        })
    }
}
