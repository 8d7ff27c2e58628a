//! PostgreSQL's conversions of function arguments, before type coercion: `round` takes numbers with
//! fractions, so that `round(n) / 2` has one; `date_trunc` takes instants, so that a day begins by
//! the session's clocks.
//!
//! Invariant: names of columns are unchanged. Types change before other rules compare them.

use crate::rules::keep_names::{has_part, map_expressions, named_columns};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// The rule.
#[derive(Debug)]
pub(crate) struct Arguments;

impl AnalyzerRule for Arguments {
    fn name(&self) -> &str {
        "arguments"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            let is_meant =
                |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if converted_argument(call).is_some());
            if !has_part(&plan, is_meant)? {
                return Ok(Transformed::no(plan));
            }
            let schema = named_columns(&plan)?;
            map_expressions(plan, &mut |expr| {
                expr.transform_up(|part| {
                    let Expr::ScalarFunction(mut call) = part else {
                        return Ok(Transformed::no(part));
                    };
                    let arg = converted_argument(&call).and_then(|at| call.args.get_mut(at));
                    let converted = arg.and_then(|arg| {
                        let of = converted(arg, &schema)?;
                        *arg = Expr::Cast(Cast::new(Box::new(std::mem::take(arg)), of));
                        Some(())
                    });
                    let is_new = converted.is_some();
                    Ok(Transformed::new_transformed(
                        Expr::ScalarFunction(call),
                        is_new,
                    ))
                })
            })
        })?;
        Ok(plan.data)
    }
}

/// The index of the argument that is converted.
fn converted_argument(call: &ScalarFunction) -> Option<usize> {
    match (call.func.name(), call.args.len()) {
        ("round", 1 | 2) => Some(0),
        ("date_trunc", 2) => Some(1),
        _ => None,
    }
}

fn converted(arg: &Expr, schema: &DFSchema) -> Option<DataType> {
    match arg.get_type(schema).ok()? {
        of if of.is_integer() => is_whole(arg, schema).then_some(DataType::Float64),
        DataType::Date32 | DataType::Date64 => Some(DataType::Timestamp(
            TimeUnit::Nanosecond,
            Some("+00:00".into()),
        )),
        _ => None,
    }
}

/// Whether an expression is an integer, before its parts are coerced.
fn is_whole(expr: &Expr, schema: &DFSchema) -> bool {
    let is_none = |part: &Expr| part.get_type(schema).is_ok_and(|of| of.is_null());
    let fits = |part: &Expr| is_whole(part, schema) || is_none(part);
    match expr {
        Expr::Alias(alias) => is_whole(&alias.expr, schema),
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            values.chain(case.else_expr.as_deref()).all(fits)
        }
        Expr::ScalarFunction(call) if TOGETHER.contains(&call.func.name()) => {
            call.args.iter().all(fits)
        }
        other => other.get_type(schema).is_ok_and(|of| of.is_integer()),
    }
}

/// Functions whose arguments are coerced to one type.
const TOGETHER: [&str; 4] = ["coalesce", "greatest", "least", "nullif"];
