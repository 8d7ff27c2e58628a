//! `row_number`, `rank`, `dense_rank` and `ntile` as signed integers, as PostgreSQL has them.
//!
//! The SQL library's are unsigned. A cast around them would fix the values, but hides from the
//! planner that they increase with the rows, so that it would sort sorted rows, and all of them
//! where a query returns a few.
//!
//! Invariant: except for its type, each function is the library's.

use crate::error::Error;
use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_window::{ntile, rank, row_number};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF,
    WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use std::ops::Range;
use std::sync::Arc;

/// The functions.
pub(super) fn all() -> Vec<Arc<WindowUDF>> {
    let library = [
        row_number::row_number_udwf(),
        rank::rank_udwf(),
        rank::dense_rank_udwf(),
        ntile::ntile_udwf(),
    ];
    let signed = library
        .into_iter()
        .map(|inner| Arc::new(WindowUDF::new_from_impl(Signed { inner })));
    signed.collect()
}

/// A function of the library with signed numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed {
    inner: Arc<WindowUDF>,
}

impl Signed {
    fn library(&self) -> &dyn WindowUDFImpl {
        self.inner.inner().as_ref()
    }
}

impl WindowUDFImpl for Signed {
    fn name(&self) -> &str {
        self.library().name()
    }

    fn aliases(&self) -> &[String] {
        self.library().aliases()
    }

    fn signature(&self) -> &Signature {
        self.library().signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.library().expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator(
            self.library().partition_evaluator(args)?,
        )))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.library().field(args)?;
        if field.data_type() != &DataType::UInt64 {
            let (name, of) = (self.name(), field.data_type());
            return Err(Error::internal(format!("{name} gives {of}")).into());
        }
        Ok(Arc::new(
            Field::clone(&field).with_data_type(DataType::Int64),
        ))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.library().sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.library().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.library().reverse_expr() {
            // Another function, with the library's type.
            ReversedUDWF::Reversed(_) => ReversedUDWF::NotSupported,
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.library().documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.library().limit_effect(args)
    }
}

/// Evaluator that numbers the rows of a partition.
#[derive(Debug)]
struct Evaluator(Box<dyn PartitionEvaluator>);

fn signed(numbers: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(numbers, &DataType::Int64)?)
}

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
        signed(&self.0.evaluate_all(values, rows)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.0.evaluate(values, range)?.cast_to(&DataType::Int64)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        signed(&self.0.evaluate_all_with_rank(rows, ranks)?)
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
