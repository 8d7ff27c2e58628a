//! Statements whose parameters and columns are known before they run.
//!
//! Invariants: what was read of a statement is used for what it was read for: the same text, access, settings and kind of session,
//! and the tables and streams of that time; where one of them has changed, the statement is read anew.
//! Concurrency: immutable; what was read is shared by all sessions for which it is the same.

use crate::answer::{Answer, Done};
use crate::deep;
use crate::error::Result;
use crate::parameters::Parameters;
use crate::plans::PlanKey;
use crate::session::Session;
use crate::statement::{self, Parsed};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use std::sync::Arc;

/// A statement whose parameters and columns are known.
#[derive(Clone, Debug)]
pub struct Prepared {
    session: Session,
    what: Arc<Described>,
}

/// What was read of a statement.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) statement: Parsed,
    is_deep: bool,
    parameters: Vec<DataType>,
    schema: SchemaRef,
    done: Done,
    /// Of a query of nothing but tables: its meaning, parameters included, and for what.
    pub(crate) meaning: Option<(PlanKey, LogicalPlan)>,
}

impl Described {
    pub(crate) async fn read(
        session: &Session,
        sql: &str,
        types: &[Option<DataType>],
        is_deep: bool,
    ) -> Result<Described> {
        let statement = statement::parse(sql, session.extension.as_deref())?;
        let shape = statement::describe(session, &statement, types).await?;
        Ok(Described {
            statement,
            is_deep,
            parameters: shape.parameters,
            schema: shape.schema,
            done: shape.done,
            meaning: shape.meaning,
        })
    }

    /// True when it may be used wherever this key is that of the statement.
    pub(crate) fn is_of(&self, key: &PlanKey) -> bool {
        self.meaning.as_ref().is_some_and(|(own, _)| own == key)
    }
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

    /// The columns of the answer; none for a statement that gives no rows.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.what.schema)
    }

    /// What it will do; counts are 0.
    #[must_use]
    pub fn done(&self) -> Done {
        self.what.done
    }

    /// Runs it with these values, which become the parameters' types where they are not of them.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run(&self, parameters: Parameters) -> Result<Answer> {
        let zone = self.session.settings_now().zone;
        let parameters = parameters.in_types(&self.what.parameters, &zone)?;
        let text = self.what.statement.text();
        if let Some(answer) = self.session.run_again(text, &parameters)? {
            return Ok(answer);
        }
        let (session, what) = (self.session.clone(), Arc::clone(&self.what));
        let run = async move { statement::run_described(&session, &what, parameters).await };
        if self.what.is_deep {
            return deep::run(run).await;
        }
        run.await
    }
}
