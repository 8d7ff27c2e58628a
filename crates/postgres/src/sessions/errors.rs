//! Errors as clients see them.

use crate::catalog::VariableError;
use crate::messages::{Malformed, Notice, Severity};

/// Reason why a statement failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The client receives the error, and may continue.
    Statement(Box<Notice>),
    /// The client receives the error, and the session ends.
    Session(Box<Notice>),
    /// The client has disconnected.
    Disconnected(std::io::Error),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Disconnected(error)
    }
}

impl From<Notice> for Failure {
    fn from(notice: Notice) -> Failure {
        match notice.severity {
            Severity::Fatal => Failure::Session(Box::new(notice)),
            _ => Failure::Statement(Box::new(notice)),
        }
    }
}

impl From<VariableError> for Failure {
    fn from(why: VariableError) -> Failure {
        error(why.sqlstate(), why.to_string()).into()
    }
}

impl From<headwater_query::Error> for Failure {
    fn from(error: headwater_query::Error) -> Failure {
        of_query(error, None).into()
    }
}

fn notice(severity: Severity, sqlstate: &str, message: impl Into<String>) -> Notice {
    Notice {
        severity,
        sqlstate: sqlstate.to_owned(),
        message: message.into(),
        detail: None,
        hint: None,
        position: None,
    }
}

/// A statement failed.
pub(super) fn error(sqlstate: &str, message: impl Into<String>) -> Notice {
    notice(Severity::Error, sqlstate, message)
}

/// The session ends.
pub(super) fn fatal(sqlstate: &str, message: impl Into<String>) -> Notice {
    notice(Severity::Fatal, sqlstate, message)
}

/// A warning about a result that may be unexpected.
pub(super) fn warning(sqlstate: &str, message: impl Into<String>) -> Notice {
    notice(Severity::Warning, sqlstate, message)
}

/// An informational notice.
pub(super) fn information(message: impl Into<String>) -> Notice {
    notice(Severity::Notice, "00000", message)
}

/// Error for malformed bytes.
pub(super) fn of_malformed(why: &Malformed) -> Notice {
    let sqlstate = match why {
        Malformed::Length { .. } | Malformed::Parts(_) | Malformed::Unknown(_) => "08P01",
        Malformed::Text(_) => "22021",
        Malformed::Version(..) => "0A000",
    };
    fatal(sqlstate, why.to_string())
}

/// The notice of an error of the query crate; `text` is the client's original statement and its
/// offset in the message, if positions refer to it.
pub(super) fn of_query(why: headwater_query::Error, text: Option<(&str, usize)>) -> Notice {
    let position = text
        .zip(why.at)
        .and_then(|((whole, begin), (line, column))| {
            let before = whole.get(..begin)?.chars().count();
            let statement = whole.get(begin..)?;
            let lines = (line as usize).checked_sub(1)?;
            let above: usize = statement
                .split_inclusive('\n')
                .take(lines)
                .map(|line| line.chars().count())
                .sum();
            u32::try_from(before + above + column as usize).ok()
        });
    Notice {
        hint: why.hint,
        position,
        detail: Some(format!("code {}", why.code)),
        ..error(why.sqlstate, why.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_of_the_whole_text() {
        let why = headwater_query::Error {
            at: Some((2, 3)),
            ..headwater_query::Error::new("unknown_column", "42703", "m")
        };
        let text = "select 1; sälect\n  x";
        let begin = text.find('s').map_or(0, |_| 10);
        assert_eq!(of_query(why, Some((text, begin))).position, Some(20));
    }
}
