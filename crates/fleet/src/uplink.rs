//! The connection of an edge to its cloud: opened, maintained, reopened, with requests answered
//! within the budget. A cloud node that relays edges has one for each of them, too.
//!
//! Invariants: an edge without a connection works like any other node. Sent bytes are granted by
//! the budget first. The edge depends on no answer of the cloud. Concurrency: one task; the
//! database is called on threads that may wait. Failure: a failed connection is opened again, after
//! a second at first, after at most a minute later; a connection over which a message arrived
//! resets that wait.

mod freeing;
mod lag;
mod talk;

use crate::dial::dial;
use crate::error::{FleetError, FleetErrorKind};
use crate::frame::{About, Note, Received, received};
use crate::invite::Invite;
use crate::origin::Origin;
use crate::private;
use crate::status::{UplinkState, UplinkStatus, VerifiedStatus};
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
use futures_util::StreamExt;
use headwater_engine::{Database, Rules, StateName};
use headwater_io::Env;
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Confirmed, Message, Now, Spent, Verified,
};
use headwater_types::Timestamp;
use lag::Lag;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use talk::Talk;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Interval of checks of the file and the database.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of the edge's reports about itself, which are also signs of life, and of checks for
/// changes that do not change the number of the state.
const ABOUT: Duration = Duration::from_secs(10);
const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MOST: Duration = Duration::from_secs(60);
const SEND_MAX: Duration = Duration::from_secs(60);

/// Limits of an edge for its cloud.
#[derive(Clone, Debug)]
pub struct UplinkSettings {
    /// Maximum bytes of replaced files that are pinned while they are being fetched.
    pub hold_bytes: u64,
    /// Limits of sending.
    pub budget: BudgetLimits,
    /// Maximum time for which events are not visible to a copy, while connected; `None` =
    /// determined by the database.
    pub flush_every: Option<Duration>,
    /// Minimum interval of sending newest events before a flush stores them; `None` = they are not
    /// sent.
    pub live: Option<Duration>,
    /// Age at which rows are freed here if the cloud has them all, safe from its own loss; `None` =
    /// rows are not freed.
    pub free_after: Option<Duration>,
    /// Rules of the data that may be sent: of tables to which these rules do not subscribe, neither
    /// names nor rows are sent.
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
    /// Ranges that the cloud confirms over this connection survive its loss.
    survives: bool,
    /// Times at which states of the database were first observed.
    lag: Lag,
    /// The revoked tokens that the cloud sent last.
    revoked: String,
}

/// Connection manager of an edge.
#[derive(Debug)]
pub struct Uplink {
    origin: Origin,
    env: Env,
    dir: PathBuf,
    settings: UplinkSettings,
    agent: Mutex<Agent>,
    known: Mutex<Known>,
    /// Data that an earlier version stored is hashed too.
    ledger_is_complete: AtomicBool,
}

/// Joins a cloud with an invitation: changes it for a key, and stores that in the directory of the
/// database. A server that runs on the database connects within seconds.
///
/// # Errors
/// `invalid` for an invalid invitation, `denied` if the cloud does not know it, or has removed it,
/// `unreachable`, `io`.
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
        Ok(Some(Ok(frame))) => match received(&frame) {
            Received::Note(Note::Key { key }) => key,
            Received::Note(Note::Refused { text, .. }) => {
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

/// File of the persisted spending.
fn spent_path(dir: &Path) -> PathBuf {
    dir.join("uplink.spent")
}

/// Reads the persisted spending; empty if the file does not exist. A damaged file stops the start:
/// reading it as empty would reset a cap.
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
                "{}: {error}; it says what was sent of the caps of this day and month: remove it to begin both again",
                path.display()
            ),
        )
    })
}

impl Uplink {
    /// Creates the uplink of the database in a directory.
    ///
    /// # Errors
    /// `io` when the file about the cloud cannot be read.
    pub fn new(
        db: Database,
        env: Env,
        dir: &Path,
        settings: UplinkSettings,
    ) -> Result<Uplink, FleetError> {
        Uplink::of(Origin::Database(db), env, dir, settings)
    }

    /// Creates the uplink of a source, with its files in a directory.
    pub(crate) fn of(
        origin: Origin,
        env: Env,
        dir: &Path,
        settings: UplinkSettings,
    ) -> Result<Uplink, FleetError> {
        let file = UplinkFile::read(dir)?;
        let budget = Budget::new(settings.budget.clone(), read_spent(&spent_path(dir))?);
        let mut agent = Agent::new(settings.hold_bytes, budget);
        agent.set_rules(settings.rules.clone());
        agent.set_live(settings.live);
        agent.set_copy(origin.copy());
        if file.is_some() {
            // Deletes made before the connection have to reach the copy, too.
            origin.add_copy()?;
        }
        Ok(Uplink {
            origin,
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
                survives: false,
                lag: Lag::default(),
                revoked: String::new(),
            }),
            ledger_is_complete: AtomicBool::new(false),
            settings,
            env,
        })
    }

    /// Status of the uplink.
    ///
    /// # Errors
    /// The database's own.
    pub fn status(&self) -> headwater_engine::Result<UplinkStatus> {
        let state_number = self.origin.number()?;
        let (spent, confirmed, live_bytes) = {
            let agent = self.agent.lock();
            let confirmed = agent.confirmed().cloned();
            (agent.spent(), confirmed, agent.live_bytes())
        };
        let freed = self.freed()?;
        let mut known = self.known.lock();
        let now = self.env.clock.monotonic();
        known.lag.note(state_number, now);
        let number = confirmed.as_ref().map(|c: &Confirmed| c.state.number);
        let lag = known.lag.behind(number, now);
        let segments = confirmed.iter().flat_map(|c| &c.segments);
        Ok(UplinkStatus {
            state: known.state,
            url: known.file.as_ref().map(|file| file.url.clone()),
            edge: known.file.as_ref().map(|file| file.edge.clone()),
            since_ns: known.since.as_nanos(),
            state_number,
            confirmed_number: number,
            lag_seconds: lag.map(|lag| lag.as_secs()),
            live_bytes,
            confirmed_segments: segments.clone().count(),
            confirmed_bytes: segments.map(|(_, bytes)| bytes).sum(),
            differing_segments: confirmed.as_ref().map_or(0, |c| c.differ.len()),
            sent_today: spent.day_bytes,
            sent_this_month: spent.month_bytes,
            freed,
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

    /// Stops sending, or sends again: persisted over restarts.
    ///
    /// # Errors
    /// `not_found` when no cloud was joined, `io`.
    pub fn pause(&self, is_paused: bool) -> Result<(), FleetError> {
        self.change_file(|file| file.is_paused = is_paused)
    }

    /// Makes the cloud compare its copy with the data here, both read from their devices.
    ///
    /// # Errors
    /// `unreachable` if there is no connection.
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

    /// The recently revoked tokens, as the cloud sent them last.
    #[must_use]
    pub fn revoked(&self) -> String {
        self.known.lock().revoked.clone()
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
            (known.is_verifying, known.survives) = (false, false);
        }
    }

    /// Maintains the connection until the server stops.
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
        let uplink = Arc::clone(&self);
        if let Err(error) = blocking(move || uplink.keep_exactly())
            .await
            .map_err(|e| e.to_string())
            .and_then(|kept| kept)
        {
            tracing::warn!(why = %error, "sync: more counts as sent than was");
        }
    }

    /// Unregisters the copy, which does not have to receive deletes any more.
    async fn leave(self: &Arc<Self>) {
        let uplink = Arc::clone(self);
        let left = blocking(move || uplink.origin.remove_copy()).await;
        if let Err(error) = left.and_then(|left| left) {
            tracing::warn!(why = %error, "sync: deletes are kept for a cloud that was left");
        }
    }

    /// Waits until the file differs from the one in force.
    async fn until_the_file_changes(&self) {
        loop {
            sleep(LOOK).await;
            let now = UplinkFile::read(&self.dir).ok().flatten();
            if now != self.known.lock().file {
                return;
            }
        }
    }

    /// Prepares the source for a cloud that has received no data yet.
    fn prepare(&self) -> Result<(), FleetError> {
        self.origin.add_copy()?;
        // Without data there is no reason to connect.
        self.origin.with(&mut |_| Ok(()))?;
        let gets = self.known.lock().file.as_ref().is_some_and(|f| f.gets);
        let mut agent = self.agent.lock();
        agent.begin_anew();
        agent.set_gets(gets);
        Ok(())
    }

    /// Connects and serves the connection; true if a request arrived over it.
    async fn connect(
        self: &Arc<Self>,
        file: &UplinkFile,
        stopping: &mut watch::Receiver<bool>,
    ) -> bool {
        let uplink = Arc::clone(self);
        let known = blocking(move || uplink.prepare()).await;
        if let Err(error) = known.and_then(|known| known) {
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
                let mut talk = Talk::new(self, connection, file);
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

    /// Answers a request, once the spending for the answer is persisted: no restart resets a cap.
    fn answer(&self, asked: Message) -> Result<Vec<Message>, String> {
        let mut agent = self.agent.lock();
        let now = self.now();
        let mut asked = Some(asked);
        let answers = self.origin.with(&mut |source| match asked.take() {
            Some(asked) => agent.answer(source, now, asked),
            None => Ok(Vec::new()),
        });
        let answers = answers.map_err(|e| e.to_string())?;
        self.keep_ahead(&mut agent)?;
        Ok(answers)
    }

    /// Persists the bytes that may be sent next as sent.
    fn keep_ahead(&self, agent: &mut Agent) -> Result<(), String> {
        if let Some(spent) = agent.to_keep() {
            let kept = private::replace_bytes(&spent_path(&self.dir), &spent.encode());
            kept.map_err(|e| e.to_string())?;
            agent.has_kept(spent);
        }
        Ok(())
    }

    /// The newest events, if the cloud waits for them.
    fn live(&self) -> Result<Option<Message>, FleetError> {
        if self.settings.live.is_none() || self.origin.is_relayed() {
            return Ok(None);
        }
        let (mut agent, now) = (self.agent.lock(), self.now());
        let found = self.origin.with(&mut |source| agent.live(source, now))?;
        let kept = self.keep_ahead(&mut agent);
        kept.map_err(|text| FleetError::new(FleetErrorKind::Io, text))?;
        Ok(found)
    }

    /// Sending has ended: the spending counted ahead is credited.
    fn keep_exactly(&self) -> Result<(), String> {
        let mut agent = self.agent.lock();
        let spent = agent.spent();
        if spent == Spent::default() {
            return Ok(());
        }
        let kept = private::replace_bytes(&spent_path(&self.dir), &spent.encode());
        kept.map_err(|e| e.to_string())?;
        agent.has_kept(spent);
        Ok(())
    }

    /// News of the database for a cloud that last received this state. Definitions and deletes
    /// change without another number: they are checked when `thorough`.
    fn news(
        &self,
        told: Option<StateName>,
        thorough: bool,
    ) -> Result<Option<StateName>, FleetError> {
        if told.is_some() && self.origin.rests() {
            return Ok(None);
        }
        let mut agent = self.agent.lock();
        agent.keep_within();
        let now = self.now();
        self.origin.with(&mut |source| {
            agent.look_again(source, now)?;
            if !self.ledger_is_complete.load(Ordering::Relaxed) {
                let is_complete = agent.complete_ledger(source, now)?;
                self.ledger_is_complete
                    .store(is_complete, Ordering::Relaxed);
            }
            let number = source.number()?;
            self.known.lock().lag.note(number, now.monotonic);
            if !thorough && told.is_some_and(|told| told.number == number) {
                return Ok(None);
            }
            match agent.hello(source)? {
                Message::Hello(name) if told != Some(name) => Ok(Some(name)),
                _ => Ok(None),
            }
        })
    }

    /// Changes of the missing ranges here, of an edge that is relayed.
    fn changes(&self) -> Result<Vec<Message>, FleetError> {
        if !self.origin.is_relayed() || self.origin.rests() {
            return Ok(Vec::new());
        }
        let (mut agent, now) = (self.agent.lock(), self.now());
        self.origin.with(&mut |source| agent.changes(source, now))
    }

    fn about(&self) -> Result<About, FleetError> {
        let (disk_bytes, written_bytes) = self.origin.sizes()?;
        let (spent, live_bytes) = {
            let agent = self.agent.lock();
            (agent.spent(), agent.live_bytes())
        };
        let budget = &self.settings.budget;
        Ok(About {
            sends_live: self.settings.live.is_some() && !self.origin.is_relayed(),
            live_bytes,
            version: self.settings.version.clone(),
            now_ns: self.env.clock.now().as_nanos(),
            sent_today: spent.day_bytes,
            sent_this_month: spent.month_bytes,
            rate: budget.bytes_per_second,
            day_max: budget.bytes_per_day,
            month_max: budget.bytes_per_month,
            disk_bytes,
            written_bytes,
        })
    }
}
