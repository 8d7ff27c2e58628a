//! Processing of a write: check, define, log, insert, publish.
//!
//! Invariants: a refused row affects only itself (law 6), and a refused batch has no effect:
//! definitions of rows are planned, and in force once every check that could refuse them is done;
//! the accepted part of a batch is one log record; memory is bounded, because a writer waits before
//! its record gets a number. Concurrency: any number of writers; each encodes its own record.

mod accept;
mod entry;
mod gathered;
mod plan;
mod pressure;
mod refusals;
pub(crate) mod table_change;
pub(crate) mod widening;

use crate::common::ids::{Sequence, TableId};
use crate::common::refused::{REFUSED_STREAMS, Refused, position_in_entry};
use crate::core::Core;
use crate::core::shard::parked_bytes_max;
use crate::memory::expiry::{add_expiry, owner_of};
use crate::metadata::catalog::{NewStreamKeys, Planned, Table, TableLimits};
use crate::metadata::producers::check_producer;
use crate::wal::RecordKind;
use crate::write::widening::check_before_entry;
use crate::{Error, ErrorKind, Result};
use accept::{CheckedEntry, check_entry};
use gathered::{GroupedBatch, PreparedRows, RowsOfNewStream};
use headwater_codec::PutBytes;
use headwater_codec::light::encode_rows;
use headwater_types::{Batch, Rows, Timestamp, Values};
use plan::Plan;
use pressure::{aged_stretches, check_space, ensure_watermark, wait_for_memory, wake_workers};
use std::collections::HashMap;
use std::sync::Arc;

/// Result of a batch.
pub(crate) struct SubmittedBatch {
    pub(crate) sequence: Option<Sequence>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) accepted: u64,
    /// Values in the accepted rows.
    pub(crate) values: u64,
    /// Accepted rows that replaced values of other rows of the batch.
    pub(crate) replaced: u64,
    /// The batch had been accepted before, as the record of this sequence or an earlier one.
    pub(crate) repeated: bool,
}

/// Accepts a batch: after this its events are queued in the log and in memory, and become visible
/// when the log publishes them.
pub(crate) fn submit(core: &Arc<Core>, batch: Batch) -> Result<SubmittedBatch> {
    core.log.check()?;
    let producer = batch.producer().cloned();
    if let Some(producer) = &producer {
        check_producer(producer)?;
        if let Some(sequence) = core.producers.lock().repeated(producer) {
            return Ok(repeated(sequence));
        }
    }
    check_space(core)?;
    let mut refused = Vec::new();
    let requires_all = batch.requires_all();
    let (gathered, plan) = prepare(core, batch, &mut refused)?;
    let raw_bytes: usize = gathered.all_rows().map(raw_bytes).sum();
    if raw_bytes > core.options.batch_bytes_max {
        return Err(Error::invalid(format!(
            "the batch has {raw_bytes} bytes, at most {} are allowed (batch_bytes_max): split it",
            core.options.batch_bytes_max
        )));
    }
    let prepared = match nothing_to_store(&gathered, requires_all, &refused) {
        true => Vec::new(),
        false => define(core, gathered, plan, requires_all, &mut refused)?,
    };
    refused.sort_by_key(|r| (r.entry, r.row));
    let accepted: u64 = prepared.iter().map(|p| p.rows.len() as u64).sum();
    if accepted == 0 {
        return Ok(SubmittedBatch {
            sequence: None,
            refused,
            accepted: 0,
            values: 0,
            replaced: 0,
            repeated: false,
        });
    }
    let values = prepared.iter().map(|p| value_count(&p.rows)).sum();
    let replaced = GroupedBatch::replaced(&prepared);
    let streams = prepared.len() as u64;
    let mut payload = Vec::with_capacity(raw_bytes / 2 + 64);
    if let Some(producer) = &producer {
        payload.put_prefixed(producer.name.as_bytes());
        payload.put_varint(producer.number);
    }
    payload.put_varint(streams);
    for one in &prepared {
        payload.put_varint(u64::from(one.stream.0));
        encode_rows(&one.rows, &mut payload);
    }
    let sequence = {
        // From its number on, all threads wait until the record's events are in memory.
        let _latch = core.log.latch_on_panic("put events into memory");
        let _barrier = core.write_barrier.enter();
        check_still_there(core, &prepared)?;
        // Before the record has its number: it is acknowledged only if all of it can be put into
        // memory.
        let by_shard = by_shard(core, prepared)?;
        let sequence = match &producer {
            None => core.log.enqueue(RecordKind::Write, payload, true)?,
            Some(producer) => {
                let mut producers = core.producers.lock();
                // Another writer may have brought the same batch meanwhile.
                if let Some(sequence) = producers.repeated(producer) {
                    return Ok(repeated(sequence));
                }
                let sequence = core.log.enqueue(RecordKind::NumberedWrite, payload, true)?;
                producers.put(producer, sequence);
                sequence
            }
        };
        insert(core, sequence, by_shard);
        sequence
    };
    core.log.inserted(sequence);
    core.counters.accepted(accepted, raw_bytes as u64);
    wake_workers(core);
    Ok(SubmittedBatch {
        sequence: Some(sequence),
        refused,
        accepted,
        values,
        replaced,
        repeated: false,
    })
}

/// A batch that had been accepted before: acknowledged together with the first one.
fn repeated(sequence: Sequence) -> SubmittedBatch {
    SubmittedBatch {
        sequence: Some(sequence),
        refused: Vec::new(),
        accepted: 0,
        values: 0,
        replaced: 0,
        repeated: true,
    }
}

/// Refuses the batch if definitions that it was checked against may have ended since: none of it is
/// stored then, and the writer tries again.
fn check_still_there(core: &Core, prepared: &[PreparedRows]) -> Result<()> {
    let mut checked: Option<Arc<Table>> = None;
    let any_look = core.defining.any_look();
    for one in prepared {
        let table = match checked.take().filter(|table| table.id == one.table.id) {
            Some(table) => table,
            None => {
                let table = core.catalog.table(one.table.id);
                table.ok_or_else(|| Error::internal("a write refers to an unknown table"))?
            }
        };
        if any_look || !Arc::ptr_eq(&table, &one.table) {
            check_before_entry(core, &table, &one.rows.columns)?;
        }
        let lifetime = table.lifetime;
        checked = Some(table);
        let floor = lifetime.floor();
        let times = &one.rows.times;
        let ended = lifetime.dropped
            || (floor.is_set()
                && times
                    .iter()
                    .any(|time| floor.ends(Timestamp::from_nanos(*time))))
            || (lifetime.has_writable_aged_range()
                && !aged_stretches(core, one.table.id, one.stream, times)?.is_empty());
        if ended {
            return Err(Error::new(
                ErrorKind::Busy,
                "the table was dropped, or its retention or aging moved, while the batch was checked: write it again",
            ));
        }
    }
    if core.catalog.any_dropped(prepared.iter().map(|p| p.stream)) {
        return Err(Error::new(
            ErrorKind::Busy,
            "a stream was dropped while the batch was checked: write it again",
        ));
    }
    Ok(())
}

/// Checks every entry and finds its stream; plans new definitions.
fn prepare<'a>(
    core: &'a Arc<Core>,
    batch: Batch,
    refused: &mut Vec<Refused>,
) -> Result<(GroupedBatch<'a>, Plan<'a>)> {
    let mut gathered = GroupedBatch::new(core);
    let mut plan = Plan::new(core);
    let mut key = Vec::new();
    let expires_at = batch.expires_at();
    for (entry, rows) in batch.into_entries().into_iter().enumerate() {
        let checked = check_entry(&gathered, &mut plan, entry, rows, refused, &mut key)?;
        let Some(CheckedEntry {
            mut table,
            stream,
            mut rows,
            valid_rows,
        }) = checked
        else {
            continue;
        };
        if let Some(at) = expires_at {
            table = plan.let_expire(&table)?;
            add_expiry(&mut rows, at);
        }
        match stream {
            Some(stream) => gathered.add(stream, table, &key, rows),
            None => {
                let id = table.id;
                gathered.unresolved.push(RowsOfNewStream {
                    table,
                    key: key.clone(),
                    rows,
                    entry,
                    valid_rows,
                });
                plan.count_out(id, &gathered);
            }
        }
    }
    Ok((gathered, plan))
}

/// True when there is no row to store, so that no definition is needed.
fn nothing_to_store(gathered: &GroupedBatch<'_>, requires_all: bool, refused: &[Refused]) -> bool {
    let is_empty = gathered.prepared.is_empty() && gathered.unresolved.is_empty();
    is_empty || (requires_all && !refused.is_empty())
}

/// Defines the planned tables and streams, when only a race can still refuse the rows: returns them
/// with their streams.
fn define(
    core: &Core,
    mut gathered: GroupedBatch<'_>,
    plan: Plan<'_>,
    requires_all: bool,
    refused: &mut Vec<Refused>,
) -> Result<Vec<PreparedRows>> {
    // Operations that may wait or fail come before.
    for one in &gathered.prepared {
        ensure_watermark(core, one.shard, one.stream, one.table.id)?;
    }
    if !plan.has_turn() {
        wait_for_memory(core)?;
    }
    let mut unresolved = std::mem::take(&mut gathered.unresolved);
    if !unresolved.is_empty() || !plan.tables().is_empty() {
        define_all(core, &plan, requires_all, refused, &mut unresolved)?;
    }
    drop(plan);
    if requires_all && !refused.is_empty() {
        return Ok(Vec::new());
    }
    let known = gathered.prepared.len();
    for new in unresolved {
        let stream = core
            .catalog
            .find_stream(&*core.meta, &new.key)?
            .ok_or_else(|| Error::internal("a stream is missing after its definition"))?;
        gathered.add(stream, new.table, &new.key, new.rows);
    }
    let prepared = gathered.prepared;
    for (at, one) in prepared.iter().enumerate() {
        let clock = &*core.env.clock;
        core.clock_guard
            .hear(clock, one.table.id, one.stream, &one.rows.times);
        if at >= known {
            ensure_watermark(core, one.shard, one.stream, one.table.id)?;
        }
    }
    Ok(prepared)
}

/// Number of values that a program passed in.
fn value_count(rows: &Rows) -> u64 {
    let columns = rows
        .columns
        .iter()
        .filter(|(field, _)| owner_of(*field).is_none());
    columns.map(|(_, c)| c.present_count() as u64).sum()
}

/// Bytes of the events in a program: 8 for a number or a timestamp, 1 for a boolean, the length of
/// a text.
fn raw_bytes(rows: &Rows) -> usize {
    rows.len() * 8
        + rows
            .columns
            .iter()
            .filter(|(field, _)| owner_of(*field).is_none())
            .map(|(_, column)| match column.values() {
                Values::F64(_) | Values::I64(_) | Values::U64(_) => column.present_count() * 8,
                Values::Bool(_) => column.present_count(),
                Values::String(v) | Values::Bytes(v) => v.bytes().len(),
            })
            .sum::<usize>()
}

/// Puts the planned tables and the new streams into force. When other writers have used up the
/// number of streams meanwhile, rows of these streams are refused, or the whole batch must be
/// written again.
fn define_all(
    core: &Core,
    plan: &Plan<'_>,
    requires_all: bool,
    refused: &mut Vec<Refused>,
    unresolved: &mut Vec<RowsOfNewStream>,
) -> Result<()> {
    loop {
        let mut by_table: HashMap<TableId, Vec<Box<[u8]>>> = HashMap::new();
        for new in unresolved.iter() {
            let keys = by_table.entry(new.table.id).or_default();
            keys.push(new.key.as_slice().into());
        }
        let mut streams: Vec<NewStreamKeys> = by_table.into_iter().collect();
        streams.sort_unstable_by_key(|(table, _)| *table);
        for (_, keys) in &mut streams {
            keys.sort_unstable();
            keys.dedup();
        }
        let defined = core.catalog.define_planned(
            (plan.tables(), &streams),
            (TableLimits::of(&core.options), core.options.streams_max),
            |key| core.shards.of_key(key),
            |record| core.log_table(record),
            |records| core.log_streams(records),
        )?;
        let (full, message) = match defined {
            Planned::Defined => return Ok(()),
            Planned::Dropped(name) => return Err(dropped_meanwhile(&name)),
            Planned::Full(table, message) => (table, message),
        };
        if !plan.tables().is_empty() {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{message}: other writers created streams while the batch was checked: write it again"
                ),
            ));
        }
        unresolved.retain(|new| {
            if new.table.id == full {
                refused.extend((0..new.rows.len()).map(|row| Refused {
                    entry: new.entry,
                    row: position_in_entry(new.valid_rows.as_deref(), row),
                    code: REFUSED_STREAMS,
                    message: message.clone(),
                }));
            }
            new.table.id != full
        });
        if requires_all || unresolved.is_empty() {
            return Ok(());
        }
    }
}

fn dropped_meanwhile(table: &str) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("table `{table}` was dropped while the batch was checked: write it again"),
    )
}

/// The rows by shard.
fn by_shard(core: &Core, prepared: Vec<PreparedRows>) -> Result<Vec<Vec<PreparedRows>>> {
    let mut by_shard: Vec<Vec<PreparedRows>> = Vec::new();
    by_shard.resize_with(core.shards.len(), Vec::new);
    for one in prepared {
        let Some(list) = by_shard.get_mut(usize::from(one.shard.0)) else {
            let error = Error::internal(format!(
                "stream {} in shard {} of {}",
                one.stream.0,
                one.shard.0,
                core.shards.len()
            ));
            core.log.latch(error.clone());
            return Err(error);
        };
        list.push(one);
    }
    Ok(by_shard)
}

/// Puts the events of a record into memory. Cannot fail: the record has its number.
fn insert(core: &Core, sequence: Sequence, by_shard: Vec<Vec<PreparedRows>>) {
    let mut change = 0;
    assert_eq!(
        by_shard.len(),
        core.shards.len(),
        "the rows of a record were divided over another number of shards"
    );
    let held_max = parked_bytes_max(&core.options, core.shards.len());
    let tables = by_shard.iter().flatten().map(|one| one.table.id);
    core.table_changes.note(tables, sequence);
    for (shard, list) in core
        .shards
        .iter()
        .zip(by_shard)
        .filter(|(_, l)| !l.is_empty())
    {
        let mut state = shard.state.lock();
        let separate = state.separates();
        for one in list {
            state.analyzer.observe(one.stream.0, &one.rows.times);
            let admitted = state.admit(one.table.id, one.rows, sequence, held_max);
            state.count_parked(&admitted);
            if admitted.rows.is_empty() {
                continue;
            }
            let (_, bytes) = state.with_stream(one.stream, one.table.id, |m| {
                m.insert(admitted.rows, sequence, separate)
            });
            change += bytes;
        }
        if state.late_events > 0 && state.late_since.is_none() {
            state.late_since = Some(core.env.clock.monotonic());
        }
    }
    core.memory_changed(change);
}
