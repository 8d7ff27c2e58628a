//! Space reserved for a full disk.
//!
//! `DIR/reserve` is a file of zeros. When the disk is full, it is released, and pending writes are
//! repeated in its space: writes of the log, of the running job, of the metadata. From then on new
//! writes fail with `full`, while reads, deletes, retention and compaction continue in the rest of
//! the space. As soon as there is space again the file is recreated, and writes continue
//! automatically.
//!
//! Its size grows with the log: rows that are in the log and not in segments may all need space at
//! once. So a small database has a small reserve; at a rest and a close it shrinks again.
//!
//! Invariants: writes are accepted only while the file is as large as the content of the log, or as
//! large as configured, so that accepted writes have their space. Concurrency: one lock, held while
//! the file is created or resized. Failure: when the reserve is used up too, a job is aborted and
//! retried; the log and the metadata latch with `full`.

use crate::{Error, ErrorKind, Result};
use headwater_io::{Clock, Completion, File, Files, OpenMode};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Minimum time between attempts to recreate the reserve.
const PATIENCE: Duration = Duration::from_millis(250);
const PART_BYTES: u64 = 1 << 20;
/// Minimum bytes of a reserve, unless less is configured.
const LEAST_BYTES: u64 = 1 << 20;
/// Its size at rest is this fraction (1/n) of the size of segments.
const PART_OF_SEGMENTS: u64 = 8;

/// The reserve of an open database.
#[derive(Debug)]
pub(crate) struct Reserve {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// Configured maximum of its size.
    most: u64,
    /// Its size, while it is not released.
    bytes: AtomicU64,
    released: AtomicBool,
    /// Number of releases of space: of the whole file, or of an incomplete one.
    freed: AtomicU64,
    /// Time of the last attempt to recreate it.
    tried: Mutex<Option<Duration>>,
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl Reserve {
    /// The reserve of the database in `dir`, created if missing; its maximum size is `most`. On a
    /// full disk it is missing at first.
    pub(crate) fn open(
        files: &Arc<dyn Files>,
        clock: &Arc<dyn Clock>,
        dir: &Path,
        most: u64,
    ) -> Result<Arc<Reserve>> {
        let reserve = Reserve {
            files: Arc::clone(files),
            clock: Arc::clone(clock),
            path: dir.join("reserve"),
            most,
            bytes: AtomicU64::new(0),
            released: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            tried: Mutex::new(None),
        };
        if let Err(error) = reserve.make(most.min(LEAST_BYTES)) {
            if !is_full(&error) {
                return Err(Error::io("create", &reserve.path, error));
            }
            tracing::warn!(path = %reserve.path.display(), "no space for the reserve: writes fail with `full` until there is");
            reserve.released.store(true, Ordering::Release);
        }
        Ok(Arc::new(reserve))
    }

    /// Creates or enlarges the file, unless it already has this many bytes.
    fn make(&self, bytes: u64) -> io::Result<()> {
        let (file, len) = match self.files.open(&self.path, OpenMode::Write) {
            Ok(file) => {
                let len = file.len()?;
                (file, len)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.files.open(&self.path, OpenMode::CreateNew)?, 0)
            }
            Err(error) => return Err(error),
        };
        let is_new = len < self.most.min(LEAST_BYTES);
        let made = match len {
            len if len > self.most => file.set_len(bytes).and_then(|()| file.sync_data()),
            len if len >= bytes => {
                self.bytes.store(len, Ordering::Release);
                return Ok(());
            }
            _ => self.fill(&*file, if is_new { 0 } else { len }, bytes, is_new),
        };
        if made.is_ok() {
            self.bytes.store(bytes, Ordering::Release);
            return Ok(());
        }
        drop(file);
        // An incomplete file must not fill the disk.
        match is_new {
            true => match self.files.remove(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
            false => self
                .files
                .open(&self.path, OpenMode::Write)?
                .set_len(len.min(self.most))?,
        }
        self.freed.fetch_add(1, Ordering::AcqRel);
        made
    }

    fn fill(&self, file: &dyn File, from: u64, to: u64, is_new: bool) -> io::Result<()> {
        let zeros = vec![0u8; usize::try_from((to - from).min(PART_BYTES)).unwrap_or(0)];
        let mut offset = from;
        while offset < to {
            let count = (to - offset).min(PART_BYTES);
            let part = zeros
                .get(..usize::try_from(count).unwrap_or(0))
                .unwrap_or_default();
            file.write_all_at(offset, part)?;
            offset += count;
        }
        file.sync_data()?;
        match self.path.parent() {
            Some(dir) if is_new => self.files.sync_dir(dir),
            _ => Ok(()),
        }
    }

    /// The size for a log with this many bytes.
    fn size_for(&self, log_bytes: u64) -> u64 {
        let mut bytes = LEAST_BYTES;
        while bytes < log_bytes.min(self.most) {
            bytes *= 2;
        }
        bytes.min(self.most)
    }

    /// Shrinks the file at a rest, if it need not be as large for these bytes of the log and of
    /// segments.
    pub(crate) fn shrink(&self, log_bytes: u64, segment_bytes: u64) -> Result<()> {
        let _alone = self.tried.lock();
        let bytes = self.size_for(log_bytes.max(segment_bytes / PART_OF_SEGMENTS));
        if self.released.load(Ordering::Acquire) || self.bytes.load(Ordering::Acquire) <= bytes {
            return Ok(());
        }
        let failed = |e| Error::io("truncate", &self.path, e);
        let file = self.files.open(&self.path, OpenMode::Write);
        file.and_then(|file| {
            file.set_len(bytes)?;
            self.bytes.store(bytes, Ordering::Release);
            file.sync_data()
        })
        .map_err(failed)
    }

    /// Releases the space, for a writer without space. `before` is the value of `freed` when that
    /// write began. False when the space had been released by then; true when another writer
    /// released it meanwhile, after it met the same full disk.
    fn release(&self, before: u64) -> bool {
        let _alone = self.tried.lock();
        if self.freed.load(Ordering::Acquire) != before {
            return true;
        }
        if self.released.swap(true, Ordering::AcqRel) {
            return false;
        }
        tracing::warn!(
            "the disk is full: the reserve is released, and writes fail with `full` until there is space again"
        );
        match self.files.remove(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove the reserve");
                false
            }
            _ => {
                self.freed.fetch_add(1, Ordering::AcqRel);
                true
            }
        }
    }

    /// Runs an operation that needs space, and repeats it while there is more to release.
    fn with_space<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            let before = self.freed.load(Ordering::Acquire);
            match work() {
                Err(error) if is_full(&error) && self.release(before) => {}
                other => return other,
            }
        }
    }

    /// True when it is in this folder.
    pub(crate) fn is_in(&self, folder: &Path) -> bool {
        self.path.parent() == Some(folder)
    }

    /// True while the reserve of a medium with this folder is released.
    pub(crate) fn is_given_up_in(&self, folder: &Path) -> bool {
        self.released.load(Ordering::Acquire) && self.is_in(folder)
    }

    fn is_complete(&self, bytes: u64) -> bool {
        !self.released.load(Ordering::Acquire) && self.bytes.load(Ordering::Acquire) >= bytes
    }

    /// Fails with `full` while the reserve is released, or there is no space for the size that a
    /// log of this many bytes needs; occasionally tries to recreate it.
    pub(crate) fn check(&self, log_bytes: u64) -> Result<()> {
        let bytes = self.size_for(log_bytes);
        if self.is_complete(bytes) {
            return Ok(());
        }
        let mut tried = self.tried.lock();
        let now = self.clock.monotonic();
        let is_due = tried.is_none_or(|at| now.saturating_sub(at) >= PATIENCE);
        if is_due && !self.is_complete(bytes) {
            match self.make(bytes) {
                Ok(()) => {
                    *tried = None;
                    if self.released.swap(false, Ordering::AcqRel) {
                        tracing::info!("disk space is available again: writes resume");
                    }
                }
                Err(error) if is_full(&error) => *tried = Some(now),
                Err(error) => return Err(Error::io("create", &self.path, error)),
            }
        }
        if !self.is_complete(bytes) {
            return Err(Error::new(
                ErrorKind::Full,
                "the disk is full: free some space or delete data; writes then resume automatically",
            ));
        }
        Ok(())
    }
}

/// The files of a database with a reserve: writes without space are repeated in the space of the
/// reserve.
#[derive(Debug)]
pub(crate) struct ReservedFiles {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) reserve: Arc<Reserve>,
}

#[derive(Debug)]
struct ReservedFile {
    file: Arc<dyn File>,
    reserve: Arc<Reserve>,
}

impl File for ReservedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.reserve
            .with_space(|| self.file.write_all_at(offset, data))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.reserve.with_space(|| self.file.set_len(len))
    }

    fn submit_sync(&self) -> Completion<()> {
        self.file.submit_sync()
    }
}

impl Files for ReservedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.reserve.with_space(|| self.files.open(path, mode))?;
        if mode == OpenMode::Read {
            return Ok(file);
        }
        Ok(Arc::new(ReservedFile {
            file,
            reserve: Arc::clone(&self.reserve),
        }))
    }

    headwater_io::pass_on_files!(
        files; remove list create_dir_all sync_dir exists is_same_dir lock lock_file has_queue
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use headwater_io::{Env, FaultyFiles};
    use std::sync::Weak;
    use std::sync::atomic::AtomicU32;

    const BYTES: u64 = 4096;

    /// A file whose first writes have no space, each just before another writer releases the
    /// reserve.
    #[derive(Debug)]
    struct Late {
        reserve: Weak<Reserve>,
        refusals: AtomicU32,
    }

    impl File for Late {
        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn write_all_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            if self.refusals.fetch_sub(1, Ordering::AcqRel) > 1 {
                if let Some(reserve) = self.reserve.upgrade() {
                    let before = reserve.freed.load(Ordering::Acquire);
                    reserve.release(before);
                }
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    fn reserved(refusals: u32) -> (Arc<Reserve>, ReservedFile) {
        let files: Arc<dyn Files> = Arc::new(FaultyFiles::new(1));
        files.create_dir_all(Path::new("/db")).unwrap();
        let clock = Env::memory().clock;
        let reserve = Reserve::open(&files, &clock, Path::new("/db"), BYTES).unwrap();
        let late = Late {
            reserve: Arc::downgrade(&reserve),
            refusals: AtomicU32::new(refusals + 1),
        };
        let file = ReservedFile {
            file: Arc::new(late),
            reserve: Arc::clone(&reserve),
        };
        (reserve, file)
    }

    #[test]
    fn two_that_meet_the_full_disk_at_once_both_get_the_space_of_the_reserve() {
        let (reserve, file) = reserved(1);
        file.write_all_at(0, b"commit").unwrap();
        assert!(reserve.released.load(Ordering::Acquire));
    }

    #[test]
    fn who_finds_no_space_after_the_reserve_was_given_up_is_told() {
        let (reserve, file) = reserved(3);
        // The first refusal is followed by a second attempt, the second is final: nothing was
        // released in between.
        let error = file.write_all_at(0, b"commit").unwrap_err();
        assert!(is_full(&error));
        assert!(reserve.released.load(Ordering::Acquire));
        assert!(reserve.check(0).is_ok(), "there is space: it is made again");
        file.write_all_at(0, b"commit").unwrap();
    }
}
