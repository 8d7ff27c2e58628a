//! Failure of a command.

use headwater_wire::csv::CsvError;
use std::fmt::Display;
use std::io;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is not valid: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
    /// As [`Failure::Failed`], and everything about it was said already.
    Reported,
    /// The reader of the output has closed it: not a failure at all.
    ClosedPipe,
}

impl Failure {
    pub(crate) fn failed(message: impl Display) -> Failure {
        Failure::Failed(message.to_string())
    }

    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::Usage(message.to_string())
    }

    /// The failure of one input file.
    pub(crate) fn of_csv(file: &str, error: &CsvError) -> Failure {
        let message = format!("{file}: {error}{}", delimiter_hint(error));
        match error {
            CsvError::NoSuchColumn { .. }
            | CsvError::RepeatedColumn { .. }
            | CsvError::FieldType { .. }
            | CsvError::TimeFormat { .. }
            | CsvError::TimeUnclear { .. } => Failure::Usage(message),
            _ => Failure::Failed(message),
        }
    }
}

/// Hint for the case that the whole heading was taken for one column.
fn delimiter_hint(error: &CsvError) -> String {
    let CsvError::NoSuchColumn { headers, .. } = error else {
        return String::new();
    };
    let found = [';', '\t', '|'].into_iter().find(|c| headers.contains(*c));
    match found {
        Some('\t') => "; if tabs stand between the cells, give --delimiter tab".to_owned(),
        Some(c) => format!("; if `{c}` stands between the cells, give --delimiter '{c}'"),
        None => String::new(),
    }
}

impl From<headwater::Error> for Failure {
    fn from(error: headwater::Error) -> Self {
        if error.kind() == headwater::ErrorKind::Locked {
            return Failure::failed(format!(
                "{error}; if a server has it open, use --url, which import, table, delete, compact and query take"
            ));
        }
        Failure::failed(error)
    }
}

/// Errors of stdout; other files name themselves.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::ClosedPipe
        } else {
            Failure::Failed(format!("cannot write the output: {error}"))
        }
    }
}
