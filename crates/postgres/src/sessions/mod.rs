//! The door for PostgreSQL's clients: `psql`, drivers, Grafana and other tools speak to the database in SQL.
//!
//! Purpose: sessions of PostgreSQL's protocol, version 3, over TCP, with or without TLS. What a statement means is the query
//! crate's; what messages look like is the wire crate's. The page is `docs/postgres.md`.
//!
//! Invariants: a session begins with a token once tokens are in use, and every statement is under that token's rules; a
//! token is asked for only where others cannot listen. There are never more sessions than the setting allows. Nobody holds a
//! place for long without having said who it is.
//!
//! Concurrency: a task for each connection; what they share are the numbers by which one cancels what another one does.
//! Failure: an error is told to the client with PostgreSQL's code for it; a message that cannot be read, or a panic, ends its
//! connection and nothing else.

mod answer;
mod cancel;
mod commands;
mod connection;
mod copy;
mod cursors;
mod errors;
mod extended;
mod link;
mod listing;
mod simple;
mod startup;
mod statement;
mod values;

use crate::app::App;
use crate::tls::Certificate;
use cancel::Cancels;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// After a failure to take a connection, which is most often a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections that are told at one time that there are too many.
const REFUSALS_MAX: usize = 16;

/// Most connections that have not said who they are.
const STARTING_MAX: usize = 512;
const STARTING_HALF: usize = STARTING_MAX / 2;
/// How long they have for it where there are many.
const CROWDED: Duration = Duration::from_secs(1);

/// What a connection needs to become a session.
struct Begins {
    app: Arc<App>,
    cancels: Arc<Cancels>,
    certificate: Option<Arc<Certificate>>,
    /// One for each session that may be.
    places: Arc<Semaphore>,
    /// Held until it has said who it is.
    _start: OwnedSemaphorePermit,
    /// How long it has for it.
    limit: Duration,
}

/// The listener of the door.
pub(crate) struct Door {
    pub(crate) app: Arc<App>,
    pub(crate) listener: TcpListener,
    pub(crate) certificate: Option<Arc<Certificate>>,
}

impl Door {
    /// Serves until `stop` is true or nobody can say so any more. Returns whether every statement ended in time.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) -> bool {
        let Door {
            app,
            listener,
            certificate,
        } = self;
        let places = Arc::new(Semaphore::new(app.settings.postgres_connections_max));
        let starting = Arc::new(Semaphore::new(STARTING_MAX));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let cancels = Arc::new(Cancels::default());
        let mut connections = JoinSet::new();
        let stopped = async {
            // An error means that the sender is gone: that is a stop too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stopped);
        loop {
            let taken = tokio::select! {
                biased;
                () = &mut stopped => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    told(ended);
                    continue;
                }
                taken = listener.accept() => taken,
            };
            let stream = match taken.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                Ok(stream)
            }) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection of PostgreSQL's protocol could not be taken");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let Ok(start) = Arc::clone(&starting).try_acquire_owned() else {
                app.metrics.postgres().refused("too_many");
                if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
                    connections.spawn(async move {
                        startup::refuse(stream).await;
                        drop(place);
                    });
                }
                continue;
            };
            // Where many begin, those that say nothing make room soon.
            let limit = match starting.available_permits() {
                0..STARTING_HALF => CROWDED.min(app.settings.postgres_startup_timeout),
                _ => app.settings.postgres_startup_timeout,
            };
            let begins = Begins {
                app: Arc::clone(&app),
                cancels: Arc::clone(&cancels),
                certificate: certificate.clone(),
                places: Arc::clone(&places),
                _start: start,
                limit,
            };
            let app = Arc::clone(&app);
            connections.spawn(async move {
                let open = app.metrics.postgres().connections().clone();
                open.inc();
                let _closed = Closed(open);
                if let Err(error) = startup::session(begins, stream).await {
                    // Clients go away as they like.
                    tracing::debug!(%error, "a connection of PostgreSQL's protocol ended early");
                }
            });
        }
        // Nobody may connect any more while the rest ends.
        drop(listener);
        let limit = app.settings.shutdown_timeout;
        let ended = tokio::time::timeout(limit, async {
            while let Some(ended) = connections.join_next().await {
                told(ended);
            }
        });
        ended.await.is_ok()
    }
}

/// Counts a connection as closed, also after a panic.
struct Closed(prometheus_client::metrics::gauge::Gauge);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn told(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a session of PostgreSQL's protocol panicked");
    }
}
