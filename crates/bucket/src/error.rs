//! Errors of a bucket.
//!
//! Invariant: each error has a kind with a stable code, and states the failure, its location, and
//! the remedy.

use std::fmt;

/// A kind of error, which programs may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BucketErrorKind {
    /// An invalid address or setting.
    Invalid,
    /// The store does not answer, or answers that it cannot now.
    Unreachable,
    /// The store refuses the credentials, or the bucket does not exist.
    Denied,
    /// The bytes in the bucket are not the bytes that were put.
    Damaged,
    /// A pack of the head was deleted, since there is a newer head: read that.
    Superseded,
    /// Another node has the group now.
    Lost,
}

impl BucketErrorKind {
    /// The stable code of the kind.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            BucketErrorKind::Invalid => "E_BUCKET",
            BucketErrorKind::Unreachable => "E_BUCKET_UNREACHABLE",
            BucketErrorKind::Denied => "E_BUCKET_DENIED",
            BucketErrorKind::Damaged => "E_BUCKET_DAMAGED",
            BucketErrorKind::Superseded => "E_BUCKET_GONE",
            BucketErrorKind::Lost => "E_BUCKET_LOST",
        }
    }
}

/// An error, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketError {
    kind: BucketErrorKind,
    text: String,
}

impl BucketError {
    /// An error of a kind.
    #[must_use]
    pub fn new(kind: BucketErrorKind, text: impl Into<String>) -> BucketError {
        BucketError {
            kind,
            text: text.into(),
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> BucketError {
        BucketError::new(BucketErrorKind::Invalid, text)
    }

    pub(crate) fn damaged(key: &str, expected: &str, found: impl fmt::Display) -> BucketError {
        BucketError::new(
            BucketErrorKind::Damaged,
            format!(
                "{key}: expected {expected}, found {found}; the object differs from what was uploaded: restore it from a version or a replica of the bucket"
            ),
        )
    }

    pub(crate) fn superseded(key: &str) -> BucketError {
        BucketError::new(
            BucketErrorKind::Superseded,
            format!(
                "{key} no longer exists: there is a newer head of its group, which must be read first"
            ),
        )
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> BucketErrorKind {
        self.kind
    }
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for BucketError {}
