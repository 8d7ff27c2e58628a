//! Errors of queries: a kind for programs, a message for people.
//!
//! Invariant: for a hidden object, kind and message are the same as for one that does not exist.

use headwater::ErrorKind;

/// Result of a query.
pub type Result<T> = std::result::Result<T, Error>;

/// Kind of a refusal, which tells the client how to react. Kinds are added, never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueryErrorKind {
    /// The query is malformed, or uses something that does not exist in its language.
    Query,
    /// Part of the language, but not supported by this database.
    Unsupported,
    /// The client has no read rights.
    Access,
    /// The database is read-only.
    ReadOnly,
    /// The object does not exist, or the client may not see it.
    NotFound,
    /// The engine refuses an argument as invalid.
    Invalid,
    /// The answer exceeds a limit.
    Limit,
    /// The deadline for the answer has passed.
    Timeout,
    /// The client no longer waits for the answer.
    Cancelled,
    /// The engine is busy; the client should retry.
    Busy,
    /// The disk is full.
    Full,
    /// The database is closed.
    Closed,
    /// The data exist on another node, and are not copied to this one yet.
    Elsewhere,
    /// Damage, failing devices, defects.
    Internal,
}

impl QueryErrorKind {
    /// Every kind.
    pub const ALL: [QueryErrorKind; 14] = [
        QueryErrorKind::Query,
        QueryErrorKind::Unsupported,
        QueryErrorKind::Access,
        QueryErrorKind::ReadOnly,
        QueryErrorKind::NotFound,
        QueryErrorKind::Invalid,
        QueryErrorKind::Limit,
        QueryErrorKind::Timeout,
        QueryErrorKind::Cancelled,
        QueryErrorKind::Busy,
        QueryErrorKind::Full,
        QueryErrorKind::Closed,
        QueryErrorKind::Elsewhere,
        QueryErrorKind::Internal,
    ];

    /// The stable code, as every front end reports it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            QueryErrorKind::Query => "E_QUERY",
            QueryErrorKind::Unsupported => "E_UNSUPPORTED",
            QueryErrorKind::Access => "E_ACCESS",
            QueryErrorKind::ReadOnly => "E_READ_ONLY",
            QueryErrorKind::NotFound => "E_NOT_FOUND",
            QueryErrorKind::Invalid => "E_INVALID",
            QueryErrorKind::Limit => "E_LIMIT",
            QueryErrorKind::Timeout => "E_TIMEOUT",
            QueryErrorKind::Cancelled => "E_CANCELLED",
            QueryErrorKind::Busy => "E_BUSY",
            QueryErrorKind::Full => "E_FULL",
            QueryErrorKind::Closed => "E_CLOSED",
            QueryErrorKind::Elsewhere => "E_ELSEWHERE",
            QueryErrorKind::Internal => "E_INTERNAL",
        }
    }

    /// True if the query is not the cause, so that another query would not help.
    #[must_use]
    pub fn is_of_server(self) -> bool {
        match self {
            QueryErrorKind::Query
            | QueryErrorKind::Unsupported
            | QueryErrorKind::Access
            | QueryErrorKind::ReadOnly
            | QueryErrorKind::NotFound
            | QueryErrorKind::Invalid
            | QueryErrorKind::Limit => false,
            QueryErrorKind::Timeout
            | QueryErrorKind::Cancelled
            | QueryErrorKind::Busy
            | QueryErrorKind::Full
            | QueryErrorKind::Closed
            | QueryErrorKind::Elsewhere
            | QueryErrorKind::Internal => true,
        }
    }
}

impl From<ErrorKind> for QueryErrorKind {
    fn from(kind: ErrorKind) -> QueryErrorKind {
        match kind {
            ErrorKind::Busy => QueryErrorKind::Busy,
            ErrorKind::Full => QueryErrorKind::Full,
            ErrorKind::Closed => QueryErrorKind::Closed,
            ErrorKind::Elsewhere => QueryErrorKind::Elsewhere,
            ErrorKind::NotFound => QueryErrorKind::NotFound,
            ErrorKind::Invalid => QueryErrorKind::Invalid,
            _ => QueryErrorKind::Internal,
        }
    }
}

/// Reason for which a query was refused or failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: QueryErrorKind,
    message: String,
    #[source]
    source: Option<headwater::Error>,
}

impl Error {
    /// Creates an error of a kind.
    #[must_use]
    pub fn new(kind: QueryErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// A malformed query.
    pub(crate) fn query(message: impl Into<String>) -> Error {
        Error::new(QueryErrorKind::Query, message)
    }

    /// An answer above a limit.
    pub(crate) fn limit(message: impl Into<String>) -> Error {
        Error::new(QueryErrorKind::Limit, message)
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> QueryErrorKind {
        self.kind
    }

    /// The message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<headwater::Error> for Error {
    fn from(error: headwater::Error) -> Error {
        Error {
            kind: error.kind().into(),
            message: error.to_string(),
            source: Some(error),
        }
    }
}

/// Converts `not_found` into `None`; other errors stay.
///
/// # Errors
/// All errors except `not_found`.
pub(crate) fn ok_if_found<T>(result: headwater::Result<T>) -> headwater::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        let codes: BTreeSet<&str> = QueryErrorKind::ALL
            .into_iter()
            .map(QueryErrorKind::as_str)
            .collect();
        assert_eq!(codes.len(), QueryErrorKind::ALL.len());
        assert!(codes.iter().all(|code| code.starts_with("E_")));
    }
}
