//! The bytes of segments in a copy, and segment files with missing ranges made from them.
//!
//! A pack has ranges of one segment, one after the other in the order of arrival; their locations
//! are in the index. A segment file that is read through a pack has the length that a state gives
//! it, and missing ranges where the copy has no bytes.
//!
//! Invariants: a missing range is a separate error ([`MissingBytes`]), never zeros and never the
//! end of a file. Bytes of a range never change. A pack that is not named any more is removed with
//! its last reader. Concurrency: readers lock the list of ranges for a lookup; ranges are only
//! added, except when they are forgotten.

use super::missed::MissedRanges;
use crate::common::error::MissingBytes;
use crate::common::ids::SegmentId;
use crate::device::layout::segment_dir;
use crate::storage::segment::MissedRange;
use headwater_io::{File, Files, Lock, LockError, OpenMode};
use headwater_types::ByteRange;
use headwater_types::invariant::wide;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A range of a segment, and its location in the pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) pack_offset: u64,
}

impl Present {
    fn end(&self) -> u64 {
        self.range().end()
    }

    fn range(&self) -> ByteRange {
        ByteRange::at(self.offset, self.bytes)
    }
}

/// The present ranges of a segment.
#[derive(Debug)]
pub(super) struct Pack {
    path: PathBuf,
    files: Arc<dyn Files>,
    /// By offset, disjoint.
    ranges: RwLock<Vec<Present>>,
    is_dropped: AtomicBool,
}

impl Drop for Pack {
    fn drop(&mut self) {
        if self.is_dropped.load(Ordering::Acquire) {
            match self.files.remove(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    // The next opening removes it: the index does not name it.
                    tracing::warn!(path = %self.path.display(), %error, "cannot remove a pack");
                }
                _ => {}
            }
        }
    }
}

impl Pack {
    pub(super) fn new(
        files: &Arc<dyn Files>,
        dir: &Path,
        id: SegmentId,
        mut ranges: Vec<Present>,
    ) -> Pack {
        ranges.sort_unstable_by_key(|r| r.offset);
        Pack {
            path: pack_path(dir, id),
            files: Arc::clone(files),
            ranges: RwLock::new(ranges),
            is_dropped: AtomicBool::new(false),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Marks the pack as dropped: the index does not name it any more.
    pub(super) fn set_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    pub(super) fn add(&self, new: &[Present]) {
        let mut ranges = self.ranges.write();
        ranges.extend_from_slice(new);
        ranges.sort_unstable_by_key(|r| r.offset);
        let are_apart = ranges.windows(2).all(|pair| match pair {
            [before, after] => before.end() <= after.offset,
            _ => true,
        });
        assert!(are_apart, "ranges of {} meet", self.path.display());
    }

    /// Forgets the ranges that overlap this one; returns their offsets.
    pub(super) fn forget(&self, range: ByteRange) -> Vec<u64> {
        let mut ranges = self.ranges.write();
        let meets = |r: &Present| r.offset < range.end() && range.start() < r.end();
        let forgotten = ranges
            .iter()
            .filter(|r| meets(r))
            .map(|r| r.offset)
            .collect();
        ranges.retain(|r| !meets(r));
        forgotten
    }

    /// The missing parts of a range; sorted, disjoint.
    pub(super) fn missing(&self, range: ByteRange) -> Vec<ByteRange> {
        missing(&self.ranges.read(), range)
    }

    /// True when all bytes of a range are present.
    pub(super) fn has(&self, range: ByteRange) -> bool {
        self.missing(range).is_empty()
    }

    /// The present ranges; sorted, disjoint.
    pub(super) fn present(&self) -> Vec<ByteRange> {
        self.ranges.read().iter().map(Present::range).collect()
    }

    /// Number of present bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.read().iter().map(|r| r.bytes).sum()
    }

    fn find(&self, offset: u64) -> Option<Present> {
        let ranges = self.ranges.read();
        let at = ranges.partition_point(|r| r.end() <= offset);
        ranges.get(at).filter(|r| r.offset <= offset).copied()
    }
}

/// The parts of a range outside `ranges`, which are sorted and disjoint.
pub(super) fn missing(ranges: &[Present], range: ByteRange) -> Vec<ByteRange> {
    let (mut at, end) = (range.start(), range.end());
    let from = ranges.partition_point(|r| r.end() <= at);
    let meeting = ranges.iter().skip(from).take_while(|r| r.offset < end);
    let mut out = Vec::new();
    for here in meeting {
        if at < here.offset {
            out.push(ByteRange::new(at, here.offset));
        }
        at = at.max(here.end());
    }
    if at < end {
        out.push(ByteRange::new(at, end));
    }
    out
}

pub(super) fn pack_dir(dir: &Path) -> PathBuf {
    dir.join("pack")
}

pub(super) fn pack_path(dir: &Path, id: SegmentId) -> PathBuf {
    pack_dir(dir).join(format!("{}.pack", id.0))
}

/// Segments of a state, read through packs, as if they were segments of a database in `root`.
#[derive(Debug)]
pub(super) struct PackFiles {
    root: PathBuf,
    /// Each with its valid length.
    segments: BTreeMap<SegmentId, (Arc<Pack>, u64)>,
    missed: Arc<MissedRanges>,
}

impl PackFiles {
    pub(super) fn new(
        root: &Path,
        segments: impl Iterator<Item = (SegmentId, Arc<Pack>, u64)>,
    ) -> PackFiles {
        PackFiles {
            root: root.to_owned(),
            missed: Arc::default(),
            segments: segments.map(|(id, pack, len)| (id, (pack, len))).collect(),
        }
    }

    /// Records the ranges that readers miss.
    pub(super) fn reporting_to(mut self, missed: &Arc<MissedRanges>) -> PackFiles {
        self.missed = Arc::clone(missed);
        self
    }

    fn id(&self, path: &Path) -> Option<SegmentId> {
        let name = path.strip_prefix(segment_dir(&self.root)).ok()?.to_str()?;
        name.strip_suffix(".seg")?.parse().ok().map(SegmentId)
    }

    fn segment(&self, path: &Path) -> Option<&(Arc<Pack>, u64)> {
        self.segments.get(&self.id(path)?)
    }

    /// The pack of a segment.
    pub(super) fn pack(&self, id: SegmentId) -> Option<&Arc<Pack>> {
        self.segments.get(&id).map(|(pack, _)| pack)
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Files for PackFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let id = self.id(path).ok_or(io::ErrorKind::NotFound)?;
        let (pack, len) = self.segments.get(&id).ok_or(io::ErrorKind::NotFound)?;
        if mode != OpenMode::Read {
            return read_only();
        }
        Ok(Arc::new(PartialFile {
            pack: Arc::clone(pack),
            len: *len,
            file: OnceLock::new(),
            missed: (id, Arc::clone(&self.missed)),
        }))
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if dir != segment_dir(&self.root) {
            return Ok(Vec::new());
        }
        let ids = self.segments.keys();
        Ok(ids.map(|id| format!("{}.seg", id.0)).collect())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.segment(path).is_some())
    }

    fn lock(&self, _: &Path, _: &str) -> Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }

    fn lock_file(&self, _: &Path) -> Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}

/// A segment file with missing ranges.
#[derive(Debug)]
struct PartialFile {
    pack: Arc<Pack>,
    len: u64,
    /// The pack, from the first successful read on.
    file: OnceLock<Arc<dyn File>>,
    /// The list in which misses of this segment are recorded.
    missed: (SegmentId, Arc<MissedRanges>),
}

impl PartialFile {
    fn file(&self) -> io::Result<&Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let opened = self.pack.files.open(&self.pack.path, OpenMode::Read)?;
        Ok(self.file.get_or_init(|| opened))
    }
}

impl File for PartialFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let wanted = self.len.saturating_sub(offset).min(wide(buf.len()));
        if wanted == 0 {
            return Ok(0);
        }
        let Some(range) = self.pack.find(offset) else {
            let (id, missed) = &self.missed;
            for missing in self.pack.missing(ByteRange::at(offset, wanted)) {
                missed.put(MissedRange::of(*id, missing));
            }
            return Err(io::Error::other(MissingBytes {
                offset,
                bytes: wanted,
            }));
        };
        let count = wanted.min(range.end() - offset);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let Some(part) = buf.get_mut(..count) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let place = range.pack_offset + (offset - range.offset);
        match self.file()?.read_at(place, part)? {
            // The range was synced before the index named it: bytes were lost since.
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }

    fn write_all_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn sync_data(&self) -> io::Result<()> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_io::MemoryFiles;

    #[test]
    fn what_is_missing_of_a_range_is_what_no_range_holds() {
        let present = |offset, bytes| Present {
            offset,
            bytes,
            pack_offset: 0,
        };
        let ranges = [present(10, 5), present(15, 5), present(40, 10)];
        let missing_of = |ranges: &[Present], start, end| {
            let missing = missing(ranges, ByteRange::new(start, end)).into_iter();
            missing.map(|r| (r.start(), r.end())).collect::<Vec<_>>()
        };
        assert_eq!(missing_of(&ranges, 0, 60), [(0, 10), (20, 40), (50, 60)]);
        assert_eq!(missing_of(&ranges, 12, 18), []);
        assert_eq!(missing_of(&ranges, 18, 48), [(20, 40)]);
        assert_eq!(missing_of(&ranges, 50, 51), [(50, 51)]);
        assert_eq!(missing_of(&[], 3, 7), [(3, 7)]);
        assert_eq!(missing_of(&ranges, 25, 25), []);
    }

    #[test]
    fn a_file_gives_what_is_here_and_a_hole_is_an_error_of_its_own() {
        let files: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let (dir, root) = (Path::new("/copy"), Path::new("/"));
        files.create_dir_all(&pack_dir(dir)).unwrap();
        let path = pack_path(dir, SegmentId(7));
        let file = files.open(&path, OpenMode::CreateNew).unwrap();
        file.write_all_at(0, b"worldhello ").unwrap();
        let ranges = [(106, 5, 0), (100, 6, 5)].map(|(offset, bytes, pack_offset)| Present {
            offset,
            bytes,
            pack_offset,
        });
        let pack = Arc::new(Pack::new(&files, dir, SegmentId(7), ranges.to_vec()));
        let segments = [(SegmentId(7), Arc::clone(&pack), 200)];
        let view = PackFiles::new(root, segments.into_iter());
        assert_eq!(view.list(Path::new("/segment")).unwrap(), ["7.seg"]);
        let segment = view.open(Path::new("/segment/7.seg"), OpenMode::Read);
        let segment = segment.unwrap();
        let read = |offset, bytes| {
            let mut out = vec![0; bytes];
            segment.read_exact_at(offset, &mut out).map(|()| out)
        };
        assert_eq!(read(100, 11).unwrap(), b"hello world");
        assert_eq!(read(104, 3).unwrap(), b"o w");
        let hole = |offset, bytes| {
            let error = read(offset, bytes).unwrap_err();
            *error
                .get_ref()
                .unwrap()
                .downcast_ref::<MissingBytes>()
                .unwrap()
        };
        let at = |offset, bytes| MissingBytes { offset, bytes };
        assert_eq!(hole(90, 5), at(90, 5));
        assert_eq!(hole(105, 30), at(111, 24));
        let behind = read(195, 10).unwrap_err();
        assert!(behind.get_ref().unwrap().is::<MissingBytes>());
        assert_eq!(
            read(200, 1).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        let error = view.open(Path::new("/segment/8.seg"), OpenMode::Read);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::NotFound);
        // The file is removed with its last reader.
        pack.set_dropped();
        drop((pack, view));
        assert!(files.exists(&path).unwrap());
        drop(segment);
        assert!(!files.exists(&path).unwrap());
    }
}
