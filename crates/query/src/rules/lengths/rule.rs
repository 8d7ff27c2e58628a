//! Finds comparisons and parts of lengths of time, before type coercion by the SQL library.

use super::functions::{LENGTH, days_and_rest, length, length_of, length_of_text};
use crate::error::Error;
use crate::rules::keep_names::has_part;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, InList, InSubquery, SetComparison, Sort, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Subquery};
use datafusion::optimizer::AnalyzerRule;

/// The rule; runs first.
#[derive(Debug)]
pub(crate) struct Lengths;

impl AnalyzerRule for Lengths {
    fn name(&self) -> &str {
        "lengths_of_time"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        // Columns above a change may have other types now.
        let mut changed = false;
        let plan = plan.transform_up_with_subqueries(|plan| {
            let plan = expressions(plan)?;
            changed |= plan.transformed;
            if changed {
                return plan.map_data(LogicalPlan::recompute_schema);
            }
            Ok(plan)
        })?;
        Ok(plan.data)
    }
}

/// Whether an expression may be a candidate, judged without types.
fn may_be(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => is_comparison(binary.op),
        Expr::ScalarFunction(function) => {
            compares(function.func.name()) || function.func.name() == PARTS
        }
        Expr::Case(case) => case.expr.is_some(),
        Expr::AggregateFunction(function) => {
            is_extreme(function.func.name()) || !function.params.order_by.is_empty()
        }
        Expr::WindowFunction(_)
        | Expr::Between(_)
        | Expr::InList(_)
        | Expr::InSubquery(_)
        | Expr::SetComparison(_) => true,
        _ => false,
    }
}

/// Whether the operator only compares its operands.
pub(crate) fn is_comparison(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// The function that implements `EXTRACT`.
const PARTS: &str = "date_part";

/// Functions that compare their arguments.
fn compares(function: &str) -> bool {
    matches!(function, "greatest" | "least" | "nullif")
}

fn is_extreme(function: &str) -> bool {
    matches!(function, "min" | "max")
}

fn expressions(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let sorts = matches!(plan, LogicalPlan::Sort(_));
    if !sorts && !has_part(&plan, may_be)? {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let expr = expr.transform_up(|part| rewrite(part, &schema))?;
        let expr = expr.transform_data(|expr| {
            Ok(if sorts {
                sortable(expr, &schema)
            } else {
                Transformed::no(expr)
            })
        })?;
        Ok(expr.update_data(|expr| name.restore(expr)))
    })
}

/// Kinds of operands of a comparison.
enum Operand<'a> {
    Null,
    Text(&'a str),
    Duration,
    Interval,
    Other,
}

fn operand<'a>(expr: &'a Expr, schema: &DFSchema) -> (Operand<'a>, Option<DataType>) {
    if let Expr::Literal(value, _) = expr {
        if value.is_null() {
            return (Operand::Null, None);
        }
        if let Some(Some(text)) = value.try_as_str() {
            return (Operand::Text(text), None);
        }
    }
    // An untyped expression is left to the rules that coerce it.
    match expr.get_type(schema) {
        Ok(of @ DataType::Duration(_)) => (Operand::Duration, Some(of)),
        Ok(of @ DataType::Interval(_)) => (Operand::Interval, Some(of)),
        _ => (Operand::Other, None),
    }
}

/// Operands of a comparison as lengths; `None` = other types, or types that are compared correctly
/// already.
fn lengths<'a>(
    operands: impl IntoIterator<Item = &'a Expr>,
    schema: &DFSchema,
) -> Result<Option<Vec<Expr>>> {
    let operands: Vec<&Expr> = operands.into_iter().collect();
    let known: Vec<_> = operands.iter().map(|e| operand(e, schema)).collect();
    let mut types = known.iter().filter_map(|(_, of)| of.as_ref());
    let Some(first) = types.next() else {
        return Ok(None);
    };
    let is = |wanted: fn(&Operand<'_>) -> bool| known.iter().any(|(operand, _)| wanted(operand));
    let of_one_type = types.all(|of| of == first);
    if is(|o| matches!(o, Operand::Other))
        || (of_one_type && !is(|o| matches!(o, Operand::Interval | Operand::Text(_))))
    {
        return Ok(None);
    }
    let lengths = operands.into_iter().zip(&known);
    let lengths = lengths.map(|(expr, (operand, of))| {
        Ok(match (operand, expr) {
            (Operand::Null, _) => Expr::Literal(ScalarValue::DurationNanosecond(None), None),
            (Operand::Text(text), _) => Expr::Literal(length_of_text(text)?, None),
            _ if *of == Some(LENGTH) => expr.clone(),
            (_, Expr::Literal(value, _)) => Expr::Literal(length(value)?, None),
            _ => length_of(expr.clone()),
        })
    });
    lengths.collect::<Result<_>>().map(Some)
}

/// Orders intervals by their length.
fn sortable(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr.get_type(schema) {
        Ok(DataType::Interval(_)) => Transformed::yes(length_of(expr)),
        _ => Transformed::no(expr),
    }
}

fn sort_all(sorts: Vec<Sort>, schema: &DFSchema) -> Transformed<Vec<Sort>> {
    let mut changed = false;
    let sorts = sorts.into_iter().map(|sort| {
        let by = sortable(sort.expr, schema);
        changed |= by.transformed;
        Sort {
            expr: by.data,
            ..sort
        }
    });
    let sorts = sorts.collect();
    Transformed::new(sorts, changed, TreeNodeRecursion::Continue)
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => {
            let found = lengths([&*binary.left, &*binary.right], schema)?;
            Ok(match pair(found) {
                Some((left, right)) => Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(
                    Box::new(left),
                    binary.op,
                    Box::new(right),
                ))),
                None => Transformed::no(Expr::BinaryExpr(binary)),
            })
        }
        Expr::Between(between) => {
            let found = lengths([&*between.expr, &*between.low, &*between.high], schema)?;
            let found: Option<[Expr; 3]> = found.and_then(|found| found.try_into().ok());
            Ok(match found {
                Some([expr, low, high]) => Transformed::yes(Expr::Between(Between::new(
                    Box::new(expr),
                    between.negated,
                    Box::new(low),
                    Box::new(high),
                ))),
                None => Transformed::no(Expr::Between(between)),
            })
        }
        Expr::InList(list) => {
            let found = lengths(std::iter::once(&*list.expr).chain(&list.list), schema)?;
            Ok(match first_and_rest(found) {
                Some((expr, rest)) => Transformed::yes(Expr::InList(InList::new(
                    Box::new(expr),
                    rest,
                    list.negated,
                ))),
                None => Transformed::no(Expr::InList(list)),
            })
        }
        Expr::Case(mut case) => {
            let whens = case.when_then_expr.iter().map(|(when, _)| &**when);
            let found = match &case.expr {
                Some(expr) => lengths(std::iter::once(&**expr).chain(whens), schema)?,
                None => None,
            };
            let Some((expr, rest)) = first_and_rest(found) else {
                return Ok(Transformed::no(Expr::Case(case)));
            };
            case.expr = Some(Box::new(expr));
            for ((when, _), found) in case.when_then_expr.iter_mut().zip(rest) {
                **when = found;
            }
            Ok(Transformed::yes(Expr::Case(case)))
        }
        Expr::ScalarFunction(mut function) if compares(function.func.name()) => {
            Ok(match lengths(&function.args, schema)? {
                Some(args) => {
                    function.args = args;
                    Transformed::yes(Expr::ScalarFunction(function))
                }
                None => Transformed::no(Expr::ScalarFunction(function)),
            })
        }
        Expr::ScalarFunction(mut function) if function.func.name() == PARTS => {
            if let [_, of] = &mut *function.args
                && let Ok(DataType::Duration(_)) = of.get_type(schema)
            {
                *of = days_and_rest(std::mem::take(of));
                return Ok(Transformed::yes(Expr::ScalarFunction(function)));
            }
            Ok(Transformed::no(Expr::ScalarFunction(function)))
        }
        Expr::AggregateFunction(function) => Ok(of_aggregate(function, schema)),
        Expr::WindowFunction(function) => Ok(of_window(function, schema)),
        Expr::InSubquery(InSubquery {
            expr: ref sought,
            ref subquery,
            ..
        })
        | Expr::SetComparison(SetComparison {
            expr: ref sought,
            ref subquery,
            ..
        }) => {
            check_sought(sought, subquery, schema)?;
            Ok(Transformed::no(expr))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Orders of an aggregate, and the extremes of intervals, are by length.
fn of_aggregate(mut function: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let params = &mut function.params;
    let sorts = sort_all(std::mem::take(&mut params.order_by), schema);
    let mut changed = sorts.transformed;
    params.order_by = sorts.data;
    if is_extreme(function.func.name()) {
        changed |= extremes(&mut params.args, schema);
    }
    let expr = Expr::AggregateFunction(function);
    Transformed::new(expr, changed, TreeNodeRecursion::Continue)
}

/// As [`of_aggregate`], over a window.
fn of_window(mut function: Box<WindowFunction>, schema: &DFSchema) -> Transformed<Expr> {
    let sorts = sort_all(std::mem::take(&mut function.params.order_by), schema);
    let mut changed = sorts.transformed;
    function.params.order_by = sorts.data;
    if is_extreme(function.fun.name()) {
        changed |= extremes(&mut function.params.args, schema);
    }
    let expr = Expr::WindowFunction(function);
    Transformed::new(expr, changed, TreeNodeRecursion::Continue)
}

/// Refuses an interval as the left operand of `IN` with a subquery.
fn check_sought(sought: &Expr, subquery: &Subquery, schema: &DFSchema) -> Result<()> {
    let within = subquery.subquery.schema().fields().first();
    let within = within.map(|field| field.data_type().clone());
    let types = [sought.get_type(schema).ok(), within];
    let is_interval = |of: &DataType| matches!(of, DataType::Interval(_));
    if types.iter().flatten().any(is_interval) {
        return Err(
            Error::unsupported("IN (subquery) is not supported for intervals")
                .with_hint("write EXISTS (SELECT … WHERE a = b), which compares intervals")
                .into(),
        );
    }
    Ok(())
}

fn extremes(args: &mut [Expr], schema: &DFSchema) -> bool {
    let mut changed = false;
    for arg in args {
        let by = sortable(std::mem::take(arg), schema);
        changed |= by.transformed;
        *arg = by.data;
    }
    changed
}

fn pair(found: Option<Vec<Expr>>) -> Option<(Expr, Expr)> {
    let [left, right] = <[Expr; 2]>::try_from(found?).ok()?;
    Some((left, right))
}

fn first_and_rest(found: Option<Vec<Expr>>) -> Option<(Expr, Vec<Expr>)> {
    let mut all = found?.into_iter();
    Some((all.next()?, all.collect()))
}
