//! Frees rows that another node has for sure, at the request of embedders.
//!
//! Invariants: nothing is freed but what the caller says to be elsewhere, byte by byte and whatever
//! happens to this machine; [`crate::maintenance::jobs::free_partition`] defines what stays.
//! Concurrency: a partition at a time, beside writers and readers.
//! Failure: a partition that could not be freed stays as it is, and is tried again the next time.

use crate::common::ids::{SegmentId, ShardIndex};
use crate::core::{Core, FreedRows};
use crate::maintenance::jobs::{CopiedSegment, free_partition, remove_unread};
use crate::{Database, ErrorKind, Result};
use headwater_types::Timestamp;
use std::collections::BTreeMap;

impl Database {
    /// Frees the rows of partitions that another node has completely: segments, and the number of
    /// bytes of each. Their aggregates stay, at and above the stored buckets, and so do the newest
    /// rows; reads of other rows fail with [`ErrorKind::Elsewhere`]. Only partitions are freed that
    /// end before an instant, that need no compaction, and of which no named snapshot has the rows,
    /// and `most` of them at once. Returns what was freed now.
    ///
    /// The caller guarantees that the rows survive elsewhere. There is no way back.
    ///
    /// # Errors
    /// `closed`, `corrupt`, `full` and `io`: rows freed before stay freed.
    pub fn free_rows(
        &self,
        held: &[(u64, u64)],
        before: Timestamp,
        most: u64,
    ) -> Result<FreedRows> {
        let core = self.own_core()?;
        core.log.check()?;
        remove_unread(core);
        let shards = shards_of(core);
        let mut freed = FreedRows::default();
        for (segment, bytes) in held {
            let held = CopiedSegment {
                segment: SegmentId(*segment),
                bytes: *bytes,
            };
            if freed.partitions >= most {
                break;
            }
            let is_claimed = core.store.stubs().is_claimed(held.segment);
            let shard = shards.get(&held.segment).filter(|_| !is_claimed);
            let bytes = shard.map_or(Ok(0), |shard| free_partition(core, *shard, held, before));
            match bytes {
                Ok(0) => {}
                Ok(bytes) => {
                    freed.partitions += 1;
                    freed.bytes = freed.bytes.saturating_add(bytes);
                }
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(segment, %error, "the rows of a damaged partition are not freed");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(freed)
    }

    /// The current time for the end of data: no later than the clock of the machine, where that is
    /// not trusted.
    #[must_use]
    pub fn believed_now(&self) -> Timestamp {
        self.core().moment().believed()
    }

    /// The freed rows of the current partitions.
    ///
    /// # Errors
    /// `corrupt`, `io`.
    pub fn freed_rows(&self) -> Result<FreedRows> {
        self.core().freed_rows()
    }
}

/// In which shard each segment is.
fn shards_of(core: &Core) -> BTreeMap<SegmentId, ShardIndex> {
    let mut shards = BTreeMap::new();
    for (index, shard) in (0u16..).zip(&core.shards) {
        let state = shard.state.lock();
        let all = state.partitions.all();
        shards.extend(all.map(|p| (p.id(), ShardIndex(index))));
    }
    shards
}
