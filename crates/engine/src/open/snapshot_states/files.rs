//! The files of a state of the past: exactly the segments that its snapshot keeps.
//!
//! Invariants: files are only read; they exist as long as this object.

use crate::storage::segment::SegmentFile;
use headwater_io::{File, Files, Lock, LockError, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct PastFiles {
    pub(super) files: Arc<dyn Files>,
    pub(super) segment_dir: PathBuf,
    /// Open files, so that none is removed before its last reader has closed it.
    pub(super) open_files: Arc<[Arc<SegmentFile>]>,
}

impl PastFiles {
    fn has(&self, path: &Path) -> bool {
        path.parent() == Some(self.segment_dir.as_path())
            && self.open_files.iter().any(|file| file.path() == path)
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Files for PastFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode != OpenMode::Read {
            return read_only();
        }
        if !self.has(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.files.open(path, mode)
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.has(path) && self.files.exists(path)?)
    }

    fn lock(&self, _: &Path, _: &str) -> Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }

    fn lock_file(&self, _: &Path) -> Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}
