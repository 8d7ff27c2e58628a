//! The copies of a cloud node: one for each edge, in `DIR/copies/NAME`.
//!
//! Invariants: an edge's copy is reached by its key only. A copy that is put aside, because its
//! edge starts over, is moved unchanged to `DIR/copies-aside/NAME.N`. Concurrency: each copy has a
//! lock, and the list of edges has another, which is never acquired while a copy's is held.
//! Failure: a device failure is reported in the status of that edge; the other edges continue.

mod report;

use crate::edge_copy::{CopyLocation, EdgeCopy, Live, Shows};
use crate::edges::{Edge, EdgeAddress, Edges, Secret};
use crate::error::{FleetError, FleetErrorKind, medium};
use crate::invite::{Invite, check_url};
use crate::prefetch::Prefetch;
use crate::status::{EdgeState, EdgeStatus, VerifiedStatus};
use crate::subscription::{PinSpec, StreamShare, WantRule, rules};
use crate::waiting::blocking;
use headwater_engine::{
    Across, CopyProgress, MissedRange, Options, RemoteCopy, Snapshot, SnapshotPart, StateName,
};
use headwater_io::Env;
use headwater_types::Timestamp;
use parking_lot::Mutex;
use report::{copy_status, reason_status};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Maximum number of copies of one edge that are retained aside.
const ASIDE_MAX: usize = 8;

/// Interval of checks for fetched ranges.
const FETCH_LOOK: Duration = Duration::from_millis(20);
/// Maximum number of open copies without a connection or a reader.
const OPEN_MAX: usize = 256;

/// The edges of a cloud node and their copies.
#[derive(Debug)]
pub struct Fleet {
    env: Env,
    dir: PathBuf,
    /// Options for readers of copies: memory and open files.
    reader: Options,
    pub(crate) edges: Mutex<Edges>,
    held: Mutex<HashMap<String, Arc<EdgeCopy>>>,
    sessions: AtomicU64,
    /// Identity of this node's own database; 0 = not set.
    node: AtomicU64,
    /// Incremented when the visible content of a copy may have changed.
    changes: Arc<AtomicU64>,
    shown: Mutex<Shown>,
    /// The open copies, in the order of opening.
    open: Mutex<VecDeque<Arc<EdgeCopy>>>,
    /// Most open copies that are not in use.
    open_max: usize,
    /// Number of copies that show something in a version before the newest.
    behind: Arc<AtomicUsize>,
    /// Confirmations wait until the copy is persisted elsewhere.
    pub(crate) waits: AtomicBool,
    /// Which version of the list of edges is.
    pub(crate) roster_kept: watch::Sender<u64>,
    /// The recently revoked tokens, for edges.
    revoked: Mutex<String>,
}

/// The own database and the visible content of all copies, merged.
#[derive(Debug, Default)]
struct Shown {
    all: Across,
    /// The edges that are among them.
    names: BTreeSet<String>,
    /// Which changes they show.
    changes: u64,
}

/// The name of the node's own database: no edge may have it.
pub const OWN: &str = "this node";

impl Fleet {
    /// Opens the fleet of the node whose database is in a directory. Of the options, the ones for
    /// memory and open files apply to readers of copies.
    ///
    /// # Errors
    /// `io` when the list of edges cannot be read.
    pub fn open(env: Env, dir: &Path, reader: Options) -> Result<Fleet, FleetError> {
        Ok(Fleet {
            env,
            dir: dir.to_owned(),
            reader,
            edges: Mutex::new(Edges::open(dir)?),
            held: Mutex::default(),
            sessions: AtomicU64::new(1),
            node: AtomicU64::new(0),
            // Higher than the last version read, so that the first reader refreshes.
            changes: Arc::new(AtomicU64::new(1)),
            shown: Mutex::default(),
            open: Mutex::default(),
            open_max: OPEN_MAX,
            behind: Arc::default(),
            waits: AtomicBool::new(false),
            roster_kept: watch::Sender::new(0),
            revoked: Mutex::default(),
        })
    }

    /// Sends the recently revoked tokens to all connected edges, in the form of dispatchers.
    pub fn tell_revoked(&self, list: String) {
        let is_other = {
            let mut revoked = self.revoked.lock();
            let before = std::mem::replace(&mut *revoked, list);
            before != *revoked
        };
        if is_other {
            let held: Vec<Arc<EdgeCopy>> = self.held.lock().values().cloned().collect();
            held.iter().for_each(|held| held.wake.notify_one());
        }
    }

    /// The recently revoked tokens.
    pub(crate) fn revoked(&self) -> String {
        self.revoked.lock().clone()
    }

    /// Sets this node's identity, which is the identity of its own database. Data that has passed
    /// through this node before is refused from then on.
    pub fn set_node(&self, identity: u64) {
        self.node.store(identity, Ordering::Relaxed);
    }

    pub(crate) fn node(&self) -> u64 {
        self.node.load(Ordering::Relaxed)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// All edges there are.
    pub(crate) fn all_edges(&self) -> Vec<Edge> {
        self.edges.lock().all().to_vec()
    }

    /// Sets the address at which clients reach an edge directly.
    ///
    /// # Errors
    /// `invalid` for a bad address, `not_found`, `io`.
    pub fn set_address(&self, name: &str, address: Option<EdgeAddress>) -> Result<(), FleetError> {
        if let Some(address) = &address {
            check_url(&address.url)?;
        }
        self.edges
            .lock()
            .update(name, |edge| edge.address = address)
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Invites an edge. Returns the text that lets it join, which is not stored.
    ///
    /// # Errors
    /// `invalid` for a bad name or address, `taken`, `not_found` with `again`, `io`.
    pub fn invite(
        &self,
        name: &str,
        url: &str,
        ca: Option<String>,
        want: Option<StreamShare>,
        valid: Duration,
        again: bool,
    ) -> Result<String, FleetError> {
        check_url(url)?;
        let now = self.env.clock.now();
        let secret = self.edges.lock().invite(name, want, now, valid, again)?;
        let invite = Invite {
            url: url.to_owned(),
            edge: name.to_owned(),
            secret,
            ca,
        };
        invite.encode()
    }

    /// Removes an edge: its key is invalid from then on, and its copy is put aside.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn remove(&self, name: &str) -> Result<(), FleetError> {
        self.edges.lock().remove(name)?;
        let held = self.held.lock().remove(name);
        if let Some(held) = held {
            held.live.lock().session = 0;
            held.wake.notify_one();
            held.close();
        }
        self.put_aside(name)
    }

    /// Pauses or resumes requests to an edge.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn pause(&self, name: &str, is_paused: bool) -> Result<(), FleetError> {
        let mut edges = self.edges.lock();
        edges.update(name, |edge| edge.is_paused = is_paused)?;
        drop(edges);
        self.held(name).wake.notify_one();
        Ok(())
    }

    /// Sets the subscription of an edge. Present ranges outside the new subscription are not
    /// removed.
    ///
    /// # Errors
    /// `not_found`, `invalid` for rules that withhold a part of a table, `io`.
    pub fn want(
        &self,
        name: &str,
        want: StreamShare,
        want_rules: Vec<WantRule>,
    ) -> Result<(), FleetError> {
        // Refused before any change.
        rules(&want_rules, want)?;
        self.wants_from_now_on(name, |edge| (edge.want, edge.rules) = (want, want_rules))
    }

    /// Retains rows that an edge removes because of their age, by retention or aging, for this many
    /// more seconds; `None` = forever. Retained rows older than the new limit are removed.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn keep(&self, name: &str, seconds: Option<u64>) -> Result<(), FleetError> {
        self.wants_from_now_on(name, |edge| edge.kept_seconds = seconds)
    }

    /// Sets the prefetch policy of an edge.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn migrate(&self, name: &str, migration: Prefetch) -> Result<(), FleetError> {
        self.wants_from_now_on(name, |edge| edge.migration = migration)
    }

    fn wants_from_now_on(
        &self,
        name: &str,
        change: impl FnOnce(&mut Edge),
    ) -> Result<(), FleetError> {
        let edge = {
            let mut edges = self.edges.lock();
            edges.update(name, change)?;
            edges.get(name)?.clone()
        };
        let wanted = edge.wanted()?;
        let held = self.held(name);
        if let Some(copy) = self.copy(&held, &edge)? {
            copy.set_rules(wanted).map_err(medium)?;
        }
        held.has_changed();
        held.wake.notify_one();
        Ok(())
    }

    pub(crate) fn copy_of(&self, name: &str) -> Result<(Arc<EdgeCopy>, RemoteCopy), FleetError> {
        let edge = self.edges.lock().get(name)?.clone();
        let held = self.held(name);
        let copy = self.copy(&held, &edge)?.ok_or_else(|| {
            FleetError::new(
                FleetErrorKind::NotFound,
                format!("there is nothing here of the edge `{name}` yet"),
            )
        })?;
        Ok((held, copy))
    }

    /// Subscribes to all rows of a span of time, whatever the rules say. Returns the number of the
    /// pin.
    ///
    /// # Errors
    /// `not_found` for an unknown edge or one without a copy, `invalid`, `io`.
    pub fn pin(&self, name: &str, pin: &PinSpec) -> Result<u64, FleetError> {
        let (held, copy) = self.copy_of(name)?;
        let number = copy.pin(pin.pin()).map_err(medium)?;
        held.wake.notify_one();
        Ok(number)
    }

    /// Removes a pin; present ranges are not removed.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn unpin(&self, name: &str, number: u64) -> Result<(), FleetError> {
        let (_, copy) = self.copy_of(name)?;
        match copy.unpin(number).map_err(medium)? {
            true => Ok(()),
            false => Err(FleetError::new(
                FleetErrorKind::NotFound,
                format!(
                    "there is no pin {number} of the edge `{name}`; `headwater sync pins {name}` lists those there are"
                ),
            )),
        }
    }

    /// The pins of an edge, by their numbers.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn pins(&self, name: &str) -> Result<Vec<(u64, PinSpec)>, FleetError> {
        let (_, copy) = self.copy_of(name)?;
        let pins = copy.pins();
        Ok(pins.iter().map(|(n, pin)| (*n, PinSpec::of(pin))).collect())
    }

    /// Starts to compare the copy of an edge with its database, both read from their devices.
    ///
    /// # Errors
    /// `not_found`, `unreachable` when it is not connected.
    pub fn verify(&self, name: &str) -> Result<(), FleetError> {
        self.connected(name, |live| {
            live.wants_verifying = true;
            live.is_verifying = true;
            live.verified = None;
        })
    }

    /// Drops the ranges that differ by the newest comparison, so that they are fetched again.
    ///
    /// # Errors
    /// `not_found`, `unreachable` when it is not connected.
    pub fn fetch_again(&self, name: &str) -> Result<(), FleetError> {
        self.connected(name, |live| live.wants_fetching_again = true)
    }

    fn connected(&self, name: &str, change: impl FnOnce(&mut Live)) -> Result<(), FleetError> {
        self.edges.lock().get(name)?;
        let held = self.held(name);
        let mut live = held.live.lock();
        if live.session == 0 {
            return Err(FleetError::new(
                FleetErrorKind::Unreachable,
                format!("the edge `{name}` is not connected; it is asked once it is"),
            ));
        }
        change(&mut live);
        drop(live);
        held.wake.notify_one();
        Ok(())
    }

    /// Owner of a valid secret.
    pub(crate) fn find(&self, secret: &str) -> Option<Secret> {
        self.edges.lock().find(secret, self.env.clock.now())
    }

    pub(crate) fn redeem(&self, name: &str) -> Result<String, FleetError> {
        self.edges.lock().redeem(name)
    }

    pub(crate) fn has_come(&self, name: &str) -> Result<(), FleetError> {
        self.edges.lock().has_come(name)
    }

    /// Settings of an edge; `None` if it was removed.
    pub(crate) fn edge(&self, name: &str) -> Option<Edge> {
        self.edges.lock().get(name).ok().cloned()
    }

    /// True when the database belongs to the name: the first database that connected.
    pub(crate) fn admit(&self, name: &str, state: &StateName) -> Result<bool, FleetError> {
        let mut edges = self.edges.lock();
        match edges.get(name)?.identity {
            Some(known) => Ok(known == state.identity),
            None => {
                edges.update(name, |edge| edge.identity = Some(state.identity))?;
                Ok(true)
            }
        }
    }

    pub(crate) fn held(&self, name: &str) -> Arc<EdgeCopy> {
        let mut all = self.held.lock();
        let held = all
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(EdgeCopy::new(name, &self.changes, &self.behind)));
        Arc::clone(held)
    }

    pub(crate) fn place(&self, edge: &Edge) -> Result<CopyLocation, FleetError> {
        Ok(CopyLocation {
            env: self.env.clone(),
            dir: self.copies().join(&edge.name),
            rules: edge.wanted()?,
        })
    }

    /// The copy of an edge, opened if necessary; `None` if it does not exist yet.
    pub(crate) fn copy(
        &self,
        held: &Arc<EdgeCopy>,
        edge: &Edge,
    ) -> Result<Option<RemoteCopy>, FleetError> {
        let (copy, is_new) = held.copy(&self.place(edge)?).map_err(medium)?;
        if is_new {
            self.make_room(held);
        }
        Ok(copy)
    }

    /// Closes unused copies, to bound the number of open ones. Copies that were used since the last
    /// check are not closed.
    fn make_room(&self, opened: &Arc<EdgeCopy>) {
        let mut open = self.open.lock();
        open.push_back(Arc::clone(opened));
        // Each copy is checked at most twice.
        for _ in 0..2 * open.len() {
            if open.len() <= self.open_max {
                return;
            }
            if let Some(held) = open.pop_front()
                && !held.rest()
            {
                open.push_back(held);
            }
        }
    }

    /// Whether the visible version of a copy is older than the newest known one.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed) > 0
    }

    fn copies(&self) -> PathBuf {
        self.dir.join("copies")
    }

    /// Puts the copy of an edge aside, if it exists.
    fn put_aside(&self, name: &str) -> Result<(), FleetError> {
        let from = self.copies().join(name);
        if !from.exists() {
            return Ok(());
        }
        let aside = self.dir.join("copies-aside");
        std::fs::create_dir_all(&aside).map_err(|e| FleetError::io(&aside, &e))?;
        let free = (1..=ASIDE_MAX)
            .map(|n| aside.join(format!("{name}.{n}")))
            .find(|to| !to.exists());
        let to = free.ok_or_else(|| {
            FleetError::new(
                FleetErrorKind::Taken,
                format!(
                    "{ASIDE_MAX} copies of `{name}` are kept aside in {}; remove those that are not needed",
                    aside.display()
                ),
            )
        })?;
        std::fs::rename(&from, &to).map_err(|e| FleetError::io(&to, &e))
    }

    /// Puts the copy of an edge aside, so that a new copy is created of the next database that
    /// connects.
    pub(crate) fn begin_anew(&self, name: &str) -> Result<(), FleetError> {
        let held = self.held(name);
        held.close();
        self.put_aside(name)?;
        let mut live = held.live.lock();
        (live.progress, live.refused, live.failed) = (None, None, None);
        live.durable = None;
        drop(live);
        self.edges.lock().update(name, |edge| edge.identity = None)
    }

    /// Status of each edge, by name.
    #[must_use]
    pub fn status(&self) -> Vec<EdgeStatus> {
        let mut edges = self.edges.lock().all().to_vec();
        edges.sort_by(|a, b| a.name.cmp(&b.name));
        edges.iter().map(|edge| self.status_of(edge)).collect()
    }

    /// Status of an edge; `None` for an unknown name.
    #[must_use]
    pub fn edge_status(&self, name: &str) -> Option<EdgeStatus> {
        self.edge(name).map(|edge| self.status_of(&edge))
    }

    fn status_of(&self, edge: &Edge) -> EdgeStatus {
        let held = self.held(&edge.name);
        if held.live.lock().progress.is_none() {
            self.look_once(edge, &held);
        }
        let tallies = held.tallies();
        let live = held.live.lock();
        let error = live.failed.clone().or_else(|| live.refused.clone());
        let is_current = live.progress.as_ref().is_some_and(is_current);
        let state = match live.session {
            _ if live.failed.is_some() => EdgeState::Failed,
            _ if live.refused.is_some() => EdgeState::Refused,
            0 if edge.is_invited() && edge.identity.is_none() => EdgeState::Invited,
            0 => EdgeState::Offline,
            _ if edge.is_paused => EdgeState::Paused,
            _ if is_current => EdgeState::Current,
            _ => EdgeState::Catching,
        };
        EdgeStatus {
            name: edge.name.clone(),
            state,
            want: edge.want,
            rules: edge.rules.clone(),
            kept_seconds: edge.kept_seconds,
            migration: edge.migration,
            address: edge.address.clone(),
            heard_ns: live.heard.map(Timestamp::as_nanos),
            current_ns: live.current.map(Timestamp::as_nanos),
            copy: live
                .progress
                .as_ref()
                .map(|p| copy_status(p, live.proven_bytes)),
            reasons: tallies.into_iter().map(reason_status).collect(),
            about: live.about.clone(),
            is_verifying: live.is_verifying,
            verified: live.verified.map(|(at, found)| VerifiedStatus {
                at_ns: at.as_nanos(),
                equal: found.equal,
                different: found.different,
                missing: found.missing,
            }),
            through: live.path.iter().map(|n| format!("{n:016x}")).collect(),
            error,
        }
    }

    /// Reads the progress of a copy whose state is unknown since the start, without leaving it
    /// open.
    pub(crate) fn look_once(&self, edge: &Edge, held: &EdgeCopy) {
        let looked = self.place(edge);
        match looked.and_then(|place| held.glance(&place).map_err(medium)) {
            Ok(None) => {}
            Ok(Some(progress)) => held.note(progress),
            Err(error) => held.live.lock().failed = Some(error.to_string()),
        }
    }

    /// The node's own database and all copies merged: the own database first, then the edges in the
    /// order of their addition. A copy that cannot be read is omitted; its status has the reason.
    ///
    /// # Errors
    /// The database's own.
    pub fn across(&self, own: Snapshot) -> headwater_engine::Result<Snapshot> {
        let mut shown = self.shown.lock();
        shown.all.replace(SnapshotPart {
            name: OWN.into(),
            snapshot: own,
        })?;
        let changes = self.changes.load(Ordering::Acquire);
        if shown.changes != changes {
            self.show(&mut shown)?;
            shown.changes = changes;
        }
        shown.all.snapshot()
    }

    /// Fetches ranges that readers of copies have missed, and waits for them, for so long at most.
    /// True when something arrived, so that a further read may succeed.
    ///
    /// # Errors
    /// An error of this node's device.
    pub async fn fetch_wanted(self: &Arc<Self>, most: Duration) -> Result<bool, FleetError> {
        let until = tokio::time::Instant::now() + most;
        let fleet = Arc::clone(self);
        let mut asked = blocking(move || fleet.ask_for_missed()).await?;
        if asked.is_empty() {
            return Ok(false);
        }
        let mut has_come = false;
        while !asked.is_empty() && tokio::time::Instant::now() < until {
            tokio::time::sleep(FETCH_LOOK).await;
            (asked, has_come) = blocking(move || {
                asked.retain(|(held, copy, missed)| {
                    // Without a connection no bytes arrive. The length of a requested range is
                    // bounded.
                    let bytes = u32::try_from(missed.bytes).unwrap_or(u32::MAX);
                    let is_here = copy.read(missed.segment, missed.offset, bytes).is_ok();
                    if is_here {
                        has_come = true;
                        held.has_changed();
                    }
                    // Unavailable ranges do not arrive either.
                    let is_asked = copy.asks_for(missed.segment, missed.offset, missed.bytes);
                    !is_here && is_asked && held.live.lock().session != 0
                });
                (asked, has_come)
            })
            .await?;
        }
        Ok(has_come)
    }

    /// Makes all copies request the ranges that readers have missed.
    fn ask_for_missed(&self) -> Vec<(Arc<EdgeCopy>, RemoteCopy, MissedRange)> {
        let held: Vec<Arc<EdgeCopy>> = self.held.lock().values().cloned().collect();
        let mut asked = Vec::new();
        for held in held {
            // A closed copy has no missed ranges.
            let Some(copy) = held.open_copy() else {
                continue;
            };
            let is_connected = held.live.lock().session != 0;
            for missed in copy.take_missed() {
                if is_connected && copy.ask_for(missed.segment, missed.offset, missed.bytes) {
                    asked.push((Arc::clone(&held), copy.clone(), missed));
                }
            }
            held.wake.notify_one();
        }
        asked
    }

    /// Releases the node's own database, which is to be closed.
    ///
    /// # Errors
    /// The engine's own.
    pub fn let_go(&self) -> headwater_engine::Result<()> {
        self.shown.lock().all.remove(OWN)
    }

    fn show(&self, shown: &mut Shown) -> headwater_engine::Result<()> {
        let mut edges = self.edges.lock().all().to_vec();
        edges.sort_by(|a, b| a.created_ns.cmp(&b.created_ns).then(a.name.cmp(&b.name)));
        let mut names = BTreeSet::new();
        for edge in &edges {
            let held = self.held(&edge.name);
            match self.shown_of(edge, &held) {
                Ok(Shows::Nothing) => {}
                Ok(Shows::AsBefore) => drop(names.insert(edge.name.clone())),
                Ok(Shows::Now(snapshot)) => {
                    shown.all.replace(SnapshotPart {
                        name: edge.name.as_str().into(),
                        snapshot,
                    })?;
                    names.insert(edge.name.clone());
                }
                Err(error) => {
                    tracing::error!(edge = edge.name, %error, "the copy of an edge cannot be read");
                    held.live.lock().failed = Some(error.to_string());
                }
            }
        }
        for gone in shown.names.difference(&names) {
            shown.all.remove(gone)?;
        }
        shown.names = names;
        Ok(())
    }

    fn shown_of(&self, edge: &Edge, held: &Arc<EdgeCopy>) -> Result<Shows, FleetError> {
        let options = || self.reader.clone();
        held.shows(|| self.copy(held, edge), &options)
    }

    /// Snapshot of an edge for a reader of its own; `None` if no data of it is here.
    pub(crate) fn snapshot_of(
        &self,
        edge: &Edge,
        held: &Arc<EdgeCopy>,
    ) -> Result<Option<Snapshot>, FleetError> {
        let options = || self.reader.clone();
        held.snapshot(|| self.copy(held, edge), &options)
    }
}

/// True when every subscribed range of the newest state is here.
pub(crate) fn is_current(progress: &CopyProgress) -> bool {
    progress.missing_bytes == 0 && progress.shown_older == 0
}
