//! Ends joins between two of their steps, when their statement is cancelled or its deadline has
//! passed.
//!
//! A join that finds no rows returns only after it has compared all of them, and cannot be ended
//! before. Its condition is computed for some thousand pairs of rows at a time: there the statement
//! is checked. Joins that find rows, and return more batches than they read, yield to other work of
//! their thread after some of them.
//!
//! Invariant: a cached plan does not have these checks; they are added to the plan of one run.

use crate::error::Error;
use crate::guards::Statement;
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

/// Cancellation and deadline of a statement.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    statement: Arc<Statement>,
}

impl Stop {
    pub(crate) fn new(statement: &Arc<Statement>) -> Stop {
        Stop {
            statement: Arc::clone(statement),
        }
    }

    /// The plan with guards, and with joins that can be ended.
    pub(crate) fn guard(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        crate::guards::guard(self.guard_joins(plan)?, &self.statement)
    }

    /// The plan with joins that can be ended.
    fn guard_joins(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
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

/// A condition that fails when the statement must end.
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
        let _inside = self.stop.statement.enter();
        crate::guards::checkpoint()?;
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
