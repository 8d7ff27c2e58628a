//! `DELETE`: deletes a range of time of some streams.
//!
//! Invariants: a statement deletes exactly the rows of its condition, or is refused: the condition
//! may use time and tags. Rows are counted in the statement's snapshot just before they are
//! deleted.

use super::insert::target;
use super::parameter_types::{nulls, parameter_types};
use super::{Shape, blocking};
use crate::answer::{Answer, Outcome};
use crate::error::{Error, Result};
use crate::parameters::Parameters;
use crate::placeholders::Written;
use crate::session::{Running, Session, no_columns};
use crate::table::Conditions;
use crate::view::{TableView, View};
use arrow::datatypes::DataType;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, WriteOp};
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast;
use headwater::{ClosedRange, Database, ScanSpec, StreamName};
use headwater_wire::query::BARE_REMOVAL_MIN;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Refuses numbers as instants close to 1970: they are probably years or seconds.
fn refuse_small_instants(condition: &ast::Expr, parameters: &Parameters) -> Result<()> {
    let is_time = |expr: &ast::Expr| match expr {
        ast::Expr::Identifier(name) => name.value.eq_ignore_ascii_case("time"),
        ast::Expr::CompoundIdentifier(names) => {
            let last = names.last();
            last.is_some_and(|name| name.value.eq_ignore_ascii_case("time"))
        }
        _ => false,
    };
    let check = |expr: &ast::Expr| {
        match bare(expr, parameters) {
        Some(number) if number.unsigned_abs() < u128::from(BARE_REMOVAL_MIN.unsigned_abs()) => {
            Err(Error::invalid_value(format!(
                "DELETE: {number} would be read as nanoseconds since 1970, an instant close to 1970; nothing was deleted"
            ))
            .with_hint(
                "write the instant: time < '2024-01-01', time >= now() - interval '30 days'",
            ))
        }
        _ => Ok(()),
    }
    };
    let found = ast::visit_expressions(condition, |expr| {
        let beside: Vec<&ast::Expr> = match expr {
            ast::Expr::BinaryOp { left, right, .. } if is_time(left) => vec![right],
            ast::Expr::BinaryOp { left, right, .. } if is_time(right) => vec![left],
            ast::Expr::Between {
                expr, low, high, ..
            } if is_time(expr) => vec![low, high],
            ast::Expr::InList { expr, list, .. } if is_time(expr) => list.iter().collect(),
            _ => Vec::new(),
        };
        match beside.into_iter().try_for_each(check) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    });
    match found {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// An integer, or a text of one.
fn bare(expr: &ast::Expr, parameters: &Parameters) -> Option<i128> {
    let bare = |expr| bare(expr, parameters);
    match expr {
        ast::Expr::Nested(inner) => bare(inner),
        ast::Expr::UnaryOp { op, expr } => match op {
            ast::UnaryOperator::Minus => bare(expr)?.checked_neg(),
            ast::UnaryOperator::Plus => bare(expr),
            _ => None,
        },
        ast::Expr::Cast { expr, .. } => bare(expr),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(number, _) => number.to_string().parse().ok(),
            ast::Value::SingleQuotedString(text) => text.trim().parse().ok(),
            ast::Value::Placeholder(name) => {
                let place: usize = name.strip_prefix('$')?.parse().ok()?;
                let value = parameters.values().get(place.checked_sub(1)?)?;
                let is_text = value.try_as_str().is_some();
                let is_whole = value.data_type().is_integer() || is_text;
                is_whole.then(|| value.to_string().trim().parse().ok())?
            }
            _ => None,
        },
        _ => None,
    }
}

async fn plan(running: &Running, delete: &ast::Delete) -> Result<DmlStatement> {
    let more = delete.using.is_some()
        || delete.returning.is_some()
        || delete.output.is_some()
        || !delete.order_by.is_empty()
        || delete.limit.is_some();
    if more {
        return Err(Error::unsupported_statement(
            "DELETE supports a table and WHERE only",
        ));
    }
    let statement = ast::Statement::Delete(delete.clone());
    let plan = running
        .resolve(Parse::Statement(Box::new(statement)))
        .await?;
    match plan {
        LogicalPlan::Dml(dml) if matches!(dml.op, WriteOp::Delete) => Ok(dml),
        other => Err(Error::internal(format!(
            "a DELETE was planned as {}",
            other.display()
        ))),
    }
}

pub(super) async fn describe(
    session: &Session,
    delete: &ast::Delete,
    types: &[Option<DataType>],
    written: &Written,
) -> Result<Shape> {
    let running = session.begin()?;
    let dml = plan(&running, delete).await?;
    let types = parameter_types(&running, &dml.input, written, types).await?;
    nulls(&types)?.apply(Arc::unwrap_or_clone(dml.input), types.len())?;
    Ok(Shape::new(types, no_columns(), Outcome::Deleted(0)))
}

/// The range and the streams of a condition.
fn chosen(
    running: &Running,
    table: &Arc<TableView>,
    input: LogicalPlan,
) -> Result<(ClosedRange, Vec<StreamName>)> {
    let optimized = running.guarded.plan(|| running.state.optimize(&input))?;
    let mut node = &optimized;
    loop {
        match node {
            LogicalPlan::TableScan(scan) => {
                let conditions = Conditions::of(&scan.filters, table)?;
                if conditions.are_about_fields() {
                    return Err(too_much());
                }
                let props = running.state.execution_props();
                let chosen = conditions.choose(&running.view, table, props)?;
                return Ok((conditions.range, running.view.names(table, chosen)?));
            }
            // The condition is never true.
            LogicalPlan::EmptyRelation(_) => return Ok((ClosedRange::EMPTY, Vec::new())),
            LogicalPlan::Projection(projection) => node = &projection.input,
            _ => return Err(too_much()),
        }
    }
}

fn too_much() -> Error {
    Error::unsupported("DELETE supports only conditions on time and tags, joined by AND")
        .with_hint("for example: DELETE FROM t WHERE device = 'a' AND time < '2024-01-01'")
}

/// Rows that are about to be deleted.
pub(super) struct Planned {
    db: Database,
    view: Arc<View>,
    table: Arc<TableView>,
    names: Vec<StreamName>,
    range: ClosedRange,
}

/// Evaluates the condition, and checks the right to delete.
pub(super) async fn begin(
    session: &Session,
    delete: ast::Delete,
    (parameters, written): (Parameters, usize),
) -> Result<Planned> {
    let db = session.query.database()?.clone();
    let running = session.begin()?;
    if let Some(condition) = &delete.selection {
        refuse_small_instants(condition, &parameters)?;
    }
    let dml = plan(&running, &delete).await?;
    let table = target(&dml)?;
    let input = parameters.apply(Arc::unwrap_or_clone(dml.input), written)?;
    let (range, names) = chosen(&running, &table, input)?;
    if !session.access.all() {
        for name in &names {
            if !session.access.writes(name.table(), name.tags()) {
                return Err(Error::forbidden(format!(
                    "this session may not delete from `{name}`"
                )));
            }
        }
    }
    Ok(Planned {
        db,
        view: running.view,
        table,
        names,
        range,
    })
}

/// Counts the rows, and deletes them.
pub(super) async fn finish(planned: Planned) -> Result<Answer> {
    let Planned {
        db,
        view,
        table,
        names,
        range,
    } = planned;
    if range.is_empty() || names.is_empty() {
        return Ok(Answer::without_rows(Outcome::Deleted(0)));
    }
    let deleted = blocking(move || {
        let rows = count(&view, &names, range)?;
        db.delete_streams(&table.name, &names, range)?;
        Ok(rows)
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Deleted(deleted)))
}

fn count(view: &View, streams: &[StreamName], range: ClosedRange) -> Result<u64> {
    let spec = ScanSpec {
        range,
        fields: Some(Vec::new()),
        ..ScanSpec::default()
    };
    let mut rows = 0;
    for stream in streams {
        match view.snapshot().scan(stream, &spec) {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
            Ok(scan) => {
                for chunk in scan {
                    rows += chunk?.times.len() as u64;
                }
            }
        }
    }
    Ok(rows)
}
