//! Why a device does not open, is not served, or does not end well.
//!
//! Invariants: codes are stable; a message states the failure, its location, the expected state and
//! the remedy. Concurrency: plain values. Failure: none of its own.

use std::fmt;
use std::io;
use std::path::Path;

/// Kind of an error, by the caller's possible reaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BlockErrorKind {
    /// The request is not valid: change it.
    Invalid,
    /// Another process has the device open.
    Locked,
    /// Bytes on the medium differ from the written ones.
    Corrupt,
    /// No space left.
    Full,
    /// The system refused.
    Io,
}

impl BlockErrorKind {
    /// The kind as a stable word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BlockErrorKind::Invalid => "invalid",
            BlockErrorKind::Locked => "locked",
            BlockErrorKind::Corrupt => "corrupt",
            BlockErrorKind::Full => "full",
            BlockErrorKind::Io => "io",
        }
    }
}

/// An error of a device or its server. Its text ends with its code.
#[derive(Debug)]
pub struct BlockError {
    kind: BlockErrorKind,
    message: String,
    source: Option<io::Error>,
}

impl BlockError {
    pub(crate) fn invalid(message: impl Into<String>) -> BlockError {
        BlockError::new(BlockErrorKind::Invalid, message)
    }

    pub(crate) fn new(kind: BlockErrorKind, message: impl Into<String>) -> BlockError {
        BlockError {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// Bytes of a file that are not as they should be.
    pub(crate) fn corrupt(path: &Path, offset: u64, expected: &str) -> BlockError {
        BlockError::new(
            BlockErrorKind::Corrupt,
            format!(
                "{} at byte {offset}: expected {expected}; restore the directory from a copy",
                path.display()
            ),
        )
    }

    /// Error of the system in an operation; `what` is its verb.
    pub(crate) fn io(what: &str, path: &Path, source: io::Error) -> BlockError {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull => BlockErrorKind::Full,
            _ => BlockErrorKind::Io,
        };
        BlockError {
            kind,
            message: format!("cannot {what} {}: {source}", path.display()),
            source: Some(source),
        }
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> BlockErrorKind {
        self.kind
    }
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.kind.as_str())
    }
}

impl std::error::Error for BlockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| {
            let source: &(dyn std::error::Error + 'static) = source;
            source
        })
    }
}
