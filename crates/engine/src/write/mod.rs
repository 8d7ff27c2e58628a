//! The life of a write: check, define, log, insert, publish.
//!
//! Invariants: a refused row changes nothing but itself (law 6); everything of a batch that is
//! accepted is one log record; memory is bounded, because a writer waits before its record gets a
//! number.
//! Concurrency: any number of writers; each encodes its own record.

mod accept;
mod pressure;

use crate::catalog::{Table, stream_key};
use crate::core::Core;
use crate::expiry::{add_expiry, owner_of};
use crate::ids::{Sequence, ShardIndex, StreamId, TableId};
use crate::log::RecordKind;
use crate::producers::check_producer;
use crate::ranges::holds;
use crate::refused::{REFUSED_ENDED, REFUSED_STREAMS, Refused, place_in_entry};
use crate::shard::held_max;
use crate::unreadable::refuse_unreadable;
use crate::{Error, ErrorKind, Result};
use accept::{CheckedEntry, check_entry};
use headwater_codec::PutBytes;
use headwater_codec::light::encode_rows;
use headwater_types::{Batch, ClosedRange, Rows, Timestamp, Values};
use pressure::{
    aged_stretches, check_space, ensure_watermark, wait_for_bulk, wait_for_memory, wake_workers,
};
use std::collections::HashMap;
use std::sync::Arc;

/// What a batch became.
pub(crate) struct SubmittedBatch {
    pub(crate) sequence: Option<Sequence>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) accepted: u64,
    /// Values in the accepted rows.
    pub(crate) values: u64,
    /// The batch had been taken in before, as the record of this sequence or an earlier one.
    pub(crate) repeated: bool,
}

struct PreparedRows {
    stream: StreamId,
    table: TableId,
    shard: ShardIndex,
    rows: Rows,
}

/// Rows of a stream that is not defined yet.
struct RowsOfNewStream {
    table: Arc<Table>,
    key: Vec<u8>,
    rows: Rows,
    entry: usize,
    /// The rows' places in the entry; `None` = all of them.
    kept: Option<Vec<usize>>,
}

/// The rows of a batch by stream.
struct PreparedBatch<'a> {
    core: &'a Core,
    prepared: Vec<PreparedRows>,
    by_stream: HashMap<StreamId, usize>,
}

impl PreparedBatch<'_> {
    /// Rows of one stream may stand in several entries: they become one.
    fn add(&mut self, stream: StreamId, table: TableId, key: &[u8], rows: Rows) {
        if let Some(known) = self
            .by_stream
            .get(&stream)
            .and_then(|at| self.prepared.get_mut(*at))
        {
            let count = rows.len();
            known.rows.extend_from(&rows, 0..count);
            return;
        }
        self.by_stream.insert(stream, self.prepared.len());
        self.prepared.push(PreparedRows {
            stream,
            table,
            shard: self.core.shards.of_key(key),
            rows,
        });
    }
}

/// Takes a batch in: after this its events are in the log's hands and in memory, and are published
/// when the log says so.
pub(crate) fn submit(core: &Core, batch: Batch) -> Result<SubmittedBatch> {
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
    let prepared = prepare(core, batch, &mut refused)?;
    refused.sort_by_key(|r| (r.entry, r.row));
    let accepted: u64 = prepared.iter().map(|p| p.rows.len() as u64).sum();
    if accepted == 0 || (requires_all && !refused.is_empty()) {
        return Ok(SubmittedBatch {
            sequence: None,
            refused,
            accepted: 0,
            values: 0,
            repeated: false,
        });
    }
    let values = prepared.iter().map(|p| value_count(&p.rows)).sum();
    let raw_bytes: usize = prepared.iter().map(|p| raw_bytes(&p.rows)).sum();
    if raw_bytes > core.options.batch_bytes_max {
        return Err(Error::invalid(format!(
            "the batch holds {raw_bytes} bytes, at most {} are allowed (batch_bytes_max): write it in parts",
            core.options.batch_bytes_max
        )));
    }
    for one in &prepared {
        let clock = &*core.env.clock;
        core.clock_guard
            .hear(clock, one.table, one.stream, &one.rows.times);
        ensure_watermark(core, one.shard, one.stream, one.table)?;
    }
    wait_for_memory(core)?;
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
        // From its number on, everybody waits until the record's events are in memory.
        let _latch = core.log.latch_on_panic("put events into memory");
        let _door = core.door.enter();
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
        repeated: false,
    })
}

/// A batch that had been taken in before: acknowledged when that is.
fn repeated(sequence: Sequence) -> SubmittedBatch {
    SubmittedBatch {
        sequence: Some(sequence),
        refused: Vec::new(),
        accepted: 0,
        values: 0,
        repeated: true,
    }
}

/// What the batch was checked against may have been ended since: nothing of it is stored then, and
/// the writer tries again.
fn check_still_there(core: &Core, prepared: &[PreparedRows]) -> Result<()> {
    let mut checked: Option<(TableId, crate::catalog::Life)> = None;
    for one in prepared {
        let life = match checked {
            Some((id, life)) if id == one.table => life,
            _ => {
                let table = core.catalog.table(one.table);
                let life = table
                    .map(|t| t.life)
                    .ok_or_else(|| Error::internal("a write to no table"))?;
                checked = Some((one.table, life));
                life
            }
        };
        let floor = life.floor();
        let times = &one.rows.times;
        let ended = life.dropped
            || (floor.is_set()
                && times
                    .iter()
                    .any(|time| floor.ends(Timestamp::from_nanos(*time))))
            || (life.aging_went_back()
                && !aged_stretches(core, one.table, one.stream, times)?.is_empty());
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

/// The stream behind key bytes, if it is defined. Who has to ask bulk for it does not begin to
/// while that stalls.
fn find_stream(core: &Core, key: &[u8]) -> Result<Option<StreamId>> {
    if core.bulk.as_ref().is_some_and(|bulk| bulk.is_on()) {
        if let Some(stream) = core.catalog.known_stream(key) {
            return Ok(Some(stream));
        }
        wait_for_bulk(core)?;
    }
    core.catalog.find_stream(&*core.meta, key)
}

/// Checks every entry and finds or defines its stream.
fn prepare(core: &Core, batch: Batch, refused: &mut Vec<Refused>) -> Result<Vec<PreparedRows>> {
    let mut gathered = PreparedBatch {
        core,
        prepared: Vec::new(),
        by_stream: HashMap::new(),
    };
    let mut unresolved: Vec<RowsOfNewStream> = Vec::new();
    let mut key = Vec::new();
    let mut table_cache: Option<Arc<Table>> = None;
    let expires_at = batch.expires_at();
    for (entry, rows) in batch.into_entries().into_iter().enumerate() {
        let checked = check_entry(core, entry, rows, refused, &mut table_cache)?;
        let Some(CheckedEntry {
            mut table,
            name,
            mut rows,
            mut kept,
        }) = checked
        else {
            continue;
        };
        if let Some(at) = expires_at {
            if !table.life.expires {
                table = let_expire(core, &table)?;
                table_cache = Some(Arc::clone(&table));
            }
            add_expiry(&mut rows, at);
        }
        stream_key(table.id, name.tags(), &mut key);
        let place = (core.shards.of_key(&key), table.id);
        refuse_unreadable(core, place, entry, &mut rows, &mut kept, refused)?;
        if rows.is_empty() {
            continue;
        }
        match find_stream(core, &key)? {
            Some(stream) => {
                let stretches = match table.life.aging_went_back() {
                    true => aged_stretches(core, table.id, stream, &rows.times)?,
                    false => Vec::new(),
                };
                if !stretches.is_empty() {
                    let name = &table.name;
                    rows = without_aged(name, entry, rows, kept.as_deref(), &stretches, refused);
                }
                if !rows.is_empty() {
                    gathered.add(stream, table.id, &key, rows);
                }
            }
            None => unresolved.push(RowsOfNewStream {
                table,
                key: key.clone(),
                rows,
                entry,
                kept,
            }),
        }
    }
    define_streams(core, refused, &mut unresolved)?;
    for new in unresolved {
        let stream = core
            .catalog
            .find_stream(&*core.meta, &new.key)?
            .ok_or_else(|| Error::internal("a stream vanished after its definition"))?;
        gathered.add(stream, new.table.id, &new.key, new.rows);
    }
    Ok(gathered.prepared)
}

/// The rows of an entry that lie in no stretch of which only aggregates are kept: nobody could say
/// which rows the others replace.
fn without_aged(
    table: &str,
    entry: usize,
    rows: Rows,
    kept: Option<&[usize]>,
    stretches: &[ClosedRange],
    refused: &mut Vec<Refused>,
) -> Rows {
    let mut stay = Vec::with_capacity(rows.len());
    for (row, time) in (0u32..).zip(&rows.times) {
        if !holds(stretches, Timestamp::from_nanos(*time)) {
            stay.push(row);
            continue;
        }
        let row = row as usize;
        refused.push(Refused {
            entry,
            row: place_in_entry(kept, row),
            code: REFUSED_ENDED,
            message: format!(
                "timestamp {time} lies where only aggregates of the rows of table `{table}` are kept, so that nobody can tell which of them it would replace: write newer rows, or older data into another table"
            ),
        });
    }
    rows.gather(&stay)
}

/// Values that a program handed in.
fn value_count(rows: &Rows) -> u64 {
    let columns = rows
        .columns
        .iter()
        .filter(|(field, _)| owner_of(*field).is_none());
    columns.map(|(_, c)| c.present_count() as u64).sum()
}

/// Bytes of the events as a program holds them: 8 a number and a timestamp, 1 a boolean, the length
/// of text.
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

fn define_streams(
    core: &Core,
    refused: &mut Vec<Refused>,
    unresolved: &mut Vec<RowsOfNewStream>,
) -> Result<()> {
    let mut by_table: HashMap<TableId, Vec<Box<[u8]>>> = HashMap::new();
    for new in unresolved.iter() {
        by_table
            .entry(new.table.id)
            .or_default()
            .push(new.key.as_slice().into());
    }
    for (table, mut keys) in by_table {
        keys.sort_unstable();
        keys.dedup();
        let result = core.catalog.define_streams(
            table,
            &keys,
            core.options.streams_max,
            |key| core.shards.of_key(key),
            |records| core.log_streams(records),
        );
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Invalid => {
                unresolved.retain(|new| {
                    if new.table.id == table {
                        refused.extend((0..new.rows.len()).map(|row| Refused {
                            entry: new.entry,
                            row: place_in_entry(new.kept.as_deref(), row),
                            code: REFUSED_STREAMS,
                            message: error.to_string(),
                        }));
                    }
                    new.table.id != table
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    let held_max = held_max(&core.options, core.shards.len());
    let tables = by_shard.iter().flatten().map(|one| one.table);
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
            let admitted = state.admit(one.table, one.rows, sequence, held_max);
            state.count_parked(&admitted);
            if admitted.rows.is_empty() {
                continue;
            }
            let (_, bytes) = state.with_stream(one.stream, one.table, |m| {
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

/// Notes that values of a table may expire, before the first one is written. `busy` when the table
/// was dropped, also when there is another of its name: what was checked against the one does not
/// fit the other.
fn let_expire(core: &Core, table: &Table) -> Result<Arc<Table>> {
    let change = |_, old: Option<&Table>| {
        let known = old.filter(|t| t.id == table.id && !t.life.dropped);
        let mut new = known.cloned().ok_or_else(|| {
            Error::new(
                ErrorKind::Busy,
                format!(
                    "table `{}` was dropped while the batch was checked: write it again",
                    table.name
                ),
            )
        })?;
        new.life.expires = true;
        Ok(new)
    };
    let defined = core
        .catalog
        .define_table(&table.name, change, |t| core.log_table(t))?;
    Ok(defined.0)
}
