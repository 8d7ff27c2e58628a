//! `ASOF JOIN`: for each row of the left side the nearest row of the right side that is not later
//! (or not earlier), among those that are equal in other columns.
//!
//! [`function`](nearest) marks the comparison in the condition of a join, [`rule`] makes a [`node`]
//! of the join, [`exec`] computes it by one pass over both sides, which are sorted for it where
//! they are not.
//!
//! Invariants: each row of the left side stands in the answer at most once, and in a left join
//! exactly once. Absent values are equal to nothing and near to nothing. Of several rows that are
//! equally near one is taken, as a whole.

mod exec;
mod function;
mod node;
mod rule;

pub(crate) use function::nearest;
pub(crate) use node::AsOf;
pub(crate) use rule::PlanAsOf;

use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Makes an expression of a plan one that is computed.
type Physical<'a> = &'a dyn Fn(&Expr, &DFSchema) -> Result<Arc<dyn PhysicalExpr>>;

/// The operator of a node.
pub(crate) fn plan(
    node: &AsOf,
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
    expression: Physical<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let side = |input: &Arc<dyn ExecutionPlan>, exprs: &[Expr], schema: &DFSchema| {
        let exprs = exprs.iter().map(|expr| expression(expr, schema));
        Ok::<_, datafusion::common::DataFusionError>(exec::JoinInput {
            input: Arc::clone(input),
            by: exprs.collect::<Result<_>>()?,
        })
    };
    let left = side(left, &node.left_by, node.left.schema())?;
    let right = side(right, &node.right_by, node.right.schema())?;
    Ok(Arc::new(exec::AsOfExec::new(node, left, right)?))
}
