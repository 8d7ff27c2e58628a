//! Frees rows that nobody else is known to have, for edges that prefer new rows to old ones on a
//! full disk.
//!
//! Invariants: the newest partition of each table and shard stays. Lost rows are recorded in the
//! transaction that frees them, so that no restart or backup forgets the loss; reads of them fail
//! as reads of freed rows do, and aggregates stay. Concurrency: as freeing, a partition at a time.
//! Failure: as freeing; the space for the remaining parts comes from the reserve.

use crate::common::ids::ShardIndex;
use crate::core::Core;
use crate::maintenance::jobs::{CopiedSegment, lose_partition, remove_unread};
use crate::metadata::LostRows;
use crate::storage::segment::Partition;
use crate::{Database, ErrorKind, Result};
use headwater_types::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Database {
    /// Fails with [`ErrorKind::Full`] while a disk is full, so that writes are refused.
    ///
    /// # Errors
    /// `full`, `io`, `closed`.
    pub fn check_space(&self) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        core.check_space()
    }

    /// Frees the rows of the oldest partition that may be freed, though nobody is known to have
    /// them: call [`Database::free_rows`] first. Their aggregates stay, at and above the stored
    /// buckets; reads of the rows fail with [`ErrorKind::Elsewhere`]. Returns what was lost by this
    /// call: nothing if no partition may be freed.
    ///
    /// This cannot be undone.
    ///
    /// # Errors
    /// `closed`, `corrupt`, `full` and `io`.
    pub fn lose_oldest_rows(&self) -> Result<LostRows> {
        let core = self.own_core()?;
        core.log.check()?;
        remove_unread(core);
        // What stays of a partition needs space, too: where there is not enough, a smaller one may
        // do.
        let mut full = None;
        for (shard, partition) in oldest_first(core) {
            let held = CopiedSegment {
                segment: partition.id(),
                bytes: partition.record.committed_bytes,
            };
            match lose_partition(core, shard, held) {
                Ok(lost) if lost.partitions == 0 => {}
                Ok(lost) => {
                    remove_unread(core);
                    return Ok(lost);
                }
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(segment = held.segment.0, %error, "the rows of a damaged partition are not freed");
                }
                Err(error) if error.kind() == ErrorKind::Full => full = Some(error),
                Err(error) => return Err(error),
            }
        }
        full.map_or(Ok(LostRows::default()), Err)
    }

    /// All rows that [`Database::lose_oldest_rows`] has freed since the database was created.
    ///
    /// # Errors
    /// `corrupt`, `io`.
    pub fn lost_rows(&self) -> Result<LostRows> {
        self.core().meta.lost_rows()
    }
}

/// Partitions by the ends of their spans, without the newest of each table in a shard.
fn oldest_first(core: &Core) -> Vec<(ShardIndex, Arc<Partition>)> {
    let mut found = Vec::new();
    for (index, shard) in (0u16..).zip(&core.shards) {
        let partitions = Arc::clone(&shard.state.lock().partitions);
        let mut newest: BTreeMap<_, Timestamp> = BTreeMap::new();
        for partition in partitions.all() {
            let last = newest
                .entry(partition.record.table)
                .or_insert(Timestamp::MIN);
            *last = (*last).max(partition.span().last);
        }
        let old = partitions.all().filter(|partition| {
            let last = newest.get(&partition.record.table);
            last.is_some_and(|last| partition.span().last < *last)
        });
        found.extend(old.map(|partition| (ShardIndex(index), Arc::clone(partition))));
    }
    found.sort_by_key(|(_, partition)| (partition.span().last, partition.id()));
    found
}
