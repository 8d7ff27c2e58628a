//! Guards around everything that computes: what a statement takes, in memory and in time, is known
//! and bounded while it is planned, while its constants are folded and while it runs.
//!
//! `allocator` counts the memory of threads; `statement` is a statement's account and its deadline;
//! `cost` estimates a call of a function before it is made, with `extent`s of values; `call` makes
//! a call within the account, and `sizes` refuses types that are too large; `function`, `operator`,
//! `aggregates` and `windows` are the guarded ones, `planners` and `rule` put them into plans,
//! `exec` is the guard around each operator of a plan that runs.
//!
//! Invariants: memory that is denied ends the process, so nothing of any size is made before the
//! account shows that it fits. A call of a function is refused by its arguments, a batch has fewer
//! rows where a plan makes them long, and the account is checked between two batches, two rows of a
//! window, two states of groups, two parts of a call and two nodes of a plan. A statement takes at
//! most its memory and [`statement::UNDER_WAY`] beyond it, all statements together at most theirs
//! and as much beyond it, each but for the memory of a single step.
//! Concurrency: see `statement`.
//! Failure: `memory_limit`, `time_limit`, `too_large`.

mod aggregates;
mod allocator;
mod call;
mod cost;
mod exec;
mod extent;
mod function;
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

/// Puts guards around all functions and planners of a state; after everything else has been
/// registered.
pub(crate) fn register(builder: &mut SessionStateBuilder) {
    if let Some(functions) = builder.scalar_functions() {
        functions.retain(|function| cost::Kind::known(function.name()).is_some());
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

/// Puts a guard around each operator of a plan that is to be run once.
pub(crate) fn guard(
    plan: Arc<dyn ExecutionPlan>,
    statement: &Arc<Statement>,
) -> Result<Arc<dyn ExecutionPlan>> {
    exec::guard(plan, statement)
}

/// Rows of the batches that the operators of a guarded plan are to make.
pub(crate) fn batch_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    exec::batch_rows(plan)
}

#[cfg(test)]
mod tests {
    use super::cost::Kind;
    use datafusion::execution::session_state::SessionStateBuilder;

    #[test]
    fn every_function_has_a_cost() {
        let mut builder = SessionStateBuilder::new_with_default_features();
        crate::functions::register(&mut builder);
        let functions = builder.scalar_functions().take().unwrap_or_default();
        let unknown: Vec<&str> = functions
            .iter()
            .map(|function| function.name())
            .filter(|name| Kind::known(name).is_none())
            .collect();
        assert!(
            unknown.is_empty(),
            "{unknown:?}: say in guards/cost.rs what these make, else they are not registered"
        );
        assert!(functions.len() > 150, "{}", functions.len());
    }
}
