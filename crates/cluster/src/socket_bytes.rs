//! Bytes of the sockets of a connection to a cloud, counted below TLS: handshakes, frames, signs of
//! life and messages alike.
//!
//! Invariant: each byte that the system took to send, or gave as received, is counted once. Bytes
//! of TCP and IP headers are not. Concurrency: counters that any thread reads.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Counters of the sockets of one uplink, over all of its connections.
#[derive(Debug, Default)]
pub(crate) struct SocketBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

impl SocketBytes {
    /// Bytes sent since the start.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes received since the start.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes in both directions since the start.
    pub(crate) fn total(&self) -> u64 {
        self.sent().saturating_add(self.received())
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// A TCP connection whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Counted {
    tcp: TcpStream,
    bytes: Arc<SocketBytes>,
}

impl Counted {
    pub(crate) fn new(tcp: TcpStream, bytes: Arc<SocketBytes>) -> Counted {
        Counted { tcp, bytes }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.tcp).poll_read(cx, buf);
        add(
            &self.bytes.received,
            buf.filled().len().saturating_sub(before),
        );
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.tcp).poll_write(cx, buf);
        if let Poll::Ready(Ok(bytes)) = &polled {
            add(&self.bytes.sent, *bytes);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
