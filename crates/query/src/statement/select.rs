//! Statements that read.

use crate::answer::{Answer, Done};
use crate::error::Result;
use crate::parameters::Parameters;
use crate::plans::is_lasting;
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

/// Runs a statement; the plan of one whose text is given may be kept for it.
pub(super) async fn run(
    session: &Session,
    statement: Parse,
    text: Option<&str>,
    parameters: Parameters,
    done: Done,
) -> Result<Answer> {
    let running = session.begin()?;
    let logical = running.resolve(statement).await?;
    check(&logical)?;
    let text = text.filter(|_| is_lasting(&logical));
    let logical = parameters.apply(logical)?;
    let plan = session.plan(&running, logical).await?;
    if let Some(text) = text {
        session.keep_plan(text, &running, &plan);
    }
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
