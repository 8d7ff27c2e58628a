//! Buckets of time without rows: `time_bucket_gapfill`, `locf` and `interpolate`, as in
//! TimescaleDB.
//!
//! `time_bucket_gapfill` in `GROUP BY` is `time_bucket`, with a [`node`] above the groups that
//! inserts missing buckets within the statement's bounds of time; [`rule`] rewrites plans so, and
//! [`exec`] computes it.
//!
//! Invariants: no row of the groups is removed or changed, including rows outside of the bounds.
//! The groups themselves are computed as with `time_bucket`, by the pyramid if possible.

mod exec;
mod functions;
mod node;
mod rule;
mod steps;

pub(crate) use functions::all as functions;
pub(crate) use node::GapFill;
pub(crate) use rule::FillGaps;

use datafusion::common::{DFSchema, Result, internal_datafusion_err};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Converts a logical expression into a physical one.
type Physical<'a> = &'a dyn Fn(&Expr, &DFSchema) -> Result<Arc<dyn PhysicalExpr>>;

/// The operator of a node.
pub(crate) fn plan(
    node: &GapFill,
    input: &Arc<dyn ExecutionPlan>,
    constant: Physical<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let nothing = DFSchema::empty();
    let constants = |exprs: &[Expr]| -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        exprs.iter().map(|expr| constant(expr, &nothing)).collect()
    };
    let bounds = exec::Bounds {
        begins: constants(&node.begins)?,
        ends: constants(&node.ends)?,
    };
    let zone = match &node.zone {
        None => None,
        Some(name) => Some(
            headwater_wire::zone::Zone::read(name)
                .map_err(|why| internal_datafusion_err!("{why}"))?,
        ),
    };
    let exec = exec::GapFillExec::new(node, Arc::clone(input), bounds, zone)?;
    Ok(Arc::new(exec))
}
