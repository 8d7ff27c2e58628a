//! A connection that is closed when its client does not read for long.
//!
//! Without this, a client that requests much and never reads would occupy the buffers of its
//! answer, and delay the server's stop, without limit.
//!
//! Invariant: a write that progresses, however slowly, is never cut off.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

/// Interval of checks of a waiting write.
const LOOK: Duration = Duration::from_secs(1);

/// A connection whose writes must progress.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    limit: Duration,
    stopping: watch::Receiver<bool>,
    /// While a write waits: its start, and the timer of the next check.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S> Patient<S> {
    /// A connection whose client must read within `limit`, and sooner after a stop begins.
    pub(crate) fn new(stream: S, limit: Duration, stopping: watch::Receiver<bool>) -> Patient<S> {
        Patient {
            stream,
            limit,
            stopping,
            waits: None,
        }
    }

    /// Returns the result of a write, unless the write has waited for too long.
    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let look = self.limit.min(LOOK);
        let (since, timer) = self.waits.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now + look)))
        });
        while timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if now >= *since + self.limit || *self.stopping.borrow() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client read nothing of its answer for too long",
                )));
            }
            timer.as_mut().reset(now + look);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(context, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (stop, stopping) = watch::channel(false);
        let (client, server) = tokio::io::duplex(16);
        let mut server = Patient::new(server, Duration::from_millis(50), stopping.clone());
        let silent = server.write_all(&[0; 64]).await;
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(client);

        let (mut client, server) = tokio::io::duplex(16);
        let hour = Duration::from_secs(3600);
        let mut server = Patient::new(server, hour, stopping.clone());
        let takes = tokio::spawn(async move {
            let mut taken = 0;
            let mut into = [0; 16];
            while taken < 64 {
                taken += client.read(&mut into).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        server.write_all(&[0; 64]).await.unwrap();
        takes.await.unwrap();

        let (_client, server) = tokio::io::duplex(16);
        let mut server = Patient::new(server, hour, stopping);
        stop.send_replace(true);
        let stopped = server.write_all(&[0; 64]).await;
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
