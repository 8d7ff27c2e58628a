//! Publishes a notice when the inventory of this node has changed.
//!
//! Invariants: the inventory is not refreshed while no follower waits here and no broker is
//! configured. A notice carries only a version; a follower fetches the changes. Concurrency: one
//! worker, which refreshes away from the runtime. Failure: a failed refresh is logged, and retried.

use crate::app::App;
use headwater_cluster::inventory::{REFRESH_EVERY, Sources};
use headwater_protocol::notice::{Notice, NoticeKind};
use std::sync::Arc;
use std::time::Duration;

/// Interval of refreshes for a broker alone.
const BROKER_INTERVAL: Duration = Duration::from_millis(250);
/// Pause after a failed refresh.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Refreshes and publishes until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    tokio::select! {
        () = publish(app) => {}
        // An error means that the server has stopped.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

async fn refresh(app: &Arc<App>) -> Option<Notice> {
    let refreshed = app.blocking(|app| {
        let sources = Sources {
            db: &app.db(),
            fleet: app.fleet.as_deref(),
            env: app.shell.env(),
        };
        Ok(app.inventory.newest(sources)?)
    });
    match refreshed.await {
        Ok((database, epoch, version)) => Some(Notice {
            kind: NoticeKind::Changed,
            identity: database.identity,
            incarnation: database.incarnation,
            epoch,
            number: 0,
            version,
        }),
        Err(error) => {
            tracing::warn!(?error, "the inventory of this node cannot be refreshed");
            None
        }
    }
}

async fn publish(app: Arc<App>) {
    let notices = &app.notices;
    let mut published: Option<Notice> = None;
    loop {
        notices.until_waited_for().await;
        let Some(mut notice) = refresh(&app).await else {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        let is_new = published.is_none_or(|published| published.version != notice.version);
        if is_new {
            let before = published.map_or(0, |published| published.number);
            notice.number = before + 1;
            notices.send(&notice);
            if published.is_none() {
                let words = notices.last_words(notice);
                let run = Arc::clone(notices).run(words, app.shell.stopping());
                tokio::spawn(run);
            }
            published = Some(notice);
        }
        let pause = match notices.is_waited_for() {
            true => REFRESH_EVERY,
            false => BROKER_INTERVAL,
        };
        tokio::time::sleep(pause).await;
    }
}
