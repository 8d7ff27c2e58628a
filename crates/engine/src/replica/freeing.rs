//! Frees rows that another node is known to have, at the request of embedders.
//!
//! Invariants: only bytes are freed that the caller declares to be elsewhere durably, even if this
//! machine is lost; [`crate::maintenance::jobs::free_partition`] defines the remaining parts.
//! Concurrency: a partition at a time, beside writers and readers. Failure: a partition that could
//! not be freed does not change, and is retried the next time.

use crate::common::ids::{SegmentId, ShardIndex};
use crate::core::{Core, FreedRows};
use crate::maintenance::jobs::{CopiedSegment, free_partition, is_freeable, remove_unread};
use crate::{Database, ErrorKind, Result};
use headwater_types::Timestamp;
use std::collections::BTreeMap;

impl Database {
    /// Frees the rows of partitions that another node has completely: segments, and the number of
    /// bytes of each. Their aggregates stay, at and above the stored buckets, and so do the newest
    /// rows; reads of other rows fail with [`ErrorKind::Elsewhere`]. Frees only partitions that end
    /// before an instant, that need no compaction, and whose rows are not in a named snapshot, at
    /// most `most` of them in one call. Returns the result of this call.
    ///
    /// The caller guarantees that the rows survive elsewhere. This cannot be undone.
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

    /// Partitions of which [`Database::free_rows`] would free rows now: segments of `held`, and the
    /// number of bytes of each, at most `most` of them. For callers that make sure, at some cost,
    /// that the other node still has the rows before they are freed.
    ///
    /// # Errors
    /// `closed`, `io`.
    pub fn freeable_rows(
        &self,
        held: &[(u64, u64)],
        before: Timestamp,
        most: usize,
    ) -> Result<Vec<(u64, u64)>> {
        let core = self.own_core()?;
        core.log.check()?;
        let shards = shards_of(core);
        let mut freeable = Vec::new();
        for (segment, bytes) in held {
            let held = CopiedSegment {
                segment: SegmentId(*segment),
                bytes: *bytes,
            };
            if freeable.len() >= most {
                break;
            }
            let shard = shards.get(&held.segment);
            let is_freeable = shard.map(|shard| is_freeable(core, *shard, held, before));
            match is_freeable.unwrap_or(Ok(false)) {
                Ok(true) => freeable.push((*segment, *bytes)),
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(segment, %error, "the rows of a damaged partition are not freed");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(freeable)
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

/// The shard of each segment.
fn shards_of(core: &Core) -> BTreeMap<SegmentId, ShardIndex> {
    let mut shards = BTreeMap::new();
    for (index, shard) in (0u16..).zip(&core.shards) {
        let state = shard.state.lock();
        let all = state.partitions.all();
        shards.extend(all.map(|p| (p.id(), ShardIndex(index))));
    }
    shards
}
