//! Guards around all computations: the memory and time of a statement are measured and bounded
//! during planning, constant folding and execution.
//!
//! `allocator` counts the memory of threads; `statement` is a statement's account and its deadline;
//! `cost` estimates a call of a function before it is made, from the `extent`s of values; `call`
//! makes a call within the account, and `sizes` refuses types that are too large; `function`,
//! `operator`, `aggregates` and `windows` are the guarded versions, `planners` and `rule` put them
//! into plans, `exec` is the guard around each operator of a running plan.
//!
//! Invariants: a failed allocation ends the process, so large values are not built before the
//! account shows that they fit. A call of a function is refused by its arguments, a batch has fewer
//! rows where the plan makes rows long, and the account is checked between two batches, two rows of
//! a window, two states of groups, two parts of a call and two nodes of a plan. A statement uses at
//! most its memory and [`statement::UNDER_WAY`] beyond it, all statements together at most their
//! common memory and as much beyond it, each plus the memory of a single step. Concurrency: see
//! `statement`. Failure: `memory_limit`, `time_limit`, `too_large`.

mod aggregates;
mod allocator;
mod call;
mod exec;
mod extent;
mod function;
mod function_cost;
mod operator;
mod planners;
mod rule;
mod sizes;
mod statement;
mod windows;

pub use allocator::Counting;
pub(crate) use function::guarded;
pub(crate) use rule::{GuardRule, MayGoOn};
pub(crate) use statement::{Statement, checkpoint};

use datafusion::catalog::TableFunction;
use datafusion::common::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// Adds guards to all functions and planners of a state; call after all other registrations.
pub(crate) fn register(builder: &mut SessionStateBuilder) {
    if let Some(functions) = builder.scalar_functions() {
        functions.retain(|function| function_cost::GrowthKind::listed(function.name()).is_some());
        for function in functions.iter_mut() {
            *function = guarded(Arc::clone(function));
        }
    }
    if let Some(functions) = builder.window_functions() {
        for function in functions.iter_mut() {
            *function = windows::window(Arc::clone(function));
        }
    }
    if let Some(functions) = builder.table_functions() {
        for (name, function) in functions.iter_mut() {
            let table = planners::GuardedTable {
                name: name.clone(),
                inner: Arc::clone(function.function()),
            };
            *function = Arc::new(TableFunction::new(name.clone(), Arc::new(table)));
        }
    }
    let own = builder.expr_planners().take().unwrap_or_default();
    let mut all: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(planners::Concatenations)];
    for planner in own {
        all.push(Arc::new(planners::GuardedPlanner(planner)));
    }
    *builder.expr_planners() = Some(all);
    *builder.type_planner() = Some(Arc::new(planners::Sizes));
}

/// Adds a guard to each operator of a plan for a single run.
pub(crate) fn guard(
    plan: Arc<dyn ExecutionPlan>,
    statement: &Arc<Statement>,
) -> Result<Arc<dyn ExecutionPlan>> {
    exec::guard(plan, statement)
}

/// Batch size in rows for the operators of a guarded plan.
pub(crate) fn batch_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    exec::batch_rows(plan)
}

#[cfg(test)]
mod tests {
    use super::function_cost::GrowthKind;
    use datafusion::execution::session_state::SessionStateBuilder;

    #[test]
    fn every_function_has_a_cost() {
        let mut builder = SessionStateBuilder::new_with_default_features();
        crate::functions::register(&mut builder);
        let functions = builder.scalar_functions().take().unwrap_or_default();
        let unknown: Vec<&str> = functions
            .iter()
            .map(|function| function.name())
            .filter(|name| GrowthKind::listed(name).is_none())
            .collect();
        assert!(
            unknown.is_empty(),
            "{unknown:?}: say in guards/function_cost.rs what these make, else they are not registered"
        );
        assert!(functions.len() > 150, "{}", functions.len());
    }
}
