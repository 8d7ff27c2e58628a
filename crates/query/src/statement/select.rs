//! Statements that read.

use crate::answer::{Answer, Done};
use crate::error::Result;
use crate::parameters::Parameters;
use crate::session::{Session, nulls, parameter_types};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Parse;

/// Nothing but reading.
fn check(plan: &LogicalPlan) -> Result<()> {
    let only = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    Ok(only.verify_plan(plan)?)
}

pub(super) async fn run(
    session: &Session,
    statement: Parse,
    parameters: Parameters,
    done: Done,
) -> Result<Answer> {
    let running = session.begin()?;
    let logical = running.resolve(statement).await?;
    check(&logical)?;
    let logical = parameters.apply(logical)?;
    let plan = session.plan(&running, logical).await?;
    session.rows(&running, plan, done)
}

pub(super) async fn describe(
    session: &Session,
    statement: Parse,
    types: &[Option<DataType>],
    done: Done,
) -> Result<(Vec<DataType>, SchemaRef, Done)> {
    let running = session.begin()?;
    let logical = running.resolve(statement).await?;
    check(&logical)?;
    let types = parameter_types(&logical, types)?;
    let logical = nulls(&types)?.apply(logical)?;
    let logical = running.state.optimize(&logical)?;
    Ok((types, logical.schema().inner().clone(), done))
}
