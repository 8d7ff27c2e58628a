//! The files of segments whose rows were freed, replacing the files with rows.
//!
//! The rows of a partition may be *freed*: its segment then keeps its offsets, but of the bytes up
//! to its length only those that aggregates need remain. These and all bytes that are appended
//! later are in `ID.stub`. Opening `ID.seg` of such a segment returns a file with missing ranges;
//! `ID.seg` itself is removed when its last earlier reader ends.
//!
//! Invariants: a read of a missing range fails with its own error ([`MissingBytes`]), and is never
//! the end of a file; only readers that chose it read zeros. After a segment was recorded as freed,
//! `ID.seg` is not written. Concurrency: one lock, not held while another is taken; heads are read
//! without it. Failure: a head that cannot be read is damage of its file.

use super::present_ranges::{MissedRange, PresentRanges};
use super::stub::{STUB_FRONT_BYTES, StubHead, StubLayout};
use crate::common::error::{MissingBytes, StubDamage};
use crate::common::ids::{SegmentId, ShardIndex, TableId};
use headwater_io::{File, Files, OpenMode, pass_on_files};
use headwater_types::invariant::wide;
use headwater_types::{ByteRange, ClosedRange, Timestamp};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of a head, which is read as a whole: a segment has at most some ten thousand
/// ranges.
const HEAD_BYTES_MAX: u64 = 256 << 20;

/// The name of the file of a segment whose rows were freed.
pub(crate) fn stub_name(id: SegmentId) -> String {
    format!("{}.stub", id.0)
}

/// The segment of a stub's file name.
pub(crate) fn stub_of(name: &str) -> Option<SegmentId> {
    name.strip_suffix(".stub")?.parse().ok().map(SegmentId)
}

/// The files of segments, with stubs replacing those whose rows were freed.
#[derive(Debug)]
pub(crate) struct StubFiles {
    bare: Arc<dyn Files>,
    dir: PathBuf,
    state: RwLock<StubState>,
    /// For readers that search a file for footers, whatever else is in it.
    shows_zeros: bool,
}

#[derive(Debug, Default)]
struct StubState {
    /// The contents of their heads; `None` = not read yet.
    freed: BTreeMap<SegmentId, Option<Arc<StubLayout>>>,
    /// Segments that are being freed.
    claimed: BTreeSet<SegmentId>,
    /// Incremented when a segment is claimed.
    claims: u64,
}

impl StubFiles {
    pub(crate) fn new(bare: Arc<dyn Files>, dir: &Path) -> StubFiles {
        StubFiles {
            bare,
            dir: dir.to_owned(),
            state: RwLock::default(),
            shows_zeros: false,
        }
    }

    /// Reads freed bytes as zeros: for readers that search for footers, which recognise a footer by
    /// its own bytes.
    pub(crate) fn with_zeros(self) -> StubFiles {
        StubFiles {
            shows_zeros: true,
            ..self
        }
    }

    /// The files without stubs.
    pub(crate) fn bare(&self) -> &Arc<dyn Files> {
        &self.bare
    }

    pub(crate) fn stub_path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(stub_name(id))
    }

    fn segment_path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(format!("{}.seg", id.0))
    }

    /// Records that the rows of these segments were freed.
    pub(crate) fn set_freed(&self, ids: impl Iterator<Item = SegmentId>) {
        let mut state = self.state.write();
        for id in ids {
            state.claimed.remove(&id);
            state.freed.insert(id, None);
        }
    }

    /// Claims a segment whose rows are about to be freed: nothing may depend on them from now on.
    pub(crate) fn claim(&self, id: SegmentId) {
        let mut state = self.state.write();
        state.claimed.insert(id);
        state.claims += 1;
    }

    /// Ends the freeing of a segment that was claimed and not freed.
    pub(crate) fn unclaim(&self, id: SegmentId) {
        self.state.write().claimed.remove(&id);
    }

    /// Counter of claims.
    pub(crate) fn claims(&self) -> u64 {
        self.state.read().claims
    }

    pub(crate) fn is_freed(&self, id: SegmentId) -> bool {
        self.state.read().freed.contains_key(&id)
    }

    /// True when the segment was freed, or is about to be.
    pub(crate) fn is_claimed(&self, id: SegmentId) -> bool {
        let state = self.state.read();
        state.freed.contains_key(&id) || state.claimed.contains(&id)
    }

    pub(crate) fn has_freed(&self) -> bool {
        !self.state.read().freed.is_empty()
    }

    fn freed_layout(&self, id: SegmentId) -> Option<Option<Arc<StubLayout>>> {
        self.state.read().freed.get(&id).cloned()
    }

    fn layout(&self, id: SegmentId, file: &dyn File) -> io::Result<Arc<StubLayout>> {
        if let Some(Some(layout)) = self.freed_layout(id) {
            return Ok(layout);
        }
        let head = read_head(file, &self.stub_path(id), id)?;
        let layout = Arc::new(StubLayout::of(&head));
        if let Some(known) = self.state.write().freed.get_mut(&id) {
            *known = Some(Arc::clone(&layout));
        }
        Ok(layout)
    }

    /// The base of a freed segment, and the offset in its file of the bytes from the base on.
    /// `None` = the segment was not freed.
    pub(crate) fn tail(&self, id: SegmentId) -> io::Result<Option<(u64, u64)>> {
        if !self.is_freed(id) {
            return Ok(None);
        }
        let file = self.bare.open(&self.stub_path(id), OpenMode::Read)?;
        let layout = self.layout(id, &*file)?;
        Ok(Some((layout.base, layout.tail_at)))
    }

    /// The freed parts of a range of a segment, sorted and disjoint.
    pub(crate) fn freed_of(&self, id: SegmentId, range: ByteRange) -> io::Result<Vec<ByteRange>> {
        if !self.is_freed(id) {
            return Ok(Vec::new());
        }
        let file = match self.freed_layout(id) {
            Some(Some(layout)) => return Ok(layout.missing(range)),
            _ => self.bare.open(&self.stub_path(id), OpenMode::Read)?,
        };
        Ok(self.layout(id, &*file)?.missing(range))
    }

    fn freed_named(&self, path: &Path) -> Option<SegmentId> {
        if path.parent() != Some(self.dir.as_path()) {
            return None;
        }
        let id = path.file_name()?.to_str()?.strip_suffix(".seg")?;
        let id = SegmentId(id.parse().ok()?);
        self.is_freed(id).then_some(id)
    }

    /// Removes the file with the rows of a segment that were freed; true if it existed.
    pub(crate) fn remove_rows(&self, id: SegmentId) -> io::Result<bool> {
        match self.bare.remove(&self.segment_path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|()| true),
        }
    }
}

fn read_head(file: &dyn File, path: &Path, id: SegmentId) -> io::Result<StubHead> {
    let damaged = |offset: u64, expected: &str| {
        io::Error::other(StubDamage {
            file: path.to_owned(),
            offset,
            expected: expected.to_owned(),
        })
    };
    let len = file.len()?;
    if len < STUB_FRONT_BYTES {
        return Err(damaged(len, "the head of a stub"));
    }
    let read = |bytes: u64| -> io::Result<Vec<u8>> {
        let bytes = usize::try_from(bytes).map_err(|_| damaged(0, "a head that fits memory"))?;
        let mut out = vec![0; bytes];
        file.read_exact_at(0, &mut out)?;
        Ok(out)
    };
    let bytes = StubHead::head_bytes(&read(STUB_FRONT_BYTES)?)
        .map_err(|error| damaged(wide(error.offset), error.expected))?;
    if bytes > len.min(HEAD_BYTES_MAX) {
        return Err(damaged(20, "a head within the file"));
    }
    let head = StubHead::decode(&read(bytes)?)
        .map_err(|error| damaged(wide(error.offset), error.expected))?;
    match head.id == id {
        true => Ok(head),
        false => Err(damaged(8, &format!("the head of segment {}", id.0))),
    }
}

impl Files for StubFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let Some(id) = self.freed_named(path) else {
            return self.bare.open(path, mode);
        };
        if mode == OpenMode::CreateNew {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = self.bare.open(&self.stub_path(id), mode)?;
        let layout = self.layout(id, &*file)?;
        let rows = match self.bare.open(path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other?),
        };
        Ok(Arc::new(StubFile {
            layout,
            file,
            rows,
            shows_zeros: self.shows_zeros,
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.freed_named(path) {
            None => self.bare.remove(path),
            Some(id) => {
                self.remove_rows(id)?;
                self.bare.remove(&self.stub_path(id))
            }
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.freed_named(path) {
            None => self.bare.exists(path),
            Some(id) => self.bare.exists(&self.stub_path(id)),
        }
    }

    pass_on_files!(bare; list create_dir_all sync_dir lock lock_file);
}

impl PresentRanges for StubFiles {
    fn missing(&self, segment: SegmentId, range: ByteRange) -> Vec<ByteRange> {
        match self.freed_of(segment, range) {
            Ok(missing) => missing,
            Err(error) => {
                // The reader of the segment reports the error.
                tracing::debug!(%error, segment = segment.0, "cannot read the stub of a segment");
                vec![range]
            }
        }
    }

    fn missing_frame(&self, _: SegmentId) -> Vec<ByteRange> {
        Vec::new()
    }

    fn is_older(&self, _: SegmentId) -> bool {
        false
    }

    fn left_out(&self, _: TableId, _: ShardIndex, _: &ClosedRange) -> Option<Timestamp> {
        None
    }

    fn missed_frame(&self, _: SegmentId) {}

    fn has_reader(&self) -> bool {
        false
    }

    fn missed_too(&self, _: &[MissedRange]) {}
}

/// A segment file with freed bytes.
#[derive(Debug)]
struct StubFile {
    layout: Arc<StubLayout>,
    file: Arc<dyn File>,
    /// The file with the rows, as long as it exists.
    rows: Option<Arc<dyn File>>,
    shows_zeros: bool,
}

impl StubFile {
    /// Location in the file of an offset from the base on.
    fn tail(&self, offset: u64) -> io::Result<u64> {
        match offset.checked_sub(self.layout.base) {
            Some(behind) => Ok(self.layout.tail_at.saturating_add(behind)),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a segment whose rows were freed is read-only",
            )),
        }
    }
}

impl File for StubFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let base = self.layout.base;
        if offset >= base {
            return self.file.read_at(self.tail(offset)?, buf);
        }
        let wanted = wide(buf.len()).min(base - offset);
        let (file, place, bytes) = match (&self.rows, self.layout.find(offset)) {
            (Some(rows), _) => (rows, offset, wanted),
            (None, Some(found)) => (&self.file, found.start(), found.len().min(wanted)),
            (None, None) if self.shows_zeros => {
                let missing = self.layout.missing(ByteRange::at(offset, wanted));
                let bytes = missing.first().map_or(0, |range| range.len());
                let count = usize::try_from(bytes).unwrap_or(usize::MAX);
                let zeros = buf.iter_mut().take(count).map(|byte| *byte = 0);
                return Ok(zeros.count());
            }
            (None, None) => {
                return Err(io::Error::other(MissingBytes {
                    offset,
                    bytes: wanted,
                }));
            }
        };
        let count = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Some(part) = buf.get_mut(..count) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        file.read_at(place, part)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(self.tail(offset)?, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        let (len, tail_at) = (self.file.len()?, self.layout.tail_at);
        // A file without some of the remaining bytes is shorter than was committed.
        Ok(match len.checked_sub(tail_at) {
            Some(behind) => self.layout.base.saturating_add(behind),
            None => self.layout.base.saturating_sub(tail_at - len),
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(self.tail(len)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_io::MemoryFiles;

    #[test]
    fn a_freed_segment_is_read_and_appended_to_at_its_own_offsets() {
        let bare: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let dir = Path::new("/segment");
        bare.create_dir_all(dir).unwrap();
        let stubs = StubFiles::new(Arc::clone(&bare), dir);
        let id = SegmentId(5);
        let head = StubHead::new(id, 20, vec![ByteRange::new(0, 4), ByteRange::new(10, 20)]);
        let mut bytes = head.encode();
        bytes.extend_from_slice(b"headfootfootxx");
        let path = dir.join("5.seg");
        let rows = bare.open(&path, OpenMode::CreateNew).unwrap();
        rows.write_all_at(0, b"headROWROWfootfootxx").unwrap();
        let stub = bare.open(&stubs.stub_path(id), OpenMode::CreateNew);
        stub.unwrap().write_all_at(0, &bytes).unwrap();

        let read = |file: &dyn File, offset, bytes| {
            let mut out = vec![0; bytes];
            file.read_exact_at(offset, &mut out).map(|()| out)
        };
        let plain = stubs.open(&path, OpenMode::Read).unwrap();
        assert_eq!(read(&*plain, 3, 5).unwrap(), b"dROWR");
        stubs.set_freed([id].into_iter());
        // A file opened while the rows exist reads them; new bytes are appended.
        let open = stubs.open(&path, OpenMode::Write).unwrap();
        assert_eq!(open.len().unwrap(), 20);
        open.write_all_at(20, b"late").unwrap();
        assert_eq!(read(&*open, 8, 16).unwrap(), b"OWfootfootxxlate");
        assert_eq!(rows.len().unwrap(), 20);
        assert_eq!(
            open.write_all_at(19, b"?").unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(stubs.remove_rows(id).unwrap());
        assert!(!stubs.remove_rows(id).unwrap());
        let open = stubs.open(&path, OpenMode::Write).unwrap();
        assert_eq!(read(&*open, 10, 14).unwrap(), b"footfootxxlate");
        let hole = read(&*open, 3, 5).unwrap_err();
        let hole = hole
            .get_ref()
            .unwrap()
            .downcast_ref::<MissingBytes>()
            .unwrap();
        assert_eq!((hole.offset, hole.bytes), (4, 4));
        open.set_len(22).unwrap();
        assert_eq!(open.len().unwrap(), 22);
        assert_eq!(
            read(&*open, 22, 1).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        let freed = stubs.freed_of(id, ByteRange::new(0, 22)).unwrap();
        assert_eq!(freed, [ByteRange::new(4, 10)]);
        let zeros = StubFiles::new(Arc::clone(&bare), dir).with_zeros();
        zeros.set_freed([id].into_iter());
        let open = zeros.open(&path, OpenMode::Read).unwrap();
        assert_eq!(read(&*open, 2, 10).unwrap(), b"ad\0\0\0\0\0\0fo");
        stubs.remove(&path).unwrap();
        assert!(bare.list(dir).unwrap().is_empty());
    }
}
