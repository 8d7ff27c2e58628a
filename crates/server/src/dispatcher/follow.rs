//! Following a node: asking what it holds, and then for what changes, one question after the other.
//!
//! Invariants: what is known of a node comes from its own answers only. A question waits at the
//! node until something changes, so a change is known within moments; whatever is lost on the way
//! costs time and nothing else.
//! Concurrency: one worker for each node.
//! Failure: a node that does not answer is told of in the log once, and asked again, later and
//! later.

use super::desk::Desk;
use crate::access::token::hex;
use crate::routes::held::TICKET_KEY;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use headwater_dispatch::{Applied, NodeIndex, decode};
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
/// Largest answer in bytes: ten million streams and a hundred million tiles.
const ANSWER_BYTES_MAX: usize = 256 << 20;

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server is gone: that is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Follows a node until the server stops.
pub(crate) async fn follow(desk: Arc<Desk>, at: NodeIndex, mut stopping: watch::Receiver<bool>) {
    let mut pause = PAUSE_MIN;
    loop {
        let asked = tokio::select! {
            asked = ask(&desk, at) => asked,
            () = stopped(&mut stopping) => return,
        };
        match asked {
            Ok(()) => {
                pause = PAUSE_MIN;
                if let Some(node) = desk.node(at)
                    && node.error.lock().take().is_some()
                {
                    tracing::info!(node = node.peer.url(), "a node answers again");
                }
            }
            Err(why) => {
                desk.lost(at, &why);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stopped(&mut stopping) => return,
                }
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        tell(&desk, at);
    }
}

fn tell(desk: &Desk, at: NodeIndex) {
    let figures = desk.tables.read().figures(at);
    if let (Some(figures), Some(node)) = (figures, desk.node(at)) {
        desk.figures.of_node(node.peer.url(), &figures);
    }
}

fn request(desk: &Desk, at: NodeIndex) -> Result<Request<Body>, String> {
    let (position, is_live) = {
        let tables = desk.tables.read();
        let is_live = tables.figures(at).is_some_and(|figures| figures.is_live);
        (tables.position(at), is_live)
    };
    // Of a node that was lost it is to be known at once whether it answers.
    let wait = if is_live { WAIT_SECONDS } else { 0 };
    let path = format!(
        "/api/v1/held?epoch={}&since={}&wait={wait}",
        position.epoch, position.version
    );
    let mut request = Request::get(path).header(TICKET_KEY, hex(&desk.key.public()));
    if let Some(token) = &desk.token {
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let bearer = bearer.map_err(|_| "the token is no text of one".to_owned())?;
        request = request.header(header::AUTHORIZATION, bearer);
    }
    request.body(Body::empty()).map_err(|e| e.to_string())
}

/// Asks once. What went wrong is in words for the log.
async fn ask(desk: &Desk, at: NodeIndex) -> Result<(), String> {
    let request = request(desk, at)?;
    let node = desk.node(at).ok_or("there is no such node")?;
    let most = ANSWER_MAX + Duration::from_secs(WAIT_SECONDS);
    let asked = async {
        let response = node.peer.send(request).await.map_err(|e| e.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((status, body.to_bytes()))
    };
    let (status, body) = tokio::time::timeout(most, asked)
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
    let applied = desk.tables.write().apply(at, held);
    if applied == Applied::DoesNotFollow {
        tracing::debug!(
            node = node.peer.url(),
            "all that a node holds is asked for anew"
        );
    }
    Ok(())
}
