//! What statements of InfluxQL mean here.
//!
//! A measurement is a table, and its series are streams. `Asker::answer` carries one statement
//! out on a snapshot.
//!
//! Invariants: rows are read only where the aggregates of the pyramid do not say it; streams that
//! the asker may not read are as if they were not there, in answers, counts and names alike;
//! whatever is kept is counted by a `Budget`.
//! Failure: a statement that cannot be carried out is an [`Error`], which belongs into the
//! statement's result.
//! Page: docs/http/influxql.md.

mod aggregate;
mod arithmetic;
mod change;
mod condition;
mod field;
mod fill;
mod functions;
mod held;
mod measurements;
mod parts;
mod plan;
mod points;
mod predicate;
mod raw;
mod reading;
mod rows;
mod scope;
mod select;
mod show;
mod taker;
mod transform;
mod within;
mod write;

pub use parts::Out;
pub use write::{Epoch, Form, csv, json, pretty};

use crate::access::Access;
use crate::budget::Budget;
use crate::error::{Error, Kind};
use headwater::{Database, Snapshot, Timestamp, Value};
use headwater_wire::influxql::{
    CreateDatabase, Parameters, Select, ShowWhat, Source, Statement, parse,
};
use jiff::tz::TimeZone;

/// The policy that stands for the one way in which data are kept.
const POLICY: &str = "autogen";

/// A series of an answer.
#[derive(Debug, Default)]
pub struct Series {
    /// The measurement, or what is listed; may be empty.
    pub name: String,
    /// The tags by which it was grouped.
    pub tags: Vec<(String, String)>,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Row after row; the first column of a row of data is its time.
    pub cells: Vec<Cell>,
}

/// A value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// There is none.
    Null,
    /// An instant, ns since 1970.
    Time(i64),
    /// A value.
    Value(Value),
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

/// What a statement is answered.
#[derive(Debug, Default)]
pub struct Answer {
    /// `None` for statements that have none.
    pub series: Option<Vec<Series>>,
    /// Something the asker should know.
    pub warning: Option<String>,
    /// The zone in which times are written as text; UTC without one.
    pub(crate) zone: Option<TimeZone>,
}

/// Bytes of a text of statements.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Who asks, and of what.
pub struct Asker<'a> {
    snapshot: &'a Snapshot,
    access: &'a dyn Access,
    budget: &'a Budget,
    now: Timestamp,
    /// The one name a database may have, if one is set.
    database: Option<&'a str>,
    /// The database that statements change, if they may.
    changes: Option<&'a Database>,
    /// Nothing may be changed by the request, as far as it says.
    is_read_only: bool,
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::query(message)
}

impl<'a> Asker<'a> {
    /// Statements see the snapshot, and of it what `access` shows; `now` is what `now()` gives.
    #[must_use]
    pub fn new(
        snapshot: &'a Snapshot,
        access: &'a dyn Access,
        budget: &'a Budget,
        now: Timestamp,
    ) -> Asker<'a> {
        Asker {
            snapshot,
            access,
            budget,
            now,
            database: None,
            changes: None,
            is_read_only: false,
        }
    }

    /// Statements may change this database, of which the snapshot is, as far as the asker may.
    #[must_use]
    pub fn with_changes(mut self, db: &'a Database) -> Asker<'a> {
        self.changes = Some(db);
        self
    }

    /// The database has this name, and is not found under another one.
    #[must_use]
    pub fn with_database(mut self, name: Option<&'a str>) -> Asker<'a> {
        self.database = name;
        self
    }

    /// The request said that it only reads, which statements that change something warn of.
    #[must_use]
    pub fn with_read_only(mut self, is_read_only: bool) -> Asker<'a> {
        self.is_read_only = is_read_only;
        self
    }
}

impl Asker<'_> {
    /// Reads a text of statements and carries them out, as [`Asker::answers`].
    ///
    /// # Errors
    /// [`Kind::Query`] for a text that cannot be read, [`Kind::Limit`] for one that is too long,
    /// and as there.
    pub fn ask(&self, text: &str) -> Result<Vec<Result<Answer, Error>>, Error> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(text_too_long());
        }
        let statements =
            parse(text, &Parameters::default()).map_err(|error| Error::query(error.to_string()))?;
        self.answers(&statements, None)
    }

    /// Carries statements out, one after another. What follows one that fails is not carried out,
    /// as in InfluxDB. `database` is what the request says.
    ///
    /// # Errors
    /// Where the statement is not the reason: [`Kind::is_of_server`].
    pub fn answers(
        &self,
        statements: &[Statement],
        database: Option<&str>,
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let mut answers = Vec::new();
        let mut fresh: Option<Snapshot> = None;
        for statement in statements {
            // Nobody would read the rest, or there is no time for it.
            self.budget.check()?;
            let asker = self.on(fresh.as_ref().unwrap_or(self.snapshot));
            match asker.answer(statement, database) {
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

    /// The same on another snapshot.
    fn on<'s>(&'s self, snapshot: &'s Snapshot) -> Asker<'s> {
        Asker { snapshot, ..*self }
    }

    /// What statements behind one that changes something see.
    fn after(&self, statement: &Statement) -> Result<Option<Snapshot>, Error> {
        let changes = matches!(
            statement,
            Statement::Delete(_) | Statement::DropSeries(_) | Statement::DropMeasurement(_)
        );
        match self.changes.filter(|_| changes) {
            Some(db) => Ok(Some(db.snapshot()?)),
            None => Ok(None),
        }
    }

    /// Carries one statement out.
    fn answer(&self, statement: &Statement, database: Option<&str>) -> Result<Answer, Error> {
        match statement {
            Statement::CreateDatabase(create) => Ok(self.create(create)),
            Statement::DropDatabase(name) => {
                self.check_database(Some(name))?;
                Err(Error::new(
                    Kind::Unsupported,
                    "the one database of this server is not dropped by a request: DROP MEASUREMENT takes away what is stored",
                ))
            }
            Statement::CreatePolicy(policy) | Statement::AlterPolicy(policy) => {
                self.check_database(Some(&policy.database))?;
                Ok(Self::policy(policy))
            }
            Statement::DropPolicy { database, .. } => {
                self.check_database(Some(database))?;
                Ok(Answer::default())
            }
            Statement::Delete(removal) => {
                self.check_sources(database, &removal.sources)?;
                self.delete(removal).map(|done| self.warned("DELETE", done))
            }
            Statement::DropSeries(removal) => {
                self.check_sources(database, &removal.sources)?;
                let done = self.drop_series(removal)?;
                Ok(self.warned("DROP SERIES", done))
            }
            Statement::DropMeasurement(name) => {
                self.check_database(database)?;
                let done = self.drop_measurement(name)?;
                Ok(self.warned("DROP MEASUREMENT", done))
            }
            Statement::Select(select) => {
                let (mut answer, series) = self.selected(select, database, |_| {
                    let mut series = Vec::new();
                    self.select(select, None, &mut series)?;
                    Ok(series)
                })?;
                answer.series = Some(series);
                Ok(answer)
            }
            Statement::Show(show) => {
                if show.what != ShowWhat::Databases {
                    self.check_sources(show.database.as_deref().or(database), &show.sources)?;
                }
                Ok(Answer {
                    series: Some(self.show(show)?),
                    ..Answer::default()
                })
            }
        }
    }

    /// Carries a `SELECT` out by what its rows are taken with, after what must hold of it. Gives
    /// the answer without its series.
    fn selected<T>(
        &self,
        select: &Select,
        database: Option<&str>,
        take: impl FnOnce(&Option<TimeZone>) -> Result<T, Error>,
    ) -> Result<(Answer, T), Error> {
        self.must_read()?;
        self.check_sources(database, &within::all_sources(select))?;
        let zone = select::written_in(select);
        let taken = take(&zone)?;
        let answer = Answer {
            series: Some(Vec::new()),
            warning: None,
            zone,
        };
        Ok((answer, taken))
    }

    /// A request that only reads should not change anything.
    fn warned(&self, statement: &str, done: Answer) -> Answer {
        let warning = self.is_read_only.then(|| deprecated(statement));
        Answer {
            warning: done.warning.or(warning),
            ..done
        }
    }

    /// There is one database, and it is there already.
    fn create(&self, create: &CreateDatabase) -> Answer {
        let name = &create.name;
        let warning = if create.duration_ns.is_some_and(|ns| ns > 0) {
            Some(format!(
                "this server has one database; \"{name}\" is one more name of it, and its duration is not taken over: how long data are kept is set for each table"
            ))
        } else {
            let said = || deprecated(&format!("CREATE DATABASE {name}"));
            self.is_read_only.then(said)
        };
        Answer {
            warning,
            ..Answer::default()
        }
    }

    fn must_read(&self) -> Result<(), Error> {
        if self.access.asks() {
            return Ok(());
        }
        Err(Error::new(
            Kind::Access,
            "no rule of this token allows to read anything",
        ))
    }

    fn check_database(&self, asked: Option<&str>) -> Result<(), Error> {
        match (self.database, asked.filter(|name| !name.is_empty())) {
            (Some(set), Some(asked)) if asked != set => Err(Error::new(
                Kind::NotFound,
                format!(
                    "database not found: {asked}: this server's is {set:?} (setting write.database)"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// A source names its own database, or the one of the request counts.
    fn check_sources(&self, database: Option<&str>, sources: &[Source]) -> Result<(), Error> {
        if sources.iter().all(|s| s.database.is_none()) {
            self.check_database(database)?;
        }
        for source in sources {
            self.check_database(source.database.as_deref())?;
        }
        Ok(())
    }
}

/// What InfluxDB says of a statement that changes something in a request that only reads.
fn deprecated(statement: &str) -> String {
    format!(
        "deprecated use of '{statement}' in a read only context, please use a POST request instead"
    )
}

/// A text is longer than [`TEXT_BYTES_MAX`].
#[must_use]
pub fn text_too_long() -> Error {
    Error::limit(format!(
        "the statements are longer than {TEXT_BYTES_MAX} bytes"
    ))
}
