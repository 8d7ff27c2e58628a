//! `GET /api/v1/watches` and the paths below it: the watches, their events as they happen, and dead
//! letters of web hooks.
//!
//! Invariants: a watch is visible to its owner, and to clients that may read its whole table:
//! events contain rows that its owner reads. Events are sent in the order of their numbers, and
//! expired ones are reported as a gap. Concurrency: a listener is a task that waits for newer
//! events; a watch does not know its listeners.

use crate::access::Access;
use crate::access::rules::Action;
use crate::app::App;
use crate::components::watches::registry::{ActiveWatch, event_json};
use crate::components::watches::retry as send_again;
use crate::error::ApiError;
use crate::request::{answer, event_stream, keep_alive, not_found, query};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use headwater_wire::query::QueryError;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Interval;

/// Header in which a client of server-sent events reports the last event that it received.
const LAST_EVENT: &str = "last-event-id";
/// Number of checks whether a new watch is active, and the pause between them.
const LOOKS: usize = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Events that are sent together.
const EVENTS_AT_ONCE: usize = 256;

/// True when a client may see a watch.
fn may_see(access: &Access, followed: &ActiveWatch) -> bool {
    let definition = followed.watch().definition();
    let is_owner = match access {
        Access::Token { grant, .. } => definition.owner.as_ref() == Some(&grant.id),
        _ => false,
    };
    is_owner || access.may(Action::Read, &definition.table, &[])
}

/// Finds a watch. One that was made just now, or before the server began, is waited for.
async fn find_watch(
    app: &Arc<App>,
    access: &Access,
    name: &str,
) -> Result<Arc<ActiveWatch>, ApiError> {
    for _ in 0..LOOKS {
        if let Some(followed) = app.watches().get(name) {
            let seen = Some(followed).filter(|followed| may_see(access, followed));
            return seen.ok_or_else(|| not_found("watch", &name));
        }
        let wanted = name.to_owned();
        let made = app.blocking(move |app| {
            let mut all = app.sql().query.watches()?.into_iter();
            Ok(all.any(|definition| definition.name == wanted))
        });
        if !made.await? {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err(not_found("watch", &name))
}

fn json_answer(value: &Value) -> Response {
    answer(
        HeaderValue::from_static("application/json"),
        value.to_string(),
    )
}

pub(in crate::components) async fn list(
    State(app): State<Arc<App>>,
    access: Access,
    uri: Uri,
) -> Result<Response, ApiError> {
    query(&uri, &[])?;
    let all = app.watches().all();
    let seen = all.iter().filter(|followed| may_see(&access, followed));
    let seen: Vec<Value> = seen.map(|followed| followed.status()).collect();
    Ok(json_answer(&json!({ "watches": seen })))
}

pub(in crate::components) async fn dead(
    State(app): State<Arc<App>>,
    access: Access,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    query(&uri, &[])?;
    let followed = find_watch(&app, &access, &name).await?;
    let mut out = "{\"dead\":[".to_owned();
    for (at, dead) in followed.dead().iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        // The event is JSON already.
        out.push_str(&format!(
            "{{\"attempts\":{},\"reason\":{},\"event\":{}}}",
            dead.attempts,
            Value::from(dead.reason.as_str()),
            event_json(followed.watch(), &dead.event)
        ));
    }
    out.push_str("]}");
    Ok(answer(HeaderValue::from_static("application/json"), out))
}

pub(in crate::components) async fn retry(
    State(app): State<Arc<App>>,
    access: Access,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["sequence"])?;
    let followed = find_watch(&app, &access, &name).await?;
    if !access.may(Action::Manage, &followed.watch().definition().table, &[]) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "this token may not manage the table of the watch",
        ));
    }
    let wanted: Option<u64> = query.number("sequence")?;
    let tried = app.blocking(move |app| {
        let all = followed.dead().into_iter().map(|dead| dead.event.sequence);
        let all = all.filter(|sequence| wanted.is_none_or(|wanted| wanted == *sequence));
        let (mut delivered, mut failed) = (Vec::new(), Vec::new());
        for sequence in all {
            match send_again(app, &followed, sequence) {
                Ok(()) => delivered.push(sequence),
                Err(failure) => {
                    failed.push(json!({ "sequence": sequence, "reason": failure.reason }));
                    // The next letters would wait for the same failure.
                    break;
                }
            }
        }
        Ok(json!({ "delivered": delivered, "failed": failed }))
    });
    Ok(json_answer(&tried.await?))
}

/// Parses the number of an event: the epoch, and the number.
fn parse_id(text: &str) -> Option<(Option<u64>, u64)> {
    match text.split_once('-') {
        None => Some((None, text.parse().ok()?)),
        Some((epoch, number)) => {
            let epoch = u64::from_str_radix(epoch, 16).ok()?;
            Some((Some(epoch), number.parse().ok()?))
        }
    }
}

pub(in crate::components) async fn events(
    State(app): State<Arc<App>>,
    access: Access,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let query = query(&uri, &["after"])?;
    let followed = find_watch(&app, &access, &name).await?;
    let last_event = headers.get(LAST_EVENT).and_then(|v| v.to_str().ok());
    // A browser that reconnects repeats its first address, and its header is newer.
    let asked = last_event.or(query.one("after")?);
    let (epoch, after) = match asked {
        None => (None, followed.behind(u64::MAX, 0).newest),
        Some(text) => {
            let reason = "expected the id of an event: a number, or EPOCH-NUMBER";
            parse_id(text).ok_or_else(|| QueryError::value("after", reason, text))?
        }
    };
    let clients = app.metrics.live_clients().clone();
    let max = i64::try_from(app.settings.live_clients_max).unwrap_or(i64::MAX);
    if clients.inc() >= max {
        clients.dec();
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "E_BUSY",
            format!(
                "{max} live connections are open, which is the maximum (setting live.clients_max)"
            ),
        )
        .retry_after(5));
    }
    let is_other = epoch.is_some_and(|epoch| epoch != followed.epoch());
    let tail = Tail {
        newest: followed.newest(),
        epoch: followed.epoch(),
        after: if is_other { 0 } else { after },
        is_other,
        followed,
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
    followed: Arc<ActiveWatch>,
    newest: watch::Receiver<u64>,
    epoch: u64,
    after: u64,
    /// The client counts in numbers that are void.
    is_other: bool,
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
            let may_go_on = self.access.is_current() && may_see(&self.access, &self.followed);
            if *self.stopping.borrow() || !may_go_on || self.followed.is_dropped() {
                return None;
            }
            self.newest.borrow_and_update();
            if let Some(events) = self.take_pending() {
                return Some(events);
            }
            tokio::select! {
                // An error means that the watch was removed.
                changed = self.newest.changed() => changed.ok()?,
                // The first tick fires at once: it shows the client that it is subscribed.
                _ = self.ticks.tick() => return Some(Bytes::from_static(b": live\n\n")),
                // An error means that the server has stopped.
                _ = self.stopping.changed() => {}
            }
        }
    }

    /// All pending events, in bounded parts.
    fn take_pending(&mut self) -> Option<Bytes> {
        let behind = self.followed.behind(self.after, EVENTS_AT_ONCE);
        let mut out = String::new();
        // A number larger than the newest one belongs to another epoch.
        let is_ahead = self.after > behind.newest;
        if std::mem::take(&mut self.is_other) || is_ahead {
            self.after = 0;
            out.push_str("event: gap\ndata: {\"missed\":null}\n\n");
            return Some(out.into());
        }
        if behind.missed > 0 {
            out.push_str(&format!(
                "event: gap\ndata: {{\"missed\":{}}}\n\n",
                behind.missed
            ));
        }
        for event in &behind.events {
            out.push_str(&format!(
                "id: {:016x}-{}\nevent: {}\ndata: {}\n\n",
                self.epoch,
                event.sequence,
                event.kind.name(),
                event_json(self.followed.watch(), event)
            ));
            self.after = event.sequence;
        }
        (!out.is_empty()).then(|| out.into())
    }
}
