//! Prepared statements: parameters and columns are known before they run.
//!
//! Invariants: a parsed statement is used only for the text, access, settings and kind of session,
//! and the tables and streams for which it was parsed; if one of them has changed, it is parsed
//! again. Concurrency: immutable; sessions for which a parsed statement is the same share it.

use crate::answer::{Answer, Outcome};
use crate::error::Result;
use crate::parameters::Parameters;
use crate::parsed::Parsed;
use crate::plan_cache::DescribedStatement;
use crate::session::Session;
use crate::statement;
use arrow::datatypes::{DataType, SchemaRef};
use std::sync::Arc;

/// A prepared statement.
#[derive(Clone, Debug)]
pub struct Prepared {
    session: Session,
    described: Arc<DescribedStatement>,
}

/// Types of the parameters and schema of the answer of a parsed statement.
pub(crate) async fn describe(
    session: &Session,
    statement: Parsed,
    types: &[Option<DataType>],
) -> Result<DescribedStatement> {
    let shape = statement::describe(session, &statement, types).await?;
    let mut statement = statement;
    statement.drop_if_large();
    let generic_plan = shape.generic_plan.filter(|_| !statement.is_text_only());
    Ok(DescribedStatement {
        statement,
        parameters: shape.parameters,
        schema: shape.schema,
        outcome: shape.outcome,
        generic_plan,
    })
}

impl Prepared {
    pub(crate) fn new(session: Session, described: Arc<DescribedStatement>) -> Prepared {
        Prepared { session, described }
    }

    /// The types of `$1`, `$2`, …
    #[must_use]
    pub fn parameters(&self) -> &[DataType] {
        &self.described.parameters
    }

    /// The columns of the answer; empty for a statement without rows.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.described.schema)
    }

    /// Memory of the prepared statement, approximately.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const COLUMN_BYTES: usize = 256;
        self.described.statement.bytes() + COLUMN_BYTES * self.described.schema.fields().len()
    }

    /// Effect of the statement, with counts of 0.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.described.outcome
    }

    /// Runs it with these values, which are converted to the parameters' types.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run(&self, parameters: Parameters) -> Result<Answer> {
        let zone = self.session.settings_now().zone;
        let parameters = parameters.in_types(&self.described.parameters, &zone)?;
        let text = self.described.statement.text();
        let view = Arc::new(self.session.view()?);
        if let Some(answer) = self.session.run_again(&view, text, &parameters)? {
            return Ok(answer);
        }
        if self.described.statement.is_text_only() {
            let mut statement = statement::read(&self.session, text).await?;
            statement.written.count = self.described.parameters.len();
            return statement::run(&self.session, statement, parameters).await;
        }
        let described = Arc::clone(&self.described);
        statement::run_described(&self.session, view, described, parameters).await
    }
}
