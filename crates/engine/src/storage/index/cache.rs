//! What is kept of runs between lookups: fronts, blocks, and the rows that were found.
//!
//! Invariants: nothing kept becomes untrue, since files of runs never change and their numbers are
//! not used twice while the database is open.
//! Concurrency: shared by all readers.

use super::front::Front;
use super::key::KeyRange;
use headwater_codec::entries::Entries;
use headwater_types::invariant::wide;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Things that a cache has room for, about.
const ITEMS: usize = 64;

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Front(u64),
    Block(u64, u64),
    Rows(u64, KeyRange),
}

#[derive(Clone)]
pub(super) enum Kept {
    Front(Arc<Front>),
    Block(Arc<Entries>),
    Rows(Arc<Vec<u32>>),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Kept> for Weight {
    fn weight(&self, _: &Key, kept: &Kept) -> u64 {
        256 + match kept {
            Kept::Front(front) => front.weight(),
            Kept::Block(entries) => wide(entries.heap_bytes()),
            Kept::Rows(rows) => wide(rows.len() * size_of::<u32>()),
        }
    }
}

/// A cache of bounded size.
pub(super) struct Caches(Cache<Key, Kept, Weight>);

impl Caches {
    pub(super) fn new(bytes: usize) -> Caches {
        Caches(Cache::with_weighter(ITEMS, wide(bytes), Weight))
    }

    pub(super) fn get(&self, key: &Key) -> Option<Kept> {
        self.0.get(key)
    }

    pub(super) fn insert(&self, key: Key, kept: Kept) {
        self.0.insert(key, kept);
    }
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}
