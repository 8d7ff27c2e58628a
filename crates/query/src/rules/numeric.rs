//! Floats that are `numeric` in PostgreSQL: literals with a point, means and deviations of
//! integers, and values computed from these. Here they are floats (decision 0026), but halves are
//! rounded away from zero, as halves of decimals are.

use crate::functions::numbers::CANONICAL;
use arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};

/// Aggregates whose results over integers are `numeric`.
const OF_INTEGERS: [&str; 9] = [
    "avg",
    "mean",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "var",
    "var_pop",
    "var_population",
    "var_samp",
];
/// Aggregates and functions whose result is `numeric` if their first argument is.
const OF_ARGUMENT: [&str; 14] = [
    "abs",
    "avg",
    CANONICAL,
    "ceil",
    "floor",
    "max",
    "mean",
    "min",
    "nullif",
    "round",
    "round_decimal",
    "round_decimal_to",
    "sum",
    "trunc",
];

/// Functions that return floats for integers.
const ROUND_INTEGERS: [&str; 4] = ["ceil", "floor", "round", "trunc"];

/// Kinds of operands of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Numeric,
    /// An integer, even if it was cast to a float for an operation.
    Integer,
    Other,
}

/// Whether an expression of a node with these inputs is `numeric` in PostgreSQL.
pub(super) fn is_numeric(expr: &Expr, inputs: &[&LogicalPlan]) -> bool {
    part(expr, inputs) == Part::Numeric
}

fn part(expr: &Expr, inputs: &[&LogicalPlan]) -> Part {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(_)), _) => Part::Numeric,
        Expr::Literal(value, _) if value.data_type().is_integer() => Part::Integer,
        Expr::Alias(alias) => part(&alias.expr, inputs),
        Expr::Negative(of) => part(of, inputs),
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Float64 => {
            match part(&cast.expr, inputs) {
                Part::Integer => Part::Integer,
                _ => Part::Other,
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
                (Part::Other, _) | (_, Part::Other) => Part::Other,
                (Part::Integer, Part::Integer) => Part::Integer,
                _ => Part::Numeric,
            }
        }
        Expr::ScalarFunction(call) if OF_ARGUMENT.contains(&call.func.name()) => {
            let arg = call.args.first();
            match arg.map_or(Part::Other, |arg| part(arg, inputs)) {
                // PostgreSQL rounds integers as floats, but to a number of digits as decimals.
                Part::Integer if call.func.name() == "round" && call.args.len() == 2 => {
                    Part::Numeric
                }
                Part::Integer if ROUND_INTEGERS.contains(&call.func.name()) => Part::Other,
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
fn together<'e>(values: impl Iterator<Item = &'e Expr>, inputs: &[&LogicalPlan]) -> Part {
    let parts = values.map(|value| part(value, inputs));
    let all = parts.reduce(|all, next| match (all, next) {
        (Part::Other, _) | (_, Part::Other) => Part::Other,
        (Part::Integer, Part::Integer) => Part::Integer,
        _ => Part::Numeric,
    });
    all.unwrap_or(Part::Other)
}

/// An integer, judged by its type, or another kind.
fn whole(expr: &Expr, inputs: &[&LogicalPlan]) -> Part {
    let is_integer = |input: &&LogicalPlan| {
        expr.get_type(input.schema().as_ref())
            .is_ok_and(|of| of.is_integer())
    };
    match inputs.iter().any(is_integer) {
        true => Part::Integer,
        false => Part::Other,
    }
}

fn of_aggregate(call: &AggregateFunction, inputs: &[&LogicalPlan]) -> Part {
    let name = call.func.name();
    let Some(arg) = call.params.args.first() else {
        return Part::Integer;
    };
    match part(arg, inputs) {
        Part::Integer if OF_INTEGERS.contains(&name) => Part::Numeric,
        Part::Integer if OF_ARGUMENT.contains(&name) || name == "count" => Part::Integer,
        Part::Numeric if OF_ARGUMENT.contains(&name) || OF_INTEGERS.contains(&name) => {
            Part::Numeric
        }
        _ => Part::Other,
    }
}

/// The kind of a column, from the node that computes it.
fn of_column(column: &Column, expr: &Expr, inputs: &[&LogicalPlan]) -> Part {
    for input in inputs {
        if let Some(at) = input.schema().maybe_index_of_column(column) {
            return match of_output(input, at) {
                Some(part) => part,
                None => whole(expr, inputs),
            };
        }
    }
    Part::Other
}

/// The output of a node at an index; `None` = judge by its type.
fn of_output(plan: &LogicalPlan, at: usize) -> Option<Part> {
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
