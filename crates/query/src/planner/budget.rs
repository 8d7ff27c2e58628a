//! Budget of the parsing and planning of one statement, in a thread-local of the working thread.

use super::inlined::largest_condition;
use crate::answer::too_slow;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Number of expression parts that every plan may have.
const EXPRESSIONS: usize = 20_000;
/// Maximum growth of a plan relative to its original size.
const GROWTH: usize = 4;
/// Number of steps between two checks of the clock.
const STEPS: u64 = 1 << 10;

/// Panic payload that ends work that cannot return an error.
pub(super) struct PlanningStopped(pub(super) Error);

pub(super) struct Budget {
    /// Set when the caller has dropped its future.
    is_abandoned: Arc<AtomicBool>,
    /// Set when the statement's client disconnects.
    cancel: CancelToken,
    deadline: Option<(Instant, Duration)>,
    /// Remaining steps of the parser; `None` = unlimited.
    steps: Cell<Option<u64>>,
    steps_used: Cell<u64>,
    /// Maximum number of expression parts of the plan.
    expressions: Cell<usize>,
}

thread_local! {
    static BUDGET: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

impl Budget {
    pub(super) fn new(
        is_abandoned: Arc<AtomicBool>,
        cancel: CancelToken,
        deadline: Option<(Instant, Duration)>,
    ) -> Budget {
        Budget {
            is_abandoned,
            cancel,
            deadline,
            steps: Cell::new(None),
            steps_used: Cell::new(0),
            expressions: Cell::new(usize::MAX),
        }
    }

    /// Runs work on this thread with this budget, and then restores the previous one.
    pub(super) fn scope<T>(self, work: impl FnOnce() -> T) -> T {
        let before = BUDGET.replace(Some(self));
        let done = work();
        BUDGET.set(before);
        done
    }

    fn check(&self) -> Result<()> {
        if self.is_abandoned.load(Ordering::Relaxed) || self.cancel.is_set() {
            return Err(Error::time_limit(
                "the statement was cancelled: the client disconnected",
            ));
        }
        match self.deadline {
            Some((at, limit)) if Instant::now() >= at => Err(too_slow(limit)),
            _ => Ok(()),
        }
    }
}

fn with<T>(look: impl FnOnce(&Budget) -> T) -> Option<T> {
    BUDGET.with_borrow(|budget| budget.as_ref().map(look))
}

/// Checks whether the planning of this thread's statement may continue; without a budget it may.
pub(crate) fn check() -> Result<()> {
    with(Budget::check).unwrap_or(Ok(()))
}

/// Sets the steps that the parser may take from now on; `None` = unlimited.
pub(crate) fn clear_steps(steps: Option<u64>) {
    with(|budget| budget.steps.set(steps));
}

/// Counts a step of the parser. For an ambiguous text, the parser tries one reading after another,
/// each with everything nested in it, so that each level of nesting doubles the time. Its attempts
/// swallow errors, so it is ended by unwinding.
pub(crate) fn step() {
    let ended = with(|budget| {
        let left = budget.steps.get()?;
        let Some(rest) = left.checked_sub(1) else {
            let error = Error::too_large(
                "the statement takes too many attempts to parse: it is nested deeply, and may have a syntax error inside",
            );
            return Some(error.with_hint("nest less deeply, for example with WITH"));
        };
        budget.steps.set(Some(rest));
        budget.steps_used.set(budget.steps_used.get() + 1);
        match budget.steps_used.get().is_multiple_of(STEPS) {
            true => budget.check().err(),
            false => None,
        }
    });
    if let Some(Some(error)) = ended {
        resume_unwind(Box::new(PlanningStopped(error)));
    }
}

/// Records the original size of a plan, which bounds its growth. Refuses a plan that a single step
/// of the planner would make larger than that.
pub(crate) fn limit_expressions(plan: &LogicalPlan) -> Result<()> {
    let mut left = usize::MAX;
    subtract(plan, &mut left)?;
    let written = usize::MAX - left;
    let most = EXPRESSIONS.max(written.saturating_mul(GROWTH));
    with(|budget| budget.expressions.set(most));
    if largest_condition(plan)? > most as u64 {
        return Err(too_large(most));
    }
    Ok(())
}

fn too_large(most: usize) -> Error {
    Error::too_large(format!(
        "the expressions of the plan have more than {most} parts: expressions over computed columns multiply"
    ))
    .with_hint("use each computed column once, or split the statement")
}

/// Refuses a plan that has become too large; `whole` = including all inputs.
pub(crate) fn expressions_of_plan(plan: &LogicalPlan, whole: bool) -> Result<()> {
    let Some(most) = with(|budget| budget.expressions.get()) else {
        return Ok(());
    };
    let mut left = most;
    let fits = if whole {
        subtract(plan, &mut left)?
    } else {
        subtract_node(plan, &mut left)?
    };
    if fits {
        return Ok(());
    }
    Err(too_large(most))
}

fn subtract(plan: &LogicalPlan, left: &mut usize) -> Result<bool> {
    let mut fits = true;
    plan.apply_with_subqueries(|node| {
        fits = subtract_node(node, left)?;
        Ok(match fits {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(fits)
}

fn subtract_node(node: &LogicalPlan, left: &mut usize) -> datafusion::common::Result<bool> {
    let mut fits = true;
    // As many expressions as were written, none of them of a column.
    if matches!(node, LogicalPlan::Values(_)) {
        return Ok(true);
    }
    node.apply_expressions(|expression| {
        expression.apply(|_| {
            fits = *left > 0;
            *left = left.saturating_sub(1);
            Ok(match fits {
                true => TreeNodeRecursion::Continue,
                false => TreeNodeRecursion::Stop,
            })
        })
    })?;
    Ok(fits)
}
