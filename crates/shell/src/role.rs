//! What a shell serves.

use crate::error::ErrorAnswer;
use crate::route::Route;
use crate::shell::Shell;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::sync::Arc;

/// What a shell serves: the part of a server that is not the same for all of them.
///
/// [`Bound::serve`](crate::Bound::serve) calls [`Role::begin`] first, then takes requests for
/// [`Role::routes`] until the server is to stop; then it waits for the doors and the requests and
/// calls [`Role::requests_ended`], waits for the workers, and calls [`Role::close`] last.
pub trait Role: Send + Sync + Sized + 'static {
    /// What `/health` says while the process answers.
    const HEALTHY: &'static str = "ready";

    /// What can go wrong at its end.
    type Error: From<std::io::Error> + Send + 'static;

    /// Its doors besides HTTP, and its work in the background. Called once, before the first
    /// request.
    fn begin(&mut self, shell: &Arc<Shell>) -> Work {
        let _ = shell;
        Work::default()
    }

    /// Its routes, besides those that every server has.
    fn routes(&self, shell: &Arc<Shell>) -> Vec<Route>;

    /// Whether it is ready, and what `/ready` says of it besides. Must not wait.
    ///
    /// # Errors
    /// Why it is not.
    fn ready(&self) -> Result<Map<String, Value>, ErrorAnswer>;

    /// Fetches figures that `/metrics` tells. It is waited for only for a moment, and then goes on
    /// by itself; figures that are not there yet are told the next time.
    fn refresh_figures(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Called when the last request and the last door have ended, or their time was up: workers may
    /// end now that wait for what requests bring.
    fn requests_ended(&self) {}

    /// Ends it, once nothing of it is used any more. May block.
    ///
    /// # Errors
    /// When something was not kept as it should.
    fn close(&self) -> Result<(), Self::Error>;
}

/// What goes on in a role besides requests.
#[derive(Default)]
pub struct Work {
    /// What serves others than HTTP's clients.
    pub doors: Vec<Door>,
    /// What else goes on.
    pub workers: Vec<Worker>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("doors", &self.doors.len())
            .field("workers", &self.workers.len())
            .finish()
    }
}

/// Serves until [`Shell::stopping`] is true, and then ends within the setting's time: true when all
/// that it had begun has ended by then.
pub type Door = BoxFuture<'static, bool>;

/// Works until [`Shell::stopping`] is true, or [`Role::requests_ended`] was called, and what it
/// holds has been dealt with. A worker that does not end holds the end of the server up.
pub type Worker = BoxFuture<'static, ()>;
