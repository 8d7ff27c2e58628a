//! Whether whoever waits for a statement has gone.
//!
//! Concurrency: the flag is set once, by whoever waited, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    /// True when whoever waits for the statement that this task runs has gone.
    static GONE: Arc<AtomicBool>;
}

/// Whether whoever waits for a statement has gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone(Arc<AtomicBool>);

impl Gone {
    /// That of the statement that this task runs; without one, nobody ever goes.
    pub(crate) fn of_task() -> Gone {
        Gone(GONE.try_with(Arc::clone).unwrap_or_default())
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Has a task run its work under this.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        GONE.scope(self.0, work).await
    }
}
