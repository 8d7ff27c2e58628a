//! The copies of a cloud node: one for each edge, and closed parts, in `DIR/copies/FOLDER`.
//!
//! Invariants: an edge's copy is reached by its key only. A copy whose edge starts over, is
//! replaced or removed becomes a closed part: its folder is unchanged, and it is still read.
//! Concurrency: each copy has a lock, and the list of edges has another, which is never acquired
//! while a copy's is held. Failure: a device failure is reported in the status of that edge; the
//! other edges continue.

mod admission;
mod conflicts;
mod explain;
mod fetch;
mod naming;
mod part_status;
mod parts;
mod report;
mod shown;

pub use parts::{PartStatus, PartStreams, StreamContents, VerifiedPart};

use crate::edge_copy::{AllChanges, CopyLocation, CopyReaders, EdgeCopy, Live};
use crate::edges::{Edge, EdgeAddress, Edges, NewEdge, NewEdgeFault, Secret};
use crate::error::{ClusterError, ClusterErrorKind, of_device};
use crate::fetch_budget::FetchBudgets;
use crate::invite::{Invite, check_url};
use crate::prefetch::Prefetch;
use crate::rights::SignedRights;
use crate::subscription::{PinSpec, StreamShare, WantRule, rules};
use crate::trust::fingerprints;
use conflicts::NewestReport;
use headwater_engine::{CopyProgress, Options, RemoteCopy, Snapshot};
use headwater_io::Env;
use parking_lot::Mutex;
use report::not_comparable;
use shown::MergedView;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Maximum number of open copies without a connection or a reader.
const OPEN_MAX: usize = 256;

/// The edges of a cloud node and their copies.
#[derive(Debug)]
pub struct EdgeCopies {
    env: Env,
    dir: PathBuf,
    readers: CopyReaders,
    pub(crate) edges: Mutex<Edges>,
    /// Copies of edges and closed parts, by their folders.
    edge_copies: Mutex<HashMap<String, Arc<EdgeCopy>>>,
    sessions: AtomicU64,
    /// Identity of this node's own database; 0 = not set.
    node: AtomicU64,
    /// Incremented when the visible content of a copy may have changed.
    changes: Arc<AllChanges>,
    shown: Mutex<MergedView>,
    conflicts: Mutex<NewestReport>,
    /// The open copies, in the order of opening.
    open: Mutex<VecDeque<Arc<EdgeCopy>>>,
    /// Most open copies that are not in use.
    open_max: usize,
    /// Number of copies that show something in a version before the newest.
    behind: Arc<AtomicUsize>,
    /// Confirmations wait until the copy is persisted elsewhere.
    pub(crate) waits: AtomicBool,
    /// Confirmations to edges of this node wait until the peer has the data, too.
    pub(crate) waits_for_peer: AtomicBool,
    /// Which version of the list of edges is.
    pub(crate) persisted_roster: watch::Sender<u64>,
    /// The recently revoked tokens, for edges.
    revoked: Mutex<String>,
    /// Certificates by which this node is going to be verified, for edges.
    next_ca: Mutex<String>,
    /// SHA-256 of each of these.
    next_ca_fingerprints: Mutex<Vec<String>>,
    /// The list of rights, for edges, dispatchers and other clouds.
    rights: watch::Sender<Option<Arc<SignedRights>>>,
    /// Budgets of readers for whom ranges are fetched.
    fetch_budgets: FetchBudgets,
    /// Held while a large message is unpacked.
    pub(crate) unpacking: Mutex<()>,
}

impl EdgeCopies {
    /// Opens the copies of the node whose database is in a directory. Of the options, the ones for
    /// memory and open files apply to the readers of all copies together.
    ///
    /// # Errors
    /// `io` when the list of edges, or the counts of what was fetched, cannot be read.
    pub fn open(env: Env, dir: &Path, reader: Options) -> Result<EdgeCopies, ClusterError> {
        let mut edges = Edges::open(dir)?;
        parts::settle_folders(dir, &mut edges, env.clock.now())?;
        Ok(EdgeCopies {
            env,
            dir: dir.to_owned(),
            readers: CopyReaders::new(reader),
            edges: Mutex::new(edges),
            edge_copies: Mutex::default(),
            sessions: AtomicU64::new(1),
            node: AtomicU64::new(0),
            // Higher than the last version read, so that the first reader refreshes.
            changes: Arc::default(),
            shown: Mutex::default(),
            conflicts: Mutex::default(),
            open: Mutex::default(),
            open_max: OPEN_MAX,
            behind: Arc::default(),
            waits: AtomicBool::new(false),
            waits_for_peer: AtomicBool::new(false),
            persisted_roster: watch::Sender::new(0),
            revoked: Mutex::default(),
            next_ca: Mutex::default(),
            next_ca_fingerprints: Mutex::default(),
            rights: watch::Sender::new(None),
            fetch_budgets: FetchBudgets::open(dir)?,
            unpacking: Mutex::default(),
        })
    }

    /// Sends the recently revoked tokens to all connected edges, in the form of dispatchers.
    pub fn send_revoked(&self, list: String) {
        self.send_changed(&self.revoked, list);
    }

    /// Sends certificates in PEM, by which this node is going to be verified, to all edges that
    /// verify it by certificates of their own; see [`crate::is_announceable`].
    pub fn send_next_ca(&self, ca: String) {
        *self.next_ca_fingerprints.lock() = fingerprints(&ca);
        self.send_changed(&self.next_ca, ca);
    }

    /// The certificates by which this node is going to be verified.
    pub(crate) fn next_ca(&self) -> String {
        self.next_ca.lock().clone()
    }

    /// Changes a text that sessions send.
    fn send_changed(&self, known: &Mutex<String>, text: String) {
        let is_other = {
            let mut known = known.lock();
            let before = std::mem::replace(&mut *known, text);
            before != *known
        };
        if is_other {
            let held: Vec<Arc<EdgeCopy>> = self.edge_copies.lock().values().cloned().collect();
            held.iter().for_each(|held| held.wake.notify_one());
        }
    }

    /// Sends a list of rights to all connected edges that take it.
    pub fn send_rights(&self, list: Option<Arc<SignedRights>>) {
        let is_other = self.rights.send_if_modified(|known| {
            let is_other = *known != list;
            *known = list;
            is_other
        });
        if is_other {
            let held: Vec<Arc<EdgeCopy>> = self.edge_copies.lock().values().cloned().collect();
            held.iter().for_each(|held| held.wake.notify_one());
        }
    }

    /// The list of rights that is sent to edges.
    #[must_use]
    pub fn rights(&self) -> Option<Arc<SignedRights>> {
        self.rights.borrow().clone()
    }

    /// The same, with changes.
    #[must_use]
    pub fn follow_rights(&self) -> watch::Receiver<Option<Arc<SignedRights>>> {
        self.rights.subscribe()
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

    /// Identity of this node, as others know it; 0 before it is set.
    #[must_use]
    pub fn node(&self) -> u64 {
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
    pub fn set_address(
        &self,
        name: &str,
        address: Option<EdgeAddress>,
    ) -> Result<(), ClusterError> {
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
    ) -> Result<String, ClusterError> {
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

    /// Adds edges, all or none, in one write. Returns an invitation for each, in their order, or
    /// all reasons why they cannot be added.
    ///
    /// # Errors
    /// `invalid` for a bad address, `io`.
    pub fn invite_all(
        &self,
        new: &[NewEdge],
        (url, ca): (&str, Option<&str>),
        want: Option<StreamShare>,
        valid: Duration,
    ) -> Result<Result<Vec<String>, Vec<NewEdgeFault>>, ClusterError> {
        check_url(url)?;
        let now = self.env.clock.now();
        let secrets = {
            let mut edges = self.edges.lock();
            let faults = edges.faults_of(new);
            if !faults.is_empty() {
                return Ok(Err(faults));
            }
            edges.invite_new(new, want, now, valid)?
        };
        let invitations = new.iter().zip(secrets).map(|(new, secret)| {
            let invite = Invite {
                url: url.to_owned(),
                edge: new.edge.clone(),
                secret,
                ca: ca.map(str::to_owned),
            };
            invite.encode()
        });
        invitations.collect::<Result<_, _>>().map(Ok)
    }

    /// Pauses or resumes requests to an edge.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn pause(&self, name: &str, is_paused: bool) -> Result<(), ClusterError> {
        let mut edges = self.edges.lock();
        edges.update(name, |edge| edge.is_paused = is_paused)?;
        drop(edges);
        self.entry(name).wake.notify_one();
        Ok(())
    }

    /// Sets the subscription of an edge. Present ranges outside the new subscription are not
    /// removed.
    ///
    /// # Errors
    /// `not_found`, `invalid` for rules that withhold a part of a table, `io`.
    pub fn set_subscription(
        &self,
        name: &str,
        want: StreamShare,
        want_rules: Vec<WantRule>,
    ) -> Result<(), ClusterError> {
        // Refused before any change.
        rules(&want_rules, want)?;
        self.change_edge(name, |edge| (edge.want, edge.rules) = (want, want_rules))
    }

    /// Retains rows that an edge removes because of their age, by retention or aging, for this many
    /// more seconds; `None` = forever. Retained rows older than the new limit are removed.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn set_retention(&self, name: &str, seconds: Option<u64>) -> Result<(), ClusterError> {
        self.change_edge(name, |edge| edge.kept_seconds = seconds)
    }

    /// Sets the prefetch policy of an edge.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn migrate(&self, name: &str, migration: Prefetch) -> Result<(), ClusterError> {
        self.change_edge(name, |edge| edge.migration = migration)
    }

    fn change_edge(&self, name: &str, change: impl FnOnce(&mut Edge)) -> Result<(), ClusterError> {
        let edge = {
            let mut edges = self.edges.lock();
            edges.update(name, change)?;
            edges.get(name)?.clone()
        };
        let wanted = edge.subscription_rules()?;
        let held = self.entry(name);
        if let Some(copy) = self.copy(&held, &edge)? {
            copy.set_rules(wanted).map_err(of_device)?;
        }
        held.has_changed();
        held.wake.notify_one();
        Ok(())
    }

    /// The copy in a folder.
    pub(crate) fn held(&self, folder: &str) -> Result<Arc<EdgeCopy>, ClusterError> {
        let known = self.edge_copies.lock().get(folder).cloned();
        known.map_or_else(|| Ok(self.located(folder)?.0), Ok)
    }

    /// Nodes through which the data of the copy in a folder has passed.
    pub(crate) fn path_of(&self, folder: &str) -> Vec<u64> {
        let held = self.held(folder).ok();
        let path = held.map(|held| held.live.lock().path.clone());
        match path {
            Some(path) if !path.is_empty() => path,
            // Its connection has not told it since the start.
            _ => self.edges.lock().path_of(folder),
        }
    }

    pub(crate) fn copy_of(&self, name: &str) -> Result<(Arc<EdgeCopy>, RemoteCopy), ClusterError> {
        let edge = self.edges.lock().get(name)?.clone();
        let held = self.entry(name);
        let copy = self.copy(&held, &edge)?.ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!("this node has no copy of the edge `{name}` yet"),
            )
        })?;
        Ok((held, copy))
    }

    /// Subscribes to all rows of a span of time, whatever the rules say. Returns the number of the
    /// pin.
    ///
    /// # Errors
    /// `not_found` for an unknown edge or one without a copy, `invalid`, `io`.
    pub fn pin(&self, name: &str, pin: &PinSpec) -> Result<u64, ClusterError> {
        let (held, copy) = self.copy_of(name)?;
        let number = copy.pin(pin.pin()).map_err(of_device)?;
        held.wake.notify_one();
        Ok(number)
    }

    /// Removes a pin; present ranges are not removed.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn unpin(&self, name: &str, number: u64) -> Result<(), ClusterError> {
        let (_, copy) = self.copy_of(name)?;
        match copy.unpin(number).map_err(of_device)? {
            true => Ok(()),
            false => Err(ClusterError::new(
                ClusterErrorKind::NotFound,
                format!(
                    "there is no pin {number} of the edge `{name}`; list them with `headwater sync pins {name}`"
                ),
            )),
        }
    }

    /// The pins of an edge, by their numbers.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn pins(&self, name: &str) -> Result<Vec<(u64, PinSpec)>, ClusterError> {
        let (_, copy) = self.copy_of(name)?;
        let pins = copy.pins();
        Ok(pins.iter().map(|(n, pin)| (*n, PinSpec::of(pin))).collect())
    }

    /// Starts to compare the copy of an edge with its database, both read from their devices.
    ///
    /// # Errors
    /// `not_found`, `unreachable` when it is paused or not connected, `history` when it is refused.
    pub fn verify(&self, name: &str) -> Result<(), ClusterError> {
        let edge = self.edges.lock().get(name)?.clone();
        if let Some(error) = not_comparable(&self.status_of(&edge)) {
            return Err(error);
        }
        self.connected(name, |live| {
            live.is_verification_requested = true;
            live.is_verifying = true;
            live.verified = None;
        })
    }

    /// Drops the ranges that differ by the newest comparison, so that they are fetched again.
    ///
    /// # Errors
    /// `not_found`, `unreachable` when it is not connected.
    pub fn fetch_again(&self, name: &str) -> Result<(), ClusterError> {
        self.connected(name, |live| live.is_refetch_requested = true)
    }

    fn connected(&self, name: &str, change: impl FnOnce(&mut Live)) -> Result<(), ClusterError> {
        self.edges.lock().get(name)?;
        let held = self.entry(name);
        let mut live = held.live.lock();
        if live.session == 0 {
            return Err(ClusterError::new(
                ClusterErrorKind::Unreachable,
                format!("the edge `{name}` is not connected; try again once it is"),
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

    pub(crate) fn redeem(&self, name: &str) -> Result<String, ClusterError> {
        self.edges.lock().redeem(name)
    }

    /// Makes an edge, or all edges, get a next key; returns their number.
    ///
    /// # Errors
    /// `not_found`, `io`.
    pub fn rotate_keys(&self, name: Option<&str>) -> Result<usize, ClusterError> {
        let count = self.edges.lock().rotate_keys(name)?;
        let held: Vec<Arc<EdgeCopy>> = self.edge_copies.lock().values().cloned().collect();
        held.iter().for_each(|held| held.wake.notify_one());
        Ok(count)
    }

    pub(crate) fn issue_key(&self, name: &str) -> Result<String, ClusterError> {
        self.edges.lock().issue_key(name)
    }

    pub(crate) fn confirm_key(&self, name: &str, key: &str) -> Result<bool, ClusterError> {
        self.edges.lock().confirm_key(name, key)
    }

    pub(crate) fn set_connected(&self, name: &str) -> Result<(), ClusterError> {
        self.edges.lock().set_connected(name)
    }

    /// Settings of an edge, or of a closed part that is still received; `None` if it was removed.
    pub(crate) fn edge(&self, name: &str) -> Option<Edge> {
        self.edges.lock().followed(name)
    }

    /// The copy of an edge.
    pub(crate) fn entry(&self, name: &str) -> Arc<EdgeCopy> {
        match self.edge(name) {
            Some(edge) => self.entry_at(edge.folder(), name),
            // No folder has such a name: an edge that was removed must not reach its closed part.
            None => self.entry_at(&format!("/{name}"), name),
        }
    }

    pub(crate) fn entry_at(&self, folder: &str, name: &str) -> Arc<EdgeCopy> {
        let mut all = self.edge_copies.lock();
        let held = all.entry(folder.to_owned()).or_insert_with(|| {
            Arc::new(EdgeCopy::new((name, folder), &self.changes, &self.behind))
        });
        Arc::clone(held)
    }

    pub(crate) fn location_of(&self, edge: &Edge) -> Result<CopyLocation, ClusterError> {
        Ok(CopyLocation {
            env: self.env.clone(),
            dir: self.copies().join(edge.folder()),
            rules: edge.subscription_rules()?,
        })
    }

    /// The copy of an edge, opened if necessary; `None` if it does not exist yet.
    pub(crate) fn copy(
        &self,
        held: &Arc<EdgeCopy>,
        edge: &Edge,
    ) -> Result<Option<RemoteCopy>, ClusterError> {
        self.copy_at(held, &self.location_of(edge)?)
    }

    /// The copy at a location, opened if necessary; `None` if it does not exist yet.
    pub(crate) fn copy_at(
        &self,
        held: &Arc<EdgeCopy>,
        place: &CopyLocation,
    ) -> Result<Option<RemoteCopy>, ClusterError> {
        let (copy, is_new) = held.copy(place).map_err(of_device)?;
        if is_new {
            self.close_unused(held);
        }
        Ok(copy)
    }

    /// Closes unused copies, to bound the number of open ones. Copies that were used since the last
    /// check are not closed.
    fn close_unused(&self, opened: &Arc<EdgeCopy>) {
        let mut open = self.open.lock();
        open.push_back(Arc::clone(opened));
        // Each copy is checked at most twice.
        for _ in 0..2 * open.len() {
            if open.len() <= self.open_max {
                return;
            }
            if let Some(held) = open.pop_front()
                && !held.close_if_unused()
            {
                open.push_back(held);
            }
        }
    }

    /// Incremented when the visible content of a copy may have changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.count()
    }

    /// Whether the visible version of a copy is older than the newest known one.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed) > 0
    }

    fn copies(&self) -> PathBuf {
        self.dir.join("copies")
    }

    /// Snapshot of an edge for a reader of its own; `None` if no data of it is here.
    pub(crate) fn snapshot_of(
        &self,
        edge: &Edge,
        held: &Arc<EdgeCopy>,
    ) -> Result<Option<Snapshot>, ClusterError> {
        held.snapshot(|| self.copy(held, edge), &self.readers)
    }
}

/// True when every subscribed range of the newest state is here.
pub(crate) fn is_current(progress: &CopyProgress) -> bool {
    progress.missing_bytes == 0 && progress.shown_older == 0
}
