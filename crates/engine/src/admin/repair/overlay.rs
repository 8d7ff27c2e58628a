//! The future database after a repair: its files, with the planned changes in memory.

use crate::common::ids::SegmentId;
use crate::device::tiers::path_in;
use headwater_io::{File, Files, Lock, LockError, MemoryFiles, OpenMode};
use headwater_types::invariant::first_mut;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Changes to a segment file.
#[derive(Clone, Debug, Default)]
pub(super) struct Patch {
    /// The source of its bytes, when it is a copy of another file.
    pub(super) copy_of: Option<SegmentId>,
    /// A new header.
    pub(super) header: Option<Vec<u8>>,
    /// New content from an offset on, to the end.
    pub(super) tail: Option<(u64, Vec<u8>)>,
    /// The patch is for the file of a freed segment, with offsets in that file.
    pub(super) is_of_stub: bool,
}

#[derive(Debug)]
pub(super) struct Overlay {
    pub(super) files: Arc<dyn Files>,
    pub(super) dir: PathBuf,
    pub(super) log_dir: PathBuf,
    pub(super) meta: Arc<dyn File>,
    pub(super) patches: BTreeMap<SegmentId, Patch>,
    /// Number and content of the only future log file; `None` = the log does not change.
    pub(super) log: Option<(u64, Vec<u8>)>,
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

fn number(path: &Path, ending: &str) -> Option<u64> {
    path.file_name()?
        .to_str()?
        .strip_suffix(ending)?
        .parse()
        .ok()
}

impl Files for Overlay {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode != OpenMode::Read {
            return read_only();
        }
        // The environment already has the locations of all parts.
        if path == path_in(&self.dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if path == self.dir.join("meta.redb") {
            return Ok(Arc::clone(&self.meta));
        }
        if path.parent() == Some(self.log_dir.as_path())
            && let Some((at, content)) = &self.log
        {
            if number(path, ".log") != Some(*at) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let memory = MemoryFiles::new();
            let file = memory.open(Path::new("/log"), OpenMode::CreateNew)?;
            file.write_all_at(0, content)?;
            return Ok(file);
        }
        let patched = |ending: &str, is_of_stub: bool| {
            let patch = self.patches.get(&SegmentId(number(path, ending)?));
            patch.filter(|patch| patch.is_of_stub == is_of_stub)
        };
        let patch = patched(".seg", false).or_else(|| patched(".stub", true));
        let Some(patch) = patch else {
            return self.files.open(path, mode);
        };
        let source = match patch.copy_of {
            Some(id) => path.with_file_name(format!("{}.seg", id.0)),
            None => path.to_owned(),
        };
        Ok(Arc::new(Patched {
            file: self.files.open(&source, mode)?,
            patch: patch.clone(),
        }))
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        match &self.log {
            Some((number, _)) if dir == self.log_dir => Ok(vec![format!("{number}.log")]),
            _ => self.files.list(dir),
        }
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn is_same_dir(&self, a: &Path, b: &Path) -> io::Result<bool> {
        self.files.is_same_dir(a, b)
    }

    fn lock(&self, _: &Path, _: &str) -> Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }

    fn lock_file(&self, _: &Path) -> Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}

#[derive(Debug)]
struct Patched {
    file: Arc<dyn File>,
    patch: Patch,
}

impl File for Patched {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let copy = |from: &[u8], at: u64, buf: &mut [u8]| {
            let rest = from
                .get(usize::try_from(at).unwrap_or(usize::MAX)..)
                .unwrap_or_default();
            let count = rest.len().min(buf.len());
            for (to, byte) in buf.iter_mut().zip(rest) {
                *to = *byte;
            }
            count
        };
        if let Some(header) = &self.patch.header
            && offset < header.len() as u64
        {
            return Ok(copy(header, offset, buf));
        }
        if let Some((at, tail)) = &self.patch.tail {
            if offset >= *at {
                return Ok(copy(tail, offset - at, buf));
            }
            let count = usize::try_from(at - offset)
                .unwrap_or(usize::MAX)
                .min(buf.len());
            return self
                .file
                .read_at(offset, first_mut(buf, count, "bytes before a tail"));
        }
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn sync_data(&self) -> io::Result<()> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        match &self.patch.tail {
            Some((at, tail)) => Ok(at + tail.len() as u64),
            None => self.file.len(),
        }
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }
}
