//! Meaning of statements of InfluxQL.
//!
//! A measurement is a table, and its series are streams. `Evaluator::answer` carries one statement
//! out on a snapshot.
//!
//! Invariants: rows are read only where the aggregates of the pyramid do not suffice; streams that
//! the client may not read are treated as absent, in answers, counts and names; memory in use is
//! counted by a `Budget`. Failure: a failed statement is an [`Error`], which is part of the
//! statement's result. Page: docs/http/influxql.md.

mod aggregate;
mod arithmetic;
mod buffered;
mod change;
mod columns;
mod condition;
mod document;
mod explain;
mod field;
mod fill;
mod functions;
mod into;
mod measurements;
mod parts;
mod passed;
mod plan;
mod points;
mod predicate;
mod pretty;
mod random;
mod raw;
mod reading;
mod rows;
mod scope;
mod select;
mod shards;
mod show;
mod sources;
mod taker;
mod times;
mod transform;
mod within;
mod write;

pub use document::PIECE_BYTES;
pub use into::{PointWriter, Stored};
pub use pretty::Pretty;
pub use write::{Epoch, Form, Out, csv, json};

use self::columns::Columns;
use crate::access::Access;
use crate::budget::{Budget, VALUE_BYTES};
use crate::databases::{Databases, Names, Space, not_found};
use crate::error::{Error, QueryErrorKind};
use headwater::{Database, Snapshot, Timestamp, Value};
use headwater_wire::influxql::{CreateDatabase, Parameters, Select, Source, Statement, parse};
use jiff::tz::TimeZone;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Name of the only retention policy.
const POLICY: &str = "autogen";

/// A series of an answer.
#[derive(Debug, Default)]
pub struct Series {
    /// The measurement, or the listed object; may be empty.
    pub name: String,
    /// The tags by which it was grouped.
    pub tags: Vec<(String, String)>,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Cells, row by row; the first column of a row of data is its time.
    pub cells: Vec<Cell>,
    /// Indexes of columns after the time that are tags by which rows were chosen.
    pub(crate) tag_columns: Vec<usize>,
}

/// A value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A missing value.
    Null,
    /// An instant, ns since 1970.
    Time(i64),
    /// A value.
    Value(Value),
}

/// Approximate memory of cells, in bytes.
pub(crate) fn cells_bytes(cells: &[Cell]) -> usize {
    let text = |cell: &Cell| match cell {
        Cell::Value(Value::String(text)) => text.len(),
        Cell::Value(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    cells.len() * VALUE_BYTES + cells.iter().map(text).sum::<usize>()
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell::Value(Value::String(text.into()))
    }
}

impl From<Option<Value>> for Cell {
    fn from(value: Option<Value>) -> Cell {
        value.map_or(Cell::Null, Cell::Value)
    }
}

/// Answer of a statement.
#[derive(Debug, Default)]
pub struct Answer {
    /// `None` for statements without series.
    pub series: Option<Vec<Series>>,
    /// A warning for the client.
    pub warning: Option<String>,
    /// The zone in which times are written as text; UTC without one.
    pub(crate) zone: Option<TimeZone>,
}

/// Maximum bytes of a text of statements.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// A client of InfluxQL, and the snapshot that it queries.
#[derive(Clone)]
pub struct Evaluator<'a> {
    snapshot: &'a Snapshot,
    access: &'a dyn Access,
    budget: &'a Budget,
    now: Timestamp,
    /// The databases by name.
    names: Arc<Names>,
    /// Storage of the names, if statements may create and drop databases.
    databases: Option<&'a dyn Databases>,
    /// The default database of the request.
    database: Option<&'a str>,
    /// The database that statements may change; `None` = read-only.
    changes: Option<&'a Database>,
    /// True if the request declared itself read-only.
    is_read_only: bool,
    /// Receives the points that statements write; `None` if they may not write.
    writer: Option<&'a dyn PointWriter>,
    /// The columns of wildcards, by the addresses of the queries of one statement.
    columns: WildcardColumns,
    /// Seed of random choices.
    seed: Option<u64>,
}

/// The columns of wildcards, by the addresses of queries in memory.
type WildcardColumns = Rc<RefCell<HashMap<usize, Rc<Columns>>>>;

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::query(message)
}

impl<'a> Evaluator<'a> {
    /// Statements read the parts of the snapshot that `access` permits; `now` is the value of
    /// `now()`.
    #[must_use]
    pub fn new(
        snapshot: &'a Snapshot,
        access: &'a dyn Access,
        budget: &'a Budget,
        now: Timestamp,
    ) -> Evaluator<'a> {
        Evaluator {
            snapshot,
            access,
            budget,
            now,
            names: Arc::default(),
            databases: None,
            database: None,
            changes: None,
            is_read_only: false,
            writer: None,
            columns: WildcardColumns::default(),
            seed: None,
        }
    }

    /// Sends the points of `SELECT … INTO` to a writer, as far as the client may write them.
    #[must_use]
    pub fn with_writer(mut self, writer: &'a dyn PointWriter) -> Evaluator<'a> {
        self.writer = Some(writer);
        self
    }

    /// Makes random choices repeatable: the same rows give the same choice.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Evaluator<'a> {
        self.seed = Some(seed);
        self
    }

    /// Permits changes of this database, to which the snapshot belongs, within the client's rights.
    #[must_use]
    pub fn with_changes(mut self, db: &'a Database) -> Evaluator<'a> {
        self.changes = Some(db);
        self
    }

    /// Uses these names of databases; without them names are ignored.
    #[must_use]
    pub fn with_databases(mut self, databases: &'a dyn Databases) -> Evaluator<'a> {
        self.databases = Some(databases);
        self
    }

    /// Sets whether the request is read-only; statements that change data then warn.
    #[must_use]
    pub fn with_read_only(mut self, is_read_only: bool) -> Evaluator<'a> {
        self.is_read_only = is_read_only;
        self
    }
}

impl Evaluator<'_> {
    /// Parses a text of statements and runs them, as [`Evaluator::answers`].
    ///
    /// # Errors
    /// [`QueryErrorKind::Query`] for a malformed text, [`QueryErrorKind::Limit`] for one that is
    /// too long, and as [`Evaluator::answers`].
    pub fn evaluate(&self, text: &str) -> Result<Vec<Result<Answer, Error>>, Error> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(text_too_long());
        }
        let statements =
            parse(text, &Parameters::default()).map_err(|error| Error::query(error.to_string()))?;
        self.answers(&statements, None)
    }

    /// Runs statements, one after another. Statements after a failed one are not run, as in
    /// InfluxDB. `database` is the parameter of the request.
    ///
    /// # Errors
    /// When the statement is not the cause: [`QueryErrorKind::is_of_server`].
    pub fn answers(
        &self,
        statements: &[Statement],
        database: Option<&str>,
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let mut answers = Vec::new();
        let mut fresh: Option<Snapshot> = None;
        for statement in statements {
            // The client no longer reads the rest, or the deadline has passed.
            self.budget.check()?;
            let asker = self.on(fresh.as_ref().unwrap_or(self.snapshot), database);
            match asker.answer(statement) {
                Err(error) if error.kind().is_of_server() => return Err(error),
                answer => {
                    let failed = answer.is_err();
                    answers.push(answer);
                    if failed {
                        break;
                    }
                }
            }
            if let Some(changed) = self.after(statement)? {
                fresh = Some(changed);
            }
        }
        Ok(answers)
    }

    /// The same evaluator on another snapshot, with the current names; `database` is the request's
    /// parameter.
    fn on<'s>(&'s self, snapshot: &'s Snapshot, database: Option<&'s str>) -> Evaluator<'s> {
        Evaluator {
            snapshot,
            database,
            names: self.databases.map(|d| d.names()).unwrap_or_default(),
            columns: WildcardColumns::default(),
            ..self.clone()
        }
    }

    /// The snapshot for the statements after one that changes data.
    fn after(&self, statement: &Statement) -> Result<Option<Snapshot>, Error> {
        let changes = match statement {
            Statement::Select(select) => select.into.is_some(),
            Statement::Delete(_)
            | Statement::DropSeries(_)
            | Statement::DropMeasurement(_)
            | Statement::DropDatabase(_) => true,
            _ => false,
        };
        match self.changes.filter(|_| changes) {
            Some(db) => Ok(Some(db.snapshot()?)),
            None => Ok(None),
        }
    }

    /// Runs one statement.
    fn answer(&self, statement: &Statement) -> Result<Answer, Error> {
        match statement {
            Statement::CreateDatabase(create) => self.create(create),
            Statement::DropDatabase(name) => {
                let done = self.drop_database(name)?;
                Ok(self.warned("DROP DATABASE", done))
            }
            Statement::CreatePolicy(policy) | Statement::AlterPolicy(policy) => {
                self.space(Some(&policy.database))?;
                Ok(Self::policy(policy))
            }
            Statement::DropPolicy { database, .. } => {
                self.space(Some(database))?;
                Ok(Answer::default())
            }
            Statement::Delete(removal) => {
                self.delete(removal).map(|done| self.warned("DELETE", done))
            }
            Statement::DropSeries(removal) => {
                let done = self.drop_series(removal)?;
                Ok(self.warned("DROP SERIES", done))
            }
            Statement::DropMeasurement(name) => {
                let done = self.drop_measurement(name)?;
                Ok(self.warned("DROP MEASUREMENT", done))
            }
            Statement::Select(select) => {
                if let Some(target) = &select.into {
                    let done = self.select_into(select, target)?;
                    return Ok(self.warned("SELECT INTO", done));
                }
                let (mut answer, series) = self.selected(select, |_| {
                    let mut series = Vec::new();
                    self.select(select, None, &mut series)?;
                    Ok(series)
                })?;
                answer.series = Some(series);
                Ok(answer)
            }
            Statement::Explain {
                is_analyzed,
                select,
            } => self.explain(select, *is_analyzed),
            Statement::Show(show) => {
                let asker = Evaluator {
                    database: show.database.as_deref().or(self.database),
                    ..self.clone()
                };
                Ok(Answer {
                    series: Some(asker.show(show)?),
                    ..Answer::default()
                })
            }
        }
    }

    /// Runs a `SELECT`, after its checks, and passes its rows to a taker. Returns the answer
    /// without its series.
    fn selected<T>(
        &self,
        select: &Select,
        take: impl FnOnce(&Option<TimeZone>) -> Result<T, Error>,
    ) -> Result<(Answer, T), Error> {
        self.must_read()?;
        self.check_sources(&sources::all_sources(select))?;
        let zone = select::written_in(select);
        let taken = take(&zone)?;
        let answer = Answer {
            series: Some(Vec::new()),
            warning: None,
            zone,
        };
        Ok((answer, taken))
    }

    /// Adds a warning if a read-only request changed data.
    fn warned(&self, statement: &str, done: Answer) -> Answer {
        let warning = self.is_read_only.then(|| deprecated(statement));
        Answer {
            warning: done.warning.or(warning),
            ..done
        }
    }

    /// `CREATE DATABASE`. An existing database is left unchanged.
    fn create(&self, create: &CreateDatabase) -> Result<Answer, Error> {
        let name = &create.name;
        if let Some(databases) = self.databases.filter(|_| self.names.is_new(name)) {
            if !self
                .access
                .writes_some_with_prefix(&self.names.beginning(name))
            {
                return Err(Error::new(
                    QueryErrorKind::Access,
                    "this token may not write into a database of this name: none of its rules allows \
                     it; use a token with such a rule (`headwater token create`)",
                ));
            }
            databases.change(&mut |names| names.add(name))?;
        }
        let warning = if create.duration_ns.is_some_and(|ns| ns > 0) {
            Some(format!(
                "the duration of \"{name}\" is ignored: retention is set for each table"
            ))
        } else {
            let said = || deprecated(&format!("CREATE DATABASE {name}"));
            self.is_read_only.then(said)
        };
        Ok(Answer {
            warning,
            ..Answer::default()
        })
    }

    fn must_read(&self) -> Result<(), Error> {
        if self.access.may_query() {
            return Ok(());
        }
        Err(Error::new(
            QueryErrorKind::Access,
            "this token may not read anything: none of its rules allows it; use a token with such a \
             rule (`headwater token create`)",
        ))
    }

    /// The database of a name, or of the request without a name. A client without rights in a
    /// database gets the same error as for one that does not exist.
    fn space(&self, asked: Option<&str>) -> Result<Space, Error> {
        let space = self.names.space(asked)?;
        match &space {
            Space::Other(name) if !self.may_see_database(name) => Err(not_found(name, "")),
            _ => Ok(space),
        }
    }

    /// True when the client may know of a database other than the main one.
    fn may_see_database(&self, name: &str) -> bool {
        if self.access.all() {
            return true;
        }
        let space = Space::Other(name.to_owned());
        let may = |table: &String| self.access.reads_some_of(table) || self.access.manages(table);
        let mut tables = self.snapshot.table_names().into_iter().filter(may);
        tables.any(|table| self.names.measurement(&space, &table).is_some())
    }

    /// The database of a source: its own, or that of the request.
    fn space_of(&self, source: &Source) -> Result<Space, Error> {
        let own = source.database.as_deref().filter(|name| !name.is_empty());
        self.space(own.or(self.database))
    }

    /// Checks that the database of every source exists.
    fn check_sources(&self, sources: &[Source]) -> Result<(), Error> {
        if sources.is_empty() {
            self.space(self.database)?;
        }
        sources.iter().try_for_each(|s| self.space_of(s).map(drop))
    }
}

/// InfluxDB's warning for a statement that changes data in a read-only request.
fn deprecated(statement: &str) -> String {
    format!(
        "deprecated use of '{statement}' in a read only context, please use a POST request instead"
    )
}

/// Error of a text that is longer than [`TEXT_BYTES_MAX`].
#[must_use]
pub fn text_too_long() -> Error {
    Error::limit(format!(
        "the statements are longer than {TEXT_BYTES_MAX} bytes"
    ))
}
