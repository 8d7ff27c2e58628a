//! Former partitions, from before their rows were freed, as long as they have readers.
//!
//! Invariants: the rows of a segment exist until the last of its partitions that had them has no
//! reader any more. Concurrency: one lock; no other is taken under it, and it is never held over
//! I/O.

use super::Core;
use crate::Result;
use crate::common::ids::SegmentId;
use crate::storage::segment::Partition;
use headwater_types::ByteRange;
use parking_lot::Mutex;
use std::sync::Arc;

/// Statistics of freed rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreedRows {
    /// Partitions whose rows are elsewhere.
    pub partitions: u64,
    /// Number of their bytes that were freed here.
    pub bytes: u64,
}

/// Partitions that had their rows.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    before: Mutex<Vec<Arc<Partition>>>,
}

impl Freed {
    /// Notes that the rows of a partition were freed; the argument is its state before.
    pub(crate) fn wait_for(&self, before: Arc<Partition>) {
        self.before.lock().push(before);
    }

    /// Removes partitions without readers, and returns their segments.
    pub(crate) fn unread(&self) -> Vec<SegmentId> {
        let mut before = self.before.lock();
        let is_read = |partition: &Arc<Partition>| Arc::strong_count(partition) > 1;
        let unread = before.iter().filter(|partition| !is_read(partition));
        let unread = unread.map(|partition| partition.id()).collect();
        before.retain(is_read);
        unread
    }
}

impl Core {
    /// Statistics of the rows freed in the present partitions.
    pub(crate) fn freed_rows(&self) -> Result<FreedRows> {
        let mut freed = FreedRows::default();
        let stubs = self.store.stubs();
        if !stubs.has_freed() {
            return Ok(freed);
        }
        for shard in &self.shards {
            let partitions = Arc::clone(&shard.state.lock().partitions);
            let own = partitions.all().filter(|p| stubs.is_freed(p.id()));
            for partition in own.filter(|p| p.unreadable.is_none()) {
                let all = ByteRange::new(0, u64::MAX);
                let gone = self.store.freed_of(partition.id(), all)?;
                freed.partitions += 1;
                freed.bytes += gone.iter().map(|range| range.len()).sum::<u64>();
            }
        }
        Ok(freed)
    }
}
