//! New values of channels as server-sent events.
//!
//! Invariant: an answer ends when its client disconnects, when the server stops, and at the latest
//! at the next keep-alive when the token is no longer valid.

use crate::access::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::live::Subscription;
use crate::request::{answer, at_most, channel_type, not_found, parse_channel, query};
use crate::routes::{Needs, Route};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use futures_util::stream;
use prometheus_client::metrics::gauge::Gauge;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Maximum channels of one answer.
const CHANNELS_MAX: usize = 64;
/// Interval of keep-alive comments.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/api/v1/live", Needs::Read, live)]
}

async fn live(State(app): State<Arc<App>>, access: Access, uri: Uri) -> Result<Response, ApiError> {
    let query = query(&uri, &["channel"])?;
    query.all("channel").next().map_or_else(
        || query.required("channel", "table,tag=value.field, at least once"),
        Ok,
    )?;
    at_most(query.all("channel").count(), CHANNELS_MAX, "channels")?;
    let channels = query
        .all("channel")
        .map(|text| Ok((text.to_owned(), parse_channel(text)?)))
        .collect::<Result<Vec<_>, ApiError>>()?;
    let looked = {
        let (access, channels) = (access.clone(), channels.clone());
        app.blocking(move |app| {
            let snapshot = app.snapshot()?;
            for (text, channel) in &channels {
                if channel_type(&snapshot, &access, channel)?.is_none() {
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
            format!("{max} live answers are open, as many as may be (setting live.clients_max)"),
        )
        .retry_after(5));
    };
    let mut ticks = interval(KEEP_ALIVE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let clients = app.metrics.live_clients().clone();
    clients.inc();
    let tail = Tail {
        subscription,
        clients,
        access,
        ticks,
        stopping: app.shell.stopping(),
    };
    let events = stream::unfold(tail, |mut tail| async {
        let bytes = tail.next().await?;
        Some((Ok::<_, Infallible>(bytes), tail))
    });
    let mut response = answer(HeaderValue::from_static("text/event-stream"), Bytes::new());
    *response.body_mut() = Body::from_stream(events);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies must not buffer events.
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
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
            if let Some(events) = self.subscription.take() {
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
