//! The trait of an object store, and requests to it as values.
//!
//! Invariants: a put is conditional or is none: an object is created where there is none, or
//! replaces exactly the named version. A read returns a whole version, never a mixture.
//! Concurrency: stores are shared freely; the store itself orders puts to one key. Failure: a
//! request that failed may have been carried out all the same, and may even be carried out later.
//! The writer finds out by reading.

use crate::error::{BucketError, BucketErrorKind};
use headwater_types::Timestamp;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

/// Which version of an object it is, as the store calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etag(pub String);

/// A version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Which version it is.
    pub etag: Etag,
}

/// Result of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is stored.
    Stored(Etag),
    /// The condition does not hold; nothing was changed.
    Refused,
}

/// An object that is in the store, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Bytes of the object.
    pub bytes: u64,
    /// Time of the put, by the clock of the store; `None` = not reported.
    pub modified: Option<Timestamp>,
}

/// Some of the objects, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Listed>,
    /// There are more behind the last one.
    pub more: bool,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// A retry is in vain: the store refuses the client, or there is no such bucket.
    pub is_final: bool,
    /// In words, with the key.
    pub text: String,
}

impl StoreFailure {
    /// One that may pass.
    #[must_use]
    pub fn passing(text: impl Into<String>) -> StoreFailure {
        StoreFailure {
            is_final: false,
            text: text.into(),
        }
    }

    /// One that does not pass by itself.
    #[must_use]
    pub fn lasting(text: impl Into<String>) -> StoreFailure {
        StoreFailure {
            is_final: true,
            text: text.into(),
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StoreFailure {}

impl From<StoreFailure> for BucketError {
    fn from(failure: StoreFailure) -> BucketError {
        let kind = if failure.is_final {
            BucketErrorKind::Denied
        } else {
            BucketErrorKind::Unreachable
        };
        BucketError::new(kind, failure.text)
    }
}

/// A store of objects with conditional puts.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// An object; `None` when there is none of this key.
    ///
    /// # Errors
    /// When the store does not answer, or the body was cut.
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure>;

    /// So many bytes of an object from one on; `None` when there is none of this key.
    ///
    /// # Errors
    /// When the store does not answer, the object has not so many bytes, or the body was cut.
    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure>;

    /// Puts an object where there is none of this key.
    ///
    /// # Errors
    /// When the store does not answer: the object may be there all the same.
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure>;

    /// Puts the bytes of a file, from its first one on, where there is no object of this key. A
    /// store of S3's protocol sends them as they are read; others hold them in memory.
    ///
    /// # Errors
    /// When the file cannot be read, or the store does not answer: the object may be there all the
    /// same.
    fn create_from(&self, key: &str, file: &File) -> Result<Put, StoreFailure> {
        let mut file = file;
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(0));
        let read = read.and_then(|_| file.read_to_end(&mut bytes));
        read.map_err(|e| unreadable(key, &e))?;
        self.create(key, &bytes)
    }

    /// Puts an object in the place of a version.
    ///
    /// # Errors
    /// When the store does not answer: the object may be there all the same.
    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure>;

    /// Objects whose keys begin so and are behind another, by their keys.
    ///
    /// # Errors
    /// When the store does not answer.
    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure>;

    /// Takes an object away, if there is one.
    ///
    /// # Errors
    /// When the store does not answer.
    fn delete(&self, key: &str) -> Result<(), StoreFailure>;
}

/// The bytes to be put cannot be read: a retry is in vain.
pub(crate) fn unreadable(key: &str, error: &std::io::Error) -> StoreFailure {
    StoreFailure::lasting(format!("{key}: the file to be put cannot be read: {error}"))
}

/// A request, as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// As [`ObjectStore::get`].
    Get {
        /// Of which object.
        key: String,
    },
    /// As [`ObjectStore::create`].
    Create {
        /// Under which key.
        key: String,
        /// Content of the object.
        bytes: Arc<[u8]>,
    },
    /// As [`ObjectStore::replace`].
    Replace {
        /// Under which key.
        key: String,
        /// Content of the object.
        bytes: Arc<[u8]>,
        /// In the place of which version.
        expected: Etag,
    },
    /// As [`ObjectStore::list`].
    List {
        /// Prefix of the keys.
        prefix: String,
        /// Behind which key.
        after: String,
    },
    /// As [`ObjectStore::delete`].
    Delete {
        /// Which object.
        key: String,
    },
}

/// An answer, as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of a get: the object, if there is one.
    Got(Option<Object>),
    /// Of a put.
    Put(Put),
    /// Of a list.
    Listed(Page),
    /// Of a delete.
    Deleted,
    /// There is none: it may have been carried out or not.
    Failed(StoreFailure),
}

/// Carries a request out.
pub fn carry_out(store: &dyn ObjectStore, request: &Request) -> Answer {
    let answered = match request {
        Request::Get { key } => store.get(key).map(Answer::Got),
        Request::Create { key, bytes } => store.create(key, bytes).map(Answer::Put),
        Request::Replace {
            key,
            bytes,
            expected,
        } => store.replace(key, bytes, expected).map(Answer::Put),
        Request::List { prefix, after } => store.list(prefix, after).map(Answer::Listed),
        Request::Delete { key } => store.delete(key).map(|()| Answer::Deleted),
    };
    answered.unwrap_or_else(Answer::Failed)
}

impl<S: ObjectStore + ?Sized> ObjectStore for Arc<S> {
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure> {
        (**self).get(key)
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure> {
        (**self).get_range(key, from, bytes)
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        (**self).create(key, bytes)
    }

    fn create_from(&self, key: &str, file: &File) -> Result<Put, StoreFailure> {
        (**self).create_from(key, file)
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure> {
        (**self).replace(key, bytes, expected)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure> {
        (**self).list(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<(), StoreFailure> {
        (**self).delete(key)
    }
}
