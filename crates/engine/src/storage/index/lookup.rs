//! Looks keys up in runs, through bounded caches.
//!
//! Invariants: cache entries stay valid, since files of runs never change and their numbers are not
//! reused while the database is open. Concurrency: caches are shared; no lock is held over I/O.
//! Failure: an unreadable part marks its run as damaged.

use super::cache::{CachedPart, Key};
use super::file::Run;
use super::front::Front;
use super::key::KeyRange;
use super::set::Indexes;
use crate::Result;
use headwater_codec::entries::Entries;
use headwater_types::invariant::{part_of, wide};
use std::cmp::Ordering;
use std::sync::Arc;

/// Maximum number of blocks whose entries are counted; in more blocks they are estimated.
const COUNTED_BLOCKS: usize = 2;

/// Lookups in a run.
pub(crate) struct Lookup<'a> {
    indexes: &'a Indexes,
    run: &'a Run,
    pub(crate) front: Arc<Front>,
}

impl<'a> Lookup<'a> {
    /// `None` when the run cannot be read: its leaves are read instead.
    pub(crate) fn new(indexes: &'a Indexes, run: &'a Run) -> Option<Lookup<'a>> {
        if run.is_damaged() {
            return None;
        }
        let front = front(indexes, run);
        let front = front.inspect_err(|error| run.set_damaged(error)).ok()?;
        Some(Lookup {
            indexes,
            run,
            front,
        })
    }

    /// True when a lookup in this run does not have to load its front.
    pub(crate) fn is_at_hand(indexes: &Indexes, run: &Run) -> bool {
        indexes.caches.get(&Key::Front(run.number)).is_some()
    }

    /// True when the rows of a range are cached.
    pub(crate) fn has_rows(&self, range: &KeyRange) -> bool {
        let key = Key::Rows(self.run.number, range.clone());
        self.indexes.caches.get(&key).is_some()
    }

    /// Approximate number of entries in a range. `None` when the run cannot be read.
    pub(crate) fn estimate(&self, range: &KeyRange) -> Option<u64> {
        let blocks = self.front.blocks_of(|key| range.position(key));
        if blocks.len() <= COUNTED_BLOCKS {
            return Some(wide(self.rows(range)?.len()));
        }
        let inside = part_of(&self.front.blocks, blocks, "blocks of an index");
        Some(inside.iter().map(|block| u64::from(block.entries)).sum())
    }

    /// The numbers of the rows whose keys are in a range, sorted. `None` when the run cannot be
    /// read.
    pub(crate) fn rows(&self, range: &KeyRange) -> Option<Arc<Vec<u32>>> {
        let key = Key::Rows(self.run.number, range.clone());
        if let Some(CachedPart::Rows(rows)) = self.indexes.caches.get(&key) {
            return Some(rows);
        }
        let mut rows = Vec::new();
        for at in self.front.blocks_of(|key| range.position(key)) {
            let entries = self.block(at)?;
            for (key, own) in entries.keys() {
                if range.position(key) == Ordering::Equal {
                    rows.extend_from_slice(own);
                }
            }
        }
        rows.sort_unstable();
        let rows = Arc::new(rows);
        let cached = CachedPart::Rows(Arc::clone(&rows));
        self.indexes.caches.insert(key, cached);
        Some(rows)
    }

    /// A block of the run. `None` when it cannot be read.
    fn block(&self, at: usize) -> Option<Arc<Entries>> {
        let place = self.front.blocks.get(at)?;
        let key = Key::Block(self.run.number, place.offset);
        if let Some(CachedPart::Block(entries)) = self.indexes.caches.get(&key) {
            return Some(entries);
        }
        let entries = self.run.block(place);
        let entries = entries
            .inspect_err(|error| self.run.set_damaged(error))
            .ok()?;
        let entries = Arc::new(entries);
        let cached = CachedPart::Block(Arc::clone(&entries));
        self.indexes.caches.insert(key, cached);
        Some(entries)
    }
}

fn front(indexes: &Indexes, run: &Run) -> Result<Arc<Front>> {
    let key = Key::Front(run.number);
    if let Some(CachedPart::Front(front)) = indexes.caches.get(&key) {
        return Ok(front);
    }
    let front = Arc::new(run.front()?);
    let cached = CachedPart::Front(Arc::clone(&front));
    indexes.caches.insert(key, cached);
    Ok(front)
}
