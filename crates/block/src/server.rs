//! A server: a listener, a reading and a sending thread for each connection, and an orderly stop.
//!
//! Invariants: connections are bounded; each ends independently, and no client blocks another.
//! After the server was stopped, every accepted request was carried out, and all data is durable.
//! Concurrency: one lock, over the list of connections, held for list operations only. Failure:
//! starting fails with a [`BlockError`]; a failed connection is closed and, if the failure is
//! unusual, logged.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use headwater_io::{Clock, Env, Joiner, Threads};
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::error::{BlockError, BlockErrorKind};
use crate::nbd::flow::Flow;
use crate::nbd::negotiate::{Export, Outcome, negotiate};
use crate::nbd::transmit::{send_replies, take_requests};
use crate::socket::{Address, Listener, Socket};

/// Pause of a listener that could not accept, for example without free descriptors.
const REST: Duration = Duration::from_millis(100);

/// Options for serving a device.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on.
    pub listen: Address,
    /// Name of the export; clients that send an empty name get it, too.
    pub export: String,
    /// Most connections at once; further ones are closed at once.
    pub connections_max: usize,
    /// Longest negotiation of a client.
    pub negotiation: Duration,
    /// Time that connections have to receive their replies when the server is stopped.
    pub grace: Duration,
}

impl ServeOptions {
    /// Serving at this address.
    #[must_use]
    pub fn new(listen: Address) -> ServeOptions {
        ServeOptions {
            listen,
            export: "headwater".to_owned(),
            connections_max: 32,
            negotiation: Duration::from_secs(10),
            grace: Duration::from_secs(5),
        }
    }
}

/// A device that is being served.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    /// Thread that accepts connections; `None` = stopped.
    acceptor: Mutex<Option<Box<dyn Joiner>>>,
    address: Address,
}

#[derive(Debug)]
struct Shared {
    device: Arc<Device>,
    options: ServeOptions,
    export: Export,
    threads: Arc<dyn Threads>,
    clock: Arc<dyn Clock>,
    connections: Mutex<Connections>,
    /// A connection has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Connections {
    open: BTreeMap<u64, Socket>,
    /// Number of connections so far.
    accepted: u64,
    is_stopping: bool,
}

impl Server {
    /// Starts to serve a device.
    ///
    /// # Errors
    /// Kind `io` if listening fails or a thread cannot be started, `invalid` if there are no
    /// threads.
    pub fn start(
        env: &Env,
        device: Arc<Device>,
        options: ServeOptions,
    ) -> Result<Server, BlockError> {
        let shown = options.listen.to_string();
        let not_listening = |error| BlockError::io("listen on", Path::new(&shown), error);
        let listener = Arc::new(Listener::bind(&options.listen).map_err(not_listening)?);
        let address = listener.address().map_err(not_listening)?;
        let shared = Arc::new(Shared {
            export: Export {
                name: options.export.clone(),
                size: device.size(),
            },
            device,
            options,
            threads: Arc::clone(&env.threads),
            clock: Arc::clone(&env.clock),
            connections: Mutex::new(Connections::default()),
            ended: Condvar::new(),
        });
        let body = {
            let (shared, listener) = (Arc::clone(&shared), Arc::clone(&listener));
            Box::new(move || shared.accept_all(&listener))
        };
        let acceptor = env.threads.spawn("nbd-accept", body);
        let Some(acceptor) = acceptor.map_err(not_listening)? else {
            return Err(BlockError::invalid(
                "serving a block device requires threads, and this runtime has none",
            ));
        };
        Ok(Server {
            shared,
            listener,
            acceptor: Mutex::new(Some(acceptor)),
            address,
        })
    }

    /// The address it listens on; with the port, if any free one was requested.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().open.len()
    }

    /// Stops: refuses new connections and requests, carries out accepted requests, makes all data
    /// durable and closes the device.
    ///
    /// # Errors
    /// When that fails; see [`Device::close`].
    pub fn stop(self) -> Result<(), BlockError> {
        self.end_connections();
        self.shared.device.close()
    }

    fn end_connections(&self) {
        let Some(acceptor) = self.acceptor.lock().take() else {
            return;
        };
        self.shared.connections.lock().is_stopping = true;
        if let Err(error) = self.listener.wake() {
            tracing::warn!(%error, "cannot wake the listener");
        }
        if !acceptor.join() {
            tracing::error!("the accept thread panicked");
        }
        let shut_down = |how| {
            for socket in self.shared.connections.lock().open.values() {
                // The connection may have ended by itself.
                let _ = socket.shut_down(how);
            }
        };
        shut_down(Shutdown::Read);
        if !self
            .shared
            .wait_for_the_last(Some(self.shared.options.grace))
        {
            tracing::warn!("closed connections that did not read replies");
            shut_down(Shutdown::Both);
            self.shared.wait_for_the_last(None);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end_connections();
    }
}

impl Shared {
    fn accept_all(self: &Arc<Shared>, listener: &Listener) {
        loop {
            let accepted = listener.accept();
            let mut connections = self.connections.lock();
            if connections.is_stopping {
                return;
            }
            match accepted {
                Ok(socket) => {
                    if connections.open.len() >= self.options.connections_max {
                        tracing::warn!("closed a new connection: too many connections");
                        continue;
                    }
                    connections.accepted += 1;
                    let number = connections.accepted;
                    match socket.try_clone() {
                        Ok(clone) => drop(connections.open.insert(number, clone)),
                        Err(error) => {
                            tracing::warn!(%error, "a connection could not be accepted");
                            continue;
                        }
                    }
                    drop(connections);
                    self.begin(number, socket);
                }
                Err(error) => {
                    drop(connections);
                    tracing::warn!(%error, "a connection could not be accepted");
                    std::thread::sleep(REST);
                }
            }
        }
    }

    /// Starts a thread for a connection.
    fn begin(self: &Arc<Shared>, number: u64, socket: Socket) {
        let open = Open {
            shared: Arc::clone(self),
            number,
        };
        let body = Box::new(move || {
            if let Err(error) = open.serve(socket) {
                tracing::debug!(%error, client = open.number, "a connection ended");
            }
        });
        if let Err(error) = self.threads.spawn(&format!("nbd-{number}"), body) {
            tracing::warn!(%error, "cannot start a thread for a connection");
        }
    }

    /// True if all connections have ended; false after the timeout.
    fn wait_for_the_last(&self, patience: Option<Duration>) -> bool {
        let mut connections = self.connections.lock();
        let begun = self.clock.monotonic();
        while !connections.open.is_empty() {
            match patience {
                None => self.ended.wait(&mut connections),
                Some(patience) => {
                    let passed = self.clock.monotonic().saturating_sub(begun);
                    let Some(rest) = patience.checked_sub(passed) else {
                        return false;
                    };
                    self.ended.wait_for(&mut connections, rest);
                }
            }
        }
        true
    }
}

/// A connection as long as its thread runs.
struct Open {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.connections.lock().open.remove(&self.number);
        self.shared.ended.notify_all();
    }
}

impl Open {
    fn serve(&self, socket: Socket) -> io::Result<()> {
        let shared = &*self.shared;
        let mut patient = NegotiationStream {
            socket,
            clock: &*shared.clock,
            until: shared.clock.monotonic() + shared.options.negotiation,
        };
        let is_stopping = || shared.connections.lock().is_stopping;
        let Outcome::Begin(agreed) = negotiate(&mut patient, &shared.export, &is_stopping)? else {
            return Ok(());
        };
        let socket = patient.socket;
        socket.set_patience(None)?;
        let flow = Arc::new(Flow::default());
        let sender = self.start_sender(&socket, &flow)?;
        let mut input = BufReader::with_capacity(64 << 10, socket.try_clone()?);
        let taken = take_requests(&mut input, &flow, &shared.device, self.number, agreed);
        flow.end();
        if !sender.join() {
            tracing::error!("a thread that sends replies panicked");
        }
        // The peer may have done so before.
        let _ = socket.shut_down(Shutdown::Both);
        taken
    }

    fn start_sender(&self, socket: &Socket, flow: &Arc<Flow>) -> io::Result<Box<dyn Joiner>> {
        let mut output = socket.try_clone()?;
        let reading = socket.try_clone()?;
        let flow = Arc::clone(flow);
        let body = Box::new(move || {
            send_replies(&mut output, &flow, || {
                // Stops reading requests of a client that receives no replies.
                let _ = reading.shut_down(Shutdown::Both);
            });
        });
        let name = format!("nbd-{}-replies", self.number);
        let started = self.shared.threads.spawn(&name, body)?;
        started.ok_or_else(|| io::Error::other(BlockErrorKind::Invalid.as_str()))
    }
}

/// A connection that must be done with its negotiation by some instant.
struct NegotiationStream<'a> {
    socket: Socket,
    clock: &'a dyn Clock,
    until: Duration,
}

impl NegotiationStream<'_> {
    fn set_rest(&self) -> io::Result<()> {
        let rest = self.until.saturating_sub(self.clock.monotonic());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_patience(Some(rest))
    }
}

impl Read for NegotiationStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.set_rest()?;
        self.socket.read(buf)
    }
}

impl Write for NegotiationStream<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.set_rest()?;
        self.socket.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
