//! The plan of a watch: queries that can be followed, and changes of their plans.
//!
//! Invariant: a query that can be followed answers one row for each match, which depends only on
//! the rows of that match and a bounded number of rows before it.

use crate::catalog::SCHEMA;
use crate::columns::TIME;
use crate::error::{Error, Result};
use crate::pattern::{Pattern, TRACK, Tracking, watchable};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Extension, Filter, LogicalPlan, Operator, Projection, SubqueryAlias,
    Volatility,
};
use std::sync::Arc;

/// Table of a query that can be followed, and the longest duration of its matches.
pub(super) struct Followed {
    pub(super) table: String,
    pub(super) within_ns: i64,
}

/// Checks whether a query can be followed.
pub(super) fn followed(plan: &LogicalPlan) -> Result<Followed> {
    match plan {
        LogicalPlan::Projection(part) => {
            lasting(part.expr.iter())?;
            followed(&part.input)
        }
        LogicalPlan::Filter(part) => {
            lasting([&part.predicate])?;
            followed(&part.input)
        }
        LogicalPlan::SubqueryAlias(part) => followed(&part.input),
        LogicalPlan::Extension(Extension { node }) => match node.as_any().downcast_ref::<Pattern>()
        {
            Some(pattern) => of_pattern(pattern),
            None => Err(refused(plan)),
        },
        other => Err(refused(other)),
    }
}

fn of_pattern(pattern: &Pattern) -> Result<Followed> {
    let within_ns = watchable(pattern)?;
    lasting(pattern.computed())?;
    let Some(Expr::Column(order)) = pattern.first_order() else {
        return Err(Error::internal("rows in the order of what is no column"));
    };
    Ok(Followed {
        table: read(pattern.input(), order)?,
        within_ns,
    })
}

/// The table of the rows, if this column is its time.
fn read(plan: &LogicalPlan, time: &Column) -> Result<String> {
    match plan {
        LogicalPlan::TableScan(scan) if scan.table_name.schema().is_none_or(|s| s == SCHEMA) => {
            match time.name == TIME {
                true => Ok(scan.table_name.table().to_owned()),
                false => Err(not_by_time()),
            }
        }
        LogicalPlan::Filter(part) => {
            lasting([&part.predicate])?;
            read(&part.input, time)
        }
        LogicalPlan::SubqueryAlias(part) => {
            let at = part.schema.index_of_column(time)?;
            read(
                &part.input,
                &Column::from(part.input.schema().qualified_field(at)),
            )
        }
        LogicalPlan::Projection(part) => {
            lasting(part.expr.iter())?;
            let at = part.schema.index_of_column(time)?;
            let mut of = part.expr.get(at);
            while let Some(Expr::Alias(Alias { expr, .. })) = of {
                of = Some(expr);
            }
            match of {
                Some(Expr::Column(column)) => read(&part.input, column),
                _ => Err(not_by_time()),
            }
        }
        other => Err(refused(other)),
    }
}

fn not_by_time() -> Error {
    Error::unsupported("a watch must order rows by the column `time` of a table")
        .with_hint("MATCH_RECOGNIZE (… ORDER BY time …)")
}

fn refused(plan: &LogicalPlan) -> Error {
    let part = plan.display().to_string();
    let part = part.split([':', ' ']).next().unwrap_or_default().to_owned();
    Error::unsupported(format!("a watch does not support this query: {part}")).with_hint(
        "SELECT columns FROM table MATCH_RECOGNIZE (…) [WHERE condition]; aggregates of several matches can be computed from its events",
    )
}

/// Refuses expressions whose meaning changes over time, or that read other rows.
fn lasting<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Result<()> {
    let changes = |part: &Expr| match part {
        Expr::ScalarFunction(function) => {
            function.func.signature().volatility != Volatility::Immutable
        }
        Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::ScalarSubquery(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::WindowFunction(_)
        | Expr::Placeholder(_)
        | Expr::Unnest(_) => true,
        _ => false,
    };
    for expr in exprs {
        if expr.exists(|part| Ok(changes(part)))? {
            return Err(Error::unsupported(format!(
                "a watch cannot use `{expr}`: it depends on other rows, or changes with time"
            ))
            .with_hint("the expressions of a watch may depend only on the rows of a match"));
        }
    }
    Ok(())
}

/// The query of a watch: with a column [`TRACK`] after the others, and over rows from a time on.
pub(super) fn tracked(plan: &LogicalPlan, tracking: &Arc<Tracking>) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::Projection(part) => {
            let input = tracked(&part.input, tracking)?;
            let schema = input.schema();
            let last = schema.fields().len().saturating_sub(1);
            assert_eq!(
                schema.field(last).name(),
                TRACK,
                "what is tracked stands behind the others"
            );
            let mut exprs = part.expr.clone();
            exprs.push(Expr::Column(Column::from(schema.qualified_field(last))));
            LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?)
        }
        LogicalPlan::Filter(part) => {
            let input = Arc::new(tracked(&part.input, tracking)?);
            LogicalPlan::Filter(Filter::try_new(part.predicate.clone(), input)?)
        }
        LogicalPlan::SubqueryAlias(part) => {
            let input = Arc::new(tracked(&part.input, tracking)?);
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input, part.alias.clone())?)
        }
        LogicalPlan::Extension(Extension { node }) => {
            let Some(pattern) = node.as_any().downcast_ref::<Pattern>() else {
                return Err(refused(plan));
            };
            let input = bounded(pattern.input(), tracking.lower_ns)?;
            let node = Arc::new(pattern.tracked(input, tracking)?);
            LogicalPlan::Extension(Extension { node })
        }
        other => return Err(refused(other)),
    })
}

/// Rows of a table from a time on.
fn bounded(plan: &LogicalPlan, lower_ns: i64) -> Result<LogicalPlan> {
    if lower_ns == i64::MIN {
        return Ok(plan.clone());
    }
    Ok(match plan {
        LogicalPlan::TableScan(scan) => {
            let time = scan.projected_schema.index_of_column_by_name(None, TIME);
            let time = time.ok_or_else(|| Error::internal("a table without a time"))?;
            let (qualifier, field) = scan.projected_schema.qualified_field(time);
            let zone = match field.data_type() {
                arrow::datatypes::DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let bound = ScalarValue::TimestampNanosecond(Some(lower_ns), zone);
            let later = Expr::BinaryExpr(BinaryExpr::new(
                Box::new(Expr::Column(Column::from((qualifier, field)))),
                Operator::GtEq,
                Box::new(Expr::Literal(bound, None)),
            ));
            LogicalPlan::Filter(Filter::try_new(later, Arc::new(plan.clone()))?)
        }
        other => {
            let inputs = other.inputs().into_iter();
            let inputs = inputs.map(|input| bounded(input, lower_ns));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            other.with_new_exprs(other.expressions(), inputs)?
        }
    })
}
