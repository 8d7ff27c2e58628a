//! Checks the rows of a batch against their tables and limits, and plans new definitions.
//!
//! Invariants: a refused row affects only itself; the rest fits the present table, with the
//! additions of the plan. No definition is planned for a refused row: definitions are planned last,
//! when no other check can refuse the row.

use super::entry::{EntryCheck, field_at};
use super::gathered::GroupedBatch;
use super::plan::Plan;
use super::pressure::aged_stretches;
use super::refusals::{mixed_types, refuse_inexact};
use crate::common::ids::StreamId;
use crate::common::ranges::contains_instant;
use crate::common::refused::{
    REFUSED_ENDED, REFUSED_FIELDS, REFUSED_FUTURE, REFUSED_NAME, REFUSED_STREAMS, REFUSED_STRING,
    REFUSED_TYPE, Refused,
};
use crate::core::Core;
use crate::maintenance::retention::review_cutoffs;
use crate::metadata::catalog::{Cutoff, Table, check_name, check_tag_value, stream_key};
use crate::read::unreadable::refuse_unreadable;
use crate::{Error, Result};
use headwater_types::{
    Column, FieldId, FieldType, Rows, StreamName, StreamRows, Timestamp, Values,
};
use std::sync::Arc;

/// Valid part of an entry.
pub(super) struct CheckedEntry {
    pub(super) table: Arc<Table>,
    /// `None` = it must be defined.
    pub(super) stream: Option<StreamId>,
    pub(super) rows: Rows,
    /// The rows' positions in the entry; `None` = all rows.
    pub(super) valid_rows: Option<Vec<usize>>,
}

/// Checks one entry against its table and plans the definitions that it needs; `key` receives the
/// stream's key bytes. `None` without any valid row.
pub(super) fn check_entry(
    gathered: &GroupedBatch<'_>,
    plan: &mut Plan<'_>,
    index: usize,
    entry: StreamRows,
    refused: &mut Vec<Refused>,
    key: &mut Vec<u8>,
) -> Result<Option<CheckedEntry>> {
    let core = gathered.core;
    let StreamRows {
        name,
        times,
        fields,
    } = entry;
    let mut accepting = EntryCheck {
        entry: index,
        rows: times.len(),
        good: Vec::new(),
        refused: Vec::new(),
    };
    check_lengths((index, &name), &times, &fields)?;
    let mut table = plan.find(name.table());
    // Existing definitions have valid names.
    let fits = table.as_ref().is_some_and(|t| fits(t, &fields));
    check_contents(core, (&name, &times, &fields), fits, &mut accepting);
    if let Some(known) = &mut table {
        check_ended(core, known, &times, &mut accepting)?;
    }
    let mut stream = None;
    if accepting.any_good() {
        if !fits {
            table = plan.begin(name.table())?;
        }
        stream = check_storable(
            (gathered, plan),
            table.as_ref(),
            (&name, &times),
            &mut accepting,
            key,
        )?;
    }
    if !fits && accepting.any_good() {
        table = plan.add(
            gathered,
            table,
            (name.table(), index),
            &fields,
            &mut accepting,
        )?;
    }
    let columns = match &table {
        Some(table) if accepting.any_good() => fit_columns(table, fields, &mut accepting),
        _ => Vec::new(),
    };
    if let Some(table) = &table {
        plan.remember(table);
    }
    let valid_rows = valid_rows(&accepting);
    refused.append(&mut accepting.refused);
    let Some(table) = table.filter(|_| accepting.any_good()) else {
        return Ok(None);
    };
    let rows = good_rows((index, &name), times, columns, valid_rows.as_deref())?;
    if stream.is_none() {
        plan.note_new_stream(table.id, key);
    }
    Ok(Some(CheckedEntry {
        table,
        stream,
        rows,
        valid_rows,
    }))
}

/// Refuses an entry whose columns and timestamps differ in the number of rows.
fn check_lengths(
    (index, name): (usize, &StreamName),
    times: &[i64],
    fields: &[(String, Column)],
) -> Result<()> {
    if let Some((field, column)) = fields.iter().find(|(_, c)| c.len() != times.len()) {
        return Err(Error::invalid(format!(
            "entry {index} ({name}): field `{field}` has {} rows, the entry has {} timestamps",
            column.len(),
            times.len()
        )));
    }
    Ok(())
}

/// Refuses rows for their names, times and texts, without the table. `fits` = the names of table
/// and fields are those of existing ones.
fn check_contents(
    core: &Core,
    (name, times, fields): (&StreamName, &[i64], &[(String, Column)]),
    fits: bool,
    accepting: &mut EntryCheck,
) {
    check_tags(name, accepting);
    if !fits {
        check_names(name, fields, accepting);
    }
    check_times(core, times, accepting);
    check_strings(core, fields, accepting);
}

/// Lists the positions of the valid rows; `None` = all are valid.
fn valid_rows(accepting: &EntryCheck) -> Option<Vec<usize>> {
    (!accepting.good.is_empty()).then(|| {
        let good = accepting.good.iter().enumerate();
        good.filter(|(_, g)| **g).map(|(i, _)| i).collect()
    })
}

/// Collects the valid rows of an entry to be stored; a field may occur once.
fn good_rows(
    (index, name): (usize, &StreamName),
    times: Vec<i64>,
    mut columns: Vec<(FieldId, Column)>,
    kept: Option<&[usize]>,
) -> Result<Rows> {
    columns.sort_by_key(|(f, _)| *f);
    if columns
        .windows(2)
        .any(|w| matches!(w, [a, b] if a.0 == b.0))
    {
        return Err(Error::invalid(format!(
            "entry {index} ({name}): a field is specified more than once"
        )));
    }
    let mut rows = Rows { times, columns };
    if let Some(kept) = kept {
        let picked: Vec<u32> = kept.iter().map(|k| *k as u32).collect();
        rows = rows.gather(&picked);
    }
    rows.columns.retain(|(_, c)| c.present_count() > 0);
    Ok(rows)
}

/// Finds the stream, and refuses rows that cannot be stored at their time: in a damaged partition,
/// in a stretch with only aggregates, or in one stream too many.
fn check_storable(
    (gathered, plan): (&GroupedBatch<'_>, &Plan<'_>),
    table: Option<&Arc<Table>>,
    (name, times): (&StreamName, &[i64]),
    accepting: &mut EntryCheck,
    key: &mut Vec<u8>,
) -> Result<Option<StreamId>> {
    let core = gathered.core;
    let id = table.map_or_else(|| plan.next_table(), |table| table.id);
    stream_key(id, name.tags(), key);
    let known = table.filter(|table| !plan.makes(table.id));
    if let Some(table) = known {
        let place = (core.shards.of_key(key), table.id);
        refuse_unreadable(core, place, times, |row, code, message| {
            accepting.refuse(row, code, || message);
        })?;
        if !accepting.any_good() {
            return Ok(None);
        }
        if let Some(stream) = gathered.find_stream(key)? {
            check_aged(core, table, stream, times, accepting)?;
            return Ok(Some(stream));
        }
    }
    if let Some(beyond) = plan.streams_beyond(id, key, gathered) {
        accepting.refuse_all(REFUSED_STREAMS, || beyond.clone());
    }
    Ok(None)
}

/// Refuses rows in a stretch with only aggregates: the rows that they replace are unknown.
fn check_aged(
    core: &Core,
    table: &Table,
    stream: StreamId,
    times: &[i64],
    accepting: &mut EntryCheck,
) -> Result<()> {
    if !table.lifetime.has_writable_aged_range() {
        return Ok(());
    }
    let stretches = aged_stretches(core, table.id, stream, times)?;
    if stretches.is_empty() {
        return Ok(());
    }
    for (row, time) in times.iter().enumerate() {
        if contains_instant(&stretches, Timestamp::from_nanos(*time)) {
            accepting.refuse(row, REFUSED_ENDED, || {
                format!(
                    "timestamp {time} lies where only aggregates of table `{}` remain, so the rows that it would replace are unknown: write newer rows, or write older data into another table",
                    table.name
                )
            });
        }
    }
    Ok(())
}

/// True when the table has all these fields with these types.
fn fits(table: &Table, fields: &[(String, Column)]) -> bool {
    fields.iter().enumerate().all(|(at, (name, column))| {
        field_at(table, at, name)
            .and_then(|id| table.field(id))
            .is_some_and(|f| f.field_type == column.field_type())
    })
}

fn check_tags(name: &StreamName, accepting: &mut EntryCheck) {
    let mut problem = None;
    for (key, value) in name.tags() {
        problem = problem.or(check_name("tag", key).err());
        problem = problem.or(check_tag_value(key, value).err());
    }
    if let Some(problem) = problem {
        for row in 0..accepting.rows {
            accepting.refuse(row, REFUSED_NAME, || problem.to_string());
        }
    }
}

fn check_names(name: &StreamName, fields: &[(String, Column)], accepting: &mut EntryCheck) {
    if let Err(problem) = check_name("table", name.table()) {
        for row in 0..accepting.rows {
            accepting.refuse(row, REFUSED_NAME, || problem.to_string());
        }
    }
    for (field, column) in fields {
        if let Err(problem) = check_name("field", field) {
            accepting.refuse_present(column, REFUSED_NAME, || problem.to_string());
        }
    }
}

fn check_times(core: &Core, times: &[i64], accepting: &mut EntryCheck) {
    let Some(ahead) = core.options.max_future else {
        return;
    };
    let now = core.env.clock.now().as_nanos();
    let limit = now.saturating_add(i64::try_from(ahead.as_nanos()).unwrap_or(i64::MAX));
    for (row, time) in times.iter().enumerate().filter(|(_, t)| **t > limit) {
        accepting.refuse(row, REFUSED_FUTURE, || {
            format!("timestamp {time} is more than {ahead:?} ahead of the clock ({now}): check the clock of the device")
        });
    }
}

/// Refuses rows where retention or aging has ended rows.
fn check_ended(
    core: &Core,
    table: &mut Arc<Table>,
    times: &[i64],
    accepting: &mut EntryCheck,
) -> Result<()> {
    let floor = table.lifetime.floor();
    let ended = |cutoff: Cutoff, time: i64| cutoff.ends(Timestamp::from_nanos(time));
    if !floor.is_set() || !times.iter().any(|time| ended(floor, *time)) {
        return Ok(());
    }
    // The clock may have been corrected, or the setting raised, since the cutoffs were computed.
    if review_cutoffs(core, table)?
        && let Some(reviewed) = core.catalog.table(table.id)
    {
        *table = reviewed;
    }
    let (lifetime, floor) = (&table.lifetime, table.lifetime.floor());
    let Some(first) = floor.instant() else {
        return Ok(());
    };
    for (row, time) in times.iter().enumerate().filter(|(_, t)| ended(floor, **t)) {
        accepting.refuse(row, REFUSED_ENDED, || {
            let what = if ended(lifetime.retention_cutoff, *time) {
                "the retention cutoff"
            } else {
                "the end of the aged range"
            };
            format!(
                "timestamp {time} lies before {}, {what} of table `{}`: check the clock of the device, raise the setting, or write older data into another table",
                first.as_nanos(),
                table.name
            )
        });
    }
    Ok(())
}

fn check_strings(core: &Core, fields: &[(String, Column)], accepting: &mut EntryCheck) {
    let max = core.options.string_bytes_max;
    for (field, column) in fields {
        if let Values::String(text) | Values::Bytes(text) = column.values() {
            for row in 0..text.len() {
                let len = text.get(row).len();
                if len > max {
                    accepting.refuse(row, REFUSED_STRING, || {
                        format!(
                            "field `{field}`: a value of {len} bytes, at most {max} are allowed"
                        )
                    });
                }
            }
        }
    }
}

/// Fits the columns of an entry to a table that has the additions of the plan.
fn fit_columns(
    table: &Table,
    fields: Vec<(String, Column)>,
    accepting: &mut EntryCheck,
) -> Vec<(FieldId, Column)> {
    let mut columns: Vec<(FieldId, Column)> = Vec::with_capacity(fields.len());
    for (at, (field, column)) in fields.into_iter().enumerate() {
        let place = field_at(table, at, &field);
        if let Some(column) = fit_column(table, place, &field, column, accepting) {
            columns.push(column);
        }
    }
    columns
}

/// The column in the type of its field; rows that do not fit are refused.
fn fit_column(
    table: &Table,
    place: Option<FieldId>,
    name: &str,
    column: Column,
    accepting: &mut EntryCheck,
) -> Option<(FieldId, Column)> {
    let Some((id, field)) = place.and_then(|id| Some((id, table.field(id)?))) else {
        accepting.refuse_present(&column, REFUSED_FIELDS, || {
            format!("table `{}` has no field `{name}`", table.name)
        });
        return None;
    };
    let (expected, found) = (field.field_type, column.field_type());
    if expected == found {
        return Some((id, column));
    }
    if expected == FieldType::F64 && found == FieldType::I64 {
        refuse_inexact(name, &column, accepting);
        return Some((id, column.widened_to_f64()));
    }
    accepting.refuse_present(&column, REFUSED_TYPE, || {
        mixed_types(table, name, expected, found)
    });
    // Rows without a value in this column are still valid.
    None
}
