//! Cache of runs between lookups: fronts, blocks, and the rows of matches.
//!
//! Invariants: entries stay valid, since files of runs never change and their numbers are not
//! reused while the database is open. Concurrency: shared by all readers.

use super::front::Front;
use super::key::KeyRange;
use headwater_codec::entries::Entries;
use headwater_types::invariant::wide;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Approximate number of entries that fit into a cache.
const ITEMS: usize = 64;

/// Key of a cached part of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Front(u64),
    Block(u64, u64),
    Rows(u64, KeyRange),
}

#[derive(Clone)]
pub(super) enum CachedPart {
    Front(Arc<Front>),
    Block(Arc<Entries>),
    Rows(Arc<Vec<u32>>),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, CachedPart> for Weight {
    fn weight(&self, _: &Key, cached: &CachedPart) -> u64 {
        256 + match cached {
            CachedPart::Front(front) => front.weight(),
            CachedPart::Block(entries) => wide(entries.heap_bytes()),
            CachedPart::Rows(rows) => wide(rows.len() * size_of::<u32>()),
        }
    }
}

/// A cache of bounded size.
pub(super) struct Caches(Cache<Key, CachedPart, Weight>);

impl Caches {
    pub(super) fn new(bytes: usize) -> Caches {
        Caches(Cache::with_weighter(ITEMS, wide(bytes), Weight))
    }

    pub(super) fn get(&self, key: &Key) -> Option<CachedPart> {
        self.0.get(key)
    }

    pub(super) fn insert(&self, key: Key, cached: CachedPart) {
        self.0.insert(key, cached);
    }
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}
