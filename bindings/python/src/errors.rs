//! Errors on their way to exceptions.
//!
//! The exception classes are Python (`headwater/_errors.py`); one function there makes an exception
//! of a code and a message.

use pyo3::prelude::*;

/// An error that becomes an exception when a call ends.
#[derive(Debug)]
pub(crate) enum Problem {
    /// An error of the engine.
    Engine(headwater::Error),
    /// An error of this package: a code and a message.
    Own(&'static str, String),
    /// Already an exception.
    Raised(PyErr),
}

impl Problem {
    /// Error of an invalid request.
    pub(crate) fn invalid(message: impl Into<String>) -> Problem {
        Problem::Own("invalid", message.into())
    }

    /// The database was closed.
    pub(crate) fn closed() -> Problem {
        Problem::Own("closed", "the database is closed: open it again".to_owned())
    }

    /// Code and message, for an error that is raised later.
    pub(crate) fn parts(&self) -> (&'static str, String) {
        match self {
            Problem::Engine(error) => (error.code(), error.to_string()),
            Problem::Own(code, message) => (code, message.clone()),
            Problem::Raised(error) => ("internal", error.to_string()),
        }
    }

    /// Something that is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> Problem {
        Problem::Own("not_found", message.into())
    }
}

impl From<headwater::Error> for Problem {
    fn from(error: headwater::Error) -> Problem {
        Problem::Engine(error)
    }
}

impl From<PyErr> for Problem {
    fn from(error: PyErr) -> Problem {
        Problem::Raised(error)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Engine(error) => write!(f, "{error}"),
            Problem::Own(_, message) => f.write_str(message),
            Problem::Raised(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<Problem> for PyErr {
    fn from(problem: Problem) -> PyErr {
        let (code, message, damage) = match &problem {
            Problem::Raised(error) => return Python::attach(|py| error.clone_ref(py)),
            Problem::Engine(error) => (error.code(), error.to_string(), error.damaged()),
            Problem::Own(code, message) => (*code, message.clone(), None),
        };
        let place = damage.map(|d| (d.file.clone(), d.offset));
        Python::attach(|py| {
            let make = py.import("headwater._errors")?.getattr("make")?;
            make.call1((code, message, place)).map(PyErr::from_value)
        })
        .unwrap_or_else(|failed| failed)
    }
}

/// Result of the calls of this crate.
pub(crate) type Outcome<T> = Result<T, Problem>;
