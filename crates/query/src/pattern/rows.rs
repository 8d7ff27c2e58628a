//! The rows of a partition, with the conditions on them.
//!
//! A condition that does not read previously matched rows is computed for all rows of a partition
//! at once; any other condition is computed per thread, from the thread's past in
//! [`super::lookback`].

use super::lookback::{Lookback, PastId};
use super::machine::Rows;
use super::node::{PatternSpec, Slot};
use super::tally::{Cell, Column};
use crate::guards::checkpoint;
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
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use headwater::Timestamp;
use std::sync::Arc;

/// Bytes of a row of a past.
const NODE_BYTES: usize = 48;

/// A condition, and the slots that it reads.
#[derive(Clone, Debug)]
struct Condition {
    /// The expression; its columns are exactly those slots.
    expr: Arc<dyn PhysicalExpr>,
    slots: Vec<usize>,
    schema: SchemaRef,
    looks_back: bool,
}

/// The conditions of all symbols.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    of: Vec<Option<Condition>>,
    /// Slots through which conditions can distinguish pasts.
    distinguishing_slots: Vec<usize>,
}

/// Whether a slot concerns the row itself, if that row is a symbol.
pub(super) fn is_own(slot: &Slot, symbol: usize) -> bool {
    match slot {
        Slot::Value {
            of, first, steps, ..
        } => !first && *steps == 0 && of.as_ref().is_none_or(|of| of.contains(&symbol)),
        _ => false,
    }
}

impl Conditions {
    pub(super) fn new(
        spec: &PatternSpec,
        exprs: Vec<Option<Arc<dyn PhysicalExpr>>>,
    ) -> Result<Conditions> {
        let mut distinguishing_slots: Vec<usize> = Vec::new();
        let mut of = Vec::with_capacity(exprs.len());
        for (symbol, expr) in exprs.into_iter().enumerate() {
            let Some(expr) = expr else {
                of.push(None);
                continue;
            };
            let columns = collect_columns(&expr);
            let mut slots: Vec<usize> = columns.iter().map(|c| c.index()).collect();
            slots.sort_unstable();
            let mut looks_back = false;
            for at in &slots {
                let slot = spec.slots.get(*at);
                if slot.is_some_and(|slot| !is_own(slot, symbol)) {
                    looks_back = true;
                    if !distinguishing_slots.contains(at) {
                        distinguishing_slots.push(*at);
                    }
                }
            }
            let schema = Arc::new(spec.slot_schema.inner().project(&slots)?);
            of.push(Some(Condition {
                expr: reassign_expr_columns(expr, &schema)?,
                slots,
                schema,
                looks_back,
            }));
        }
        Ok(Conditions {
            of,
            distinguishing_slots,
        })
    }
}

/// A partition, or a part of it.
pub(super) struct Run<'a> {
    pub(super) spec: &'a PatternSpec,
    conditions: &'a Conditions,
    /// Number of available rows.
    pub(super) count: usize,
    /// Matches end before this row.
    pub(super) end: usize,
    /// True if the first row is the first of the partition.
    begins: bool,
    /// Values of the expressions over rows.
    pub(super) columns: Vec<ArrayRef>,
    /// Columns that slots tally.
    pub(super) tallies: Vec<Option<Column>>,
    slot_schema: SchemaRef,
    /// Per symbol, whether each row may be that symbol.
    plain: Vec<Option<BooleanArray>>,
    lookback: Lookback,
    /// Rows at which a match may begin, if known for all rows at once.
    may_begin: Option<BooleanBuffer>,
    times: Option<Int64Array>,
    reserved: &'a MemoryReservation,
    /// The number of the next match.
    pub(super) number: i64,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        spec: &'a PatternSpec,
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
        let tallies = spec.slots.iter().map(|slot| match slot {
            Slot::Tally { tally, value, .. } => {
                let value = value.and_then(|at| columns.get(at));
                Column::new(*tally, value).map(Some)
            }
            _ => Ok(None),
        });
        let mut run = Run {
            tallies: tallies.collect::<Result<_>>()?,
            spec,
            conditions,
            count,
            end: count,
            begins: true,
            columns,
            slot_schema: Arc::clone(spec.slot_schema.inner()),
            plain: Vec::new(),
            lookback: Lookback::new(&spec.slots, &conditions.distinguishing_slots),
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

    /// The rows that may be a symbol with which a match begins; `None` if that depends on more than
    /// the row, or a match may be empty.
    fn beginnings(&self) -> Option<BooleanBuffer> {
        if self.spec.program.may_be_empty() {
            return None;
        }
        let mut firsts = Vec::new();
        self.spec.regex.firsts(&mut firsts);
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

    /// The next row at which a match may begin, or `limit`.
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

    /// The same rows as a later part of the partition.
    pub(super) fn going_on(mut self) -> Run<'a> {
        self.begins = false;
        self
    }

    /// The first row whose time is not before an instant; times are sorted ascending.
    pub(super) fn row_of(&self, at: Timestamp) -> usize {
        let times = self.times.as_ref();
        times.map_or(0, |times| {
            times.values().partition_point(|time| *time < at.as_nanos())
        })
    }

    /// The time of a row, if the length of matches is bounded.
    pub(super) fn time_ns(&self, row: usize) -> Option<i64> {
        let times = self.times.as_ref()?;
        (row < times.len() && times.is_valid(row)).then(|| times.value(row))
    }

    /// Values of a condition for all rows.
    fn all(&self, condition: &Condition) -> Result<BooleanArray> {
        let columns = condition.slots.iter().zip(condition.schema.fields());
        let columns = columns.map(|(at, field)| match self.spec.slots.get(*at) {
            Some(Slot::Value { column, shift, .. }) => self.moved(*column, *shift),
            _ => Ok(new_null_array(field.data_type(), self.count)),
        });
        truth(condition, columns.collect::<Result<_>>()?, self.count)
    }

    /// The row `shift` rows further, if it is in the partition.
    pub(super) fn shifted(&self, row: usize, shift: i64) -> Cell {
        let row = i64::try_from(row)
            .ok()
            .and_then(|row| row.checked_add(shift));
        let row = row.and_then(|row| usize::try_from(row).ok());
        row.filter(|row| *row < self.count)
            .map_or(Cell::Absent, Cell::Row)
    }

    /// A column shifted by `by` rows.
    fn moved(&self, column: usize, by: i64) -> Result<ArrayRef> {
        let Some(column) = self.columns.get(column) else {
            return Err(crate::Error::internal("a column of a pattern is not there").into());
        };
        Ok(match by {
            0 => Arc::clone(column),
            by => shift(column, by.saturating_neg())?,
        })
    }

    fn column_of_cells(&self, column: usize, cells: &[Cell]) -> Result<ArrayRef> {
        let Some(column) = self.columns.get(column) else {
            return Err(crate::Error::internal("a column of a pattern is not there").into());
        };
        let rows = cells.iter().map(|cell| match cell {
            Cell::Row(row) => u64::try_from(*row).ok(),
            _ => None,
        });
        Ok(take(column, &rows.collect::<UInt64Array>(), None)?)
    }

    /// Cells of a slot as a column.
    pub(super) fn column(&self, at: usize, cells: &[Cell]) -> Result<ArrayRef> {
        Ok(match self.spec.slots.get(at) {
            Some(Slot::Value { column, .. }) => self.column_of_cells(*column, cells)?,
            Some(Slot::Tally {
                value: Some(value), ..
            }) if cells.iter().any(|cell| matches!(cell, Cell::Row(_))) => {
                self.column_of_cells(*value, cells)?
            }
            Some(Slot::Classifier) => {
                let texts = cells.iter().map(|cell| match cell {
                    Cell::Symbol(symbol) => self
                        .spec
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

    /// Cell of a slot if the last row so far is a symbol.
    fn cell(&self, at: usize, symbol: usize, row: usize, past: PastId) -> Result<Cell> {
        Ok(match self.spec.slots.get(at) {
            Some(slot @ Slot::Value { shift, .. }) if is_own(slot, symbol) => {
                self.shifted(row, *shift)
            }
            Some(Slot::Value {
                first,
                steps,
                shift,
                ..
            }) => {
                let found = self.lookback.row(at, (*first, *steps), past, (symbol, row));
                found.map_or(Cell::Absent, |row| self.shifted(row, *shift))
            }
            Some(Slot::Tally { tally, .. }) => match self.tallies.get(at) {
                Some(Some(column)) => {
                    let sum = self.lookback.tallied(at, past, (symbol, row), column)?;
                    sum.cell(*tally, column)?
                }
                _ => Cell::Absent,
            },
            Some(Slot::Number) => Cell::Whole(self.number),
            _ => Cell::Absent,
        })
    }

    /// Value of a slot as a column of one row.
    fn value(&self, at: usize, cell: Cell, of: &DataType) -> Result<ArrayRef> {
        let column = match self.spec.slots.get(at) {
            Some(Slot::Value { column, .. }) => Some(*column),
            Some(Slot::Tally { value, .. }) => *value,
            _ => None,
        };
        match (cell, column.and_then(|column| self.columns.get(column))) {
            (Cell::Row(row), Some(column)) => Ok(column.slice(row, 1)),
            (Cell::Absent, _) => Ok(new_null_array(of, 1)),
            _ => self.column(at, &[cell]),
        }
    }
}

/// Values of a condition for `count` rows of its slots.
fn truth(condition: &Condition, columns: Vec<ArrayRef>, count: usize) -> Result<BooleanArray> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
    let schema = Arc::clone(&condition.schema);
    let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
    let truth = condition.expr.evaluate(&batch)?.into_array(count)?;
    Ok(cast(&truth, &DataType::Boolean)?.as_boolean().clone())
}

impl Rows for Run<'_> {
    fn end(&self) -> usize {
        self.end
    }

    fn is_first(&self, row: usize) -> bool {
        self.begins && row == 0
    }

    type Past = PastId;

    fn begin(&mut self) -> Result<PastId> {
        self.lookback.begin()
    }

    fn with(&mut self, past: PastId, symbol: usize, row: usize) -> Result<PastId> {
        match self.lookback.is_needed() {
            true => self.lookback.with(past, symbol, row, &self.tallies),
            false => Ok(past),
        }
    }

    fn may_be(&mut self, symbol: usize, row: usize, past: PastId) -> Result<bool> {
        let Some(Some(condition)) = self.conditions.of.get(symbol) else {
            return Ok(true);
        };
        if let Some(Some(plain)) = self.plain.get(symbol) {
            return Ok(plain.is_valid(row) && plain.value(row));
        }
        checkpoint()?;
        let columns = condition.slots.iter().zip(condition.schema.fields());
        let columns = columns.map(|(at, field)| {
            let cell = self.cell(*at, symbol, row, past)?;
            self.value(*at, cell, field.data_type())
        });
        let truth = truth(condition, columns.collect::<Result<_>>()?, 1)?;
        Ok(truth.is_valid(0) && truth.value(0))
    }

    fn reaches(&self, start: usize, row: usize) -> bool {
        match (&self.times, self.spec.within) {
            (Some(times), Some(within)) => {
                let (begin, end) = (i128::from(times.value(start)), i128::from(times.value(row)));
                times.is_valid(row) && (end - begin).abs() <= i128::from(within)
            }
            _ => true,
        }
    }

    fn looks_back(&self) -> bool {
        self.lookback.is_needed()
    }

    fn append_key(&self, past: PastId, key: &mut Vec<i128>) {
        for at in &self.conditions.distinguishing_slots {
            if let Some(slot) = self.spec.slots.get(*at) {
                self.lookback.append_key(*at, slot, past, key);
            }
        }
    }

    fn reserve_nodes(&mut self, nodes: usize) -> Result<()> {
        checkpoint()?;
        let bytes = nodes.saturating_mul(NODE_BYTES);
        let bytes = bytes.saturating_add(self.lookback.bytes());
        let more = bytes.saturating_sub(self.reserved.size());
        self.reserved.try_grow(more)
    }
}
