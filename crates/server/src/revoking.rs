//! Tells on who was revoked: a cloud to its edges, and an edge has heard it of its cloud.
//!
//! Invariant: within two seconds of hearing it, a node goes by it and its edges are told.
//! Concurrency: one worker.

use crate::app::App;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);

/// Looks and tells until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let telling = async {
        loop {
            tell(&app);
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = telling => {}
        // An error means that the server is gone: that is a stop too.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

fn tell(app: &App) {
    let guard = app.shell.guard();
    if let Some(uplink) = &app.uplink
        && !guard.take_revoked_of_cloud(&uplink.revoked())
    {
        tracing::warn!("what the cloud tells of revoked tokens is not taken");
    }
    if let Some(fleet) = &app.fleet {
        fleet.tell_revoked(guard.revoked());
    }
}
