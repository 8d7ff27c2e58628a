//! Cache of formatted tiles, valid as long as their data stays the same.
//!
//! Invariants: the size is bounded; an entry is returned only when every version in it is current,
//! and only to a client that may read every stream in it. An entry for a client that may read some
//! streams only is returned to the same token only: visibility of a field depends on the token's
//! other rules. Concurrency: a look-up never waits for I/O.

use crate::access::Access;
use axum::body::Bytes;
use axum::http::header::IF_NONE_MATCH;
use axum::http::{HeaderMap, HeaderValue, Uri};
use headwater::{ClosedRange, DataVersion, Database, StreamHandle, StreamName, Timestamp};
use headwater_wire::tiles::TileStatus;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// Longest address that is cached, in bytes.
const KEY_BYTES_MAX: usize = 4_096;

/// Part of an answer: a range of a stream at a version.
#[derive(Debug)]
pub(crate) struct VersionedRange {
    pub(crate) stream: StreamName,
    /// The stream as the answer was read; `None` where the channel is absent.
    pub(crate) handle: Option<StreamHandle>,
    pub(crate) range: ClosedRange,
    /// `None` where time alone changes the answer, or the channel is absent.
    pub(crate) version: Option<DataVersion>,
    pub(crate) status: TileStatus,
}

impl VersionedRange {
    /// The stream and the range that were read; `None` where the channel is absent.
    pub(crate) fn read(&self) -> Option<(&StreamHandle, ClosedRange)> {
        Some((self.handle.as_ref()?, self.range))
    }
}

/// Answer with its dependencies.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    pub(crate) shown: Vec<VersionedRange>,
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) body: Bytes,
    pub(crate) content_type: HeaderValue,
    /// True when writes cannot change the tile any more.
    pub(crate) is_closed: bool,
    /// Instant up to which the answer is the newest version known here; `None` = no newer version
    /// is known.
    pub(crate) until: Option<Timestamp>,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Box<str>, Arc<CacheEntry>> for Weigh {
    fn weight(&self, key: &Box<str>, entry: &Arc<CacheEntry>) -> u64 {
        let shown = entry.shown.len() * (size_of::<VersionedRange>() + 64);
        (key.len() + entry.body.len() + shown + 256) as u64
    }
}

/// Cache of answers, by path and query.
pub(crate) struct TileCache {
    answers: Cache<Box<str>, Arc<CacheEntry>, Weigh>,
}

impl fmt::Debug for TileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TileCache")
            .field("answers", &self.answers.len())
            .finish_non_exhaustive()
    }
}

impl TileCache {
    pub(crate) fn new(bytes: usize) -> TileCache {
        let items = (bytes / 16_384).clamp(16, 1 << 20);
        TileCache {
            answers: Cache::with_weighter(items, bytes as u64, Weigh),
        }
    }

    /// Cache key of a request's answer.
    pub(crate) fn key(access: &Access, uri: &Uri) -> Option<String> {
        let path = uri.path_and_query()?.as_str();
        let asker = access.cache_key();
        // No path has a line feed.
        (path.len() <= KEY_BYTES_MAX).then(|| [asker.as_str(), path].join("\n"))
    }

    /// The visible answer under a key of [`TileCache::key`], if it is cached and still valid.
    pub(crate) fn get(&self, db: &Database, access: &Access, key: &str) -> Option<Arc<CacheEntry>> {
        let entry = self.answers.get(key)?;
        let is_true = entry.shown.iter().all(|shown| {
            shown.version.is_some()
                && access.may_read_stream(&shown.stream)
                && db.quick_version(&shown.stream, &shown.range) == shown.version
        });
        is_true.then_some(entry)
    }

    /// Caches an answer, if its versions can invalidate it.
    pub(crate) fn put(&self, key: &str, entry: &Arc<CacheEntry>) {
        if entry.etag.is_some() {
            self.answers.insert(key.into(), Arc::clone(entry));
        }
    }
}

/// The tag of an answer; `None` when a part of it does not have a version.
pub(crate) fn etag_of(shown: &[VersionedRange]) -> Option<HeaderValue> {
    // The versions are already keyed hashes: the hasher only combines them.
    let mut hasher = DefaultHasher::new();
    for shown in shown {
        hasher.write_u64(shown.version?.number);
    }
    HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish())).ok()
}

/// True when the client has the answer with this tag.
pub(crate) fn is_known(etag: &HeaderValue, headers: &HeaderMap) -> bool {
    let Ok(etag) = etag.to_str() else {
        return false;
    };
    headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|list| {
            list.split(',').map(str::trim).any(|tag| {
                // A weak tag also means identical bytes here.
                tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag
            })
        })
    })
}
