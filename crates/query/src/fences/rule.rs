//! Puts fences around what the planner itself has put into a plan: functions that were not asked
//! for by name, aggregates, windows, operators; and refuses types and parameters whose sizes alone
//! are too large.
//!
//! Invariants: a plan means the same with its fences, and its columns keep their names. Before the
//! rules of the SQL library go through a plan, and between them, it is asked whether the statement
//! may go on.

use super::function::{fenced, is_fenced};
use super::statement::checkpoint;
use super::{aggregates, operator, windows};
use crate::error::Error;
use crate::rules::keep_names::map_expressions;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};

/// Bytes that a value of a type may have by its type alone.
const TYPE_BYTES_MAX: usize = 8 << 10;
/// Types within each other.
const TYPE_DEPTH_MAX: usize = 64;
/// Centroids of an approximate percentile: it takes memory for all of them at once.
const CENTROIDS_MAX: u64 = 10_000;

/// Asks whether the statement may go on, before anything is made of its plan.
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

/// The rule: as the last one of the analyzer, and between the passes of the optimizer.
#[derive(Debug)]
pub(crate) struct Fences;

impl AnalyzerRule for Fences {
    fn name(&self) -> &str {
        "fences"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(fence_node)?.data)
    }
}

impl OptimizerRule for Fences {
    fn name(&self) -> &str {
        "fences"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        fence_node(plan)
    }
}

fn fence_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    checkpoint()?;
    let mut any = false;
    plan.apply_expressions(|expr| {
        checkpoint()?;
        expr.apply(|part| {
            check(part)?;
            any |= needs(part);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if !any {
        return Ok(Transformed::no(plan));
    }
    map_expressions(plan, &mut |expr| expr.transform_up(fence))
}

fn needs(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => !is_fenced(&call.func) && call.func.as_async().is_none(),
        Expr::AggregateFunction(call) => !aggregates::is_fenced(&call.func),
        Expr::WindowFunction(call) => !windows::is_fenced(&call.fun),
        other => operator::needs_fence(other),
    }
}

fn fence(expr: Expr) -> Result<Transformed<Expr>> {
    if !needs(&expr) {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(match expr {
        Expr::ScalarFunction(mut call) => {
            call.func = fenced(call.func);
            Expr::ScalarFunction(call)
        }
        Expr::AggregateFunction(mut call) => {
            call.func = aggregates::fenced(call.func);
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut call) => {
            call.fun = windows::fenced(call.fun);
            Expr::WindowFunction(call)
        }
        other => match operator::fence(other) {
            Expr::ScalarFunction(mut call) => {
                call.func = fenced(call.func);
                Expr::ScalarFunction(call)
            }
            other => other,
        },
    }))
}

/// The expression with fences around its functions and operators. Aggregates and windows get theirs
/// with the plan: until then the planner looks for those that are the same.
pub(super) fn fence_calls(expr: Expr) -> Result<Expr> {
    let fenced = expr.transform_up(|part| {
        check(&part)?;
        match part {
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) => Ok(Transformed::no(part)),
            part => fence(part),
        }
    })?;
    Ok(fenced.data)
}

/// Refuses what is too large by itself.
fn check(expr: &Expr) -> Result<()> {
    match expr {
        Expr::Cast(cast) => fence_types(cast.field.data_type()),
        Expr::TryCast(cast) => fence_types(cast.field.data_type()),
        Expr::AggregateFunction(call) if call.func.name().starts_with("approx_percentile") => {
            for arg in call.params.args.iter().skip(1) {
                if let Expr::Literal(value, _) = arg
                    && let Ok(ScalarValue::UInt64(Some(count))) = value.cast_to(&DataType::UInt64)
                    && count > CENTROIDS_MAX
                {
                    return Err(Error::too_large(format!(
                        "{} keeps at most {CENTROIDS_MAX} centroids, found {count}",
                        call.func.name()
                    ))
                    .into());
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses types with values of an enormous fixed size, and types nested without end.
pub(super) fn fence_types(data_type: &DataType) -> Result<()> {
    let bytes = type_bytes(data_type, 0)?;
    if bytes > TYPE_BYTES_MAX {
        return Err(Error::too_large(format!(
            "every value of this type would have {bytes} bytes, at most {TYPE_BYTES_MAX} are allowed"
        ))
        .with_hint("take a list without a fixed size")
        .into());
    }
    Ok(())
}

fn type_bytes(data_type: &DataType, depth: usize) -> Result<usize> {
    if depth > TYPE_DEPTH_MAX {
        return Err(Error::too_large(format!(
            "more than {TYPE_DEPTH_MAX} types lie within each other"
        ))
        .into());
    }
    let of = |inner: &DataType| type_bytes(inner, depth + 1);
    let times = |size: i32| usize::try_from(size).unwrap_or(0);
    Ok(match data_type {
        DataType::FixedSizeBinary(size) => times(*size),
        DataType::FixedSizeList(item, size) => of(item.data_type())?.saturating_mul(times(*size)),
        DataType::Struct(fields) => {
            let mut sum = 0usize;
            for field in fields {
                sum = sum.saturating_add(of(field.data_type())?);
            }
            sum
        }
        // What is in a list is there as often as it is given.
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => of(item.data_type())?.max(16),
        DataType::Dictionary(_, value) => of(value)?,
        other => other.primitive_width().unwrap_or(16),
    })
}
