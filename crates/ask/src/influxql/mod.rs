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
mod condition;
mod fill;
mod functions;
mod measurements;
mod plan;
mod predicate;
mod raw;
mod rows;
mod select;
mod show;
mod transform;
mod write;

pub use write::{Epoch, Form, csv, json, pretty};

use crate::access::Access;
use crate::budget::Budget;
use crate::error::{Error, Kind};
use headwater::{Snapshot, Timestamp, Value};
use headwater_wire::influxql::{CreateDatabase, Parameters, ShowWhat, Source, Statement, parse};

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
    pub(crate) zone: Option<jiff::tz::TimeZone>,
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
            is_read_only: false,
        }
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
        for statement in statements {
            // Nobody would read the rest, or there is no time for it.
            self.budget.check()?;
            match self.answer(statement, database) {
                Err(error) if error.kind().is_of_server() => return Err(error),
                answer => {
                    let failed = answer.is_err();
                    answers.push(answer);
                    if failed {
                        break;
                    }
                }
            }
        }
        Ok(answers)
    }

    /// Carries one statement out.
    fn answer(&self, statement: &Statement, database: Option<&str>) -> Result<Answer, Error> {
        let mut zone = None;
        let series = match statement {
            Statement::CreateDatabase(create) => return self.create(create),
            Statement::DropDatabase(name) => {
                self.check_database(Some(name))?;
                return Err(Error::new(
                    Kind::Unsupported,
                    "the one database of this server is not dropped by a request: `headwater delete` and `headwater table` remove what is stored",
                ));
            }
            Statement::Select(select) => {
                self.must_read()?;
                self.check_sources(database, &select.sources)?;
                zone = select::written_in(select);
                self.select(select)?
            }
            Statement::Show(show) => {
                if show.what != ShowWhat::Databases {
                    self.check_sources(show.database.as_deref().or(database), &show.sources)?;
                }
                self.show(show)?
            }
        };
        Ok(Answer {
            series: Some(series),
            warning: None,
            zone,
        })
    }

    /// There is one database, and it is there already.
    fn create(&self, create: &CreateDatabase) -> Result<Answer, Error> {
        let name = &create.name;
        let warning = if create.duration_ns.is_some_and(|ns| ns > 0) {
            Some(format!(
                "this server has one database; \"{name}\" is one more name of it, and its duration is not taken over: how long data are kept is set for each table"
            ))
        } else {
            self.is_read_only.then(|| {
                format!(
                    "deprecated use of 'CREATE DATABASE {name}' in a read only context, please use a POST request instead"
                )
            })
        };
        Ok(Answer {
            series: None,
            warning,
            zone: None,
        })
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

/// A text is longer than [`TEXT_BYTES_MAX`].
#[must_use]
pub fn text_too_long() -> Error {
    Error::limit(format!(
        "the statements are longer than {TEXT_BYTES_MAX} bytes"
    ))
}
