//! Casts of texts to times, in all of PostgreSQL's formats.
//!
//! Invariants: a text that the SQL library parses correctly keeps its meaning; a time out of the
//! range of instants is an open end in comparisons, and an error elsewhere.

use crate::functions::numbers;
use crate::rewrites::times::{self, Word};
use crate::rules::keep_names::{has_part, map_expressions, named_columns};
use crate::rules::lengths::is_comparison;
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::functions::datetime::expr_fn;
use datafusion::logical_expr::expr::{Between, Cast, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

/// The rule; runs after type coercion of comparisons, and before the rule for time zones.
#[derive(Debug)]
pub(crate) struct TimeTexts;

impl AnalyzerRule for TimeTexts {
    fn name(&self) -> &str {
        "texts_of_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            if !has_part(&plan, |part| becomes_time(part).is_some())? {
                return Ok(Transformed::no(plan));
            }
            let schema = named_columns(&plan)?;
            map_expressions(plan, &mut |expr| {
                expr.transform_up(|part| rewrite(part, &schema))
            })
        })?;
        Ok(plan.data)
    }
}

fn is_time(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    )
}

/// The operand of a cast to a time, and the type of time.
fn becomes_time(expr: &Expr) -> Option<(&Expr, &DataType)> {
    match expr {
        Expr::Cast(cast) if is_time(cast.field.data_type()) => {
            Some((&cast.expr, cast.field.data_type()))
        }
        Expr::TryCast(cast) if is_time(cast.field.data_type()) => {
            Some((&cast.expr, cast.field.data_type()))
        }
        _ => None,
    }
}

fn to(of: &DataType, expr: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), of.clone()))
}

fn text(value: String) -> Expr {
    Expr::Literal(ScalarValue::Utf8(Some(value)), None)
}

/// An instant in a timestamp type; `None` = days, which do not have such ends.
fn instant(ns: i64, of: &DataType) -> Option<Expr> {
    let DataType::Timestamp(_, zone) = of else {
        return None;
    };
    let exact = ScalarValue::TimestampNanosecond(Some(ns), zone.clone());
    match of {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Some(Expr::Literal(exact, None)),
        _ => Some(Expr::Literal(exact.cast_to(of).ok()?, None)),
    }
}

fn of_word(word: Word, of: &DataType) -> Option<Expr> {
    Some(match word {
        Word::Now => to(of, expr_fn::now()),
        Word::Epoch => instant(0, of).unwrap_or_else(|| to(of, text("1970-01-01".to_owned()))),
        Word::End { last: true } => instant(i64::MAX, of)?,
        Word::End { last: false } => instant(i64::MIN, of)?,
        Word::Day(0) => to(of, expr_fn::current_date()),
        Word::Day(days) => {
            let days = IntervalMonthDayNano::new(0, i32::try_from(days).ok()?, 0);
            let days = Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(days)), None);
            let wall = DataType::Timestamp(TimeUnit::Nanosecond, None);
            to(
                of,
                Expr::BinaryExpr(BinaryExpr::new(
                    Box::new(to(&wall, expr_fn::current_date())),
                    Operator::Plus,
                    Box::new(days),
                )),
            )
        }
    })
}

fn constant(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn rewrite(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Some((inner, of)) = becomes_time(&expr) {
        let made = match constant(inner) {
            Some(written) => match times::word(written) {
                Some(word) => of_word(word, of),
                None => times::read(written).and_then(|time| {
                    let read = match of {
                        DataType::Timestamp(..) if time.beyond().is_some() => return None,
                        DataType::Timestamp(..) => times::canonical(written).into_owned(),
                        _ => time.date(),
                    };
                    (read != written).then(|| to(of, text(read)))
                }),
            },
            None if is_text(&inner.get_type(schema)?) => {
                let read = numbers::time_text(inner.clone());
                let mut made = expr.clone();
                match &mut made {
                    Expr::Cast(cast) => *cast.expr = read,
                    Expr::TryCast(cast) => *cast.expr = read,
                    _ => {}
                }
                Some(made)
            }
            None => None,
        };
        return Ok(match made {
            Some(made) => Transformed::yes(made),
            None => Transformed::no(expr),
        });
    }
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            open(left) | open(right)
        }
        Expr::Between(Between {
            expr, low, high, ..
        }) => open(expr) | open(low) | open(high),
        Expr::InList(InList { list, .. }) => list
            .iter_mut()
            .fold(false, |changed, item| open(item) | changed),
        _ => false,
    };
    Ok(match changed {
        true => Transformed::yes(expr),
        false => Transformed::no(expr),
    })
}

fn is_text(of: &DataType) -> bool {
    match of {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, of) => is_text(of),
        _ => false,
    }
}

/// Replaces an instant beyond the end of time by the end of time.
fn open(expr: &mut Expr) -> bool {
    let Some((mut inner, of)) = becomes_time(expr) else {
        return false;
    };
    // A day that is compared with an instant.
    while let Some((within, _)) = becomes_time(inner) {
        inner = within;
    }
    let end = constant(inner)
        .and_then(times::read)
        .and_then(|time| time.beyond());
    match end.and_then(|end| instant(end, of)) {
        Some(end) => {
            *expr = end;
            true
        }
        None => false,
    }
}
