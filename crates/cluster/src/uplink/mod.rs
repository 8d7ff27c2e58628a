//! The connection of an edge to its cloud: opened, maintained, reopened, with requests answered
//! within the budget. A cloud node that relays edges has one for each of them, too.
//!
//! Invariants: an edge without a connection works like any other node. Sent bytes are granted by
//! the budget first, and charged as the sockets count them, with all that is received; in a pause
//! of the budget there is no connection. Days of the budget are those of the proven time. The edge
//! depends on no answer of the cloud. Concurrency: one task; the database is called on threads that
//! may wait. Failure: a failed connection is opened again, after a second at first, after at most a
//! minute later; a connection over which a message arrived resets that wait, unless the cloud said
//! that it cannot store the data.

mod freeing;
mod heartbeat;
mod lag;
mod live;
mod outbox;
mod spending;
mod talk;

use crate::dial::{DialContext, dial};
use crate::error::{ClusterError, ClusterErrorKind};
use crate::frame::{About, EDGE_MESSAGE_MAX, Note, QuietCause, Received, received};
use crate::invite::Invite;
use crate::origin::Origin;
use crate::private;
use crate::proven_time::ProvenTime;
use crate::rights::RightsReceiver;
use crate::socket_bytes::SocketBytes;
use crate::status::{QuietStatus, UplinkState, UplinkStatus, VerifiedStatus};
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
pub use freeing::MadeRoom;
use futures_util::StreamExt;
use headwater_engine::{Database, ReplicationRules, StateName};
use headwater_io::Env;
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Confirmed, Message, Now, Pause, Spent, Verified,
};
use headwater_shell::access::rights::received::RIGHTS_FILE;
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
/// Interval of checks for changes that do not change the number of the state.
const THOROUGH: Duration = Duration::from_secs(10);
const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);
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
    pub rules: ReplicationRules,
    /// Receiver of the cloud's list of rights; `None` = the list is not accepted.
    pub rights: Option<RightsReceiver>,
    /// Version of the program.
    pub version: String,
}

#[derive(Debug)]
struct LinkState {
    state: UplinkState,
    since: Timestamp,
    file: Option<UplinkFile>,
    error: Option<String>,
    is_verification_requested: bool,
    is_verifying: bool,
    verified: Option<(Timestamp, Verified)>,
    /// Ranges that the cloud confirms over this connection survive its loss.
    survives: bool,
    /// Challenges to the cloud.
    challenges: freeing::ChallengeLink,
    /// Times at which states of the database were first observed.
    lag: Lag,
    /// The revoked tokens that the cloud sent last.
    revoked: String,
    /// The current pause of the budget.
    quiet: Option<Pause>,
    /// Last second in which the certificate of the cloud is valid, since the last connection.
    certificate_ends: Option<i64>,
}

/// Connection manager of an edge.
#[derive(Debug)]
pub struct Uplink {
    origin: Origin,
    env: Env,
    dir: PathBuf,
    settings: UplinkSettings,
    agent: Mutex<Agent>,
    link: Mutex<LinkState>,
    bytes: Arc<SocketBytes>,
    /// Number that this process drew: a copy of the files that runs elsewhere has another one.
    process: u64,
    /// The database has begun another incarnation, since the cloud is to begin a new copy.
    has_renewed: AtomicBool,
    /// Bytes of the sockets that were charged to the budget.
    charged: Mutex<u64>,
    time: Arc<ProvenTime>,
    /// Data that an earlier version stored is hashed too.
    ledger_is_complete: AtomicBool,
    /// The cloud did not know the key at the last try.
    is_denied: AtomicBool,
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
) -> Result<UplinkFile, ClusterError> {
    let invite = Invite::decode(invitation)?;
    let url = url.unwrap_or(&invite.url);
    let ca = ca.or(invite.ca);
    let context = DialContext::of_system();
    let (mut connection, _) = dial(url, ca.as_deref(), &invite.secret, &context).await?;
    let answered = timeout(SEND_MAX, connection.next()).await;
    let (key, rights_key) = match answered {
        Ok(Some(Ok(frame))) => match received(&frame, EDGE_MESSAGE_MAX) {
            Received::Note(Note::Key { key, rights_key }) => (key, rights_key),
            Received::Note(Note::Refused { text, .. }) => {
                return Err(ClusterError::new(ClusterErrorKind::Denied, text));
            }
            _ => {
                return Err(ClusterError::invalid(format!(
                    "{url}: the answer is not that of a cloud"
                )));
            }
        },
        _ => {
            return Err(ClusterError::new(
                ClusterErrorKind::Unreachable,
                format!("{url}: the connection ended before the key came; try again"),
            ));
        }
    };
    let mut file = UplinkFile::new(url, &invite.edge, key, ca);
    file.begins_anew = begins_anew;
    file.rights_key = rights_key;
    // A list of the cloud before is not valid any more.
    private::remove(&dir.join(RIGHTS_FILE))?;
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
fn read_spent(path: &Path) -> Result<Spent, ClusterError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Spent::default()),
        Err(error) => return Err(ClusterError::io(path, &error)),
    };
    Spent::decode(&bytes).map_err(|error| {
        ClusterError::new(
            ClusterErrorKind::Io,
            format!(
                "{}: {error}; the file counts the bytes sent on this day and in this month: remove it to reset both counts",
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
    ) -> Result<Uplink, ClusterError> {
        Uplink::of(Origin::Database(db), env, dir, settings)
    }

    /// Creates the uplink of a source, with its files in a directory.
    pub(crate) fn of(
        origin: Origin,
        env: Env,
        dir: &Path,
        settings: UplinkSettings,
    ) -> Result<Uplink, ClusterError> {
        let file = UplinkFile::read(dir)?;
        let budget = Budget::new(settings.budget.clone(), read_spent(&spent_path(dir))?);
        let mut agent = Agent::new(settings.hold_bytes, budget);
        agent.set_rules(settings.rules.clone());
        agent.set_live(settings.live);
        agent.set_copy(origin.copy());
        agent.set_measured();
        if file.is_some() {
            // Deletes made before the connection have to reach the copy, too.
            origin.add_copy()?;
        }
        Ok(Uplink {
            origin,
            dir: dir.to_owned(),
            bytes: Arc::default(),
            process: env.chance.next_u64(),
            has_renewed: AtomicBool::new(false),
            charged: Mutex::new(0),
            time: Arc::new(ProvenTime::open(Arc::clone(&env.clock), dir)),
            agent: Mutex::new(agent),
            link: Mutex::new(LinkState {
                state: match file {
                    None => UplinkState::NotJoined,
                    Some(_) => UplinkState::Offline,
                },
                since: env.clock.now(),
                file,
                error: None,
                is_verification_requested: false,
                is_verifying: false,
                verified: None,
                survives: false,
                challenges: freeing::ChallengeLink::default(),
                lag: Lag::default(),
                revoked: String::new(),
                quiet: None,
                certificate_ends: None,
            }),
            ledger_is_complete: AtomicBool::new(false),
            is_denied: AtomicBool::new(false),
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
        let lost = self.lost()?;
        let mut known = self.link.lock();
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
            lost,
            is_verifying: known.is_verifying,
            verified: known.verified.map(|(at, found)| VerifiedStatus {
                at_ns: at.as_nanos(),
                equal: found.equal,
                different: found.different,
                missing: found.missing,
            }),
            quiet: known.quiet.map(|pause| QuietStatus {
                until_ns: pause.until.as_nanos(),
                cause: QuietCause::from(pause.cause),
            }),
            certificate_ends_ns: known
                .certificate_ends
                .map(|seconds| seconds.saturating_mul(1_000_000_000)),
            error: known.error.clone(),
        })
    }

    /// True while the cloud is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.lock().state == UplinkState::Connected
    }

    /// Stops sending, or sends again: persisted over restarts.
    ///
    /// # Errors
    /// `not_found` when no cloud was joined, `io`.
    pub fn pause(&self, is_paused: bool) -> Result<(), ClusterError> {
        self.change_file(|file| file.is_paused = is_paused)
    }

    /// Makes the cloud compare its copy with the data here, both read from their devices.
    ///
    /// # Errors
    /// `unreachable` if there is no connection.
    pub fn verify(&self) -> Result<(), ClusterError> {
        let mut known = self.link.lock();
        if known.state != UplinkState::Connected {
            let text = "there is no connection to the cloud; `headwater sync status` says why";
            return Err(ClusterError::new(ClusterErrorKind::Unreachable, text));
        }
        (known.is_verification_requested, known.is_verifying) = (true, true);
        known.verified = None;
        Ok(())
    }

    /// The recently revoked tokens, as the cloud sent them last.
    #[must_use]
    pub fn revoked(&self) -> String {
        self.link.lock().revoked.clone()
    }

    fn change_file(&self, change: impl FnOnce(&mut UplinkFile)) -> Result<(), ClusterError> {
        let file = UplinkFile::read(&self.dir)?;
        let mut file = file.ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                "no cloud was joined: run `headwater join` with an invitation of the cloud",
            )
        })?;
        change(&mut file);
        file.write(&self.dir)
    }

    /// Whether the cloud did not know the key at the last try.
    pub(crate) fn is_denied(&self) -> bool {
        self.is_denied.load(Ordering::Relaxed)
    }

    /// The file of the relay of another folder.
    fn file_beside(&self, folder: &str) -> Result<Option<UplinkFile>, ClusterError> {
        UplinkFile::read(&self.dir.with_file_name(folder))
    }

    /// Relays the copy that goes on in the place of a relayed one that is a closed part, with the
    /// key that the cloud has sent for it.
    fn relay_successor(&self, file: &UplinkFile, key: String) -> Result<(), ClusterError> {
        let Some(Some(folder)) = self.origin.closed() else {
            return Ok(());
        };
        if self.file_beside(&folder)?.is_some() {
            return Ok(());
        }
        let mut successor = file.clone();
        (successor.key, successor.begins_anew) = (key, false);
        successor.write(&self.dir.with_file_name(folder))
    }

    fn set_state(&self, state: UplinkState, error: Option<String>) {
        let mut known = self.link.lock();
        if known.state != state {
            known.since = self.env.clock.now();
        }
        if let Some(text) = &error
            && known.error.as_ref() != Some(text)
        {
            tracing::warn!(why = %text, "sync: no connection to the cloud");
        }
        (known.state, known.error) = (state, error);
        if state != UplinkState::Quiet {
            known.quiet = None;
        }
        if state != UplinkState::Connected {
            (known.is_verifying, known.survives) = (false, false);
            known.challenges.answers = false;
        }
    }

    /// Maintains the connection until the server stops.
    pub async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        tokio::select! {
            () = self.charge_others() => {}
            () = self.run_link(&mut stopping) => {}
        }
        let uplink = Arc::clone(&self);
        if let Err(error) = blocking(move || uplink.keep_exactly())
            .await
            .map_err(|e| e.to_string())
            .and_then(|kept| kept)
        {
            tracing::warn!(why = %error, "sync: the count of sent bytes is higher than it should be");
        }
    }

    async fn run_link(self: &Arc<Self>, stopping: &mut watch::Receiver<bool>) {
        let uplink = Arc::clone(self);
        let begun = blocking(move || uplink.record_sent()).await;
        if let Err(error) = begun.and_then(|begun| begun) {
            tracing::warn!(why = %error, "sync: what is sent is not recorded");
        }
        let mut pause = BACK_OFF_FIRST;
        while !*stopping.borrow() {
            let wait = match UplinkFile::read(&self.dir) {
                Err(error) => {
                    self.set_state(UplinkState::Offline, Some(error.to_string()));
                    LOOK
                }
                Ok(None) => {
                    let was_joined = self.link.lock().file.take().is_some();
                    self.set_state(UplinkState::NotJoined, None);
                    if was_joined {
                        self.leave().await;
                    }
                    LOOK
                }
                Ok(Some(file)) => {
                    let is_other = self.link.lock().file.replace(file.clone());
                    if is_other.as_ref() != Some(&file) {
                        pause = BACK_OFF_FIRST;
                    }
                    if file.is_paused {
                        self.set_state(UplinkState::Paused, None);
                        LOOK
                    } else if self.rests() {
                        LOOK
                    } else {
                        let was_of_use = self.connect(&file, stopping).await;
                        pause = match was_of_use {
                            true => BACK_OFF_FIRST,
                            false => (pause * 2).min(BACK_OFF_MAX),
                        };
                        pause
                    }
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = stopped(stopping) => {}
                () = self.until_the_file_changes() => {}
                () = self.until_pause_begins() => {}
            }
        }
    }

    /// Unregisters the copy, which does not have to receive deletes any more.
    async fn leave(self: &Arc<Self>) {
        let uplink = Arc::clone(self);
        let left = blocking(move || uplink.origin.remove_copy()).await;
        if let Err(error) = left.and_then(|left| left) {
            tracing::warn!(why = %error, "sync: deletes are retained for a cloud that was left");
        }
    }

    /// Waits until the file differs from the one in force.
    async fn until_the_file_changes(&self) {
        loop {
            sleep(LOOK).await;
            let now = UplinkFile::read(&self.dir).ok().flatten();
            if now != self.link.lock().file {
                return;
            }
        }
    }

    /// Prepares the source for a cloud that has received no data yet.
    fn prepare(&self) -> Result<(), ClusterError> {
        self.origin.add_copy()?;
        // Without data there is no reason to connect.
        self.origin.with(&mut |_| Ok(()))?;
        let gets = self.link.lock().file.as_ref().is_some_and(|f| f.gets);
        let mut agent = self.agent.lock();
        agent.restart();
        agent.set_gets(gets);
        Ok(())
    }

    /// Connects and serves the connection; true if a request arrived over it, or there is no data
    /// yet.
    async fn connect(
        self: &Arc<Self>,
        file: &UplinkFile,
        stopping: &mut watch::Receiver<bool>,
    ) -> bool {
        let uplink = Arc::clone(self);
        let known = blocking(move || uplink.prepare()).await;
        if let Err(error) = known.and_then(|known| known) {
            self.set_state(UplinkState::Offline, Some(error.to_string()));
            // Data of a relayed edge may come at any time; looking for it is cheap.
            return error.kind() == ClusterErrorKind::NotFound;
        }
        let context = DialContext {
            bytes: Arc::clone(&self.bytes),
            time: Arc::clone(&self.time),
        };
        let dialled = tokio::select! {
            dialled = dial(&file.url, file.ca.as_deref(), &file.key, &context) => dialled,
            () = stopped(stopping) => return false,
        };
        let uplink = Arc::clone(self);
        let settled = blocking(move || uplink.settle(0)).await;
        let settled = settled.map_err(|e| e.to_string());
        if let Err(text) = settled.and_then(|settled| settled) {
            self.set_state(UplinkState::Offline, Some(text));
            return false;
        }
        let error = dialled.as_ref().err();
        let is_denied = error.is_some_and(|error| error.kind() == ClusterErrorKind::Denied);
        self.is_denied.store(is_denied, Ordering::Relaxed);
        match dialled {
            Err(error) => {
                self.set_state(UplinkState::Offline, Some(error.to_string()));
                false
            }
            Ok((connection, verifier)) => {
                let mut talk = Talk::new(self, connection, file);
                talk.verifier = verifier;
                let ended = talk.run(stopping).await;
                let was_of_use = talk.was_of_use;
                drop(talk);
                // What the end of the connection has cost.
                let uplink = Arc::clone(self);
                if let Ok(Err(why)) = blocking(move || uplink.settle(0)).await {
                    tracing::warn!(%why, "sync: the count of sent bytes is not written");
                }
                if self.link.lock().state == UplinkState::Connected {
                    self.set_state(UplinkState::Offline, Some(ended));
                }
                was_of_use
            }
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.env.clock.monotonic(),
            wall: self.time.believed(),
        }
    }

    /// Bytes of the sockets to and from the cloud since the start: sent and received, below TLS.
    #[must_use]
    pub fn socket_bytes(&self) -> (u64, u64) {
        (self.bytes.sent(), self.bytes.received())
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

    /// News of the database for a cloud that last received this state. Definitions and deletes
    /// change without another number: they are checked when `thorough`.
    fn news(
        &self,
        told: Option<StateName>,
        thorough: bool,
    ) -> Result<Option<StateName>, ClusterError> {
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
            self.link.lock().lag.note(number, now.monotonic);
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
    fn changes(&self) -> Result<Vec<Message>, ClusterError> {
        if !self.origin.is_relayed() || self.origin.rests() {
            return Ok(Vec::new());
        }
        let (mut agent, now) = (self.agent.lock(), self.now());
        self.origin.with(&mut |source| agent.changes(source, now))
    }

    fn about(&self) -> Result<About, ClusterError> {
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
            heartbeat_seconds: 0,
        })
    }
}
