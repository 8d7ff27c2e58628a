//! Rows of a subquery's answer, in memory.
//!
//! Invariants: the rows are sorted ascending by time; the row of an interval that begins before the
//! requested range is selected as if it were at the beginning of the range; rows are columns, which
//! the budget counts.

use super::arithmetic::number;
use super::field::ReadField;
use super::taker::Taker;
use super::{Cell, Series};
use crate::budget::Budget;
use crate::error::Error;
use headwater::{ClosedRange, Column, FieldType, ScanChunk, Value, ValueRef};

/// Memory of a value in a column, including its presence bit.
const CELL_BYTES: usize = 9;

/// Rows in memory: the answer of a subquery, sorted by time.
#[derive(Debug)]
pub(super) struct BufferedRows {
    pub(super) names: Vec<String>,
    pub(super) rows: ScanChunk,
    /// Beginning of the requested range.
    pub(super) since: i64,
}

impl BufferedRows {
    /// The rows of a range, with the requested columns; `tag` returns the columns of tags.
    pub(super) fn of(
        &self,
        read: &[ReadField],
        range: ClosedRange,
        tag: &dyn Fn(&str, usize) -> Column,
    ) -> ScanChunk {
        let times = &self.rows.times;
        let at = |time: &i64| (*time).max(self.since);
        let first = times.partition_point(|time| at(time) < range.first.as_nanos());
        let last = times.partition_point(|time| at(time) <= range.last.as_nanos());
        let rows = first..last.max(first);
        let column = |field: &ReadField| {
            if field.is_tag {
                return tag(&field.name, rows.len());
            }
            let at = self.names.iter().position(|name| *name == field.name);
            match at.and_then(|at| self.rows.columns.get(at)) {
                Some(column) => field.read(&column.slice(rows.clone())),
                None => Column::absent(field.field_type(), rows.len()),
            }
        };
        ScanChunk {
            columns: read.iter().map(column).collect(),
            times: times
                .get(rows.clone())
                .map_or_else(Vec::new, <[i64]>::to_vec),
        }
    }
}

/// A column of `rows` rows with the same text.
pub(super) fn constant(text: &str, rows: usize) -> Column {
    let mut column = Column::with_capacity(FieldType::String, rows);
    for _ in 0..rows {
        column.push(ValueRef::String(text));
    }
    column
}

/// A series of a subquery's answer, as columns.
pub(super) struct BufferedSeries {
    pub(super) name: String,
    pub(super) tags: Vec<(String, String)>,
    pub(super) times: Vec<i64>,
    /// Columns by name; `None` for a column without values.
    pub(super) columns: Vec<(String, Option<Column>)>,
}

/// Collects the answer of a subquery as columns.
pub(super) struct SeriesBuffer<'a> {
    budget: &'a Budget,
    pub(super) series: Vec<BufferedSeries>,
}

impl<'a> SeriesBuffer<'a> {
    pub(super) fn new(budget: &'a Budget) -> SeriesBuffer<'a> {
        SeriesBuffer {
            budget,
            series: Vec::new(),
        }
    }
}

impl BufferedSeries {
    fn push(&mut self, row: &[Cell]) {
        let Some((Cell::Time(time), cells)) = row.split_first() else {
            return;
        };
        let before = self.times.len();
        self.times.push(*time);
        for ((_, column), cell) in self.columns.iter_mut().zip(cells) {
            push_cell(column, before, cell);
        }
    }

    /// Sorts the rows by time.
    pub(super) fn sort(&mut self) {
        if self.times.is_sorted() {
            return;
        }
        let count = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..count).collect();
        let place = |row: &u32| usize::try_from(*row).unwrap_or(usize::MAX);
        let time = |row: &u32| self.times.get(place(row)).copied();
        order.sort_by_key(time);
        self.times = order.iter().filter_map(time).collect();
        for column in self.columns.iter_mut().filter_map(|(_, c)| c.as_mut()) {
            *column = column.gather(&order);
        }
    }
}

/// Appends a value after `before` rows. Numbers of several types become floats; among other types
/// the first one is used.
fn push_cell(column: &mut Option<Column>, before: usize, cell: &Cell) {
    let value = match cell {
        Cell::Value(value) => Some(value.as_ref()),
        Cell::Null | Cell::Time(_) => None,
    };
    let column = match (column.as_mut(), value) {
        (None, None) => return,
        (None, Some(value)) => {
            let mut first = Column::new(value.field_type());
            first.push_absent(before);
            column.insert(first)
        }
        (Some(known), value) => {
            let found = value.map(|v| v.field_type());
            if found.is_some_and(|found| wider(known.field_type(), found) != known.field_type()) {
                *known = as_floats(known);
            }
            known
        }
    };
    let value = match value {
        Some(value) if column.field_type() == FieldType::F64 => float(value),
        value => value,
    };
    if !value.is_some_and(|value| column.push(value)) {
        column.push_absent(1);
    }
}

fn float(value: ValueRef<'_>) -> Option<ValueRef<'_>> {
    match value {
        ValueRef::I64(_) | ValueRef::U64(_) => number(value).map(ValueRef::F64),
        value => Some(value),
    }
}

/// The type that can represent both, if both are numbers; else the first one.
pub(super) fn wider(a: FieldType, b: FieldType) -> FieldType {
    let is_number = |t: FieldType| matches!(t, FieldType::F64 | FieldType::I64 | FieldType::U64);
    match a != b && is_number(a) && is_number(b) {
        true => FieldType::F64,
        false => a,
    }
}

/// A column of signed or unsigned integers, converted to floats.
pub(super) fn as_floats(column: &Column) -> Column {
    let mut out = Column::with_capacity(FieldType::F64, column.len());
    for row in 0..column.len() {
        let value = column.get(row).and_then(float);
        if !value.is_some_and(|value| out.push(value)) {
            out.push_absent(1);
        }
    }
    out
}

impl Taker for SeriesBuffer<'_> {
    fn take(&mut self, series: Series, goes_on: bool) -> Result<(), Error> {
        let width = series.columns.len().max(1);
        let text = |cell: &Cell| match cell {
            Cell::Value(Value::String(text)) => text.len(),
            Cell::Value(Value::Bytes(bytes)) => bytes.len(),
            _ => 0,
        };
        let texts: usize = series.cells.iter().map(text).sum();
        self.budget
            .take_bytes(series.cells.len() * CELL_BYTES + texts)?;
        if !goes_on || self.series.is_empty() {
            let names = series.columns.into_iter().skip(1);
            self.series.push(BufferedSeries {
                name: series.name,
                tags: series.tags,
                times: Vec::new(),
                columns: names.map(|name| (name, None)).collect(),
            });
        }
        if let Some(held) = self.series.last_mut() {
            for row in series.cells.chunks(width) {
                held.push(row);
            }
        }
        Ok(())
    }

    fn hands_on(&self) -> bool {
        true
    }
}
