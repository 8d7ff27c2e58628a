//! A stream that is looked up once and read many times.
//!
//! Invariants: a handle resolves to the same stream as its name, in every snapshot: the name is
//! looked up again where a snapshot may see another stream under it. Stream numbers are never
//! reused. Concurrency: immutable.

use super::added_tags::AddedTags;
use super::single::{ResolvedStream, SingleSnapshot};
use crate::common::ids::{ShardIndex, StreamId, TableId};
use crate::core::Core;
use crate::{Error, Result};
use headwater_types::StreamName;
use std::sync::{Arc, Weak};

/// A stream that was looked up once ([`crate::Snapshot::handle`]), for programs that read the same
/// streams repeatedly: a read with a handle needs no lookup of the name. Any snapshot accepts a
/// handle, with the same results as for the name. A handle pins no data and does not keep the
/// database open.
#[derive(Clone, Debug)]
pub struct StreamHandle {
    name: StreamName,
    database: Weak<Core>,
    pub(super) table: TableId,
    pub(super) stream: StreamId,
    pub(super) shard: ShardIndex,
    /// Tags of its name that its database does not have.
    added: AddedTags,
}

impl SingleSnapshot {
    /// As `Snapshot::handle`.
    pub(super) fn handle(&self, stream: &StreamName) -> Result<StreamHandle> {
        let found = self.find(stream)?;
        Ok(StreamHandle::new(stream.clone(), &self.core, &found))
    }

    /// As `SingleSnapshot::find`, for a stream that was looked up before.
    pub(super) fn find_again(&self, handle: &StreamHandle) -> Result<ResolvedStream<'_>> {
        match self.find_known(handle, &AddedTags::default())? {
            None => self.find(handle.name()),
            Some(found) => Ok(found),
        }
    }

    /// A stream that was looked up in this database when it was shown with these tags added; `None`
    /// where its name must be looked up again.
    pub(super) fn find_known(
        &self,
        handle: &StreamHandle,
        added: &AddedTags,
    ) -> Result<Option<ResolvedStream<'_>>> {
        let table = self.tables.get(handle.table);
        let is_known = handle.is_of(&self.core) && handle.added == *added;
        let (Some(table), true) = (table, is_known) else {
            return Ok(None);
        };
        // A dropped stream still exists for older snapshots, and newer ones may have a successor of
        // it.
        if self.core.catalog.any_dropped([handle.stream].into_iter()) {
            return Ok(None);
        }
        let Some(seen) = self.shards.get(usize::from(handle.shard.0)) else {
            return Err(Error::internal("a snapshot without one of the shards"));
        };
        Ok(Some(ResolvedStream {
            table,
            stream: handle.stream,
            shard_index: handle.shard,
            shard: self.core.shards.get(handle.shard)?,
            snapshot: seen,
        }))
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
            added: AddedTags::default(),
        }
    }

    /// The same stream under the name that it has with these tags added.
    pub(super) fn with_tags(self, name: StreamName, added: &AddedTags) -> StreamHandle {
        let added = added.clone();
        StreamHandle {
            name,
            added,
            ..self
        }
    }

    /// The stream's name.
    #[must_use]
    pub fn name(&self) -> &StreamName {
        &self.name
    }

    /// True for the database that the stream was looked up in. The weak reference prevents reuse of
    /// the address.
    pub(super) fn is_of(&self, core: &Arc<Core>) -> bool {
        std::ptr::eq(self.database.as_ptr(), Arc::as_ptr(core))
    }
}
