//! Counts, sums and extremes of rows of a match, computed incrementally.

use super::slots::Tally;
use crate::error::Error;
use arrow::array::{
    Array, ArrayRef, AsArray, DynComparator, Float64Array, Int64Array, make_comparator,
};
use arrow::compute::{CastOptions, SortOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::util::display::FormatOptions;
use datafusion::common::Result;

/// Value of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    Absent,
    /// The value of a column in a row of the partition.
    Row(usize),
    Whole(i64),
    Float(f64),
    Symbol(usize),
}

/// Input of a tally.
pub(super) enum Column {
    /// The rows themselves.
    Rows,
    /// Rows with a value.
    Present(ArrayRef),
    Wholes(Int64Array),
    Floats(Float64Array),
    Ordered(ArrayRef, DynComparator),
}

impl Column {
    pub(super) fn new(what: Tally, value: Option<&ArrayRef>) -> Result<Column> {
        const STRICT: CastOptions<'static> = CastOptions {
            safe: false,
            format_options: FormatOptions::new(),
        };
        let Some(value) = value else {
            return Ok(Column::Rows);
        };
        Ok(match what {
            Tally::Count => Column::Present(ArrayRef::clone(value)),
            Tally::Sum if value.data_type().is_integer() => {
                let wholes = cast_with_options(value, &DataType::Int64, &STRICT)
                    .map_err(|_| crate::functions::sum_too_large())?;
                Column::Wholes(wholes.as_primitive::<Int64Type>().clone())
            }
            Tally::Sum | Tally::Mean => {
                let floats = cast(value, &DataType::Float64)?;
                Column::Floats(floats.as_primitive::<Float64Type>().clone())
            }
            Tally::Least | Tally::Greatest => {
                let order = make_comparator(value, value, SortOptions::default())?;
                Column::Ordered(ArrayRef::clone(value), order)
            }
        })
    }
}

/// A row as an element of the key of a past.
pub(super) fn row_key(row: usize) -> i128 {
    i128::try_from(row).unwrap_or(i128::MAX)
}

/// State of a tally.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    count: u32,
    whole: i128,
    float: f64,
    best: Option<usize>,
}

impl Sum {
    pub(super) fn add(&mut self, what: Tally, column: &Column, row: usize) -> Result<()> {
        let present = match column {
            Column::Rows => true,
            Column::Present(values) => values.is_valid(row),
            Column::Wholes(values) => {
                if values.is_valid(row) {
                    self.whole += i128::from(values.value(row));
                }
                values.is_valid(row)
            }
            Column::Floats(values) => {
                if values.is_valid(row) {
                    self.float += values.value(row);
                }
                values.is_valid(row)
            }
            Column::Ordered(values, order) => {
                let better = self.best.is_none_or(|best| {
                    let found = order(row, best);
                    if what == Tally::Least {
                        found.is_lt()
                    } else {
                        found.is_gt()
                    }
                });
                if values.is_valid(row) && better {
                    self.best = Some(row);
                }
                values.is_valid(row)
            }
        };
        if present {
            self.count = self.count.checked_add(1).ok_or_else(|| {
                Error::too_large("MATCH_RECOGNIZE: a match has more than 4 billion rows")
            })?;
        }
        Ok(())
    }

    /// Appends everything on which the cell depends, whatever rows follow.
    pub(super) fn append_key(&self, what: Tally, key: &mut Vec<i128>) {
        let is_counted = matches!(what, Tally::Count | Tally::Mean);
        let count = if is_counted {
            self.count
        } else {
            self.count.min(1)
        };
        key.extend([
            i128::from(count),
            self.whole,
            i128::from(self.float.to_bits()),
            self.best.map_or(-1, row_key),
        ]);
    }

    pub(super) fn cell(&self, what: Tally, column: &Column) -> Result<Cell> {
        if what == Tally::Count {
            return Ok(Cell::Whole(i64::from(self.count)));
        }
        if self.count == 0 {
            return Ok(Cell::Absent);
        }
        Ok(match (what, column) {
            (Tally::Sum, Column::Wholes(_)) => {
                let sum = i64::try_from(self.whole);
                Cell::Whole(sum.map_err(|_| crate::functions::sum_too_large())?)
            }
            (Tally::Sum, _) => Cell::Float(self.float),
            (Tally::Mean, _) => Cell::Float(self.float / f64::from(self.count)),
            _ => self.best.map_or(Cell::Absent, Cell::Row),
        })
    }
}
