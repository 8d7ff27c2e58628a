//! Moves conditions on partition columns below a clause.
//!
//! Partitions are independent: a partition whose matches are all filtered out need not be searched
//! or read. Any other condition stays above the clause, since it would change the matches.
//!
//! Invariant: answers are the same; names and types of columns stay.

use super::node::Pattern;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Extension, Filter, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// The rule; runs after conditions were pushed down to the clause, and before the next push-down.
#[derive(Debug)]
pub(crate) struct FilterPartitions;

impl OptimizerRule for FilterPartitions {
    fn name(&self) -> &str {
        "filter_partitions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = plan else {
            return Ok(Transformed::no(plan));
        };
        let LogicalPlan::Extension(extension) = &*filter.input else {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        };
        let Some(pattern) = extension.node.as_any().downcast_ref::<Pattern>() else {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        };
        let conditions = split_conjunction_owned(filter.predicate.clone());
        let (before, behind): (Vec<Expr>, Vec<Expr>) = conditions
            .into_iter()
            .partition(|condition| is_of_partition(condition, pattern));
        let of_input = |expr: Expr| {
            let column = match &expr {
                Expr::Column(column) => of_partition(pattern, column),
                _ => None,
            };
            Ok(match column {
                Some(column) => Transformed::yes(column.clone()),
                None => Transformed::no(expr),
            })
        };
        let before = before
            .into_iter()
            .map(|condition| Ok(condition.transform(of_input)?.data));
        let Some(before) = conjunction(before.collect::<Result<Vec<Expr>>>()?) else {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        };
        let input = Filter::try_new(before, Arc::clone(&pattern.input))?;
        let pattern = Pattern {
            input: Arc::new(LogicalPlan::Filter(input)),
            ..pattern.clone()
        };
        let pattern = LogicalPlan::Extension(Extension {
            node: Arc::new(pattern),
        });
        Ok(Transformed::yes(match conjunction(behind) {
            None => pattern,
            Some(behind) => LogicalPlan::Filter(Filter::try_new(behind, Arc::new(pattern))?),
        }))
    }
}

/// The expression of an output column before the clause, if it is a column of the partition.
fn of_partition<'a>(pattern: &'a Pattern, column: &Column) -> Option<&'a Expr> {
    let named = pattern.schema.columns();
    let alike = named.iter().filter(|known| known.name == column.name);
    if alike.count() > 1 {
        return None;
    }
    let at = pattern.schema.maybe_index_of_column(column)?;
    // Columns of the partition are output first.
    pattern.partition.get(at)
}

/// Whether a condition has the same value for all rows of a partition, at any time.
fn is_of_partition(condition: &Expr, pattern: &Pattern) -> bool {
    let used = condition.column_refs();
    let apart = |expr: &Expr| {
        let refers = matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        );
        Ok(refers || expr.is_volatile_node())
    };
    !used.is_empty()
        && used.iter().all(|column| of_partition(pattern, column).is_some())
        // The closure never fails.
        && !condition.exists(apart).unwrap_or(true)
}
