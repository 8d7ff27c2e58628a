//! Tiles of a node, as a dispatcher knows them: a filter for most tiles, and exact keys for the
//! newest.
//!
//! Invariants: a reported tile is found until the node removes it. Keys are divided into shards by
//! their highest bits, and each shard is replaced as a whole. Concurrency: plain data.

use crate::dispatch::filter::Filter;
use crate::dispatch::inventory::{FilterChange, ShardChange};
use crate::dispatch::keys::{SHARD_BITS_MAX, TileKey};

/// Shards with fewer keys have no filter: their keys are listed exactly, 8 bytes each.
pub const EXACT_MAX: usize = 8_192;

/// The shard of a key.
pub(crate) fn shard_of(key: TileKey, bits: u8) -> usize {
    let high = key.0.checked_shr(64 - u32::from(bits)).unwrap_or(0);
    usize::try_from(high).unwrap_or(0)
}

/// A part of the tiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shard {
    filter: Option<Filter>,
    /// Keys outside of the filter, sorted.
    exact: Vec<TileKey>,
}

/// Tiles of a node below the levels at which it is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TileSet {
    bits: u8,
    shards: Vec<Shard>,
}

impl TileSet {
    /// True when a tile is present, and for at most a hundredth of the others.
    #[must_use]
    pub fn contains(&self, key: TileKey) -> bool {
        self.shards
            .get(shard_of(key, self.bits))
            .is_some_and(|shard| {
                shard.exact.binary_search(&key).is_ok()
                    || shard
                        .filter
                        .as_ref()
                        .is_some_and(|filter| filter.contains(key))
            })
    }

    /// Number of reported tiles.
    #[must_use]
    pub fn len(&self) -> u64 {
        let counts = self.shards.iter().map(|shard| {
            let exact = u64::try_from(shard.exact.len()).unwrap_or(u64::MAX);
            shard.filter.as_ref().map_or(0, Filter::keys) + exact
        });
        counts.sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Total size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let shards = self.shards.iter();
        let bytes = shards.map(|s| s.filter.as_ref().map_or(0, Filter::bytes) + 8 * s.exact.len());
        bytes.sum()
    }

    /// Applies the changes of a report. False if they do not fit the known state; none is applied
    /// then.
    pub(crate) fn change(&mut self, bits: u8, changes: Vec<ShardChange>) -> bool {
        let count = 1usize << bits.min(SHARD_BITS_MAX);
        let is_anew = bits != self.bits || self.shards.len() != count;
        let fits = |change: &ShardChange| {
            change.index < count && !(is_anew && change.filter == FilterChange::Unchanged)
        };
        if !changes.iter().all(fits) {
            return false;
        }
        if is_anew {
            self.bits = bits.min(SHARD_BITS_MAX);
            self.shards = vec![Shard::default(); count];
        }
        for change in changes {
            if let Some(shard) = self.shards.get_mut(change.index) {
                match change.filter {
                    FilterChange::Unchanged => {}
                    FilterChange::None => shard.filter = None,
                    FilterChange::Replaced(filter) => shard.filter = Some(filter),
                }
                shard.exact = change.exact;
            }
        }
        true
    }
}
