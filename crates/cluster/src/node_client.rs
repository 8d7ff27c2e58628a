//! HTTP client for a node or an edge, with cached connections.
//!
//! Invariants: at most [`IDLE_MAX`] idle connections are cached. A request is sent once: where the
//! peer has just closed a cached connection, a request without a body, or of which nothing was sent
//! yet, is sent again on a new one.
//! Concurrency: shared by all requests; the list of connections is locked for look-ups only.
//! Failure: [`NodeClientError`]; an answer of the peer is never an error.

use crate::ClusterError;
use crate::ca_file::CaFile;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Idle connections that are cached.
const IDLE_MAX: usize = 64;
/// Longest time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Reason for a missing answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeClientError {
    /// Connecting failed.
    #[error(transparent)]
    Connect(#[from] ClusterError),
    /// Connecting took too long.
    #[error("{0}: no connection within {CONNECT_MAX:?}")]
    Slow(String),
    /// The connection ended without an answer.
    #[error("{url}: {source}")]
    Ended {
        /// Address of the peer.
        url: String,
        /// Cause of the end.
        source: hyper::Error,
    },
}

/// Node or edge, and connections to it.
#[derive(Debug)]
pub(crate) struct NodeClient {
    url: String,
    ca: Option<Arc<CaFile>>,
    idle: Mutex<Vec<SendRequest<Body>>>,
}

impl NodeClient {
    pub(crate) fn new(url: &str, ca: Option<Arc<CaFile>>) -> NodeClient {
        NodeClient {
            url: url.to_owned(),
            ca,
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn idle_connection(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock();
        idle.retain(|connection| !connection.is_closed());
        let at = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(at))
    }

    fn return_connection(&self, connection: SendRequest<Body>) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    async fn connect(&self) -> Result<SendRequest<Body>, NodeClientError> {
        let ca = self.ca.as_ref().map(|file| file.text());
        let connecting = crate::connect(&self.url, ca.as_deref());
        let connected = tokio::time::timeout(CONNECT_MAX, connecting).await;
        let (stream, _) = connected.map_err(|_| NodeClientError::Slow(self.url.clone()))??;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|source| self.ended(source))?;
        tokio::spawn(async move {
            // The task that awaits an answer on the connection receives its error.
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn ended(&self, source: hyper::Error) -> NodeClientError {
        NodeClientError::Ended {
            url: self.url.clone(),
            source,
        }
    }

    /// `HOST` or `HOST:PORT`.
    fn authority(&self) -> &str {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        rest.strip_suffix('/').unwrap_or(rest)
    }

    /// Sends a request to a path of the node.
    pub(crate) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, NodeClientError> {
        if let Ok(host) = HeaderValue::from_str(self.authority()) {
            request.headers_mut().insert(header::HOST, host);
        }
        let is_empty = axum::body::HttpBody::is_end_stream(request.body());
        if let Some(mut connection) = self.idle_connection() {
            let again = is_empty.then(|| head_of(&request));
            match connection.try_send_request(request).await {
                Ok(response) => {
                    self.return_connection(connection);
                    return Ok(response);
                }
                Err(mut failed) => match failed.take_message().or(again) {
                    None => return Err(self.ended(failed.into_error())),
                    Some(unsent) => request = unsent,
                },
            }
        }
        let mut connection = self.connect().await?;
        let sent = connection.send_request(request).await;
        let response = sent.map_err(|source| self.ended(source))?;
        self.return_connection(connection);
        Ok(response)
    }
}

/// A copy of the request without its body.
fn head_of(request: &Request<Body>) -> Request<Body> {
    let mut head = Request::new(Body::empty());
    head.method_mut().clone_from(request.method());
    head.uri_mut().clone_from(request.uri());
    head.headers_mut().clone_from(request.headers());
    head
}
