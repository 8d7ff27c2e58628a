//! The beginning of a connection at the cloud: an invitation is changed for a key, and the
//! connection of a process that is not refused is served from its first message on.
//!
//! Invariants: of one key at most one connection is served, and at most one more is not served, or
//! not yet: the newest of each; earlier ones end. A connection of a refused process is told why,
//! and ends no other one. Concurrency: a task for each connection. Failure: a connection that is
//! silent for too long ends.

use crate::copies::EdgeCopies;
use crate::dial::limits;
use crate::edge_copy::EdgeCopy;
use crate::edges::Secret;
use crate::error::{ClusterError, ClusterErrorKind};
use crate::frame::{FRAME_MAX, MESSAGE_MAX, Note, Received, node, note, received};
use crate::session::{HEARTBEAT_MAX, REST, SEND_MAX, SILENT_MAX, Session, refused};
use crate::waiting::{blocking, stopped};
use futures_util::{SinkExt, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::Role;

impl EdgeCopies {
    /// The name of the edge with this secret.
    ///
    /// # Errors
    /// `denied` if the secret is unknown, or has expired.
    pub fn edge_of_secret(&self, secret: &str) -> Result<String, ClusterError> {
        match self.find(secret) {
            Some(Secret::Key(name) | Secret::Invite(name)) => Ok(name),
            None => Err(ClusterError::new(
                ClusterErrorKind::Denied,
                "this key or invitation is unknown or no longer valid; join again with the invitation that `headwater edges add --again` prints",
            )),
        }
    }

    /// Serves a connection whose edge has presented a secret, until it ends or the server stops.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        self: Arc<EdgeCopies>,
        stream: S,
        secret: &str,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut socket =
            WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits(FRAME_MAX))).await;
        match self.find(secret) {
            Some(Secret::Invite(name)) => self.give_key(name, &mut socket).await,
            Some(Secret::Key(name)) => {
                let (fleet, secret) = (Arc::clone(&self), secret.to_owned());
                let edge = name.clone();
                // An edge that shows its next key has stored it.
                let confirmed = blocking(move || fleet.confirm_key(&edge, &secret)).await;
                if let Err(error) = confirmed.and_then(|confirmed| confirmed) {
                    tracing::warn!(edge = name, %error, "the next key of an edge is not confirmed yet");
                }
                self.follow(&name, &mut socket, &mut stopping).await;
            }
            None => {}
        }
        let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
    }

    /// Changes the invitation of an edge for a key.
    async fn give_key<S: AsyncRead + AsyncWrite + Unpin>(
        self: &Arc<EdgeCopies>,
        name: String,
        socket: &mut WebSocketStream<S>,
    ) {
        let fleet = Arc::clone(self);
        let redeemed = blocking(move || fleet.redeem(&name)).await;
        let kept = timeout(SEND_MAX, self.roster_is_persisted()).await;
        if kept.is_err() {
            // The edge repeats the request with its invitation.
            tracing::warn!(
                "the list of edges is not stored in the bucket yet: an edge gets no key and will try again"
            );
            return;
        }
        let told = match redeemed {
            Ok(Ok(key)) => Note::Key {
                key,
                rights_key: self.rights().map(|list| list.key_text()),
            },
            Ok(Err(error)) | Err(error) => refused(&error),
        };
        let _ = timeout(SEND_MAX, socket.send(note(&told))).await;
        // The other side closes when it has stored the key.
        let _ = timeout(SEND_MAX, socket.next()).await;
    }

    async fn follow<S: AsyncRead + AsyncWrite + Unpin>(
        self: &Arc<EdgeCopies>,
        name: &str,
        socket: &mut WebSocketStream<S>,
        stopping: &mut watch::Receiver<bool>,
    ) {
        let held = self.entry(name);
        let session = self.next_session();
        let mut greeting = Greeting::begin(&held, session);
        let welcome = note(&Note::Welcome {
            edge: held.name().to_string(),
            now_ns: Some(self.env().clock.now().as_nanos()),
            is_patient: true,
            answers_challenges: true,
        });
        let sent = timeout(SEND_MAX, socket.send(welcome)).await;
        if !sent.is_ok_and(|sent| sent.is_ok()) {
            return;
        }
        let Some(greeted) = greeting.wait(socket, stopping).await else {
            return;
        };
        {
            let mut live = held.live.lock();
            if live.greeted != session {
                return;
            }
            live.greeted = 0;
            live.session = session;
            live.processes.serve(greeted.process);
            (live.refused, live.failed) = (None, None);
            // A relay sends its path before any other message.
            live.path.clear();
            live.quiet = None;
            live.live_lag = None;
            live.last_message = Some(self.env().clock.now());
        }
        drop(greeting);
        // The connection before ends.
        held.wake.notify_one();
        tracing::info!(edge = name, "an edge is connected");
        let begun = Session::begin(Arc::clone(self), Arc::clone(&held), session);
        let ended = match blocking(begun).await {
            Ok(Ok(session)) => session.run(socket, greeted.frames, stopping).await,
            Ok(Err(error)) | Err(error) => error.to_string(),
        };
        held.session_has_ended(session);
        tracing::info!(edge = name, why = %ended, "an edge has disconnected");
    }
}

/// Result of a greeting: the connection is to be served.
struct Greeted {
    /// Number of the process; `None` = its version draws none.
    process: Option<u64>,
    /// Frames that have arrived.
    frames: Vec<Frame>,
}

/// A connection that is not served yet.
struct Greeting {
    edge_copy: Arc<EdgeCopy>,
    number: u64,
    /// The refused process of the connection.
    refused: Option<u64>,
    /// Longest silence of the edge.
    silent_max: Duration,
}

impl Drop for Greeting {
    fn drop(&mut self) {
        let mut live = self.edge_copy.live.lock();
        if live.greeted == self.number {
            live.greeted = 0;
            live.processes.set_waiting(None);
            drop(live);
            // Who is served is told so.
            self.edge_copy.wake.notify_one();
        }
    }
}

impl Greeting {
    fn begin(edge_copy: &Arc<EdgeCopy>, number: u64) -> Greeting {
        {
            let mut live = edge_copy.live.lock();
            live.greeted = number;
            live.processes.set_waiting(None);
        }
        // The connection before ends.
        edge_copy.greeting.notify_waiters();
        Greeting {
            edge_copy: Arc::clone(edge_copy),
            number,
            refused: None,
            silent_max: SILENT_MAX,
        }
    }

    /// True while the connection may wait.
    fn counts(&self) -> bool {
        let live = self.edge_copy.live.lock();
        let stays = |process| live.processes.is_refused(process);
        live.greeted == self.number && self.refused.is_none_or(stays)
    }

    /// Waits until the connection may be served; `None` = it ends.
    async fn wait<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        socket: &mut WebSocketStream<S>,
        stopping: &mut watch::Receiver<bool>,
    ) -> Option<Greeted> {
        let mut heard = Instant::now();
        let edge_copy = Arc::clone(&self.edge_copy);
        loop {
            let mut woken = pin!(edge_copy.greeting.notified());
            woken.as_mut().enable();
            if !self.counts() {
                return None;
            }
            tokio::select! {
                frame = socket.next() => {
                    let frame = frame?.ok()?;
                    heard = Instant::now();
                    if let Some(greeted) = self.take(frame, socket).await? {
                        return Some(greeted);
                    }
                }
                () = woken => {}
                () = sleep(REST) => {}
                () = stopped(stopping) => return None,
            }
            if heard.elapsed() > self.silent_max {
                return None;
            }
        }
    }

    /// Processes a frame; `None` = the connection ends.
    async fn take<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        frame: Frame,
        socket: &mut WebSocketStream<S>,
    ) -> Option<Option<Greeted>> {
        let note_of = |frame: &Frame| match frame {
            Frame::Text(_) => match received(frame, MESSAGE_MAX) {
                Received::Note(found) => Some(found),
                _ => None,
            },
            _ => None,
        };
        match (note_of(&frame), self.refused) {
            (Some(Note::Process { id }), None) => {
                let process = node(&id);
                if !self.edge_copy.live.lock().processes.is_refused(process) {
                    return Some(Some(Greeted {
                        process: Some(process),
                        frames: Vec::new(),
                    }));
                }
                self.refused = Some(process);
                self.tell(process, socket).await?;
                Some(None)
            }
            (Some(Note::BeginAnew {}), Some(process)) => {
                self.edge_copy.live.lock().processes.forgive(process);
                Some(Some(Greeted {
                    process: Some(process),
                    frames: vec![frame],
                }))
            }
            (Some(Note::About(about)), Some(_)) => {
                let beat = Duration::from_secs(about.heartbeat_seconds.min(HEARTBEAT_MAX));
                self.silent_max = SILENT_MAX + beat;
                Some(None)
            }
            (_, Some(_)) => Some(None),
            (_, None) if frame.is_ping() || frame.is_pong() => Some(None),
            (_, None) => Some(Some(Greeted {
                process: None,
                frames: vec![frame],
            })),
        }
    }

    /// Tells a process that it is refused, and the one that is served of it.
    async fn tell<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        process: u64,
        socket: &mut WebSocketStream<S>,
    ) -> Option<()> {
        let text = {
            let mut live = self.edge_copy.live.lock();
            if live.greeted != self.number {
                return None;
            }
            live.processes.set_waiting(Some(process));
            let is_serving = live.session != 0;
            live.processes.refusal(is_serving).unwrap_or_default()
        };
        self.edge_copy.wake.notify_one();
        tracing::warn!(edge = %self.edge_copy.name(), why = %text, "a machine is refused");
        let told = note(&refused(&ClusterError::new(
            ClusterErrorKind::History,
            text,
        )));
        let sent = timeout(SEND_MAX, socket.send(told)).await;
        sent.is_ok_and(|sent| sent.is_ok()).then_some(())
    }
}
