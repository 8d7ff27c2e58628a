//! `ASOF JOIN`: for each row of the left side the nearest row of the right side that is not later
//! (or not earlier), among the rows that are equal in other columns.
//!
//! [`function`](nearest) marks the comparison in the condition of a join, [`rule`] converts the
//! join into a [`node`], [`exec`] computes it in one pass over both sides, which are sorted first
//! if necessary.
//!
//! Invariants: each row of the left side is in the answer at most once, and in a left join exactly
//! once. NULL is neither equal nor near to any value. Among several equally near rows, one whole
//! row is used.

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

/// Converts a logical expression into a physical one.
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
