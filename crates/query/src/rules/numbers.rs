//! PostgreSQL's numeric semantics: casts to integers round, integers do not wrap around, and
//! look-ups and comparisons of floats ignore the sign of a zero or of NaN.
//!
//! Invariant: names and types of columns are unchanged.

use crate::functions::numbers::{
    CANONICAL, canonical, checked, interval_of_text, rint, round_decimal, round_decimal_to, type_of,
};
use crate::rules::computed::{self, Computed};
use crate::rules::keep_names::{has_part, map_expressions, named_columns};
use crate::rules::lengths::is_comparison;
use crate::rules::numeric::is_numeric;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::functions::math;
use datafusion::logical_expr::expr::{AggregateFunction, Case, Cast, InList, ScalarFunction};
use datafusion::logical_expr::{
    Between, BinaryExpr, Distinct, Expr, LogicalPlan, Operator, Projection,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule; runs after type coercion of operators.
#[derive(Debug)]
pub(crate) struct Numbers;

impl AnalyzerRule for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            if let LogicalPlan::Distinct(Distinct::All(input)) = &plan {
                return one_of_each(input);
            }
            // Sort keys and group keys are compared for equality.
            let sorts = matches!(plan, LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_));
            let orders = match &plan {
                LogicalPlan::Aggregate(aggregate) => !aggregate.group_expr.is_empty(),
                plan => matches!(plan, LogicalPlan::Sort(_)),
            };
            if !orders && !has_part(&plan, may_be)? {
                return Ok(Transformed::no(plan));
            }
            let schema = named_columns(&plan)?;
            let computed = computed::columns_compared(&plan)?;
            let below = plan.clone();
            let inputs = below.inputs();
            let around = Around {
                schema: &schema,
                computed: &computed,
                inputs: &inputs,
            };
            map_expressions(plan, &mut |expr| {
                let expr = expr.transform_up(|part| rewrite(part, &around))?;
                // A computed value may be NaN of either sign.
                expr.transform_data(|expr| {
                    let is_key = sorts && !is_aggregate(&expr) && !is_canonical(&expr);
                    Ok(match is_key && is_float(&expr, &schema) {
                        true => Transformed::yes(canonical(expr)),
                        false => Transformed::no(expr),
                    })
                })
            })
        })?;
        Ok(plan.data)
    }
}

/// Removes duplicates among floats, including NaN: a computed value may be NaN of either sign.
fn one_of_each(input: &Arc<LogicalPlan>) -> Result<Transformed<LogicalPlan>> {
    let columns = input.schema().columns();
    let is_computed = |column: &Column| {
        is_float(&Expr::Column(column.clone()), input.schema())
            && !computed::is_of_table(input, column)
    };
    if !columns.iter().any(is_computed) {
        let same = LogicalPlan::Distinct(Distinct::All(Arc::clone(input)));
        return Ok(Transformed::no(same));
    }
    let exprs = columns
        .into_iter()
        .map(|column| match is_computed(&column) {
            true => canonical(Expr::Column(column.clone()))
                .alias_qualified(column.relation.clone(), column.name),
            false => Expr::Column(column),
        });
    let made = Projection::try_new(exprs.collect(), Arc::clone(input))?;
    let made = Arc::new(LogicalPlan::Projection(made));
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::All(made))))
}

/// Context of an expression.
struct Around<'a> {
    schema: &'a DFSchema,
    computed: &'a Computed,
    /// Inputs of its node.
    inputs: &'a [&'a LogicalPlan],
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
}

/// Whether an expression may be a candidate, judged without types.
fn may_be(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => {
            is_arithmetic(binary.op)
                || matches!(binary.op, Operator::Divide | Operator::Modulo)
                || is_comparison(binary.op)
        }
        Expr::Between(_) => true,
        Expr::Cast(cast) => {
            let of = cast.field.data_type();
            of.is_integer() || matches!(of, DataType::Interval(_))
        }
        Expr::TryCast(cast) => cast.field.data_type().is_integer(),
        Expr::InList(_) => true,
        Expr::AggregateFunction(call) => call.params.distinct,
        Expr::Case(case) => case.expr.is_some(),
        Expr::ScalarFunction(call) => matches!(call.func.name(), "round" | "nullif"),
        _ => false,
    }
}

fn is_aggregate(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_aggregate(&alias.expr),
        other => matches!(other, Expr::AggregateFunction(_)),
    }
}

fn is_canonical(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_canonical(&alias.expr),
        Expr::ScalarFunction(call) => call.func.name() == CANONICAL,
        _ => false,
    }
}

fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    type_of(expr, schema).is_ok_and(|of| of.is_floating())
}

/// Whether a value of a list is a float with a single representation.
fn is_plain(item: &Expr) -> bool {
    match item {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => *value != 0.0 && !value.is_nan(),
        _ => false,
    }
}

/// A number cast to an integer, rounded; `None` = a number without a fraction.
fn rounded(value: &Expr, around: &Around<'_>) -> Option<Expr> {
    match type_of(value, around.schema).ok()? {
        of if of.is_floating() && is_numeric(value, around.inputs) => {
            Some(round_decimal(value.clone()))
        }
        of if of.is_floating() => Some(rint(value.clone())),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale)
            if scale > 0 =>
        {
            Some(math::round().call(vec![value.clone()]))
        }
        _ => None,
    }
}

/// An operand of a comparison in canonical form: a computed value may be NaN of either sign.
fn compared(side: &Expr, schema: &DFSchema, computed: &Computed) -> Option<Expr> {
    if let Expr::Literal(ScalarValue::Float64(Some(value)), _) = side {
        // The library, which removes conditions that others imply, treats it as less than 0.
        let is_negative = *value == 0.0 && value.is_sign_negative();
        return is_negative.then(|| Expr::Literal(ScalarValue::Float64(Some(0.0)), None));
    }
    let may_be_nan = match side {
        Expr::Literal(..) => false,
        Expr::Column(column) => computed.contains(column),
        other => !is_canonical(other),
    };
    (may_be_nan && is_float(side, schema)).then(|| canonical(side.clone()))
}

fn rewrite(expr: Expr, around: &Around<'_>) -> Result<Transformed<Expr>> {
    let (schema, computed) = (around.schema, around.computed);
    let made = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            let of = |side: &Expr| compared(side, schema, computed);
            match (of(left), of(right)) {
                (None, None) => None,
                (l, r) => Some(Expr::BinaryExpr(BinaryExpr::new(
                    Box::new(l.unwrap_or_else(|| left.as_ref().clone())),
                    *op,
                    Box::new(r.unwrap_or_else(|| right.as_ref().clone())),
                ))),
            }
        }
        Expr::Between(between) => of_between(between, around),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(*op) => {
            let of = |side: &Expr| type_of(side, schema).ok();
            match (of(left), of(right)) {
                (Some(l), Some(r)) if l == r && l.is_integer() => {
                    return Ok(checked_operation(expr));
                }
                _ => None,
            }
        }
        // An undefined result is NaN of either sign, depending on the machine.
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::Divide | Operator::Modulo)
                && is_float(left, schema)
                && is_float(right, schema)
                && !is_plain(right) =>
        {
            Some(canonical(expr.clone()))
        }
        Expr::Cast(cast) if cast.field.data_type().is_integer() => rounded(&cast.expr, around)
            .map(|value| Expr::Cast(Cast::new(Box::new(value), cast.field.data_type().clone()))),
        Expr::TryCast(cast) if cast.field.data_type().is_integer() => rounded(&cast.expr, around)
            .map(|value| {
                let mut cast = cast.clone();
                *cast.expr = value;
                Expr::TryCast(cast)
            }),
        Expr::InList(list) if is_float(&list.expr, schema) && !list.list.iter().all(is_plain) => {
            Some(of_list(list))
        }
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Interval(_)) => {
            let is_text = matches!(
                type_of(&cast.expr, schema),
                Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
            );
            is_text.then(|| interval_of_text(cast.expr.as_ref().clone()))
        }
        Expr::Case(case) if case.expr.as_ref().is_some_and(|of| is_float(of, schema)) => {
            Some(of_case(case))
        }
        Expr::AggregateFunction(call) if call.params.distinct => of_distinct(call, schema),
        Expr::ScalarFunction(call) => of_function(call, around)?,
        _ => None,
    };
    Ok(match made {
        Some(made) => Transformed::yes(made),
        None => Transformed::no(expr),
    })
}

/// Replaces an operation on integers by one that fails if its result does not fit.
fn checked_operation(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match checked(op) {
            Some(function) => Transformed::yes(function.call(vec![*left, *right])),
            None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        },
        expr => Transformed::no(expr),
    }
}

/// A range of floats.
fn of_between(between: &Between, around: &Around<'_>) -> Option<Expr> {
    let of = |side: &Expr| compared(side, around.schema, around.computed);
    let made = [&between.expr, &between.low, &between.high].map(|side| of(side));
    made.iter().any(Option::is_some).then(|| {
        let mut between = between.clone();
        let sides = [&mut between.expr, &mut between.low, &mut between.high];
        for (side, made) in sides.into_iter().zip(made) {
            if let Some(made) = made {
                **side = made;
            }
        }
        Expr::Between(between)
    })
}

/// A `CASE` of a float, which is compared with each `WHEN`.
fn of_case(case: &Case) -> Expr {
    let mut case = case.clone();
    case.expr = case.expr.map(|of| Box::new(canonical(*of)));
    for (when, _) in &mut case.when_then_expr {
        **when = canonical(std::mem::take(when.as_mut()));
    }
    Expr::Case(case)
}

/// An aggregate over distinct values: equal floats count once.
fn of_distinct(call: &AggregateFunction, schema: &DFSchema) -> Option<Expr> {
    let mut call = call.clone();
    let mut any = false;
    for arg in &mut call.params.args {
        if is_float(arg, schema) {
            *arg = canonical(std::mem::take(arg));
            any = true;
        }
    }
    any.then_some(Expr::AggregateFunction(call))
}

/// The replacement of a call of `round` or `nullif` of floats; `None` = unchanged.
fn of_function(call: &ScalarFunction, around: &Around<'_>) -> Result<Option<Expr>> {
    let schema = around.schema;
    Ok(match (call.func.name(), call.args.as_slice()) {
        ("round", [value, rest @ ..]) if is_float(value, schema) => {
            match (is_numeric(value, around.inputs), rest) {
                (true, []) => Some(round_decimal(value.clone())),
                (true, [digits]) => Some(round_decimal_to(value.clone(), digits.clone())),
                (false, []) => Some(rint(value.clone())),
                _ => None,
            }
        }
        ("nullif", [value, other]) if is_float(value, schema) => {
            // The first argument is returned unchanged.
            let same = Expr::BinaryExpr(BinaryExpr::new(
                Box::new(value.clone()),
                Operator::Eq,
                Box::new(other.clone()),
            ));
            let none = ScalarValue::try_new_null(&type_of(value, schema)?)?;
            let mut case = datafusion::logical_expr::when(same, Expr::Literal(none, None));
            Some(case.otherwise(value.clone())?)
        }
        _ => None,
    })
}

/// Applies [`canonical`] to the operand and the items of a list.
fn of_list(list: &InList) -> Expr {
    Expr::InList(InList {
        expr: Box::new(canonical(list.expr.as_ref().clone())),
        list: list.list.iter().cloned().map(canonical).collect(),
        negated: list.negated,
    })
}
