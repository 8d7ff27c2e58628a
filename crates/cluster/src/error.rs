//! Errors between nodes.

use headwater_engine::ErrorKind;
use std::fmt;

/// A kind of error, which programs may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterErrorKind {
    /// The request is not valid.
    Invalid,
    /// The edge does not exist, or no cloud was joined.
    NotFound,
    /// There is an edge of this name, or as many as there may be.
    NameExists,
    /// The other side does not know the key, or has removed it.
    Denied,
    /// The two are of different histories.
    History,
    /// The other side cannot be reached.
    Unreachable,
    /// A file of this node cannot be used.
    Io,
}

impl ClusterErrorKind {
    /// The stable code of the kind.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            ClusterErrorKind::Invalid => "E_FLEET",
            ClusterErrorKind::NotFound => "E_NOT_FOUND",
            ClusterErrorKind::NameExists => "E_EDGE_TAKEN",
            ClusterErrorKind::Denied => "E_EDGE_KEY",
            ClusterErrorKind::History => "E_HISTORY",
            ClusterErrorKind::Unreachable => "E_UNREACHABLE",
            ClusterErrorKind::Io => "E_IO",
        }
    }
}

/// An error, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterError {
    kind: ClusterErrorKind,
    text: String,
}

impl ClusterError {
    pub(crate) fn new(kind: ClusterErrorKind, text: impl Into<String>) -> ClusterError {
        ClusterError {
            kind,
            text: text.into(),
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> ClusterError {
        ClusterError::new(ClusterErrorKind::Invalid, text)
    }

    pub(crate) fn io(path: &std::path::Path, error: &std::io::Error) -> ClusterError {
        ClusterError::new(ClusterErrorKind::Io, format!("{}: {error}", path.display()))
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> ClusterErrorKind {
        self.kind
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ClusterError {}

/// An error of this node's device.
pub(crate) fn of_device(error: headwater_engine::Error) -> ClusterError {
    match error.kind() {
        ErrorKind::Invalid => ClusterError::invalid(error.to_string()),
        _ => ClusterError::new(ClusterErrorKind::Io, error.to_string()),
    }
}
