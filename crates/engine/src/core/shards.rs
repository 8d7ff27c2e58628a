//! The shards of an open database, and the assignment of streams to them.
//!
//! Invariants: their number is fixed when a database is made, and the shard of a stream with it.
//! Concurrency: sums over shards lock one after the other; they are not consistent at one instant.

use crate::common::ids::{Sequence, ShardIndex};
use crate::core::shard::Shard;
use crate::{Error, Result};
use std::hash::Hasher;
use std::ops::Deref;

#[derive(Debug)]
pub(crate) struct Shards(Box<[Shard]>);

impl Deref for Shards {
    type Target = [Shard];

    fn deref(&self) -> &[Shard] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Shards {
    type Item = &'a Shard;
    type IntoIter = std::slice::Iter<'a, Shard>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Memory of events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventsInMemory {
    pub(crate) bytes: usize,
    pub(crate) events: usize,
}

/// Memory of events that only older snapshots see.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PinnedBytes {
    /// Bytes of chunks in memory.
    pub(crate) chunks: usize,
    /// Bytes of these, and of the entries of all pinned chunks, including chunks in files.
    pub(crate) all: usize,
}

impl Shards {
    pub(crate) fn new(shards: Vec<Shard>) -> Shards {
        Shards(shards.into())
    }

    pub(crate) fn get(&self, index: ShardIndex) -> Result<&Shard> {
        self.0
            .get(usize::from(index.0))
            .ok_or_else(|| Error::internal(format!("shard {} of {}", index.0, self.0.len())))
    }

    /// The shard a stream belongs to, by its key bytes. Fixed for the lifetime of the database.
    pub(crate) fn of_key(&self, key: &[u8]) -> ShardIndex {
        shard_number(key, self.0.len())
    }

    /// All shards, by number.
    pub(crate) fn indices(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..u16::try_from(self.0.len()).unwrap_or(u16::MAX)).map(ShardIndex)
    }

    pub(crate) fn events_in_memory(&self) -> EventsInMemory {
        let mut sum = EventsInMemory::default();
        for shard in self {
            let state = shard.state.lock();
            sum.bytes += state.bytes;
            sum.events += state.flank_events + state.late_events;
        }
        sum
    }

    pub(crate) fn pinned_bytes(&self) -> PinnedBytes {
        let mut sum = PinnedBytes::default();
        for shard in self {
            let state = shard.state.lock();
            sum.chunks += state.pinned_rows();
            sum.all += state.pinned_bytes();
        }
        sum
    }

    /// The oldest sequence of an event that is not stored, or of a delete that is not carried out.
    pub(crate) fn first_unstored(&self) -> Option<Sequence> {
        let in_memory = self
            .iter()
            .filter_map(|s| s.state.lock().first_sequence())
            .min();
        let deletes = self
            .iter()
            .filter_map(|s| s.state.lock().tombstones.first().map(|t| t.sequence))
            .min();
        let parked = self
            .iter()
            .filter_map(|s| s.state.lock().parked.first)
            .min();
        [in_memory, parked, deletes].into_iter().flatten().min()
    }

    /// Bytes of segments up to their committed lengths.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let of_shard = |shard: &Shard| {
            let state = shard.state.lock();
            let sizes = state.partitions.all().map(|p| p.record.committed_bytes);
            sizes.sum::<u64>()
        };
        self.iter().map(of_shard).sum()
    }

    /// Notes that rows of any table may have ended: each shard's next job checks.
    pub(crate) fn note_ending(&self) {
        for shard in self {
            shard.state.lock().ending = true;
        }
    }
}

/// The shard of a stream in a database with this number of shards.
pub(crate) fn shard_number(key: &[u8], shards: usize) -> ShardIndex {
    ShardIndex((key_hash(key) % shards.max(1) as u64) as u16)
}

/// FNV-1a with a final mix: the same on every machine and in every version.
fn key_hash(key: &[u8]) -> u64 {
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            let mut x = self.0;
            x ^= x >> 33;
            x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
            x ^ (x >> 33)
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_shard_hash_never_changes() {
        assert_eq!(super::key_hash(b""), 17058014651485797458);
        assert_eq!(
            super::key_hash(b"\0\0\0\0\x07station\x03EWR"),
            598710967963814304
        );
    }
}
