//! Propagates rights and certificates: a cloud sends its list of rights, revoked tokens and the
//! certificates by which it is going to be verified to its edges, and an edge is notified by its
//! cloud.
//!
//! Invariant: within two seconds of a notification, a node applies it and notifies its edges.
//! Concurrency: one worker. Failure: a list of revoked tokens that is malformed, and a file of
//! certificates that cannot be used, are reported once; the ones before stay valid.

use crate::app::App;
use crate::rights_state::Cloud;
use headwater_cluster::{CaFile, is_announceable};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);

/// Polls and notifies until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let next = NextCa::of(app.settings.tls_next_ca.as_deref());
    let polling = async {
        let mut next = next;
        let mut refused: Option<String> = None;
        loop {
            propagate(&app, &mut refused);
            next.announce(&app);
            let at = Arc::clone(&app);
            let looked = tokio::task::spawn_blocking(move || renew(&at));
            if let Err(error) = looked.await {
                tracing::error!(%error, "signing the list of rights panicked");
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = polling => {}
        // An error means that the server has stopped.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

/// The certificates by which a cloud is going to be verified.
struct NextCa {
    file: Option<Arc<CaFile>>,
    told: Arc<str>,
}

impl NextCa {
    fn of(path: Option<&Path>) -> NextCa {
        let read = path.map(|path| (path, CaFile::read(path)));
        let file = match read {
            None => None,
            Some((_, Ok(file))) => Some(file),
            Some((path, Err(error))) => {
                let path = path.display();
                tracing::error!(%path, %error, "tls.next_ca cannot be read: edges are not told the next certificates of this node");
                None
            }
        };
        NextCa {
            file,
            told: "".into(),
        }
    }

    /// Tells the edges after a change of the file.
    fn announce(&mut self, app: &App) {
        let (Some(file), Some(fleet)) = (&self.file, &app.fleet) else {
            return;
        };
        let text = file.text();
        if text == self.told {
            return;
        }
        match is_announceable(&text) {
            true => fleet.send_next_ca(text.to_string()),
            false => {
                tracing::error!(
                    "tls.next_ca has no certificates in PEM, or more than 16 KiB: edges are not told of them"
                );
            }
        }
        self.told = text;
    }
}

/// Signs the list of rights again after a change.
fn renew(app: &App) {
    if let Some(fleet) = &app.fleet {
        app.rights.look(&Cloud {
            fleet,
            guard: app.shell.guard(),
            db: &app.db(),
            dir: app.settings.db(),
        });
    }
}

/// Hands on what the cloud and the own list say. `refused` = the list of the cloud that was refused
/// last.
fn propagate(app: &App, refused: &mut Option<String>) {
    let guard = app.shell.guard();
    if let Some(uplink) = &app.uplink {
        let list = uplink.revoked();
        let is_taken = guard.take_revoked_of_cloud(&list);
        let is_known = refused.as_ref() == Some(&list);
        if !is_taken && !is_known {
            tracing::warn!(
                "the cloud's list of revoked tokens is malformed: the one before counts"
            );
        }
        *refused = (!is_taken).then_some(list);
    }
    // A connected cloud sends a newer list within moments.
    let refused = app.rights.receiver.as_ref().map(|to| to.error().is_some());
    if let Some(uplink) = &app.uplink
        && refused == Some(false)
        && uplink.is_connected()
    {
        guard.confirm_received();
    }
    if let Some(fleet) = &app.fleet {
        fleet.send_revoked(guard.revoked());
    }
}
