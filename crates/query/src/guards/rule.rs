//! Adds guards to the parts that the planner itself has put into a plan: functions that no
//! statement names, aggregates, windows, operators; and refuses types and parameters whose sizes
//! alone are too large.
//!
//! Invariants: a plan has the same meaning with its guards, and its columns keep their names. The
//! statement is checked before and between the SQL library's rules.

use super::function::{guard_expr, needs_guard};
use super::sizes::check;
use super::statement::checkpoint;
use crate::rules::keep_names::map_expressions;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};

/// Checks whether the statement may continue, before its plan is analyzed.
#[derive(Debug)]
pub(crate) struct MayGoOn;

impl AnalyzerRule for MayGoOn {
    fn name(&self) -> &str {
        "may_go_on"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|_| {
            checkpoint()?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }
}

/// The rule: runs last in the analyzer, and between the passes of the optimizer.
#[derive(Debug)]
pub(crate) struct GuardRule;

impl AnalyzerRule for GuardRule {
    fn name(&self) -> &str {
        "resource_guards"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(guard_node)?.data)
    }
}

impl OptimizerRule for GuardRule {
    fn name(&self) -> &str {
        "resource_guards"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        guard_node(plan)
    }
}

fn guard_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    checkpoint()?;
    let mut any = false;
    plan.apply_expressions(|expr| {
        checkpoint()?;
        expr.apply(|part| {
            check(part)?;
            any |= needs_guard(part);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if !any {
        return Ok(Transformed::no(plan));
    }
    map_expressions(plan, &mut |expr| expr.transform_up(guard_expr))
}
