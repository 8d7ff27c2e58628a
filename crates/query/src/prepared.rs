//! Prepared statements: parameters and columns are known before they run.
//!
//! Invariants: a parsed statement is used only for the text, access, settings and kind of session,
//! and the tables and streams for which it was parsed; if one of them has changed, it is parsed
//! again. Concurrency: immutable; sessions for which a parsed statement is the same share it.

use crate::answer::{Answer, Done};
use crate::error::Result;
use crate::parameters::Parameters;
use crate::parsed::Parsed;
use crate::plans::Described;
use crate::session::Session;
use crate::statement;
use arrow::datatypes::{DataType, SchemaRef};
use std::sync::Arc;

/// A prepared statement.
#[derive(Clone, Debug)]
pub struct Prepared {
    session: Session,
    what: Arc<Described>,
}

/// Types of the parameters and schema of the answer of a parsed statement.
pub(crate) async fn described(
    session: &Session,
    statement: Parsed,
    types: &[Option<DataType>],
) -> Result<Described> {
    let shape = statement::describe(session, &statement, types).await?;
    let mut statement = statement;
    statement.forget();
    let meaning = shape.meaning.filter(|_| !statement.is_forgotten());
    Ok(Described {
        statement,
        parameters: shape.parameters,
        schema: shape.schema,
        done: shape.done,
        meaning,
    })
}

impl Prepared {
    pub(crate) fn new(session: Session, what: Arc<Described>) -> Prepared {
        Prepared { session, what }
    }

    /// The types of `$1`, `$2`, …
    #[must_use]
    pub fn parameters(&self) -> &[DataType] {
        &self.what.parameters
    }

    /// The columns of the answer; empty for a statement without rows.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.what.schema)
    }

    /// Memory of the prepared statement, approximately.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const COLUMN_BYTES: usize = 256;
        self.what.statement.bytes() + COLUMN_BYTES * self.what.schema.fields().len()
    }

    /// Effect of the statement, with counts of 0.
    #[must_use]
    pub fn done(&self) -> Done {
        self.what.done
    }

    /// Runs it with these values, which are converted to the parameters' types.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run(&self, parameters: Parameters) -> Result<Answer> {
        let zone = self.session.settings_now().zone;
        let parameters = parameters.in_types(&self.what.parameters, &zone)?;
        let text = self.what.statement.text();
        let view = Arc::new(self.session.view()?);
        if let Some(answer) = self.session.run_again(&view, text, &parameters)? {
            return Ok(answer);
        }
        if self.what.statement.is_forgotten() {
            let mut statement = statement::read(&self.session, text).await?;
            statement.written.count = self.what.parameters.len();
            return statement::run(&self.session, statement, parameters).await;
        }
        let described = Arc::clone(&self.what);
        statement::run_described(&self.session, view, described, parameters).await
    }
}
