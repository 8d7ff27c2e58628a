//! Converts a join whose condition has a marked comparison into a node.

use super::node::AsOf;
use crate::error::Error;
use crate::rewrites::asof::NEAREST;
use crate::rules::keep_names::has_part;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Extension, Join, LogicalPlan, Operator,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule; runs after type coercion.
#[derive(Debug)]
pub(crate) struct PlanAsOf;

impl AnalyzerRule for PlanAsOf {
    fn name(&self) -> &str {
        "plan_asof_joins"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found |= matches!(node, LogicalPlan::Join(_)) && has_part(node, is_marked)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(plan);
        }
        let changed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(has_mark) => {
                Ok(Transformed::yes(node_of(join)?))
            }
            other => Ok(Transformed::no(other)),
        });
        changed.data()
    }
}

fn is_marked(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == NEAREST)
}

fn has_mark(expr: &Expr) -> bool {
    expr.exists(|part| Ok(is_marked(part))).unwrap_or(false)
}

fn wrong(what: &str) -> datafusion::common::DataFusionError {
    Error::unsupported(format!("ASOF JOIN: {what}"))
        .with_hint("ASOF JOIN b ON a.id = b.id AND a.time >= b.time")
        .into()
}

/// Both operands of a condition, the left table's first, and whether they were swapped.
fn operands(left: Expr, right: Expr, join: &Join) -> Result<(Expr, Expr, bool)> {
    let of = |expr: &Expr, schema: &DFSchemaRef| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    let (a, b) = (join.left.schema(), join.right.schema());
    if of(&left, a) && of(&right, b) {
        Ok((left, right, false))
    } else if of(&right, a) && of(&left, b) {
        Ok((right, left, true))
    } else {
        Err(wrong(
            "each condition must compare a column of one side with one of the other",
        ))
    }
}

fn node_of(join: Join) -> Result<LogicalPlan> {
    let outer = match join.join_type {
        JoinType::Left => true,
        JoinType::Inner => false,
        _ => return Err(wrong("it must be an inner or a left join")),
    };
    let (mut left_by, mut right_by): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    let mut nearest = None;
    for part in join
        .filter
        .clone()
        .map(split_conjunction_owned)
        .into_iter()
        .flatten()
    {
        match part {
            Expr::ScalarFunction(mut call) if call.func.name() == NEAREST && nearest.is_none() => {
                nearest = call.args.pop();
            }
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Eq,
                right,
            }) => {
                let (left, right, _) = operands(*left, *right, &join)?;
                left_by.push(left);
                right_by.push(right);
            }
            _ => {
                return Err(wrong(
                    "besides equalities it needs exactly one comparison by >=, >, <= or <",
                ));
            }
        }
    }
    let (left, right, forward, strict) = comparison(nearest, &join)?;
    left_by.push(left);
    right_by.push(right);
    check_types(&join, &left_by, &right_by)?;
    let node = AsOf {
        left: join.left,
        right: join.right,
        schema: join.schema,
        left_by,
        right_by,
        forward,
        strict,
        outer,
    };
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    }))
}

/// The marked comparison: its two sides, the direction of nearness, and whether equal times are
/// excluded.
fn comparison(marked: Option<Expr>, join: &Join) -> Result<(Expr, Expr, bool, bool)> {
    let Some(Expr::BinaryExpr(BinaryExpr { left, op, right })) = marked else {
        return Err(wrong("it needs exactly one comparison by >=, >, <= or <"));
    };
    let (left, right, swapped) = operands(*left, *right, join)?;
    let op = if swapped { op.swap() } else { Some(op) };
    let (forward, strict) = match op {
        Some(Operator::GtEq) => (false, false),
        Some(Operator::Gt) => (false, true),
        Some(Operator::LtEq) => (true, false),
        Some(Operator::Lt) => (true, true),
        _ => return Err(wrong("it needs exactly one comparison by >=, >, <= or <")),
    };
    Ok((left, right, forward, strict))
}

fn check_types(join: &Join, left_by: &[Expr], right_by: &[Expr]) -> Result<()> {
    for (left, right) in left_by.iter().zip(right_by) {
        let left_type = left.get_type(join.left.schema())?;
        let right_type = right.get_type(join.right.schema())?;
        if left_type != right_type {
            return Err(Error::type_mismatch(format!(
                "ASOF JOIN: {left} is {}, {right} is {}",
                headwater_columnar::type_name(&left_type),
                headwater_columnar::type_name(&right_type)
            ))
            .with_hint("CAST one of them")
            .into());
        }
    }
    Ok(())
}
