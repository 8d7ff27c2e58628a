//! A connection of an edge, at the cloud: received messages go to the copy, and the copy's requests
//! are sent.
//!
//! Invariants: only the newest connection of an edge is valid; older ones end. A database that does
//! not belong to the name is refused with that reason, and none of its data is accepted.
//! Concurrency: a task for each connection; the copy is called on threads that may wait. Failure: a
//! connection that is silent for [`SILENT_MAX`] ends. An error of this node's device ends it too,
//! and is reported in the status.

use crate::carry::Gate;
use crate::copies::{Fleet, is_current};
use crate::dial::limits;
use crate::edge_copy::EdgeCopy;
use crate::edges::Secret;
use crate::error::{FleetError, FleetErrorKind, medium};
use crate::follow::Follower;
use crate::frame::{BUCKET, Note, Received, message, nodes, note, received};
use crate::origin::refuses;
use crate::waiting::{blocking, stopped};
use futures_util::{FutureExt, SinkExt, StreamExt};
use headwater_engine::CopyProgress;
use headwater_protocol::replication::{Message, Now};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Interval of checks without a received message.
const TICK: Duration = Duration::from_millis(200);
/// The same interval while no request is in flight.
const REST: Duration = Duration::from_secs(20);
/// A connection without received frames for this long is closed.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(90);
/// Longest time to send one frame.
const SEND_MAX: Duration = Duration::from_secs(60);
/// Maximum number of frames processed at once.
const AT_ONCE: usize = 16;

/// The server's answer to the key of a WebSocket handshake.
#[must_use]
pub fn accept_key(key: &str) -> String {
    derive_accept_key(key.as_bytes())
}

/// Result of a step of the copy.
#[derive(Debug, Default)]
struct Outcome {
    frames: Vec<Frame>,
    /// The connection is to end, since the device failed.
    has_failed: bool,
}

impl Fleet {
    /// The name of the edge with this secret.
    ///
    /// # Errors
    /// `denied` if the secret is unknown, or has expired.
    pub fn known(&self, secret: &str) -> Result<String, FleetError> {
        match self.find(secret) {
            Some(Secret::Key(name) | Secret::Invite(name)) => Ok(name),
            None => Err(FleetError::new(
                FleetErrorKind::Denied,
                "this key or invitation is not known here, or not any more; join again with what `headwater edges add --again` prints",
            )),
        }
    }

    /// Serves a connection whose edge has presented a secret, until it ends or the server stops.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        self: Arc<Fleet>,
        stream: S,
        secret: &str,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut socket =
            WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits())).await;
        match self.find(secret) {
            Some(Secret::Invite(name)) => {
                let fleet = Arc::clone(&self);
                let redeemed = blocking(move || fleet.redeem(&name)).await;
                let kept = timeout(SEND_MAX, self.roster_is_kept()).await;
                if kept.is_err() {
                    // The edge repeats the request with its invitation.
                    tracing::warn!("the list of edges is not kept elsewhere yet: no key is given");
                    return;
                }
                let told = match redeemed {
                    Ok(Ok(key)) => Note::Key { key },
                    Ok(Err(error)) | Err(error) => refused(&error),
                };
                let _ = timeout(SEND_MAX, socket.send(note(&told))).await;
                // The other side closes when it has stored the key.
                let _ = timeout(SEND_MAX, socket.next()).await;
            }
            Some(Secret::Key(name)) => {
                self.follow(&name, &mut socket, &mut stopping).await;
            }
            None => {}
        }
        let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
    }

    async fn follow<S: AsyncRead + AsyncWrite + Unpin>(
        self: &Arc<Fleet>,
        name: &str,
        socket: &mut WebSocketStream<S>,
        stopping: &mut watch::Receiver<bool>,
    ) {
        let held = self.held(name);
        let session = self.next_session();
        {
            let mut live = held.live.lock();
            live.session = session;
            (live.refused, live.failed) = (None, None);
            // A relay sends its path before any other message.
            live.path.clear();
            live.heard = Some(self.env().clock.now());
        }
        tracing::info!(edge = name, "an edge is connected");
        let begun = Session::begin(Arc::clone(self), Arc::clone(&held), session);
        let ended = match blocking(begun).await {
            Ok(Ok(session)) => session.run(socket, stopping).await,
            Ok(Err(error)) | Err(error) => error.to_string(),
        };
        let mut live = held.live.lock();
        if live.session == session {
            live.session = 0;
            live.is_verifying = false;
        }
        drop(live);
        tracing::info!(edge = name, why = %ended, "an edge is not connected any more");
    }
}

fn refused(error: &FleetError) -> Note {
    Note::Refused {
        code: error.kind().code().to_owned(),
        text: error.to_string(),
    }
}

/// A connection that counts.
struct Session {
    fleet: Arc<Fleet>,
    held: Arc<EdgeCopy>,
    number: u64,
    follower: Follower,
    /// Number of changes of the copy when its progress was last reported.
    told: Option<u64>,
    /// The edge requested the running comparison.
    tells_verified: bool,
    was_refused: bool,
    is_paused: bool,
    /// The messages are relayed by another node.
    is_relayed: bool,
    /// The relay path is refused, whichever database sends over it.
    is_refused_way: bool,
    /// The edge sends newest events along.
    sends_live: bool,
    /// Revoked tokens that were sent to the edge last.
    told_revoked: String,
    gate: Gate,
}

impl Session {
    fn begin(
        fleet: Arc<Fleet>,
        held: Arc<EdgeCopy>,
        number: u64,
    ) -> impl FnOnce() -> Result<Session, FleetError> {
        move || {
            fleet.has_come(&held.name)?;
            let follower = follower(&fleet, &held)?;
            Ok(Session {
                fleet,
                held,
                number,
                follower,
                told: None,
                tells_verified: false,
                was_refused: false,
                is_paused: false,
                is_relayed: false,
                is_refused_way: false,
                sends_live: false,
                told_revoked: String::new(),
                gate: Gate::default(),
            })
        }
    }

    fn counts(&self) -> bool {
        self.held.live.lock().session == self.number
    }

    /// Serves until the session ends; returns the reason.
    async fn run<S: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        socket: &mut WebSocketStream<S>,
        stopping: &mut watch::Receiver<bool>,
    ) -> String {
        let welcome = Note::Welcome {
            edge: self.held.name.clone(),
        };
        let mut frames = vec![note(&welcome)];
        if self.fleet.waits() {
            // Confirmations wait until the data is there.
            frames.push(note(&Note::Survives { at: BUCKET.into() }));
        }
        let mut heard = Instant::now();
        loop {
            for frame in frames.drain(..) {
                match timeout(SEND_MAX, socket.send(frame)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error.to_string(),
                    Err(_) => return "it takes nothing".to_owned(),
                }
            }
            let held = Arc::clone(&self.held);
            let rest = if self.follower.is_waiting() && !self.is_paused {
                TICK
            } else {
                REST
            };
            let mut incoming = Vec::new();
            tokio::select! {
                frame = socket.next() => match frame {
                    Some(Ok(frame)) => incoming.push(frame),
                    Some(Err(error)) => return error.to_string(),
                    None => return "it has gone".to_owned(),
                },
                () = held.wake.notified() => {}
                () = sleep(rest) => {}
                () = stopped(stopping) => return "the server stops".to_owned(),
            }
            while !incoming.is_empty() && incoming.len() < AT_ONCE {
                match socket.next().now_or_never() {
                    Some(Some(Ok(frame))) => incoming.push(frame),
                    _ => break,
                }
            }
            if !self.counts() {
                return "there is a newer connection, or the edge was taken out".to_owned();
            }
            if !incoming.is_empty() {
                heard = Instant::now();
            }
            if heard.elapsed() > SILENT_MAX {
                return "it is silent".to_owned();
            }
            let stepped = blocking(move || {
                let outcome = self.step(&incoming);
                (self, outcome)
            });
            match stepped.await {
                Ok((session, outcome)) => {
                    self = session;
                    frames = outcome.frames;
                    if outcome.has_failed {
                        return "its copy cannot be written".to_owned();
                    }
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    fn now(&self) -> Now {
        let clock = &self.fleet.env().clock;
        Now {
            monotonic: clock.monotonic(),
            wall: clock.now(),
        }
    }

    /// Processes received messages, and determines the messages to send.
    fn step(&mut self, incoming: &[Frame]) -> Outcome {
        let mut outcome = Outcome::default();
        let wall = self.now().wall;
        if !incoming.is_empty() {
            self.held.live.lock().heard = Some(wall);
        }
        for frame in incoming {
            let taken = match received(frame) {
                Received::Message(message) => self.take(message, &mut outcome),
                Received::Note(found) => self.take_note(found, &mut outcome),
                Received::Nothing | Received::End => Ok(()),
            };
            if let Err(error) = taken {
                return self.failed(&error);
            }
        }
        if let Err(error) = self.do_what_is_wanted() {
            return self.failed(&error);
        }
        let edge = self.fleet.edge(&self.held.name);
        self.is_paused = edge.as_ref().is_none_or(|edge| edge.is_paused);
        self.follower
            .migrate(edge.map(|e| e.migration).unwrap_or_default());
        let sends_live = self.sends_live;
        if let Some(planner) = self.follower.planner() {
            planner.set_live(sends_live);
        }
        if !self.is_paused && !self.was_refused {
            let now = self.now();
            let waits = self.fleet.waits();
            while let Some(said) = self.follower.next(now) {
                match said {
                    Message::Confirm { .. } if waits => self.gate.hold(said),
                    said => outcome.frames.push(message(&said)),
                }
            }
            let kept = self.held.live.lock().durable.clone();
            if let Some(confirmed) = self.gate.next(kept.as_ref()) {
                outcome.frames.push(message(&confirmed));
            }
        }
        if let Some(planner) = self.follower.planner()
            && let Some(failed) = planner.failed()
        {
            let error = FleetError::new(FleetErrorKind::Io, failed.to_string());
            return self.failed(&error);
        }
        let revoked = self.fleet.revoked();
        if self.told_revoked != revoked {
            outcome.frames.push(note(&Note::Revoked {
                list: revoked.clone(),
            }));
            self.told_revoked = revoked;
        }
        self.tell(&mut outcome);
        outcome
    }

    fn failed(&self, error: &FleetError) -> Outcome {
        tracing::error!(edge = self.held.name, %error, "the copy of an edge cannot be used");
        self.held.close();
        self.held.live.lock().failed = Some(error.to_string());
        Outcome {
            frames: Vec::new(),
            has_failed: true,
        }
    }

    fn take(&mut self, message: Message, outcome: &mut Outcome) -> Result<(), FleetError> {
        if self.was_refused {
            return Ok(());
        }
        if let Message::Hello(state) = &message
            && let Some(why) = refuses(&self.fleet, &[state.identity])
        {
            self.refuse(&why, outcome);
            return Ok(());
        }
        if let Message::Hello(state) = &message
            && !self.fleet.admit(&self.held.name, state)?
        {
            let text = "another database than the one that belongs to this name; if that is meant, run `headwater join --new-incarnation` at the edge, which puts the copy aside";
            self.refuse(text, outcome);
            return Ok(());
        }
        let now = self.now();
        let first = self.follower.take(now, message).map_err(medium)?;
        if let Some(state) = first {
            let edge = self
                .fleet
                .edge(&self.held.name)
                .ok_or_else(|| gone(&self.held))?;
            let place = self.fleet.place(&edge)?;
            let copy = self.held.begin(&place, &state).map_err(medium)?;
            self.told = None;
            self.follower.plan(copy);
            self.distrust();
        }
        Ok(())
    }

    /// Requires the copy to prove data that another node passes on.
    fn distrust(&mut self) {
        let is_relayed = self.is_relayed;
        if let Some(planner) = self.follower.planner().filter(|_| is_relayed) {
            planner.distrust();
        }
    }

    fn take_path(&mut self, path: Vec<u64>, outcome: &mut Outcome) {
        let why = refuses(&self.fleet, &path);
        self.held.live.lock().path = path;
        self.is_relayed = true;
        self.distrust();
        self.is_refused_way = why.is_some();
        if let Some(why) = why {
            self.refuse(&why, outcome);
        }
    }

    fn refuse(&mut self, text: &str, outcome: &mut Outcome) {
        self.was_refused = true;
        self.held.live.lock().refused = Some(text.to_owned());
        let error = FleetError::new(FleetErrorKind::History, text);
        outcome.frames.push(note(&refused(&error)));
        tracing::warn!(edge = self.held.name, why = text, "an edge is refused");
    }

    fn take_note(&mut self, found: Note, outcome: &mut Outcome) -> Result<(), FleetError> {
        match found {
            Note::Path { nodes: path } => self.take_path(nodes(&path), outcome),
            Note::About(about) => {
                let is_live = about.sends_live;
                self.held.live.lock().about = Some(about);
                self.sends_live = is_live;
            }
            Note::Verify {} => {
                self.tells_verified = true;
                let mut live = self.held.live.lock();
                (live.wants_verifying, live.is_verifying) = (true, true);
                live.verified = None;
            }
            // Starting over does not change the path, so the copy is unchanged.
            Note::BeginAnew {} if self.is_refused_way => {}
            Note::BeginAnew {} => {
                self.fleet.begin_anew(&self.held.name)?;
                self.was_refused = false;
                self.follower = follower(&self.fleet, &self.held)?;
                self.gate = Gate::default();
                self.told = None;
                self.distrust();
            }
            // Messages of a cloud are never sent to a cloud.
            _ => {}
        }
        Ok(())
    }

    fn do_what_is_wanted(&mut self) -> Result<(), FleetError> {
        let (verify, again) = {
            let mut live = self.held.live.lock();
            (
                std::mem::take(&mut live.wants_verifying),
                std::mem::take(&mut live.wants_fetching_again),
            )
        };
        let Some(planner) = self.follower.planner() else {
            // Without data the comparison is postponed.
            let mut live = self.held.live.lock();
            live.wants_verifying |= verify;
            return Ok(());
        };
        if again {
            planner.fetch_again().map_err(medium)?;
        }
        if verify {
            planner.verify();
        }
        Ok(())
    }

    /// Reports the progress of the copy.
    fn tell_progress(&self, progress: CopyProgress, proven_bytes: u64) {
        let shows = |p: &CopyProgress| {
            let partitions = (p.shown, p.shown_older, p.known, p.kept);
            (p.state, partitions, p.tail.until)
        };
        let mut live = self.held.live.lock();
        live.proven_bytes = proven_bytes;
        let is_other = live.progress.as_ref().map(shows) != Some(shows(&progress));
        drop(live);
        // Readers that see the progress look at the copy again before they read.
        if is_other {
            self.held.has_changed();
        }
        self.held.note(progress);
    }

    /// Reports the result to both sides.
    fn tell(&mut self, outcome: &mut Outcome) {
        if !self.was_refused
            && let Some(text) = self.follower.refused()
        {
            let text = format!(
                "{text}; if that is meant, run `headwater join --new-incarnation` at the edge, which puts the copy aside"
            );
            self.refuse(&text, outcome);
        }
        let wall = self.now().wall;
        let verified = self.follower.verified();
        let planner = self.follower.planner();
        if let Some(planner) = planner {
            let changes = planner.copy().changes();
            if self.told.replace(changes) != Some(changes) || planner.is_proving() {
                let (progress, proven) = (planner.copy().progress(), planner.proven());
                self.tell_progress(progress, proven.proven_bytes);
            }
        }
        let mut live = self.held.live.lock();
        if live.progress.as_ref().is_some_and(is_current) {
            live.current = Some(wall);
        }
        if live.is_verifying
            && !live.wants_verifying
            && let Some(found) = verified
        {
            live.is_verifying = false;
            live.verified = Some((wall, found));
            if std::mem::take(&mut self.tells_verified) {
                outcome.frames.push(note(&Note::Verified {
                    equal: found.equal,
                    different: found.different,
                    missing: found.missing,
                }));
            }
        }
    }
}

fn gone(held: &EdgeCopy) -> FleetError {
    FleetError::new(
        FleetErrorKind::NotFound,
        format!("the edge `{}` was taken out", held.name),
    )
}

fn follower(fleet: &Fleet, held: &Arc<EdgeCopy>) -> Result<Follower, FleetError> {
    let edge = fleet.edge(&held.name).ok_or_else(|| gone(held))?;
    let copy = fleet.copy(held, &edge)?;
    // Readers of a copy that was closed meanwhile switch to this one.
    held.has_changed();
    Ok(Follower::new(copy, fleet.env().chance.next_u64()))
}
