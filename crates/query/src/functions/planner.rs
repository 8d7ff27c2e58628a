//! What syntax means where the SQL library means something else: `EXTRACT`, and intervals that are
//! taken several times.

use super::date_part::date_part;
use super::numbers::times_interval;
use crate::wording::lengths;
use arrow::datatypes::{DataType, Field, IntervalUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast, lit};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// The planner; before those of the library.
#[derive(Debug)]
pub(super) struct Syntax;

fn is_length(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_) | DataType::Duration(_))
}

fn is_comparison(op: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// A text that is compared with a length of time is one.
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

/// A parameter that is added to an instant is a length of time.
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
        if expr.op == ast::BinaryOperator::Plus {
            return Ok(PlannerResult::Original(added(expr, schema)));
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
                let times = Expr::BinaryExpr(BinaryExpr::new(
                    Box::new(lit(1.0)),
                    Operator::Divide,
                    Box::new(cast(expr.right, DataType::Float64)),
                ));
                PlannerResult::Planned(times_interval(expr.left, times))
            }
            _ => PlannerResult::Original(expr),
        })
    }
}
