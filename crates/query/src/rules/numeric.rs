//! Floats that are `numeric` in PostgreSQL: literals with a point, means and deviations of
//! integers, and values computed from these. Here they are floats (decision 0026), but halves are
//! rounded away from zero, as halves of decimals are.

use crate::aggregates::{Result, aggregate};
use crate::functions::numbers::CANONICAL;
use arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};

/// Scalar functions whose result is `numeric` if their first argument is.
const OF_ARGUMENT: [&str; 9] = [
    "abs",
    CANONICAL,
    "ceil",
    "floor",
    "nullif",
    "round",
    "round_decimal",
    "round_decimal_to",
    "trunc",
];

/// Functions that return floats for integers.
const ROUND_INTEGERS: [&str; 4] = ["ceil", "floor", "round", "trunc"];

/// Kinds of operands of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperandKind {
    Numeric,
    /// An integer, even if it was cast to a float for an operation.
    Integer,
    Other,
}

/// Whether an expression of a node with these inputs is `numeric` in PostgreSQL.
pub(super) fn is_numeric(expr: &Expr, inputs: &[&LogicalPlan]) -> bool {
    part(expr, inputs) == OperandKind::Numeric
}

fn part(expr: &Expr, inputs: &[&LogicalPlan]) -> OperandKind {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(_)), _) => OperandKind::Numeric,
        Expr::Literal(value, _) if value.data_type().is_integer() => OperandKind::Integer,
        Expr::Alias(alias) => part(&alias.expr, inputs),
        Expr::Negative(of) => part(of, inputs),
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Float64 => {
            match part(&cast.expr, inputs) {
                OperandKind::Integer => OperandKind::Integer,
                _ => OperandKind::Other,
            }
        }
        Expr::BinaryExpr(binary)
            if matches!(
                binary.op,
                Operator::Plus
                    | Operator::Minus
                    | Operator::Multiply
                    | Operator::Divide
                    | Operator::Modulo
            ) =>
        {
            match (part(&binary.left, inputs), part(&binary.right, inputs)) {
                (OperandKind::Other, _) | (_, OperandKind::Other) => OperandKind::Other,
                (OperandKind::Integer, OperandKind::Integer) => OperandKind::Integer,
                _ => OperandKind::Numeric,
            }
        }
        Expr::ScalarFunction(call) if OF_ARGUMENT.contains(&call.func.name()) => {
            let arg = call.args.first();
            match arg.map_or(OperandKind::Other, |arg| part(arg, inputs)) {
                // PostgreSQL rounds integers as floats, but to a number of digits as decimals.
                OperandKind::Integer if call.func.name() == "round" && call.args.len() == 2 => {
                    OperandKind::Numeric
                }
                OperandKind::Integer if ROUND_INTEGERS.contains(&call.func.name()) => {
                    OperandKind::Other
                }
                part => part,
            }
        }
        Expr::ScalarFunction(call)
            if ["coalesce", "greatest", "least"].contains(&call.func.name()) =>
        {
            together(call.args.iter(), inputs)
        }
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            together(values.chain(case.else_expr.as_deref()), inputs)
        }
        Expr::AggregateFunction(call) => of_aggregate(call, inputs),
        Expr::Column(column) => of_column(column, expr, inputs),
        other => whole(other, inputs),
    }
}

/// The common kind of several values of one type.
fn together<'e>(values: impl Iterator<Item = &'e Expr>, inputs: &[&LogicalPlan]) -> OperandKind {
    let parts = values.map(|value| part(value, inputs));
    let all = parts.reduce(|all, next| match (all, next) {
        (OperandKind::Other, _) | (_, OperandKind::Other) => OperandKind::Other,
        (OperandKind::Integer, OperandKind::Integer) => OperandKind::Integer,
        _ => OperandKind::Numeric,
    });
    all.unwrap_or(OperandKind::Other)
}

/// An integer, judged by its type, or another kind.
fn whole(expr: &Expr, inputs: &[&LogicalPlan]) -> OperandKind {
    let is_integer = |input: &&LogicalPlan| {
        expr.get_type(input.schema().as_ref())
            .is_ok_and(|of| of.is_integer())
    };
    match inputs.iter().any(is_integer) {
        true => OperandKind::Integer,
        false => OperandKind::Other,
    }
}

fn of_aggregate(call: &AggregateFunction, inputs: &[&LogicalPlan]) -> OperandKind {
    let Some(arg) = call.params.args.first() else {
        return OperandKind::Integer;
    };
    let result = aggregate(call.func.name()).map(|facts| facts.result);
    match (part(arg, inputs), result) {
        (OperandKind::Integer | OperandKind::Numeric, Some(Result::Numeric)) => {
            OperandKind::Numeric
        }
        (OperandKind::Integer, Some(Result::Argument | Result::Count)) => OperandKind::Integer,
        (OperandKind::Numeric, Some(Result::Argument)) => OperandKind::Numeric,
        _ => OperandKind::Other,
    }
}

/// The kind of a column, from the node that computes it.
fn of_column(column: &Column, expr: &Expr, inputs: &[&LogicalPlan]) -> OperandKind {
    for input in inputs {
        if let Some(at) = input.schema().maybe_index_of_column(column) {
            return match of_output(input, at) {
                Some(part) => part,
                None => whole(expr, inputs),
            };
        }
    }
    OperandKind::Other
}

/// The output of a node at an index; `None` = judge by its type.
fn of_output(plan: &LogicalPlan, at: usize) -> Option<OperandKind> {
    let inputs = plan.inputs();
    match plan {
        LogicalPlan::Projection(projection) => Some(part(projection.expr.get(at)?, &inputs)),
        LogicalPlan::Aggregate(aggregate) => {
            let groups = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
            let expr = match at.checked_sub(groups) {
                Some(at) => aggregate.aggr_expr.get(at)?,
                None => aggregate.group_expr.get(at)?,
            };
            Some(part(expr, &inputs))
        }
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_) => of_output(inputs.first()?, at),
        _ => None,
    }
}
