//! Compared columns that are computed, and not columns of tables.
//!
//! The rows of tables are compared by the engine, which has a single NaN; the result of an
//! undefined operation is NaN of either sign, depending on the machine.

use super::lengths::is_comparison;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::collections::HashSet;

/// Computed columns of a node's inputs.
pub(super) type Computed = HashSet<Column>;

/// The computed columns that a node compares.
pub(super) fn columns_compared(plan: &LogicalPlan) -> Result<Computed> {
    let mut found = Computed::new();
    let inputs = plan.inputs();
    let mut look = |side: &Expr| {
        if let Expr::Column(column) = side
            && !found.contains(column)
            && !inputs.iter().any(|input| is_of_table(input, column))
        {
            found.insert(column.clone());
        }
    };
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            match part {
                Expr::BinaryExpr(binary) if is_comparison(binary.op) => {
                    look(&binary.left);
                    look(&binary.right);
                }
                Expr::Between(between) => look(&between.expr),
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if matches!(plan, LogicalPlan::TableScan(_)) {
        found.clear();
    }
    Ok(found)
}

/// Whether a column of a plan is an unchanged column of a table.
pub(super) fn is_of_table(plan: &LogicalPlan, column: &Column) -> bool {
    let Some(at) = plan.schema().maybe_index_of_column(column) else {
        return false;
    };
    is_of_table_at(plan, at)
}

fn is_of_table_at(plan: &LogicalPlan, at: usize) -> bool {
    let of = |input: &LogicalPlan, expr: &Expr| match expr.clone().unalias_nested().data {
        Expr::Column(column) => is_of_table(input, &column),
        _ => false,
    };
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_of_table_at(&alias.input, at),
        LogicalPlan::Filter(filter) => is_of_table_at(&filter.input, at),
        LogicalPlan::Sort(sort) => is_of_table_at(&sort.input, at),
        LogicalPlan::Limit(limit) => is_of_table_at(&limit.input, at),
        LogicalPlan::Projection(projection) => projection
            .expr
            .get(at)
            .is_some_and(|expr| of(&projection.input, expr)),
        LogicalPlan::Aggregate(aggregate) => aggregate
            .group_expr
            .get(at)
            .is_some_and(|expr| of(&aggregate.input, expr)),
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.schema.fields().len() {
                all if all == left + join.right.schema().fields().len() => match at {
                    at if at < left => is_of_table_at(&join.left, at),
                    at => is_of_table_at(&join.right, at - left),
                },
                _ => false,
            }
        }
        _ => false,
    }
}
