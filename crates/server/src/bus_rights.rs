//! Lists of rights over the bus: a cloud publishes its own, an edge takes the one that it hears.
//!
//! Invariants: an edge takes a list by the rules of lists that come over the connection to its
//! cloud: its number, its cloud and the chain of its keys. The bus proves no age: a list that is
//! heard is no sign that there is no newer one. Concurrency: one worker. Failure: a refused list
//! changes nothing, and is reported in the status.

use crate::app::App;
use headwater_cluster::UplinkFile;
use std::sync::Arc;

/// Publishes or takes lists until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let passing = async {
        match &app.fleet {
            Some(fleet) => {
                let mut lists = fleet.follow_rights();
                loop {
                    let newest = lists.borrow_and_update().clone();
                    app.notices.rights.publish(newest);
                    if lists.changed().await.is_err() {
                        return;
                    }
                }
            }
            None => loop {
                let heard = app.notices.rights.heard().await;
                take(&app, heard).await;
            },
        }
    };
    tokio::select! {
        () = passing => {}
        // An error means that the server has stopped.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

async fn take(app: &Arc<App>, heard: Vec<Vec<u8>>) {
    let taken = app.blocking(move |app| {
        let Some(receiver) = &app.rights.receiver else {
            return Ok(0);
        };
        // Without the file, only a list that is stored already says whom to trust.
        let file = UplinkFile::read(app.settings.db()).ok().flatten();
        let pin = file.and_then(|file| file.rights_key);
        let new = heard
            .iter()
            .filter(|list| receiver.take_heard(list, pin.as_deref()));
        Ok(new.count())
    });
    match taken.await {
        Ok(0) => {}
        Ok(_) => tracing::info!("a list of rights was taken from the bus"),
        Err(error) => tracing::error!(?error, "a list of rights from the bus cannot be taken"),
    }
}
