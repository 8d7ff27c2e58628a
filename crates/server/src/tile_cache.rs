//! Formatted tiles, kept as long as what they show stays the same.
//!
//! Invariants: at most so many bytes; an answer is given only when every version in it is that of
//! the data now, and only to who may read every stream in it. An answer for who may read some
//! streams only is given to the same token only: whether a field is told of depends on what else
//! its rules let one read.
//! Concurrency: looking something up waits for nothing that could wait for I/O.

use crate::access::Access;
use axum::body::Bytes;
use axum::http::header::IF_NONE_MATCH;
use axum::http::{HeaderMap, HeaderValue, Uri};
use headwater::{ClosedRange, DataVersion, Database, StreamName, Timestamp};
use headwater_wire::tiles::TileStatus;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// Longer addresses are not kept.
const KEY_BYTES_MAX: usize = 4_096;

/// A part of an answer: a range of a stream at a version.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) stream: StreamName,
    pub(crate) range: ClosedRange,
    /// `None` where time alone changes the answer, or there is no such channel.
    pub(crate) version: Option<DataVersion>,
    pub(crate) status: TileStatus,
}

/// An answer with what it depends on.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) shown: Vec<Shown>,
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) body: Bytes,
    pub(crate) content_type: HeaderValue,
    /// No write can change it any more.
    pub(crate) is_closed: bool,
    /// Up to when it is the newest that is known here; nothing where nothing newer is known.
    pub(crate) until: Option<Timestamp>,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Box<str>, Arc<Kept>> for Weigh {
    fn weight(&self, key: &Box<str>, kept: &Arc<Kept>) -> u64 {
        let shown = kept.shown.len() * (size_of::<Shown>() + 64);
        (key.len() + kept.body.len() + shown + 256) as u64
    }
}

/// Answers by path and query.
pub(crate) struct TileCache {
    answers: Cache<Box<str>, Arc<Kept>, Weigh>,
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

    /// Under what the answer to a request is kept.
    pub(crate) fn key(access: &Access, uri: &Uri) -> Option<String> {
        let path = uri.path_and_query()?.as_str();
        let asker = access.kept_for();
        // No path has a line feed.
        (path.len() <= KEY_BYTES_MAX).then(|| [asker.as_str(), path].join("\n"))
    }

    /// The answer kept under a key of [`TileCache::key`], if it is here and still true, and may be
    /// seen.
    pub(crate) fn get(&self, db: &Database, access: &Access, key: &str) -> Option<Arc<Kept>> {
        let kept = self.answers.get(key)?;
        let is_true = kept.shown.iter().all(|shown| {
            shown.version.is_some()
                && access.may_read_stream(&shown.stream)
                && db.quick_version(&shown.stream, &shown.range) == shown.version
        });
        is_true.then_some(kept)
    }

    /// Keeps an answer, if its versions can tell for how long.
    pub(crate) fn put(&self, key: &str, kept: &Arc<Kept>) {
        if kept.etag.is_some() {
            self.answers.insert(key.into(), Arc::clone(kept));
        }
    }
}

/// The tag of an answer; `None` when something in it has no version.
pub(crate) fn etag_of(shown: &[Shown]) -> Option<HeaderValue> {
    // The versions are keyed hashes already: this only puts them together.
    let mut hasher = DefaultHasher::new();
    for shown in shown {
        hasher.write_u64(shown.version?.number);
    }
    HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish())).ok()
}

/// True when the asker has the answer with this tag.
pub(crate) fn is_known(etag: &HeaderValue, headers: &HeaderMap) -> bool {
    let Ok(etag) = etag.to_str() else {
        return false;
    };
    headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|list| {
            list.split(',').map(str::trim).any(|tag| {
                // A weak tag means the same bytes here too.
                tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag
            })
        })
    })
}
