//! Ends joins whose asker has gone, or whose time is up, between two steps of theirs.
//!
//! A join that finds no rows hands nothing out until it has compared all of them, and gives nobody the chance to end it. Its condition
//! is computed for some thousand pairs of rows at a time: there it is looked whether somebody still waits. Joins that find
//! rows, and hand out more batches than they take in, let other work of their thread go on after some of them.
//!
//! Invariants: a plan that was kept has none of this; it is put into the plan of one run.
//! Concurrency: the flag is set once, by whoever waited, from any thread.

use crate::answer::too_slow;
use crate::error::Error;
use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

tokio::task_local! {
    /// True when whoever waits for the statement that this task runs has gone.
    static GONE: Arc<AtomicBool>;
}

/// Whether whoever waits for a statement has gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone(Arc<AtomicBool>);

impl Gone {
    /// That of the statement that this task runs; without one, nobody ever goes.
    pub(crate) fn of_task() -> Gone {
        Gone(GONE.try_with(Arc::clone).unwrap_or_default())
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Has a task run its work under this.
    pub(crate) async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        GONE.scope(self.0, work).await
    }
}

/// When a statement is to end.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    gone: Gone,
    deadline: Option<(Instant, Duration)>,
}

impl Stop {
    pub(crate) fn new(deadline: Option<(Instant, Duration)>) -> Stop {
        Stop {
            gone: Gone::of_task(),
            deadline,
        }
    }

    fn check(&self) -> Result<()> {
        if self.gone.0.load(Ordering::Relaxed) {
            return Err(Error::time_limit("nobody waits for the statement any more").into());
        }
        match self.deadline {
            Some((at, limit)) if Instant::now() >= at => Err(too_slow(limit).into()),
            _ => Ok(()),
        }
    }

    /// The plan with joins that can be ended.
    pub(crate) fn guard(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let is_join = |node: &Arc<dyn ExecutionPlan>| {
            node.is::<NestedLoopJoinExec>()
                || node.is::<HashJoinExec>()
                || node.is::<CrossJoinExec>()
        };
        if !plan.exists(|node| Ok(is_join(node)))? {
            return Ok(plan);
        }
        let guarded = plan.transform_up(|node| {
            let join: Arc<dyn ExecutionPlan> =
                if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
                    let filter = join.filter().map(|filter| self.watched(filter));
                    let join = NestedLoopJoinExecBuilder::from(join).with_filter(filter);
                    Arc::new(join.build()?)
                } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
                    match join.filter() {
                        Some(filter) => {
                            let filter = Some(self.watched(filter));
                            join.builder().with_filter(filter).build_exec()?
                        }
                        None => Arc::clone(&node),
                    }
                } else if node.is::<CrossJoinExec>() {
                    Arc::clone(&node)
                } else {
                    return Ok(Transformed::no(node));
                };
            Ok(Transformed::yes(Arc::new(CooperativeExec::new(join))))
        })?;
        Ok(guarded.data)
    }

    fn watched(&self, filter: &JoinFilter) -> JoinFilter {
        let watched = Watched {
            condition: Arc::clone(filter.expression()),
            stop: self.clone(),
        };
        JoinFilter::new(
            Arc::new(watched),
            filter.column_indices().to_vec(),
            Arc::clone(filter.schema()),
        )
    }
}

/// A condition that fails when the statement is to end.
#[derive(Debug)]
struct Watched {
    condition: Arc<dyn PhysicalExpr>,
    stop: Stop,
}

impl PartialEq for Watched {
    fn eq(&self, other: &Watched) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Watched {
    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.condition.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.stop.check()?;
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match <[Arc<dyn PhysicalExpr>; 1]>::try_from(children) {
            Ok([condition]) => Ok(Arc::new(Watched {
                condition,
                stop: self.stop.clone(),
            })),
            Err(_) => Err(Error::internal("a watched condition is one condition").into()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}
