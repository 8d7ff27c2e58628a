//! One connection to a cloud, of an edge, or of a node that relays an edge.
//!
//! Invariants, concurrency and failure: as in the uplink.

use super::heartbeat::Heartbeat;
use super::live::REPORT_EVERY;
use super::outbox::{Event, Outbox};
use super::{LOOK, THOROUGH, Uplink};
use crate::dial::{Dialled, Verifier};
use crate::error::{ClusterError, ClusterErrorKind};
use crate::frame::{EDGE_MESSAGE_MAX, Note, QuietCause, Received, Trusts, message, note, received};
use crate::rights::{Stored, checked_key};
use crate::status::UplinkState;
use crate::trust;
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
use headwater_engine::StateName;
use headwater_protocol::replication::{Message, Verified};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_tungstenite::tungstenite::Message as Frame;

/// Pause before a list of rights that could not be stored is requested again.
const RIGHTS_AGAIN: Duration = Duration::from_secs(30);

/// State of one connection.
pub(super) struct Talk {
    pub(super) uplink: Arc<Uplink>,
    outbox: Outbox,
    pub(super) file: UplinkFile,
    /// The state that was last sent to the cloud.
    sent_state: Option<StateName>,
    /// The relay path that was last sent to the cloud.
    path: Vec<u64>,
    /// The cloud was told that the relayed copy is a closed part.
    has_told_closed: bool,
    pub(super) was_of_use: bool,
    /// Verifier of the cloud's certificate, which takes the time that the cloud proves.
    pub(super) verifier: Verifier,
    beat: Heartbeat,
    /// Reason why the cloud cannot accept data now.
    failure: Option<String>,
    /// The cloud is to be told which list of rights is here.
    is_rights_note_due: bool,
    /// Instant from which on a list of rights that could not be stored is requested again.
    rights_again: Option<Instant>,
    /// The next key of this node, which is not stored yet.
    next_key: Option<String>,
    /// Further certificates of the cloud, which are not stored yet.
    next_ca: Option<String>,
    flushed: Instant,
    /// When times of newest events were last reported.
    reported_live: Option<Instant>,
}

impl Uplink {
    /// Makes the database another one than that of the copy that the cloud has: begins another
    /// incarnation, once for each request to begin anew.
    fn renew(&self) -> Result<(), ClusterError> {
        if !self.has_renewed.load(Ordering::Relaxed) {
            self.origin.renew()?;
            self.has_renewed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reports what the cloud says of this edge while it is connected; nothing = not any more.
    fn warn(&self, text: String) {
        let mut known = self.link.lock();
        if known.state == UplinkState::Connected {
            if !text.is_empty() {
                tracing::warn!(why = %text, "sync: the cloud warns of this edge");
            }
            known.error = (!text.is_empty()).then_some(text);
        }
    }
}

impl Talk {
    pub(super) fn new(uplink: &Arc<Uplink>, connection: Dialled, file: &UplinkFile) -> Talk {
        Talk {
            uplink: Arc::clone(uplink),
            outbox: Outbox::new(connection),
            file: file.clone(),
            sent_state: None,
            path: Vec::new(),
            has_told_closed: false,
            was_of_use: false,
            failure: None,
            is_rights_note_due: false,
            rights_again: None,
            next_key: None,
            next_ca: None,
            verifier: None,
            beat: Heartbeat::new(&uplink.settings.budget, uplink.env.clock.monotonic()),
            flushed: Instant::now(),
            reported_live: None,
        }
    }

    /// Serves until the connection ends; returns the reason.
    pub(super) async fn run(&mut self, stopping: &mut watch::Receiver<bool>) -> String {
        let process = note(&Note::process(self.uplink.process));
        if let Err(ended) = self.send(process).await {
            return ended;
        }
        self.path = self.uplink.origin.path();
        if !self.path.is_empty() {
            // Before any message: the data is another node's.
            let told = note(&Note::path(&self.path));
            if let Err(ended) = self.send(told).await {
                return ended;
            }
        }
        if self.file.begins_anew
            && let Err(ended) = self.begin_anew().await
        {
            return ended;
        }
        let mut look = tokio::time::interval(LOOK);
        let mut thorough: Option<Instant> = None;
        loop {
            let live = self.uplink.live_wait();
            tokio::select! {
                event = self.outbox.event() => {
                    if let Err(ended) = self.take_event(event).await {
                        return ended;
                    }
                }
                () = sleep(live.unwrap_or(LOOK)), if live.is_some() => {
                    if let Err(ended) = self.send_live().await {
                        return ended;
                    }
                }
                _ = look.tick() => {
                    if self.outbox.is_stuck() || self.beat.is_dead(self.uplink.env.clock.monotonic()) {
                        return "the cloud does not answer any more".to_owned();
                    }
                    let is_due = thorough.is_none_or(|at| at.elapsed() >= THOROUGH);
                    if is_due {
                        thorough = Some(Instant::now());
                    }
                    if let Err(ended) = self.look(is_due).await {
                        return ended;
                    }
                }
                () = stopped(stopping) => {
                    self.outbox.close(LOOK).await;
                    return "this node is shutting down".to_owned();
                }
            }
        }
    }

    /// Makes the cloud begin a new copy, of another incarnation.
    async fn begin_anew(&mut self) -> Result<(), String> {
        self.call(Uplink::renew).await?;
        self.send(note(&Note::BeginAnew {})).await
    }

    async fn send(&mut self, frame: Frame) -> Result<(), String> {
        self.beat.sent();
        self.outbox.send(frame).await
    }

    async fn take_event(&mut self, event: Event) -> Result<(), String> {
        self.beat.heard(self.uplink.env.clock.monotonic());
        match event {
            Event::Received(frame) => self.take(&frame).await,
            // The cloud reads.
            Event::Written => {
                self.beat.sent();
                Ok(())
            }
            Event::Ended(ended) => Err(ended),
        }
    }

    /// Sends the newest events, if the cloud waits for them.
    async fn send_live(&mut self) -> Result<(), String> {
        let Some((newest, report)) = self.call(Uplink::live).await? else {
            return Ok(());
        };
        let is_due = self
            .reported_live
            .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if let Some(report) = report.filter(|_| is_due) {
            self.reported_live = Some(Instant::now());
            // Before the events: both wait for the same.
            self.send(note(&report)).await?;
        }
        self.outbox.push(newest);
        Ok(())
    }

    /// Runs a call of the database on a thread that may wait.
    async fn call<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Uplink) -> Result<T, ClusterError> + Send + 'static,
    ) -> Result<T, String> {
        let uplink = Arc::clone(&self.uplink);
        match blocking(move || question(&uplink)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Charges what was sent and received to the budget.
    async fn settle(&self) -> Result<(), String> {
        let charged = *self.uplink.charged.lock();
        if self.uplink.bytes.total() == charged {
            return Ok(());
        }
        let (uplink, unsent) = (Arc::clone(&self.uplink), self.outbox.unsent());
        let settled = blocking(move || uplink.settle(unsent)).await;
        settled.map_err(|e| e.to_string())?
    }

    /// Ends the connection for a pause of the budget, which the cloud is told.
    async fn rest_if_due(&mut self) -> Result<(), String> {
        let Some(pause) = self.uplink.pause_now() else {
            return Ok(());
        };
        let told = note(&Note::Quiet {
            until_ns: pause.until.as_nanos(),
            cause: QuietCause::from(pause.cause),
        });
        self.send(told).await?;
        self.outbox.close(LOOK).await;
        // The status changes with the next look.
        Err(QuietCause::from(pause.cause).text().to_owned())
    }

    /// Sends signs of life and reports that are due.
    async fn beat(&mut self, thorough: bool) -> Result<(), String> {
        if thorough {
            let mut about = self.call(Uplink::about).await?;
            about.heartbeat_seconds = self.beat.idle_seconds();
            let (now, traffic) = (self.uplink.env.clock.monotonic(), self.uplink.bytes.total());
            if self.beat.is_about_due(&about, traffic, now) {
                self.send(note(&Note::About(about))).await?;
            }
        }
        let now = self.uplink.env.clock.monotonic();
        if self.beat.is_ping_due(now) {
            self.send(Frame::Ping(Vec::new().into())).await?;
        }
        Ok(())
    }

    /// Tells the cloud once that the relayed copy is a closed part; a peer has it in the roster.
    async fn tell_closed(&mut self) -> Result<(), String> {
        if self.has_told_closed || self.file.is_peer {
            return Ok(());
        }
        let Some(successor) = self.uplink.origin.closed() else {
            return Ok(());
        };
        let file = successor.map(|folder| self.uplink.file_beside(&folder));
        let file = file.transpose().map_err(|e| e.to_string())?;
        self.has_told_closed = true;
        let is_succeeded = file.is_some_and(|file| file.is_none());
        self.send(note(&Note::Closed { is_succeeded })).await
    }

    /// Checks the file and the database, and queues reports of changes.
    async fn look(&mut self, thorough: bool) -> Result<(), String> {
        self.settle().await?;
        self.rest_if_due().await?;
        let file = UplinkFile::read(&self.uplink.dir).map_err(|e| e.to_string())?;
        if file.as_ref() != Some(&self.file) {
            return Err("the address, key or certificate of the cloud has changed".to_owned());
        }
        if self.uplink.origin.path() != self.path {
            return Err("the path of a relayed edge has changed".to_owned());
        }
        if thorough {
            self.call(Uplink::free).await?;
            self.call(|uplink| uplink.time.persist()).await?;
        }
        if let Some(challenge) = self.call(Uplink::challenge).await? {
            self.outbox.push(challenge);
        }
        self.tell_closed().await?;
        self.beat(thorough).await?;
        if self.rights_again.is_some_and(|at| at <= Instant::now()) {
            self.rights_again = None;
            self.is_rights_note_due = true;
        }
        if std::mem::take(&mut self.is_rights_note_due)
            && let Some(receiver) = self.uplink.settings.rights.clone()
        {
            let known = blocking(move || receiver.known()).await;
            let (number, digest) = known.map_err(|e| e.to_string())?;
            self.send(note(&Note::Rights { number, digest })).await?;
        }
        if std::mem::take(&mut self.uplink.link.lock().is_verification_requested) {
            self.send(note(&Note::Verify {})).await?;
        }
        self.flush_if_due().await?;
        let told = self.sent_state;
        let news = self.call(move |uplink| uplink.news(told, thorough)).await?;
        if let Some(name) = news {
            self.send(message(&Message::Hello(name))).await?;
            self.sent_state = Some(name);
        }
        for change in self.call(Uplink::changes).await? {
            self.outbox.push(change);
        }
        self.settle().await
    }

    /// Flushes events that have waited in memory for too long, so that the copy receives them.
    async fn flush_if_due(&mut self) -> Result<(), String> {
        let Some(every) = self.uplink.settings.flush_every else {
            return Ok(());
        };
        if self.flushed.elapsed() < every {
            return Ok(());
        }
        self.flushed = Instant::now();
        self.call(|uplink| uplink.origin.flush()).await
    }

    async fn take(&mut self, frame: &Frame) -> Result<(), String> {
        match received(frame, EDGE_MESSAGE_MAX) {
            Received::Message(message) => self.answer(message).await,
            Received::Rights(list) => self.take_rights(list).await,
            Received::Note(found) => {
                self.take_note(found);
                self.store_next_key().await?;
                self.store_next_ca().await?;
                match self.failure.take() {
                    // What arrived before does not help while the cloud cannot store it.
                    Some(text) => {
                        self.was_of_use = false;
                        Err(text)
                    }
                    None => Ok(()),
                }
            }
            Received::KeepAlive => Ok(()),
            Received::End => Err("the cloud has closed the connection".to_owned()),
        }
    }

    fn take_note(&mut self, found: Note) {
        let uplink = &self.uplink;
        match found {
            Note::Welcome {
                now_ns,
                is_patient,
                answers_challenges,
                ..
            } => {
                uplink.set_state(UplinkState::Connected, None);
                uplink.link.lock().challenges.answers = answers_challenges;
                self.is_rights_note_due = uplink.settings.rights.is_some();
                if is_patient {
                    self.beat.set_patient();
                }
                if let (Some(verifier), Some(ns)) = (&self.verifier, now_ns) {
                    verifier.prove(ns);
                }
                let validity = self.verifier.as_ref().and_then(|by| by.validity());
                uplink.link.lock().certificate_ends = validity.map(|known| known.not_after);
            }
            Note::Survives { .. } => uplink.link.lock().survives = true,
            Note::Refused { code, text } if code == ClusterErrorKind::Io.code() => {
                self.failure = Some(text);
            }
            Note::Warning { text } => uplink.warn(text),
            Note::Refused { text, .. } => uplink.set_state(UplinkState::Refused, Some(text)),
            Note::Successor { key } => {
                if let Err(error) = uplink.relay_successor(&self.file, key) {
                    // It is told again over the next connection.
                    self.failure = Some(error.to_string());
                }
            }
            Note::NewKey { key } => self.next_key = Some(key),
            Note::Trust { ca } => self.next_ca = Some(ca),
            Note::Revoked { list } => uplink.link.lock().revoked = list,
            Note::Verified {
                equal,
                different,
                missing,
            } => {
                let at = uplink.env.clock.now();
                let mut known = uplink.link.lock();
                known.is_verifying = false;
                let found = Verified {
                    equal,
                    different,
                    missing,
                };
                known.verified = Some((at, found));
            }
            // Messages of an edge are never sent to an edge.
            _ => {}
        }
    }

    /// Stores the list of rights of the cloud.
    async fn take_rights(&mut self, list: Vec<u8>) -> Result<(), String> {
        let pin = self.file.rights_key.clone();
        let taken = self.call(move |uplink| {
            let receiver = uplink.settings.rights.as_ref();
            Ok(receiver.map(|receiver| receiver.take(&list, pin.as_deref())))
        });
        match taken.await? {
            Some(Stored::New) => self.is_rights_note_due = true,
            // The cloud sends it again when it hears which list is here.
            Some(Stored::Failed) => self.rights_again = Some(Instant::now() + RIGHTS_AGAIN),
            _ => {}
        }
        Ok(())
    }

    /// Stores the next key of this node, and confirms it: until then the key before is valid.
    async fn store_next_key(&mut self) -> Result<(), String> {
        let Some(key) = self.next_key.take() else {
            return Ok(());
        };
        checked_key(&key).map_err(|e| e.to_string())?;
        let stored = key.clone();
        self.call(move |uplink| uplink.change_file(|file| file.key = stored))
            .await?;
        self.file.key = key;
        self.uplink.link.lock().file = Some(self.file.clone());
        tracing::info!("this node has its next key for the cloud");
        self.send(note(&Note::KeyKept {})).await
    }

    /// Stores further certificates of the cloud. Only one that was verified by certificates of this
    /// node may add others; those of a peer are a setting.
    async fn store_next_ca(&mut self) -> Result<(), String> {
        let Some(more) = self.next_ca.take() else {
            return Ok(());
        };
        let known = self.file.ca.as_ref();
        let known = known.filter(|_| self.verifier.is_some() && !self.file.is_peer);
        if let Some(ca) = known.and_then(|known| trust::extended(known, &more)) {
            self.store_ca(ca).await?;
        }
        if more.is_empty() {
            return Ok(());
        }
        let own = self.file.ca.as_deref().unwrap_or_default();
        self.send(note(&Note::Trusts(Trusts {
            certificates: trust::fingerprints(own),
            is_verified: self.verifier.is_some(),
        })))
        .await
    }

    /// Stores the certificates by which the cloud is verified from now on.
    async fn store_ca(&mut self, ca: String) -> Result<(), String> {
        let stored = ca.clone();
        self.call(move |uplink| uplink.change_file(|file| file.ca = Some(stored)))
            .await?;
        self.file.ca = Some(ca);
        self.uplink.link.lock().file = Some(self.file.clone());
        tracing::info!("this node trusts the next certificate of the cloud, too");
        Ok(())
    }

    async fn answer(&mut self, asked: Message) -> Result<(), String> {
        self.was_of_use = true;
        let begins = matches!(
            asked,
            Message::AskState {
                known_state: None,
                ..
            }
        );
        if begins && self.file.begins_anew {
            // The cloud has closed its copy, and requests a first state.
            let changed = self.uplink.change_file(|file| file.begins_anew = false);
            changed.map_err(|e| e.to_string())?;
            self.file.begins_anew = false;
            self.uplink.has_renewed.store(false, Ordering::Relaxed);
            self.uplink.link.lock().file = Some(self.file.clone());
            self.uplink.set_state(UplinkState::Connected, None);
        }
        let uplink = Arc::clone(&self.uplink);
        let answers = blocking(move || uplink.answer(asked)).await;
        for answer in answers.map_err(|e| e.to_string())?? {
            self.outbox.push(answer);
        }
        self.settle().await
    }
}
