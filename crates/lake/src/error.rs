//! Errors of writing and reading a lake, each with a stable code.

use headwater_bucket::StoreFailure;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Errors of a lake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeError {
    /// The database could not be read.
    #[error("[lake.engine] {0}")]
    Engine(#[from] headwater::Error),
    /// A file or folder of the lake could not be read or written.
    #[error("[lake.io] {path}: {source}")]
    Io {
        /// Which one it is.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The address of a lake in a bucket is not valid, or credentials for it are missing.
    #[error("[lake.address] {0}")]
    Address(String),
    /// An object of the lake could not be read or put.
    #[error("[lake.bucket] {path}: {source}")]
    Bucket {
        /// Which one it is.
        path: PathBuf,
        /// The error of the store.
        source: StoreFailure,
    },
    /// A file of the lake has unexpected content.
    #[error("[lake.format] {path}: expected {expected}; found {found}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// The expected content.
        expected: String,
        /// The actual content.
        found: String,
    },
    /// Rows could not be written as, or read from, Parquet.
    #[error("[lake.parquet] {path}: {message}")]
    Parquet {
        /// Which file.
        path: PathBuf,
        /// The error of the library.
        message: String,
    },
    /// The table has changes by other programs, which the next write would lose.
    #[error(
        "[lake.foreign] {path}: expected a table that only Headwater changes; found {found}: write to another folder, or remove this one to have it recreated"
    )]
    Foreign {
        /// The table's folder.
        path: PathBuf,
        /// The changes of others.
        found: String,
    },
    /// The table was created from another database.
    #[error(
        "[lake.database] {path}: expected a table of the database {expected:016x}; found one of \
         {found:016x}: write each database to a folder of its own"
    )]
    OtherDatabase {
        /// The table's folder.
        path: PathBuf,
        /// The database that is read.
        expected: u64,
        /// The database from which the table was created.
        found: u64,
    },
    /// The table's files name each other by another folder.
    #[error(
        "[lake.moved] {path}: expected the folder in which the table was created, {made_in}, since its files refer to each other by that path; write there, or to an empty folder"
    )]
    Moved {
        /// Where it is.
        path: PathBuf,
        /// Where it was made.
        made_in: String,
    },
    /// Others committed to the table, again and again.
    #[error(
        "[lake.conflict] {path}: expected to be the only writer; found that others committed {times} times in between: run one writer at a time"
    )]
    Conflict {
        /// The table's folder.
        path: PathBuf,
        /// Number of attempts.
        times: u32,
    },
    /// The program that writes requested a stop here.
    #[error("[lake.stopped] the write was stopped at a step: {0}")]
    Stopped(&'static str),
    /// A mistake of this crate.
    #[error("[lake.internal] {0}")]
    Internal(String),
}

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, LakeError>;

impl LakeError {
    /// A stable word for the kind.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            LakeError::Engine(_) => "lake.engine",
            LakeError::Io { .. } => "lake.io",
            LakeError::Address(_) => "lake.address",
            LakeError::Bucket { .. } => "lake.bucket",
            LakeError::Format { .. } => "lake.format",
            LakeError::Parquet { .. } => "lake.parquet",
            LakeError::Foreign { .. } => "lake.foreign",
            LakeError::OtherDatabase { .. } => "lake.database",
            LakeError::Moved { .. } => "lake.moved",
            LakeError::Conflict { .. } => "lake.conflict",
            LakeError::Stopped(_) => "lake.stopped",
            LakeError::Internal(_) => "lake.internal",
        }
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> LakeError {
        LakeError::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn bucket(path: &Path, source: StoreFailure) -> LakeError {
        LakeError::Bucket {
            path: path.to_owned(),
            source,
        }
    }

    /// The named file or object is not there.
    pub(crate) fn missing(path: &Path) -> LakeError {
        LakeError::format(path, "an object of a table", "none")
    }

    pub(crate) fn format(
        path: &Path,
        expected: impl Into<String>,
        found: impl Display,
    ) -> LakeError {
        LakeError::Format {
            path: path.to_owned(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    pub(crate) fn parquet(path: &Path, message: impl Display) -> LakeError {
        LakeError::Parquet {
            path: path.to_owned(),
            message: message.to_string(),
        }
    }

    pub(crate) fn internal(message: impl Into<String>) -> LakeError {
        LakeError::Internal(message.into())
    }
}
