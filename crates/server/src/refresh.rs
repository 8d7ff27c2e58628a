//! Refreshes a database that this server only reads: its owner may have changed it.
//!
//! Invariants: no file is changed. A request reads one state from start to end; names of databases
//! belong to the refreshed state. Concurrency: one worker, which refreshes away from the runtime.
//! Failure: after a failed refresh answers are made from the previous state, and each failure is
//! logged.

use crate::app::App;
use headwater::Reader;
use std::sync::Arc;
use std::time::Duration;

/// Refreshes periodically until the server stops.
pub(crate) async fn run(app: Arc<App>, reader: Reader, every: Duration) {
    let mut stopping = app.shell.stopping();
    loop {
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(every) => {}
        }
        let reader = reader.clone();
        let refreshed = app.blocking(move |app| {
            reader.refresh()?;
            let names = app.databases.reload(&reader.database());
            if let Err(error) = names {
                tracing::warn!(%error, "the database names cannot be refreshed: the last ones read stay in force");
            }
            Ok(())
        });
        if let Err(error) = refreshed.await {
            tracing::warn!(
                ?error,
                "the database cannot be refreshed: answers show the last state read"
            );
        }
    }
}
