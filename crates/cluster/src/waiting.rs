//! Waiting: for a device, on threads that may, and for the stop of the server.

use crate::error::{ClusterError, ClusterErrorKind};
use tokio::sync::watch;

/// Waits until the server stops.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Runs a call that waits for a device away from the threads of connections.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ClusterError> {
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(call)).await;
    done.map_err(|error| {
        tracing::error!(%error, "the work on a copy panicked");
        ClusterError::new(
            ClusterErrorKind::Io,
            "the work on a copy failed with an internal error",
        )
    })
}
