//! `DISTINCT` for aggregates for which the SQL library ignores it: `corr(DISTINCT y, x)`,
//! `stddev(DISTINCT x)`, `histogram(DISTINCT …)`.
//!
//! Each distinct row of arguments is passed on once, at its first occurrence.
//!
//! Invariant: an aggregate implements `DISTINCT` itself ([`OWN`]), or does not depend on repeated
//! rows ([`ANY`]), or uses this implementation, which is the default. Floats are canonical here: a
//! rule of the planner makes them so.

use crate::aggregates::{self, aggregate};
use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, BinaryArray, BooleanArray};
use arrow::compute::filter;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl};
use std::collections::HashSet;
use std::sync::Arc;

/// Approximate memory of an entry of the set besides its bytes.
const ENTRY_BYTES: usize = 48;

/// Whether a call passes on each distinct row once.
pub(super) fn is_own(name: &str, is_distinct: bool) -> bool {
    is_distinct && aggregate(name).is_none_or(|facts| facts.distinct == aggregates::Distinct::Rows)
}

/// Fields of the state of a call that [`is_own`]: rows, as bytes.
pub(super) fn state_fields(args: &StateFieldsArgs<'_>) -> Vec<FieldRef> {
    let rows = DataType::List(Arc::new(Field::new_list_field(DataType::Binary, true)));
    vec![Arc::new(Field::new(
        format!("{}[rows]", args.name),
        rows,
        true,
    ))]
}

/// The state for a call that [`is_own`], which wraps the state of the function.
pub(super) fn accumulator(
    function: &dyn AggregateUDFImpl,
    args: AccumulatorArgs<'_>,
) -> Result<Box<dyn Accumulator>> {
    let name = function.name();
    if !args.order_bys.is_empty() {
        let what = format!("{name}: DISTINCT and ORDER BY together are not supported");
        return Err(Error::unsupported(what).into());
    }
    let fields = args.expr_fields.iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    let fields = fields.collect();
    let every_row = AccumulatorArgs {
        is_distinct: false,
        ..args
    };
    Ok(Box::new(Distinct {
        inner: function.accumulator(every_row)?,
        rows: RowConverter::new(fields)?,
        counted: HashSet::new(),
        bytes: 0,
    }))
}

/// The distinct rows of a group.
#[derive(Debug)]
struct Distinct {
    inner: Box<dyn Accumulator>,
    rows: RowConverter,
    counted: HashSet<Box<[u8]>>,
    /// Bytes of the rows in the set.
    bytes: usize,
}

impl Distinct {
    /// Whether the row is new.
    fn is_new(&mut self, row: &[u8]) -> bool {
        if self.counted.contains(row) {
            return false;
        }
        self.bytes += row.len();
        self.counted.insert(row.into())
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = self.rows.convert_columns(values)?;
        let new: BooleanArray = rows
            .iter()
            .map(|row| Some(self.is_new(row.data())))
            .collect();
        if new.true_count() == 0 {
            return Ok(());
        }
        let values = values.iter().map(|column| filter(column, &new));
        self.inner
            .update_batch(&values.collect::<Result<Vec<_>, _>>()?)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for lists in states {
            for list in lists.as_list::<i32>().iter().flatten() {
                let parser = self.rows.parser();
                let rows = list.as_binary::<i32>().iter().flatten();
                let new: Vec<_> = rows.filter(|row| self.is_new(row)).collect();
                if !new.is_empty() {
                    let new = new.into_iter().map(|row| parser.parse(row));
                    let values = self.rows.convert_rows(new)?;
                    self.inner.update_batch(&values)?;
                }
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let rows: ArrayRef = Arc::new(BinaryArray::from_iter_values(&self.counted));
        let list = SingleRowListArrayBuilder::new(rows).build_list_array();
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        let set = self.counted.capacity() * ENTRY_BYTES + self.bytes;
        size_of::<Distinct>() + self.inner.size() + self.rows.size() + set
    }
}
