//! A link between two nodes that is slow, cut and counted: a proxy of TCP.
//!
//! Receive buffers are small, as those of a slow link are: what a node has written is on its way,
//! and not in megabytes of a buffer. Concurrency: a runtime of its own with one thread.

use crate::harness::Failure;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep_until};

/// Size of a packet, and of the receive buffer of a link with a limit.
const PACKET: usize = 1_460;
const BUFFER: u32 = 16 << 10;

/// Lateness of the timer, in which the link does not rest: of packets of 12 ms each, a millisecond
/// would be a tenth of the link.
const LATE: Duration = Duration::from_millis(5);

/// One direction of a link.
#[derive(Default)]
struct Direction {
    bytes: AtomicU64,
    /// When the link is free again.
    free: Mutex<Option<Instant>>,
}

struct State {
    to: SocketAddr,
    bytes_per_second: Option<u64>,
    up: Direction,
    down: Direction,
    is_cut: watch::Sender<bool>,
}

/// A link to a node; `addr` stands for the node.
pub(super) struct Link {
    pub(super) addr: SocketAddr,
    state: Arc<State>,
    _runtime: tokio::runtime::Runtime,
}

impl Link {
    /// A link with so many bits a second in each direction, or without a limit.
    pub(super) fn to(node: SocketAddr, bits: Option<u64>) -> Result<Link, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let state = Arc::new(State {
            to: node,
            bytes_per_second: bits.map(|bits| bits / 8),
            up: Direction::default(),
            down: Direction::default(),
            is_cut: watch::Sender::new(false),
        });
        let listener = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            if bits.is_some() {
                socket.set_recv_buffer_size(BUFFER)?;
            }
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            socket.listen(1024)
        })?;
        let addr = listener.local_addr()?;
        runtime.spawn(accept(listener, Arc::clone(&state)));
        Ok(Link {
            addr,
            state,
            _runtime: runtime,
        })
    }

    /// Cuts the link, which ends its connections, or mends it.
    pub(super) fn cut(&self, is_cut: bool) {
        self.state.is_cut.send_replace(is_cut);
    }

    /// Bytes to the node and from it.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let of = |way: &Direction| way.bytes.load(Ordering::Relaxed);
        (of(&self.state.up), of(&self.state.down))
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        if *state.is_cut.borrow() {
            continue;
        }
        tokio::spawn(serve(client, Arc::clone(&state)));
    }
}

async fn serve(client: TcpStream, state: Arc<State>) {
    let Ok(node) = TcpStream::connect(state.to).await else {
        return;
    };
    if node.set_nodelay(true).is_err() || client.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_node, to_node) = node.into_split();
    let rate = state.bytes_per_second;
    let mut cut = state.is_cut.subscribe();
    tokio::select! {
        () = pass(from_client, to_node, &state.up, rate) => {}
        () = pass(from_node, to_client, &state.down, rate) => {}
        _ = cut.wait_for(|is_cut| *is_cut) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: &Direction, rate: Option<u64>) {
    let mut buffer = vec![0; if rate.is_some() { PACKET } else { 64 << 10 }];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = u64::try_from(length).unwrap_or(0);
        if let Some(rate) = rate {
            let mut free = way.free.lock().await;
            let now = Instant::now();
            let begins = free.filter(|free| *free + LATE > now).unwrap_or(now);
            let ends = begins + Duration::from_nanos(bytes * 1_000_000_000 / rate.max(1));
            *free = Some(ends);
            drop(free);
            sleep_until(ends).await;
        }
        way.bytes.fetch_add(bytes, Ordering::Relaxed);
        if to
            .write_all(buffer.get(..length).unwrap_or(&[]))
            .await
            .is_err()
        {
            return;
        }
    }
}
