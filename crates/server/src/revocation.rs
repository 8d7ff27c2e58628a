//! Propagates revoked tokens: a cloud notifies its edges, and an edge is notified by its cloud.
//!
//! Invariant: within two seconds of a notification, a node applies it and notifies its edges.
//! Concurrency: one worker.

use crate::app::App;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);

/// Polls and notifies until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let polling = async {
        loop {
            propagate(&app);
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = polling => {}
        // An error means that the server has stopped.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

fn propagate(app: &App) {
    let guard = app.shell.guard();
    if let Some(uplink) = &app.uplink
        && !guard.take_revoked_of_cloud(&uplink.revoked())
    {
        tracing::warn!("the cloud's list of revoked tokens is not accepted");
    }
    if let Some(fleet) = &app.fleet {
        fleet.tell_revoked(guard.revoked());
    }
}
