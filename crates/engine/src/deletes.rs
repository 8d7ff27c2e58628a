//! What users end: events in a range, streams, tables.

use crate::catalog::{StreamRecord, Table, decode_stream_key, stream_key};
use crate::core::Core;
use crate::ids::{Sequence, StreamId};
use crate::log::RecordKind;
use crate::tombstone::DeleteRecord;
use crate::{Error, Result};
use headwater_types::{ClosedRange, StreamName};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// More deletes than this waiting to be carried out are carried out by whoever adds one.
const WAITING_MAX: usize = 256;

/// Which events to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteSpec {
    /// The table.
    pub table: String,
    /// Tags that the streams must have; none = every stream of the table.
    pub tags: Vec<(String, String)>,
    /// The instants to clear, both ends included.
    pub range: ClosedRange,
}

impl Core {
    fn live_table(&self, name: &str) -> Result<Arc<Table>> {
        self.catalog
            .table_named(name)
            .ok_or_else(|| Error::not_found(format!("no table `{name}`")))
    }

    /// The streams of a table with these tags, by number.
    fn streams_with(&self, table: &Table, tags: &[(String, String)]) -> Result<Vec<StreamRecord>> {
        let mut out = Vec::new();
        for record in self.catalog.streams_of(&*self.meta, table.id, None)? {
            let name = decode_stream_key(&table.name, &record.key)
                .map_err(|e| Error::decode(self.meta.path(), 0, e))?;
            if tags.iter().all(|(key, value)| name.tag(key) == Some(value)) {
                out.push(record);
            }
        }
        out.sort_by_key(|r| r.id);
        Ok(out)
    }

    /// Deletes the events of a range. Gives the number of streams concerned.
    pub(crate) fn delete(&self, spec: &DeleteSpec) -> Result<u64> {
        self.log.check()?;
        if spec.range.is_empty() {
            return Err(Error::invalid(
                "a delete needs a range whose end is not before its start",
            ));
        }
        let table = self.live_table(&spec.table)?;
        let (streams, count) = if spec.tags.is_empty() {
            (None, self.catalog.stream_count(table.id))
        } else {
            let found = self.streams_with(&table, &spec.tags)?;
            let count = found.len() as u64;
            (Some(found.iter().map(|r| r.id).collect()), count)
        };
        if count == 0 {
            return Ok(0);
        }
        self.delete_from(&table, streams, spec.range)?;
        Ok(count)
    }

    /// Deletes the events of a range of these streams and of no others. Gives the number of those that exist.
    pub(crate) fn delete_streams(
        &self,
        table: &str,
        streams: &[StreamName],
        range: ClosedRange,
    ) -> Result<u64> {
        self.log.check()?;
        if range.is_empty() {
            return Err(Error::invalid(
                "a delete needs a range whose end is not before its start",
            ));
        }
        let table = self.live_table(table)?;
        let mut ids = Vec::with_capacity(streams.len());
        let mut key = Vec::new();
        for stream in streams {
            if stream.table() != table.name {
                return Err(Error::invalid(format!(
                    "stream `{stream}` is not of table `{}`",
                    table.name
                )));
            }
            stream_key(table.id, stream.tags(), &mut key);
            ids.extend(self.catalog.find_stream(&*self.meta, &key)?);
        }
        ids.sort_unstable();
        ids.dedup();
        let count = ids.len() as u64;
        if count > 0 {
            self.delete_from(&table, Some(ids.into()), range)?;
        }
        Ok(count)
    }

    fn delete_from(
        &self,
        table: &Table,
        streams: Option<Arc<[StreamId]>>,
        range: ClosedRange,
    ) -> Result<()> {
        let record = DeleteRecord {
            table: table.id,
            streams,
            range,
            drops_streams: false,
        };
        let sequence = {
            let _door = self.door.write();
            let sequence = self
                .log
                .enqueue(RecordKind::Delete, record.encode(), true)?;
            self.bury(&record, sequence);
            sequence
        };
        self.finish_delete(sequence)
    }

    /// Drops the streams of a table that have these tags, with all their events. Gives their number.
    pub(crate) fn drop_streams(&self, table: &str, tags: &[(String, String)]) -> Result<u64> {
        self.log.check()?;
        if tags.is_empty() {
            return Err(Error::invalid(
                "name at least one tag of the streams to drop, or drop the table",
            ));
        }
        let table = self.live_table(table)?;
        let found = self.streams_with(&table, tags)?;
        if found.is_empty() {
            return Ok(0);
        }
        let count = found.len() as u64;
        let record = DeleteRecord {
            table: table.id,
            streams: Some(found.iter().map(|r| r.id).collect()),
            range: ClosedRange::ALL,
            drops_streams: true,
        };
        let sequence = {
            let _door = self.door.write();
            // Readers that come later must not find the streams before they know that they are gone, and the other way round.
            let sequence = self.catalog.drop_streams(found, || {
                self.log.enqueue(RecordKind::Delete, record.encode(), true)
            })?;
            self.bury(&record, sequence);
            sequence
        };
        self.finish_delete(sequence)?;
        Ok(count)
    }

    /// Drops a table with everything in it.
    pub(crate) fn drop_table(&self, name: &str) -> Result<()> {
        self.log.check()?;
        let sequence = {
            let _door = self.door.write();
            let change = |_, old: Option<&Table>| {
                let mut table = old
                    .cloned()
                    .ok_or_else(|| Error::not_found(format!("no table `{name}`")))?;
                table.life.dropped = true;
                Ok(table)
            };
            let defined = self
                .catalog
                .define_table(name, change, |t| self.log_table(t))?;
            for shard in &self.shards {
                shard.state.lock().ending = true;
            }
            defined.1
        };
        self.finish_delete(sequence.unwrap_or_default())
    }

    /// Puts a delete before every shard; then its record may be published.
    fn bury(&self, record: &DeleteRecord, sequence: Sequence) {
        let tombstone = record.tombstone(sequence);
        for shard in &self.shards {
            shard.state.lock().add_tombstone(&tombstone);
        }
        self.deletes.fetch_add(1, Ordering::Release);
        self.log.inserted(sequence);
    }

    /// Waits for the acknowledgement of a delete, and sees to it that it is carried out.
    fn finish_delete(&self, sequence: Sequence) -> Result<()> {
        self.log.wait_published(sequence)?;
        let waiting = |core: &Core| {
            core.shards
                .iter()
                .any(|s| s.state.lock().tombstones.len() > WAITING_MAX)
        };
        if !self.work.threads.load(Ordering::Acquire) || waiting(self) {
            if let Err(error) = self.sweep_all() {
                tracing::warn!(%error, "carrying out a delete failed; it is in force and will be tried again");
            }
        } else {
            let _held = self.work.lock.lock();
            self.work.wanted.notify_all();
        }
        Ok(())
    }
}
