//! Deletes by users: events in a range, streams, tables.

use crate::common::ids::{Sequence, StreamId};
use crate::core::Core;
use crate::maintenance::flush::{give_back_if_full, sweep_all};
use crate::maintenance::jobs::refuse_parts_of_freed;
use crate::metadata::catalog::{StreamRecord, Table, decode_stream_key, stream_key};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::RecordKind;
use crate::{Error, Result};
use headwater_types::{ClosedRange, StreamName};
use std::collections::HashSet;
use std::sync::Arc;

/// Number of pending deletes above which the thread that adds one carries them out.
const WAITING_MAX: usize = 256;

/// Which events to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteSpec {
    /// The table.
    pub table: String,
    /// Tags that the streams must have; empty = every stream of the table.
    pub tags: Vec<(String, String)>,
    /// The instants to clear, both ends included.
    pub range: ClosedRange,
}

fn live_table(core: &Core, name: &str) -> Result<Arc<Table>> {
    core.catalog
        .table_named(name)
        .ok_or_else(|| Error::not_found(format!("no table `{name}`")))
}

/// The streams of a table with these tags, by number.
fn streams_with(
    core: &Core,
    table: &Table,
    tags: &[(String, String)],
) -> Result<Vec<StreamRecord>> {
    let has = |name: &StreamName| tags.iter().all(|(key, value)| name.tag(key) == Some(value));
    streams_where(core, table, &has)
}

/// The matching streams of a table, by number.
fn streams_where(
    core: &Core,
    table: &Table,
    is_wanted: &dyn Fn(&StreamName) -> bool,
) -> Result<Vec<StreamRecord>> {
    let mut out = Vec::new();
    for record in core.catalog.streams_of(&*core.meta, table.id, None)? {
        let name = decode_stream_key(&table.name, &record.key)
            .map_err(|e| Error::decode(core.meta.path(), 0, e))?;
        if is_wanted(&name) {
            out.push(record);
        }
    }
    out.sort_by_key(|r| r.id);
    Ok(out)
}

/// Deletes the events of a range. Returns the number of streams concerned.
pub(crate) fn delete(core: &Core, spec: &DeleteSpec) -> Result<u64> {
    core.log.check()?;
    if spec.range.is_empty() {
        return Err(Error::invalid(
            "the range of a delete must not end before it starts",
        ));
    }
    let table = live_table(core, &spec.table)?;
    let (streams, count) = if spec.tags.is_empty() {
        (None, core.catalog.stream_count(table.id))
    } else {
        let found = streams_with(core, &table, &spec.tags)?;
        let count = found.len() as u64;
        (Some(found.iter().map(|r| r.id).collect()), count)
    };
    if count == 0 {
        return Ok(0);
    }
    delete_from(core, &table, streams, spec.range)?;
    Ok(count)
}

/// Deletes the events of a range of exactly these streams. Returns the number of existing streams.
pub(crate) fn delete_streams(
    core: &Core,
    table: &str,
    streams: &[StreamName],
    range: ClosedRange,
) -> Result<u64> {
    core.log.check()?;
    if range.is_empty() {
        return Err(Error::invalid(
            "the range of a delete must not end before it starts",
        ));
    }
    let table = live_table(core, table)?;
    let mut ids = Vec::with_capacity(streams.len());
    let mut key = Vec::new();
    for stream in streams {
        if stream.table() != table.name {
            return Err(Error::invalid(format!(
                "stream `{stream}` does not belong to table `{}`",
                table.name
            )));
        }
        stream_key(table.id, stream.tags(), &mut key);
        ids.extend(core.catalog.find_stream(&*core.meta, &key)?);
    }
    ids.sort_unstable();
    ids.dedup();
    let count = ids.len() as u64;
    if count > 0 {
        delete_from(core, &table, Some(ids.into()), range)?;
    }
    Ok(count)
}

fn delete_from(
    core: &Core,
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
    let sequence = loop {
        let streams = record.streams.as_deref();
        let claims = refuse_parts_of_freed(core, table, streams, range)?;
        let _latch = core.log.latch_on_panic("applied a delete to the shards");
        let _barrier = core.write_barrier.close();
        if core.store.stubs().claims() != claims {
            // More rows were freed meanwhile.
            continue;
        }
        let sequence = core
            .log
            .enqueue(RecordKind::Delete, record.encode(), true)?;
        bury(core, &record, sequence);
        break sequence;
    };
    finish_delete(core, sequence)
}

/// Drops the streams of a table that have these tags, with all their events. Returns the number of
/// dropped streams.
pub(crate) fn drop_streams(core: &Core, table: &str, tags: &[(String, String)]) -> Result<u64> {
    core.log.check()?;
    if tags.is_empty() {
        return Err(Error::invalid(
            "specify at least one tag of the streams to drop, or drop the table",
        ));
    }
    let table = live_table(core, table)?;
    let found = streams_with(core, &table, tags)?;
    drop_found(core, &table, found)
}

/// Drops exactly these streams of a table, with all their events. Returns the number of existing
/// streams.
pub(crate) fn drop_named_streams(core: &Core, table: &str, names: &[StreamName]) -> Result<u64> {
    core.log.check()?;
    let table = live_table(core, table)?;
    if let Some(other) = names.iter().find(|name| name.table() != table.name) {
        return Err(Error::invalid(format!(
            "stream `{other}` does not belong to table `{}`",
            table.name
        )));
    }
    let wanted: HashSet<&StreamName> = names.iter().collect();
    let found = streams_where(core, &table, &|name| wanted.contains(name))?;
    drop_found(core, &table, found)
}

fn drop_found(core: &Core, table: &Table, found: Vec<StreamRecord>) -> Result<u64> {
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
        let _latch = core.log.latch_on_panic("applied a delete to the shards");
        let _barrier = core.write_barrier.close();
        // Later readers must not find the streams before they see the drop, and must not see the
        // drop before the streams are removed.
        let sequence = core.catalog.drop_streams(found, || {
            core.log.enqueue(RecordKind::Delete, record.encode(), true)
        })?;
        bury(core, &record, sequence);
        sequence
    };
    finish_delete(core, sequence)?;
    Ok(count)
}

/// Drops a table with everything in it.
pub(crate) fn drop_table(core: &Core, name: &str) -> Result<()> {
    core.log.check()?;
    let sequence = {
        let _barrier = core.write_barrier.close();
        let change = |_, old: Option<&Table>| {
            let mut table = old
                .cloned()
                .ok_or_else(|| Error::not_found(format!("no table `{name}`")))?;
            table.lifetime.dropped = true;
            Ok(table)
        };
        let defined = core
            .catalog
            .define_table(name, change, |t| core.log_table(t))?;
        core.shards.note_ending();
        defined.1
    };
    finish_delete(core, sequence.unwrap_or_default())
}

/// Adds a delete to every shard; then its record may be published.
fn bury(core: &Core, record: &DeleteRecord, sequence: Sequence) {
    let tombstone = record.tombstone(sequence);
    for shard in &core.shards {
        shard.state.lock().add_tombstone(&tombstone);
    }
    core.newest_deletes.note(record.table, sequence);
    core.table_changes.note([record.table], sequence);
    core.ends.note(sequence, record);
    core.named_ends.note(sequence, record);
    core.write_barrier.note_delete();
    core.log.inserted(sequence);
}

/// Waits for the acknowledgement of a delete, and makes sure that it is carried out.
fn finish_delete(core: &Core, sequence: Sequence) -> Result<()> {
    core.log.wait_published(sequence)?;
    let waiting = |core: &Core| {
        core.shards
            .iter()
            .any(|s| s.state.lock().tombstones.len() > WAITING_MAX)
    };
    if !core.signals.has_threads() || waiting(core) {
        let swept = sweep_all(core).and_then(|()| give_back_if_full(core));
        if let Err(error) = swept {
            tracing::warn!(%error, "cannot carry out a delete; it is in force and will be retried");
        }
    } else {
        core.signals.wake_workers();
    }
    Ok(())
}
