//! What statements of InfluxQL mean here.
//!
//! A measurement is a table, and its series are streams. [`Asker::answer`] carries one statement out on a snapshot.
//!
//! Invariants: rows are read only where the aggregates of the pyramid do not say it; streams that the asker may not read are as if
//! they were not there, in answers, counts and names alike; whatever is kept is counted by a `Budget`.
//! Failure: a statement that cannot be carried out is an [`ApiError`], which the route puts into the statement's result.
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

pub(crate) use write::{Epoch, Form, csv, json, pretty};

use crate::access::Access;
use crate::error::ApiError;
use crate::series::Budget;
use axum::http::StatusCode;
use headwater::{Snapshot, Timestamp, Value};
use headwater_wire::influxql::{CreateDatabase, ShowWhat, Source, Statement};

/// The policy that stands for the one way in which data are kept.
const POLICY: &str = "autogen";

/// A series of an answer.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) columns: Vec<String>,
    /// Row after row; the first column of a row of data is its time.
    pub(crate) cells: Vec<Cell>,
}

/// A value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Time(i64),
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
pub(crate) struct Answer {
    /// `None` for statements that have none.
    pub(crate) series: Option<Vec<Series>>,
    /// Something the asker should know.
    pub(crate) warning: Option<String>,
    /// The zone in which times are written as text; UTC without one.
    pub(crate) zone: Option<jiff::tz::TimeZone>,
}

/// Who asks, and of what.
pub(crate) struct Asker<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) access: &'a Access,
    pub(crate) budget: &'a Budget,
    pub(crate) now: Timestamp,
    /// The one name a database may have, if one is set.
    pub(crate) database: Option<&'a str>,
    /// The request came by GET.
    pub(crate) by_get: bool,
}

pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "E_QUERY", message)
}

impl Asker<'_> {
    /// Carries one statement out. `database` is what the request says.
    pub(crate) fn answer(
        &self,
        statement: &Statement,
        database: Option<&str>,
    ) -> Result<Answer, ApiError> {
        let mut zone = None;
        let series = match statement {
            Statement::CreateDatabase(create) => return self.create(create),
            Statement::DropDatabase(name) => {
                self.check_database(Some(name))?;
                return Err(ApiError::new(
                    StatusCode::BAD_REQUEST,
                    "E_UNSUPPORTED",
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
    fn create(&self, create: &CreateDatabase) -> Result<Answer, ApiError> {
        let name = &create.name;
        let warning = if create.duration_ns.is_some_and(|ns| ns > 0) {
            Some(format!(
                "this server has one database; \"{name}\" is one more name of it, and its duration is not taken over: how long data are kept is set for each table"
            ))
        } else {
            self.by_get.then(|| {
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

    fn must_read(&self) -> Result<(), ApiError> {
        if self.access.any(crate::access::rules::Action::Read) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "E_ACCESS",
            "no rule of this token allows to read anything",
        ))
    }

    fn check_database(&self, asked: Option<&str>) -> Result<(), ApiError> {
        match (self.database, asked.filter(|name| !name.is_empty())) {
            (Some(set), Some(asked)) if asked != set => Err(ApiError::new(
                StatusCode::NOT_FOUND,
                "E_NOT_FOUND",
                format!(
                    "database not found: {asked}: this server's is {set:?} (setting write.database)"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// A source names its own database, or the one of the request counts.
    fn check_sources(&self, database: Option<&str>, sources: &[Source]) -> Result<(), ApiError> {
        if sources.iter().all(|s| s.database.is_none()) {
            self.check_database(database)?;
        }
        for source in sources {
            self.check_database(source.database.as_deref())?;
        }
        Ok(())
    }
}
