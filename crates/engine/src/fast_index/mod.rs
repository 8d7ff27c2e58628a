//! The index of segments, kept in the fast tier: of each segment `ID.idx` repeats those bytes that
//! say where rows lie, and those of the pyramid, so that who looks for them does not ask bulk.
//!
//! A segment in bulk stays complete, and bytes below its committed length never change. So a file
//! here is a durable cache: it may be behind, then the rest is read in bulk; it is dropped at any
//! doubt, and made anew from the segment. See docs/format/fastindex.md.
//!
//! Invariants: a file holds nothing beyond the footer that the metadata named when it was written;
//! nothing is read from one that reaches further than the metadata do, or that is not of this
//! database. No backup, copy or state has any of it.
//! Concurrency: one lock over what there is, never held over I/O; for each segment one lock that is
//! held while its file is written, which only who writes it takes. Readers take neither longer than
//! to find a file.
//! Failure: none that anybody but the log is told of. What cannot be written is not kept, and not
//! tried again for a while; the database is never latched.

mod file;
mod format;

pub(crate) use file::ReadSegment;
pub(crate) use format::UpTo;
#[cfg(fuzzing)]
pub(crate) use format::fuzz;

use crate::guard::Guard;
use crate::ids::{SegmentId, ShardIndex};
use crate::reserve::is_full;
use crate::{Error, Result};
use file::{Doubt, IndexFile, NewBatch, NotAppended, bytes_of};
use format::IndexHeader;
use headwater_io::{Clock, Files, OpenMode};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// After a full medium nothing is written for so long.
const SPACE_PATIENCE: Duration = Duration::from_secs(60);

/// Where the files are, in the folder of a fast tier.
pub(crate) fn folder(fast: &Path) -> PathBuf {
    fast.join("index")
}

/// Removes all that was kept in the folder of a fast tier: for who changes segments, or leaves the
/// tier.
pub(crate) fn clear(files: &dyn Files, fast: &Path) -> Result<()> {
    let dir = folder(fast);
    let names = match files.list(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| Error::io("list", &dir, e))?,
    };
    for name in names.iter().filter(|name| name.ends_with(".idx")) {
        let path = dir.join(name);
        files
            .remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    files.sync_dir(&dir).map_err(|e| Error::io("sync", &dir, e))
}

/// What was read here and what was not, since opening.
#[derive(Debug, Default)]
pub(crate) struct IndexCounters {
    /// Reads that were answered.
    pub(crate) reads: AtomicU64,
    /// Files that were dropped because of a doubt.
    pub(crate) dropped: AtomicU64,
    /// How often something was not kept for want of room.
    pub(crate) refused: AtomicU64,
}

/// Who keeps an index where.
pub(crate) struct Place {
    pub(crate) files: Arc<dyn Files>,
    /// Where the files lie.
    pub(crate) dir: PathBuf,
    /// The number of the database's set of tiers.
    pub(crate) set: u64,
    /// Most bytes of all files; `None` = no limit.
    pub(crate) bytes_max: Option<u64>,
    /// Bytes of memory for knowing what files hold.
    pub(crate) memory_bytes: u64,
    pub(crate) guard: Arc<Guard>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Counts what is written to the tier.
    pub(crate) written: Arc<AtomicU64>,
}

/// A segment that the metadata name.
struct Segment {
    shard: ShardIndex,
    named: UpTo,
    /// Bytes of its file; `None` = there is none.
    bytes: Option<u64>,
    /// How often a file was taken away: one that is written meanwhile does not count.
    taken_away: u64,
    /// Held while its file is written.
    writing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Segments {
    all: HashMap<SegmentId, Segment>,
    /// Those whose files may be behind, or not there.
    behind: BTreeSet<(ShardIndex, SegmentId)>,
    bytes: u64,
}

impl Segments {
    fn note_bytes(&mut self, id: SegmentId, bytes: Option<u64>) {
        if let Some(segment) = self.all.get_mut(&id) {
            let before = std::mem::replace(&mut segment.bytes, bytes);
            self.bytes = self.bytes.saturating_sub(before.unwrap_or(0));
            self.bytes += bytes.unwrap_or(0);
        }
    }

    /// The file of a segment reaches up to this footer.
    fn is_up_to(&mut self, id: SegmentId, to: &UpTo) {
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

/// The index of the segments of a database, in its fast tier.
pub(crate) struct FastIndex {
    place: Place,
    segments: Mutex<Segments>,
    /// What files hold, as far as it was asked for lately.
    known: Cache<SegmentId, Arc<IndexFile>, FileWeight>,
    /// Nothing is written before this instant.
    paused_to: Mutex<Duration>,
    /// Segments whose files were dropped since what they hold is not in order.
    doubted: Mutex<HashSet<SegmentId>>,
    /// Someone was told that there is no room since there was some.
    told: AtomicBool,
    pub(crate) counters: IndexCounters,
}

impl std::fmt::Debug for FastIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastIndex")
            .field("dir", &self.place.dir)
            .finish_non_exhaustive()
    }
}

impl FastIndex {
    /// The index of these segments, as the metadata name them. What the folder holds of others is
    /// removed.
    pub(crate) fn open(
        place: Place,
        named: impl Iterator<Item = (SegmentId, ShardIndex, UpTo)>,
    ) -> Result<FastIndex> {
        let mut segments = Segments::default();
        for (id, shard, named) in named {
            let segment = Segment {
                shard,
                named,
                bytes: None,
                taken_away: 0,
                writing: Arc::default(),
            };
            segments.behind.insert((shard, id));
            segments.all.insert(id, segment);
        }
        let (files, dir) = (&place.files, &place.dir);
        files
            .create_dir_all(dir)
            .map_err(|e| Error::io("create", dir, e))?;
        for name in files.list(dir).map_err(|e| Error::io("list", dir, e))? {
            let path = dir.join(&name);
            let number = name.strip_suffix(".idx").and_then(|n| n.parse().ok());
            let id = number.map(SegmentId).filter(|id| name == name_of(*id));
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
                    tracing::info!(path = %path.display(), "removed the index of a segment that is gone");
                }
                // Not one of ours.
                None => {}
            }
        }
        let items = usize::try_from(place.memory_bytes / 8192).unwrap_or(usize::MAX);
        Ok(FastIndex {
            known: Cache::with_weighter(items.clamp(16, 1 << 16), place.memory_bytes, FileWeight),
            segments: Mutex::new(segments),
            paused_to: Mutex::default(),
            doubted: Mutex::default(),
            told: AtomicBool::default(),
            counters: IndexCounters::default(),
            place,
        })
    }

    fn path(&self, id: SegmentId) -> PathBuf {
        self.place.dir.join(name_of(id))
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.lock().bytes
    }

    /// Reads bytes of a segment, if they are all here.
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

    /// Up to which footer the index of a segment is here, and that footer's checksum.
    pub(crate) fn up_to(&self, id: SegmentId) -> Option<(UpTo, u32)> {
        let file = self.file(id)?;
        Some((file.up_to, file.footer_crc))
    }

    /// What the file of a segment holds; none without one that is believed.
    fn file(&self, id: SegmentId) -> Option<Arc<IndexFile>> {
        if let Some(known) = self.known.get(&id) {
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
                // Dropped, removed or longer by now: who asks next must not find this.
                if segments
                    .all
                    .get(&id)
                    .is_some_and(|s| s.bytes == Some(bytes))
                {
                    self.known.insert(id, Arc::clone(&file));
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
        let file = IndexFile::load(&*self.place.files, &self.path(id), header, bytes)?;
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
                return Err(Doubt("it is that of another segment of this number".into()));
            }
        }
        Ok(file)
    }

    fn header(&self, id: SegmentId) -> IndexHeader {
        IndexHeader {
            set: self.place.set,
            segment: id,
        }
    }

    /// Drops the file of a segment that is not believed; it is made anew later.
    pub(crate) fn drop_doubted(&self, id: SegmentId, reason: &str) {
        if self.take_away(id) {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                path = %self.path(id).display(),
                reason,
                "the index of a segment in the fast tier is dropped; it is read in the segment and made anew"
            );
        }
    }

    /// As [`FastIndex::drop_doubted`], for who found that what a segment holds is not in order,
    /// and asks the segment itself: once, since that may be as damaged. False without a file.
    pub(crate) fn drop_once(&self, id: SegmentId, reason: &str) -> bool {
        let is_there = self.file(id).is_some();
        if is_there && self.doubted.lock().insert(id) {
            self.drop_doubted(id, reason);
            return true;
        }
        false
    }

    /// Removes the file of a segment that stays. True if there was one.
    fn take_away(&self, id: SegmentId) -> bool {
        let had = {
            let mut segments = self.segments.lock();
            let Some(segment) = segments.all.get_mut(&id) else {
                return false;
            };
            segment.taken_away += 1;
            let had = segment.bytes.is_some();
            let shard = segment.shard;
            segments.behind.insert((shard, id));
            segments.note_bytes(id, None);
            self.known.remove(&id);
            had
        };
        if had {
            self.unlink(id);
        }
        had
    }

    /// The segment is gone, and its file goes with it.
    pub(crate) fn forget(&self, id: SegmentId) {
        let segment = {
            let mut segments = self.segments.lock();
            segments.note_bytes(id, None);
            let segment = segments.all.remove(&id);
            if let Some(segment) = &segment {
                segments.behind.remove(&(segment.shard, id));
            }
            self.known.remove(&id);
            segment
        };
        if segment.is_some() {
            self.unlink(id);
        }
    }

    fn unlink(&self, id: SegmentId) {
        if self.place.guard.is_forked() {
            return;
        }
        let path = self.path(id);
        match self.place.files.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // It is not read any more; a later opening removes or drops it.
                tracing::warn!(path = %path.display(), %error, "cannot remove the index of a segment");
            }
            _ => {}
        }
    }

    /// The metadata name a segment up to this footer from now on.
    pub(crate) fn named(&self, id: SegmentId, shard: ShardIndex, named: UpTo) {
        let mut segments = self.segments.lock();
        let segment = segments.all.entry(id).or_insert_with(|| Segment {
            shard,
            named,
            bytes: None,
            taken_away: 0,
            writing: Arc::default(),
        });
        segment.named = named;
        segments.behind.insert((shard, id));
    }

    /// A segment of a shard whose file is behind, from this one on, while anything may be written.
    pub(crate) fn next_behind(&self, shard: ShardIndex, from: SegmentId) -> Option<SegmentId> {
        if self.is_paused() {
            return None;
        }
        let segments = self.segments.lock();
        let mut behind = segments.behind.range((shard, from)..);
        let (of, id) = behind.next()?;
        (*of == shard).then_some(*id)
    }

    fn is_paused(&self) -> bool {
        let now = self.place.clock.monotonic();
        self.place.guard.is_closed() || now < *self.paused_to.lock()
    }

    /// Nothing is written for a while.
    fn pause(&self) {
        *self.paused_to.lock() = self.place.clock.monotonic() + SPACE_PATIENCE;
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        if !self.told.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                dir = %self.place.dir.display(),
                "there is no room for more of the index in the fast tier: the rest is read in bulk"
            );
        }
    }

    /// Makes room for what must not be refused: all files go, and none is written for a while.
    pub(crate) fn give_way(&self) {
        let ids: Vec<SegmentId> = {
            let segments = self.segments.lock();
            let held = segments.all.iter().filter(|(_, s)| s.bytes.is_some());
            held.map(|(id, _)| *id).collect()
        };
        if ids.is_empty() && self.is_paused() {
            return;
        }
        self.pause();
        for id in ids {
            self.take_away(id);
        }
    }

    /// What a segment's file does not have cannot be read just now: it is asked for again when the
    /// segment is named anew.
    pub(crate) fn leave(&self, id: SegmentId) {
        let mut segments = self.segments.lock();
        if let Some(shard) = segments.all.get(&id).map(|segment| segment.shard) {
            segments.behind.remove(&(shard, id));
        }
    }

    /// Begins to write what is missing of a segment up to this footer; `None` when nothing is
    /// missing, or nothing may be written now.
    pub(crate) fn writing(&self, id: SegmentId, to: UpTo) -> Option<Writing<'_>> {
        if self.is_paused() {
            return None;
        }
        let lock = {
            let segments = self.segments.lock();
            let segment = segments.all.get(&id)?;
            // Somebody looks at an older state of it; who made the newer one has it written.
            (segment.named.footer_offset == to.footer_offset)
                .then(|| Arc::clone(&segment.writing))?
        };
        Some(Writing {
            index: self,
            id,
            to,
            lock,
        })
    }

    /// A file was written up to `to`; `taken_away` is what it was for its segment before.
    fn note_written(&self, id: SegmentId, to: &UpTo, file: IndexFile, taken_away: Option<u64>) {
        self.told.store(false, Ordering::Release);
        let is_wanted = {
            let mut segments = self.segments.lock();
            let segment = segments.all.get(&id);
            let is_wanted = segment.is_some() && segment.map(|s| s.taken_away) == taken_away;
            if is_wanted {
                segments.note_bytes(id, Some(file.end));
                segments.is_up_to(id, to);
                self.known.insert(id, Arc::new(file));
            }
            is_wanted
        };
        if !is_wanted {
            // It, or its segment, has gone meanwhile.
            self.unlink(id);
        }
    }

    fn taken_away(&self, id: SegmentId) -> Option<u64> {
        Some(self.segments.lock().all.get(&id)?.taken_away)
    }
}

/// The index of a segment while it is written.
pub(crate) struct Writing<'a> {
    index: &'a FastIndex,
    id: SegmentId,
    to: UpTo,
    lock: Arc<Mutex<()>>,
}

impl Writing<'_> {
    /// The footer up to which everything is here; `None` = nothing is.
    pub(crate) fn from(&self) -> Option<UpTo> {
        Some(self.index.file(self.id)?.up_to)
    }

    /// Nothing is missing.
    pub(crate) fn is_whole(&self) -> bool {
        let from = self.from();
        let is_whole = from.is_some_and(|up_to| up_to.footer_offset == self.to.footer_offset);
        if is_whole {
            self.index.segments.lock().is_up_to(self.id, &self.to);
        }
        is_whole
    }

    /// The footers of the segment do not lead to where the file ends.
    pub(crate) fn doubt(&self, reason: &str) {
        self.index.drop_doubted(self.id, reason);
    }

    /// Writes these stretches of the segment, which rise, behind what is here up to `from`.
    pub(crate) fn append(
        &self,
        from: Option<UpTo>,
        ranges: &[(u64, u64)],
        footer_crc: u32,
        segment: ReadSegment<'_>,
    ) -> Result<()> {
        let _alone = self.lock.lock();
        let index = self.index;
        let taken_away = index.taken_away(self.id);
        let before = index.file(self.id);
        if before.as_ref().map(|file| file.up_to) != from {
            // Somebody else was faster.
            return Ok(());
        }
        let most = index.place.bytes_max.unwrap_or(u64::MAX);
        if index.bytes().saturating_add(bytes_of(ranges)) > most {
            index.pause();
            return Ok(());
        }
        let batch = NewBatch {
            header: index.header(self.id),
            up_to: self.to,
            footer_crc,
            ranges,
        };
        let (files, path) = (&*index.place.files, index.path(self.id));
        let end = before.as_ref().map_or(0, |file| file.end);
        let written = match &before {
            Some(file) => file.appended(files, &path, &batch, segment),
            None => {
                // What is not believed may still lie there.
                index.unlink(self.id);
                IndexFile::begin(files, &path, &batch, segment)
            }
        };
        match written {
            Ok(file) => {
                let grown = file.end.saturating_sub(end);
                index.place.written.fetch_add(grown, Ordering::Relaxed);
                index.note_written(self.id, &self.to, file, taken_away);
                Ok(())
            }
            Err(failed) => {
                // What stands behind the last batch now would be in doubt.
                index.take_away(self.id);
                index.unlink(self.id);
                match failed {
                    NotAppended::Segment(error) => Err(error),
                    NotAppended::File(error) if is_full(&error) => {
                        index.pause();
                        Ok(())
                    }
                    NotAppended::File(error) => {
                        index.pause();
                        Err(Error::io("write", &path, error))
                    }
                }
            }
        }
    }
}

fn name_of(id: SegmentId) -> String {
    format!("{}.idx", id.0)
}
