//! Statements that read.

use super::parameter_types::{nulls, parameter_types};
use super::{Shape, views};
use crate::answer::{Answer, Outcome};
use crate::error::Result;
use crate::parameters::Parameters;
use crate::placeholders::Written;
use crate::plan_cache::DescribedStatement;
use crate::plan_cache::{is_cacheable, is_same_in_every_session};
use crate::planner;
use crate::rewrites::names::{self, Labels};
use crate::session::{Running, Session};
use crate::view::View;
use arrow::datatypes::DataType;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Parse;
use std::sync::Arc;

/// Refuses plans that do more than reading.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let only = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    Ok(only.verify_plan(plan)?)
}

/// Request to run a statement.
pub(super) struct RunRequest<'a> {
    pub(super) labels: &'a Labels,
    /// Text of the statement, by which its plan may be cached.
    pub(super) text: Option<&'a str>,
    pub(super) parameters: Parameters,
    /// Number of parameters in the statement.
    pub(super) count: usize,
    pub(super) outcome: Outcome,
    /// The view of the statement, with its one snapshot.
    pub(super) view: Arc<View>,
}

/// Runs a statement.
pub(super) async fn run(
    session: &Session,
    mut statement: Parse,
    request: RunRequest<'_>,
) -> Result<Answer> {
    let RunRequest {
        labels,
        text,
        parameters,
        count,
        outcome,
        view,
    } = request;
    let running = session.begin_with(view)?;
    let viewed = views::expand_statement(session, &running, &mut statement).await?;
    let text = text.filter(|_| !viewed);
    let logical = labels.relabel(running.resolve(statement).await?)?;
    check(&logical)?;
    go_on(
        session,
        &running,
        logical,
        text,
        (parameters, count),
        outcome,
    )
    .await
}

/// Runs a query that was parsed before, if parsing it now would have the same result.
pub(super) async fn run_described(
    session: &Session,
    view: Arc<View>,
    described: &DescribedStatement,
    parameters: Parameters,
) -> Result<Answer> {
    let text = described.statement.text();
    let running = session.begin_with(view)?;
    let key = session.plan_key(text, &running.view);
    let mut viewed = false;
    let logical = match (key, &described.generic_plan) {
        (Some(now), Some((then, logical))) if now == *then => {
            planner::limit_expressions(logical)?;
            logical.clone()
        }
        _ => {
            let mut query = described.statement.query()?;
            viewed = views::expand_statement(session, &running, &mut query).await?;
            let logical = running.resolve(query).await?;
            let logical = described.statement.labels.relabel(logical)?;
            check(&logical)?;
            logical
        }
    };
    go_on(
        session,
        &running,
        logical,
        Some(text).filter(|_| !viewed),
        (parameters, described.parameters.len()),
        Outcome::Select,
    )
    .await
}

async fn go_on(
    session: &Session,
    running: &Running,
    logical: LogicalPlan,
    text: Option<&str>,
    (parameters, written): (Parameters, usize),
    done: Outcome,
) -> Result<Answer> {
    let values = parameters.values().to_vec();
    let logical = parameters.apply(logical, written)?;
    let text = text.filter(|_| is_cacheable(&logical));
    let plan = session.plan(running, logical).await?;
    if let Some(text) = text {
        session.cache_plan(text, &values, running, &plan);
    }
    session.rows(running, plan, done)
}

/// Request to describe a statement.
pub(super) struct DescribeRequest<'a> {
    pub(super) labels: &'a Labels,
    /// Text of the statement; with it, the shape includes the logical plan, if that can be cached.
    pub(super) text: Option<&'a str>,
    /// The declared types of its parameters.
    pub(super) types: &'a [Option<DataType>],
    pub(super) written: &'a Written,
    pub(super) outcome: Outcome,
}

/// The shape of a statement.
pub(super) async fn describe(
    session: &Session,
    mut statement: Parse,
    request: DescribeRequest<'_>,
) -> Result<Shape> {
    let DescribeRequest {
        labels,
        text,
        types,
        written,
        outcome,
    } = request;
    let running = session.begin()?;
    let viewed = views::expand_statement(session, &running, &mut statement).await?;
    let text = text.filter(|_| !viewed);
    let read = labels.relabel(running.resolve(statement).await?)?;
    check(&read)?;
    let key = text.and_then(|text| session.plan_key(text, &running.view));
    let generic_plan = key
        .filter(|_| is_same_in_every_session(&read))
        .map(|key| (key, read.clone()));
    let parameters = parameter_types(&running, &read, written, types).await?;
    let logical = nulls(&parameters)?.apply(read, parameters.len())?;
    let logical = session.optimize(&running, &logical)?;
    Ok(Shape {
        parameters,
        schema: names::without_marks(logical.schema().inner())
            .unwrap_or_else(|| logical.schema().inner().clone()),
        outcome,
        generic_plan,
    })
}
