//! Connections of edges on bare sockets, for programs without an HTTP server: benchmarks and tests.
//!
//! Invariants: the head of a request is bounded; a connection begins with a key or an invitation
//! that the node knows. Failure: a request that ends early gets no answer.

use crate::copies::EdgeCopies;
use crate::session::accept_key;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// Longest head of a request.
const HEAD_MAX: usize = 16 << 10;

/// The head of a request by HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead(String);

impl RequestHead {
    /// Reads a head; `None` if the client disconnects first, or the head is too long.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<RequestHead> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == HEAD_MAX {
                return None;
            }
            head.push(stream.read_u8().await.ok()?);
        }
        Some(RequestHead(String::from_utf8_lossy(&head).into_owned()))
    }

    /// The path, with its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_default()
    }

    /// Value of a header; empty if it is absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let found = self.0.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        });
        found.unwrap_or_default()
    }
}

impl EdgeCopies {
    /// Answers the request of an edge for a connection, and serves the connection until it ends or
    /// the program stops.
    pub async fn serve_request<S: AsyncRead + AsyncWrite + Unpin>(
        self: Arc<EdgeCopies>,
        head: &RequestHead,
        mut stream: S,
        stopping: watch::Receiver<bool>,
    ) {
        let secret = head.header("authorization").replace("Bearer ", "");
        let accept = accept_key(head.header("sec-websocket-key"));
        let answer = match self.edge_of_secret(&secret) {
            Ok(_) => format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
            ),
            Err(_) => "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        if stream.write_all(answer.as_bytes()).await.is_ok() {
            self.serve(stream, &secret, stopping).await;
        }
    }
}
