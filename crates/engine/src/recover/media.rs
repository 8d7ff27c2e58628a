//! What an owner puts between the database and its media: a reserve of space on each, and where the
//! log has a faster one of its own, a watch over the others.

use super::files::Named;
use crate::fast_index::{self, FastIndex};
use crate::guard::Guard;
use crate::layout::durable_roots;
use crate::log::MakeKnown;
use crate::meta::Meta;
use crate::reserve::{Reserve, ReservedFiles};
use crate::segment::named;
use crate::stall::{Watch, WatchedFiles};
use crate::tiers::OwnedTier;
use crate::{Options, Result};
use headwater_io::{Env, Files};
use std::sync::Arc;

/// Keeps space for a full disk on every medium of the log, the metadata or segments.
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

/// Where the log lies in a fast tier, bulk may stall while writes go on: looks into it are watched.
pub(super) fn watch_bulk(env: &mut Env, tier: Option<&OwnedTier>) -> Option<Arc<Watch>> {
    tier.filter(|owned| owned.tier.parts.log)?;
    let watch = Watch::new(&env.clock);
    let fast = Arc::clone(env.log_files());
    *env = env.map_files(|files| match Arc::ptr_eq(files, &fast) {
        true => Arc::clone(files),
        false => Arc::new(WatchedFiles {
            files: Arc::clone(files),
            watch: Arc::clone(&watch),
        }),
    });
    Some(watch)
}

/// What of a memory for caches knows what the files of an index in the fast tier hold.
const INDEX_CACHE_SHARE: usize = 32;

/// The index of segments in the fast tier, where one is to be kept there. Without it reads go to
/// bulk, so none is no reason not to open.
pub(super) fn fast_index(
    (env, options): (&Env, &Options),
    tier: Option<&OwnedTier>,
    partitions: &Named,
    guard: &Arc<Guard>,
) -> Option<Arc<FastIndex>> {
    let tier = tier.filter(|owned| owned.tier.parts.index)?;
    let memory = options.memory_budget_bytes / 4 / INDEX_CACHE_SHARE;
    let place = fast_index::Place {
        files: Arc::clone(&tier.files),
        dir: fast_index::folder(&tier.tier.folder),
        set: tier.set,
        bytes_max: options.fast_index_bytes,
        memory_bytes: u64::try_from(memory).unwrap_or(u64::MAX),
        guard: Arc::clone(guard),
        clock: Arc::clone(&env.clock),
        written: Arc::clone(&tier.written),
    };
    let all = partitions.iter();
    let all = all.map(|(id, record)| (*id, record.shard, named(record)));
    match FastIndex::open(place, all) {
        Ok(index) => Some(Arc::new(index)),
        Err(error) => {
            tracing::warn!(%error, "the index in the fast tier cannot be used: it is read in bulk");
            None
        }
    }
}

/// How it is made known that a log file was begun: in a fast tier without asking bulk.
pub(super) fn announcer(env: &Env, meta: &Arc<Meta>, tier: Option<&Arc<OwnedTier>>) -> MakeKnown {
    if let Some(tier) = tier.filter(|owned| owned.tier.parts.log) {
        let (tier, files) = (Arc::clone(tier), Arc::clone(env.log_files()));
        return Box::new(move |generation| tier.note_log_begun(&*files, generation));
    }
    let meta = Arc::clone(meta);
    Box::new(move |generation| meta.log_begun(generation))
}
