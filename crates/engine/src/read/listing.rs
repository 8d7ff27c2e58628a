//! Lists the streams of a table a page at a time: by number, ready to be read, or by the values of
//! their tags.
//!
//! Invariants: a snapshot lists the streams that it finds by name: including streams dropped after
//! it, and excluding streams dropped before it. By number, streams have the order of segments: a
//! reader of all of them goes through each page of a segment once. Concurrency: no state is pinned
//! between two pages.

use super::handle::StreamHandle;
use super::single::SingleSnapshot;
use crate::Result;
use crate::common::ids::StreamId;
use crate::metadata::catalog::{TagFilter, decode_stream_key};
use headwater_types::StreamName;

/// Some streams of a table, looked up.
#[derive(Clone, Debug, Default)]
pub struct HandlePage {
    /// In the order in which the streams were created.
    pub streams: Vec<StreamHandle>,
    /// Start of the next page; `None` at the end of the table.
    pub next: Option<PageStart>,
}

/// Start of a page of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStart {
    /// Number of the part, of several databases.
    pub(super) part: u32,
    stream: StreamId,
}

impl PageStart {
    /// The same position in part `part`.
    pub(super) fn in_part(self, part: u32) -> PageStart {
        PageStart { part, ..self }
    }
}

impl SingleSnapshot {
    /// As `Snapshot::handles_from`.
    pub(super) fn handles_from(
        &self,
        table: &str,
        start: PageStart,
        limit: usize,
    ) -> Result<HandlePage> {
        let core = self.core();
        let table = self.table(table)?;
        let (catalog, meta) = (&core.catalog, &*core.meta);
        let (records, next) =
            catalog.streams_by_number(meta, table.id, start.stream, limit, self.at())?;
        let mut streams = Vec::with_capacity(records.len());
        for record in records {
            let name = decode_stream_key(&table.name, &record.key)
                .map_err(|e| crate::Error::decode(core.meta.path(), 0, e))?;
            let found = self.resolved(table, core.shards.of_key(&record.key), record.id)?;
            streams.push(StreamHandle::new(name, core, &found));
        }
        Ok(HandlePage {
            streams,
            next: next.map(|stream| PageStart { part: 0, stream }),
        })
    }

    /// As `Snapshot::streams_having`.
    pub(super) fn streams_having(
        &self,
        table: &str,
        wanted: &[(String, Vec<String>)],
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<StreamName>> {
        let mut streams = Vec::new();
        let table = self.table(table)?;
        let having = TagFilter::new(wanted);
        self.each_key_after(table, after, &having, limit, &mut |key| {
            streams.push(decode_stream_key(&table.name, key)?);
            Ok(())
        })?;
        Ok(streams)
    }
}
