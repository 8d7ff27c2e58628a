//! Caches of open files and decoded parts of segments, which several stores may share: the copies
//! of a cloud node have one cache, however many they are, and a reader that refreshes keeps what
//! it has read.
//!
//! Invariants: each store reads and writes its own entries only, under its number; a number is
//! never given again. Cached bytes are at most the size of the cache, apart from the few entries
//! that [`Recent`] and [`FreshPages`] always keep. Entries of a store that is gone leave as new
//! ones arrive. Concurrency: the caches' own; no lock is held over I/O. Failure: none.

use super::super::checkpoint::PageEntries;
use super::super::index::SegmentState;
use super::super::page::Page;
use super::super::recent::Recent;
use super::super::stream_contents::PagedStream;
use super::fresh_pages::{FreshPages, PageKey, StorePage, Streams};
use super::totals::{Totals, TotalsKey};
use crate::common::ids::{SegmentId, StreamId};
use headwater_codec::block::BucketBlock;
use headwater_codec::leaf::Leaf;
use headwater_io::File;
use headwater_types::{Aggregate, Column, FieldId};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Approximate number of entries of 10 to 50 KiB in a cache: with more it would be divided into
/// parts too small for some of them.
const LARGE_ITEMS: usize = 16;

/// Entries of each kind of states and pages that are kept however large they are, in a cache that
/// databases share.
const SHARED_LEAST: usize = 16;

/// A stream of a segment at one version.
pub(super) type PagedStreamKey = (SegmentId, StreamId, u64);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileOffset(pub(super) SegmentId, pub(super) u64);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ColumnKey(pub(super) FileOffset, pub(super) Option<FieldId>);

#[derive(Clone)]
pub(super) enum DecodedColumn {
    Times(Arc<Vec<i64>>),
    Column(Arc<Column>),
    Missing,
}

#[derive(Clone)]
pub(super) struct CacheWeight;

impl Weighter<FileOffset, (Leaf, usize)> for CacheWeight {
    fn weight(&self, _: &FileOffset, leaf: &(Leaf, usize)) -> u64 {
        leaf.1 as u64 + 256
    }
}
impl Weighter<FileOffset, Arc<[u8]>> for CacheWeight {
    fn weight(&self, _: &FileOffset, block: &Arc<[u8]>) -> u64 {
        block.len() as u64 + 128
    }
}
impl Weighter<ColumnKey, DecodedColumn> for CacheWeight {
    fn weight(&self, _: &ColumnKey, decoded: &DecodedColumn) -> u64 {
        64 + match decoded {
            DecodedColumn::Times(times) => times.len() as u64 * 8,
            DecodedColumn::Column(column) => column.heap_bytes() as u64,
            DecodedColumn::Missing => 0,
        }
    }
}

impl Weighter<(FileOffset, FieldId), Arc<BucketBlock>> for CacheWeight {
    fn weight(&self, _: &(FileOffset, FieldId), block: &Arc<BucketBlock>) -> u64 {
        let aggregates = block.buckets.len() * (16 + size_of::<Aggregate>());
        aggregates as u64 + 256
    }
}
impl Weighter<TotalsKey, Arc<Totals>> for CacheWeight {
    fn weight(&self, _: &TotalsKey, totals: &Arc<Totals>) -> u64 {
        totals.weight()
    }
}
impl Weighter<FileOffset, Arc<PageEntries>> for CacheWeight {
    fn weight(&self, _: &FileOffset, entries: &Arc<PageEntries>) -> u64 {
        entries.weight()
    }
}
impl Weighter<PagedStreamKey, Arc<PagedStream>> for CacheWeight {
    fn weight(&self, _: &PagedStreamKey, held: &Arc<PagedStream>) -> u64 {
        held.weight()
    }
}
impl Weighter<SegmentId, Arc<dyn File>> for CacheWeight {
    fn weight(&self, _: &SegmentId, _: &Arc<dyn File>) -> u64 {
        1
    }
}

/// A key of one of the stores that share a cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OfStore<K> {
    store: u64,
    key: K,
}

impl<K, V> Weighter<OfStore<K>, V> for CacheWeight
where
    CacheWeight: Weighter<K, V>,
{
    fn weight(&self, key: &OfStore<K>, value: &V) -> u64 {
        <CacheWeight as Weighter<K, V>>::weight(self, &key.key, value)
    }
}

type SharedCache<K, V> = Arc<Cache<OfStore<K>, V, CacheWeight>>;

/// The part of a cache that belongs to one store.
pub(super) struct StorePart<K, V> {
    store: u64,
    cache: SharedCache<K, V>,
}

impl<K, V> Clone for StorePart<K, V> {
    fn clone(&self) -> Self {
        part(self.store, &self.cache)
    }
}

impl<K: Clone + Eq + Hash, V: Clone> StorePart<K, V>
where
    CacheWeight: Weighter<K, V>,
{
    fn key(&self, key: &K) -> OfStore<K> {
        OfStore {
            store: self.store,
            key: key.clone(),
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.cache.get(&self.key(key))
    }

    /// As `get`, without counting as a use.
    pub(super) fn peek(&self, key: &K) -> Option<V> {
        self.cache.peek(&self.key(key))
    }

    pub(super) fn insert(&self, key: K, value: V) {
        self.cache.insert(self.key(&key), value);
    }

    pub(super) fn remove(&self, key: &K) {
        self.cache.remove(&self.key(key));
    }
}

/// The states or pages of one store.
pub(super) struct RecentPart<V> {
    store: u64,
    recent: Arc<Recent<V>>,
}

impl<V> RecentPart<V> {
    pub(super) fn get(&self, (segment, page): (SegmentId, u32), version: u64) -> Option<Arc<V>> {
        self.recent.get((self.store, segment, page), version)
    }

    /// See [`Recent::admits`].
    pub(super) fn admits(&self) -> bool {
        self.recent.admits()
    }

    pub(super) fn put(
        &self,
        (segment, page): (SegmentId, u32),
        version: u64,
        value: Arc<V>,
        bytes: usize,
    ) {
        let place = (self.store, segment, page);
        self.recent.put(place, version, value, bytes);
    }

    pub(super) fn forget(&self, id: SegmentId) {
        self.recent.forget(self.store, id);
    }

    /// The part of another store.
    pub(super) fn of(&self, store: u64) -> RecentPart<V> {
        recent(store, &self.recent)
    }
}

impl<V> Clone for RecentPart<V> {
    fn clone(&self) -> Self {
        recent(self.store, &self.recent)
    }
}

/// The unpacked pages of one store.
#[derive(Clone)]
pub(super) struct FreshPart {
    store: u64,
    fresh: Arc<FreshPages>,
}

impl FreshPart {
    pub(super) fn get(&self, key: PageKey) -> Option<Streams> {
        self.fresh.get((self.store, key))
    }

    /// Inserts a page; returns the evicted one, perhaps of another store.
    pub(super) fn put(&self, key: PageKey, streams: Streams) -> Option<(StorePage, Streams)> {
        self.fresh.put((self.store, key), streams)
    }

    pub(super) fn forget(&self, id: SegmentId) {
        self.fresh.forget(self.store, id);
    }
}

/// A cache for reads, which the readers of several copies may share: of open files, indexes of
/// segments, decoded rows and summaries. Cheap to clone; clones share the cache.
#[derive(Clone)]
pub struct ReadCache {
    inner: Arc<Caches>,
}

struct Caches {
    bytes: usize,
    next_store: AtomicU64,
    open: SharedCache<SegmentId, Arc<dyn File>>,
    states: Arc<Recent<SegmentState>>,
    fresh: Arc<FreshPages>,
    pages: Arc<Recent<Page>>,
    paged_streams: SharedCache<PagedStreamKey, Arc<PagedStream>>,
    index_pages: SharedCache<FileOffset, Arc<PageEntries>>,
    leaves: SharedCache<FileOffset, (Leaf, usize)>,
    columns: SharedCache<ColumnKey, DecodedColumn>,
    blocks: SharedCache<FileOffset, Arc<[u8]>>,
    totals: SharedCache<TotalsKey, Arc<Totals>>,
    coarse: SharedCache<(FileOffset, FieldId), Arc<BucketBlock>>,
}

impl std::fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadCache")
            .field("bytes", &self.inner.bytes)
            .finish_non_exhaustive()
    }
}

fn weighed<K: Clone + Eq + Hash, V: Clone>(items: usize, weight: u64) -> SharedCache<K, V>
where
    CacheWeight: Weighter<K, V>,
{
    let cache = Cache::<OfStore<K>, V, CacheWeight>::with_weighter(items, weight, CacheWeight);
    Arc::new(cache)
}

impl ReadCache {
    /// A cache of so many bytes, and of so many open files, at least 2.
    ///
    /// Use it with [`RemoteCopy::reader_sharing`](crate::RemoteCopy::reader_sharing).
    #[must_use]
    pub fn new(bytes: usize, open_files_max: usize) -> ReadCache {
        ReadCache::keeping(bytes, open_files_max, SHARED_LEAST)
    }

    /// As [`ReadCache::new`]; of states and pages the `least` last used always stay.
    ///
    /// The bytes are divided: nearly half for decoded columns, the rest for raw leaves, blocks and
    /// states.
    fn keeping(bytes: usize, open_files_max: usize, least: usize) -> ReadCache {
        let all = headwater_types::invariant::wide(bytes);
        let items = |b: u64| usize::try_from(b / 4096).unwrap_or(64).clamp(16, 1 << 20);
        let files = open_files_max.max(2);
        let inner = Caches {
            bytes,
            next_store: AtomicU64::new(0),
            open: weighed(files, headwater_types::invariant::wide(files)),
            states: Arc::new(Recent::new(bytes / 8, least)),
            fresh: Arc::new(FreshPages::new(least)),
            pages: Arc::new(Recent::new(bytes / 16 * 3, least)),
            paged_streams: weighed(LARGE_ITEMS, all / 32),
            index_pages: weighed(LARGE_ITEMS, all / 32),
            leaves: weighed(items(all / 8), all / 8),
            columns: weighed(items(all / 2), all / 16 * 7),
            blocks: weighed(4 * items(all / 8), all / 8),
            totals: weighed(items(all / 4), all / 32),
            coarse: weighed(LARGE_ITEMS, all / 32),
        };
        ReadCache {
            inner: Arc::new(inner),
        }
    }

    fn next_store(&self) -> u64 {
        self.inner.next_store.fetch_add(1, Ordering::Relaxed)
    }

    /// A cache for one store of so many shards.
    pub(crate) fn alone(bytes: usize, open_files_max: usize, shards: usize) -> StoreCache {
        ReadCache::keeping(bytes, open_files_max, 2 * shards.max(1)).store()
    }

    /// The part of the cache for one more store.
    pub(crate) fn store(&self) -> StoreCache {
        let (caches, store) = (&self.inner, self.next_store());
        StoreCache {
            cache: self.clone(),
            open: part(store, &caches.open),
            states: recent(store, &caches.states),
            fresh: FreshPart {
                store,
                fresh: Arc::clone(&caches.fresh),
            },
            pages: recent(store, &caches.pages),
            paged_streams: part(store, &caches.paged_streams),
            index_pages: part(store, &caches.index_pages),
            leaves: part(store, &caches.leaves),
            columns: part(store, &caches.columns),
            blocks: part(store, &caches.blocks),
            totals: part(store, &caches.totals),
            coarse: part(store, &caches.coarse),
        }
    }
}

fn part<K, V>(store: u64, cache: &SharedCache<K, V>) -> StorePart<K, V> {
    StorePart {
        store,
        cache: Arc::clone(cache),
    }
}

fn recent<V>(store: u64, recent: &Arc<Recent<V>>) -> RecentPart<V> {
    RecentPart {
        store,
        recent: Arc::clone(recent),
    }
}

/// The part of a [`ReadCache`] that belongs to one store. Stores that read the same files, one
/// after the other, may share it.
#[derive(Clone)]
pub(crate) struct StoreCache {
    cache: ReadCache,
    pub(super) open: StorePart<SegmentId, Arc<dyn File>>,
    pub(super) states: RecentPart<SegmentState>,
    /// The most recently folded pages, unpacked; each moves to `pages` when it is evicted.
    pub(super) fresh: FreshPart,
    pub(super) pages: RecentPart<Page>,
    /// Streams with pages in a checkpoint.
    pub(super) paged_streams: StorePart<PagedStreamKey, Arc<PagedStream>>,
    pub(super) index_pages: StorePart<FileOffset, Arc<PageEntries>>,
    pub(super) leaves: StorePart<FileOffset, (Leaf, usize)>,
    pub(super) columns: StorePart<ColumnKey, DecodedColumn>,
    /// Blocks in their stored form: decoding the needed fields takes about as long as locating the
    /// others, and decoded blocks would take ten times the memory.
    pub(super) blocks: StorePart<FileOffset, Arc<[u8]>>,
    pub(super) totals: StorePart<TotalsKey, Arc<Totals>>,
    /// Decoded fields of coarse blocks, which are few.
    pub(super) coarse: StorePart<(FileOffset, FieldId), Arc<BucketBlock>>,
}

impl StoreCache {
    /// The same for a store of a later state of the files, which are opened again: a file of a copy
    /// has the length that its state gives it.
    pub(crate) fn of_later_state(&self) -> StoreCache {
        StoreCache {
            open: part(self.cache.next_store(), &self.open.cache),
            ..self.clone()
        }
    }
}

impl std::fmt::Debug for StoreCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreCache")
            .field("store", &self.states.store)
            .finish_non_exhaustive()
    }
}
