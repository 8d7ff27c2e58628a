//! `min`, `max` and `sum`, exact where the SQL library's are not.
//!
//! For floats, NaN is the greatest value, whatever its sign, and equal to itself, as in PostgreSQL:
//! in groups the library drops the values before a NaN. Floats are compared as integers with the
//! same order. Sums of integers are computed in 128 bits, and fail if they do not fit into the 64
//! bits of their type, where the library wraps around. Everything else is the library's.
//!
//! Invariant: the state is that of the library's functions over the substituted type: integers for
//! floats, decimals for integers.

use super::window_sum::{DistinctSum, too_large};
use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type,
    UInt64Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunctionParams;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use std::sync::Arc;

/// The sums' type while they are computed.
const WIDE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// A function of the library, computed exactly.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Exact {
    inner: Arc<AggregateUDF>,
    sums: bool,
}

impl Exact {
    /// `min` or `max`.
    pub(super) fn extreme(inner: Arc<AggregateUDF>) -> Exact {
        Exact { inner, sums: false }
    }

    /// The sum, computed with a wider type.
    pub(super) fn sum(inner: Arc<AggregateUDF>) -> Exact {
        Exact { inner, sums: true }
    }

    /// The computation for values of a type; `None` = the library's own.
    fn wider_type(&self, of: &DataType) -> Option<WiderType> {
        let by = match (self.sums, of) {
            (true, DataType::Int64 | DataType::UInt64) => WIDE,
            (false, DataType::Float16 | DataType::Float32 | DataType::Float64) => DataType::Int64,
            _ => return None,
        };
        Some(WiderType { of: of.clone(), by })
    }

    fn library(&self) -> &dyn AggregateUDFImpl {
        self.inner.inner().as_ref()
    }
}

/// The types that replace the values during the computation.
#[derive(Clone, Debug)]
struct WiderType {
    of: DataType,
    by: DataType,
}

/// An integer for each float, in the same order; one integer for all NaN.
fn key(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

fn float(key: i64) -> f64 {
    if key == i64::MAX {
        return f64::NAN;
    }
    let bits = key ^ ((key >> 63).cast_unsigned() >> 1).cast_signed();
    f64::from_bits(bits.cast_unsigned())
}

impl WiderType {
    fn values(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        values.iter().map(|values| self.value(values)).collect()
    }

    fn value(&self, values: &ArrayRef) -> Result<ArrayRef> {
        Ok(match self.by {
            DataType::Int64 => {
                let floats = cast(values, &DataType::Float64)?;
                Arc::new(
                    floats
                        .as_primitive::<Float64Type>()
                        .unary::<_, Int64Type>(key),
                )
            }
            _ => cast(values, &self.by)?,
        })
    }

    fn back(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let wide = || values.as_primitive::<Decimal128Type>();
        Ok(match self.of {
            DataType::Int64 => Arc::new(wide().try_unary::<_, Int64Type, Error>(fits)?),
            DataType::UInt64 => Arc::new(wide().try_unary::<_, UInt64Type, Error>(fits)?),
            _ => {
                let keys = values.as_primitive::<Int64Type>();
                let floats: ArrayRef = Arc::new(keys.unary::<_, Float64Type>(float));
                cast(&floats, &self.of)?
            }
        })
    }

    /// Arguments for the library's function.
    fn args<'a>(&self, args: &AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
        AccumulatorArgs {
            return_field: self.field(&args.return_field),
            schema: args.schema,
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys,
            is_reversed: args.is_reversed,
            name: args.name,
            is_distinct: args.is_distinct,
            exprs: args.exprs,
            expr_fields: args.expr_fields,
        }
    }

    fn field(&self, field: &Field) -> FieldRef {
        Arc::new(field.clone().with_data_type(self.by.clone()))
    }
}

/// Converts a sum to 64 bits.
fn fits<T: TryFrom<i128>>(sum: i128) -> std::result::Result<T, Error> {
    T::try_from(sum).map_err(|_| too_large())
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        self.library().name()
    }

    fn aliases(&self) -> &[String] {
        self.library().aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.library().schema_name(params)
    }

    fn signature(&self) -> &Signature {
        self.library().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.library().return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.wider_type(args.return_type()) {
            None => self.library().accumulator(args),
            Some(widening) => {
                let inner = self.library().accumulator(widening.args(&args))?;
                Ok(Box::new(ExactRows { widening, inner }))
            }
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match self.wider_type(args.return_type()) {
            None => self.library().state_fields(args),
            Some(means) => self.library().state_fields(StateFieldsArgs {
                return_field: means.field(&args.return_field),
                ..args
            }),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        match self.wider_type(args.return_type()) {
            None => self.library().groups_accumulator_supported(args),
            Some(means) => self
                .library()
                .groups_accumulator_supported(means.args(&args)),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match self.wider_type(args.return_type()) {
            None => self.library().create_groups_accumulator(args),
            Some(widening) => {
                let inner = self
                    .library()
                    .create_groups_accumulator(widening.args(&args))?;
                Ok(Box::new(ExactGroups { widening, inner }))
            }
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match self.wider_type(args.return_type()) {
            // The library's sum wraps around.
            Some(means) if args.is_distinct && self.sums => {
                Ok(Box::new(DistinctSum::new(means.of, means.by)))
            }
            Some(widening) if !args.is_distinct => {
                let inner = self
                    .library()
                    .create_sliding_accumulator(widening.args(&args))?;
                Ok(Box::new(ExactRows { widening, inner }))
            }
            _ => self.library().create_sliding_accumulator(args),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.library().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.library().reverse_expr()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.library().coerce_types(types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.library().is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.library().value_from_stats(args)
    }

    fn default_value(&self, of: &DataType) -> Result<ScalarValue> {
        self.library().default_value(of)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.library().documentation()
    }

    fn set_monotonicity(&self, of: &DataType) -> SetMonotonicity {
        self.library().set_monotonicity(of)
    }
}

/// Accumulator for all rows, or for a window.
#[derive(Debug)]
struct ExactRows {
    widening: WiderType,
    inner: Box<dyn Accumulator>,
}

impl Accumulator for ExactRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&self.widening.values(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&self.widening.back(&value)?, 0)
    }

    fn size(&self) -> usize {
        size_of::<WiderType>() + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&self.widening.values(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// Accumulator for groups.
struct ExactGroups {
    widening: WiderType,
    inner: Box<dyn GroupsAccumulator>,
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        let values = self.widening.values(values)?;
        self.inner.update_batch(&values, groups, filter, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let values = self.inner.evaluate(emit)?;
        self.widening.back(&values)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.inner.merge_batch(values, groups, total)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner
            .convert_to_state(&self.widening.values(values)?, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_and_come_back() {
        let floats = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            5e-324,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        for pair in floats.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
        for value in floats {
            assert_eq!(float(key(value)).to_bits(), value.to_bits());
        }
        for nan in [f64::NAN, -f64::NAN] {
            assert!(key(nan) > key(f64::INFINITY));
            assert!(float(key(nan)).is_nan());
        }
    }
}
