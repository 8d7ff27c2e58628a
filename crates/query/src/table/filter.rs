//! Conditions of a statement that are pushed down to the engine.
//!
//! Invariants: a pushed-down condition is exact: rows that are read satisfy it, by the rules of SQL
//! (an absent value never does) and with Arrow's order of floats (NaN above all, -0 below 0).

use crate::error::Error;
use crate::view::{Choice, Chosen, Role, TableView, View};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, Volatility};
use datafusion::physical_expr::create_physical_expr;
use headwater::{ClosedRange, Comparison, Filter, Value};
use headwater_columnar::field_data_type;
use std::sync::Arc;

/// A condition that is pushed down to the engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// The instants that satisfy it.
    Time(ClosedRange),
    /// A condition on tags alone.
    Tags,
    /// Each of these is true.
    Fields(Vec<Filter>),
    /// One of these is true.
    AnyOf(Vec<Filter>),
}

/// Conditions with more alternatives are not pushed down: each is compared with each value.
const ALTERNATIVES_MAX: usize = 32;

/// The operator for swapped operands.
fn mirrored(operator: Operator) -> Option<Operator> {
    Some(match operator {
        Operator::Eq | Operator::NotEq => operator,
        Operator::Lt => Operator::Gt,
        Operator::LtEq => Operator::GtEq,
        Operator::Gt => Operator::Lt,
        Operator::GtEq => Operator::LtEq,
        _ => return None,
    })
}

/// `column operator value`, in either order of operands.
fn comparison(expr: &Expr) -> Option<(&str, Operator, &ScalarValue)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return None;
    };
    match (&**left, &**right) {
        (Expr::Column(column), Expr::Literal(value, _)) => {
            mirrored(*op)?;
            Some((&column.name, *op, value))
        }
        (Expr::Literal(value, _), Expr::Column(column)) => {
            Some((&column.name, mirrored(*op)?, value))
        }
        _ => None,
    }
}

/// The instants that are in this relation to an instant, if they are a single range.
fn instants(operator: Operator, at: i64) -> Option<ClosedRange> {
    let after = || at.checked_add(1);
    let before = || at.checked_sub(1);
    Some(match operator {
        Operator::Eq => ClosedRange::nanos(at, at),
        Operator::GtEq => ClosedRange::nanos(at, i64::MAX),
        Operator::Gt => after().map_or(ClosedRange::EMPTY, |a| ClosedRange::nanos(a, i64::MAX)),
        Operator::LtEq => ClosedRange::nanos(i64::MIN, at),
        Operator::Lt => before().map_or(ClosedRange::EMPTY, |b| ClosedRange::nanos(i64::MIN, b)),
        _ => return None,
    })
}

fn total(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Eq => Comparison::TotalEqual,
        Operator::NotEq => Comparison::TotalNotEqual,
        Operator::Lt => Comparison::TotalLess,
        Operator::LtEq => Comparison::TotalLessOrEqual,
        Operator::Gt => Comparison::TotalGreater,
        Operator::GtEq => Comparison::TotalGreaterOrEqual,
        _ => return None,
    })
}

fn value(scalar: &ScalarValue) -> Option<Value> {
    Some(match scalar {
        ScalarValue::Float64(Some(v)) => Value::F64(*v),
        ScalarValue::Int64(Some(v)) => Value::I64(*v),
        ScalarValue::UInt64(Some(v)) => Value::U64(*v),
        ScalarValue::Boolean(Some(v)) => Value::Bool(*v),
        ScalarValue::Utf8(Some(v)) => Value::String(v.clone()),
        ScalarValue::Binary(Some(v)) => Value::Bytes(v.clone()),
        _ => return None,
    })
}

/// True when the condition uses only tags, and is not volatile.
pub(crate) fn is_about_tags(expr: &Expr, table: &TableView) -> bool {
    let mut columns = 0;
    let mut only = true;
    let walked = expr.apply(|part| {
        match part {
            Expr::Column(column) => {
                columns += 1;
                only &= matches!(table.role(&column.name), Some(Role::Tag(_)));
            }
            Expr::ScalarFunction(function) => {
                only &= function.func.signature().volatility != Volatility::Volatile;
            }
            Expr::ScalarSubquery(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::Placeholder(_)
            | Expr::AggregateFunction(_)
            | Expr::WindowFunction(_)
            | Expr::Unnest(_) => only = false,
            _ => {}
        }
        Ok(if only {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    });
    walked.is_ok() && only && columns > 0
}

/// The comparison of a field, if the engine supports it.
fn filter_of(
    column: &str,
    operator: Operator,
    scalar: &ScalarValue,
    table: &TableView,
) -> Option<Filter> {
    let Some(Role::Field(at)) = table.role(column) else {
        return None;
    };
    let (name, of) = table.fields.get(at)?;
    if scalar.data_type() != field_data_type(*of) {
        return None;
    }
    Some(Filter {
        field: name.clone(),
        comparison: total(operator)?,
        value: value(scalar)?,
    })
}

/// Alternative comparisons of fields, if the condition consists of them: an unknown alternative is
/// not true.
fn alternatives_of(expr: &Expr, table: &TableView, into: &mut Vec<Filter>) -> Option<()> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => {
            alternatives_of(left, table, into)?;
            alternatives_of(right, table, into)?;
        }
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = &*list.expr else {
                return None;
            };
            for value in &list.list {
                let Expr::Literal(value, _) = value else {
                    return None;
                };
                // NULL is not equal to any value.
                if !value.is_null() {
                    into.push(filter_of(&column.name, Operator::Eq, value, table)?);
                }
            }
        }
        _ => {
            let (column, operator, scalar) = comparison(expr)?;
            into.push(filter_of(column, operator, scalar, table)?);
        }
    }
    (into.len() <= ALTERNATIVES_MAX).then_some(())
}

/// The bounds of the texts that match `LIKE 'beginning%'`. Text is compared by its bytes, whose
/// order is that of its characters.
fn beginning_of_text(expr: &Expr, table: &TableView) -> Option<Vec<Filter>> {
    let Expr::Like(like) = expr else {
        return None;
    };
    let (Expr::Column(column), Expr::Literal(pattern, _)) = (&*like.expr, &*like.pattern) else {
        return None;
    };
    let beginning = pattern.try_as_str()??.strip_suffix('%')?;
    if like.negated || like.case_insensitive || like.escape_char.is_some() {
        return None;
    }
    if beginning.is_empty() || beginning.contains(['%', '_', '\\']) {
        return None;
    }
    let end = |operator, text: String| {
        filter_of(
            &column.name,
            operator,
            &ScalarValue::Utf8(Some(text)),
            table,
        )
    };
    let mut filters = vec![end(Operator::GtEq, beginning.to_owned())?];
    // After the last text with this prefix; without a next character it is unbounded.
    let mut before: Vec<char> = beginning.chars().collect();
    while let Some(last) = before.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            before.push(next);
            filters.push(end(Operator::Lt, before.into_iter().collect())?);
            break;
        }
    }
    Some(filters)
}

impl Condition {
    /// `None` when it cannot be pushed down.
    pub(crate) fn of(expr: &Expr, table: &TableView) -> Option<Condition> {
        if let Some((column, operator, scalar)) = comparison(expr) {
            match table.role(column)? {
                Role::Time => {
                    let ScalarValue::TimestampNanosecond(Some(at), _) = scalar else {
                        return None;
                    };
                    return instants(operator, *at).map(Condition::Time);
                }
                Role::Field(_) => {
                    let filter = filter_of(column, operator, scalar, table)?;
                    return Some(Condition::Fields(vec![filter]));
                }
                Role::Tag(_) => {}
            }
        }
        if is_about_tags(expr, table) {
            return Some(Condition::Tags);
        }
        if let Some(filters) = beginning_of_text(expr, table) {
            return Some(Condition::Fields(filters));
        }
        let mut alternatives = Vec::new();
        alternatives_of(expr, table, &mut alternatives)?;
        Some(Condition::AnyOf(alternatives))
    }
}

/// The conditions of a scan, by their subjects.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) range: ClosedRange,
    pub(crate) filters: Vec<Filter>,
    pub(crate) any_of: Vec<Vec<Filter>>,
    tags: Vec<Expr>,
}

impl Conditions {
    pub(crate) fn of(exprs: &[Expr], table: &TableView) -> Result<Conditions> {
        let mut conditions = Conditions {
            range: ClosedRange::ALL,
            filters: Vec::new(),
            any_of: Vec::new(),
            tags: Vec::new(),
        };
        for expr in exprs {
            match Condition::of(expr, table) {
                Some(Condition::Time(range)) => {
                    conditions.range = conditions.range.intersect(&range);
                }
                Some(Condition::Tags) => conditions.tags.push(expr.clone()),
                Some(Condition::Fields(filters)) => conditions.filters.extend(filters),
                Some(Condition::AnyOf(filters)) => conditions.any_of.push(filters),
                None => {
                    let message = format!("a condition was pushed down that is not exact: {expr}");
                    return Err(Error::internal(message).into());
                }
            }
        }
        Ok(conditions)
    }

    /// Whether there is a condition on a field.
    pub(crate) fn are_about_fields(&self) -> bool {
        !self.filters.is_empty() || !self.any_of.is_empty()
    }

    /// The streams whose tags satisfy the conditions.
    pub(crate) fn choose(
        &self,
        view: &View,
        table: &TableView,
        props: &ExecutionProps,
    ) -> Result<Chosen> {
        if self.range.is_empty() {
            return Ok(Chosen::Loaded(
                Arc::new(view.sorted_streams(table, Vec::new())),
                Vec::new(),
            ));
        }
        let mut choice = Choice::default();
        let schema = DFSchema::try_from(table.tag_schema())?;
        for expr in &self.tags {
            let expr = unqualified(expr)?;
            let planning = PhysicalPlanningContext::default();
            let condition = create_physical_expr(&expr, &schema, props, &planning)?;
            choice.conditions.push(condition);
            choice.having.extend(one_of(&expr, table));
        }
        Ok(view.choose(table, choice)?)
    }
}

/// The tag and its permitted values, if the condition, or a required part of it, has this form.
fn one_of(expr: &Expr, table: &TableView) -> Option<(String, Vec<String>)> {
    let key = |column: &str| match table.role(column)? {
        Role::Tag(at) => table.keys.get(at).cloned(),
        _ => None,
    };
    // NULL is not equal to any value.
    let text = |scalar: &ScalarValue| Some(scalar.try_as_str()?.map(str::to_owned));
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => {
            let (left, right) = (one_of(left, table)?, one_of(right, table)?);
            (left.0 == right.0).then(|| (left.0, [left.1, right.1].concat()))
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::And,
            right,
        }) => one_of(left, table).or_else(|| one_of(right, table)),
        Expr::BinaryExpr(_) => match comparison(expr)? {
            (column, Operator::Eq, value) => {
                Some((key(column)?, text(value)?.into_iter().collect()))
            }
            _ => None,
        },
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = &*list.expr else {
                return None;
            };
            let values = list.list.iter().map(|value| match value {
                Expr::Literal(value, _) => text(value),
                _ => None,
            });
            let values: Vec<Option<String>> = values.collect::<Option<_>>()?;
            Some((key(&column.name)?, values.into_iter().flatten().collect()))
        }
        _ => None,
    }
}

/// The expression with plain column names.
fn unqualified(expr: &Expr) -> Result<Expr> {
    let plain = expr.clone().transform(|part| {
        Ok(match part {
            Expr::Column(column) if column.relation.is_some() => {
                datafusion::common::tree_node::Transformed::yes(Expr::Column(
                    datafusion::common::Column::new_unqualified(column.name),
                ))
            }
            other => datafusion::common::tree_node::Transformed::no(other),
        })
    })?;
    Ok(plain.data)
}
