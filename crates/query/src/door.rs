//! What a session is asked to do: run a statement, prepare one, take a text of several apart.

use crate::answer::Answer;
use crate::error::Result;
use crate::parameters::Parameters;
use crate::plans::ReadKey;
use crate::prepared::{Prepared, described};
use crate::session::Session;
use crate::statement;
use arrow::datatypes::DataType;
use std::sync::Arc;

impl Session {
    /// Runs one statement. What it reads comes as the answer's rows; what it changes is done when
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
    /// See [`Error`]. What goes wrong while rows are read comes with the rows.
    pub async fn run(&self, sql: &str, parameters: Parameters) -> Result<Answer> {
        if let Some(answer) = self.run_again(sql, &parameters)? {
            return Ok(answer);
        }
        let statement = statement::read(self, sql).await?;
        statement::run(self, statement, parameters).await
    }

    /// Refuses a statement, by its first word, that asks for something where the session may read
    /// nothing. It costs nothing, so that doors ask it before they let a statement run.
    ///
    /// # Errors `forbidden`.
    pub fn may_run(&self, sql: &str) -> Result<()> {
        statement::may_run(self, sql)
    }

    /// Takes a text of several statements apart.
    ///
    /// # Errors
    /// `syntax_error` when it cannot be read as words.
    pub fn split(sql: &str) -> Result<Vec<String>> {
        statement::split(sql)
    }

    /// Prepares a statement: types of its parameters (those given in `types`, else those that the
    /// statement tells, else text) and the columns of its answer are known then.
    ///
    /// # Errors
    /// As [`Session::run`], as far as it shows without running.
    pub async fn prepare(&self, sql: &str, types: &[Option<DataType>]) -> Result<Prepared> {
        self.check_length(sql)?;
        let view = self.view()?;
        let key = self.plan_key(sql, &view).map(|plan| ReadKey {
            plan,
            types: types.to_vec(),
        });
        drop(view);
        if let Some(key) = &key
            && let Some(described) = self.kept_plans().read(key)
        {
            return Ok(Prepared::new(self.clone(), described));
        }
        let statement = statement::read(self, sql).await?;
        let large = statement.is_large();
        let (session, types) = (self.clone(), types.to_vec());
        let read = async move { described(&session, statement, &types).await };
        let described = Arc::new(self.planned(large, read).await?);
        if let Some(key) = key
            && described.is_of(&key.plan)
        {
            self.kept_plans().put_read(key, &described);
        }
        Ok(Prepared::new(self.clone(), described))
    }
}
