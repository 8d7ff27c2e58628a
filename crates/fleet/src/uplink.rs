//! The connection of an edge to its cloud: made, kept, made again, and what is asked over it
//! answered within the budget.
//!
//! Invariants: an edge without a connection works as any other node. What is sent is granted by the
//! budget first. The cloud is never asked for anything that the edge depends on.
//! Concurrency: one task; the database is asked on threads that may wait.
//! Failure: a connection that fails is made again, after a second first, after a minute at most;
//! one over which something came begins that anew.

use crate::dial::{Dialled, dial};
use crate::error::{FleetError, FleetErrorKind, medium};
use crate::frame::{About, Came, Note, came, message, note};
use crate::invite::Invite;
use crate::private;
use crate::session::SILENT_MAX;
use crate::status::{UplinkState, UplinkStatus, VerifiedStatus};
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
use futures_util::{SinkExt, StreamExt};
use headwater_engine::{Database, Rules, StateName};
use headwater_io::Env;
use headwater_sync::{Agent, Budget, BudgetLimits, Confirmed, Message, Now, Spent, Verified};
use headwater_types::Timestamp;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message as Frame;

/// How often the file and the database are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often the edge tells about itself, which is a sign of life too, and looks for what comes
/// without another number of the state.
const ABOUT: Duration = Duration::from_secs(10);
const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MOST: Duration = Duration::from_secs(60);
const SEND_MAX: Duration = Duration::from_secs(60);
/// As what the database knows the cloud's copy.
const COPY: &str = "cloud";

/// What an edge may do for its cloud.
#[derive(Clone, Debug)]
pub struct UplinkSettings {
    /// Bytes of replaced files that are kept while they are being fetched.
    pub hold_bytes: u64,
    /// What may be sent.
    pub budget: BudgetLimits,
    /// How long events may stay where a copy cannot see them, while there is a connection; `None` =
    /// as long as the database likes.
    pub flush_every: Option<Duration>,
    /// What may leave: tables of which these rules want nothing stay here, names and all.
    pub rules: Rules,
    /// Version of the program.
    pub version: String,
}

#[derive(Debug)]
struct Known {
    state: UplinkState,
    since: Timestamp,
    file: Option<UplinkFile>,
    error: Option<String>,
    wants_verifying: bool,
    is_verifying: bool,
    verified: Option<(Timestamp, Verified)>,
}

/// What keeps an edge connected.
#[derive(Debug)]
pub struct Uplink {
    db: Database,
    env: Env,
    dir: PathBuf,
    settings: UplinkSettings,
    agent: Mutex<Agent>,
    known: Mutex<Known>,
    /// What an earlier version stored is hashed too.
    ledger_is_complete: AtomicBool,
}

/// Joins a cloud with an invitation: changes it for a key, and stores that in the directory of the
/// database. A server that runs on the database connects within seconds.
///
/// # Errors
/// `invalid` for a text that is no invitation, `denied` when the cloud does not know it, or not any
/// more, `unreachable`, `io`.
pub async fn join(
    dir: &Path,
    invitation: &str,
    url: Option<&str>,
    ca: Option<String>,
    begins_anew: bool,
) -> Result<UplinkFile, FleetError> {
    let invite = Invite::decode(invitation)?;
    let url = url.unwrap_or(&invite.url);
    let ca = ca.or(invite.ca);
    let mut connection = dial(url, ca.as_deref(), &invite.secret).await?;
    let answered = timeout(SEND_MAX, connection.next()).await;
    let key = match answered {
        Ok(Some(Ok(frame))) => match came(&frame) {
            Came::Note(Note::Key { key }) => key,
            Came::Note(Note::Refused { text, .. }) => {
                return Err(FleetError::new(FleetErrorKind::Denied, text));
            }
            _ => {
                return Err(FleetError::invalid(format!(
                    "{url}: this is no cloud's answer"
                )));
            }
        },
        _ => {
            return Err(FleetError::new(
                FleetErrorKind::Unreachable,
                format!("{url}: the connection ended before the key came; try again"),
            ));
        }
    };
    let mut file = UplinkFile::new(url, &invite.edge, key, ca);
    file.begins_anew = begins_anew;
    file.write(dir)?;
    let _ = timeout(Duration::from_secs(1), connection.close(None)).await;
    Ok(file)
}

/// Where it is kept what was sent.
fn spent_path(dir: &Path) -> PathBuf {
    dir.join("uplink.spent")
}

/// What was sent before; nothing where no file says so. One that is damaged stops the start: to
/// take it for nothing would give a cap back.
fn read_spent(path: &Path) -> Result<Spent, FleetError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Spent::default()),
        Err(error) => return Err(FleetError::io(path, &error)),
    };
    Spent::decode(&bytes).map_err(|error| {
        FleetError::new(
            FleetErrorKind::Io,
            format!(
                "{}: {error}; it says what was sent of the caps of this day and month: remove it to begin both anew",
                path.display()
            ),
        )
    })
}

impl Uplink {
    /// That of the database in a directory.
    ///
    /// # Errors
    /// `io` when the file about the cloud cannot be read.
    pub fn new(
        db: Database,
        env: Env,
        dir: &Path,
        settings: UplinkSettings,
    ) -> Result<Uplink, FleetError> {
        let file = UplinkFile::read(dir)?;
        let budget = Budget::new(settings.budget.clone(), read_spent(&spent_path(dir))?);
        let mut agent = Agent::new(settings.hold_bytes, budget);
        agent.set_rules(settings.rules.clone());
        agent.set_copy(COPY);
        if file.is_some() {
            // Deletes that come before the connection have to reach the copy, too.
            db.add_copy(COPY).map_err(medium)?;
        }
        Ok(Uplink {
            db,
            dir: dir.to_owned(),
            agent: Mutex::new(agent),
            known: Mutex::new(Known {
                state: match file {
                    None => UplinkState::NotJoined,
                    Some(_) => UplinkState::Offline,
                },
                since: env.clock.now(),
                file,
                error: None,
                wants_verifying: false,
                is_verifying: false,
                verified: None,
            }),
            ledger_is_complete: AtomicBool::new(false),
            settings,
            env,
        })
    }

    /// How it stands.
    ///
    /// # Errors
    /// The database's own.
    pub fn status(&self) -> headwater_engine::Result<UplinkStatus> {
        let state_number = self.db.state_number()?;
        let (spent, confirmed) = {
            let agent = self.agent.lock();
            (agent.spent(), agent.confirmed().cloned())
        };
        let known = self.known.lock();
        let segments = confirmed.iter().flat_map(|c| &c.segments);
        Ok(UplinkStatus {
            state: known.state,
            url: known.file.as_ref().map(|file| file.url.clone()),
            edge: known.file.as_ref().map(|file| file.edge.clone()),
            since_ns: known.since.as_nanos(),
            state_number,
            confirmed_number: confirmed.as_ref().map(|c: &Confirmed| c.state.number),
            confirmed_segments: segments.clone().count(),
            confirmed_bytes: segments.map(|(_, bytes)| bytes).sum(),
            differing_segments: confirmed.as_ref().map_or(0, |c| c.differ.len()),
            sent_today: spent.day_bytes,
            sent_this_month: spent.month_bytes,
            is_verifying: known.is_verifying,
            verified: known.verified.map(|(at, found)| VerifiedStatus {
                at_ns: at.as_nanos(),
                equal: found.equal,
                different: found.different,
                missing: found.missing,
            }),
            error: known.error.clone(),
        })
    }

    /// Sends nothing any more, or sends again: kept over restarts.
    ///
    /// # Errors
    /// `not_found` when no cloud was joined, `io`.
    pub fn pause(&self, is_paused: bool) -> Result<(), FleetError> {
        self.change_file(|file| file.is_paused = is_paused)
    }

    /// Has the cloud compare what it has with what is here, both read from their media.
    ///
    /// # Errors
    /// `unreachable` when there is no connection.
    pub fn verify(&self) -> Result<(), FleetError> {
        let mut known = self.known.lock();
        if known.state != UplinkState::Connected {
            let text = "there is no connection to the cloud; `headwater sync status` says why";
            return Err(FleetError::new(FleetErrorKind::Unreachable, text));
        }
        (known.wants_verifying, known.is_verifying) = (true, true);
        known.verified = None;
        Ok(())
    }

    fn change_file(&self, change: impl FnOnce(&mut UplinkFile)) -> Result<(), FleetError> {
        let file = UplinkFile::read(&self.dir)?;
        let mut file = file.ok_or_else(|| {
            FleetError::new(
                FleetErrorKind::NotFound,
                "no cloud was joined: run `headwater join` with an invitation of the cloud",
            )
        })?;
        change(&mut file);
        file.write(&self.dir)
    }

    fn stands(&self, state: UplinkState, error: Option<String>) {
        let mut known = self.known.lock();
        if known.state != state {
            known.since = self.env.clock.now();
        }
        if let Some(text) = &error
            && known.error.as_ref() != Some(text)
        {
            tracing::warn!(why = %text, "sync: no connection to the cloud");
        }
        (known.state, known.error) = (state, error);
        if state != UplinkState::Connected {
            known.is_verifying = false;
        }
    }

    /// Keeps the connection until the server stops.
    pub async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut pause = BACK_OFF_FIRST;
        while !*stopping.borrow() {
            let wait = match UplinkFile::read(&self.dir) {
                Err(error) => {
                    self.stands(UplinkState::Offline, Some(error.to_string()));
                    LOOK
                }
                Ok(None) => {
                    let was_joined = self.known.lock().file.take().is_some();
                    self.stands(UplinkState::NotJoined, None);
                    if was_joined {
                        self.leave().await;
                    }
                    LOOK
                }
                Ok(Some(file)) => {
                    let is_other = self.known.lock().file.replace(file.clone());
                    if is_other.as_ref() != Some(&file) {
                        pause = BACK_OFF_FIRST;
                    }
                    if file.is_paused {
                        self.stands(UplinkState::Paused, None);
                        LOOK
                    } else {
                        let was_of_use = self.connect(&file, &mut stopping).await;
                        pause = match was_of_use {
                            true => BACK_OFF_FIRST,
                            false => (pause * 2).min(BACK_OFF_MOST),
                        };
                        pause
                    }
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = stopped(&mut stopping) => {}
                () = self.until_the_file_changes() => {}
            }
        }
    }

    /// There is no copy any more that would have to be told of deletes.
    async fn leave(self: &Arc<Self>) {
        let uplink = Arc::clone(self);
        let left = blocking(move || uplink.db.remove_copy(COPY)).await;
        let left = left.map_err(|e| e.to_string());
        if let Err(error) = left.and_then(|left| left.map_err(|e| e.to_string())) {
            tracing::warn!(why = %error, "sync: deletes are kept for a cloud that was left");
        }
    }

    /// Waits for another file than the one in force.
    async fn until_the_file_changes(&self) {
        loop {
            sleep(LOOK).await;
            let now = UplinkFile::read(&self.dir).ok().flatten();
            if now != self.known.lock().file {
                return;
            }
        }
    }

    /// Makes a connection and serves it; true when something was asked over it.
    async fn connect(
        self: &Arc<Self>,
        file: &UplinkFile,
        stopping: &mut watch::Receiver<bool>,
    ) -> bool {
        let uplink = Arc::clone(self);
        let known = blocking(move || uplink.db.add_copy(COPY)).await;
        if let Err(error) = known.and_then(|known| known.map_err(medium)) {
            self.stands(UplinkState::Offline, Some(error.to_string()));
            return false;
        }
        let dialled = tokio::select! {
            dialled = dial(&file.url, file.ca.as_deref(), &file.key) => dialled,
            () = stopped(stopping) => return false,
        };
        match dialled {
            Err(error) => {
                self.stands(UplinkState::Offline, Some(error.to_string()));
                false
            }
            Ok(connection) => {
                let mut talk = Talk {
                    uplink: Arc::clone(self),
                    connection,
                    file: file.clone(),
                    told: None,
                    was_of_use: false,
                    flushed: Instant::now(),
                };
                let ended = talk.run(stopping).await;
                let was_of_use = talk.was_of_use;
                if self.known.lock().state == UplinkState::Connected {
                    self.stands(UplinkState::Offline, Some(ended));
                }
                was_of_use
            }
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.env.clock.monotonic(),
            wall: self.env.clock.now(),
        }
    }

    /// Answers, once what that costs is on the medium: no restart gives a cap back.
    fn answer(&self, asked: Message) -> Result<Vec<Message>, String> {
        let mut agent = self.agent.lock();
        let answers = agent.answer(&self.db, self.now(), asked);
        let answers = answers.map_err(|e| e.to_string())?;
        if let Some(spent) = agent.to_keep() {
            let kept = private::replace_bytes(&spent_path(&self.dir), &spent.encode());
            kept.map_err(|e| e.to_string())?;
            agent.has_kept(spent);
        }
        Ok(answers)
    }

    /// What is to be said of the database if the cloud was told of this state last. Definitions
    /// and deletes come without another number: they are looked for when `thorough`.
    fn news(
        &self,
        told: Option<StateName>,
        thorough: bool,
    ) -> headwater_engine::Result<Option<StateName>> {
        let mut agent = self.agent.lock();
        agent.keep_within();
        if !self.ledger_is_complete.load(Ordering::Relaxed) {
            let is_complete = agent.complete_ledger(&self.db, self.now())?;
            self.ledger_is_complete
                .store(is_complete, Ordering::Relaxed);
        }
        let number = self.db.state_number()?;
        if !thorough && told.is_some_and(|told| told.number == number) {
            return Ok(None);
        }
        match agent.hello(&self.db)? {
            Message::Hello(name) if told != Some(name) => Ok(Some(name)),
            _ => Ok(None),
        }
    }

    fn about(&self) -> headwater_engine::Result<About> {
        let stats = self.db.stats()?;
        let spent = self.agent.lock().spent();
        let budget = &self.settings.budget;
        Ok(About {
            version: self.settings.version.clone(),
            now_ns: self.env.clock.now().as_nanos(),
            sent_today: spent.day_bytes,
            sent_this_month: spent.month_bytes,
            rate: budget.bytes_per_second,
            day_max: budget.bytes_per_day,
            month_max: budget.bytes_per_month,
            disk_bytes: stats.disk_bytes,
            written_bytes: stats.bulk_written_bytes + stats.fast_written_bytes,
        })
    }
}

/// One connection.
struct Talk {
    uplink: Arc<Uplink>,
    connection: Dialled,
    file: UplinkFile,
    /// The state that the cloud was told of last.
    told: Option<StateName>,
    was_of_use: bool,
    flushed: Instant,
}

impl Talk {
    /// Serves until something ends it; says what.
    async fn run(&mut self, stopping: &mut watch::Receiver<bool>) -> String {
        if self.file.begins_anew
            && let Err(ended) = self.send(note(&Note::BeginAnew {})).await
        {
            return ended;
        }
        let mut look = tokio::time::interval(LOOK);
        let mut heard = Instant::now();
        let mut about: Option<Instant> = None;
        loop {
            tokio::select! {
                frame = self.connection.next() => {
                    heard = Instant::now();
                    let taken = match frame {
                        Some(Ok(frame)) => self.take(&frame).await,
                        Some(Err(error)) => Err(error.to_string()),
                        None => Err("the cloud has ended the connection".to_owned()),
                    };
                    if let Err(ended) = taken {
                        return ended;
                    }
                }
                _ = look.tick() => {
                    if heard.elapsed() > SILENT_MAX {
                        return "the cloud is silent".to_owned();
                    }
                    let is_due = about.is_none_or(|at| at.elapsed() >= ABOUT);
                    if is_due {
                        about = Some(Instant::now());
                    }
                    if let Err(ended) = self.look(is_due).await {
                        return ended;
                    }
                }
                () = stopped(stopping) => {
                    let _ = timeout(LOOK, self.connection.close(None)).await;
                    return "this node stops".to_owned();
                }
            }
        }
    }

    async fn send(&mut self, frame: Frame) -> Result<(), String> {
        match timeout(SEND_MAX, self.connection.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the cloud takes nothing".to_owned()),
        }
    }

    /// Asks the database something, where that may wait.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Uplink) -> headwater_engine::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let uplink = Arc::clone(&self.uplink);
        match blocking(move || question(&uplink)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Looks at the file and the database, and says what is new.
    async fn look(&mut self, thorough: bool) -> Result<(), String> {
        let file = UplinkFile::read(&self.uplink.dir).map_err(|e| e.to_string())?;
        if file.as_ref() != Some(&self.file) {
            return Err("what is known of the cloud has changed".to_owned());
        }
        if thorough {
            let about = self.ask(Uplink::about).await?;
            self.send(note(&Note::About(about))).await?;
            self.send(Frame::Ping(Vec::new().into())).await?;
        }
        if std::mem::take(&mut self.uplink.known.lock().wants_verifying) {
            self.send(note(&Note::Verify {})).await?;
        }
        self.flush_if_due().await?;
        let told = self.told;
        let news = self.ask(move |uplink| uplink.news(told, thorough)).await?;
        if let Some(name) = news {
            self.send(message(&Message::Hello(name))).await?;
            self.told = Some(name);
        }
        Ok(())
    }

    /// Makes visible to the copy what has waited in memory for long.
    async fn flush_if_due(&mut self) -> Result<(), String> {
        let Some(every) = self.uplink.settings.flush_every else {
            return Ok(());
        };
        if self.flushed.elapsed() < every {
            return Ok(());
        }
        self.flushed = Instant::now();
        self.ask(|uplink| match uplink.db.stats()?.events_in_memory {
            0 => Ok(()),
            _ => uplink.db.flush(),
        })
        .await
    }

    async fn take(&mut self, frame: &Frame) -> Result<(), String> {
        match came(frame) {
            Came::Message(message) => self.answer(message).await,
            Came::Note(found) => {
                self.take_note(found);
                Ok(())
            }
            Came::Nothing => Ok(()),
            Came::End => Err("the cloud ends the connection".to_owned()),
        }
    }

    fn take_note(&mut self, found: Note) {
        let uplink = &self.uplink;
        match found {
            Note::Welcome { .. } => uplink.stands(UplinkState::Connected, None),
            Note::Refused { text, .. } => uplink.stands(UplinkState::Refused, Some(text)),
            Note::Verified {
                equal,
                different,
                missing,
            } => {
                let at = uplink.env.clock.now();
                let mut known = uplink.known.lock();
                known.is_verifying = false;
                let found = Verified {
                    equal,
                    different,
                    missing,
                };
                known.verified = Some((at, found));
            }
            // What an edge says is said to no edge.
            _ => {}
        }
    }

    async fn answer(&mut self, asked: Message) -> Result<(), String> {
        self.was_of_use = true;
        let begins = matches!(asked, Message::AskState { known: None, .. });
        if begins && self.file.begins_anew {
            // The cloud has put its copy aside, and asks for a first state.
            let changed = self.uplink.change_file(|file| file.begins_anew = false);
            changed.map_err(|e| e.to_string())?;
            self.file.begins_anew = false;
            self.uplink.known.lock().file = Some(self.file.clone());
            self.uplink.stands(UplinkState::Connected, None);
        }
        let uplink = Arc::clone(&self.uplink);
        let answers = blocking(move || uplink.answer(asked)).await;
        for answer in answers.map_err(|e| e.to_string())?? {
            self.send(message(&answer)).await?;
        }
        Ok(())
    }
}
