//! Removes duplicate keys from the looked-up input of semi-joins.
//!
//! `x IN (SELECT …)` and `EXISTS (…)` become joins with one input that is only looked up. If that
//! input has a key many times the SQL library visits all of its rows for each row of the other:
//! here its keys are deduplicated first, and without a comparison it is limited to one row.
//!
//! Invariant: names and columns of the join are unchanged, since that input does not contribute
//! columns.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rule; runs after subqueries have become joins, and conditions and columns were pushed down.
#[derive(Debug)]
pub(crate) struct KeysOnce;

impl OptimizerRule for KeysOnce {
    fn name(&self) -> &str {
        "keys_once"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else {
            return Ok(Transformed::no(plan));
        };
        let right = match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => true,
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => false,
            _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
        };
        let side = if right { &join.right } else { &join.left };
        let Some(made) = once(side, &join, right)? else {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        };
        *(if right {
            &mut join.right
        } else {
            &mut join.left
        }) = Arc::new(made);
        Ok(Transformed::yes(LogicalPlan::Join(join)))
    }
}

/// An input without rows that are duplicates to the join; `None` = already without duplicates.
fn once(side: &Arc<LogicalPlan>, join: &Join, right: bool) -> Result<Option<LogicalPlan>> {
    if is_once(side) {
        return Ok(None);
    }
    let mut columns: BTreeSet<Column> = BTreeSet::new();
    let schema = side.schema();
    let mut take = |expr: &Expr| {
        let used = expr.column_refs().into_iter();
        columns.extend(used.filter(|column| schema.has_column(column)).cloned());
    };
    for (left_key, right_key) in &join.on {
        take(if right { right_key } else { left_key });
    }
    if let Some(filter) = &join.filter {
        take(filter);
    }
    if columns.is_empty() {
        if join.join_type == JoinType::LeftMark || join.join_type == JoinType::RightMark {
            return Ok(None);
        }
        let plan = LogicalPlanBuilder::from(Arc::clone(side));
        return plan.limit(0, Some(1))?.build().map(Some);
    }
    let keys = columns.into_iter().map(Expr::Column).collect();
    let aggregate = Aggregate::try_new(Arc::clone(side), keys, Vec::new())?;
    Ok(Some(LogicalPlan::Aggregate(aggregate)))
}

/// Whether a plan has distinct rows, or a single row.
fn is_once(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.aggr_expr.is_empty() || aggregate.group_expr.is_empty()
        }
        LogicalPlan::Distinct(_) | LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Limit(limit) => matches!(
            limit.get_fetch_type(),
            Ok(datafusion::logical_expr::FetchType::Literal(Some(1)))
        ),
        LogicalPlan::SubqueryAlias(alias) => is_once(&alias.input),
        LogicalPlan::Projection(projection) => {
            projection
                .expr
                .iter()
                .all(|expr| matches!(expr, Expr::Column(_)))
                && projection.expr.len() == projection.input.schema().fields().len()
                && is_once(&projection.input)
        }
        _ => false,
    }
}
