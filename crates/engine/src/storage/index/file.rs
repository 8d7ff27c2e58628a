//! Files of runs: `DIR/segment/SEGMENT.NUMBER.idx`, written once from the first byte to the last.
//!
//! Invariants: a file is durable, name included, before the metadata refer to it; it never changes.
//! A writer receives entries in the order of their keys. Failure: a writer that fails removes its
//! file.

use super::definition::{IndexId, RunRecord, types_of};
use super::front::{BlockLocation, Front};
use crate::common::ids::SegmentId;
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::entries::Entries;
use headwater_io::{File, Files, OpenMode};
use headwater_types::invariant::wide;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"HWINDEX\x01";
/// Loading a part of a run takes at most one byte per this number of bytes read without the run.
const LOADING_SHARE: u64 = 16;
/// Approximate number of bytes that are written to the file at once.
const WRITE_BYTES: usize = 256 << 10;

/// The path of a run's file.
fn path_of(dir: &Path, segment: SegmentId, number: u64) -> PathBuf {
    dir.join(format!("{}.{number}.idx", segment.0))
}

/// Parses a run's file name: the segment, and the number.
pub(crate) fn parse_name(name: &str) -> Option<(SegmentId, u64)> {
    let (segment, number) = name.strip_suffix(".idx")?.split_once('.')?;
    Some((SegmentId(segment.parse().ok()?), number.parse().ok()?))
}

/// A run. Its file is removed when the metadata do not refer to it any more and the last reader has
/// closed it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) segment: SegmentId,
    pub(crate) number: u64,
    pub(crate) record: RunRecord,
    path: PathBuf,
    files: Arc<dyn Files>,
    /// Set when the metadata do not refer to the run any more.
    forgotten: AtomicBool,
    /// Set when the run cannot be read: it is not used any more.
    damaged: AtomicBool,
    /// Bytes of leaves that were read in place of the run since a part of it was last worth
    /// loading.
    read_instead: AtomicU64,
}

impl Run {
    pub(crate) fn new(
        files: &Arc<dyn Files>,
        dir: &Path,
        (segment, number): (SegmentId, u64),
        record: RunRecord,
    ) -> Run {
        Run {
            segment,
            number,
            record,
            path: path_of(dir, segment, number),
            files: Arc::clone(files),
            forgotten: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            read_instead: AtomicU64::new(0),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Records that the metadata do not refer to the run any more.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }

    /// Stops the use of the run; logged once.
    pub(crate) fn set_damaged(&self, error: &Error) {
        if !self.damaged.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                path = %self.path.display(), %error,
                "cannot read a part of an index; the rows are read instead until it is rebuilt"
            );
        }
    }

    /// True when `bytes` of the run are worth loading without being cached, for a reader that would
    /// otherwise read `instead` bytes of leaves. Each of many streams reads little: costs that do
    /// not pay for a single stream pay for all of them, so that little is lost without space in the
    /// cache.
    pub(crate) fn is_worth_loading(&self, bytes: u64, instead: u64) -> bool {
        let before = self.read_instead.fetch_add(instead, Ordering::Relaxed);
        let is_worth = before.saturating_add(instead) / LOADING_SHARE >= bytes;
        if is_worth {
            self.read_instead.store(0, Ordering::Relaxed);
        }
        is_worth
    }

    /// Reads a part of the file.
    fn read(&self, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let file = self
            .files
            .open(&self.path, OpenMode::Read)
            .map_err(|e| Error::io("open", &self.path, e))?;
        let len = usize::try_from(bytes).map_err(|_| Error::internal("a part of 4 GiB"))?;
        let mut out = vec![0; len];
        file.read_exact_at(offset, &mut out)
            .map_err(|e| Error::io("read", &self.path, e))?;
        crate::storage::read_stats::bytes(u64::from(bytes));
        Ok(out)
    }

    /// Reads the front, and checks it against the record.
    pub(crate) fn front(&self) -> Result<Front> {
        let record = &self.record;
        let bytes = self.read(record.front_offset, record.front_bytes)?;
        let damaged = |expected: &str, found: String| {
            Error::damage(crate::common::error::Damage {
                file: self.path.clone(),
                offset: record.front_offset,
                expected: expected.to_owned(),
                found,
            })
        };
        let crc = crc32c(&bytes);
        if crc != record.front_crc {
            let expected = format!("the checksum {:08x}", record.front_crc);
            return Err(damaged(&expected, format!("{crc:08x}")));
        }
        let front = Front::decode(&bytes, wide(MAGIC.len()))
            .map_err(|e| Error::decode(&self.path, record.front_offset, e))?;
        if (front.index, front.segment) != (record.index, self.segment) {
            let expected = format!("index {} of segment {}", record.index.0, self.segment.0);
            let found = format!("index {} of segment {}", front.index.0, front.segment.0);
            return Err(damaged(&expected, found));
        }
        Ok(front)
    }

    /// Reads a block of entries.
    pub(crate) fn block(&self, place: &BlockLocation) -> Result<Entries> {
        let bytes = self.read(place.offset, place.bytes)?;
        let crc = bytes.last_chunk::<4>().map(|crc| u32::from_le_bytes(*crc));
        if crc != Some(place.crc) {
            return Err(Error::damage(crate::common::error::Damage {
                file: self.path.clone(),
                offset: place.offset,
                expected: format!("a block that ends with the checksum {:08x}", place.crc),
                found: format!("{crc:08x?}"),
            }));
        }
        Entries::decode(&bytes).map_err(|e| Error::decode(&self.path, place.offset, e))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.forgotten.load(Ordering::Acquire)
            && let Err(error) = self.files.remove(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            // The next opening removes the file: the metadata do not refer to it.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a part of an index");
        }
    }
}

/// Writes a run.
pub(crate) struct RunWriter {
    files: Arc<dyn Files>,
    dir: PathBuf,
    segment: SegmentId,
    number: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Bytes that are written next; `written` is their offset.
    buffer: Vec<u8>,
    written: u64,
    block: Entries,
    blocks: Vec<BlockLocation>,
    entries: u64,
    is_finished: bool,
}

impl RunWriter {
    pub(crate) fn new(
        files: &Arc<dyn Files>,
        dir: &Path,
        (segment, number): (SegmentId, u64),
    ) -> Result<RunWriter> {
        let path = path_of(dir, segment, number);
        let file = files
            .open(&path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &path, e))?;
        Ok(RunWriter {
            files: Arc::clone(files),
            dir: dir.to_owned(),
            segment,
            number,
            path,
            file,
            buffer: MAGIC.to_vec(),
            written: 0,
            block: Entries::new(),
            blocks: Vec::new(),
            entries: 0,
            is_finished: false,
        })
    }

    /// Adds the next entry.
    pub(crate) fn push(&mut self, key: &[u8], row: u32) -> Result<()> {
        if self.block.is_full() {
            self.end_block()?;
        }
        if !self.block.push(key, row) {
            return Err(Error::internal(format!(
                "an index entry out of order: row {row}, a key of {} bytes",
                key.len()
            )));
        }
        self.entries += 1;
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        let block = std::mem::take(&mut self.block);
        let Some(first_key) = block.first_key() else {
            return Ok(());
        };
        let bytes = block.encode();
        let too_long = |_| Error::internal("a block of index entries of 4 GiB");
        self.blocks.push(BlockLocation {
            first_key: first_key.into(),
            entries: u32::try_from(block.len()).map_err(too_long)?,
            offset: self.offset(),
            bytes: u32::try_from(bytes.len()).map_err(too_long)?,
            crc: bytes.last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc)),
        });
        self.buffer.extend_from_slice(&bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.written + wide(self.buffer.len())
    }

    fn write_out(&mut self) -> Result<()> {
        self.file
            .write_all_at(self.written, &self.buffer)
            .map_err(|e| Error::io("write", &self.path, e))?;
        self.written += wide(self.buffer.len());
        self.buffer.clear();
        Ok(())
    }

    /// Completes the file and makes it durable, with its name. `front` has no blocks yet.
    pub(crate) fn finish(
        mut self,
        index: IndexId,
        mut front: Front,
        complete_to: u64,
    ) -> Result<Run> {
        self.end_block()?;
        front.blocks = std::mem::take(&mut self.blocks);
        let bytes = front.encode();
        let front_offset = self.offset();
        self.buffer.extend_from_slice(&bytes);
        self.write_out()?;
        self.file
            .sync_data()
            .map_err(|e| Error::io("sync", &self.path, e))?;
        self.files
            .sync_dir(&self.dir)
            .map_err(|e| Error::io("sync", &self.dir, e))?;
        let record = RunRecord {
            index,
            front_offset,
            front_bytes: u32::try_from(bytes.len())
                .map_err(|_| Error::internal("a front of 4 GiB"))?,
            front_crc: crc32c(&bytes),
            entries: self.entries,
            rows: u64::from(front.rows()),
            complete_to,
            types: types_of(front.fields.iter().map(|(_, field_type)| *field_type)),
        };
        self.is_finished = true;
        let place = (self.segment, self.number);
        Ok(Run::new(&self.files, &self.dir, place, record))
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(error) = self.files.remove(&self.path)
        {
            // The next opening removes the file: the metadata do not refer to it.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove an unfinished part of an index");
        }
    }
}
