//! The rows of a partition, and what is true of them.
//!
//! A condition that asks nothing of what was matched before its row is computed for all rows of a
//! partition at once; another one whenever a thread comes to it.

use super::machine::{Past, Rows};
use super::node::{Asked, Slot};
use super::tally::{Cell, Column, Sum};
use crate::fences::checkpoint;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    UInt64Array, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::window::shift;
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use headwater::Timestamp;
use std::sync::Arc;

/// Bytes of a row of a past.
const NODE_BYTES: usize = 48;

/// A condition, and what it asks for.
#[derive(Clone, Debug)]
struct Condition {
    expr: Arc<dyn PhysicalExpr>,
    slots: Vec<usize>,
    looks_back: bool,
}

/// The conditions of all symbols.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    of: Vec<Option<Condition>>,
    /// Slots by which conditions can tell pasts from each other.
    tell: Vec<Slot>,
}

/// Whether a slot is about the row itself, where that is a symbol.
pub(super) fn is_own(slot: &Slot, symbol: usize) -> bool {
    match slot {
        Slot::Value {
            of, first, steps, ..
        } => !first && *steps == 0 && of.as_ref().is_none_or(|of| of.contains(&symbol)),
        _ => false,
    }
}

impl Conditions {
    pub(super) fn new(asked: &Asked, exprs: Vec<Option<Arc<dyn PhysicalExpr>>>) -> Conditions {
        let mut tell: Vec<Slot> = Vec::new();
        let mut of = Vec::with_capacity(exprs.len());
        for (symbol, expr) in exprs.into_iter().enumerate() {
            of.push(expr.map(|expr| {
                let mut slots: Vec<usize> =
                    collect_columns(&expr).iter().map(|c| c.index()).collect();
                slots.sort_unstable();
                let foreign = slots.iter().filter_map(|at| asked.slots.get(*at));
                let foreign = foreign.filter(|slot| !is_own(slot, symbol));
                let before = tell.len();
                let mut looks_back = false;
                for slot in foreign {
                    looks_back = true;
                    if !tell.contains(slot) {
                        tell.push(slot.clone());
                    }
                }
                debug_assert!(tell.len() >= before);
                Condition {
                    expr,
                    slots,
                    looks_back,
                }
            }));
        }
        Conditions { of, tell }
    }
}

/// A partition, or a stretch of it.
pub(super) struct Run<'a> {
    pub(super) asked: &'a Asked,
    conditions: &'a Conditions,
    /// Rows that are there.
    pub(super) count: usize,
    /// Matches end before this row.
    pub(super) end: usize,
    /// The first row is that of the partition.
    begins: bool,
    /// What is computed of each row.
    pub(super) columns: Vec<ArrayRef>,
    /// What slots tally.
    pub(super) tallies: Vec<Option<Column>>,
    slot_schema: SchemaRef,
    /// Of each symbol, whether each row may be it.
    plain: Vec<Option<BooleanArray>>,
    /// Rows that a match may begin at, where that is known of all rows at once.
    may_begin: Option<BooleanBuffer>,
    times: Option<Int64Array>,
    reserved: &'a MemoryReservation,
    /// The number of the match that is looked for.
    pub(super) number: i64,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        asked: &'a Asked,
        conditions: &'a Conditions,
        batch: &RecordBatch,
        rows: &[Arc<dyn PhysicalExpr>],
        times: Option<&Arc<dyn PhysicalExpr>>,
        reserved: &'a MemoryReservation,
    ) -> Result<Run<'a>> {
        let count = batch.num_rows();
        let value = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(count);
        let columns: Vec<ArrayRef> = rows.iter().map(value).collect::<Result<_>>()?;
        let times = match times {
            None => None,
            Some(times) => {
                let times = cast(&value(times)?, &DataType::Int64)?;
                Some(times.as_primitive::<arrow::datatypes::Int64Type>().clone())
            }
        };
        let tallies = asked.slots.iter().map(|slot| match slot {
            Slot::Tally { what, value, .. } => {
                let value = value.and_then(|at| columns.get(at));
                Column::new(*what, value).map(Some)
            }
            _ => Ok(None),
        });
        let mut run = Run {
            tallies: tallies.collect::<Result<_>>()?,
            asked,
            conditions,
            count,
            end: count,
            begins: true,
            columns,
            slot_schema: Arc::clone(asked.slot_schema.inner()),
            plain: Vec::new(),
            may_begin: None,
            times,
            reserved,
            number: 0,
        };
        let plain = conditions.of.iter().map(|condition| match condition {
            Some(condition) if !condition.looks_back => run.all(condition).map(Some),
            _ => Ok(None),
        });
        run.plain = plain.collect::<Result<_>>()?;
        run.may_begin = run.beginnings();
        Ok(run)
    }

    /// The rows that may be one of the symbols which a match begins with; `None` where that depends
    /// on more than the row, or a match may have no row.
    fn beginnings(&self) -> Option<BooleanBuffer> {
        if self.asked.program.may_be_empty() {
            return None;
        }
        let mut firsts = Vec::new();
        self.asked.regex.firsts(&mut firsts);
        let mut all: Option<BooleanBuffer> = None;
        for symbol in firsts {
            let plain = self.plain.get(symbol)?.as_ref()?;
            let own = match plain.nulls() {
                Some(nulls) => plain.values() & nulls.inner(),
                None => plain.values().clone(),
            };
            all = Some(match all {
                Some(all) => &all | &own,
                None => own,
            });
        }
        all
    }

    /// The first row from one on that a match may begin at, or `limit`.
    pub(super) fn next_beginning(&self, from: usize, limit: usize) -> usize {
        match &self.may_begin {
            Some(may_begin) => {
                let mut rows = from..limit.min(may_begin.len());
                rows.find(|row| may_begin.value(*row))
                    .unwrap_or_else(|| limit.max(from))
            }
            None => from,
        }
    }

    /// The same rows as a stretch with others before it.
    pub(super) fn going_on(mut self) -> Run<'a> {
        self.begins = false;
        self
    }

    /// The first row whose time is not before an instant; times rise.
    pub(super) fn row_of(&self, at: Timestamp) -> usize {
        let times = self.times.as_ref();
        times.map_or(0, |times| {
            times.values().partition_point(|time| *time < at.as_nanos())
        })
    }

    /// The time of a row, where the length of matches is bounded.
    pub(super) fn time_ns(&self, row: usize) -> Option<i64> {
        let times = self.times.as_ref()?;
        (row < times.len() && times.is_valid(row)).then(|| times.value(row))
    }

    /// A condition, for every row.
    fn all(&self, condition: &Condition) -> Result<BooleanArray> {
        let columns = self
            .slot_schema
            .fields()
            .iter()
            .enumerate()
            .map(|(at, field)| {
                let slot = self
                    .asked
                    .slots
                    .get(at)
                    .filter(|_| condition.slots.contains(&at));
                match slot {
                    Some(Slot::Value { column, shift, .. }) => self.moved(*column, *shift),
                    _ => Ok(new_null_array(field.data_type(), self.count)),
                }
            });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        self.truth(condition, columns, self.count)
    }

    fn truth(
        &self,
        condition: &Condition,
        columns: Vec<ArrayRef>,
        count: usize,
    ) -> Result<BooleanArray> {
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::clone(&self.slot_schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let truth = condition.expr.evaluate(&batch)?.into_array(count)?;
        Ok(cast(&truth, &DataType::Boolean)?.as_boolean().clone())
    }

    /// The row so many rows further, where the partition has it.
    pub(super) fn shifted(&self, row: usize, shift: i64) -> Cell {
        let row = i64::try_from(row)
            .ok()
            .and_then(|row| row.checked_add(shift));
        let row = row.and_then(|row| usize::try_from(row).ok());
        row.filter(|row| *row < self.count)
            .map_or(Cell::Absent, Cell::Row)
    }

    /// Of every row what a column has so many rows further.
    fn moved(&self, column: usize, by: i64) -> Result<ArrayRef> {
        let Some(column) = self.columns.get(column) else {
            return Err(crate::Error::internal("a column of a pattern is not there").into());
        };
        Ok(match by {
            0 => Arc::clone(column),
            by => shift(column, by.saturating_neg())?,
        })
    }

    fn taken(&self, column: usize, cells: &[Cell]) -> Result<ArrayRef> {
        let Some(column) = self.columns.get(column) else {
            return Err(crate::Error::internal("a column of a pattern is not there").into());
        };
        let rows = cells.iter().map(|cell| match cell {
            Cell::Row(row) => u64::try_from(*row).ok(),
            _ => None,
        });
        Ok(take(column, &rows.collect::<UInt64Array>(), None)?)
    }

    /// What cells of a slot are, as a column.
    pub(super) fn column(&self, at: usize, cells: &[Cell]) -> Result<ArrayRef> {
        Ok(match self.asked.slots.get(at) {
            Some(Slot::Value { column, .. }) => self.taken(*column, cells)?,
            Some(Slot::Tally {
                value: Some(value), ..
            }) if cells.iter().any(|cell| matches!(cell, Cell::Row(_))) => {
                self.taken(*value, cells)?
            }
            Some(Slot::Classifier) => {
                let texts = cells.iter().map(|cell| match cell {
                    Cell::Symbol(symbol) => self
                        .asked
                        .symbols
                        .get(*symbol)
                        .map(|name| name.to_uppercase()),
                    _ => None,
                });
                Arc::new(texts.collect::<StringArray>())
            }
            _ => {
                let field = self.slot_schema.field(at);
                match field.data_type() {
                    DataType::Int64 => {
                        let wholes = cells.iter().map(|cell| match cell {
                            Cell::Whole(whole) => Some(*whole),
                            _ => None,
                        });
                        Arc::new(wholes.collect::<Int64Array>())
                    }
                    DataType::Float64 => {
                        let floats = cells.iter().map(|cell| match cell {
                            Cell::Float(float) => Some(*float),
                            _ => None,
                        });
                        Arc::new(floats.collect::<Float64Array>())
                    }
                    of => new_null_array(of, cells.len()),
                }
            }
        })
    }

    /// What a slot has, after these symbols from a row on.
    fn cell(&self, at: usize, symbols: &[usize], start: usize) -> Result<Cell> {
        Ok(match self.asked.slots.get(at) {
            Some(Slot::Value {
                of,
                first,
                steps,
                shift,
                ..
            }) => {
                let is_of = |(_, symbol): &(usize, &usize)| {
                    of.as_ref().is_none_or(|of| of.contains(symbol))
                };
                let mut places = symbols.iter().enumerate().filter(is_of);
                let place = match first {
                    true => places.nth(*steps),
                    false => places.rev().nth(*steps),
                };
                place.map_or(Cell::Absent, |(place, _)| {
                    self.shifted(start + place, *shift)
                })
            }
            Some(Slot::Tally { what, of, .. }) => {
                let Some(Some(column)) = self.tallies.get(at) else {
                    return Ok(Cell::Absent);
                };
                let mut sum = Sum::default();
                for (place, symbol) in symbols.iter().enumerate() {
                    if of.as_ref().is_none_or(|of| of.contains(symbol)) {
                        sum.add(*what, column, start + place)?;
                    }
                }
                sum.cell(*what, column)?
            }
            Some(Slot::Number) => Cell::Whole(self.number),
            _ => Cell::Absent,
        })
    }
}

impl Rows for Run<'_> {
    fn end(&self) -> usize {
        self.end
    }

    fn is_first(&self, row: usize) -> bool {
        self.begins && row == 0
    }

    fn may_be(&mut self, symbol: usize, row: usize, start: usize, past: &Past<'_>) -> Result<bool> {
        let Some(Some(condition)) = self.conditions.of.get(symbol) else {
            return Ok(true);
        };
        if let Some(Some(plain)) = self.plain.get(symbol) {
            return Ok(plain.is_valid(row) && plain.value(row));
        }
        checkpoint()?;
        let mut symbols = past.symbols();
        symbols.push(symbol);
        let columns =
            self.slot_schema
                .fields()
                .iter()
                .enumerate()
                .map(|(at, field)| match condition.slots.contains(&at) {
                    true => self.column(at, &[self.cell(at, &symbols, start)?]),
                    false => Ok(new_null_array(field.data_type(), 1)),
                });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let truth = self.truth(condition, columns, 1)?;
        Ok(truth.is_valid(0) && truth.value(0))
    }

    fn reaches(&self, start: usize, row: usize) -> bool {
        match (&self.times, self.asked.within) {
            (Some(times), Some(within)) => {
                let (begin, end) = (i128::from(times.value(start)), i128::from(times.value(row)));
                times.is_valid(row) && (end - begin).abs() <= i128::from(within)
            }
            _ => true,
        }
    }

    fn looks_back(&self) -> bool {
        !self.conditions.tell.is_empty()
    }

    fn key(&self, past: &[usize]) -> Vec<usize> {
        let mut key = Vec::new();
        for slot in &self.conditions.tell {
            let (of, most, first) = match slot {
                Slot::Value {
                    of: Some(of),
                    first,
                    steps,
                    ..
                } => (of, steps + 1, *first),
                Slot::Tally { of: Some(of), .. } => (of, usize::MAX, true),
                // Of all rows, which are the same for all threads.
                _ => continue,
            };
            let places = past
                .iter()
                .enumerate()
                .filter(|(_, symbol)| of.contains(symbol));
            let places = places.map(|(place, _)| place);
            // One behind the last place ends the list.
            match first {
                true => key.extend(places.take(most)),
                false => key.extend(places.rev().take(most)),
            }
            key.push(usize::MAX);
        }
        key
    }

    fn holds_nodes(&mut self, nodes: usize) -> Result<()> {
        checkpoint()?;
        let bytes = nodes.saturating_mul(NODE_BYTES);
        let more = bytes.saturating_sub(self.reserved.size());
        self.reserved.try_grow(more)
    }
}
