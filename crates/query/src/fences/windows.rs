//! Windows within a fence: they give a value for each row, and each of these may be as large as all
//! rows before it.
//!
//! The values of a batch, or of a whole partition, are gathered before anything is handed on; so it
//! is asked after each whether the statement may go on.
//!
//! Invariant: a fenced window function is the function in everything that the planner asks.

use super::extent::{extent, of_scalar};
use super::statement;
use crate::error::Error;
use arrow::array::{Array, ArrayRef};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{
    AccumulatorArgs, ExpressionArgs, PartitionEvaluatorArgs, StateFieldsArgs,
    WindowFunctionSimplification, WindowUDFFieldArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, LimitEffect, PartitionEvaluator,
    ReversedUDAF, ReversedUDWF, SetMonotonicity, Signature, WindowFunctionDefinition, WindowUDF,
    WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use std::ops::Range;
use std::sync::Arc;

pub(super) fn is_fenced(function: &WindowFunctionDefinition) -> bool {
    match function {
        WindowFunctionDefinition::AggregateUDF(f) => f.inner().is::<Aggregate>(),
        WindowFunctionDefinition::WindowUDF(f) => f.inner().is::<Window>(),
    }
}

pub(super) fn fenced(function: WindowFunctionDefinition) -> WindowFunctionDefinition {
    if is_fenced(&function) {
        return function;
    }
    match function {
        WindowFunctionDefinition::AggregateUDF(f) => {
            WindowFunctionDefinition::AggregateUDF(aggregate(f))
        }
        WindowFunctionDefinition::WindowUDF(f) => WindowFunctionDefinition::WindowUDF(window(f)),
    }
}

fn aggregate(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    if inner.inner().is::<Aggregate>() {
        return inner;
    }
    Arc::new(AggregateUDF::new_from_impl(Aggregate { inner }))
}

pub(super) fn window(inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
    if inner.inner().is::<Window>() {
        return inner;
    }
    Arc::new(WindowUDF::new_from_impl(Window { inner }))
}

/// An aggregate over a window.
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
        Ok(Box::new(Watched(self.function().accumulator(args)?)))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.function().state_fields(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let inner = self.function().create_sliding_accumulator(args)?;
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

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.function().reverse_expr() {
            ReversedUDAF::Reversed(other) => ReversedUDAF::Reversed(aggregate(other)),
            other => other,
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function().coerce_types(types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.function().is_descending()
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

/// An accumulator that gives a value for each row.
#[derive(Debug)]
struct Watched(Box<dyn Accumulator>);

impl Accumulator for Watched {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.0.evaluate()?;
        given(&value)?;
        Ok(value)
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

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// A value was made for a row.
fn given(value: &ScalarValue) -> Result<()> {
    statement::given(of_scalar(value))?;
    statement::checkpoint()
}

/// A window function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Window {
    inner: Arc<WindowUDF>,
}

impl Window {
    fn function(&self) -> &dyn WindowUDFImpl {
        self.inner.inner().as_ref()
    }
}

impl WindowUDFImpl for Window {
    fn name(&self) -> &str {
        self.function().name()
    }

    fn aliases(&self) -> &[String] {
        self.function().aliases()
    }

    fn signature(&self) -> &Signature {
        self.function().signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.function().expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator(
            self.function().partition_evaluator(args)?,
        )))
    }

    fn simplify(&self) -> Option<WindowFunctionSimplification> {
        self.function().simplify()
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let name = self.name();
        if args.input_fields().is_empty()
            && ["first_value", "last_value", "nth_value"].contains(&name)
        {
            return Err(
                Error::invalid(format!("{name}: expected a value, as in {name}(temp)")).into(),
            );
        }
        self.function().field(args)
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.function().sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.function().reverse_expr() {
            ReversedUDWF::Reversed(other) => ReversedUDWF::Reversed(window(other)),
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function().documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.function().limit_effect(args)
    }
}

/// What computes a window function for a partition.
#[derive(Debug)]
struct Evaluator(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for Evaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.0.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.0.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let given = values.iter().fold(0usize, |sum, values| {
            sum.saturating_add(extent(values, 0, values.len()))
        });
        statement::room(given, "a window")?;
        self.0.evaluate_all(values, rows)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let value = self.0.evaluate(values, range)?;
        given(&value)?;
        Ok(value)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.0.evaluate_all_with_rank(rows, ranks)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}
