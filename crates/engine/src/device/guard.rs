//! Conditions for changes of an owner's files: the process is the one that opened the database, and
//! no sync failed.
//!
//! A child made by `fork` has the handles of its parent, including the same position in the log,
//! and none of its threads: when both write, one write is lost. And after a failed sync, a later
//! successful one proves nothing about the failed one: neither for the bytes of a file, nor for the
//! names in a folder, which all creators of files there share. So from then on no thread changes a
//! file or calls data durable, until the database is opened again, which rewrites everything that
//! such a sync may have left in doubt. Of syncs without space only those of folders count: a file's
//! bytes are rewritten.
//!
//! Invariants: in a forked child no file of the database is changed; after a failed sync no sync
//! succeeds. Concurrency: syncs of folders of one medium run one after the other, so that none
//! succeeds beside one that fails; no other operation waits, and no medium waits for another.
//! Failure: kind `forked`; after a failed sync an I/O error that names it.

use crate::device::reserve::is_full;
use crate::{Error, ErrorKind, Result};
use headwater_io::{Completion, File, Files, OpenMode, Threads};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The guard of an open database.
#[derive(Debug)]
pub(crate) struct Guard {
    threads: Arc<dyn Threads>,
    /// The process that opened the database.
    process: u32,
    /// Path of the first failed sync.
    failed: OnceLock<PathBuf>,
    /// Bytes written to media of the database, except its fast tier.
    bulk_written: Arc<AtomicU64>,
}

impl Guard {
    pub(crate) fn new(threads: &Arc<dyn Threads>) -> Arc<Guard> {
        Arc::new(Guard {
            process: threads.process(),
            threads: Arc::clone(threads),
            failed: OnceLock::new(),
            bulk_written: Arc::default(),
        })
    }

    /// Bytes written since opening to all media except the fast tier.
    pub(crate) fn bulk_written(&self) -> &Arc<AtomicU64> {
        &self.bulk_written
    }

    /// True in a forked child of the process that opened the database.
    pub(crate) fn is_forked(&self) -> bool {
        self.threads.process() != self.process
    }

    /// Fails with `forked` in a forked child. Called before any lock is taken: the thread that owns
    /// a lock may not exist any more.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_forked() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Forked,
            format!(
                "the database was opened by process {}, and this one ({}) was forked from it: writes are refused here; open the database after the fork, in one process",
                self.process,
                self.threads.process()
            ),
        ))
    }

    /// Fails when changes are not allowed.
    fn check_change(&self) -> io::Result<()> {
        self.check().map_err(io::Error::other)?;
        match self.failed.get() {
            None => Ok(()),
            Some(path) => Err(io::Error::other(format!(
                "an earlier sync of {} failed: writes are refused until the database is reopened",
                path.display()
            ))),
        }
    }

    /// True when changes are not allowed.
    pub(crate) fn is_closed(&self) -> bool {
        self.check_change().is_err()
    }

    /// Records a failed sync: its data is not durable, and no thread may continue as if it were.
    fn sync_failed(&self, path: &Path) {
        self.failed.get_or_init(|| path.to_owned());
    }
}

/// The files of an owner on one medium.
#[derive(Debug)]
pub(crate) struct GuardedFiles {
    files: Arc<dyn Files>,
    guard: Arc<Guard>,
    written: Arc<AtomicU64>,
    /// Locked while a folder is synced.
    folders: Mutex<()>,
}

impl GuardedFiles {
    /// Adds the bytes written to `written`.
    pub(crate) fn new(
        files: &Arc<dyn Files>,
        guard: &Arc<Guard>,
        written: &Arc<AtomicU64>,
    ) -> GuardedFiles {
        GuardedFiles {
            files: Arc::clone(files),
            guard: Arc::clone(guard),
            written: Arc::clone(written),
            folders: Mutex::new(()),
        }
    }
}

#[derive(Debug)]
struct GuardedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    guard: Arc<Guard>,
    written: Arc<AtomicU64>,
}

impl File for GuardedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.guard.check_change()?;
        let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
        self.written.fetch_add(bytes, Ordering::Relaxed);
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.guard.check_change()?;
        self.file.sync_data().inspect_err(|error| {
            // A writer without space rewrites all of it: a job is aborted, the log and the metadata
            // latch.
            if !is_full(error) {
                self.guard.sync_failed(&self.path);
            }
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.guard.check_change()?;
        self.file.set_len(len)
    }

    fn submit_sync(&self) -> Completion<()> {
        if let Err(error) = self.guard.check_change() {
            return Completion::done(Err(error));
        }
        let (guard, path) = (Arc::clone(&self.guard), self.path.clone());
        self.file.submit_sync().inspect_err(move |error| {
            if !is_full(error) {
                guard.sync_failed(&path);
            }
        })
    }
}

impl Files for GuardedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode == OpenMode::Read {
            return self.files.open(path, mode);
        }
        if mode == OpenMode::CreateNew {
            self.guard.check_change()?;
        }
        Ok(Arc::new(GuardedFile {
            file: self.files.open(path, mode)?,
            path: path.to_owned(),
            guard: Arc::clone(&self.guard),
            written: Arc::clone(&self.written),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // Allowed after a failed sync too: the only doubt after a removal is whether the file still
        // exists.
        self.guard.check().map_err(io::Error::other)?;
        self.files.remove(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.guard.check_change()?;
        self.files.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let _alone = self.folders.lock();
        self.guard.check_change()?;
        self.files.sync_dir(dir).map_err(|error| {
            self.guard.sync_failed(dir);
            match is_full(&error) {
                // A writer without space rewrites bytes; names are created once, and stay in doubt.
                // So more space does not resolve this error.
                true => io::Error::other(format!(
                    "{error}; it is unknown which directory entries persist: writes are refused until the database is reopened"
                )),
                false => error,
            }
        })
    }

    headwater_io::pass_on_files!(files; list exists is_same_dir lock lock_file has_queue);
}
