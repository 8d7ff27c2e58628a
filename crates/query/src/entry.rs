//! Entry points of a session: running and preparing statements, and splitting a text of several.

use crate::answer::Answer;
use crate::complexity;
use crate::descriptions::{IndexDescription, ViewDescription};
use crate::error::{Code, Error, Result};
use crate::parameters::Parameters;
use crate::plan_cache::StatementKey;
use crate::prepared::{Prepared, describe};
use crate::session::Session;
use crate::statement::{self, Step};
use arrow::datatypes::DataType;
use std::sync::Arc;

impl Session {
    /// Runs one statement. A query's rows are streamed in the answer; changes are complete when
    /// this returns.
    ///
    /// ```
    /// use headwater::{Batch, Database, Options, StreamName};
    /// use headwater_query::{Limits, Parameters, Query, Unrestricted};
    /// use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let dir = tempfile::tempdir()?;
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// let pump = StreamName::new("pump", [("id", "7")]);
    /// batch.stream(&pump).row(1_700_000_000_000_000_000, [("rpm", 2150.0.into())])?;
    /// db.commit(batch)?;
    /// let session = Query::new(db, Limits::default()).session(Arc::new(Unrestricted));
    /// let answer = session.run("SELECT id, avg(rpm) FROM pump GROUP BY id", Parameters::none()).await?;
    /// assert_eq!(answer.collect().await?[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`](crate::Error). Errors of reading are reported by the stream of rows.
    pub async fn run(&self, sql: &str, parameters: Parameters) -> Result<Answer> {
        let view = Arc::new(self.view()?);
        if let Some(answer) = self.run_again(&view, sql, &parameters)? {
            return Ok(answer);
        }
        let ran = match statement::read_and_run(self, view, sql, parameters).await {
            Ok(Step::Read(statement, parameters)) => {
                statement::run(self, *statement, parameters).await
            }
            Ok(Step::Ran(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
        ran.map_err(|error| self.perhaps_left_out(error))
    }

    /// Refuses a statement, by its first word, if the session has no rights to read. Cheap, so
    /// front ends call it before a statement gets a slot.
    ///
    /// # Errors `forbidden`.
    pub fn may_run(&self, sql: &str) -> Result<()> {
        statement::may_run(self, sql)
    }

    /// The views that exist for the session, by name. Waits while they are planned.
    ///
    /// # Errors
    /// When the database is closed or its catalog cannot be read.
    pub fn views(&self) -> Result<Vec<ViewDescription>> {
        statement::described_views(self)
    }

    /// The indexes that the session may see, by name.
    ///
    /// # Errors
    /// When the database is closed or its catalog cannot be read.
    pub fn indexes(&self) -> Result<Vec<IndexDescription>> {
        statement::described_indexes(self)
    }

    /// Maximum bytes of a statement.
    #[must_use]
    pub fn text_bytes_max(&self) -> usize {
        self.query.shared.limits.text_bytes
    }

    /// Parses a text in another way before it is run as a statement, within the limits of every
    /// statement: `look` is called on a thread that may block, and is ended when a parser of the
    /// dialect [`Counted`](crate::Counted) takes more steps than such a text needs.
    ///
    /// # Errors
    /// When the text is longer or nested deeper than statements may be, or takes too long to parse,
    /// and errors of `look`.
    pub async fn look_at<T: Send + 'static>(
        &self,
        sql: &str,
        look: impl FnOnce(&str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_length(sql)?;
        let text = sql.to_owned();
        let read = async move {
            let weight = complexity::weigh(&text)?;
            weight.reading(|| look(&text))
        };
        self.planned(sql.len() > complexity::LONG_TEXT, read).await
    }

    /// Splits a text of several statements.
    ///
    /// # Errors
    /// `syntax_error` when it cannot be tokenized.
    pub fn split(sql: &str) -> Result<Vec<String>> {
        statement::split(sql)
    }

    /// Prepares a statement: determines the types of its parameters (from `types`, else from the
    /// statement, else text) and the columns of its answer.
    ///
    /// # Errors
    /// As [`Session::run`], as far as errors can be detected without running.
    pub async fn prepare(&self, sql: &str, types: &[Option<DataType>]) -> Result<Prepared> {
        self.check_length(sql)?;
        let view = self.view()?;
        let key = self.plan_key(sql, &view).map(|plan| StatementKey {
            plan,
            types: types.to_vec(),
        });
        drop(view);
        if let Some(key) = &key
            && let Some(described) = self.cached_plans().statement(key)
        {
            return Ok(Prepared::new(self.clone(), described));
        }
        let statement = statement::read(self, sql).await?;
        let large = statement.is_large();
        let (session, types) = (self.clone(), types.to_vec());
        let read = async move { describe(&session, statement, &types).await };
        let described = self.planned(large, read).await;
        let described = Arc::new(described.map_err(|error| self.perhaps_left_out(error))?);
        if let Some(key) = key
            && described.is_valid_for(&key.plan)
        {
            self.cached_plans().put_statement(key, &described);
        }
        Ok(Prepared::new(self.clone(), described))
    }

    /// The error of a statement: a name that is not found while parts of the data are left out may
    /// be in one of these.
    pub(crate) fn perhaps_left_out(&self, error: Error) -> Error {
        if !matches!(error.kind(), Code::UnknownTable | Code::UnknownColumn) {
            return error;
        }
        let Ok(view) = self.view() else {
            return error;
        };
        let left_out = view.left_out();
        if left_out.is_empty() {
            return error;
        }
        Error::elsewhere(format!(
            "{}; it may be in {left_out}, which cannot be read",
            error.message
        ))
    }
}
