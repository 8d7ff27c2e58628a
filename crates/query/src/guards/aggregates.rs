//! Aggregates with a guard: each group has its own state, a batch creates as many states as it has
//! groups before the operator counts them, and the values of a batch of groups are collected before
//! they are passed on. The guard therefore checks whether the statement may continue before each
//! state is created, after each state has processed rows, and after each value.
//!
//! Invariant: a guarded aggregate is transparent to all queries of the planner.

use super::extent::of_scalar;
use super::statement;
use crate::functions;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunctionParams,
};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use std::sync::Arc;

pub(super) fn is_guarded(function: &AggregateUDF) -> bool {
    function.inner().is::<Aggregate>()
}

pub(super) fn guarded(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    if is_guarded(&inner) {
        return inner;
    }
    Arc::new(AggregateUDF::new_from_impl(Aggregate { inner }))
}

/// An aggregate and its guard.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    inner: Arc<AggregateUDF>,
}

impl Aggregate {
    fn function(&self) -> &dyn AggregateUDFImpl {
        self.inner.inner().as_ref()
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.function().name()
    }

    fn aliases(&self) -> &[String] {
        self.function().aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.function().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.function().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.function().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.function().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.function().window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.function().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.function().return_type(types)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.function().return_field(fields)
    }

    fn is_nullable(&self) -> bool {
        self.function().is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        statement::checkpoint()?;
        Ok(Box::new(Watched(functions::state(self.function(), args)?)))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        functions::state_fields(self.function(), args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !functions::has_own_state(self.name(), &args)
            && self.function().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.function().create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let inner = functions::sliding_state(self.function(), args)?;
        Ok(Box::new(Watched(inner)))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = Arc::clone(self.inner.inner()).with_beneficial_ordering(beneficial)?;
        Ok(inner.map(|inner| -> Arc<dyn AggregateUDFImpl> {
            let inner = Arc::new(AggregateUDF::new_from_shared_impl(inner));
            Arc::new(Aggregate { inner })
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.function().order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let simplified = self.function().simplify()?;
        let inner = Arc::clone(&self.inner);
        Some(Box::new(move |mut call: AggregateFunction, info| {
            // The library's functions recognise only unguarded functions; a rule guards the
            // rewritten function.
            call.func = Arc::clone(&inner);
            simplified(call, info)
        }))
    }

    fn simplify_expr_op_literal(
        &self,
        call: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        let function = self.function();
        function.simplify_expr_op_literal(call, arg, op, literal, arg_is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.function().reverse_expr() {
            ReversedUDAF::Reversed(other) => ReversedUDAF::Reversed(guarded(other)),
            other => other,
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function().coerce_types(types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.function().is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.function().value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.function().default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.function().supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.function().supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function().documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.function().set_monotonicity(data_type)
    }
}

/// A state of a group or of a window.
#[derive(Debug)]
struct Watched(Box<dyn Accumulator>);

impl Accumulator for Watched {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)?;
        statement::checkpoint()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.0.evaluate()?;
        check_value(&value)?;
        Ok(value)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.0.state()?;
        state.iter().try_for_each(check_value)?;
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)?;
        statement::checkpoint()
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// Checks after a value for a row or for a group.
pub(super) fn check_value(value: &ScalarValue) -> Result<()> {
    statement::record_window_value(of_scalar(value))?;
    statement::checkpoint()
}
