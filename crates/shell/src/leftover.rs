//! The rest of a small request body that the handler has not read.
//!
//! HTTP/1.1 connections are closed after an answer while a part of the request is still unread, and
//! the client, which cannot know this, would lose its next request over the connection. So the rest
//! of a small body is read and discarded before the answer is sent.
//!
//! Invariants: at most [`SMALL`] bytes and [`PATIENCE`] are spent on a request. Bodies of unknown
//! length or above that size are passed on as they are. Concurrency: the handler and the drain
//! share the body, one after the other. Failure: a client that sends slower loses the connection.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Maximum length of a body whose rest is read.
const SMALL: u64 = 64 << 10;
/// Time limit of reading the rest.
const PATIENCE: Duration = Duration::from_secs(1);

/// A body that is shared with its handler.
#[derive(Clone, Debug)]
pub(crate) struct Leftover(Arc<Mutex<Body>>);

impl Leftover {
    /// Shares the body of a request, if it is small and not empty.
    pub(crate) fn share(request: &mut Request) -> Option<Leftover> {
        let body = request.body();
        let is_small = body.size_hint().upper().is_some_and(|most| most <= SMALL);
        if body.is_end_stream() || !is_small {
            return None;
        }
        let shared = Leftover(Arc::new(Mutex::new(std::mem::take(request.body_mut()))));
        *request.body_mut() = Body::new(shared.clone());
        Some(shared)
    }

    /// Reads what the handler has not read.
    pub(crate) async fn discard(mut self) {
        let rest = async { while let Some(Ok(_)) = self.frame().await {} };
        // A client that sends slower does without the connection.
        let _ = tokio::time::timeout(PATIENCE, rest).await;
    }
}

impl HttpBody for Leftover {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.lock().size_hint()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn request(body: Body) -> Request {
        Request::new(body)
    }

    #[test]
    fn only_small_bodies_that_are_not_empty_are_shared() {
        assert!(Leftover::share(&mut request(Body::empty())).is_none());
        assert!(Leftover::share(&mut request(Body::from(vec![0; 70_000]))).is_none());
        assert!(Leftover::share(&mut request(Body::from("a=1"))).is_some());
    }

    #[tokio::test]
    async fn what_the_handler_reads_is_the_whole_body() {
        let mut read = request(Body::from("cpu v=1"));
        let rest = Leftover::share(&mut read).unwrap();
        let bytes = read.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes, "cpu v=1");
        rest.discard().await;
    }
}
