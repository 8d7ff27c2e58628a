//! A stream that is looked up once and read many times.
//!
//! Invariants: a handle gives the same as its name, in every snapshot: where the stream it
//! remembers may not be the one that a snapshot sees under the name, the name is looked up. Stream
//! numbers are never used twice.
//! Concurrency: immutable.

use super::single::{ResolvedStream, SingleSnapshot};
use crate::common::ids::{ShardIndex, StreamId, TableId};
use crate::core::Core;
use crate::{Error, Result};
use headwater_types::StreamName;
use std::sync::{Arc, Weak};

/// A stream that was looked up once ([`crate::Snapshot::handle`]), for programs that read the same
/// streams repeatedly: a read with it needs no lookup of the name. Any snapshot accepts it, and
/// gives the same as for the name; it keeps neither data nor the database open.
#[derive(Clone, Debug)]
pub struct StreamHandle {
    name: StreamName,
    database: Weak<Core>,
    pub(super) table: TableId,
    pub(super) stream: StreamId,
    pub(super) shard: ShardIndex,
}

impl SingleSnapshot {
    /// As `Snapshot::handle`.
    pub(super) fn handle(&self, stream: &StreamName) -> Result<StreamHandle> {
        let found = self.find(stream)?;
        Ok(StreamHandle::new(stream.clone(), &self.core, &found))
    }

    /// As `SingleSnapshot::find`, for a stream that was looked up before.
    pub(super) fn find_again(&self, handle: &StreamHandle) -> Result<ResolvedStream<'_>> {
        let table = self.tables.get(handle.table);
        let (Some(table), true) = (table, handle.is_of(&self.core)) else {
            return self.find(handle.name());
        };
        // One that was dropped is still there for older snapshots, and may have a successor for
        // newer ones.
        if self.core.catalog.any_dropped([handle.stream].into_iter()) {
            return self.find(handle.name());
        }
        let Some(seen) = self.shards.get(usize::from(handle.shard.0)) else {
            return Err(Error::internal("a snapshot without one of the shards"));
        };
        Ok(ResolvedStream {
            table,
            stream: handle.stream,
            shard_index: handle.shard,
            shard: self.core.shards.get(handle.shard)?,
            seen,
        })
    }
}

impl StreamHandle {
    pub(super) fn new(
        name: StreamName,
        core: &Arc<Core>,
        found: &ResolvedStream<'_>,
    ) -> StreamHandle {
        StreamHandle {
            name,
            database: Arc::downgrade(core),
            table: found.table.id,
            stream: found.stream,
            shard: found.shard_index,
        }
    }

    /// The stream's name.
    #[must_use]
    pub fn name(&self) -> &StreamName {
        &self.name
    }

    /// True for the database it was looked up in. The weak reference keeps the address from being
    /// used again.
    pub(super) fn is_of(&self, core: &Arc<Core>) -> bool {
        std::ptr::eq(self.database.as_ptr(), Arc::as_ptr(core))
    }
}
