//! A guard around every operator of a running plan: between two batches it checks whether the
//! statement may continue, and it splits batches so that their results stay small.
//!
//! An operator's output batch has as many rows as its input, or as the statement's batch size; long
//! rows, because of long constants, many columns, or long texts that a join repeats, make a large
//! batch, which is built in one step. So batches have fewer rows if the plan makes rows long, and
//! values that are too long to be repeated are refused.
//!
//! Invariants: a guard is transparent to all code that inspects a plan, so that `EXPLAIN ANALYZE`
//! shows the plan as it was planned; cached plans do not have guards. Rows are never added, removed
//! or reordered. Failure: the error that ends the statement is the last item of a guarded stream;
//! the stream drops its operator first.

use super::extent::{extent, of_batch, of_scalar, varies, widest};
use super::statement::{Statement, handed_on};
use crate::error::Error;
use crate::pyramid::PyramidExec;
use crate::table::ScanExec;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{InListExpr, Literal};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures_util::{Stream, StreamExt};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Default rows of a batch.
const ROWS: usize = 8_192;
/// Rows of a batch if long values may be repeated.
const REPEATED_ROWS: usize = 2_048;
/// Maximum input rows, times sets, of a batch of an aggregate with several grouping sets.
const SETS_ROWS: usize = 1 << 16;
/// Approximate bytes of an expression per row, without its texts.
const EXPRESSION_BYTES: usize = 16;
/// Bytes of a batch of an answer, approximately.
const ANSWER_BYTES: usize = 4 << 20;
/// Maximum bytes of a row of an answer.
const ROW_BYTES_MAX: usize = 16 << 20;

/// Puts a guard around each operator of a plan.
pub(super) fn guard(
    plan: Arc<dyn ExecutionPlan>,
    statement: &Arc<Statement>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let bytes = (statement.memory() / 8).max(1 << 20);
    let mut heaviest = 1usize;
    let mut repeats = false;
    plan.apply(|node| {
        heaviest = heaviest.max(weight(node)?);
        repeats |= repeats_long_values(node);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let most = if repeats { REPEATED_ROWS } else { ROWS };
    let rows = (bytes / heaviest).clamp(1, most);
    // Operators that repeat values repeat at most this much in a batch.
    let value_bytes = (bytes * 4 / rows).max(1 << 10);
    let around = Around {
        statement,
        rows,
        value_bytes,
    };
    let limits = Limits {
        rows,
        value_bytes: None,
        unnested: false,
    };
    let mut root = around.guard(plan, limits)?;
    root.answers = true;
    Ok(Arc::new(root))
}

/// Batch size in rows for the operators of a guarded plan.
pub(super) fn batch_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let any: &dyn Any = plan.as_ref();
    let root = any.downcast_ref::<GuardExec>();
    root.map_or(ROWS, |root| root.limits.rows)
}

/// State shared by all guards of a plan.
struct Around<'a> {
    statement: &'a Arc<Statement>,
    rows: usize,
    value_bytes: usize,
}

impl Around<'_> {
    /// Adds a guard around an operator and around its inputs; the parent determines how it uses its
    /// batches.
    fn guard(&self, node: Arc<dyn ExecutionPlan>, limits: Limits) -> Result<GuardExec> {
        let rows = rows_into(&node, self.rows);
        let repeats = repeats_rows(&node);
        let subqueries = node.is::<ScalarSubqueryExec>();
        let mut children = Vec::with_capacity(node.children().len());
        for (at, child) in node.children().into_iter().enumerate() {
            // The result of a subquery is repeated in every row.
            let repeated = repeats || (subqueries && at > 0);
            let limits = Limits {
                rows,
                value_bytes: repeated.then_some(self.value_bytes),
                unnested: node.is::<UnnestExec>(),
            };
            let child: Arc<dyn ExecutionPlan> = Arc::new(self.guard(Arc::clone(child), limits)?);
            children.push(child);
        }
        let inner = if children.is_empty() {
            node
        } else {
            node.replace_children(children, ReplaceChildrenOptions::new(KEEP))?
        };
        Ok(GuardExec {
            // Other threads read their rows.
            takes_over: inner.is::<ScanExec>() || inner.is::<PyramidExec>(),
            answers: false,
            inner,
            statement: Arc::clone(self.statement),
            limits,
        })
    }
}

/// Guards do not change the properties of a plan.
const KEEP: ChildrenPropertiesMode = ChildrenPropertiesMode::Keep;

/// Approximate bytes of an operator's output per row, including constant texts.
fn weight(node: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let mut bytes = node
        .schema()
        .fields()
        .len()
        .saturating_mul(EXPRESSION_BYTES);
    node.apply_expressions(&mut |expr| {
        bytes = bytes.saturating_add(weight_of(expr));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

fn weight_of(expr: &Arc<dyn PhysicalExpr>) -> usize {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return EXPRESSION_BYTES.saturating_add(of_scalar(literal.value()));
    }
    let of = expr.children();
    // The members of a list are compared, never repeated.
    let of = if expr.is::<InListExpr>() {
        of.get(..1)
    } else {
        of.get(..)
    };
    let of = of.unwrap_or_default().iter();
    of.fold(EXPRESSION_BYTES, |sum, child| {
        sum.saturating_add(weight_of(child))
    })
}

/// True when the operator copies the values of one row to several rows.
fn repeats_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<HashJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<SymmetricHashJoinExec>()
        || node.is::<UnnestExec>()
        || node.name() == "AsOfJoinExec"
}

fn repeats_long_values(node: &Arc<dyn ExecutionPlan>) -> bool {
    let windows = node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>();
    (windows || repeats_rows(node))
        && node
            .schema()
            .fields()
            .iter()
            .any(|field| varies(field.data_type()))
}

/// Maximum rows of an operator's input batches.
fn rows_into(node: &Arc<dyn ExecutionPlan>, rows: usize) -> usize {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return rows;
    };
    let sets = aggregate.group_expr().groups().len();
    rows.min((SETS_ROWS / sets.max(1)).max(1))
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum rows of the batches that are passed on.
    rows: usize,
    /// Maximum bytes of the values of a row, if they are repeated.
    value_bytes: Option<usize>,
    /// True if its lists become rows.
    unnested: bool,
}

/// An operator and its guard.
#[derive(Debug)]
pub(crate) struct GuardExec {
    inner: Arc<dyn ExecutionPlan>,
    statement: Arc<Statement>,
    limits: Limits,
    takes_over: bool,
    /// True if its batches are the answer.
    answers: bool,
}

impl GuardExec {
    fn around(&self, inner: Arc<dyn ExecutionPlan>, limits: Limits) -> GuardExec {
        GuardExec {
            inner,
            statement: Arc::clone(&self.statement),
            limits,
            takes_over: self.takes_over,
            answers: self.answers,
        }
    }
}

impl DisplayAs for GuardExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(kind, f)
    }
}

impl ExecutionPlan for GuardExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.inner.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).replace_children(children, options)?;
        Ok(Arc::new(self.around(inner, self.limits)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).reset_state()?;
        Ok(Arc::new(self.around(inner, self.limits)))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.with_new_state(state)?;
        Some(Arc::new(self.around(inner, self.limits)))
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let _inside = self.statement.enter();
        self.statement.check()?;
        let inner = self.inner.execute(partition, context)?;
        Ok(Box::pin(Guarded {
            schema: inner.schema(),
            inner: Some(inner),
            statement: Arc::clone(&self.statement),
            limits: self.limits,
            takes_over: self.takes_over,
            answers: self.answers,
            rest: None,
            outside: VecDeque::new(),
        }))
    }
}

/// Number of batches of an answer that its client may still have in memory.
const OUTSIDE: usize = 4;

/// The batches of an operator.
struct Guarded {
    schema: SchemaRef,
    /// `None` after the end.
    inner: Option<SendableRecordBatchStream>,
    statement: Arc<Statement>,
    limits: Limits,
    takes_over: bool,
    answers: bool,
    /// The rest of a batch that is passed on in parts.
    rest: Option<RecordBatch>,
    /// Bytes of the most recently returned batches.
    outside: VecDeque<usize>,
}

impl Guarded {
    /// The next part of a batch.
    fn part(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let all = batch.num_rows();
        let mut rows = all.min(self.limits.rows.max(1));
        if self.answers {
            let bytes = |rows: usize| {
                let columns = batch.columns().iter();
                columns.fold(0usize, |sum, column| {
                    sum.saturating_add(extent(column, 0, rows))
                })
            };
            while rows > 1 && bytes(rows) > ANSWER_BYTES {
                rows = rows.div_ceil(2);
            }
            if bytes(rows) > ROW_BYTES_MAX {
                return Err(Error::too_large(format!(
                    "a row of the result is larger than {} MiB",
                    ROW_BYTES_MAX >> 20
                ))
                .with_hint("select fewer columns, or a part of each value")
                .into());
            }
        }
        if rows == all {
            return Ok(batch);
        }
        self.rest = Some(batch.slice(rows, all - rows));
        Ok(batch.slice(0, rows))
    }

    fn look_at(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        handed_on();
        if self.takes_over {
            self.statement.take_over(of_batch(&batch));
        }
        if let Some(most) = self.limits.value_bytes {
            // A list by itself is copied once; other columns are copied once for each of its
            // elements.
            let most = if self.limits.unnested && batch.num_rows() == 1 {
                let variable = batch.columns().iter().filter(|c| varies(c.data_type()));
                match variable.count() {
                    0 | 1 => most.max(ROW_BYTES_MAX / batch.num_columns().max(1)),
                    _ => most,
                }
            } else {
                most
            };
            let found = widest(&batch, most);
            if found > most {
                return Err(Error::too_large(format!(
                    "values of {found} bytes are too long to be joined or unnested; at most {most} bytes are allowed"
                ))
                .with_hint("join first, then compute or select long values from the result")
                .into());
            }
        }
        self.part(batch)
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(self.part(rest)));
        }
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        if let Err(error) = super::statement::checkpoint() {
            return Poll::Ready(Some(Err(error)));
        }
        let next = ready!(inner.poll_next_unpin(context));
        Poll::Ready(match next {
            Some(Ok(batch)) => {
                let batch = self.look_at(batch);
                Some(batch.and_then(|batch| {
                    super::statement::checkpoint()?;
                    Ok(batch)
                }))
            }
            other => other,
        })
    }
}

impl Stream for Guarded {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let statement = Arc::clone(&this.statement);
        let _inside = statement.enter();
        let next = ready!(this.next(context));
        match &next {
            Some(Ok(batch)) if this.answers => {
                this.outside.push_back(of_batch(batch));
                if this.outside.len() > OUTSIDE
                    && let Some(bytes) = this.outside.pop_front()
                {
                    statement.hand_over(bytes);
                }
            }
            Some(Ok(_)) => {}
            // Memory is released now, not when the error has been read.
            Some(Err(_)) | None => {
                this.rest = None;
                this.inner = None;
            }
        }
        Poll::Ready(next)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Memory that the operator frees is credited to the statement.
        let _inside = self.statement.enter();
        self.rest = None;
        self.inner = None;
    }
}

impl RecordBatchStream for Guarded {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
