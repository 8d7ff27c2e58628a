//! Errors of queries: a kind for programs, a message for people.
//!
//! Invariant: what may not be seen has the kind and the words of what is not there.

use headwater::ErrorKind;

/// The result of asking.
pub type Result<T> = std::result::Result<T, Error>;

/// Kind of a refusal, and so what to do about it. Kinds are added, never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The query cannot be understood, or uses what does not exist in its language.
    Query,
    /// The language has it, this database does not.
    Unsupported,
    /// The client may not read anything.
    Access,
    /// Nobody may change anything here.
    ReadOnly,
    /// There is no such thing, or the client may not see it.
    NotFound,
    /// The engine calls it invalid.
    Invalid,
    /// More is asked for than one answer may hold.
    Limit,
    /// The time for an answer is over.
    Timeout,
    /// Nobody waits for the answer any more.
    Cancelled,
    /// The engine is busy: ask again.
    Busy,
    /// The disk is full.
    Full,
    /// The database is closed.
    Closed,
    /// The data exist on another node, and were not copied to this one yet.
    Elsewhere,
    /// Damage, failing devices, defects.
    Internal,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 14] = [
        Kind::Query,
        Kind::Unsupported,
        Kind::Access,
        Kind::ReadOnly,
        Kind::NotFound,
        Kind::Invalid,
        Kind::Limit,
        Kind::Timeout,
        Kind::Cancelled,
        Kind::Busy,
        Kind::Full,
        Kind::Closed,
        Kind::Elsewhere,
        Kind::Internal,
    ];

    /// The stable code, as every front end reports it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Query => "E_QUERY",
            Kind::Unsupported => "E_UNSUPPORTED",
            Kind::Access => "E_ACCESS",
            Kind::ReadOnly => "E_READ_ONLY",
            Kind::NotFound => "E_NOT_FOUND",
            Kind::Invalid => "E_INVALID",
            Kind::Limit => "E_LIMIT",
            Kind::Timeout => "E_TIMEOUT",
            Kind::Cancelled => "E_CANCELLED",
            Kind::Busy => "E_BUSY",
            Kind::Full => "E_FULL",
            Kind::Closed => "E_CLOSED",
            Kind::Elsewhere => "E_ELSEWHERE",
            Kind::Internal => "E_INTERNAL",
        }
    }

    /// True where the query is not the reason, so that another query would not help.
    #[must_use]
    pub fn is_of_server(self) -> bool {
        match self {
            Kind::Query
            | Kind::Unsupported
            | Kind::Access
            | Kind::ReadOnly
            | Kind::NotFound
            | Kind::Invalid
            | Kind::Limit => false,
            Kind::Timeout
            | Kind::Cancelled
            | Kind::Busy
            | Kind::Full
            | Kind::Closed
            | Kind::Elsewhere
            | Kind::Internal => true,
        }
    }
}

impl From<ErrorKind> for Kind {
    fn from(kind: ErrorKind) -> Kind {
        match kind {
            ErrorKind::Busy => Kind::Busy,
            ErrorKind::Full => Kind::Full,
            ErrorKind::Closed => Kind::Closed,
            ErrorKind::Elsewhere => Kind::Elsewhere,
            ErrorKind::NotFound => Kind::NotFound,
            ErrorKind::Invalid => Kind::Invalid,
            _ => Kind::Internal,
        }
    }
}

/// A query that is not answered.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    message: String,
    #[source]
    source: Option<headwater::Error>,
}

impl Error {
    /// An error of a kind.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// A query that cannot be understood.
    pub(crate) fn query(message: impl Into<String>) -> Error {
        Error::new(Kind::Query, message)
    }

    /// More than one answer may hold.
    pub(crate) fn limit(message: impl Into<String>) -> Error {
        Error::new(Kind::Limit, message)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
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

/// `Some` for what is there; what is not found is `None`, other errors stay.
///
/// # Errors
/// All but `not_found`.
pub(crate) fn found<T>(result: headwater::Result<T>) -> headwater::Result<Option<T>> {
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
        let codes: BTreeSet<&str> = Kind::ALL.into_iter().map(Kind::as_str).collect();
        assert_eq!(codes.len(), Kind::ALL.len());
        assert!(codes.iter().all(|code| code.starts_with("E_")));
    }
}
