//! The indexes of an open database, and their runs.
//!
//! Invariants: a run is listed here from its commit to the commit that removes it. Where a segment
//! is *complete to* a length, its runs cover every leaf that the segment had at that length.
//! Concurrency: locks are not held over I/O or while another lock is taken; readers receive
//! immutable lists.

use super::cache::Caches;
use super::definition::{IndexDefinition, IndexId, RunRecord, Types};
use super::demand::Demand;
use super::file::Run;
use super::policy::PolicyRecord;
use crate::common::ids::{SegmentId, TableId};
use headwater_io::Files;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Use of indexes by filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexUse {
    /// Where indexes are expected to be faster.
    #[default]
    ByCost,
    /// Wherever indexes can be used.
    Always,
    /// Indexes are not used.
    Never,
}

/// The runs of an index beside a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentRuns {
    /// The runs; none is known to be damaged.
    pub(crate) runs: Vec<Arc<Run>>,
    /// Length of the segment up to which all leaves are covered; 0 = unknown.
    pub(crate) complete_to: u64,
}

impl SegmentRuns {
    /// Numbers of runs that cannot be used any more: damaged ones, and runs with values of other
    /// types than these.
    pub(crate) fn useless(&self, types: Types) -> Vec<u64> {
        let runs = self.runs.iter();
        let useless = runs.filter(|run| run.is_damaged() || run.record.types != types);
        useless.map(|run| run.number).collect()
    }

    /// New records for the remaining runs whose records state more than `complete_to`, for the
    /// removal of the runs `gone`: no remaining record may state that leaves are covered that are
    /// not.
    pub(crate) fn lowered(&self, gone: &[u64], complete_to: u64) -> Vec<RunChange> {
        let staying = self.runs.iter().filter(|run| !gone.contains(&run.number));
        let promising = staying.filter(|run| run.record.complete_to > complete_to);
        let lowered = promising.map(|run| {
            let record = RunRecord {
                complete_to,
                ..run.record
            };
            ((run.segment.0, run.number), record.encode())
        });
        lowered.collect()
    }
}

/// A run's key and its record.
pub(crate) type RunChange = ((u64, u64), Vec<u8>);

#[derive(Debug, Default)]
struct State {
    definitions: Arc<Vec<Arc<IndexDefinition>>>,
    runs: HashMap<(SegmentId, IndexId), Arc<SegmentRuns>>,
}

/// The indexes of an open database.
#[derive(Debug)]
pub(crate) struct Indexes {
    pub(super) files: Arc<dyn Files>,
    pub(super) dir: PathBuf,
    state: Mutex<State>,
    /// Locked while runs are created or removed, or definitions change.
    changing: Mutex<()>,
    /// Segments that could not be indexed, with the index and their length at that time.
    unindexable: Mutex<HashSet<(SegmentId, IndexId, u64)>>,
    /// The background creates no runs before this moment of the monotonic clock, after a failure.
    postponed_to: Mutex<Duration>,
    any: AtomicBool,
    /// Policies by table; only tables that have one.
    policies: Mutex<Arc<BTreeMap<TableId, PolicyRecord>>>,
    any_policy: AtomicBool,
    /// Reads that filters made in vain, of tables that create indexes automatically.
    demand: Mutex<Demand>,
    next_run: AtomicU64,
    usage: AtomicU8,
    pub(super) caches: Caches,
}

impl Indexes {
    /// No indexes; files of runs are in `dir`. Lookups cache about `cache_bytes` bytes.
    pub(crate) fn new(files: &Arc<dyn Files>, dir: &Path, cache_bytes: usize) -> Indexes {
        Indexes {
            files: Arc::clone(files),
            dir: dir.to_owned(),
            state: Mutex::default(),
            changing: Mutex::default(),
            unindexable: Mutex::default(),
            postponed_to: Mutex::default(),
            any: AtomicBool::new(false),
            policies: Mutex::default(),
            any_policy: AtomicBool::new(false),
            demand: Mutex::default(),
            next_run: AtomicU64::new(1),
            usage: AtomicU8::new(0),
            caches: Caches::new(cache_bytes),
        }
    }

    /// Loads the records of the metadata.
    pub(crate) fn load(
        &self,
        definitions: Vec<IndexDefinition>,
        runs: Vec<((SegmentId, u64), RunRecord)>,
    ) {
        let mut state = self.state.lock();
        self.any.store(!definitions.is_empty(), Ordering::Release);
        state.definitions = Arc::new(definitions.into_iter().map(Arc::new).collect());
        for (place, record) in runs {
            self.next_run.fetch_max(place.1 + 1, Ordering::Relaxed);
            let run = Arc::new(Run::new(&self.files, &self.dir, place, record));
            let entry = state.runs.entry((place.0, record.index)).or_default();
            let entry = Arc::make_mut(entry);
            entry.complete_to = entry.complete_to.max(record.complete_to);
            entry.runs.push(run);
        }
    }

    /// Loads the policies of the metadata.
    pub(crate) fn load_policies(&self, policies: BTreeMap<TableId, PolicyRecord>) {
        self.any_policy
            .store(!policies.is_empty(), Ordering::Release);
        *self.policies.lock() = Arc::new(policies);
    }

    /// The policies of all tables that have one.
    pub(crate) fn policies(&self) -> Vec<(TableId, PolicyRecord)> {
        let policies = Arc::clone(&self.policies.lock());
        let all = policies.iter();
        all.map(|(table, record)| (*table, record.clone()))
            .collect()
    }

    pub(crate) fn policy(&self, table: TableId) -> Option<PolicyRecord> {
        if !self.any_policy() {
            return None;
        }
        self.policies.lock().get(&table).cloned()
    }

    /// Sets the policy of a table, or removes it.
    pub(crate) fn set_policy(&self, table: TableId, record: Option<PolicyRecord>) {
        let mut policies = self.policies.lock();
        let all = Arc::make_mut(&mut policies);
        match record {
            Some(record) => drop(all.insert(table, record)),
            None => drop(all.remove(&table)),
        }
        self.any_policy.store(!all.is_empty(), Ordering::Release);
    }

    pub(crate) fn any_policy(&self) -> bool {
        self.any_policy.load(Ordering::Acquire)
    }

    /// True when reads in vain by filters of a table are counted.
    pub(crate) fn counts(&self, table: TableId) -> bool {
        let policies = self.any_policy().then(|| Arc::clone(&self.policies.lock()));
        let own = policies.as_ref().and_then(|all| all.get(&table));
        own.is_some_and(|record| record.policy.auto || !record.created.is_empty())
    }

    pub(crate) fn demand(&self) -> MutexGuard<'_, Demand> {
        self.demand.lock()
    }

    /// Makes this the only change of indexes until the guard is dropped.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// The number of the next run.
    pub(crate) fn take_number(&self) -> u64 {
        self.next_run.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// True when no index exists.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    pub(crate) fn definitions(&self) -> Arc<Vec<Arc<IndexDefinition>>> {
        Arc::clone(&self.state.lock().definitions)
    }

    /// The indexes of a table, for reads that filter its rows.
    pub(crate) fn of_table(&self, table: TableId) -> Vec<Arc<IndexDefinition>> {
        if self.is_empty() || self.usage() == IndexUse::Never {
            return Vec::new();
        }
        let all = self.definitions();
        let own = all.iter().filter(|definition| definition.table == table);
        own.cloned().collect()
    }

    /// The runs of an index beside a segment.
    pub(crate) fn runs(&self, segment: SegmentId, index: IndexId) -> Arc<SegmentRuns> {
        let state = self.state.lock();
        let runs = state.runs.get(&(segment, index)).map(Arc::clone);
        runs.unwrap_or_default()
    }

    /// All runs, by segment and index.
    pub(crate) fn all_runs(&self) -> Vec<((SegmentId, IndexId), Arc<SegmentRuns>)> {
        let state = self.state.lock();
        let all = state.runs.iter();
        all.map(|(key, runs)| (*key, Arc::clone(runs))).collect()
    }

    /// Segment and number of every run.
    pub(crate) fn run_ids(&self) -> Vec<(SegmentId, u64)> {
        let state = self.state.lock();
        let runs = state.runs.values().flat_map(|runs| &runs.runs);
        runs.map(|run| (run.segment, run.number)).collect()
    }

    /// Removes missing runs: their leaves have to be indexed again.
    pub(crate) fn forget_runs(&self, gone: &HashSet<(SegmentId, u64)>) {
        let mut state = self.state.lock();
        for runs in state.runs.values_mut() {
            let is_gone = |run: &Arc<Run>| gone.contains(&(run.segment, run.number));
            if runs.runs.iter().any(is_gone) {
                let runs = Arc::make_mut(runs);
                runs.runs.retain(|run| !is_gone(run));
                runs.complete_to = 0;
            }
        }
    }

    /// Adds an index.
    pub(crate) fn add_definition(&self, definition: IndexDefinition) {
        let mut state = self.state.lock();
        Arc::make_mut(&mut state.definitions).push(Arc::new(definition));
        self.any.store(true, Ordering::Release);
    }

    /// Removes indexes, with all their runs.
    pub(crate) fn remove_definitions(&self, gone: &[IndexId]) {
        let mut state = self.state.lock();
        Arc::make_mut(&mut state.definitions).retain(|known| !gone.contains(&known.id));
        let is_empty = state.definitions.is_empty();
        self.any.store(!is_empty, Ordering::Release);
        let mut forgotten = Vec::new();
        state.runs.retain(|(_, index), runs| {
            let stays = !gone.contains(index);
            if !stays {
                forgotten.extend(runs.runs.iter().cloned());
            }
            stays
        });
        drop(state);
        forget(&forgotten);
    }

    /// Replaces the runs of these numbers.
    pub(crate) fn replace(
        &self,
        (segment, index): (SegmentId, IndexId),
        gone: &[u64],
        new: Option<Run>,
        complete_to: u64,
    ) {
        let mut state = self.state.lock();
        let entry = state.runs.entry((segment, index)).or_default();
        let entry = Arc::make_mut(entry);
        let is_gone = |run: &Arc<Run>| gone.contains(&run.number);
        let forgotten: Vec<Arc<Run>> = entry.runs.iter().filter(|r| is_gone(r)).cloned().collect();
        entry.runs.retain(|run| !is_gone(run));
        entry.runs.extend(new.map(Arc::new));
        entry.complete_to = complete_to;
        drop(state);
        forget(&forgotten);
    }

    /// Removes the runs of removed segments.
    pub(crate) fn forget_segments(&self, gone: &[SegmentId]) {
        let mut state = self.state.lock();
        let mut forgotten = Vec::new();
        state.runs.retain(|(segment, _), runs| {
            let stays = !gone.contains(segment);
            if !stays {
                forgotten.extend(runs.runs.iter().cloned());
            }
            stays
        });
        drop(state);
        forget(&forgotten);
    }

    /// Excludes a segment that cannot be read at this length from indexing.
    pub(crate) fn leave_alone(&self, segment: SegmentId, index: IndexId, length: u64) {
        self.unindexable.lock().insert((segment, index, length));
    }

    pub(crate) fn is_unindexable(&self, segment: SegmentId, index: IndexId, length: u64) -> bool {
        self.unindexable.lock().contains(&(segment, index, length))
    }

    /// The background creates no runs before this moment of the monotonic clock.
    pub(crate) fn postpone_to(&self, moment: Duration) {
        *self.postponed_to.lock() = moment;
    }

    pub(crate) fn is_postponed(&self, now: Duration) -> bool {
        now < *self.postponed_to.lock()
    }

    /// The current use of indexes by filters.
    pub(crate) fn usage(&self) -> IndexUse {
        match self.usage.load(Ordering::Relaxed) {
            1 => IndexUse::Always,
            2 => IndexUse::Never,
            _ => IndexUse::ByCost,
        }
    }

    pub(crate) fn set_usage(&self, usage: IndexUse) {
        let number = match usage {
            IndexUse::ByCost => 0,
            IndexUse::Always => 1,
            IndexUse::Never => 2,
        };
        self.usage.store(number, Ordering::Relaxed);
    }
}

/// Files are removed when their last reader closes them.
fn forget(runs: &[Arc<Run>]) {
    for run in runs {
        run.forget();
    }
}
