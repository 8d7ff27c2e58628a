//! The parts of segments that the fast tier repeats. The index: for each segment `ID.idx` has the
//! bytes with the locations of rows, and the bytes of the pyramid, so that these lookups need no
//! read of bulk. The newest segments: `ID.copy` has all bytes of a segment, so that reads of rows
//! in the newest spans of time need no read of bulk either.
//!
//! A segment in bulk stays complete, and bytes below its committed length never change. So a file
//! here is a durable cache: bytes that it does not have are read in bulk; it is dropped at any
//! doubt, and rebuilt from the segment. See docs/format/fastindex.md.
//!
//! Invariants: a file has nothing beyond the footer that the metadata named when it was written; no
//! file is read that extends further than the metadata do, or that belongs to another database. No
//! backup, copy or state includes these files. Concurrency: one lock over the list of segments,
//! never held over I/O; for each segment one lock that only the writer of its file takes, and holds
//! while it writes. Readers take each lock only to look up a file. Failure: only logged. A file
//! that cannot be written is left out, and not tried again for a while; the database is never
//! latched.

mod file;
mod format;
mod newest;
mod repeats;
mod writing;

pub(crate) use format::UpTo;
#[cfg(fuzzing)]
pub(crate) use format::fuzz;
pub(crate) use repeats::Repeats;
pub(crate) use writing::Writing;

use crate::common::ids::{SegmentId, ShardIndex};
use crate::device::guard::Guard;
use crate::{Error, Result, TierParts};
use file::{Doubt, IndexFile};
use format::IndexHeader;
use headwater_io::{Clock, Files, OpenMode};
use headwater_types::Timestamp;
use headwater_types::invariant::wide;
use newest::{ByEnd, file_bytes};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Pause of writing after the device was full.
const SPACE_PATIENCE: Duration = Duration::from_secs(60);

/// Kinds of data that the fast tier repeats of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatKind {
    /// The bytes with the locations of rows, and the pyramid, of all segments.
    Index,
    /// The complete segments of the newest spans of time.
    Newest,
}

impl RepeatKind {
    pub(crate) const ALL: [RepeatKind; 2] = [RepeatKind::Index, RepeatKind::Newest];

    /// True when the kind is among the parts of a tier.
    pub(crate) fn is_in(self, parts: TierParts) -> bool {
        match self {
            RepeatKind::Index => parts.index,
            RepeatKind::Newest => parts.newest,
        }
    }

    /// The folder of the files, in the folder of a fast tier.
    pub(crate) fn folder(self, fast: &Path) -> PathBuf {
        fast.join(match self {
            RepeatKind::Index => "index",
            RepeatKind::Newest => "newest",
        })
    }

    /// The suffix of file names.
    fn ending(self) -> &'static str {
        match self {
            RepeatKind::Index => ".idx",
            RepeatKind::Newest => ".copy",
        }
    }

    fn name_of(self, id: SegmentId) -> String {
        format!("{}{}", id.0, self.ending())
    }

    /// Removes all files of this kind from the folder of a fast tier: for callers that change
    /// segments, or that stop using the tier.
    pub(crate) fn clear(self, files: &dyn Files, fast: &Path) -> Result<()> {
        let dir = self.folder(fast);
        let names = match files.list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| Error::io("list", &dir, e))?,
        };
        for name in names.iter().filter(|name| name.ends_with(self.ending())) {
            let path = dir.join(name);
            files
                .remove(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
        }
        files.sync_dir(&dir).map_err(|e| Error::io("sync", &dir, e))
    }
}

/// Counts of reads that the index answered, and of dropped and refused files, since opening.
#[derive(Debug, Default)]
pub(crate) struct IndexCounters {
    /// Reads that were answered.
    pub(crate) reads: AtomicU64,
    /// Files that were dropped because of a doubt.
    pub(crate) dropped: AtomicU64,
    /// Number of times that a file was not written because the tier was full.
    pub(crate) refused: AtomicU64,
}

/// Kind, devices and limits of a fast index.
pub(crate) struct FastIndexConfig {
    pub(crate) kind: RepeatKind,
    pub(crate) files: Arc<dyn Files>,
    /// The folder of the tier.
    pub(crate) fast: PathBuf,
    /// The number of the database's set of tiers.
    pub(crate) set: u64,
    /// Maximum bytes of all files; `None` = no limit.
    pub(crate) bytes_max: Option<u64>,
    /// For the newest segments: segments whose spans ended longer ago are dropped.
    pub(crate) age_max: Option<Duration>,
    /// Bytes of memory for the cached contents of files.
    pub(crate) memory_bytes: u64,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Counts the bytes written to the tier.
    pub(crate) written: Arc<AtomicU64>,
}

/// The state of a segment in the metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedSegment {
    pub(crate) shard: ShardIndex,
    pub(crate) up_to: UpTo,
    /// The last instant of its span.
    pub(crate) last: Timestamp,
}

/// A segment in the metadata.
struct Segment {
    shard: ShardIndex,
    named: UpTo,
    /// The last instant of its span.
    last: Timestamp,
    /// Bytes of its file; `None` = it does not have one.
    bytes: Option<u64>,
    /// Number of times that its file was removed: a file written in the meantime is discarded.
    removals: u64,
    /// Locked while its file is written.
    writing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Segments {
    all: HashMap<SegmentId, Segment>,
    /// Segments whose files may be incomplete, or missing.
    behind: BTreeSet<(ShardIndex, SegmentId)>,
    bytes: u64,
    by_end: ByEnd,
}

impl Segments {
    fn note_bytes(&mut self, id: SegmentId, bytes: Option<u64>) {
        if let Some(segment) = self.all.get_mut(&id) {
            let before = std::mem::replace(&mut segment.bytes, bytes);
            self.by_end.note_file((segment.last, id), bytes.is_some());
            self.bytes = self.bytes.saturating_sub(before.unwrap_or(0));
            self.bytes += bytes.unwrap_or(0);
        }
    }

    /// Records the state of a segment in the metadata. False when a later state was recorded
    /// already.
    fn name(&mut self, id: SegmentId, named: &NamedSegment) -> bool {
        let last = named.last;
        let segment = self.all.entry(id).or_insert_with(|| Segment {
            shard: named.shard,
            named: named.up_to,
            last,
            bytes: None,
            removals: 0,
            writing: Arc::default(),
        });
        if segment.named.footer_offset > named.up_to.footer_offset {
            return false;
        }
        segment.named = named.up_to;
        self.by_end.add((last, id));
        self.behind.insert((named.shard, id));
        true
    }

    /// Records that the file of a segment extends up to this footer.
    fn mark_written_up_to(&mut self, id: SegmentId, to: &UpTo) {
        if let Some(segment) = self.all.get(&id)
            && segment.named.footer_offset == to.footer_offset
        {
            self.behind.remove(&(segment.shard, id));
        }
    }
}

#[derive(Clone)]
struct FileWeight;

impl Weighter<SegmentId, Arc<IndexFile>> for FileWeight {
    fn weight(&self, _: &SegmentId, file: &Arc<IndexFile>) -> u64 {
        file.weight()
    }
}

/// The index of one kind over the segments of a database, in its fast tier.
pub(crate) struct FastIndex {
    config: FastIndexConfig,
    /// The folder of the files.
    dir: PathBuf,
    segments: Mutex<Segments>,
    /// Contents of files that were read recently.
    cache: Cache<SegmentId, Arc<IndexFile>, FileWeight>,
    /// Nothing is written before this instant.
    paused_to: Mutex<Duration>,
    /// Segments whose files were dropped because their contents were damaged.
    doubted: Mutex<HashSet<SegmentId>>,
    /// Set when a full tier was logged, until it has space again.
    full_logged: AtomicBool,
    /// Maximum bytes of the newest segments, learnt when the device was full.
    space: AtomicU64,
    /// Set when the layout has changed: nothing is written any more.
    retired: AtomicBool,
    pub(crate) counters: IndexCounters,
}

impl std::fmt::Debug for FastIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastIndex")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl FastIndex {
    /// Opens the files of these segments, in their states in the metadata. Files of other segments
    /// in the folder are removed.
    pub(crate) fn open(
        config: FastIndexConfig,
        all: impl Iterator<Item = (SegmentId, NamedSegment)>,
    ) -> Result<FastIndex> {
        let mut segments = Segments::default();
        for (id, named) in all {
            segments.name(id, &named);
        }
        let what = config.kind;
        let (files, dir) = (&config.files, &what.folder(&config.fast));
        files
            .create_dir_all(dir)
            .map_err(|e| Error::io("create", dir, e))?;
        for name in files.list(dir).map_err(|e| Error::io("list", dir, e))? {
            let path = dir.join(&name);
            let number = name.strip_suffix(what.ending());
            let number = number.and_then(|number| number.parse().ok());
            let id = number.map(SegmentId).filter(|id| name == what.name_of(*id));
            match id {
                Some(id) if segments.all.contains_key(&id) => {
                    let file = files.open(&path, OpenMode::Read);
                    let len = file.and_then(|file| file.len());
                    let len = len.map_err(|e| Error::io("open", &path, e))?;
                    segments.note_bytes(id, Some(len));
                }
                Some(_) => {
                    files
                        .remove(&path)
                        .map_err(|e| Error::io("remove", &path, e))?;
                    tracing::info!(path = %path.display(), "removed the file of a dropped segment");
                }
                // Another program's file.
                None => {}
            }
        }
        // Entries of complete segments are larger, so the cache must not be divided into parts.
        let of_each = match what {
            RepeatKind::Index => 8192,
            RepeatKind::Newest => 1 << 16,
        };
        let items = usize::try_from(config.memory_bytes / of_each).unwrap_or(usize::MAX);
        let index = FastIndex {
            cache: Cache::with_weighter(items.clamp(16, 1 << 16), config.memory_bytes, FileWeight),
            dir: dir.clone(),
            space: AtomicU64::new(u64::MAX),
            retired: AtomicBool::default(),
            segments: Mutex::new(segments),
            paused_to: Mutex::default(),
            doubted: Mutex::default(),
            full_logged: AtomicBool::default(),
            counters: IndexCounters::default(),
            config,
        };
        index.let_go();
        Ok(index)
    }

    /// The kind of this index.
    pub(crate) fn kind(&self) -> RepeatKind {
        self.config.kind
    }

    /// The oldest position of a segment that should have a file; `None` = no segment should. Only
    /// for [`RepeatKind::Newest`].
    fn oldest_with_file(&self, segments: &Segments) -> Option<newest::SegmentPosition> {
        let cut = self.config.age_max.map_or(Timestamp::MIN, |age| {
            let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
            let now = self.config.clock.now();
            Timestamp::from_nanos(now.as_nanos().saturating_sub(age))
        });
        let most = self.config.bytes_max.unwrap_or(u64::MAX);
        let room = most.min(self.space.load(Ordering::Relaxed));
        segments.by_end.oldest_with_file(cut, room, |id| {
            let segment = segments.all.get(&id);
            segment.map_or(0, |segment| {
                file_bytes(segment.named.end()).max(segment.bytes.unwrap_or(0))
            })
        })
    }

    /// True when a segment should have a file: every segment for the index, otherwise the segments
    /// of the newest spans.
    fn should_have_file(&self, segments: &Segments, id: SegmentId) -> bool {
        self.config.kind == RepeatKind::Index
            || segments.all.get(&id).is_some_and(|segment| {
                let oldest = self.oldest_with_file(segments);
                oldest.is_some_and(|oldest| (segment.last, id) >= oldest)
            })
    }

    /// Removes the files of segments that are not among the newest any more, because of newer
    /// segments or of their age. Bulk has these segments.
    pub(crate) fn let_go(&self) {
        if self.config.kind == RepeatKind::Index {
            return;
        }
        let old = {
            let segments = self.segments.lock();
            let oldest = self.oldest_with_file(&segments);
            segments.by_end.with_file_before(oldest)
        };
        for id in old {
            self.take_away(id);
        }
    }

    /// Ends the use of the index after a change of the layout: from now on nothing is written, and
    /// every lookup fails.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        let all: Vec<(SegmentId, Arc<Mutex<()>>)> = {
            let segments = self.segments.lock();
            let all = segments.all.iter();
            all.map(|(id, s)| (*id, Arc::clone(&s.writing))).collect()
        };
        for (id, writing) in all {
            // A concurrent writer sees from now on that it must not write.
            let _alone = writing.lock();
            self.take_away(id);
        }
    }

    fn path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(self.config.kind.name_of(id))
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.lock().bytes
    }

    /// The number of segments that have a file.
    pub(crate) fn file_count(&self) -> u64 {
        wide(self.segments.lock().by_end.file_count())
    }

    /// Reads bytes of a segment; false unless the file has all of them.
    pub(crate) fn read(&self, id: SegmentId, offset: u64, out: &mut [u8]) -> bool {
        let Some(file) = self.file(id) else {
            return false;
        };
        match file.read(offset, out) {
            Ok(true) => {
                self.counters.reads.fetch_add(1, Ordering::Relaxed);
                true
            }
            Ok(false) => false,
            Err(Doubt(reason)) => {
                self.drop_doubted(id, &reason);
                false
            }
        }
    }

    /// The footer up to which the file has the index of a segment, and that footer's checksum.
    pub(crate) fn up_to(&self, id: SegmentId) -> Option<(UpTo, u32)> {
        let file = self.file(id)?;
        Some((file.up_to, file.footer_crc))
    }

    /// The file of a segment; `None` without a trusted one.
    fn file(&self, id: SegmentId) -> Option<Arc<IndexFile>> {
        if let Some(known) = self.cache.get(&id) {
            return Some(known);
        }
        let (named, bytes) = {
            let segments = self.segments.lock();
            let segment = segments.all.get(&id)?;
            (segment.named, segment.bytes?)
        };
        match self.load(id, &named, bytes) {
            Ok(file) => {
                let file = Arc::new(file);
                let segments = self.segments.lock();
                // If the file was dropped, removed or extended in the meantime, the next lookup
                // must not return this value.
                if segments
                    .all
                    .get(&id)
                    .is_some_and(|s| s.bytes == Some(bytes))
                {
                    self.cache.insert(id, Arc::clone(&file));
                }
                Some(file)
            }
            Err(Doubt(reason)) => {
                self.drop_doubted(id, &reason);
                None
            }
        }
    }

    fn load(
        &self,
        id: SegmentId,
        named: &UpTo,
        bytes: u64,
    ) -> std::result::Result<IndexFile, Doubt> {
        let header = self.header(id);
        let file = IndexFile::load(&*self.config.files, &self.path(id), header, bytes)?;
        let up_to = &file.up_to;
        if up_to.footer_offset > named.footer_offset {
            return Err(Doubt("it is newer than the segment".into()));
        }
        if up_to.footer_offset == named.footer_offset {
            let is_same_chain = match (&up_to.chain, &named.chain) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            };
            if up_to.footer_bytes != named.footer_bytes || !is_same_chain {
                return Err(Doubt("it belongs to another segment of this number".into()));
            }
        }
        Ok(file)
    }

    fn header(&self, id: SegmentId) -> IndexHeader {
        IndexHeader {
            set: self.config.set,
            segment: id,
        }
    }

    /// Drops the file of a segment that is not trusted; it is rebuilt later.
    pub(crate) fn drop_doubted(&self, id: SegmentId, reason: &str) {
        if self.take_away(id) {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                path = %self.path(id).display(),
                reason,
                "dropped the index of a segment in the fast tier; it is read from the segment and rebuilt"
            );
        }
    }

    /// As [`FastIndex::drop_doubted`], for a reader that detects damaged contents and then reads
    /// the segment itself: once per segment, since the segment may be damaged too. False without a
    /// file.
    pub(crate) fn drop_once(&self, id: SegmentId, reason: &str) -> bool {
        let is_there = self.file(id).is_some();
        if is_there && self.doubted.lock().insert(id) {
            self.drop_doubted(id, reason);
            return true;
        }
        false
    }

    /// Removes the file of a segment that itself stays. True if it existed.
    fn take_away(&self, id: SegmentId) -> bool {
        let had = {
            let mut segments = self.segments.lock();
            let Some(segment) = segments.all.get_mut(&id) else {
                return false;
            };
            segment.removals += 1;
            let had = segment.bytes.is_some();
            let shard = segment.shard;
            segments.behind.insert((shard, id));
            segments.note_bytes(id, None);
            self.cache.remove(&id);
            had
        };
        if had {
            self.unlink(id);
        }
        had
    }

    /// Removes a segment, and its file.
    pub(crate) fn forget(&self, id: SegmentId) {
        let segment = {
            let mut segments = self.segments.lock();
            segments.note_bytes(id, None);
            let segment = segments.all.remove(&id);
            if let Some(segment) = &segment {
                segments.behind.remove(&(segment.shard, id));
                segments.by_end.remove((segment.last, id));
            }
            self.cache.remove(&id);
            segment
        };
        if segment.is_some() {
            self.unlink(id);
        }
    }

    fn unlink(&self, id: SegmentId) {
        if self.config.guard.is_forked() {
            return;
        }
        let path = self.path(id);
        match self.config.files.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // The file is not read any more; a later opening removes or drops it.
                tracing::warn!(path = %path.display(), %error, "cannot remove the file of a segment");
            }
            _ => {}
        }
    }

    /// Records the new state of a segment in the metadata.
    pub(crate) fn named(&self, id: SegmentId, named: &NamedSegment) {
        self.segments.lock().name(id, named);
        self.let_go();
    }

    /// The first segment of a shard, from `from` on, whose file is incomplete, while writing is
    /// allowed.
    pub(crate) fn next_behind(&self, shard: ShardIndex, from: SegmentId) -> Option<SegmentId> {
        if self.is_paused() {
            return None;
        }
        let segments = self.segments.lock();
        let behind = segments.behind.range((shard, from)..);
        let mut behind = behind.take_while(|(of, _)| *of == shard).map(|(_, id)| *id);
        if self.config.kind == RepeatKind::Index {
            return behind.next();
        }
        let oldest = self.oldest_with_file(&segments)?;
        behind.find(|id| {
            let segment = segments.all.get(id);
            segment.is_some_and(|segment| (segment.last, *id) >= oldest)
        })
    }

    fn is_paused(&self) -> bool {
        let now = self.config.clock.monotonic();
        self.retired.load(Ordering::Acquire)
            || self.config.guard.is_closed()
            || now < *self.paused_to.lock()
    }

    /// Stops writing for a while.
    fn pause(&self) {
        *self.paused_to.lock() = self.config.clock.monotonic() + SPACE_PATIENCE;
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        if !self.full_logged.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                dir = %self.dir.display(),
                "the fast tier has no room for more segments; the rest is read from the bulk device"
            );
        }
    }

    /// Frees space for writes that must not be refused: all files are removed, and no file is
    /// written for a while. Later the newest segments take at most half of their previous space.
    pub(crate) fn free_space(&self) {
        let (ids, bytes): (Vec<SegmentId>, u64) = {
            let segments = self.segments.lock();
            let held = segments.all.iter().filter(|(_, s)| s.bytes.is_some());
            (held.map(|(id, _)| *id).collect(), segments.bytes)
        };
        if ids.is_empty() && self.is_paused() {
            return;
        }
        if !ids.is_empty() {
            self.space.store(bytes / 2, Ordering::Relaxed);
        }
        self.pause();
        for id in ids {
            self.take_away(id);
        }
    }

    /// Gives up a segment whose missing bytes cannot be read at present; it is tried again at the
    /// next commit of the segment.
    pub(crate) fn leave(&self, id: SegmentId) {
        let mut segments = self.segments.lock();
        if let Some(shard) = segments.all.get(&id).map(|segment| segment.shard) {
            segments.behind.remove(&(shard, id));
        }
    }

    /// Starts to write the missing bytes of a segment up to this footer; `None` when nothing is
    /// missing, or nothing may be written now.
    pub(crate) fn writing(&self, id: SegmentId, to: UpTo) -> Option<Writing<'_>> {
        if self.is_paused() {
            return None;
        }
        let lock = {
            let segments = self.segments.lock();
            let segment = segments.all.get(&id)?;
            // False for an older state of the segment: the job that made the newer state writes it.
            (segment.named.footer_offset == to.footer_offset
                && self.should_have_file(&segments, id))
            .then(|| Arc::clone(&segment.writing))?
        };
        Some(Writing {
            index: self,
            id,
            to,
            lock,
        })
    }

    /// Records that a file was written up to `to`; `removals` is the counter of its segment from
    /// before.
    fn note_written(&self, id: SegmentId, to: &UpTo, file: IndexFile, removals: Option<u64>) {
        self.full_logged.store(false, Ordering::Release);
        let is_needed = {
            let mut segments = self.segments.lock();
            let segment = segments.all.get(&id);
            let is_needed = segment.is_some() && segment.map(|s| s.removals) == removals;
            if is_needed {
                segments.note_bytes(id, Some(file.end));
                segments.mark_written_up_to(id, to);
                self.cache.insert(id, Arc::new(file));
            }
            is_needed
        };
        if !is_needed {
            // The file, or its segment, was removed in the meantime.
            self.unlink(id);
        }
    }

    fn removals(&self, id: SegmentId) -> Option<u64> {
        Some(self.segments.lock().all.get(&id)?.removals)
    }
}
