//! `approx_distinct` for floats, and with a signed integer result, as PostgreSQL counts.
//!
//! The SQL library's function estimates the number of distinct values of every hashable type, but
//! not of floats, and returns an unsigned number. Here floats are counted by their bits, with one
//! zero and one NaN, as in all comparisons.
//!
//! Invariant: the state is the state of the library's function over the bits.

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    Signature,
};
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ApproxDistinct {
    inner: Arc<AggregateUDF>,
}

impl ApproxDistinct {
    pub(super) fn new() -> ApproxDistinct {
        ApproxDistinct {
            inner: approx_distinct_udaf(),
        }
    }

    fn library(&self) -> &dyn AggregateUDFImpl {
        self.inner.inner().as_ref()
    }
}

/// The fields of the arguments, with types that the library supports.
fn fields(given: &[FieldRef]) -> Vec<FieldRef> {
    let told = given.iter().map(|field| match field.data_type() {
        of if of.is_floating() => Arc::new(Field::clone(field).with_data_type(DataType::Int64)),
        _ => Arc::clone(field),
    });
    told.collect()
}

fn args<'a>(args: &AccumulatorArgs<'a>, fields: &'a [FieldRef]) -> AccumulatorArgs<'a> {
    AccumulatorArgs {
        return_field: unsigned(&args.return_field),
        schema: args.schema,
        ignore_nulls: args.ignore_nulls,
        order_bys: args.order_bys,
        is_reversed: args.is_reversed,
        name: args.name,
        is_distinct: args.is_distinct,
        exprs: args.exprs,
        expr_fields: fields,
    }
}

fn unsigned(field: &FieldRef) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(DataType::UInt64))
}

/// The bits of a float; equal floats have equal bits.
fn bits(value: f64) -> i64 {
    let one = match value {
        nan if nan.is_nan() => f64::NAN,
        0.0 => 0.0,
        other => other,
    };
    one.to_bits().cast_signed()
}

fn values(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let told = values.iter().map(|values| {
        if !values.data_type().is_floating() {
            return Ok(Arc::clone(values));
        }
        let floats = cast(values, &DataType::Float64)?;
        let floats = floats.as_primitive::<Float64Type>();
        Ok(Arc::new(floats.unary::<_, Int64Type>(bits)) as ArrayRef)
    });
    told.collect()
}

impl AggregateUDFImpl for ApproxDistinct {
    fn name(&self) -> &str {
        self.library().name()
    }

    fn aliases(&self) -> &[String] {
        self.library().aliases()
    }

    fn signature(&self) -> &Signature {
        self.library().signature()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(0)))
    }

    fn is_nullable(&self) -> bool {
        self.library().is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let fields = fields(args.input_fields);
        self.library().state_fields(StateFieldsArgs {
            input_fields: &fields,
            return_field: unsigned(&args.return_field),
            ..args
        })
    }

    fn accumulator(&self, given: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let fields = fields(given.expr_fields);
        let inner = self.library().accumulator(args(&given, &fields))?;
        Ok(Box::new(ApproxRows(inner)))
    }

    fn groups_accumulator_supported(&self, given: AccumulatorArgs<'_>) -> bool {
        let fields = fields(given.expr_fields);
        self.library()
            .groups_accumulator_supported(args(&given, &fields))
    }

    fn create_groups_accumulator(
        &self,
        given: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let fields = fields(given.expr_fields);
        let inner = self
            .library()
            .create_groups_accumulator(args(&given, &fields))?;
        Ok(Box::new(ApproxGroups(inner)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.library().documentation()
    }
}

/// Accumulator for all rows.
#[derive(Debug)]
struct ApproxRows(Box<dyn Accumulator>);

impl Accumulator for ApproxRows {
    fn update_batch(&mut self, given: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&values(given)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()?.cast_to(&DataType::Int64)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}

/// Accumulator for groups.
struct ApproxGroups(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for ApproxGroups {
    fn update_batch(
        &mut self,
        given: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.0.update_batch(&values(given)?, groups, filter, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate(emit)?, &DataType::Int64)?)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.0.merge_batch(states, groups, total)
    }

    fn convert_to_state(
        &self,
        given: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(&values(given)?, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_that_are_equal_have_the_same_bits() {
        assert_eq!(bits(0.0), bits(-0.0));
        assert_eq!(bits(f64::NAN), bits(-f64::NAN));
        assert_ne!(bits(1.0), bits(-1.0));
    }
}
