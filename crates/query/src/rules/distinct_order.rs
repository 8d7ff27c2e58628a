//! The order of distinct values that were cast.
//!
//! `string_agg(DISTINCT tag, ',' ORDER BY tag)` takes texts, so the SQL library casts the tag, but
//! not its sort key, and then does not recognise that the two are equal.

use crate::rules::keep_names::map_expressions;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// The rule; runs after type coercion of arguments.
#[derive(Debug)]
pub(crate) struct DistinctOrder;

impl AnalyzerRule for DistinctOrder {
    fn name(&self) -> &str {
        "distinct_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            if !matches!(plan, LogicalPlan::Aggregate(_)) {
                return Ok(Transformed::no(plan));
            }
            let mut any = false;
            plan.apply_expressions(|expr| {
                any = any || expr.exists(|part| Ok(orders(part)))?;
                Ok(match any {
                    true => TreeNodeRecursion::Stop,
                    false => TreeNodeRecursion::Continue,
                })
            })?;
            if !any {
                return Ok(Transformed::no(plan));
            }
            map_expressions(plan, &mut |expr| {
                expr.transform_up(|mut part| {
                    let changed = match &mut part {
                        Expr::AggregateFunction(call) if call.params.distinct => as_cast(call),
                        _ => false,
                    };
                    Ok(match changed {
                        true => Transformed::yes(part),
                        false => Transformed::no(part),
                    })
                })
            })
        })?;
        Ok(plan.data)
    }
}

fn orders(expr: &Expr) -> bool {
    match expr {
        Expr::AggregateFunction(call) => call.params.distinct && !call.params.order_by.is_empty(),
        _ => false,
    }
}

/// Orders by the arguments after their casts.
fn as_cast(call: &mut AggregateFunction) -> bool {
    let mut changed = false;
    let args = &call.params.args;
    for key in &mut call.params.order_by {
        let cast = args.iter().find(|arg| match arg {
            Expr::Cast(cast) => *cast.expr == key.expr,
            _ => false,
        });
        if let Some(cast) = cast {
            key.expr = cast.clone();
            changed = true;
        }
    }
    changed
}
