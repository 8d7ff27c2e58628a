//! Cancellation of statements whose client has disconnected.
//!
//! Concurrency: the client's connection sets the token once, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    /// Token of the statement that this task runs.
    static CANCEL: Arc<AtomicBool>;
}

/// Set when the client of a statement disconnects.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Returns the token of this task's statement; without a statement, a token that is never set.
    pub(crate) fn of_task() -> CancelToken {
        CancelToken(CANCEL.try_with(Arc::clone).unwrap_or_default())
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs work of a task with this token.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        CANCEL.scope(self.0, work).await
    }
}
