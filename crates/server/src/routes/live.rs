//! New values of channels as server-sent events.
//!
//! Invariant: an answer ends when its client disconnects, when the server stops, and at the latest
//! at the next keep-alive when the token is no longer valid.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::live::Subscription;
use crate::request::{channels, event_stream, keep_alive, not_found, query};
use crate::routes::{Needs, Route};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Interval;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/live", Needs::Read, live)]
}

async fn live(State(app): State<Arc<App>>, access: Access, uri: Uri) -> Result<Response, ApiError> {
    let query = query(&uri, &["channel"])?;
    let channels = channels(&query)?;
    let looked = {
        let (access, channels) = (access.clone(), channels.clone());
        app.blocking(move |app| {
            let snapshot = app.snapshot()?;
            for (text, channel) in &channels {
                let resolved = access.resolve(&snapshot, &channel.stream, &channel.field)?;
                if resolved.is_none() {
                    return Err(not_found("channel", text));
                }
            }
            Ok(())
        })
    };
    looked.await?;
    let max = app.settings.live_clients_max;
    let Some(subscription) = app.live.subscribe(&channels, max) else {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_BUSY",
            format!(
                "{max} live connections are open, which is the maximum (setting live.clients_max)"
            ),
        )
        .retry_after(5));
    };
    let clients = app.metrics.live_clients().clone();
    clients.inc();
    let tail = Tail {
        subscription,
        clients,
        access,
        ticks: keep_alive(),
        stopping: app.shell.stopping(),
    };
    Ok(event_stream(tail, async |mut tail| {
        Some((tail.next().await?, tail))
    }))
}

struct Tail {
    subscription: Subscription,
    clients: Gauge,
    access: Access,
    ticks: Interval,
    stopping: watch::Receiver<bool>,
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.clients.dec();
    }
}

impl Tail {
    /// The next bytes of the answer; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if *self.stopping.borrow() || !self.access.is_current() {
                return None;
            }
            if let Some(events) = self.subscription.take_pending() {
                return Some(events.into());
            }
            tokio::select! {
                () = self.subscription.woken() => {}
                // The first tick fires at once: it shows the client that it is subscribed.
                _ = self.ticks.tick() => {
                    if self.access.is_current() {
                        return Some(Bytes::from_static(b": live\n\n"));
                    }
                }
                // An error means that the server has stopped.
                _ = self.stopping.changed() => {}
            }
        }
    }
}
