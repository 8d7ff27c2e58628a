//! Removes duplicate sort keys.
//!
//! A repeated key does not affect the order, but the SQL library treats it as different: it panics
//! if `DISTINCT ON`, or an aggregate, has it in its order. A key that is written in two ways (`id`,
//! `t.id`, the number of a column) is a duplicate once names are resolved.

use crate::rules::keep_names::{has_part, map_expressions};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// The rule.
#[derive(Debug)]
pub(crate) struct OrderOnce;

impl AnalyzerRule for OrderOnce {
    fn name(&self) -> &str {
        "order_once"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            let LogicalPlan::Distinct(Distinct::On(mut on)) = plan else {
                return expressions(plan);
            };
            let changed = on.sort_expr.as_mut().is_some_and(each_once);
            let plan = LogicalPlan::Distinct(Distinct::On(on));
            Ok(match changed {
                true => Transformed::yes(plan),
                false => Transformed::no(plan),
            })
        })?;
        Ok(plan.data)
    }
}

fn each_once(keys: &mut Vec<Sort>) -> bool {
    let count = keys.len();
    if count < 2 {
        return false;
    }
    let mut known: Vec<Expr> = Vec::with_capacity(count);
    keys.retain(|key| {
        // A random key has a different value each time.
        let is_new = key.expr.is_volatile() || !known.contains(&key.expr);
        known.push(key.expr.clone());
        is_new
    });
    keys.len() < count
}

fn orders(expr: &Expr) -> bool {
    match expr {
        Expr::AggregateFunction(call) => call.params.order_by.len() > 1,
        Expr::WindowFunction(call) => call.params.order_by.len() > 1,
        _ => false,
    }
}

fn expressions(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has_part(&plan, orders)? {
        return Ok(Transformed::no(plan));
    }
    map_expressions(plan, &mut |expr| {
        expr.transform_up(|mut part| {
            let changed = match &mut part {
                Expr::AggregateFunction(call) => each_once(&mut call.params.order_by),
                Expr::WindowFunction(call) => each_once(&mut call.params.order_by),
                _ => false,
            };
            Ok(match changed {
                true => Transformed::yes(part),
                false => Transformed::no(part),
            })
        })
    })
}
