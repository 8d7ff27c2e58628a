//! Telling others that there is something new here: looks at what this node holds, and has a notice
//! told when that has changed.
//!
//! Invariants: nothing is looked at while nobody wants to know: nobody waits here, and there is no
//! broker. A notice says nothing but a number; what has changed is asked for.
//! Concurrency: one worker, which looks away from the runtime.
//! Failure: a look that fails is told of in the log, and made again.

use crate::app::App;
use crate::holdings::{LOOK, Sources};
use headwater_protocol::notice::{Kind, Notice};
use std::sync::Arc;
use std::time::Duration;

/// How often is looked for a broker alone.
const LOOK_FOR_BROKER: Duration = Duration::from_millis(250);
/// After a look that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Looks and tells until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    tokio::select! {
        () = tell(app) => {}
        // An error means that the server is gone: that is a stop too.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

async fn look(app: &Arc<App>) -> Option<Notice> {
    let looked = app.blocking(|app| {
        let sources = Sources {
            db: &app.db(),
            fleet: app.fleet.as_deref(),
            env: app.shell.env(),
        };
        app.holdings.newest(sources)
    });
    match looked.await {
        Ok((database, epoch, version)) => Some(Notice {
            kind: Kind::Changed,
            identity: database.identity,
            incarnation: database.incarnation,
            epoch,
            number: 0,
            version,
        }),
        Err(error) => {
            tracing::warn!(?error, "what this node holds cannot be looked at");
            None
        }
    }
}

async fn tell(app: Arc<App>) {
    let notices = &app.notices;
    let mut told: Option<Notice> = None;
    loop {
        notices.until_wanted().await;
        let Some(mut found) = look(&app).await else {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        let is_new = told.is_none_or(|told| told.version != found.version);
        if is_new {
            let before = told.map_or(0, |told| told.number);
            found.number = before + 1;
            notices.tell(&found);
            if told.is_none() {
                let words = notices.last_words(found);
                let run = Arc::clone(notices).run(words, app.shell.stopping());
                tokio::spawn(run);
            }
            told = Some(found);
        }
        let pause = match notices.is_waited_for() {
            true => LOOK,
            false => LOOK_FOR_BROKER,
        };
        tokio::time::sleep(pause).await;
    }
}
