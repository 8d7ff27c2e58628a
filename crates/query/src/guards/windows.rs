//! Window functions with a guard: they return a value for each row, and each value may be as large
//! as all previous rows.
//!
//! The values of a batch, or of a whole partition, are collected before they are passed on; the
//! guard therefore checks after each value whether the statement may continue.
//!
//! Invariant: a guarded window function is transparent to all queries of the planner.

use super::aggregates::{self, check_value};
use super::extent::extent;
use super::statement;
use crate::error::Error;
use arrow::array::{Array, ArrayRef};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowFunctionSimplification, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature,
    WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use std::ops::Range;
use std::sync::Arc;

pub(super) fn is_guarded(function: &WindowFunctionDefinition) -> bool {
    match function {
        WindowFunctionDefinition::AggregateUDF(f) => aggregates::is_guarded(f),
        WindowFunctionDefinition::WindowUDF(f) => f.inner().is::<Window>(),
    }
}

pub(super) fn guarded(function: WindowFunctionDefinition) -> WindowFunctionDefinition {
    if is_guarded(&function) {
        return function;
    }
    match function {
        WindowFunctionDefinition::AggregateUDF(f) => {
            WindowFunctionDefinition::AggregateUDF(aggregates::guarded(f))
        }
        WindowFunctionDefinition::WindowUDF(f) => WindowFunctionDefinition::WindowUDF(window(f)),
    }
}

pub(super) fn window(inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
    if inner.inner().is::<Window>() {
        return inner;
    }
    Arc::new(WindowUDF::new_from_impl(Window { inner }))
}

/// Whether a call looks ahead by more than one row: the SQL library then loses values after a gap.
fn looks_over_gaps(name: &str, exprs: &[Arc<dyn PhysicalExpr>]) -> bool {
    let offset = exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
    let offset = offset.and_then(|offset| offset.value().cast_to(&DataType::Int64).ok());
    let offset = match offset {
        Some(ScalarValue::Int64(Some(offset))) => offset,
        _ => 1,
    };
    match name {
        "lead" => offset > 1,
        "lag" => offset < -1,
        _ => false,
    }
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
        if args.ignore_nulls() && looks_over_gaps(self.name(), args.input_exprs()) {
            return Err(Error::unsupported(format!(
                "{}(value, n) IGNORE NULLS with n greater than 1 is not supported",
                self.name()
            ))
            .with_hint("filter NULL out with WHERE in a subquery")
            .into());
        }
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

/// Evaluator of a window function for a partition.
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
        statement::check_memory(given, "a window")?;
        self.0.evaluate_all(values, rows)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let value = self.0.evaluate(values, range)?;
        check_value(&value)?;
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
