//! Looking again at a database that this server only reads: its owner may have changed it.
//!
//! Invariants: no file is changed. What was begun with what was seen before ends with it; names of
//! databases are those of what is seen.
//! Concurrency: one worker, which looks away from the runtime.
//! Failure: after a look that fails everything is answered by the one before, which the log says
//! each time.

use crate::app::App;
use headwater::Reader;
use std::sync::Arc;
use std::time::Duration;

/// Looks again and again until the server stops.
pub(crate) async fn run(app: Arc<App>, reader: Reader, every: Duration) {
    let mut stopping = app.shell.stopping();
    loop {
        tokio::select! {
            // An error means that the server is gone: that is a stop too.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(every) => {}
        }
        let reader = reader.clone();
        let looked = app.blocking(move |app| {
            reader.refresh()?;
            let names = app.databases.look_again(&reader.database());
            if let Err(error) = names {
                tracing::warn!(%error, "names of databases are those of before");
            }
            Ok(())
        });
        if let Err(error) = looked.await {
            tracing::warn!(
                ?error,
                "the database cannot be looked at again: answers are of what was there before"
            );
        }
    }
}
