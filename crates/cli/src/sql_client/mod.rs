//! Questions in SQL: to a database on this machine, or to a server.
//!
//! Invariants: both give batches of columns as they come, so the output does not depend on the
//! source; a local database is opened read only unless `--write` is given. Rows are in memory a
//! batch at a time.

mod copy;
mod local;
mod print;
mod remote;

pub(crate) use copy::Copy;
pub(crate) use print::{Shape, print_rows};

use crate::failure::Failure;
use crate::store::DbArgs;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use headwater_query::{Error, StatementText, statements};
use local::Local;
use remote::Remote;

/// The database or server to query.
#[derive(Debug, clap::Args)]
pub(crate) struct QueryTarget {
    /// Directory of a database on this machine; read only, also while a server has it open
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: Option<std::path::PathBuf>,

    /// A server to query instead, such as http://127.0.0.1:7373
    #[arg(long, value_name = "URL", conflicts_with_all = ["db", "write"])]
    url: Option<String>,

    /// Token for the server
    #[arg(
        long,
        value_name = "TOKEN",
        env = "HEADWATER_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,

    /// Certificate of the server, or of its issuer, in PEM
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<std::path::PathBuf>,

    /// Open the directory as its owner, so that statements may change it
    #[arg(long)]
    write: bool,

    /// Memory of a statement, and for events and caches of a database opened here
    #[arg(long, value_name = "SIZE", value_parser = crate::arguments::parse_size, default_value = "256MiB")]
    memory: usize,
}

impl QueryTarget {
    /// Opens the database, or connects to the server.
    pub(crate) fn open(self) -> Result<Session, Failure> {
        match (self.url, self.db) {
            (Some(url), _) => {
                let remote = Remote::new(&url, self.token, self.ca.as_deref())?;
                Ok(Session::Remote(remote))
            }
            (None, Some(db)) => {
                let memory = self.memory;
                let store = DbArgs { db, memory };
                Ok(Session::Local(Box::new(Local::open(&store, self.write)?)))
            }
            (None, None) => Err(Failure::usage(
                "no database is given: use --db DIR for a directory, or --url URL for a server",
            )),
        }
    }
}

/// A session on a local database or a server.
pub(crate) enum Session {
    Local(Box<Local>),
    Remote(Remote),
}

/// Rows as they come.
pub(crate) struct Rows<'a> {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Box<dyn Iterator<Item = Result<RecordBatch, Error>> + 'a>,
}

impl Session {
    /// Runs a statement. `parameters` are the texts of `$1`, `$2`, …
    pub(crate) fn run(&self, sql: &str, parameters: &[String]) -> Result<Rows<'_>, Error> {
        match self {
            Session::Local(local) => local.run(sql, parameters),
            Session::Remote(remote) => remote.run(sql, parameters),
        }
    }

    /// Runs the statements of a text, one after the other.
    pub(crate) fn run_all(
        &self,
        sql: &str,
        parameters: &[String],
        mut take: impl FnMut(Rows<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for statement in split_statements(sql)? {
            let failed = |error: Error| mistake(sql, &statement.locate(error));
            if let Some(copy) = Copy::parse(&statement.text).map_err(failed)? {
                let rows = self.run(&copy.sql, parameters).map_err(|error| {
                    let (line, column) = copy.position;
                    failed(error.moved_to(line, column))
                })?;
                copy.write(rows)?;
                continue;
            }
            let rows = self.run(&statement.text, parameters).map_err(failed)?;
            take(rows)?;
        }
        Ok(())
    }
}

fn split_statements(sql: &str) -> Result<Vec<StatementText>, Failure> {
    statements(sql).map_err(|error| mistake(sql, &error))
}

/// An error with the line it was found in and a mark below.
pub(crate) fn mistake(sql: &str, error: &Error) -> Failure {
    let mut message = error.message.clone();
    if let Some((line, column)) = error.at
        && let Some(text) = sql.lines().nth(line.saturating_sub(1) as usize)
    {
        let head = format!("line {line}: ");
        let before = (column as usize).saturating_sub(1);
        // Tabs stay tabs, so that the mark stands where the text does.
        let blanks: String = text
            .chars()
            .take(before)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let margin = " ".repeat(head.len());
        message.push_str(&format!("\n{head}{text}\n{margin}{blanks}^"));
    }
    if let Some(hint) = &error.hint {
        message.push_str(&format!("\nhint: {hint}"));
    }
    Failure::failed(message)
}
