//! The newest value of each field.

use super::ends::{self, RangeEnd};
use super::merge::{Merge, Source};
use super::view::StreamView;
use super::walk::{Visit, Walk};
use crate::Result;
use crate::metadata::catalog::Field;
use crate::storage::segment::{LeafEntry, Partition, StreamContents};
use headwater_codec::Cursor;
use headwater_codec::light::decode_rows;
use headwater_types::{ClosedRange, Column, FieldId, Rows, Timestamp, Value};
use std::sync::Arc;

/// The newest value of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct LastValue {
    /// The field.
    pub field: String,
    /// The time of the value.
    pub time: Timestamp,
    /// The value itself.
    pub value: Value,
}

/// The best value of one field so far. A later source with the same time wins.
#[derive(Clone, Debug, Default)]
struct BestValue(Option<(Timestamp, Value)>);

impl BestValue {
    fn offer(&mut self, time: Timestamp, value: impl FnOnce() -> Value) {
        if self.0.as_ref().is_none_or(|(t, _)| time >= *t) {
            self.0 = Some((time, value()));
        }
    }

    fn offer_rows(&mut self, rows: &Rows, field: FieldId) -> bool {
        let Some(column) = rows.column(field) else {
            return false;
        };
        self.offer_column(&rows.times, column, 0, |value| value)
    }

    /// Offers the newest present value of a column; its rows from `start` on have these times.
    fn offer_column(
        &mut self,
        times: &[i64],
        column: &Column,
        start: usize,
        in_type: impl FnOnce(Value) -> Value,
    ) -> bool {
        let mut rows = times.iter().enumerate().rev();
        let Some((row, time)) = rows.find(|(row, _)| column.is_present(start + row)) else {
            return false;
        };
        if let Some(value) = column.get(start + row) {
            self.offer(Timestamp::from_nanos(*time), || in_type(value.to_owned()));
        }
        true
    }
}

pub(crate) fn last(view: &StreamView) -> Result<Vec<LastValue>> {
    let fields: Vec<FieldId> = (0..view.table.fields.len())
        .map(|i| FieldId(i as u32))
        .collect();
    if view.now.is_some() {
        return last_of_expiring(view, &fields);
    }
    let newest = newest(view, &fields)?;
    Ok(named_values(view.table.fields.iter().zip(newest)))
}

/// The newest value of each of the fields, where nothing of the table expires.
pub(super) fn newest(
    view: &StreamView,
    fields: &[FieldId],
) -> Result<Vec<Option<(Timestamp, Value)>>> {
    let mut stored = vec![BestValue::default(); fields.len()];
    let memory = newest_in_memory(view, fields);
    let partitions = view.partitions_in(&ClosedRange::ALL);
    for partition in partitions.iter().rev() {
        let last = partition.span().last;
        let is_known = |(stored, memory): (&BestValue, &BestValue)| {
            let newer = memory.0.as_ref().is_some_and(|(time, _)| *time > last);
            newer || stored.0.is_some()
        };
        if stored.iter().zip(&memory).all(is_known) {
            break;
        }
        let Some(state) = view.state(partition)? else {
            continue;
        };
        // Decoded once for all fields.
        let newest = newest_row(view, partition, &state)?;
        for (field, best) in fields.iter().zip(&mut stored) {
            // Partitions are disjoint in time: the newest one with a value has the newest value.
            if best.0.is_none() {
                *best = in_partition(view, partition, &state, newest.as_ref(), *field)?;
            }
        }
    }
    let both = stored.into_iter().zip(memory);
    Ok(both
        .map(|(mut best, memory)| {
            if let Some((time, value)) = memory.0 {
                best.offer(time, || value);
            }
            best.0
        })
        .collect())
}

/// The newest values that have not expired.
fn last_of_expiring(view: &StreamView, fields: &[FieldId]) -> Result<Vec<LastValue>> {
    let newest = ends::values(view, fields, &ClosedRange::ALL, RangeEnd::Last)?;
    Ok(named_values(view.table.fields.iter().zip(newest)))
}

fn named_values<'a>(
    values: impl Iterator<Item = (&'a Field, Option<(Timestamp, Value)>)>,
) -> Vec<LastValue> {
    let named = values.filter_map(|(field, newest)| {
        let (time, value) = newest?;
        Some(LastValue {
            field: field.name.clone(),
            time,
            value,
        })
    });
    named.collect()
}

fn newest_in_memory(view: &StreamView, fields: &[FieldId]) -> Vec<BestValue> {
    // Sort key: time, sequence, row.
    type Key = (Timestamp, u64, usize);
    let mut best: Vec<(Option<Key>, BestValue)> = vec![(None, BestValue::default()); fields.len()];
    for chunk in &view.chunks {
        for (field, (key, best)) in fields.iter().zip(&mut best) {
            let Some(column) = chunk.rows.column(*field) else {
                continue;
            };
            if key.is_some_and(|(time, ..)| chunk.span.last < time) {
                continue;
            }
            for row in (0..chunk.len()).rev() {
                let sequence = chunk.sequences.get(row);
                let (Some(time), true) = (chunk.rows.times.get(row), sequence <= view.sequence)
                else {
                    continue;
                };
                let time = Timestamp::from_nanos(*time);
                if !column.is_present(row) {
                    continue;
                }
                let candidate = (time, sequence.0, row);
                if key.is_none_or(|k| candidate > k)
                    && let Some(value) = column.get(row)
                {
                    *key = Some(candidate);
                    best.0 = Some((time, in_table_type(view, *field, value.to_owned())));
                }
                if chunk.sorted && key.is_some_and(|(t, ..)| time < t) {
                    break;
                }
            }
        }
    }
    best.into_iter().map(|(_, best)| best).collect()
}

fn in_table_type(view: &StreamView, field: FieldId, value: Value) -> Value {
    match (view.table.field(field).map(|f| f.field_type), value) {
        (Some(headwater_types::FieldType::F64), Value::I64(v)) => Value::F64(v as f64),
        (_, value) => value,
    }
}

/// The newest value of a field in a partition: main run first, then late runs, each of which wins
/// over the runs before it.
fn in_partition(
    view: &StreamView,
    partition: &Arc<Partition>,
    state: &StreamContents,
    newest: Option<&Rows>,
    field: FieldId,
) -> Result<BestValue> {
    let mut best = BestValue::default();
    main_run(view, partition, state, newest, field, &mut best)?;
    for run in state.late() {
        backwards(view, partition, run, field, &mut best)?;
    }
    Ok(best)
}

/// The newest row of the main run, if it is stored separately and still valid.
fn newest_row(
    view: &StreamView,
    partition: &Partition,
    state: &StreamContents,
) -> Result<Option<Rows>> {
    let Some(bytes) = state.last_row() else {
        return Ok(None);
    };
    let hidden = view.hidden(partition);
    if state
        .main_end()
        .is_some_and(|end| hidden.touches(&ClosedRange::new(end, end)))
    {
        return Ok(None);
    }
    let rows = decode_rows(&mut Cursor::new(bytes)).map_err(|e| {
        crate::Error::decode(partition.file.path(), partition.record.footer_offset, e)
    })?;
    let columns = rows
        .columns
        .into_iter()
        .map(|(f, c)| (f, crate::memory::in_table_type(c, &view.table, f)));
    Ok(Some(Rows {
        times: rows.times,
        columns: columns.collect(),
    }))
}

fn main_run(
    view: &StreamView,
    partition: &Partition,
    state: &StreamContents,
    newest: Option<&Rows>,
    field: FieldId,
    best: &mut BestValue,
) -> Result<()> {
    if newest.is_some_and(|rows| best.offer_rows(rows, field)) {
        return Ok(());
    }
    // The newest bucket in which the field has a value bounds the search.
    if let Some(walk) = Walk::of_main_run(view, partition, state, ClosedRange::ALL) {
        let mut newest: Option<ClosedRange> = None;
        let fields = [field];
        let to_read = walk.only(&fields).run(&mut |seen| {
            if seen.aggregate(field).is_some() && newest.is_none_or(|n| seen.span.first > n.first) {
                newest = Some(seen.span);
            }
            Visit::Done
        })?;
        let mut spans: Vec<ClosedRange> = to_read.into_iter().chain(newest).collect();
        spans.sort_by_key(|s| std::cmp::Reverse(s.first));
        for span in spans {
            let inside = state.leaves_in(&view.core.store, &span)?;
            if backwards(view, partition, &inside, field, best)? {
                return Ok(());
            }
        }
        return Ok(());
    }
    for stretch in state.stretches(ClosedRange::ALL).iter().rev() {
        let leaves = state.leaves_in(&view.core.store, stretch)?;
        if backwards(view, partition, &leaves, field, best)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Searches leaves from the newest to the oldest; true when there is a value.
fn backwards(
    view: &StreamView,
    partition: &Partition,
    leaves: &[LeafEntry],
    field: FieldId,
    best: &mut BestValue,
) -> Result<bool> {
    let fields = [field];
    let (store, id, table) = (&view.core.store, partition.id(), &view.table);
    let hidden = view.hidden(partition);
    for leaf in leaves.iter().rev() {
        if !hidden.touches(&leaf.range()) {
            // The rows of a leaf are sorted and merged already, and mostly the newest one has a
            // value.
            let count = leaf.count as usize;
            let newest = count.saturating_sub(1);
            let mut found = false;
            for rows in [newest..count, 0..newest] {
                if !found && !rows.is_empty() {
                    let rows = store.leaf_columns(id, leaf, rows, &fields)?;
                    found = rows.column(field).is_some_and(|column| {
                        best.offer_column(rows.times(), column, rows.rows().start, |value| {
                            in_table_type(view, field, value)
                        })
                    });
                }
            }
            if found {
                return Ok(true);
            }
            continue;
        }
        let sources = vec![Source::leaves(id, [*leaf]).without(hidden.clone())];
        let range = ClosedRange::ALL;
        let mut merge = Merge::new(store, table, range, Some(&fields), sources);
        let mut found = false;
        while let Some(rows) = merge.next_rows()? {
            found |= best.offer_rows(&rows, field);
        }
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}
