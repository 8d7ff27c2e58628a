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
mod fresh_pages;
mod leaves;
mod pages;
mod read_cache;
mod stream_contents;
mod totals;

pub(crate) use ahead::{AheadOfReader, LeafAhead, ReadAhead};
pub(crate) use blocks::BlockPart;
pub(crate) use fast_tier::named;
pub(crate) use leaves::LeafCaching;
pub(crate) use pages::PageCursor;
pub use read_cache::ReadCache;
pub(crate) use read_cache::StoreCache;
pub(crate) use totals::{Totals, TotalsKey, TypedFields};

use super::file::SegmentFile;
use super::format::{Cover, Footer, HEADER_BYTES, HEADER_MAGIC, LeafEntry, SegmentHeader};
use super::index::{ChangedPages, SegmentState};
use super::paging::Paging;
use super::present_ranges::PresentRanges;
use super::shown_stretch::ShownStretch;
use super::state::Sums;
use super::stubs::StubFiles;
use crate::common::ids::{SegmentId, Sequence, StreamId};
use crate::metadata::tables::PartitionRecord;
use crate::storage::fast_index::Repeats;
use crate::storage::queues::SegmentQueues;
use crate::storage::read_stats;
use crate::{Error, ErrorKind, Result};
use footers::Footers;
use headwater_io::{File, Files, OpenMode};
use headwater_types::{ByteRange, ClosedRange};
use parking_lot::Mutex;
use read_cache::{ColumnKey, DecodedColumn, FileOffset};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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

/// Approximate number of streams of a page.
const PAGE_STREAMS: usize = 64;

/// Opens segments and reads them.
pub(crate) struct Store {
    files: Arc<dyn Files>,
    /// The same files, with the stubs of segments whose rows were freed.
    stubs: Arc<StubFiles>,
    dir: PathBuf,
    cache: StoreCache,
    /// For a reader beside an owner: files opened with its state, since the owner may remove their
    /// names.
    pinned: Option<HashMap<SegmentId, Arc<dyn File>>>,
    open_files_max: usize,
    /// Stream numbers of a page, as a power of two: about [`PAGE_STREAMS`] streams of a shard.
    page_shift: u32,
    paging: Paging,
    /// The present ranges, where files have missing ranges.
    here: Option<Arc<dyn PresentRanges>>,
    /// The fast indexes that repeat parts of segments.
    repeats: Arc<Repeats>,
    /// Segments with a damaged checkpoint.
    distrusted: Mutex<HashSet<SegmentId>>,
    /// Segments whose footers were read completely before a footer was written after them.
    checked: Mutex<HashSet<SegmentId>>,
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
    /// A store of the segments in a directory, without I/O.
    pub(crate) fn new(
        files: Arc<dyn Files>,
        dir: PathBuf,
        cache: StoreCache,
        open_files_max: usize,
        shards: usize,
    ) -> Store {
        let stubs = Arc::new(StubFiles::new(files, &dir));
        let files: Arc<dyn Files> = stubs.clone();
        Store {
            files,
            stubs,
            dir,
            cache,
            pinned: None,
            open_files_max,
            page_shift: (PAGE_STREAMS * shards.max(1)).next_power_of_two().ilog2(),
            paging: Paging::default(),
            here: None,
            repeats: Arc::default(),
            distrusted: Mutex::new(HashSet::new()),
            checked: Mutex::new(HashSet::new()),
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
    pub(crate) fn with_missing_ranges(mut self, here: Option<Arc<dyn PresentRanges>>) -> Store {
        self.here = here;
        self
    }

    /// Records that the rows of these segments were freed.
    pub(crate) fn with_freed(self, ids: impl Iterator<Item = SegmentId>) -> Store {
        self.stubs.set_freed(ids);
        self
    }

    /// The present ranges; `None` = all, the database is not a copy.
    pub(crate) fn here(&self) -> Option<&Arc<dyn PresentRanges>> {
        self.here.as_ref()
    }

    /// As [`Store::here`], or the ranges that were not freed of a database that is not a copy;
    /// `None` = all.
    pub(crate) fn here_or_freed(&self) -> Option<&dyn PresentRanges> {
        match &self.here {
            Some(here) => Some(&**here),
            None => {
                let stubs: &dyn PresentRanges = &*self.stubs;
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
        self.cache.open.remove(&id);
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
    pub(crate) fn retained_file(&self, id: SegmentId) -> Arc<SegmentFile> {
        self.file_of(id, true)
    }

    fn file_of(&self, id: SegmentId, is_retained: bool) -> Arc<SegmentFile> {
        let place = (self.path(id), Arc::clone(&self.files));
        Arc::new(SegmentFile::new(id, place, &self.repeats, is_retained))
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
                        "{} was replaced by the owner of the database: refresh and read again, or raise open_files_max",
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
    pub(crate) fn cached_file(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        self.open_file(id)
    }

    fn open_file(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        if let Some(file) = self.pinned.as_ref().and_then(|p| p.get(&id)) {
            return Ok(Arc::clone(file));
        }
        if let Some(file) = self.cache.open.get(&id) {
            return Ok(file);
        }
        let file = self.open_path(id)?;
        self.compare_with_fast_tier(id, &*file)?;
        self.cache.open.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Removes the open file and the states of a segment that is about to be removed.
    pub(crate) fn forget(&self, id: SegmentId) {
        self.cache.open.remove(&id);
        self.cache.states.forget(id);
        self.cache.fresh.forget(id);
        self.cache.pages.forget(id);
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
        if let Some(state) = self.cache.states.get((id, 0), record.footer_offset) {
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
        self.cache.states.put(
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
        self.cache.states.put((id, 0), version, state, weight);
        for (page, content) in &pages.0 {
            self.cache
                .pages
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
