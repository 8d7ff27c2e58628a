//! The trait of an object store, and requests to it as values.
//!
//! Invariants: every put is conditional: it creates an object that does not exist, or replaces
//! exactly the named version. A read returns a whole version, never a mixture. Concurrency: stores
//! are shared freely; the store itself orders puts to one key. Failure: a failed request may have
//! been carried out, and may even be carried out later. The writer resolves this by reading.

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
    /// Content of the object.
    pub bytes: Vec<u8>,
    /// Which version it is.
    pub etag: Etag,
}

/// Result of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is stored.
    Stored(Etag),
    /// The condition is false; no object was changed.
    Refused,
}

/// An object that is in the store, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Key of the object.
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
    /// More objects follow the last one.
    pub more: bool,
}

/// Reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// A retry is useless: the store refuses the client, or the bucket does not exist.
    pub is_final: bool,
    /// Message with the key.
    pub text: String,
}

impl StoreFailure {
    /// A transient failure.
    #[must_use]
    pub fn passing(text: impl Into<String>) -> StoreFailure {
        StoreFailure {
            is_final: false,
            text: text.into(),
        }
    }

    /// A permanent failure.
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
    /// An object; `None` if the key does not exist.
    ///
    /// # Errors
    /// When the store does not answer, or the body was cut.
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure>;

    /// `bytes` bytes of an object from offset `from`; `None` if the key does not exist.
    ///
    /// # Errors
    /// If the store does not answer, the object is shorter, or the body was cut.
    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure>;

    /// Creates an object if the key does not exist.
    ///
    /// # Errors
    /// When the store does not answer: the object may be there all the same.
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure>;

    /// Creates an object from the bytes of a file, from its start, if the key does not exist. A
    /// store of S3's protocol streams them; others read them into memory.
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

    /// Replaces a version of an object.
    ///
    /// # Errors
    /// When the store does not answer: the object may be there all the same.
    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure>;

    /// Objects whose keys start with `prefix` and are greater than `after`, by key.
    ///
    /// # Errors
    /// When the store does not answer.
    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure>;

    /// Deletes an object, if it exists.
    ///
    /// # Errors
    /// When the store does not answer.
    fn delete(&self, key: &str) -> Result<(), StoreFailure>;
}

/// Error for bytes that cannot be read: a retry is useless.
pub(crate) fn unreadable(key: &str, error: &std::io::Error) -> StoreFailure {
    StoreFailure::lasting(format!("{key}: cannot read the file to upload: {error}"))
}

/// A request, as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// As [`ObjectStore::get`].
    Get {
        /// Key of the object.
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
        /// Expected version of the object.
        expected: Etag,
    },
    /// As [`ObjectStore::list`].
    List {
        /// Prefix of the keys.
        prefix: String,
        /// Key after which the list starts.
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
    /// Answer of a get: the object, if it exists.
    Got(Option<Object>),
    /// Answer of a put.
    Put(Put),
    /// Answer of a list.
    Listed(Page),
    /// Answer of a delete.
    Deleted,
    /// No answer: the request may have been carried out or not.
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
