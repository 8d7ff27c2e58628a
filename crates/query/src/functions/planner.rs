//! Planning of syntax that the SQL library interprets differently: `EXTRACT`, multiples of
//! intervals, intervals from a day, and arithmetic of number literals.

use super::date_part::date_part;
use super::decimals;
use super::numbers::{over_interval, times_interval};
use crate::rewrites::lengths;
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, cast, lit};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// The planner; runs before the library's planners.
#[derive(Debug)]
pub(super) struct Syntax;

fn is_length(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_) | DataType::Duration(_))
}

fn is_comparison(op: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// A text that is compared with an interval is parsed as an interval.
fn compared(mut expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let as_length = |text: &Expr, other: &Expr| {
        let Expr::Literal(value, _) = text else {
            return None;
        };
        let interval = lengths::read(value.try_as_str().flatten()?)?;
        let of = other.get_type(schema).ok()?;
        let interval = ScalarValue::IntervalMonthDayNano(Some(interval));
        is_length(&of).then_some(Expr::Literal(interval, None))
    };
    if let Some(length) = as_length(&expr.left, &expr.right) {
        expr.left = length;
    } else if let Some(length) = as_length(&expr.right, &expr.left) {
        expr.right = length;
    }
    expr
}

/// The sum of a date and an interval is an instant, which has hours.
fn dated(mut expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let is_day = |side: &Expr| {
        matches!(
            side.get_type(schema),
            Ok(DataType::Date32 | DataType::Date64)
        )
    };
    let adds_length = |side: &Expr| side.get_type(schema).is_ok_and(|of| is_length(&of));
    let instant = |day: Expr| cast(day, DataType::Timestamp(TimeUnit::Nanosecond, None));
    if is_day(&expr.left) && adds_length(&expr.right) {
        expr.left = instant(expr.left);
    } else if expr.op == ast::BinaryOperator::Plus && is_day(&expr.right) && adds_length(&expr.left)
    {
        expr.right = instant(expr.right);
    }
    expr
}

/// Two numeric literals, one of them with a point, folded into their result.
fn written(expr: &RawBinaryExpr) -> Option<Expr> {
    let op = match expr.op {
        ast::BinaryOperator::Plus => Operator::Plus,
        ast::BinaryOperator::Minus => Operator::Minus,
        ast::BinaryOperator::Multiply => Operator::Multiply,
        ast::BinaryOperator::Divide => Operator::Divide,
        _ => return None,
    };
    match (&expr.left, &expr.right) {
        (Expr::Literal(left, _), Expr::Literal(right, _)) => {
            decimals::folded(op, left, right).map(lit)
        }
        _ => None,
    }
}

/// A parameter that is added to an instant is an interval.
fn added(mut expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let as_length = |side: &Expr, other: &Expr| {
        let Expr::Placeholder(place) = side else {
            return None;
        };
        let is_instant = matches!(other.get_type(schema), Ok(DataType::Timestamp(..)));
        if place.field.is_some() || !is_instant {
            return None;
        }
        let of = DataType::Interval(IntervalUnit::MonthDayNano);
        let field = Arc::new(Field::new(&place.id, of, true));
        Some(Expr::Placeholder(Placeholder::new_with_field(
            place.id.clone(),
            Some(field),
        )))
    };
    if let Some(length) = as_length(&expr.left, &expr.right) {
        expr.left = length;
    } else if let Some(length) = as_length(&expr.right, &expr.left) {
        expr.right = length;
    }
    expr
}

impl ExprPlanner for Syntax {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(date_part().call(args)))
    }

    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        if is_comparison(&expr.op) {
            return Ok(PlannerResult::Original(compared(expr, schema)));
        }
        if let Some(number) = written(&expr) {
            return Ok(PlannerResult::Planned(number));
        }
        if matches!(
            expr.op,
            ast::BinaryOperator::Plus | ast::BinaryOperator::Minus
        ) {
            let expr = dated(expr, schema);
            return Ok(PlannerResult::Original(match expr.op {
                ast::BinaryOperator::Plus => added(expr, schema),
                _ => expr,
            }));
        }
        let divides = match expr.op {
            ast::BinaryOperator::Multiply => false,
            ast::BinaryOperator::Divide => true,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        Ok(match divides {
            false if is_length(&left) && right.is_numeric() => {
                PlannerResult::Planned(times_interval(expr.left, expr.right))
            }
            false if left.is_numeric() && is_length(&right) => {
                PlannerResult::Planned(times_interval(expr.right, expr.left))
            }
            true if is_length(&left) && right.is_numeric() => {
                PlannerResult::Planned(over_interval(expr.left, expr.right))
            }
            _ => PlannerResult::Original(expr),
        })
    }
}
