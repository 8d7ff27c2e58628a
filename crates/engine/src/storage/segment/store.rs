//! Reads segments: open files, states, pages, leaves and blocks, each through a bounded cache.
//!
//! Invariants: cache entries stay valid, because bytes below a committed length never change and
//! every key includes file and offset. A damaged leaf or block is remembered and reported once in
//! the log. Nothing is read of a partition that is known to be unreadable. Concurrency: caches are
//! shared; no lock is held over I/O. Failure: damage is kind `corrupt` with file, offset, expected
//! and actual value; reads of other parts continue.

mod ahead;
mod blocks;
mod fast_tier;
mod footers;
mod leaves;
mod pages;
mod stream_contents;
mod totals;

pub(crate) use ahead::{AheadOfReader, LeafAhead, ReadAhead};
pub(crate) use blocks::BlockPart;
pub(crate) use fast_tier::named;
pub(crate) use leaves::LeafCaching;
pub(crate) use pages::PageCursor;
pub(crate) use totals::{Totals, TotalsKey, WantedFields};

use super::checkpoint::PageEntries;
use super::file::SegmentFile;
use super::format::{Cover, Footer, HEADER_BYTES, HEADER_MAGIC, LeafEntry, SegmentHeader};
use super::here::Here;
use super::index::{ChangedPages, SegmentState};
use super::page::Page;
use super::paging::Paging;
use super::recent::Recent;
use super::shown_stretch::ShownStretch;
use super::state::Sums;
use super::stream_contents::PagedStream;
use super::stubs::StubFiles;
use crate::common::ids::{SegmentId, Sequence, StreamId};
use crate::metadata::tables::PartitionRecord;
use crate::storage::fast_index::Repeats;
use crate::storage::queues::SegmentQueues;
use crate::storage::read_stats;
use crate::{Error, ErrorKind, Result};
use footers::Footers;
use headwater_codec::block::BucketBlock;
use headwater_codec::leaf::Leaf;
use headwater_io::{File, Files, OpenMode};
use headwater_types::{Aggregate, ByteRange, ClosedRange, Column, FieldId};
use pages::FreshPages;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stream_contents::PagedStreamKey;

/// A partition at one point: its segment's committed length and last footer.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) record: PartitionRecord,
    pub(crate) file: Arc<SegmentFile>,
    /// The error that makes the partition unreadable: its file is missing or too short, or its
    /// header or a footer is damaged.
    pub(crate) unreadable: Option<Error>,
    /// The shown stretch, unless the whole partition is shown.
    pub(crate) piece: Option<Arc<ShownStretch>>,
    /// See [`Store::rounds`].
    rounds: OnceLock<u32>,
}

impl Partition {
    /// A partition, unreadable if there is an error.
    pub(crate) fn with(
        record: PartitionRecord,
        file: Arc<SegmentFile>,
        unreadable: Option<Error>,
    ) -> Partition {
        Partition {
            unreadable,
            ..Partition::new(record, file)
        }
    }

    /// A partition whose file is valid, as far as is known.
    pub(crate) fn new(record: PartitionRecord, file: Arc<SegmentFile>) -> Partition {
        Partition {
            record,
            file,
            unreadable: None,
            piece: None,
            rounds: OnceLock::new(),
        }
    }

    /// The partition with only a stretch shown, as in a copy.
    pub(crate) fn showing(&self, piece: ShownStretch) -> Partition {
        Partition {
            piece: Some(Arc::new(piece)),
            unreadable: self.unreadable.clone(),
            ..Partition::new(self.record.clone(), Arc::clone(&self.file))
        }
    }

    /// The instants of the shown part of the partition.
    pub(crate) fn span(&self) -> ClosedRange {
        match &self.piece {
            Some(piece) => piece.span,
            None => self.record.span(),
        }
    }

    pub(crate) fn id(&self) -> SegmentId {
        self.file.id
    }
}

/// Counts of the parts that were read, since opening.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    pub(crate) leaves: AtomicU64,
    pub(crate) pages: AtomicU64,
    pub(crate) blocks: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) damaged: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FileOffset(SegmentId, u64);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct ColumnKey(FileOffset, Option<FieldId>);

#[derive(Clone)]
enum DecodedColumn {
    Times(Arc<Vec<i64>>),
    Column(Arc<Column>),
    Missing,
}

#[derive(Clone)]
struct CacheWeight;

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

/// Approximate number of entries of 10 to 50 KiB in a cache: with more it would be divided into
/// parts too small for some of them.
const LARGE_ITEMS: usize = 16;

/// Approximate number of streams of a page.
const PAGE_STREAMS: usize = 64;

/// Opens segments and reads them.
pub(crate) struct Store {
    files: Arc<dyn Files>,
    /// The same files, with the stubs of segments whose rows were freed.
    stubs: Arc<StubFiles>,
    dir: PathBuf,
    open: Cache<SegmentId, Arc<dyn File>>,
    /// For a reader beside an owner: files opened with its state, since the owner may remove their
    /// names.
    pinned: Option<HashMap<SegmentId, Arc<dyn File>>>,
    open_files_max: usize,
    /// Stream numbers of a page, as a power of two: about [`PAGE_STREAMS`] streams of a shard.
    page_shift: u32,
    states: Recent<SegmentState>,
    /// The most recently folded pages, unpacked; each moves to `pages` when it is evicted.
    fresh: FreshPages,
    pages: Recent<Page>,
    paging: Paging,
    /// The present ranges, where files have missing ranges.
    here: Option<Arc<dyn Here>>,
    /// The fast indexes that repeat parts of segments.
    repeats: Arc<Repeats>,
    /// Streams with pages in a checkpoint.
    held: Cache<PagedStreamKey, Arc<PagedStream>, CacheWeight>,
    index_pages: Cache<FileOffset, Arc<PageEntries>, CacheWeight>,
    /// Segments with a damaged checkpoint.
    distrusted: Mutex<HashSet<SegmentId>>,
    /// Segments whose footers were read completely before a footer was written after them.
    checked: Mutex<HashSet<SegmentId>>,
    leaves: Cache<FileOffset, (Leaf, usize), CacheWeight>,
    columns: Cache<ColumnKey, DecodedColumn, CacheWeight>,
    /// Blocks in their stored form: decoding the needed fields takes about as long as locating the
    /// others, and decoded blocks would take ten times the memory.
    blocks: Cache<FileOffset, Arc<[u8]>, CacheWeight>,
    totals: Cache<TotalsKey, Arc<Totals>, CacheWeight>,
    /// Decoded fields of coarse blocks, which are few.
    coarse: Cache<(FileOffset, FieldId), Arc<BucketBlock>, CacheWeight>,
    damaged: Mutex<HashSet<FileOffset>>,
    /// Leaves requested ahead of readers; `None` = no read-ahead, for a device without asynchronous
    /// reads.
    ahead: Option<Arc<ReadAhead>>,
    /// The queue sets in front of the files, if any.
    queues: Option<SegmentQueues>,
    pub(crate) counters: ReadCounters,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// `cache_bytes` is divided: nearly half for decoded columns, the rest for raw leaves, blocks
    /// and states.
    pub(crate) fn new(
        files: Arc<dyn Files>,
        dir: PathBuf,
        cache_bytes: usize,
        open_files_max: usize,
        shards: usize,
    ) -> Store {
        let bytes = cache_bytes as u64;
        let items = |b: u64| usize::try_from(b / 4096).unwrap_or(64).clamp(16, 1 << 20);
        let stubs = Arc::new(StubFiles::new(files, &dir));
        let files: Arc<dyn Files> = stubs.clone();
        Store {
            files,
            stubs,
            dir,
            open: Cache::new(open_files_max.max(2)),
            pinned: None,
            open_files_max,
            page_shift: (PAGE_STREAMS * shards.max(1)).next_power_of_two().ilog2(),
            states: Recent::new(cache_bytes / 8, 2 * shards.max(1)),
            fresh: FreshPages::new(2 * shards.max(1)),
            pages: Recent::new(cache_bytes / 16 * 3, 2 * shards.max(1)),
            paging: Paging::default(),
            here: None,
            repeats: Arc::default(),
            held: Cache::with_weighter(LARGE_ITEMS, bytes / 32, CacheWeight),
            index_pages: Cache::with_weighter(LARGE_ITEMS, bytes / 32, CacheWeight),
            distrusted: Mutex::new(HashSet::new()),
            checked: Mutex::new(HashSet::new()),
            leaves: Cache::with_weighter(items(bytes / 8), bytes / 8, CacheWeight),
            columns: Cache::with_weighter(items(bytes / 2), bytes / 16 * 7, CacheWeight),
            totals: Cache::with_weighter(items(bytes / 4), bytes / 32, CacheWeight),
            coarse: Cache::with_weighter(LARGE_ITEMS, bytes / 32, CacheWeight),
            blocks: Cache::with_weighter(4 * items(bytes / 8), bytes / 8, CacheWeight),
            damaged: Mutex::new(HashSet::new()),
            ahead: None,
            queues: None,
            counters: ReadCounters::default(),
        }
    }

    /// Sets the division of checkpoints into pages.
    pub(crate) fn with_paging(mut self, paging: Paging) -> Store {
        self.paging = paging;
        self
    }

    /// Sets the queue sets in front of its files.
    pub(crate) fn with_queues(mut self, queues: Option<SegmentQueues>) -> Store {
        self.queues = queues;
        self
    }

    /// Stops queueing, since the database is closed.
    pub(crate) fn abandon_queues(&self) {
        if let Some(queues) = &self.queues {
            queues.abandon();
        }
    }

    /// Sets the present ranges of files with missing ranges.
    pub(crate) fn with_holes(mut self, here: Option<Arc<dyn Here>>) -> Store {
        self.here = here;
        self
    }

    /// Records that the rows of these segments were freed.
    pub(crate) fn with_freed(self, ids: impl Iterator<Item = SegmentId>) -> Store {
        self.stubs.set_freed(ids);
        self
    }

    /// The present ranges; `None` = all, the database is not a copy.
    pub(crate) fn here(&self) -> Option<&Arc<dyn Here>> {
        self.here.as_ref()
    }

    /// As [`Store::here`], or the ranges that were not freed of a database that is not a copy;
    /// `None` = all.
    pub(crate) fn here_or_freed(&self) -> Option<&dyn Here> {
        match &self.here {
            Some(here) => Some(&**here),
            None => {
                let stubs: &dyn Here = &*self.stubs;
                self.stubs.has_freed().then_some(stubs)
            }
        }
    }

    /// The files of segments whose rows were freed.
    pub(crate) fn stubs(&self) -> &StubFiles {
        &self.stubs
    }

    /// The freed parts of a range of a segment, sorted and disjoint.
    pub(crate) fn freed_of(&self, id: SegmentId, range: ByteRange) -> Result<Vec<ByteRange>> {
        let freed = self.stubs.freed_of(id, range);
        freed.map_err(|e| Error::io("read", &self.stubs.stub_path(id), e))
    }

    /// True when rows of a leaf were freed.
    pub(crate) fn is_leaf_freed(&self, id: SegmentId, leaf: &LeafEntry) -> Result<bool> {
        let range = ByteRange::at(leaf.offset, u64::from(leaf.bytes));
        Ok(!self.freed_of(id, range)?.is_empty())
    }

    /// Closes the open file of a segment, which another file has replaced.
    pub(crate) fn reopen(&self, id: SegmentId) {
        self.open.remove(&id);
    }

    pub(super) fn paging(&self) -> Paging {
        self.paging
    }

    pub(crate) fn path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(format!("{}.seg", id.0))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// The file of a segment, without I/O.
    pub(crate) fn segment_file(&self, id: SegmentId) -> Arc<SegmentFile> {
        self.file_of(id, false)
    }

    /// As [`Store::segment_file`], for a segment that only named snapshots refer to in the
    /// metadata. The file is retained at once.
    pub(crate) fn kept_file(&self, id: SegmentId) -> Arc<SegmentFile> {
        self.file_of(id, true)
    }

    fn file_of(&self, id: SegmentId, is_kept: bool) -> Arc<SegmentFile> {
        let place = (self.path(id), Arc::clone(&self.files));
        Arc::new(SegmentFile::new(id, place, &self.repeats, is_kept))
    }

    /// Opens these files for the life of the store, up to the maximum of open files.
    pub(crate) fn pin(&mut self, ids: impl Iterator<Item = SegmentId>) -> Result<()> {
        let mut pinned = HashMap::new();
        for id in ids.take(self.open_files_max) {
            let path = self.path(id);
            match self.files.open(&path, OpenMode::Read) {
                Ok(file) => drop(pinned.insert(id, file)),
                // The reader of its length reports the missing file.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("open", &path, error)),
            }
        }
        self.pinned = Some(pinned);
        Ok(())
    }

    fn open_path(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        let path = self.path(id);
        self.files
            .open(&path, OpenMode::Read)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound if self.pinned.is_some() => Error::new(
                    ErrorKind::Busy,
                    format!(
                        "{} was replaced by the owner of the database meanwhile: refresh and read again, or raise open_files_max",
                        path.display()
                    ),
                ),
                std::io::ErrorKind::NotFound => Error::damage(crate::common::error::Damage {
                    file: path.clone(),
                    offset: 0,
                    expected: "the file of a partition".into(),
                    found: "no file".into(),
                }),
                _ => Error::io("open", &path, error),
            })
    }

    /// Length of a segment's file; `None` = the file does not exist.
    pub(crate) fn file_bytes(&self, id: SegmentId) -> Result<Option<u64>> {
        let path = self.path(id);
        let pinned = self.pinned.as_ref().and_then(|p| p.get(&id)).cloned();
        let file = match pinned.map_or_else(|| self.files.open(&path, OpenMode::Read), Ok) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io("open", &path, e))?,
        };
        let len = file.len().map_err(|e| Error::io("read", &path, e))?;
        Ok(Some(len))
    }

    /// The file of a segment: the pinned or cached one, otherwise opened.
    pub(crate) fn held(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        self.open_file(id)
    }

    fn open_file(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        if let Some(file) = self.pinned.as_ref().and_then(|p| p.get(&id)) {
            return Ok(Arc::clone(file));
        }
        if let Some(file) = self.open.get(&id) {
            return Ok(file);
        }
        let file = self.open_path(id)?;
        self.compare_with_fast_tier(id, &*file)?;
        self.open.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Removes the open file and the states of a segment that is about to be removed.
    pub(crate) fn forget(&self, id: SegmentId) {
        self.open.remove(&id);
        self.states.forget(id);
        self.fresh.forget(id);
        self.pages.forget(id);
        self.distrusted.lock().remove(&id);
        self.checked.lock().remove(&id);
        if let Some(queues) = &self.queues {
            queues.forget(id);
        }
    }

    pub(super) fn read(&self, id: SegmentId, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let mut out = vec![0u8; bytes as usize];
        self.read_into(id, offset, &mut out)?;
        Ok(out)
    }

    fn read_into(&self, id: SegmentId, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.read_fast_tier(id, offset, out) {
            true => Ok(()),
            false => self.read_bulk(id, offset, out),
        }
    }

    fn read_bulk(&self, id: SegmentId, offset: u64, out: &mut [u8]) -> Result<()> {
        let file = self.open_file(id)?;
        let bytes = out.len() as u64;
        file.read_exact_at(offset, out)
            .map_err(|error| self.read_failed(id, offset, bytes, error))?;
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        read_stats::bytes(bytes);
        Ok(())
    }

    /// Reads bytes into a shared buffer with `read`.
    fn read_shared(bytes: u32, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Arc<[u8]>> {
        // The iterator has a known length, so the bytes are created in their final location.
        let mut out: Arc<[u8]> = std::iter::repeat_n(0, bytes as usize).collect();
        if let Some(out) = Arc::get_mut(&mut out) {
            read(out)?;
        }
        Ok(out)
    }

    /// Checks that a segment's file is as long as committed and has the right header.
    pub(crate) fn verify_header(&self, id: SegmentId, record: &PartitionRecord) -> Result<()> {
        let path = self.path(id);
        let bytes = self.read(id, 0, HEADER_BYTES as u32)?;
        Error::check_version(&path, &bytes, &HEADER_MAGIC)?;
        let header = SegmentHeader::decode(&bytes).map_err(|e| Error::decode(&path, 0, e))?;
        let expected = SegmentHeader {
            replaces: header.replaces,
            id,
            table: record.table,
            shard: record.shard,
            level: record.level,
            bucket: record.bucket,
        };
        if header != expected {
            return Err(Error::damage(crate::common::error::Damage {
                file: path,
                offset: 0,
                expected: format!("{expected:?}"),
                found: format!("{header:?}"),
            }));
        }
        Ok(())
    }

    /// Location of the footer before the one at `offset`.
    fn before(&self, id: SegmentId, offset: u64, footer: &Footer) -> Result<Option<(u64, u32)>> {
        match footer.previous {
            Some((previous, len)) if previous.saturating_add(u64::from(len)) > offset => {
                Err(Error::damage(crate::common::error::Damage {
                    file: self.path(id),
                    offset,
                    expected: "a footer that points back".into(),
                    found: format!("previous footer at {previous}"),
                }))
            }
            before => Ok(before),
        }
    }

    /// The state of a partition.
    pub(crate) fn state(&self, partition: &Partition) -> Result<Arc<SegmentState>> {
        let (id, record) = (partition.id(), &partition.record);
        if let Some(error) = &partition.unreadable {
            if let (Some(here), ErrorKind::Elsewhere) = (&self.here, error.kind()) {
                here.missed_frame(id);
            }
            return Err(error.clone());
        }
        if let Some(state) = self.states.get((id, 0), record.footer_offset) {
            return Ok(state);
        }
        let newest = (record.footer_offset, record.footer_bytes);
        let mut state = self.without_doubt(id, || {
            self.fold_back(
                id,
                newest,
                Footers::ByDirectory,
                &mut |footer, at, place| self.checkpoint(id, footer, at, place),
            )
        })?;
        state.sums = Sums::of_record(record, state.sums.footer_bytes);
        let state = Arc::new(state);
        self.states.put(
            (id, 0),
            record.footer_offset,
            Arc::clone(&state),
            state.weight(),
        );
        Ok(state)
    }

    /// The number of groups with parts of the state of a stream in a partition.
    pub(crate) fn rounds(&self, partition: &Partition) -> Result<u32> {
        if let Some(rounds) = partition.rounds.get() {
            return Ok(*rounds);
        }
        let rounds = self.state(partition)?.rounds();
        Ok(*partition.rounds.get_or_init(|| rounds))
    }

    /// The state of a new segment.
    pub(crate) fn new_state(&self, id: SegmentId) -> SegmentState {
        SegmentState::new(id, self.page_shift)
    }

    /// Streams of a page, as a power of two.
    pub(crate) fn page_shift(&self) -> u32 {
        self.page_shift
    }

    /// Caches the state of a partition after a committed job: the next job will need it.
    pub(crate) fn put_state(
        &self,
        partition: &Partition,
        state: Arc<SegmentState>,
        pages: &ChangedPages,
    ) {
        let (id, version) = (partition.id(), partition.record.footer_offset);
        let weight = state.weight();
        self.states.put((id, 0), version, state, weight);
        for (page, content) in &pages.0 {
            self.pages
                .put((id, *page), version, Arc::clone(content), content.weight());
        }
    }

    /// Covers with a sequence above `after`.
    pub(crate) fn covers(
        &self,
        id: SegmentId,
        record: &PartitionRecord,
        after: Sequence,
    ) -> Result<Vec<(StreamId, Cover)>> {
        self.covers_from(id, (record.footer_offset, record.footer_bytes), after)
    }

    /// As [`Store::covers`], for the groups up to a footer.
    fn covers_from(
        &self,
        id: SegmentId,
        newest: (u64, u32),
        after: Sequence,
    ) -> Result<Vec<(StreamId, Cover)>> {
        let mut out = Vec::new();
        let mut next = Some(newest);
        while let Some((offset, bytes)) = next {
            let raw = self.read(id, offset, bytes)?;
            let footer = Footer::decode_each(&raw, |delta| {
                let newer = delta.covers.iter().filter(|c| c.sequence > after);
                out.extend(newer.map(|c| (delta.stream, *c)));
            })
            .map_err(|e| Error::decode(&self.path(id), offset, e))?;
            next = self.before(id, offset, &footer)?;
            if footer.sequence <= after {
                break;
            }
        }
        Ok(out)
    }

    fn note_damage(&self, place: FileOffset, error: &Error) {
        if self.damaged.lock().insert(place) {
            self.counters.damaged.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, "a part is damaged: reads that need it fail, everything else stays readable");
        }
    }
}
