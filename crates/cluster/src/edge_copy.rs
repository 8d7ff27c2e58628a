//! The copy of one edge: opened when it is needed, read, and closed again when it is not in use.
//!
//! Invariants: a process opens a copy only once: the copy is closed only when no other reference to
//! it exists. Snapshots of a closed copy can still be read. Concurrency: its live state, the copy,
//! and its reader have a lock each; the reader's is acquired before the copy's. Failure: an error
//! is one of the copy's device; the copy is opened again then.

use crate::error::{ClusterError, of_device};
use crate::frame::{About, QuietCause, Trusts};
use crate::lag::{Arrivals, LiveLag, Waits};
use crate::processes::EdgeProcesses;
use crate::why::WhyRequest;
use headwater_engine::{
    CopyProgress, ErrorKind, Options, ReadCache, Reader, RemoteCopy, ReplicationRules, Result,
    Snapshot, State, StateName, Tally,
};
use headwater_io::Env;
use headwater_protocol::replication::Verified;
use headwater_types::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Location of a copy, and its subscription.
#[derive(Clone, Debug)]
pub(crate) struct CopyLocation {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) rules: ReplicationRules,
}

impl CopyLocation {
    fn open(&self) -> Result<Option<RemoteCopy>> {
        match RemoteCopy::open(self.env.clone(), &self.dir, self.rules.clone()) {
            Ok(copy) => Ok(Some(copy)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Settings and the common cache of the readers of all copies of a node.
#[derive(Debug)]
pub(crate) struct CopyReaders {
    options: Options,
    cache: ReadCache,
}

impl CopyReaders {
    /// Readers that take a quarter of the memory budget together, and as many files as one.
    pub(crate) fn new(options: Options) -> CopyReaders {
        let cache = ReadCache::new(options.memory_budget_bytes / 4, options.open_files_max);
        CopyReaders { options, cache }
    }

    fn open(&self, copy: &RemoteCopy) -> Result<Reader> {
        copy.reader_sharing(self.options.clone(), &self.cache)
    }
}

/// Name under which a copy registers its own copy at another cloud.
pub(crate) const FURTHER: &str = "relay";

/// State of a copy while the node runs.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Number of the current connection; 0 = not connected.
    pub(crate) session: u64,
    /// Number of the newest connection that is not served, or not yet; 0 = none.
    pub(crate) greeted: u64,
    /// Processes that have connected as this edge.
    pub(crate) processes: EdgeProcesses,
    pub(crate) last_message: Option<Timestamp>,
    pub(crate) current: Option<Timestamp>,
    pub(crate) about: Option<About>,
    pub(crate) progress: Option<CopyProgress>,
    pub(crate) proven_bytes: u64,
    pub(crate) refused: Option<String>,
    pub(crate) failed: Option<String>,
    pub(crate) is_verification_requested: bool,
    pub(crate) is_refetch_requested: bool,
    pub(crate) is_verifying: bool,
    pub(crate) verified: Option<(Timestamp, Verified)>,
    /// Identities of the nodes through which a relayed edge's data passes.
    pub(crate) path: Vec<u64>,
    /// Number of the list of rights that the edge has.
    pub(crate) rights: Option<u64>,
    /// Certificates by which the edge verifies this node, as it answered last.
    pub(crate) trusts: Option<Trusts>,
    /// The edge has closed the connection until then.
    pub(crate) quiet: Option<(Timestamp, QuietCause)>,
    /// Bytes that arrived lately, and why the planner does not request more.
    pub(crate) arrivals: Arrivals,
    pub(crate) waits: Waits,
    /// Lag of newest events over the current connection.
    pub(crate) live_lag: Option<LiveLag>,
    /// Questions for the task of the connection.
    pub(crate) why: Vec<WhyRequest>,
    /// The part of the copy known to survive the loss of this node.
    pub(crate) durable: Option<DurableState>,
}

/// The part of a copy that survives the loss of this node: a state, and segments with every
/// subscribed range, with the bytes that the state names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DurableState {
    pub(crate) state: StateName,
    pub(crate) segments: Vec<(u64, u64)>,
}

/// The reader of a copy.
#[derive(Debug, Default)]
struct Reading {
    reader: Option<Reader>,
    /// Which changes were shown last.
    changes: Option<u64>,
}

/// Changes of all copies of a node.
#[derive(Debug, Default)]
pub(crate) struct AllChanges {
    count: AtomicU64,
    /// Folders of the copies that have changed since they were taken.
    folders: Mutex<BTreeSet<String>>,
}

impl AllChanges {
    /// Records that the visible content of a copy may have changed.
    pub(crate) fn add(&self, folder: &str) {
        // Before the count, by which readers notice it.
        self.folders.lock().insert(folder.to_owned());
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Records a change that is not about the content of one copy.
    pub(crate) fn add_other(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Makes copies be looked at again at the next change.
    pub(crate) fn again(&self, folders: impl IntoIterator<Item = String>) {
        self.folders.lock().extend(folders);
    }

    /// Incremented with each change.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Takes the folders of the changed copies.
    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.folders.lock())
    }
}

/// Content of a copy for a reader.
pub(crate) enum Shows {
    /// There is no copy.
    NoCopy,
    /// Unchanged since the last time.
    Unchanged,
    Snapshot(Snapshot),
}

/// The copy of one edge.
#[derive(Debug)]
pub(crate) struct EdgeCopy {
    /// Name of the edge, which may change.
    name: Mutex<Arc<str>>,
    pub(crate) live: Mutex<Live>,
    /// Notified when there is something to do without a received message.
    pub(crate) wake: Notify,
    /// Notified when a connection that is not served may be served, or is to end.
    pub(crate) greeting: Notify,
    copy: Mutex<Option<RemoteCopy>>,
    reading: Mutex<Reading>,
    /// The copy is relayed to another cloud.
    is_relayed: AtomicBool,
    /// Number of openings.
    openings: AtomicU64,
    /// Change counter at the time of closing; `None` while open.
    left_at: Mutex<Option<u64>>,
    /// The copy was used since the last check for unused ones.
    was_used: AtomicBool,
    /// Increased when the visible content may have changed, together with the counter of all
    /// copies.
    changes: AtomicU64,
    folder: String,
    all_changes: Arc<AllChanges>,
    /// Something is shown in a version before the newest; and how many copies do so.
    is_behind: AtomicBool,
    all_behind: Arc<AtomicUsize>,
}

impl Drop for EdgeCopy {
    fn drop(&mut self) {
        self.set_behind(false);
    }
}

impl EdgeCopy {
    pub(crate) fn new(
        (name, folder): (&str, &str),
        all_changes: &Arc<AllChanges>,
        all_behind: &Arc<AtomicUsize>,
    ) -> EdgeCopy {
        EdgeCopy {
            name: Mutex::new(name.into()),
            live: Mutex::default(),
            wake: Notify::new(),
            greeting: Notify::new(),
            copy: Mutex::new(None),
            reading: Mutex::default(),
            is_relayed: AtomicBool::new(false),
            openings: AtomicU64::new(0),
            left_at: Mutex::new(None),
            was_used: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            folder: folder.to_owned(),
            all_changes: Arc::clone(all_changes),
            is_behind: AtomicBool::new(false),
            all_behind: Arc::clone(all_behind),
        }
    }

    /// Name of the edge.
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.lock())
    }

    /// Gives the copy to an edge of another name. True if the name is another one.
    pub(crate) fn set_name(&self, name: &str) -> bool {
        let mut before = self.name.lock();
        let is_other = **before != *name;
        if is_other {
            *before = name.into();
        }
        is_other
    }

    /// Ends the connection of the edge, which notices it at its next step.
    pub(crate) fn end_session(&self) {
        let mut live = self.live.lock();
        (live.session, live.is_verifying) = (0, false);
        live.greeted = 0;
        (live.refused, live.failed) = (None, None);
        drop(live);
        self.wake.notify_one();
        self.greeting.notify_waiters();
    }

    /// Records the end of a connection.
    pub(crate) fn session_has_ended(&self, session: u64) {
        let mut live = self.live.lock();
        if live.session != session {
            return;
        }
        (live.session, live.is_verifying) = (0, false);
        live.processes.has_ended();
        drop(live);
        self.greeting.notify_waiters();
    }

    /// Records that the visible content may have changed.
    pub(crate) fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.all_changes.add(&self.folder);
    }

    /// Incremented when the visible content may have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn set_behind(&self, is_behind: bool) {
        let was_behind = self.is_behind.swap(is_behind, Ordering::Relaxed);
        match (was_behind, is_behind) {
            (false, true) => drop(self.all_behind.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.all_behind.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Subscribed and missing bytes for each reason; empty while the copy is closed.
    pub(crate) fn tallies(&self) -> Vec<Tally> {
        let copy = self.copy.lock().clone();
        copy.map_or_else(Vec::new, |copy| copy.tallies())
    }

    /// Records the progress of the copy.
    pub(crate) fn note(&self, progress: CopyProgress) {
        self.set_behind(progress.shown_older > 0);
        self.live.lock().progress = Some(progress);
    }

    /// Sets whether the copy is relayed to another cloud.
    pub(crate) fn set_relayed(&self, is_relayed: bool) {
        // The lock prevents a concurrent opening.
        let held = self.copy.lock();
        self.is_relayed.store(is_relayed, Ordering::Relaxed);
        match (&*held, is_relayed) {
            (Some(copy), true) => copy.add_further(FURTHER),
            (Some(copy), false) => copy.remove_further(FURTHER),
            (None, _) => {}
        }
    }

    /// Which opening of it this is.
    pub(crate) fn opening(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// Change counter at the time of closing; `None` while open.
    pub(crate) fn left_at(&self) -> Option<u64> {
        *self.left_at.lock()
    }

    fn record_opening(&self, copy: &RemoteCopy) {
        self.openings.fetch_add(1, Ordering::AcqRel);
        *self.left_at.lock() = None;
        self.live.lock().durable = None;
        if self.is_relayed.load(Ordering::Relaxed) {
            copy.add_further(FURTHER);
        }
    }

    /// The copy, opened if it is there; and whether it was opened for this.
    pub(crate) fn copy(&self, place: &CopyLocation) -> Result<(Option<RemoteCopy>, bool)> {
        self.was_used.store(true, Ordering::Relaxed);
        let mut held = self.copy.lock();
        if let Some(copy) = &*held {
            return Ok((Some(copy.clone()), false));
        }
        *held = place.open()?;
        held.iter().for_each(|copy| self.record_opening(copy));
        Ok((held.clone(), held.is_some()))
    }

    /// The copy, if it is open.
    pub(crate) fn open_copy(&self) -> Option<RemoteCopy> {
        self.copy.lock().clone()
    }

    /// Progress of the copy, if there is one; a closed one is opened for this only.
    pub(crate) fn glance(&self, place: &CopyLocation) -> Result<Option<CopyProgress>> {
        // The lock prevents a concurrent opening.
        let held = self.copy.lock();
        let opened = match &*held {
            Some(copy) => Some(copy.clone()),
            None => place.open()?,
        };
        Ok(opened.map(|copy| copy.progress()))
    }

    /// Creates a copy with its first state.
    pub(crate) fn begin(&self, place: &CopyLocation, state: &State) -> Result<RemoteCopy> {
        let mut held = self.copy.lock();
        if let Some(copy) = &*held {
            return Ok(copy.clone());
        }
        let copy = RemoteCopy::begin(place.env.clone(), &place.dir, state, place.rules.clone())?;
        self.record_opening(&copy);
        *held = Some(copy.clone());
        Ok(copy)
    }

    /// Drops all open references, so that the copy is opened again.
    pub(crate) fn close(&self) {
        *self.copy.lock() = None;
        *self.reading.lock() = Reading::default();
        self.set_behind(false);
        self.has_changed();
    }

    /// Closes the copy, if it was not used since the last call and has no other references; its
    /// snapshots can still be read. True if it is closed.
    pub(crate) fn close_if_unused(&self) -> bool {
        if self.was_used.swap(false, Ordering::Relaxed) {
            return false;
        }
        // If a lock is not available, the copy is in use.
        let (Some(mut reading), Some(mut copy)) = (self.reading.try_lock(), self.copy.try_lock())
        else {
            return false;
        };
        let reader = reading.reader.take();
        drop(reader);
        let is_held = copy.as_ref().is_some_and(RemoteCopy::is_shared);
        if !is_held {
            *self.left_at.lock() = copy.as_ref().map(RemoteCopy::changes);
            *copy = None;
        }
        !is_held
    }

    /// The current content of the copy. `copy` opens it.
    pub(crate) fn shows(
        &self,
        copy: impl FnOnce() -> std::result::Result<Option<RemoteCopy>, ClusterError>,
        readers: &CopyReaders,
    ) -> std::result::Result<Shows, ClusterError> {
        let changes = self.changes.load(Ordering::Acquire);
        let mut reading = self.reading.lock();
        if reading.changes == Some(changes) {
            return Ok(Shows::Unchanged);
        }
        let snapshot = match &mut reading.reader {
            Some(reader) => {
                reader.refresh().map_err(of_device)?;
                reader.snapshot()
            }
            None => {
                let Some(copy) = copy()? else {
                    return Ok(Shows::NoCopy);
                };
                self.set_behind(copy.progress().shown_older > 0);
                let reader = readers.open(&copy).map_err(of_device)?;
                let snapshot = reader.snapshot();
                reading.reader = Some(reader);
                snapshot
            }
        };
        reading.changes = Some(changes);
        Ok(Shows::Snapshot(snapshot))
    }

    /// The current snapshot of the copy, even if unchanged; `None` if there is no copy. `copy`
    /// opens it.
    pub(crate) fn snapshot(
        &self,
        copy: impl FnOnce() -> std::result::Result<Option<RemoteCopy>, ClusterError>,
        readers: &CopyReaders,
    ) -> std::result::Result<Option<Snapshot>, ClusterError> {
        let mut reading = self.reading.lock();
        if let Some(reader) = &mut reading.reader {
            reader.refresh().map_err(of_device)?;
            return Ok(Some(reader.snapshot()));
        }
        let Some(copy) = copy()? else {
            return Ok(None);
        };
        let reader = readers.open(&copy).map_err(of_device)?;
        let snapshot = reader.snapshot();
        reading.reader = Some(reader);
        Ok(Some(snapshot))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_engine::{Database, TableSpec};
    use headwater_io::{NoThreads, SeededChance};
    use headwater_types::{Batch, Level, StreamName, Value};

    /// A place with a copy of a database of a few rows.
    fn copy_location(env: &Env, name: &str) -> CopyLocation {
        let source = Env {
            chance: Arc::new(SeededChance::new(1)),
            threads: Arc::new(NoThreads),
            ..Env::memory()
        };
        let db = Database::open_in(source, Options::new("/db")).unwrap();
        db.create_table(&TableSpec::new("m")).unwrap();
        let mut batch = Batch::new();
        let stream = StreamName::new("m", [("id", name)]);
        let rows = batch.stream(&stream);
        rows.row(5, [("v", Value::F64(1.0))]).unwrap();
        db.commit(batch).unwrap();
        db.flush().unwrap();
        let held = db.hold_state(None).unwrap();
        let place = CopyLocation {
            env: env.clone(),
            dir: PathBuf::from("/copies").join(name),
            rules: ReplicationRules::from(Level::MIN),
        };
        let copy = RemoteCopy::begin(env.clone(), &place.dir, held.state(), place.rules.clone());
        let copy = copy.unwrap();
        // Footers name the other subscribed ranges.
        while let Some(missing) = copy.missing(1).first() {
            let range = missing.range;
            let bytes = u32::try_from(range.bytes).unwrap();
            let found = held.read(missing.segment, range.offset, bytes).unwrap();
            copy.put(missing.segment, range.offset, &found).unwrap();
            copy.commit().unwrap();
        }
        place
    }

    #[test]
    fn a_copy_that_nobody_uses_is_closed_and_goes_on_to_be_shown() {
        let env = Env::memory();
        let place = copy_location(&env, "a");
        let (changes, behind) = (Arc::default(), Arc::default());
        let held = EdgeCopy::new(("a", "a"), &changes, &behind);
        let readers = CopyReaders::new(Options::new("/"));
        let open = || held.copy(&place).map(|(copy, _)| copy).map_err(of_device);
        let shown = match held.shows(open, &readers).unwrap() {
            Shows::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        };
        let snapshot = shown.unwrap();
        assert!(!held.close_if_unused(), "it was used just now");
        let user = held.open_copy().unwrap();
        assert!(!held.close_if_unused(), "somebody has it");
        drop(user);
        assert!(held.close_if_unused() && held.open_copy().is_none());
        let streams = snapshot.streams("m", &[]).unwrap();
        assert_eq!(snapshot.last(&streams[0]).unwrap().len(), 1);
        let refuses = || Err(ClusterError::invalid("nothing has changed since"));
        let again = held.shows(refuses, &readers).unwrap();
        assert!(matches!(again, Shows::Unchanged));
        // Reading its progress does not leave the copy open.
        assert!(held.glance(&place).unwrap().is_some() && held.open_copy().is_none());
        held.has_changed();
        let (copy, is_new) = held.copy(&place).unwrap();
        assert!(copy.is_some() && is_new);
        let open = || Ok(copy);
        assert!(matches!(
            held.shows(open, &readers).unwrap(),
            Shows::Snapshot(_)
        ));
    }
}
