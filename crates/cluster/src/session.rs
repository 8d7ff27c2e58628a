//! A connection of an edge, at the cloud: received messages go to the copy, and the copy's requests
//! are sent.
//!
//! Invariants: only the newest connection of an edge that was [greeted](crate::greeting) is valid;
//! older ones end. A database that does not belong to the name is refused with that reason, and
//! none of its data is accepted. Concurrency: a task for each connection; the copy is called on
//! threads that may wait. Failure: a connection that is silent for longer than its edge has
//! announced, or [`SILENT_MAX`], ends. An error of this node's device ends it too, and is reported
//! in the status.

use crate::carry::DelayedConfirmation;
use crate::copies::{EdgeCopies, is_current};
use crate::edge_copy::EdgeCopy;
use crate::error::{ClusterError, ClusterErrorKind, of_device};
use crate::follow::Follower;
use crate::frame::{
    BUCKET, MESSAGE_MAX, Note, PEER, Received, is_large, message, nodes, note, received,
};
use crate::lag::{LiveLag, LiveReport, Waits};
use crate::origin::refuses;
use crate::session_rights::SessionRights;
use crate::waiting::{blocking, stopped};
use futures_util::{FutureExt, SinkExt, StreamExt};
use headwater_engine::{CopyProgress, StateName};
use headwater_protocol::replication::{Message, Now};
use headwater_types::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Interval of checks without a received message.
const TICK: Duration = Duration::from_millis(200);
/// The same interval while no request is in flight.
pub(crate) const REST: Duration = Duration::from_secs(20);
/// A connection without received frames for this long is closed.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(90);
/// Longest announced time without a sign of life, in seconds.
pub(crate) const HEARTBEAT_MAX: u64 = 24 * 3600;
/// Longest time to send one frame.
pub(crate) const SEND_MAX: Duration = Duration::from_secs(60);
/// Longest time to send the reason of the end.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// Maximum number of frames processed at once.
const AT_ONCE: usize = 64;
/// Bytes of frames from which on no further ones are processed at once.
const AT_ONCE_BYTES: usize = 4 << 20;

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

pub(crate) fn refused(error: &ClusterError) -> Note {
    Note::Refused {
        code: error.kind().code().to_owned(),
        text: error.to_string(),
    }
}

/// A connection that counts.
pub(crate) struct Session {
    fleet: Arc<EdgeCopies>,
    edge_copy: Arc<EdgeCopy>,
    number: u64,
    follower: Follower,
    /// Number of changes of the copy when its progress was last reported.
    reported_changes: Option<u64>,
    /// The edge requested the running comparison.
    reports_verified: bool,
    was_refused: bool,
    is_paused: bool,
    /// The messages are relayed by another node.
    is_relayed: bool,
    /// The relay path is refused, whichever database sends over it.
    is_path_refused: bool,
    /// The edge sends newest events along.
    sends_live: bool,
    /// When newest events were last requested.
    asked_live: Option<Duration>,
    /// Longest silence of the edge.
    silent_max: Duration,
    /// Revoked tokens that were sent to the edge last.
    sent_revoked: String,
    /// Certificates that were sent to the edge last.
    sent_ca: String,
    rights: SessionRights,
    confirmation: DelayedConfirmation,
    /// The edge knows that confirmed data survives the loss of this node.
    has_said_survives: bool,
    /// The warning that was sent to the edge last.
    sent_warning: Option<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.edge_copy.session_has_ended(self.number);
    }
}

impl Session {
    pub(crate) fn begin(
        fleet: Arc<EdgeCopies>,
        edge_copy: Arc<EdgeCopy>,
        number: u64,
    ) -> impl FnOnce() -> Result<Session, ClusterError> {
        move || {
            fleet.set_connected(&edge_copy.name())?;
            let follower = follower(&fleet, &edge_copy)?;
            Ok(Session {
                fleet,
                edge_copy,
                number,
                follower,
                reported_changes: None,
                reports_verified: false,
                was_refused: false,
                is_paused: false,
                is_relayed: false,
                is_path_refused: false,
                sends_live: false,
                asked_live: None,
                silent_max: SILENT_MAX,
                sent_revoked: String::new(),
                sent_ca: String::new(),
                rights: SessionRights::default(),
                confirmation: DelayedConfirmation::default(),
                has_said_survives: false,
                sent_warning: None,
            })
        }
    }

    /// Whether confirmations wait for the peer: those of an edge of this node, and not of data that
    /// comes from the peer.
    fn waits_for_peer(&self) -> bool {
        let name = self.edge_copy.name();
        self.fleet.waits_for_peer()
            && self.edge_copy.live.lock().path.is_empty()
            && self
                .fleet
                .edge(&name)
                .is_some_and(|edge| edge.follows.is_none())
    }

    fn counts(&self) -> bool {
        self.edge_copy.live.lock().session == self.number
    }

    /// Serves until the session ends, at first the frames that have arrived; returns the reason.
    pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        socket: &mut WebSocketStream<S>,
        mut incoming: Vec<Frame>,
        stopping: &mut watch::Receiver<bool>,
    ) -> String {
        let mut frames = Vec::new();
        if self.fleet.waits() {
            // Confirmations wait until the data is there.
            self.has_said_survives = true;
            frames.push(note(&Note::Survives { at: BUCKET.into() }));
        }
        let mut heard = Instant::now();
        loop {
            if !self.counts() {
                return "there is a newer connection, or the edge was removed".to_owned();
            }
            if let Err(reason) = send_all(socket, &mut frames).await {
                return reason;
            }
            let held = Arc::clone(&self.edge_copy);
            let rest = if self.follower.is_waiting() && !self.is_paused {
                TICK
            } else {
                REST
            };
            tokio::select! {
                () = std::future::ready(()), if !incoming.is_empty() => {}
                frame = socket.next() => match frame {
                    Some(Ok(frame)) => incoming.push(frame),
                    Some(Err(error)) => return error.to_string(),
                    None => return "it has closed the connection".to_owned(),
                },
                () = held.wake.notified() => {}
                () = sleep(rest) => {}
                () = stopped(stopping) => return "the server is shutting down".to_owned(),
            }
            add_arrived(socket, &mut incoming);
            if !self.counts() {
                return "there is a newer connection, or the edge was removed".to_owned();
            }
            if !incoming.is_empty() {
                heard = Instant::now();
            }
            if heard.elapsed() > self.silent_max {
                return "it sent nothing for too long".to_owned();
            }
            let taken = std::mem::take(&mut incoming);
            let stepped = blocking(move || {
                let outcome = self.step(&taken);
                (self, outcome)
            });
            match stepped.await {
                Ok((session, outcome)) => {
                    self = session;
                    frames = outcome.frames;
                    if outcome.has_failed {
                        for frame in frames {
                            // The connection ends, whether or not this arrives.
                            let _ = timeout(FAREWELL_MAX, socket.send(frame)).await;
                        }
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

    /// Adds the requests of the copy; its confirmations may have to wait.
    fn add_requests(&mut self, outcome: &mut Outcome) {
        let now = self.now();
        let waits = self.fleet.waits() || self.waits_for_peer();
        while let Some(said) = self.follower.next(now) {
            if matches!(said, Message::AskTail { .. }) {
                self.asked_live = Some(now.monotonic);
            }
            match said {
                Message::Confirm { .. } if waits => self.confirmation.delay(said),
                said => outcome.frames.push(message(&said)),
            }
        }
    }

    /// Processes received messages, and determines the messages to send.
    fn step(&mut self, incoming: &[Frame]) -> Outcome {
        let mut outcome = Outcome::default();
        let wall = self.now().wall;
        if !incoming.is_empty() {
            self.edge_copy.live.lock().last_message = Some(wall);
        }
        for frame in incoming {
            // Only one connection unpacks a large message at a time.
            let fleet = Arc::clone(&self.fleet);
            let _turn = is_large(frame).then(|| fleet.unpacking.lock());
            let taken = match received(frame, MESSAGE_MAX) {
                Received::Message(message) => self.take(message, &mut outcome),
                Received::Note(found) => self.take_note(found, &mut outcome),
                Received::Rights(_) | Received::KeepAlive | Received::End => Ok(()),
            };
            if let Err(error) = taken {
                return self.failed(&error);
            }
        }
        if let Err(error) = self.run_requests() {
            return self.failed(&error);
        }
        let edge = self.fleet.edge(&self.edge_copy.name());
        self.is_paused = edge.as_ref().is_none_or(|edge| edge.is_paused);
        self.follower
            .migrate(edge.map(|e| e.migration).unwrap_or_default());
        let sends_live = self.sends_live;
        if let Some(planner) = self.follower.planner() {
            planner.set_live(sends_live);
        }
        if !self.is_paused && !self.was_refused {
            self.add_requests(&mut outcome);
            self.confirm(&mut outcome);
        }
        if let Some(planner) = self.follower.planner()
            && let Some(failed) = planner.failed()
        {
            let error = ClusterError::new(ClusterErrorKind::Io, failed.to_string());
            return self.failed(&error);
        }
        self.warn(&mut outcome);
        self.tell_changes(&mut outcome);
        match self.rights.frames(&self.fleet, &self.edge_copy.name()) {
            Ok(frames) => outcome.frames.extend(frames),
            Err(error) => return self.failed(&error),
        }
        self.explain();
        self.report(&mut outcome);
        outcome
    }

    /// Tells the edge of revoked tokens, and of further certificates of this node.
    fn tell_changes(&mut self, outcome: &mut Outcome) {
        let revoked = self.fleet.revoked();
        if self.sent_revoked != revoked {
            outcome.frames.push(note(&Note::Revoked {
                list: revoked.clone(),
            }));
            self.sent_revoked = revoked;
        }
        let ca = self.fleet.next_ca();
        if self.sent_ca != ca {
            outcome.frames.push(note(&Note::Trust { ca: ca.clone() }));
            self.sent_ca = ca;
        }
    }

    /// Sends the confirmation that has waited for the peer or the bucket.
    fn confirm(&mut self, outcome: &mut Outcome) {
        let kept = self.edge_copy.live.lock().durable.clone();
        if let Some(confirmed) = self.confirmation.next(kept.as_ref()) {
            // From here on, what is confirmed is at the peer, too.
            if !std::mem::replace(&mut self.has_said_survives, true) {
                outcome
                    .frames
                    .push(note(&Note::Survives { at: PEER.into() }));
            }
            outcome.frames.push(message(&confirmed));
        }
    }

    /// Tells the edge of another machine with its key.
    fn warn(&mut self, outcome: &mut Outcome) {
        let warning = self.edge_copy.live.lock().processes.warning();
        if self.sent_warning != warning {
            let text = warning.clone().unwrap_or_default();
            outcome.frames.push(note(&Note::Warning { text }));
            self.sent_warning = warning;
        }
    }

    fn failed(&self, error: &ClusterError) -> Outcome {
        tracing::error!(edge = %self.edge_copy.name(), %error, "the copy of an edge cannot be used");
        self.edge_copy.close();
        self.edge_copy.live.lock().failed = Some(error.to_string());
        // The edge does not need to know this node's paths.
        let text = "the cloud cannot write its copy of this edge (`headwater edges` there shows the reason); it is tried again within a minute";
        Outcome {
            frames: vec![note(&refused(&ClusterError::new(
                ClusterErrorKind::Io,
                text,
            )))],
            has_failed: true,
        }
    }

    fn take(&mut self, message: Message, outcome: &mut Outcome) -> Result<(), ClusterError> {
        if self.was_refused {
            return Ok(());
        }
        if let Message::Hello(state) = &message
            && !self.is_admitted(state, outcome)?
        {
            return Ok(());
        }
        let now = self.now();
        let first = self.follower.take(now, message).map_err(of_device)?;
        if let Some(state) = first {
            // It may be of another database than announced.
            if !self.is_admitted(&state.name(), outcome)? {
                return Ok(());
            }
            let edge = self
                .fleet
                .edge(&self.edge_copy.name())
                .ok_or_else(|| removed(&self.edge_copy))?;
            let place = self.fleet.location_of(&edge)?;
            let copy = self.edge_copy.begin(&place, &state).map_err(of_device)?;
            self.reported_changes = None;
            self.follower.plan(copy);
            self.distrust();
        }
        Ok(())
    }

    /// True if the edge may have this database; otherwise it is refused.
    fn is_admitted(
        &mut self,
        state: &StateName,
        outcome: &mut Outcome,
    ) -> Result<bool, ClusterError> {
        let name = self.edge_copy.name();
        if let Some(why) = refuses(&self.fleet, &[state.identity]) {
            self.refuse(&why, outcome);
            return Ok(false);
        }
        if let Some(why) = self.fleet.is_of_another(&name, state) {
            self.refuse_history(&why, outcome);
            return Ok(false);
        }
        if !self.fleet.admit(&name, state)? {
            let text = "this name belongs to another database; if that is intended, run `headwater join --new-incarnation` at the edge, which closes its copy here and begins another";
            self.refuse_history(text, outcome);
            return Ok(false);
        }
        Ok(true)
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
        self.edge_copy.live.lock().path = path;
        self.is_relayed = true;
        self.distrust();
        self.is_path_refused = why.is_some();
        if let Some(why) = why {
            self.refuse(&why, outcome);
        }
    }

    fn refuse(&mut self, text: &str, outcome: &mut Outcome) {
        self.was_refused = true;
        self.edge_copy.live.lock().refused = Some(text.to_owned());
        let error = ClusterError::new(ClusterErrorKind::History, text);
        outcome.frames.push(note(&refused(&error)));
        tracing::warn!(edge = %self.edge_copy.name(), why = text, "an edge is refused");
    }

    /// Refuses the process, since its history is not that of the copy.
    fn refuse_history(&mut self, text: &str, outcome: &mut Outcome) {
        self.refuse(text, outcome);
        self.edge_copy.live.lock().processes.refuse_served(text);
        self.edge_copy.greeting.notify_waiters();
    }

    /// Starts over with the copy: what there is becomes a closed part.
    fn begin_anew(&mut self, outcome: &mut Outcome) -> Result<(), ClusterError> {
        if let Some(why) = self.fleet.has_many_parts(&self.edge_copy.name()) {
            self.refuse(&why, outcome);
            return Ok(());
        }
        self.edge_copy.live.lock().processes.begin_anew();
        self.edge_copy = self.fleet.start_over(&self.edge_copy, self.number)?;
        self.was_refused = false;
        self.follower = follower(&self.fleet, &self.edge_copy)?;
        self.confirmation = DelayedConfirmation::default();
        self.reported_changes = None;
        self.distrust();
        Ok(())
    }

    fn take_live(&mut self, report: LiveReport) {
        let asked = self.asked_live;
        let lag = asked.map(|asked| LiveLag::of(report, asked, self.now()));
        self.edge_copy.live.lock().live_lag = lag;
    }

    fn take_note(&mut self, found: Note, outcome: &mut Outcome) -> Result<(), ClusterError> {
        match found {
            Note::Path { nodes: path } => self.take_path(nodes(&path), outcome),
            Note::About(about) => {
                let is_live = about.sends_live;
                let beat = Duration::from_secs(about.heartbeat_seconds.min(HEARTBEAT_MAX));
                self.silent_max = SILENT_MAX + beat;
                self.edge_copy.live.lock().about = Some(about);
                self.sends_live = is_live;
            }
            Note::Quiet { until_ns, cause } => {
                let until = Timestamp::from_nanos(until_ns);
                self.edge_copy.live.lock().quiet = Some((until, cause));
            }
            Note::Live {
                sent_ns,
                held_ms,
                waited_ms,
            } => self.take_live(LiveReport {
                sent_ns,
                held_ms,
                waited_ms,
            }),
            Note::Verify {} => {
                self.reports_verified = true;
                let mut live = self.edge_copy.live.lock();
                (live.is_verification_requested, live.is_verifying) = (true, true);
                live.verified = None;
            }
            // Starting over does not change the path, so the copy is unchanged.
            Note::BeginAnew {} if self.is_path_refused => {}
            Note::BeginAnew {} => self.begin_anew(outcome)?,
            Note::Closed { is_succeeded } if self.is_relayed && !self.was_refused => {
                let name = self.edge_copy.name();
                if let Some(why) = self.fleet.has_many_parts(&name) {
                    self.refuse(&why, outcome);
                    return Ok(());
                }
                if let Some(key) = self.fleet.close_followed(&name, is_succeeded)? {
                    outcome.frames.push(note(&Note::Successor { key }));
                }
            }
            Note::Rights { number, digest } => {
                self.edge_copy.live.lock().rights = Some(number);
                self.rights.take_known(number, digest);
            }
            Note::Trusts(trusts) => self.edge_copy.live.lock().trusts = Some(trusts),
            Note::KeyKept {} => {
                self.rights.take_kept(&self.fleet, &self.edge_copy.name())?;
            }
            // Messages of a cloud are never sent to a cloud.
            _ => {}
        }
        Ok(())
    }

    /// Answers questions about ranges, and notes what has arrived and what is waited for.
    fn explain(&mut self) {
        let now = self.now();
        let questions = std::mem::take(&mut self.edge_copy.live.lock().why);
        let planner = self.follower.planner();
        let planner = planner.map(|planner| &*planner);
        for question in questions {
            question.answer(planner, now);
        }
        let Some(planner) = planner else {
            return;
        };
        let waits = match (planner.failures_in_a_row(), planner.is_held_back(now)) {
            (0, true) => Waits::Edge,
            (0, false) => Waits::No,
            _ => Waits::Failures,
        };
        let arrived = planner.arrived();
        let mut live = self.edge_copy.live.lock();
        live.waits = waits;
        live.arrivals.note(now.monotonic, arrived);
    }

    fn run_requests(&mut self) -> Result<(), ClusterError> {
        let (verify, again) = {
            let mut live = self.edge_copy.live.lock();
            (
                std::mem::take(&mut live.is_verification_requested),
                std::mem::take(&mut live.is_refetch_requested),
            )
        };
        let Some(planner) = self.follower.planner() else {
            // Without data the comparison is postponed.
            let mut live = self.edge_copy.live.lock();
            live.is_verification_requested |= verify;
            return Ok(());
        };
        if again {
            planner.fetch_again().map_err(of_device)?;
        }
        if verify {
            planner.verify();
        }
        Ok(())
    }

    /// Reports the progress of the copy.
    fn report_progress(&self, progress: CopyProgress, proven_bytes: u64) {
        let shows = |p: &CopyProgress| {
            let partitions = (p.shown, p.shown_older, p.readable, p.retained);
            (p.state, partitions, p.tail.until)
        };
        let mut live = self.edge_copy.live.lock();
        live.proven_bytes = proven_bytes;
        let is_other = live.progress.as_ref().map(shows) != Some(shows(&progress));
        drop(live);
        // Readers that see the progress look at the copy again before they read.
        if is_other {
            self.edge_copy.has_changed();
        }
        self.edge_copy.note(progress);
    }

    /// Reports the result to both sides.
    fn report(&mut self, outcome: &mut Outcome) {
        if !self.was_refused
            && let Some(text) = self.follower.refused()
        {
            let text = format!(
                "{text}; if that is intended, run `headwater join --new-incarnation` at the edge, which closes its copy here and begins another"
            );
            self.refuse_history(&text, outcome);
        }
        let wall = self.now().wall;
        let verified = self.follower.verified();
        let planner = self.follower.planner();
        if let Some(planner) = planner {
            let changes = planner.copy().changes();
            if self.reported_changes.replace(changes) != Some(changes) || planner.is_proving() {
                let (progress, proven) = (planner.copy().progress(), planner.proven());
                self.report_progress(progress, proven.proven_bytes);
            }
        }
        let mut live = self.edge_copy.live.lock();
        if live.progress.as_ref().is_some_and(is_current) {
            live.current = Some(wall);
        }
        if live.is_verifying
            && !live.is_verification_requested
            && let Some(found) = verified
        {
            live.is_verifying = false;
            live.verified = Some((wall, found));
            if std::mem::take(&mut self.reports_verified) {
                outcome.frames.push(note(&Note::Verified {
                    equal: found.equal,
                    different: found.different,
                    missing: found.missing,
                }));
            }
        }
    }
}

/// Sends frames; an error is the reason why the session ends.
async fn send_all<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    frames: &mut Vec<Frame>,
) -> Result<(), String> {
    for frame in frames.drain(..) {
        match timeout(SEND_MAX, socket.send(frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("it does not read what is sent".to_owned()),
        }
    }
    Ok(())
}

/// Adds the frames that have arrived behind the first one, as many as are processed at once.
fn add_arrived<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    incoming: &mut Vec<Frame>,
) {
    let mut bytes = incoming.iter().map(Frame::len).sum::<usize>();
    while !incoming.is_empty() && incoming.len() < AT_ONCE && bytes < AT_ONCE_BYTES {
        match socket.next().now_or_never() {
            Some(Some(Ok(frame))) => {
                bytes = bytes.saturating_add(frame.len());
                incoming.push(frame);
            }
            _ => break,
        }
    }
}

fn removed(held: &EdgeCopy) -> ClusterError {
    ClusterError::new(
        ClusterErrorKind::NotFound,
        format!("the edge `{}` was removed", held.name()),
    )
}

fn follower(fleet: &EdgeCopies, held: &Arc<EdgeCopy>) -> Result<Follower, ClusterError> {
    let edge = fleet.edge(&held.name()).ok_or_else(|| removed(held))?;
    let copy = fleet.copy(held, &edge)?;
    // Readers of a copy that was closed meanwhile switch to this one.
    held.has_changed();
    Ok(Follower::new(copy, fleet.env().chance.next_u64()))
}
