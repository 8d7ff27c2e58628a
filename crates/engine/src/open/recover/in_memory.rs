//! Metadata in memory, of a database that is made from a state: a copy, or a state of the past.

use crate::Result;
use crate::common::error::Error;
use crate::common::ids::{SegmentId, Sequence};
use crate::metadata::catalog::{Definition, StreamRecord, Table};
use crate::metadata::tables::{Meta, MetaChange, PartitionRecord};
use headwater_io::{Files, MemoryFiles, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Contents of the metadata of such a database.
pub(crate) struct MetaInMemory {
    pub(crate) identity: u64,
    pub(crate) shards: u16,
    /// Sequence of the newest record of the state.
    pub(crate) at: Sequence,
    pub(crate) tables: Vec<Arc<Table>>,
    /// By number.
    pub(crate) streams: Vec<StreamRecord>,
    /// By number.
    pub(crate) partitions: Vec<(SegmentId, PartitionRecord)>,
}

impl MetaInMemory {
    /// Makes the metadata, as if their file were at this path.
    pub(crate) fn make(self, path: &Path) -> Result<Meta> {
        let files = MemoryFiles::new();
        // The path only names the database in errors; no file is stored there.
        let own = Path::new("/meta.redb");
        let file = files
            .open(own, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", path, e))?;
        let meta = Meta::create(path, file, self.shards, self.identity)?;
        let newest = self.streams.last().map(|record| record.id);
        let last = self.partitions.last().map(|(id, _)| *id);
        let tables = self.tables.into_iter().map(Definition::Table);
        let streams = self.streams.into_iter().map(Arc::new);
        let definitions = tables.chain(streams.map(Definition::Stream));
        meta.commit(&MetaChange {
            step_sequence: self.at,
            definitions: definitions.map(|d| (self.at, d)).collect(),
            next_stream: newest.map_or(0, |id| id.0.saturating_add(1)),
            next_segment: last.map_or(1, |id| id.0.saturating_add(1)),
            partitions: self.partitions,
            ..MetaChange::default()
        })?;
        Ok(meta)
    }
}
