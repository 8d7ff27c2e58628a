//! The part of a server that a shell serves.

use crate::error::ErrorAnswer;
use crate::route::Route;
use crate::shell::Shell;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The part of a server that differs between servers.
///
/// [`Bound::serve`](crate::Bound::serve) calls [`Role::begin`] first, then serves [`Role::routes`]
/// until the server stops; then it waits for the listeners and the requests and calls
/// [`Role::requests_ended`], waits for the workers, and calls [`Role::close`] last.
pub trait Role: Send + Sync + Sized + 'static {
    /// Answer of `/health` while the process answers.
    const HEALTHY: &'static str = "ready";

    /// Errors of its end.
    type Error: From<std::io::Error> + Send + 'static;

    /// Starts the role's listeners in addition to HTTP, and its background work. Called once,
    /// before the first request.
    fn begin(&mut self, shell: &Arc<Shell>) -> Work {
        let _ = shell;
        Work::default()
    }

    /// Routes of the role, in addition to the routes of every server.
    fn routes(&self, shell: &Arc<Shell>) -> Vec<Route>;

    /// Readiness, and the additional members of the answer at `/ready`. Must not wait.
    ///
    /// # Errors
    /// Reason why the role is not ready.
    fn ready(&self) -> Result<Map<String, Value>, ErrorAnswer>;

    /// Fetches metrics for `/metrics`. The caller waits only for a moment, and the fetch continues
    /// in the background; metrics that are not fetched yet are reported the next time.
    fn refresh_stats(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Called when the last request and the last listener have ended, or their time was up: workers
    /// that wait for requests may end now.
    fn requests_ended(&self) {}

    /// Ends the role, after its last use. May block.
    ///
    /// # Errors
    /// When data could not be persisted.
    fn close(&self) -> Result<(), Self::Error>;
}

/// Background work of a role.
#[derive(Default)]
pub struct Work {
    /// Listeners for protocols other than HTTP.
    pub front_ends: Vec<FrontEnd>,
    /// Other work.
    pub workers: Vec<Worker>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("front_ends", &self.front_ends.len())
            .field("workers", &self.workers.len())
            .finish()
    }
}

/// Serves until [`Shell::stopping`] is true, and then ends within the setting's time: true when all
/// work has ended by then.
pub type FrontEnd = BoxFuture<'static, bool>;

/// Works until [`Shell::stopping`] is true, or [`Role::requests_ended`] was called, and its pending
/// work is done. A worker that does not end delays the end of the server.
pub type Worker = BoxFuture<'static, ()>;
