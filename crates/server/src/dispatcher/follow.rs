//! Following a node: asking what it holds, and then for what changes, one question after the other.
//!
//! Invariants: what is known of a node comes from its own answers only. A question waits at the
//! node until something changes, so a change is known within moments. Where a broker carries
//! notices of the node, none waits: it is asked when one comes, and now and then. Whatever is lost
//! on the way costs time and nothing else. Each question tells the node who was revoked not long
//! ago; when somebody is, it is asked within two seconds.
//! Concurrency: one worker for each node.
//! Failure: a node that does not answer is told of in the log once, and asked again, later and
//! later.

use super::desk::Desk;
use crate::access::token::{from_hex, hex};
use crate::notices::next;
use crate::routes::held::{NOTICE_KEY, REVOKED, TICKET_KEY};
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use headwater_protocol::dispatch::{Applied, NodeIndex, decode};
use headwater_protocol::notice::{Bus, Due, Event, Follower, Sealed, Subscription, Told, Why};
use http_body_util::{BodyExt, Limited};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a question waits at the node.
const WAIT_SECONDS: u64 = 20;
/// Longest time for an answer besides.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often is looked whether somebody was revoked.
const LOOK_AT_LIST: Duration = Duration::from_secs(1);
/// Largest answer in bytes: ten million streams and a hundred million tiles.
const ANSWER_BYTES_MAX: usize = 256 << 20;

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server is gone: that is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Follows a node until the server stops.
pub(crate) async fn follow(desk: Arc<Desk>, at: NodeIndex, mut stopping: watch::Receiver<bool>) {
    let following = Following {
        follower: Follower::new(desk.notices.check()),
        notices: desk.notices.subscribe(),
        pause: PAUSE_MIN,
        revoked: String::new(),
        desk,
        at,
    };
    tokio::select! {
        () = following.run() => {}
        () = stopped(&mut stopping) => {}
    }
}

/// What follows one node.
struct Following {
    desk: Arc<Desk>,
    at: NodeIndex,
    follower: Follower,
    notices: Subscription,
    pause: Duration,
    /// What the node was told of who was revoked.
    revoked: String,
}

impl Following {
    async fn run(mut self) {
        loop {
            while let Some(event) = self.notices.next_now() {
                self.hear(&event);
            }
            let now = self.desk.shell.env().clock.monotonic();
            match self.follower.due(now) {
                Due::Now(why) => self.ask(why).await,
                Due::Waiting => self.wait_there().await,
                Due::At(then) => {
                    let wait = then.saturating_sub(now);
                    tokio::select! {
                        event = next(&mut self.notices) => self.hear(&event),
                        () = tokio::time::sleep(wait) => {}
                        () = revoked_since(&self.desk, &self.revoked) => self.ask(Why::Check).await,
                    }
                }
            }
            tell(&self.desk, self.at);
        }
    }

    fn hear(&mut self, event: &Event) {
        let bytes = match event {
            Event::Link(is_there) => return self.follower.link(*is_there),
            Event::Notice { bytes, .. } => bytes,
        };
        let figures = &self.desk.notices.figures;
        match Sealed::decode(bytes) {
            Ok(sealed) => {
                let heard = self.follower.hear(&sealed);
                figures.heard(heard);
            }
            // All who follow a node hear it, and one of them counts it.
            Err(_) if self.at == NodeIndex(0) => figures.garbled(),
            Err(_) => {}
        }
    }

    /// Asks once for a reason: the answer comes at once.
    async fn ask(&mut self, why: Why) {
        self.desk.notices.figures.asked(Some(why));
        self.follower.asks();
        self.revoked = self.desk.shell.guard().revoked();
        let answer = ask(&self.desk, self.at, false).await;
        self.take(answer).await;
    }

    /// Asks once, and has the question wait at the node; a change of the link ends it.
    async fn wait_there(&mut self) {
        self.desk.notices.figures.asked(None);
        self.follower.asks();
        self.revoked = self.desk.shell.guard().revoked();
        let answer = tokio::select! {
            answer = ask(&self.desk, self.at, true) => answer,
            // The next question tells it.
            () = revoked_since(&self.desk, &self.revoked) => return,
            is_linked = link(&mut self.notices) => return self.follower.link(is_linked),
        };
        self.take(answer).await;
    }

    /// Takes an answer in, and pauses where there was none.
    async fn take(&mut self, answer: Result<Option<Told>, String>) {
        match answer {
            Ok(Some(told)) => {
                let now = self.desk.shell.env().clock.monotonic();
                self.follower.answered(now, told);
                self.pause = PAUSE_MIN;
                if let Some(node) = self.desk.node(self.at)
                    && node.error.lock().take().is_some()
                {
                    tracing::info!(node = node.peer.url(), "a node answers again");
                }
            }
            Ok(None) => self.follower.failed(),
            Err(why) => {
                self.follower.failed();
                self.desk.lost(self.at, &why);
                tokio::time::sleep(self.pause).await;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Waits until the link of the bus changes. Notices that come until then are of nodes that are not
/// waited at.
async fn link(from: &mut Subscription) -> bool {
    loop {
        if let Event::Link(is_linked) = next(from).await {
            return is_linked;
        }
    }
}

/// Waits until others were revoked than those that the node was told of.
async fn revoked_since(desk: &Desk, told: &str) {
    while desk.shell.guard().revoked() == told {
        tokio::time::sleep(LOOK_AT_LIST).await;
    }
}

fn tell(desk: &Desk, at: NodeIndex) {
    let figures = desk.tables.read().figures(at);
    if let (Some(figures), Some(node)) = (figures, desk.node(at)) {
        desk.figures.of_node(node.peer.url(), &figures);
    }
}

fn request(desk: &Desk, at: NodeIndex, waits: bool) -> Result<Request<Body>, String> {
    let (position, is_live) = {
        let tables = desk.tables.read();
        let is_live = tables.figures(at).is_some_and(|figures| figures.is_live);
        (tables.position(at), is_live)
    };
    // Of a node that was lost it is to be known at once whether it answers.
    let wait = if is_live && waits { WAIT_SECONDS } else { 0 };
    let path = format!(
        "/api/v1/held?epoch={}&since={}&wait={wait}",
        position.epoch, position.version
    );
    let mut request = Request::get(path).header(TICKET_KEY, hex(&desk.key.public()));
    let revoked = HeaderValue::from_str(&desk.shell.guard().revoked());
    request = request.header(REVOKED, revoked.map_err(|e| e.to_string())?);
    if let Some(token) = &desk.token {
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let bearer = bearer.map_err(|_| "the token is no text of one".to_owned())?;
        request = request.header(header::AUTHORIZATION, bearer);
    }
    request.body(Body::empty()).map_err(|e| e.to_string())
}

/// Asks once. Nothing where all is to be asked for anew. What went wrong is in words for the log.
async fn ask(desk: &Desk, at: NodeIndex, waits: bool) -> Result<Option<Told>, String> {
    let request = request(desk, at, waits)?;
    let node = desk.node(at).ok_or("there is no such node")?;
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
            .unwrap_or("it says no more");
        return Err(format!("answered {status}: {said}"));
    }
    let held = decode(&body).map_err(|e| format!("what it says it holds: {e}"))?;
    let told = Told {
        identity: held.database.identity,
        incarnation: held.database.incarnation,
        epoch: held.epoch,
        version: held.version,
        key: key.and_then(|key| key.to_str().ok().and_then(from_hex)),
    };
    let applied = desk.tables.write().apply(at, held);
    if applied == Applied::DoesNotFollow {
        tracing::debug!(
            node = node.peer.url(),
            "all that a node holds is asked for anew"
        );
        return Ok(None);
    }
    Ok(Some(told))
}
