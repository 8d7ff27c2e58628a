//! Shorter optimisation of the most common statements: reads of one table.
//!
//! The SQL library's optimizer applies each of its rules to a plan, repeatedly until it no longer
//! changes. Most of the rules concern joins, unions and subqueries. A plan without those is passed
//! once through the other rules, in an order in which none needs a repetition.
//!
//! Invariants: the rules are those of the optimizer; the columns of the plan are unchanged. A plan
//! with any unknown part takes the full optimisation.

use crate::error::Error;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Explain, Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerRule};
use std::sync::Arc;

/// The rules, in their order. Conditions are pushed down to the table before limits, which stop at
/// conditions.
const RULES: [&str; 15] = [
    "lists_apart",
    "simplify_expressions",
    "replace_distinct_aggregate",
    "eliminate_duplicated_expr",
    "eliminate_filter",
    "eliminate_limit",
    "propagate_empty_relation",
    "push_down_filter",
    "push_down_limit",
    "single_distinct_aggregation_to_group_by",
    "eliminate_group_by_constant",
    "common_sub_expression_eliminate",
    "optimize_projections",
    "use_pyramid",
    "resource_guards",
];

/// Common functions whose values are no larger than their arguments.
const BOUNDED: [&str; 19] = [
    "abs",
    "ceil",
    "coalesce",
    "date_bin",
    "date_part",
    "date_trunc",
    "floor",
    "greatest",
    "least",
    "length",
    "lower",
    "now",
    "nullif",
    "round",
    "sqrt",
    "time_bucket",
    "to_timestamp",
    "trunc",
    "upper",
];

/// The rules of the shorter optimisation.
pub(crate) struct Simple {
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
}

impl Simple {
    /// Selects them among all rules; missing rules are skipped.
    pub(crate) fn of(optimizer: &Optimizer) -> Simple {
        let rules = RULES.iter().filter_map(|name| {
            let found = optimizer.rules.iter().find(|rule| rule.name() == *name);
            found.cloned()
        });
        Simple {
            rules: rules.collect(),
        }
    }

    /// Analyses and optimises a plan.
    pub(crate) fn optimize(&self, state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Explain(explain) if !explain.verbose && is_simple(&explain.plan)? => {
                let inner = self.optimize_simple(state, &explain.plan)?;
                Ok(LogicalPlan::Explain(Explain {
                    plan: Arc::new(inner),
                    logical_optimization_succeeded: true,
                    ..explain.clone()
                }))
            }
            LogicalPlan::Explain(_) => state.optimize(plan),
            plan if is_simple(plan)? => self.optimize_simple(state, plan),
            plan => state.optimize(plan),
        }
    }

    fn optimize_simple(&self, state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let analyzer = state.analyzer();
        let mut plan =
            analyzer.execute_and_check(plan.clone(), state.config_options(), |_, _| {})?;
        let schema = Arc::clone(plan.schema());
        for rule in &self.rules {
            let rewritten = match rule.apply_order() {
                Some(ApplyOrder::TopDown) => plan.transform_down(|node| rule.rewrite(node, state)),
                Some(ApplyOrder::BottomUp) => plan.transform_up(|node| rule.rewrite(node, state)),
                None => rule.rewrite(plan, state),
            };
            plan = rewritten.map_err(|error| error.context(rule.name()))?.data;
        }
        if !schema.logically_equivalent_names_and_types(plan.schema()) {
            let error = Error::internal("the planner has changed the columns of a statement");
            return Err(error.into());
        }
        Ok(plan)
    }
}

/// Whether a plan reads one table, without subqueries and without calls that have large results.
fn is_simple(plan: &LogicalPlan) -> Result<bool> {
    let (mut simple, mut tables) = (true, 0);
    plan.apply(|node| {
        simple &= match node {
            LogicalPlan::TableScan(_) => {
                tables += 1;
                tables == 1
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::EmptyRelation(_) => true,
            _ => false,
        };
        if simple {
            node.apply_expressions(|expr| {
                simple &= !expr.exists(|part| Ok(needs_planner(part)))?;
                Ok(match simple {
                    true => TreeNodeRecursion::Continue,
                    false => TreeNodeRecursion::Stop,
                })
            })?;
        }
        Ok(match simple {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(simple && tables == 1)
}

/// Whether an expression has a subquery, accesses parts of structures, for which there are rules
/// too, or calls a function that is not known to be harmless.
fn needs_planner(expr: &Expr) -> bool {
    match expr {
        Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::SetComparison(_)
        | Expr::ScalarSubquery(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::GroupingSet(_)
        | Expr::Unnest(_) => true,
        // Calls with large results are estimated again after constants have been folded, which
        // takes more than one round.
        Expr::ScalarFunction(call) => !BOUNDED.contains(&call.func.name()),
        _ => false,
    }
}
