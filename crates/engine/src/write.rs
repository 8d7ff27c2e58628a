//! The life of a write: check, define, log, insert, publish.
//!
//! Invariants: a refused row changes nothing but itself (law 6); everything of a batch that is accepted is one log record;
//! memory is bounded, because a writer waits before its record gets a number.
//! Concurrency: any number of writers; each encodes its own record.

use crate::catalog::{Field, Table, check_name, stream_key};
use crate::core::Core;
use crate::ids::{Sequence, ShardIndex, StreamId, TableId};
use crate::late::Split;
use crate::log::RecordKind;
use crate::{Error, ErrorKind, Result};
use headwater_codec::light::encode_rows;
use headwater_codec::{Batch, Column, FieldId, FieldType, PutBytes, Rows, StreamRows, Values};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A row of a batch that was not stored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Index of the entry in the batch.
    pub entry: usize,
    /// Index of the row in the entry.
    pub row: usize,
    /// Stable code.
    pub code: &'static str,
    /// What was expected, what was found, what to do.
    pub message: String,
}

/// The value has another type than the field.
pub const REFUSED_TYPE: &str = "E_TYPE";
/// The timestamp lies too far in the future.
pub const REFUSED_FUTURE: &str = "E_TIME_FUTURE";
/// A name or a value is longer than allowed.
pub const REFUSED_STRING: &str = "E_LIMIT_STRING";
/// The table would have more fields than allowed.
pub const REFUSED_FIELDS: &str = "E_LIMIT_FIELDS";
/// The table would have more streams than allowed.
pub const REFUSED_STREAMS: &str = "E_LIMIT_STREAMS";
/// A name of a table, tag or field is not allowed.
pub const REFUSED_NAME: &str = "E_NAME";

/// What a batch became.
pub(crate) struct Submitted {
    pub(crate) sequence: Option<Sequence>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) accepted: u64,
}

struct Prepared {
    stream: StreamId,
    table: TableId,
    shard: ShardIndex,
    rows: Rows,
}

/// Rows of an entry that are still good.
struct Accepting {
    entry: usize,
    good: Vec<bool>,
    refused: Vec<Refused>,
}

impl Accepting {
    fn refuse(&mut self, row: usize, code: &'static str, message: impl FnOnce() -> String) {
        if let Some(good) = self.good.get_mut(row)
            && *good
        {
            *good = false;
            self.refused.push(Refused { entry: self.entry, row, code, message: message() });
        }
    }

    fn refuse_present(&mut self, column: &Column, code: &'static str, message: impl Fn() -> String) {
        for row in 0..column.len() {
            if column.is_present(row) {
                self.refuse(row, code, &message);
            }
        }
    }
}

/// Takes a batch in: after this its events are in the log's hands and in memory, and are published when the log says so.
pub(crate) fn submit(core: &Core, batch: Batch) -> Result<Submitted> {
    core.log.check()?;
    let mut refused = Vec::new();
    let mut prepared: Vec<Prepared> = Vec::new();
    let mut by_stream: HashMap<StreamId, usize> = HashMap::new();
    let mut unresolved: Vec<(Arc<Table>, Vec<u8>, Rows, usize, Vec<usize>)> = Vec::new();
    let mut key = Vec::new();
    let many = batch.entries().len() > 1;
    let mut table_cache: Option<Arc<Table>> = None;
    for (index, entry) in batch.into_entries().into_iter().enumerate() {
        let checked = check_entry(core, index, entry, &mut refused, &mut table_cache)?;
        let Some((table, name, rows, kept)) = checked else { continue };
        stream_key(table.id, name.tags(), &mut key);
        match core.catalog.find_stream(&core.meta, &key)? {
            Some(stream) => add(core, &mut prepared, &mut by_stream, stream, &table, &key, rows, many),
            None => unresolved.push((table, key.clone(), rows, index, kept)),
        }
    }
    define_streams(core, &mut refused, &mut unresolved)?;
    for (table, key, rows, ..) in unresolved {
        let stream = core
            .catalog
            .find_stream(&core.meta, &key)?
            .ok_or_else(|| Error::internal("a stream vanished after its definition"))?;
        add(core, &mut prepared, &mut by_stream, stream, &table, &key, rows, true);
    }
    refused.sort_by_key(|r| (r.entry, r.row));
    let accepted: u64 = prepared.iter().map(|p| p.rows.len() as u64).sum();
    if accepted == 0 {
        return Ok(Submitted { sequence: None, refused, accepted });
    }
    let raw_bytes: usize = prepared.iter().map(|p| raw_bytes(&p.rows)).sum();
    if raw_bytes > core.options.batch_bytes_max {
        return Err(Error::invalid(format!(
            "the batch holds {raw_bytes} bytes, at most {} are allowed (batch_bytes_max): write it in parts",
            core.options.batch_bytes_max
        )));
    }
    for one in &prepared {
        core.ensure_watermark(one.shard, one.stream, one.table)?;
    }
    wait_for_memory(core)?;
    let mut payload = Vec::with_capacity(raw_bytes / 2 + 64);
    payload.put_varint(prepared.len() as u64);
    for one in &prepared {
        payload.put_varint(u64::from(one.stream.0));
        encode_rows(&one.rows, &mut payload);
    }
    let sequence = core.log.enqueue(RecordKind::Write, payload, true)?;
    insert(core, sequence, prepared);
    core.log.inserted(sequence);
    core.counters.accepted(accepted, raw_bytes as u64);
    wake_workers(core);
    Ok(Submitted { sequence: Some(sequence), refused, accepted })
}

#[allow(clippy::too_many_arguments, reason = "one call pattern, twice")]
fn add(
    core: &Core,
    prepared: &mut Vec<Prepared>,
    by_stream: &mut HashMap<StreamId, usize>,
    stream: StreamId,
    table: &Table,
    key: &[u8],
    rows: Rows,
    many: bool,
) {
    if many && let Some(at) = by_stream.get(&stream) {
        if let Some(known) = prepared.get_mut(*at) {
            let count = rows.len();
            known.rows.extend_from(&rows, 0..count);
        }
        return;
    }
    if many {
        by_stream.insert(stream, prepared.len());
    }
    prepared.push(Prepared { stream, table: table.id, shard: core.shard_of(key), rows });
}

/// Bytes of the events as a program holds them: 8 a number and a timestamp, 1 a boolean, the length of text.
fn raw_bytes(rows: &Rows) -> usize {
    rows.len() * 8
        + rows
            .columns
            .iter()
            .map(|(_, column)| match column.values() {
                Values::F64(_) | Values::I64(_) | Values::U64(_) => column.present_count() * 8,
                Values::Bool(_) => column.present_count(),
                Values::String(v) | Values::Bytes(v) => v.bytes().len(),
            })
            .sum::<usize>()
}

type Checked = (Arc<Table>, headwater_codec::StreamName, Rows, Vec<usize>);

/// Checks one entry against its table; defines the table and new fields. `None` when no row of it is good.
fn check_entry(
    core: &Core,
    index: usize,
    entry: StreamRows,
    refused: &mut Vec<Refused>,
    cache: &mut Option<Arc<Table>>,
) -> Result<Option<Checked>> {
    let StreamRows { name, times, fields } = entry;
    let mut accepting = Accepting { entry: index, good: vec![true; times.len()], refused: Vec::new() };
    if let Some((field, column)) = fields.iter().find(|(_, c)| c.len() != times.len()) {
        return Err(Error::invalid(format!(
            "entry {index} ({name}): field `{field}` has {} rows, the entry has {} timestamps",
            column.len(),
            times.len()
        )));
    }
    check_names(&name, &fields, &mut accepting);
    check_times(core, &times, &mut accepting);
    check_strings(core, &fields, &mut accepting);
    let table = match cache.take().filter(|t| t.name == name.table()) {
        Some(table) => Some(table),
        None => core.catalog.table_named(name.table()),
    };
    let mut table = table;
    let mut columns: Vec<(FieldId, Column)> = Vec::with_capacity(fields.len());
    if accepting.good.iter().any(|g| *g) {
        let fits = table.as_ref().is_some_and(|t| {
            fields.iter().all(|(n, c)| {
                t.field_id(n).and_then(|id| t.field(id)).is_some_and(|f| f.field_type == c.field_type())
            })
        });
        if !fits {
            table = Some(define_fields(core, name.table(), &fields, &accepting.good)?);
        }
        if let Some(table) = &table {
            for (field, column) in fields {
                if let Some(column) = fit_column(core, table, &field, column, &mut accepting) {
                    columns.push(column);
                }
            }
        }
    }
    cache.clone_from(&table);
    let kept: Vec<usize> = accepting.good.iter().enumerate().filter(|(_, g)| **g).map(|(i, _)| i).collect();
    let all = kept.len() == times.len();
    refused.append(&mut accepting.refused);
    let Some(table) = table.filter(|_| !kept.is_empty()) else { return Ok(None) };
    columns.sort_by_key(|(f, _)| *f);
    if columns.windows(2).any(|w| matches!(w, [a, b] if a.0 == b.0)) {
        return Err(Error::invalid(format!("entry {index} ({name}): a field comes twice")));
    }
    let mut rows = Rows { times, columns };
    if !all {
        let picked: Vec<u32> = kept.iter().map(|k| *k as u32).collect();
        rows = rows.gather(&picked);
    }
    rows.columns.retain(|(_, c)| c.present_count() > 0);
    Ok(Some((table, name, rows, kept)))
}

fn check_names(name: &headwater_codec::StreamName, fields: &[(String, Column)], accepting: &mut Accepting) {
    let mut problem = check_name("table", name.table()).err();
    for (key, value) in name.tags() {
        problem = problem.or(check_name("tag", key).err());
        if value.len() > 4096 {
            problem = problem.or(Some(Error::invalid(format!("the value of tag `{key}` has over 4096 bytes"))));
        }
    }
    if let Some(problem) = problem {
        for row in 0..accepting.good.len() {
            accepting.refuse(row, REFUSED_NAME, || problem.to_string());
        }
    }
    for (field, column) in fields {
        if let Err(problem) = check_name("field", field) {
            accepting.refuse_present(column, REFUSED_NAME, || problem.to_string());
        }
    }
}

fn check_times(core: &Core, times: &[i64], accepting: &mut Accepting) {
    let Some(ahead) = core.options.max_future else { return };
    let now = core.env.clock.now().as_nanos();
    let limit = now.saturating_add(i64::try_from(ahead.as_nanos()).unwrap_or(i64::MAX));
    for (row, time) in times.iter().enumerate().filter(|(_, t)| **t > limit) {
        accepting.refuse(row, REFUSED_FUTURE, || {
            format!("timestamp {time} lies more than {ahead:?} after the clock ({now}): check the clock of the device")
        });
    }
}

fn check_strings(core: &Core, fields: &[(String, Column)], accepting: &mut Accepting) {
    let max = core.options.string_bytes_max;
    for (field, column) in fields {
        if let Values::String(text) | Values::Bytes(text) = column.values() {
            for row in 0..text.len() {
                let len = text.get(row).len();
                if len > max {
                    accepting.refuse(row, REFUSED_STRING, || {
                        format!("field `{field}`: a value of {len} bytes, at most {max} are allowed")
                    });
                }
            }
        }
    }
}

/// Makes the table and its missing fields, and widens i64 fields that now get floats.
fn define_fields(core: &Core, name: &str, fields: &[(String, Column)], good: &[bool]) -> Result<Arc<Table>> {
    let wanted: Vec<(&String, FieldType)> = fields
        .iter()
        .filter(|(n, c)| check_name("field", n).is_ok() && (0..c.len()).any(|r| good.get(r) == Some(&true) && c.is_present(r)))
        .map(|(n, c)| (n, c.field_type()))
        .collect();
    let change = |id: TableId, old: Option<&Table>| {
        let mut table = old.cloned().unwrap_or_else(|| Table {
            id,
            name: name.to_owned(),
            duplicates: crate::Duplicates::Last,
            leaf_events: core.options.leaf_events,
            fields: Vec::new(),
        });
        for (field, field_type) in &wanted {
            let room = table.fields.len() < core.options.fields_max;
            match table.fields.iter_mut().find(|f| f.name == **field) {
                Some(known) if known.field_type == FieldType::I64 && *field_type == FieldType::F64 => {
                    known.field_type = FieldType::F64;
                }
                Some(_) => {}
                None if room => {
                    table.fields.push(Field { name: (*field).clone(), field_type: *field_type });
                }
                None => {}
            }
        }
        Ok(table)
    };
    let (table, _) = core.catalog.define_table(name, change, |table| core.log_table(table))?;
    Ok(table)
}

/// The column in the type of its field; rows that do not fit are refused.
fn fit_column(
    core: &Core,
    table: &Table,
    name: &str,
    column: Column,
    accepting: &mut Accepting,
) -> Option<(FieldId, Column)> {
    let Some((id, field)) = table.field_id(name).and_then(|id| Some((id, table.field(id)?))) else {
        accepting.refuse_present(&column, REFUSED_FIELDS, || {
            format!("field `{name}`: the table has {} fields already, the most allowed", core.options.fields_max)
        });
        return None;
    };
    let (expected, found) = (field.field_type, column.field_type());
    if expected == found {
        return Some((id, column));
    }
    if expected == FieldType::F64 && found == FieldType::I64 {
        if let Values::I64(values) = column.values() {
            for (row, value) in values.iter().enumerate() {
                if column.is_present(row) && i128::from(*value) != (*value as f64) as i128 {
                    accepting.refuse(row, REFUSED_TYPE, || {
                        format!("field `{name}` is f64, which cannot hold {value} exactly: write it as a float")
                    });
                }
            }
        }
        return Some((id, column.widened_to_f64()));
    }
    accepting.refuse_present(&column, REFUSED_TYPE, || {
        format!("field `{name}` of table `{}` is {expected}, found {found}: send {expected}, or use another field", table.name)
    });
    // Rows without a value in this column are still good.
    None
}

fn define_streams(
    core: &Core,
    refused: &mut Vec<Refused>,
    unresolved: &mut Vec<(Arc<Table>, Vec<u8>, Rows, usize, Vec<usize>)>,
) -> Result<()> {
    let mut by_table: HashMap<TableId, Vec<Box<[u8]>>> = HashMap::new();
    for (table, key, ..) in unresolved.iter() {
        by_table.entry(table.id).or_default().push(key.as_slice().into());
    }
    for (table, mut keys) in by_table {
        keys.sort_unstable();
        keys.dedup();
        let result = core.catalog.define_streams(
            &core.meta,
            table,
            &keys,
            core.options.streams_max,
            |key| core.shard_of(key),
            |records| core.log_streams(records),
        );
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Invalid => {
                unresolved.retain(|(t, _, _, entry, kept)| {
                    if t.id != table {
                        return true;
                    }
                    refused.extend(kept.iter().map(|row| Refused {
                        entry: *entry,
                        row: *row,
                        code: REFUSED_STREAMS,
                        message: error.to_string(),
                    }));
                    false
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Puts the events of a record into memory. Cannot fail: the record has its number.
fn insert(core: &Core, sequence: Sequence, prepared: Vec<Prepared>) {
    let separate = matches!(core.options.late_policy.split, Split::Separate { .. });
    let mut by_shard: Vec<Vec<Prepared>> = Vec::new();
    by_shard.resize_with(core.shards.len(), Vec::new);
    for one in prepared {
        if let Some(list) = by_shard.get_mut(usize::from(one.shard.0)) {
            list.push(one);
        }
    }
    let mut change = 0;
    for (shard, list) in core.shards.iter().zip(by_shard).filter(|(_, l)| !l.is_empty()) {
        let mut state = shard.state.lock();
        for one in list {
            let (_, bytes) = state.with_stream(one.stream, one.table, |m| m.insert(one.rows, sequence, separate));
            change += bytes;
        }
    }
    core.memory_changed_quietly(change);
}

/// Waits while memory is used up; `busy` after the configured time.
fn wait_for_memory(core: &Core) -> Result<()> {
    let limit = core.flush_bytes() + core.flush_bytes() / 2;
    if core.memory_bytes.load(Ordering::Relaxed) < limit {
        return Ok(());
    }
    if !core.work.threads.load(Ordering::Acquire) {
        return core.maintain();
    }
    let start = core.env.clock.monotonic();
    let mut held = core.work.lock.lock();
    loop {
        if core.memory_bytes.load(Ordering::Relaxed) < limit {
            return Ok(());
        }
        core.log.check()?;
        let waited = core.env.clock.monotonic().saturating_sub(start);
        if waited >= core.options.busy_timeout {
            if let Some(error) = core.work.step_error.lock().clone() {
                return Err(error);
            }
            return Err(Error::new(
                ErrorKind::Busy,
                format!("no memory for further events after {waited:?}: try again later, or raise memory_budget_bytes"),
            ));
        }
        core.work.wanted.notify_all();
        let patience = (core.options.busy_timeout - waited).min(std::time::Duration::from_millis(50));
        core.work.freed.wait_for(&mut held, patience);
    }
}

fn wake_workers(core: &Core) {
    if core.work.threads.load(Ordering::Acquire) && core.memory_bytes.load(Ordering::Relaxed) >= core.flush_bytes() {
        core.work.wanted.notify_all();
    }
}

impl Core {
    pub(crate) fn log_table(&self, table: &Table) -> Result<Sequence> {
        let mut payload = Vec::new();
        table.encode(&mut payload);
        self.log.enqueue(RecordKind::Table, payload, false)
    }

    fn log_streams(&self, records: &[crate::catalog::StreamRecord]) -> Result<Sequence> {
        let mut payload = Vec::new();
        payload.put_varint(records.len() as u64);
        for record in records {
            record.encode(&mut payload);
        }
        self.log.enqueue(RecordKind::Streams, payload, false)
    }

    fn memory_changed_quietly(&self, change: isize) {
        if change >= 0 {
            self.memory_bytes.fetch_add(change.unsigned_abs(), Ordering::Relaxed);
        } else {
            self.memory_bytes.fetch_sub(change.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Makes sure the watermark of a stream is known: the newest time in the main runs of its partitions.
    pub(crate) fn ensure_watermark(&self, shard: ShardIndex, stream: StreamId, table: TableId) -> Result<()> {
        let shard = self.shard(shard)?;
        loop {
            let (version, partitions) = {
                let mut state = shard.state.lock();
                if state.streams.get(&stream).is_some_and(|s| s.memory.watermark_known) {
                    return Ok(());
                }
                if state.partitions.of(table).is_empty() {
                    state.with_stream(stream, table, |m| m.watermark_known = true);
                    return Ok(());
                }
                (state.version, Arc::clone(&state.partitions))
            };
            let watermark = stored_watermark(&self.store, &partitions, stream, table)?;
            let mut state = shard.state.lock();
            // A step in between may have moved the watermark: look again.
            if state.version == version {
                state.with_stream(stream, table, |m| {
                    m.watermark = watermark;
                    m.watermark_known = true;
                });
                return Ok(());
            }
        }
    }
}

/// The newest time of a stream in main runs.
pub(crate) fn stored_watermark(
    store: &crate::segment::Store,
    partitions: &crate::partitions::PartitionSet,
    stream: StreamId,
    table: TableId,
) -> Result<Option<i64>> {
    for partition in partitions.of(table).iter().rev() {
        let segment = store.state(partition)?;
        if let Some(watermark) = segment.streams.get(&stream).and_then(|s| s.watermark()) {
            return Ok(Some(watermark));
        }
    }
    Ok(None)
}
