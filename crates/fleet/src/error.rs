//! Errors between nodes.

use headwater_engine::ErrorKind;
use std::fmt;

/// A kind of error, which programs may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetErrorKind {
    /// The request is not valid.
    Invalid,
    /// The edge does not exist, or no cloud was joined.
    NotFound,
    /// There is an edge of this name, or as many as there may be.
    Taken,
    /// The other side does not know the key, or has removed it.
    Denied,
    /// The two are of different histories.
    History,
    /// The other side cannot be reached.
    Unreachable,
    /// A file of this node cannot be used.
    Io,
}

impl FleetErrorKind {
    /// The stable code of the kind.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            FleetErrorKind::Invalid => "E_FLEET",
            FleetErrorKind::NotFound => "E_NOT_FOUND",
            FleetErrorKind::Taken => "E_EDGE_TAKEN",
            FleetErrorKind::Denied => "E_EDGE_KEY",
            FleetErrorKind::History => "E_HISTORY",
            FleetErrorKind::Unreachable => "E_UNREACHABLE",
            FleetErrorKind::Io => "E_IO",
        }
    }
}

/// An error, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetError {
    kind: FleetErrorKind,
    text: String,
}

impl FleetError {
    pub(crate) fn new(kind: FleetErrorKind, text: impl Into<String>) -> FleetError {
        FleetError {
            kind,
            text: text.into(),
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> FleetError {
        FleetError::new(FleetErrorKind::Invalid, text)
    }

    pub(crate) fn io(path: &std::path::Path, error: &std::io::Error) -> FleetError {
        FleetError::new(FleetErrorKind::Io, format!("{}: {error}", path.display()))
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> FleetErrorKind {
        self.kind
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FleetError {}

/// An error of this node's device.
pub(crate) fn medium(error: headwater_engine::Error) -> FleetError {
    match error.kind() {
        ErrorKind::Invalid => FleetError::invalid(error.to_string()),
        _ => FleetError::new(FleetErrorKind::Io, error.to_string()),
    }
}
