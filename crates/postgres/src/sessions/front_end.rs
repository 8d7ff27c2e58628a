//! State that all sessions of the front end share.

use super::cancel::Cancels;
use super::quota::Quota;
use crate::host::{FrontEndSettings, Host, Statements};
use crate::metrics::Metrics;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Parts from which a connection becomes a session.
pub(super) struct Begins {
    pub(super) front_end: Arc<FrontEnd>,
    pub(super) cancels: Arc<Cancels>,
    /// One permit for each allowed session.
    pub(super) slots: Arc<Semaphore>,
    /// Owned until the client is authenticated.
    pub(super) _start: OwnedSemaphorePermit,
    /// The time limit of that.
    pub(super) limit: Duration,
}

/// The front end for PostgreSQL's clients.
pub struct FrontEnd {
    pub(super) host: Arc<dyn Host>,
    pub(super) statements: Statements,
    pub(super) settings: FrontEndSettings,
    pub(super) metrics: Metrics,
    /// Becomes true when the server stops.
    pub(super) stopping: watch::Receiver<bool>,
    /// The memory and cursors that sessions may retain between their statements.
    pub(super) quota: Arc<Quota>,
}

impl fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl FrontEnd {
    /// The front end of a server, whose sessions end once `stopping` is true or its sender was
    /// dropped.
    #[must_use]
    pub fn new(
        host: Arc<dyn Host>,
        statements: Statements,
        settings: FrontEndSettings,
        metrics: Metrics,
        stopping: watch::Receiver<bool>,
    ) -> Arc<FrontEnd> {
        Arc::new(FrontEnd {
            host,
            statements,
            settings,
            metrics,
            stopping,
            quota: Quota::new(),
        })
    }
}
