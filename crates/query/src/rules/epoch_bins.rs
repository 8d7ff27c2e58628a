//! Bins of time written as arithmetic: `floor(extract(epoch FROM time) / 60) * 60`, as Grafana
//! writes them.
//!
//! Seconds since 1970 with nanoseconds do not fit a float: within a tenth of a microsecond before
//! the end of a bin the SQL library would count a row to the next bin. PostgreSQL computes this in
//! decimals. Here it becomes the seconds of the beginning of a `date_bin`, which is the same value
//! computed exactly, and rows that are grouped by it are grouped by that bin, which the pyramid may
//! answer.
//!
//! Invariant: names and types of columns are unchanged; only widths of whole seconds are rewritten.

use crate::functions::date_bin;
use crate::rules::keep_names::{has_part, map_expressions};
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule. Runs before the one that coerces both operands of an operator to one type.
#[derive(Debug)]
pub(crate) struct EpochBins;

impl AnalyzerRule for EpochBins {
    fn name(&self) -> &str {
        "bins_of_epoch"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            if !has_part(&plan, |part| written(part).is_some())? {
                return Ok(Transformed::no(plan));
            }
            let schema = merge_schema(&plan.inputs());
            let plan = map_expressions(plan, &mut |expr| {
                expr.transform_up(|part| {
                    Ok(match written(&part).and_then(|bin| exact(bin, &schema)) {
                        Some(made) => Transformed::yes(made),
                        None => Transformed::no(part),
                    })
                })
            })?;
            if !plan.transformed {
                return Ok(plan);
            }
            match plan.data {
                LogicalPlan::Aggregate(aggregate) => group_by_bins(aggregate).map(Transformed::yes),
                other => Ok(Transformed::yes(other)),
            }
        })?;
        Ok(plan.data)
    }
}

/// The operands of this operator.
fn binary(expr: &Expr, wanted: Operator) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == wanted => Some((left, right)),
        _ => None,
    }
}

/// The instant and the width, in seconds, of a bin that is written as arithmetic.
fn written(expr: &Expr) -> Option<(&Expr, i64)> {
    let (floored, by) = binary(expr, Operator::Multiply)?;
    let [divided] = call(floored, "floor")? else {
        return None;
    };
    let (seconds, width) = binary(divided, Operator::Divide)?;
    let time = epoch_of(seconds)?;
    let width = whole(width)?;
    (whole(by)? == width).then_some((time, width))
}

/// The arguments of a call of this function.
fn call<'a>(expr: &'a Expr, name: &str) -> Option<&'a [Expr]> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == name => Some(args),
        _ => None,
    }
}

/// The time whose seconds since 1970 are taken.
fn epoch_of(expr: &Expr) -> Option<&Expr> {
    match call(expr, "date_part")? {
        [Expr::Literal(part, _), time]
            if part
                .try_as_str()
                .flatten()
                .is_some_and(|part| part.eq_ignore_ascii_case("epoch")) =>
        {
            Some(time)
        }
        _ => None,
    }
}

/// A number of whole seconds.
fn whole(expr: &Expr) -> Option<i64> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    let seconds = match value {
        ScalarValue::Int64(Some(seconds)) => *seconds,
        ScalarValue::Float64(Some(seconds)) if seconds.fract() == 0.0 && seconds.abs() < 1e10 => {
            *seconds as i64
        }
        _ => return None,
    };
    (seconds > 0).then_some(seconds)
}

/// The exact computation; `None` = not about instants, or the width is too long for nanoseconds.
fn exact((time, width): (&Expr, i64), schema: &DFSchema) -> Option<Expr> {
    let DataType::Timestamp(TimeUnit::Nanosecond, _) = time.get_type(schema).ok()? else {
        return None;
    };
    let width = width.checked_mul(1_000_000_000)?;
    let width = ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(0, 0, width)));
    let bin = date_bin().call(vec![Expr::Literal(width, None), time.clone()]);
    Some(epoch(bin))
}

fn epoch(time: Expr) -> Expr {
    let part = Expr::Literal(ScalarValue::from("epoch"), None);
    datetime::date_part().call(vec![part, time])
}

/// Groups by bins rather than by their seconds, and computes the seconds afterwards: equivalent,
/// since different bins have different seconds.
fn group_by_bins(aggregate: Aggregate) -> Result<LogicalPlan> {
    let sets = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    if aggregate.group_expr.iter().any(sets) {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let mut group: Vec<Expr> = Vec::new();
    // Index of each column in the inner aggregate, and whether it is a bin.
    let mut places = Vec::new();
    for expr in &aggregate.group_expr {
        let bin = epoch_of(unaliased(expr)).filter(|time| call(time, "date_bin").is_some());
        let by = bin.unwrap_or(expr);
        let place = group.iter().position(|known| known == by);
        let place = place.unwrap_or_else(|| {
            group.push(by.clone());
            group.len() - 1
        });
        places.push((place, bin.is_some()));
    }
    let computed = group.len()..group.len() + aggregate.aggr_expr.len();
    places.extend(computed.map(|place| (place, false)));
    let inner = Aggregate::try_new(aggregate.input, group, aggregate.aggr_expr)?;
    let mut columns = Vec::with_capacity(places.len());
    for ((place, is_bin), (qualifier, field)) in places.into_iter().zip(aggregate.schema.iter()) {
        let column = Expr::Column(Column::from(inner.schema.qualified_field(place)));
        let column = if is_bin { epoch(column) } else { column };
        columns.push(column.alias_qualified(qualifier.cloned(), field.name()));
    }
    let inner = Arc::new(LogicalPlan::Aggregate(inner));
    Projection::try_new(columns, inner).map(LogicalPlan::Projection)
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
