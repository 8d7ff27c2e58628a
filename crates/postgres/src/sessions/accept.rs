//! Accepting connections, each of which may become a session.

use super::cancel::Cancels;
use super::front_end::{Begins, FrontEnd};
use super::startup;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Pause after a failure to accept a connection, which is most often a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum connections that are being refused at the same time.
const REFUSALS_MAX: usize = 16;

/// Maximum connections that have not authenticated yet.
const STARTING_MAX: usize = 512;
const STARTING_HALF: usize = STARTING_MAX / 2;
/// Time limit of authentication when many connections are unauthenticated.
const CROWDED: Duration = Duration::from_secs(1);

impl FrontEnd {
    /// Serves until the server stops. Returns true when every statement ended in time.
    pub async fn run(self: Arc<Self>, listener: TcpListener) -> bool {
        let mut stop = self.stopping.clone();
        let settings = &self.settings;
        let places = Arc::new(Semaphore::new(settings.connections_max));
        let starting = Arc::new(Semaphore::new(STARTING_MAX));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let cancels = Arc::new(Cancels::default());
        let mut connections = JoinSet::new();
        let stopped = async {
            // An error means that the sender was dropped, which is a stop too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stopped);
        loop {
            let taken = tokio::select! {
                biased;
                () = &mut stopped => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    log_panic(ended);
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
                    tracing::warn!(%error, "a connection of PostgreSQL's protocol could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let Ok(start) = Arc::clone(&starting).try_acquire_owned() else {
                self.metrics.refused("too_many");
                if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
                    connections.spawn(async move {
                        startup::refuse(stream).await;
                        drop(place);
                    });
                }
                continue;
            };
            // When many connections are starting, silent ones are closed soon.
            let limit = match starting.available_permits() {
                0..STARTING_HALF => CROWDED.min(settings.startup_timeout),
                _ => settings.startup_timeout,
            };
            let begins = Begins {
                front_end: Arc::clone(&self),
                cancels: Arc::clone(&cancels),
                slots: Arc::clone(&places),
                _start: start,
                limit,
            };
            let open = self.metrics.connections().clone();
            connections.spawn(async move {
                open.inc();
                let _closed = Closed(open);
                if let Err(error) = startup::session(begins, stream).await {
                    // Clients may disconnect at any time.
                    tracing::debug!(%error, "a connection of PostgreSQL's protocol ended early");
                }
            });
        }
        // Nobody may connect any more while the rest ends.
        drop(listener);
        let limit = settings.shutdown_timeout;
        let ended = tokio::time::timeout(limit, async {
            while let Some(ended) = connections.join_next().await {
                log_panic(ended);
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

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a session of PostgreSQL's protocol panicked");
    }
}
