//! Layers that an owner puts between the database and its media: a reserve of space on each, and,
//! where the log has a faster device of its own, a monitor of the others.

use super::files::Named;
use crate::config::tier_shares::TierShares;
use crate::device::guard::Guard;
use crate::device::layout::durable_roots;
use crate::device::reserve::{Reserve, ReservedFiles};
use crate::device::stall::{Watch, WatchedFiles};
use crate::device::tiers::OwnedTier;
use crate::metadata::tables::Meta;
use crate::storage::fast_index::{self, FastIndex, RepeatKind};
use crate::storage::queues::SegmentQueues;
use crate::storage::segment::{ReadAhead, Store, named};
use crate::wal::StartRecorder;
use crate::{Options, Result};
use headwater_io::{Env, Files};
use std::sync::Arc;

/// Reserves space for a full disk on every medium of the log, the metadata or segments.
pub(super) fn reserve_space(env: &mut Env, options: &Options) -> Result<Vec<Arc<Reserve>>> {
    if options.reserve_bytes == 0 {
        return Ok(Vec::new());
    }
    let mut reserved: Vec<(Arc<dyn Files>, Arc<Reserve>)> = Vec::new();
    let parts = [env.log_files(), env.index_files(), env.segment_files()];
    let is_used = |files: &Arc<dyn Files>| parts.iter().any(|part| Arc::ptr_eq(part, files));
    let roots = durable_roots(env, &options.dir).into_iter();
    for (files, root) in roots.filter(|(files, _)| is_used(files)) {
        let reserve = Reserve::open(files, &env.clock, &root, options.reserve_bytes)?;
        reserved.push((Arc::clone(files), reserve));
    }
    *env = env.map_files(|files| {
        let reserve = reserved.iter().find(|(known, _)| Arc::ptr_eq(known, files));
        match reserve {
            Some((files, reserve)) => Arc::new(ReservedFiles {
                files: Arc::clone(files),
                reserve: Arc::clone(reserve),
            }),
            None => Arc::clone(files),
        }
    });
    Ok(reserved.into_iter().map(|(_, reserve)| reserve).collect())
}

/// Where the log is in a fast tier, bulk may stall while writes go on: accesses to bulk are
/// monitored then, and a stall is detected at once.
pub(super) fn watch_bulk(env: &mut Env, tier: Option<&OwnedTier>) -> Arc<Watch> {
    let watch = Watch::new(&env.clock);
    let is_log_fast = tier.is_some_and(|owned| owned.tier.parts.log);
    watch.set_on(is_log_fast);
    let log = Arc::clone(env.log_files());
    *env = env.map_files(|files| match is_log_fast && Arc::ptr_eq(files, &log) {
        true => Arc::clone(files),
        false => Arc::new(WatchedFiles {
            files: Arc::clone(files),
            watch: Arc::clone(&watch),
        }),
    });
    watch
}

/// Share (1/n) of the memory budget for leaves read ahead; caches get correspondingly less.
const AHEAD_MEMORY_SHARE: usize = 32;

/// The queue sets before segments, if configured.
pub(super) fn queue_segments(
    env: &Env,
    options: &Options,
    partitions: &Named,
) -> Result<Option<SegmentQueues>> {
    let all = partitions.iter();
    SegmentQueues::start(options, &env.threads, all.map(|(id, record)| (*id, record)))
}

/// The files of segments, and the read-ahead with its memory; `None` where a medium cannot read in
/// the background.
pub(super) fn segment_files(
    env: &Env,
    options: &Options,
    queues: Option<&SegmentQueues>,
) -> (Arc<dyn Files>, Option<(ReadAhead, usize)>) {
    let files = match queues {
        None => Arc::clone(env.segment_files()),
        Some(queues) => queues.before(env.segment_files(), &env.threads),
    };
    let is_worth_while = options.read_ahead > 1 && files.has_queue();
    let bytes = options.memory_budget_bytes / AHEAD_MEMORY_SHARE;
    let ahead = is_worth_while.then(|| (ReadAhead::new(options.read_ahead, bytes), bytes));
    (files, ahead)
}

/// Share (1/n) of the memory budget for the directory of the files of an index in the fast tier.
const INDEX_MEMORY_SHARE: u64 = 128;
/// The same share for the newest segments, which have larger files.
const NEWEST_MEMORY_SHARE: u64 = 32;
/// Maximum bytes of the newest segments per byte of memory for the directory of their files: each
/// 4,096 bytes have a checksum of 4.
const NEWEST_PER_MEMORY: u64 = 1024;

/// Folder of the copies of segment parts in the fast tier, if configured.
pub(crate) fn fast_index_config(
    kind: RepeatKind,
    (env, options): (&Env, &Options),
    tier: &OwnedTier,
    guard: &Arc<Guard>,
) -> Option<fast_index::FastIndexConfig> {
    let budget = u64::try_from(options.memory_budget_bytes).unwrap_or(u64::MAX);
    let is_there = kind.is_in(tier.tier.parts);
    let shares = TierShares::of(options, tier.tier.parts);
    let (bytes_max, memory_bytes) = match kind {
        RepeatKind::Index => {
            let memory = budget / INDEX_MEMORY_SHARE;
            (shares.index, memory)
        }
        RepeatKind::Newest => {
            let memory = budget / NEWEST_MEMORY_SHARE;
            let known = memory.saturating_mul(NEWEST_PER_MEMORY);
            let most = shares.newest.unwrap_or(u64::MAX).min(known);
            (Some(most), memory)
        }
    };
    is_there.then(|| fast_index::FastIndexConfig {
        kind,
        files: Arc::clone(&tier.files),
        fast: tier.tier.folder.clone(),
        set: tier.set,
        bytes_max,
        age_max: options.fast_newest_age,
        memory_bytes,
        guard: Arc::clone(guard),
        clock: Arc::clone(&env.clock),
        written: Arc::clone(&tier.written),
    })
}

/// Copies parts of segments to the fast tier. Without it reads go to bulk, so an unusable tier does
/// not prevent opening.
pub(super) fn repeat_segments(
    store: &Store,
    env_and_options: (&Env, &Options),
    tier: Option<&OwnedTier>,
    partitions: &Named,
    guard: &Arc<Guard>,
) {
    let Some(tier) = tier else {
        return;
    };
    let places =
        RepeatKind::ALL.map(|what| (what, fast_index_config(what, env_and_options, tier, guard)));
    for (what, place) in places.into_iter().filter_map(|(what, p)| Some((what, p?))) {
        let all = partitions.iter();
        let all = all.map(|(id, record)| (*id, named(record)));
        match FastIndex::open(place, all) {
            Ok(index) => drop(store.repeats().set(what, Some(Arc::new(index)))),
            Err(error) => {
                tracing::warn!(%error, "cannot use the copies of segments in the fast tier; segments are read from the bulk device");
            }
        }
    }
}

/// The announcement of a new log file: in a fast tier without using bulk.
pub(crate) fn announcer(
    env: &Env,
    meta: &Arc<Meta>,
    tier: Option<&Arc<OwnedTier>>,
) -> StartRecorder {
    if let Some(tier) = tier.filter(|owned| owned.tier.parts.log) {
        let (tier, files) = (Arc::clone(tier), Arc::clone(env.log_files()));
        return Box::new(move |generation| tier.note_log_begun(&*files, generation));
    }
    let meta = Arc::clone(meta);
    Box::new(move |generation| meta.log_begun(generation))
}
