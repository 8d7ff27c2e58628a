//! One `ID.idx`: the stretches of its segment in the file; reads and appends.
//!
//! Invariants: bytes read from the file equal the bytes of the segment when they were copied, by
//! checksums; a file only grows, so a reader may continue with an older value of it. Concurrency:
//! immutable; an append creates a new value. Failure: [`Doubt`]: the contents of the file are not
//! valid. The caller drops the file.

use super::format::{Batch, HEADER_BYTES, IndexHeader, PIECE_BYTES, Stretch, TRAILER_BYTES, UpTo};
use headwater_codec::DecodeError;
use headwater_codec::checksum::crc32c;
use headwater_io::{File, Files, OpenMode};
use headwater_types::ByteRange;
use headwater_types::invariant::wide;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes copied at once: a multiple of [`PIECE_BYTES`].
const COPY_BYTES: u64 = 1 << 20;

/// The reason for which a file is not trusted.
#[derive(Debug)]
pub(super) struct Doubt(pub(super) String);

impl From<io::Error> for Doubt {
    fn from(error: io::Error) -> Doubt {
        Doubt(error.to_string())
    }
}

impl From<DecodeError> for Doubt {
    fn from(error: DecodeError) -> Doubt {
        Doubt(format!("expected {}", error.expected))
    }
}

/// The reason for which a batch was not appended.
pub(super) enum NotAppended {
    /// The segment could not be read.
    Segment(crate::Error),
    /// The file could not be written.
    File(io::Error),
}

/// A stretch, and its location in the file.
#[derive(Debug)]
struct StoredStretch {
    stretch: Stretch,
    at: u64,
}

/// The contents of an index file.
#[derive(Debug)]
pub(super) struct IndexFile {
    file: Arc<dyn File>,
    /// The end of its last batch.
    pub(super) end: u64,
    /// The footer up to which the file has the index of its segment, and that footer's checksum.
    pub(super) up_to: UpTo,
    pub(super) footer_crc: u32,
    /// Stretches by their offsets in the segment; disjoint.
    stored: Vec<Arc<StoredStretch>>,
}

/// Reads a segment at an offset into a buffer.
pub(crate) type ReadSegment<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> crate::Result<()>;

/// A batch to append.
pub(super) struct NewBatch<'a> {
    pub(super) header: IndexHeader,
    pub(super) up_to: UpTo,
    pub(super) footer_crc: u32,
    /// Stretches of the segment, sorted.
    pub(super) ranges: &'a [ByteRange],
}

impl IndexFile {
    /// Loads the file at a path up to `len`, if it is complete and belongs to this segment. Bytes
    /// after `len` may be in the middle of being written.
    pub(super) fn load(
        files: &dyn Files,
        path: &Path,
        expected: IndexHeader,
        len: u64,
    ) -> Result<IndexFile, Doubt> {
        let file = files.open(path, OpenMode::Read)?;
        let header = read(&*file, 0, HEADER_BYTES)?;
        if IndexHeader::decode(&header)? != expected {
            return Err(Doubt("it belongs to another segment".into()));
        }
        let mut newest = None;
        let mut stored = Vec::new();
        let mut end = len;
        while end > HEADER_BYTES || newest.is_none() {
            let batch = batch_before(&*file, end)?;
            if batch.segment != expected.segment || batch.start < HEADER_BYTES {
                return Err(Doubt("a batch belongs to another segment".into()));
            }
            let mut at = batch.start;
            for stretch in batch.stretches {
                let bytes = stretch.bytes;
                stored.push(Arc::new(StoredStretch { stretch, at }));
                at += bytes;
            }
            newest.get_or_insert((batch.up_to, batch.footer_crc));
            end = batch.start;
        }
        let (up_to, footer_crc) = newest.ok_or_else(|| Doubt("it has no batch".into()))?;
        let stored = in_order(stored)?;
        if stored
            .last()
            .is_some_and(|last| last.stretch.end() > up_to.end())
        {
            return Err(Doubt("it contains more than its footers cover".into()));
        }
        Ok(IndexFile {
            file,
            end: len,
            up_to,
            footer_crc,
            stored,
        })
    }

    /// Reads bytes of the segment; false when the file does not have all of them.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<bool, Doubt> {
        let end = offset.saturating_add(wide(out.len()));
        let behind = self.stored.partition_point(|h| h.stretch.offset <= offset);
        let found = behind.checked_sub(1).and_then(|at| self.stored.get(at));
        let Some(held) = found.filter(|held| end <= held.stretch.end()) else {
            return Ok(false);
        };
        let stretch = &held.stretch;
        let (from, to) = (offset - stretch.offset, end - stretch.offset);
        let first = from / PIECE_BYTES * PIECE_BYTES;
        let last = to.next_multiple_of(PIECE_BYTES).min(stretch.bytes);
        let pieces = read(&*self.file, held.at + first, last - first)?;
        let number = usize::try_from(first / PIECE_BYTES).unwrap_or(usize::MAX);
        let len = usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX);
        for (at, piece) in pieces.chunks(len).enumerate() {
            if stretch.checksums.get(number.saturating_add(at)) != Some(&crc32c(piece)) {
                return Err(Doubt(format!("damaged near offset {}", held.at + first)));
            }
        }
        let skip = usize::try_from(from - first).unwrap_or(usize::MAX);
        match pieces.get(skip..skip.saturating_add(out.len())) {
            Some(wanted) => out.copy_from_slice(wanted),
            None => return Err(Doubt("a range ends early".into())),
        }
        Ok(true)
    }

    /// Creates a file with a first batch.
    pub(super) fn begin(
        files: &dyn Files,
        path: &Path,
        batch: &NewBatch<'_>,
        segment: ReadSegment<'_>,
    ) -> Result<IndexFile, NotAppended> {
        let file = files
            .open(path, OpenMode::CreateNew)
            .map_err(NotAppended::File)?;
        file.write_all_at(0, &batch.header.encode())
            .map_err(NotAppended::File)?;
        let begun = IndexFile {
            file,
            end: HEADER_BYTES,
            up_to: batch.up_to,
            footer_crc: batch.footer_crc,
            stored: Vec::new(),
        };
        let whole = begun.appended_to(Arc::clone(&begun.file), batch, segment)?;
        if let Some(dir) = path.parent() {
            files.sync_dir(dir).map_err(NotAppended::File)?;
        }
        Ok(whole)
    }

    /// Appends a batch, and returns the new value.
    pub(super) fn appended(
        &self,
        files: &dyn Files,
        path: &Path,
        batch: &NewBatch<'_>,
        segment: ReadSegment<'_>,
    ) -> Result<IndexFile, NotAppended> {
        let file = files
            .open(path, OpenMode::Write)
            .map_err(NotAppended::File)?;
        self.appended_to(file, batch, segment)
    }

    fn appended_to(
        &self,
        file: Arc<dyn File>,
        batch: &NewBatch<'_>,
        segment: ReadSegment<'_>,
    ) -> Result<IndexFile, NotAppended> {
        let mut stored = self.stored.clone();
        let mut at = self.end;
        let mut stretches = Vec::with_capacity(batch.ranges.len());
        for range in batch.ranges {
            let stretch = copy(*range, &*file, at, segment)?;
            stretches.push(stretch.clone());
            stored.push(Arc::new(StoredStretch { stretch, at }));
            at += range.len();
        }
        let record = Batch {
            start: self.end,
            segment: batch.header.segment,
            up_to: batch.up_to,
            footer_crc: batch.footer_crc,
            stretches,
        }
        .encode();
        file.write_all_at(at, &record).map_err(NotAppended::File)?;
        file.sync_data().map_err(NotAppended::File)?;
        stored.sort_by_key(|one| one.stretch.offset);
        Ok(IndexFile {
            file,
            end: at + wide(record.len()),
            up_to: batch.up_to,
            footer_crc: batch.footer_crc,
            stored,
        })
    }

    /// Approximate bytes of memory; an open file counts as some KiB.
    pub(super) fn weight(&self) -> u64 {
        let pieces: usize = self.stored.iter().map(|h| h.stretch.checksums.len()).sum();
        wide(4096 + self.stored.len() * (size_of::<StoredStretch>() + 32) + pieces * 4)
    }
}

/// Approximate bytes of the file that a batch of these stretches takes.
pub(super) fn bytes_of(ranges: &[ByteRange]) -> u64 {
    let bytes: u64 = ranges.iter().map(|range| range.len()).sum();
    bytes + bytes.div_ceil(PIECE_BYTES) * 4 + wide(ranges.len()) * 24 + 2 * HEADER_BYTES
}

fn read(file: &dyn File, offset: u64, bytes: u64) -> Result<Vec<u8>, Doubt> {
    let len = usize::try_from(bytes).map_err(|_| Doubt("a range larger than memory".into()))?;
    let mut out = vec![0; len];
    file.read_exact_at(offset, &mut out)?;
    Ok(out)
}

/// The batch whose record ends at `end`.
fn batch_before(file: &dyn File, end: u64) -> Result<Batch, Doubt> {
    let trailer = end
        .checked_sub(TRAILER_BYTES)
        .filter(|at| *at >= HEADER_BYTES);
    let trailer = trailer.ok_or_else(|| Doubt("it ends within a batch".into()))?;
    let bytes = Batch::record_bytes(&read(file, trailer, TRAILER_BYTES)?)?;
    let at = end.checked_sub(bytes).filter(|at| *at >= HEADER_BYTES);
    let at = at.ok_or_else(|| Doubt("a record longer than the file".into()))?;
    Ok(Batch::decode(&read(file, at, bytes)?, at)?)
}

/// Sorts stretches by their offsets; a [`Doubt`] if they overlap.
fn in_order(mut stored: Vec<Arc<StoredStretch>>) -> Result<Vec<Arc<StoredStretch>>, Doubt> {
    stored.sort_by_key(|one| one.stretch.offset);
    let overlap = stored.windows(2).any(|pair| match pair {
        [one, next] => one.stretch.end() > next.stretch.offset,
        _ => false,
    });
    match overlap {
        true => Err(Doubt("ranges overlap".into())),
        false => Ok(stored),
    }
}

/// Copies a stretch of the segment to an offset of the file.
fn copy(
    range: ByteRange,
    file: &dyn File,
    at: u64,
    segment: ReadSegment<'_>,
) -> Result<Stretch, NotAppended> {
    let (offset, bytes) = (range.start(), range.len());
    let mut checksums = Vec::new();
    let mut done = 0;
    let mut part = Vec::new();
    let piece = usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX);
    while done < bytes {
        let count = (bytes - done).min(COPY_BYTES);
        part.resize(usize::try_from(count).unwrap_or(0), 0);
        segment(offset + done, &mut part).map_err(NotAppended::Segment)?;
        checksums.extend(part.chunks(piece).map(crc32c));
        file.write_all_at(at + done, &part)
            .map_err(NotAppended::File)?;
        done += count;
    }
    Ok(Stretch {
        offset,
        bytes,
        checksums: checksums.into(),
    })
}
