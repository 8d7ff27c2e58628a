//! Follows a node: fetches its inventory, and then its changes, one request after the other.
//!
//! Invariants: the inventory of a node is made of its own answers only. A request waits at the node
//! until something changes, so a change is known within moments. Where a broker carries notices of
//! the node, requests do not wait: a notice or a timer triggers the next request. A lost message
//! costs only time. Each request reports recently revoked tokens to the node; a new revocation is
//! sent within two seconds. Concurrency: one worker for each node. Failure: a node that does not
//! answer is logged once, and retried with growing pauses.

use super::state::DispatcherState;
use crate::inventory::{NOTICE_KEY, REVOKED, TICKET_KEY};
use crate::notices::next;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use headwater_protocol::dispatch::{Applied, NodeIndex, decode};
use headwater_protocol::notice::{
    Bus, Due, Event, Follower, NodeVersion, QueryReason, Sealed, Subscription,
};
use headwater_shell::access::token::{from_hex, hex};
use http_body_util::{BodyExt, Limited};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Seconds that a request waits at the node.
const WAIT_SECONDS: u64 = 20;
/// Longest additional time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Interval of looking for revoked tokens.
const LOOK_AT_LIST: Duration = Duration::from_secs(1);
/// Largest answer in bytes: ten million streams and a hundred million tiles.
const ANSWER_BYTES_MAX: usize = 256 << 20;

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server has stopped.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Follows a node until the server stops.
pub(crate) async fn follow(
    state: Arc<DispatcherState>,
    at: NodeIndex,
    mut stopping: watch::Receiver<bool>,
) {
    let following = Following {
        follower: Follower::new(state.notices.check()),
        notices: state.notices.subscribe(),
        pause: PAUSE_MIN,
        revoked: String::new(),
        state,
        at,
    };
    tokio::select! {
        () = following.run() => {}
        () = stopped(&mut stopping) => {}
    }
}

/// Worker that follows one node.
struct Following {
    state: Arc<DispatcherState>,
    at: NodeIndex,
    follower: Follower,
    notices: Subscription,
    pause: Duration,
    /// Revoked tokens that the node was notified of.
    revoked: String,
}

impl Following {
    async fn run(mut self) {
        loop {
            while let Some(event) = self.notices.next_now() {
                self.receive(&event);
            }
            let now = self.state.shell.env().clock.monotonic();
            match self.follower.due(now) {
                Due::Now(why) => self.query(why).await,
                Due::Waiting => self.wait_there().await,
                Due::At(then) => {
                    let wait = then.saturating_sub(now);
                    tokio::select! {
                        event = next(&mut self.notices) => self.receive(&event),
                        () = tokio::time::sleep(wait) => {}
                        () = revoked_since(&self.state, &self.revoked) => self.query(QueryReason::Check).await,
                    }
                }
            }
            update_metrics(&self.state, self.at);
        }
    }

    fn receive(&mut self, event: &Event) {
        let bytes = match event {
            Event::Link(is_there) => return self.follower.link(*is_there),
            Event::Notice { bytes, .. } => bytes,
        };
        let metrics = &self.state.notices.metrics;
        match Sealed::decode(bytes) {
            Ok(sealed) => {
                let heard = self.follower.receive(&sealed);
                metrics.count_notice(heard);
            }
            // Every worker receives the notice, and the first one counts it.
            Err(_) if self.at == NodeIndex(0) => metrics.garbled(),
            Err(_) => {}
        }
    }

    /// Sends one request for a reason, which the node answers at once.
    async fn query(&mut self, why: QueryReason) {
        self.state.notices.metrics.count_query(Some(why));
        self.follower.begin_query();
        self.revoked = self.state.shell.guard().revoked();
        let answer = send_request(&self.state, self.at, false).await;
        self.take(answer).await;
    }

    /// Sends one request that waits at the node; a change of the link ends it.
    async fn wait_there(&mut self) {
        self.state.notices.metrics.count_query(None);
        self.follower.begin_query();
        self.revoked = self.state.shell.guard().revoked();
        let answer = tokio::select! {
            answer = send_request(&self.state, self.at, true) => answer,
            // The next request reports it.
            () = revoked_since(&self.state, &self.revoked) => return,
            is_linked = link(&mut self.notices) => return self.follower.link(is_linked),
        };
        self.take(answer).await;
    }

    /// Applies an answer, and pauses after a failure.
    async fn take(&mut self, answer: Result<Option<NodeVersion>, String>) {
        match answer {
            Ok(Some(told)) => {
                let now = self.state.shell.env().clock.monotonic();
                self.follower.answered(now, told);
                self.pause = PAUSE_MIN;
                if let Some(node) = self.state.node(self.at)
                    && node.error.lock().take().is_some()
                {
                    tracing::info!(node = node.peer.url(), "a node answers again");
                }
            }
            Ok(None) => self.follower.failed(),
            Err(why) => {
                self.follower.failed();
                self.state.lost(self.at, &why);
                tokio::time::sleep(self.pause).await;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Waits until the link of the bus changes. Notices that arrive meanwhile are of nodes at which no
/// request waits.
async fn link(from: &mut Subscription) -> bool {
    loop {
        if let Event::Link(is_linked) = next(from).await {
            return is_linked;
        }
    }
}

/// Waits until the revoked tokens differ from the ones reported to the node.
async fn revoked_since(state: &DispatcherState, told: &str) {
    while state.shell.guard().revoked() == told {
        tokio::time::sleep(LOOK_AT_LIST).await;
    }
}

fn update_metrics(state: &DispatcherState, at: NodeIndex) {
    let figures = state.tables.read().stats(at);
    if let (Some(figures), Some(node)) = (figures, state.node(at)) {
        state.metrics.of_node(node.peer.url(), &figures);
    }
}

fn request(state: &DispatcherState, at: NodeIndex, waits: bool) -> Result<Request<Body>, String> {
    let (position, is_live) = {
        let tables = state.tables.read();
        let is_live = tables.stats(at).is_some_and(|figures| figures.is_live);
        (tables.position(at), is_live)
    };
    // A lost node must answer at once, so that its recovery is noticed.
    let wait = if is_live && waits { WAIT_SECONDS } else { 0 };
    let path = format!(
        "/api/v1/held?epoch={}&since={}&wait={wait}",
        position.epoch, position.version
    );
    let mut request = Request::get(path).header(TICKET_KEY, hex(&state.key.public()));
    let revoked = HeaderValue::from_str(&state.shell.guard().revoked());
    request = request.header(REVOKED, revoked.map_err(|e| e.to_string())?);
    if let Some(token) = &state.token {
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let bearer = bearer.map_err(|_| "the text is not a valid token".to_owned())?;
        request = request.header(header::AUTHORIZATION, bearer);
    }
    request.body(Body::empty()).map_err(|e| e.to_string())
}

/// Sends one request. `None` where the whole inventory must be fetched again. The error is a text
/// for the log.
async fn send_request(
    state: &DispatcherState,
    at: NodeIndex,
    waits: bool,
) -> Result<Option<NodeVersion>, String> {
    let request = request(state, at, waits)?;
    let node = state
        .node(at)
        .ok_or("this dispatcher has no address of the node yet")?;
    let most = ANSWER_MAX + Duration::from_secs(WAIT_SECONDS);
    let asked = async {
        let response = node.peer.send(request).await.map_err(|e| e.to_string())?;
        let status = response.status();
        let key = response.headers().get(NOTICE_KEY).cloned();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((status, key, body.to_bytes()))
    };
    let (status, key, body) = tokio::time::timeout(most, asked)
        .await
        .map_err(|_| "no answer in time".to_owned())??;
    if status != StatusCode::OK {
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let said = said
            .get("message")
            .and_then(|m| m.as_str())
            .unwrap_or("it has stopped answering");
        return Err(format!("answered {status}: {said}"));
    }
    let held = decode(&body).map_err(|e| format!("its inventory: {e}"))?;
    let told = NodeVersion {
        identity: held.database.identity,
        incarnation: held.database.incarnation,
        epoch: held.epoch,
        version: held.version,
        key: key.and_then(|key| key.to_str().ok().and_then(from_hex)),
    };
    let applied = state.tables.write().apply(at, held);
    if applied == Applied::DoesNotFollow {
        tracing::debug!(
            node = node.peer.url(),
            "the complete inventory of a node is fetched again"
        );
        return Ok(None);
    }
    Ok(Some(told))
}
