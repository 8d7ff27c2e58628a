//! Errors of the engine, in words that tell a caller what to do.
//!
//! [`ErrorKind`] tells which action helps; [`Error::code`] is stable and never changes its meaning;
//! the message contains the expected value, the actual value and the remedy. An error is logged
//! where it is consumed, not here.

use headwater_codec::DecodeError;
use headwater_codec::checksum::crc32c;
use std::fmt;
use std::path::{Path, PathBuf};

/// Kind of an error: the action that a caller can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself is wrong: change it.
    Invalid,
    /// A table, stream or field does not exist.
    NotFound,
    /// Too much at once: try again later.
    Busy,
    /// The database was closed, or latched after a failed write: reopen it.
    Closed,
    /// Bytes on the medium differ from the written ones: run `headwater check`.
    Corrupt,
    /// No space left: free some, or delete data.
    Full,
    /// The operating system refused.
    Io,
    /// Another process owns the directory.
    Locked,
    /// The database was opened read-only.
    ReadOnly,
    /// The database was opened by the process that this one was forked from: open it after the
    /// fork.
    Forked,
    /// The fast tier of the database is missing, or belongs to another database or an older
    /// state.
    Tier,
    /// The data exist, but not here: they were not copied yet. Send the request to their origin, or
    /// wait until they have been fetched.
    Elsewhere,
    /// The data existed, and are not retained any more: read again which data exist.
    Gone,
    /// An internal error of Headwater.
    Internal,
}

impl ErrorKind {
    /// The kind as a stable word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Busy => "busy",
            ErrorKind::Closed => "closed",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Full => "full",
            ErrorKind::Io => "io",
            ErrorKind::Locked => "locked",
            ErrorKind::ReadOnly => "read_only",
            ErrorKind::Forked => "forked",
            ErrorKind::Tier => "tier",
            ErrorKind::Elsewhere => "elsewhere",
            ErrorKind::Gone => "gone",
            ErrorKind::Internal => "internal",
        }
    }
}

/// An error of the engine. Cheap to clone, so that all waiters of one group can have it.
#[derive(Clone)]
pub struct Error(std::sync::Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    damage: Option<Damage>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl From<headwater_late::InvalidSetting> for Error {
    fn from(error: headwater_late::InvalidSetting) -> Error {
        Error::invalid(error.to_string())
    }
}

/// Location of damaged bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Offset of the damaged part in the file.
    pub offset: u64,
    /// The expected content.
    pub expected: String,
    /// The actual content.
    pub found: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {}: expected {}, found {}",
            self.file.display(),
            self.offset,
            self.expected,
            self.found
        )
    }
}

/// Error for bytes of a file that are not in this copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingBytes {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl fmt::Display for MissingBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes at offset {} are not stored on this node: for a copy, query the source or wait until they are fetched; for freed rows, query the cloud",
            self.bytes, self.offset
        )
    }
}

impl std::error::Error for MissingBytes {}

/// Damage of the head of a file with the remaining parts of a segment, which makes it unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StubDamage {
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    pub(crate) expected: String,
}

impl fmt::Display for StubDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {}: expected {}",
            self.file.display(),
            self.offset,
            self.expected
        )
    }
}

impl std::error::Error for StubDamage {}

/// Result of the engine's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(std::sync::Arc::new(Inner {
            kind,
            message: message.into(),
            damage: None,
            source: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, message)
    }

    /// An I/O error on `path` while doing `what`.
    pub(crate) fn io(what: &str, path: &Path, source: std::io::Error) -> Error {
        let stub = source.get_ref().and_then(|e| e.downcast_ref());
        if let Some(StubDamage {
            file,
            offset,
            expected,
        }) = stub.cloned()
        {
            return Error::damage(Damage {
                file,
                offset,
                expected,
                found: "other bytes".into(),
            });
        }
        let kind = match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::Full,
            _ if source.get_ref().is_some_and(|e| e.is::<MissingBytes>()) => ErrorKind::Elsewhere,
            _ => ErrorKind::Io,
        };
        let advice = if kind == ErrorKind::Full {
            "; free some space and reopen"
        } else {
            ""
        };
        Error(std::sync::Arc::new(Inner {
            kind,
            message: format!("cannot {what} {}: {source}{advice}", path.display()),
            damage: None,
            source: Some(Box::new(source)),
        }))
    }

    /// Fails when a file has the header of its kind in another version; the last byte of a magic is
    /// the version.
    ///
    /// The checksum is checked first, and is at the same offset in every version: bytes that do not
    /// match it are not a header (torn by a power cut, or a flipped bit), and the reader of the
    /// rest detects that. Version 0 never existed.
    pub(crate) fn check_version(file: &Path, header: &[u8], magic: &[u8; 8]) -> Result<()> {
        let ([kind @ .., version], Some([found_kind @ .., found])) =
            (magic, header.first_chunk::<8>())
        else {
            return Ok(());
        };
        if kind != found_kind || version == found || *found == 0 {
            return Ok(());
        }
        let covered = header.get(..60).unwrap_or_default();
        if header.get(60..64) != Some(&crc32c(covered).to_le_bytes()[..]) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{}: format version {found} is not supported, this version of Headwater ({}) reads version {version}: use the version that wrote it",
            file.display(),
            env!("CARGO_PKG_VERSION")
        )))
    }

    pub(crate) fn damage(damage: Damage) -> Error {
        Error(std::sync::Arc::new(Inner {
            kind: ErrorKind::Corrupt,
            message: damage.to_string(),
            damage: Some(damage),
            source: None,
        }))
    }

    pub(crate) fn decode(file: &Path, offset: u64, error: DecodeError) -> Error {
        Error::damage(Damage {
            file: file.to_owned(),
            offset: offset + error.offset as u64,
            expected: error.expected.to_owned(),
            found: "other bytes".to_owned(),
        })
    }

    pub(crate) fn meta(error: impl Into<redb::Error>) -> Error {
        let error = error.into();
        let kind = match &error {
            redb::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => ErrorKind::Full,
            // Not a redb file, or one that ends too early.
            redb::Error::Io(io)
                if matches!(
                    io.kind(),
                    std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
                ) =>
            {
                ErrorKind::Corrupt
            }
            redb::Error::Io(_) | redb::Error::PreviousIo => ErrorKind::Io,
            redb::Error::Corrupted(_) | redb::Error::UpgradeRequired(_) => ErrorKind::Corrupt,
            _ => ErrorKind::Internal,
        };
        let damage = (kind == ErrorKind::Corrupt).then(|| Damage {
            file: "meta.redb".into(),
            offset: 0,
            expected: "valid metadata".into(),
            found: error.to_string(),
        });
        Error(std::sync::Arc::new(Inner {
            kind,
            message: format!("metadata (meta.redb): {error}"),
            damage,
            source: Some(Box::new(error)),
        }))
    }

    /// The kind, which tells what a caller can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The stable code: the kind as a word.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.kind.as_str()
    }

    /// Location of damaged bytes, for [`ErrorKind::Corrupt`] on a data file.
    #[must_use]
    pub fn damaged(&self) -> Option<&Damage> {
        self.0.damage.as_ref()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.0.message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_ref()
            .map(|s| &**s as &(dyn std::error::Error + 'static))
    }
}
