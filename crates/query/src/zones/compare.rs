//! Comparisons of instants with days and with timestamps without zone.

use super::functions::convert;
use super::of_session;
use super::read::{WALL, is_wall};
use crate::rules::keep_names::map_expressions;
use crate::rules::lengths::is_comparison;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Between, Cast, InList};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use headwater_wire::zone::Zone;

/// The rule. Runs before type coercion of comparisons, which would compare local times: then the
/// condition could not be pushed down to the engine, and a repeated hour would be treated as one.
#[derive(Debug)]
pub(crate) struct CompareInZone;

impl AnalyzerRule for CompareInZone {
    fn name(&self) -> &str {
        "compare_in_time_zone"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let Some(zone) = of_session(options)? else {
            return Ok(plan);
        };
        let plan = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            map_expressions(plan, &mut |expr| {
                expr.transform_up(|part| Ok(rewrite(part, &schema, &zone)))
            })
        })?;
        Ok(plan.data)
    }
}

/// Whether an operand is an instant; untyped operands are left to the rules that coerce them.
fn has_instant<'a>(operands: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema) -> bool {
    operands
        .into_iter()
        .any(|e| matches!(e.get_type(schema), Ok(DataType::Timestamp(_, Some(_)))))
}

/// Converts a local time to its instant. Returns whether it was a local time.
fn to_instant(expr: &mut Expr, schema: &DFSchema, zone: &Zone) -> bool {
    match expr.get_type(schema) {
        Ok(of) if is_wall(&of) => {
            let time = Expr::Cast(Cast::new(Box::new(std::mem::take(expr)), WALL));
            *expr = convert(zone, time);
            true
        }
        _ => false,
    }
}

fn rewrite(mut expr: Expr, schema: &DFSchema, zone: &Zone) -> Transformed<Expr> {
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if is_comparison(*op) && has_instant([&**left, &**right], schema) =>
        {
            to_instant(left, schema, zone) | to_instant(right, schema, zone)
        }
        Expr::Between(Between {
            expr, low, high, ..
        }) if has_instant([&**expr, &**low, &**high], schema) => {
            to_instant(expr, schema, zone)
                | to_instant(low, schema, zone)
                | to_instant(high, schema, zone)
        }
        Expr::InList(InList { expr, list, .. })
            if has_instant(std::iter::once(&**expr).chain(&*list), schema) =>
        {
            let mut changed = to_instant(expr, schema, zone);
            for item in list {
                changed |= to_instant(item, schema, zone);
            }
            changed
        }
        _ => false,
    };
    match changed {
        true => Transformed::yes(expr),
        false => Transformed::no(expr),
    }
}
