//! Files of the operating system (Unix).
//!
//! Invariants: one [`File`] is one descriptor; all access is positioned (`pread`, `pwrite`), so
//! handles share no state. Concurrency: as in the kernel; no lock of our own. Failure: errors of
//! the kernel are passed on unchanged, with their number; interruptions are retried. Durability:
//! `fdatasync` for files, which skips only metadata that is not needed to read the data back, so a
//! grown length is covered. Names: `fsync` of the directory. On Apple systems the standard library
//! requests a full flush.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, OFlags};

use crate::files::{File, Files, OpenMode};
use crate::lock::{Lock, LockError};

/// Most bytes of a lock file that are read to name its owner.
const OWNER_TEXT_BYTES_MAX: u64 = 4096;

/// The file system of the machine.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemFiles;

impl SystemFiles {
    /// The file system of the machine.
    ///
    /// ```
    /// use headwater_io::{Files, SystemFiles};
    /// assert!(SystemFiles::new().exists(std::path::Path::new("/")).unwrap());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        SystemFiles
    }
}

/// An open file of the machine.
#[derive(Debug)]
pub(crate) struct SystemFile(pub(crate) fs::File);

impl SystemFile {
    /// Opens as [`Files::open`] does.
    pub(crate) fn open(path: &Path, mode: OpenMode) -> io::Result<SystemFile> {
        let mut options = fs::OpenOptions::new();
        match mode {
            OpenMode::Read => options.read(true),
            OpenMode::Write => options.read(true).write(true),
            OpenMode::CreateNew => options.read(true).write(true).create_new(true),
        };
        let file = options.open(path)?;
        // The kernel opens a directory for reading without complaint and fails at the first read
        // only.
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(SystemFile(file))
    }
}

impl File for SystemFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn try_read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let wanted = buf.len();
        let end = u64::try_from(wanted)
            .ok()
            .and_then(|wanted| offset.checked_add(wanted));
        // To the kernel, a negative offset means the current position.
        if wanted == 0 || end.is_none_or(|end| i64::try_from(end).is_err()) {
            return false;
        }
        let bufs = &mut [io::IoSliceMut::new(buf)];
        // Any error is reported by the blocking call.
        rustix::io::preadv2(&self.0, bufs, offset, rustix::io::ReadWriteFlags::NOWAIT)
            .is_ok_and(|count| count == wanted)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // The standard library continues short writes and retries interruptions.
        self.0.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}

impl Files for SystemFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SystemFile::open(path, mode)?))
    }

    fn are_of_system(&self) -> bool {
        true
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(here_if_empty(dir))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                continue;
            }
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        // From `dir` upwards, up to the first directory that exists.
        let mut missing = Vec::new();
        let mut existing = Some(dir);
        while let Some(candidate) = existing {
            match fs::metadata(here_if_empty(candidate)) {
                Ok(found) if found.is_dir() => break,
                Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.push(candidate);
                    existing = candidate.parent();
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(lowest) = existing {
            sync_entry_of_existing(lowest)?;
        }
        for new in missing.into_iter().rev() {
            match fs::create_dir(new) {
                // Another process may be creating the same path; the sync below is needed all the
                // same.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && new.is_dir() => {}
                other => other?,
            }
            if let Some(parent) = new.parent() {
                sync_directory(parent)?;
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        sync_directory(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match here_if_empty(path).try_exists() {
            // A file where a directory was expected: the name below it does not exist.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
            other => other,
        }
    }

    fn is_same_dir(&self, a: &Path, b: &Path) -> io::Result<bool> {
        if a == b {
            return Ok(true);
        }
        // A mount of the same folder elsewhere has its device and its number too.
        let id = |path: &Path| match fs::metadata(here_if_empty(path)) {
            Ok(found) => Ok(found.is_dir().then(|| id_of(&found))),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        };
        let (a, b) = (id(a)?, id(b)?);
        Ok(a.is_some() && a == b)
    }

    fn lock(&self, path: &Path, owner_text: &str) -> Result<Box<dyn Lock>, LockError> {
        Ok(Box::new(SystemLock::take(path, owner_text)?))
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        Ok(Box::new(SystemLock::take_of_existing(path)?))
    }
}

/// A file of this machine, whatever its names: device and inode number.
pub(crate) type FileId = (u64, u64);

pub(crate) fn id_of(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Files that are locked by this process, with its number: after a `fork` the child has the
/// parent's list, but not its locks.
static LOCKED_HERE: Mutex<BTreeSet<(u32, FileId)>> = Mutex::new(BTreeSet::new());

/// Descriptor of a locked file. The lock belongs to the open file description, which a process
/// created by `fork` shares until it runs another program; so it is released by name, and only by
/// the process that acquired it.
#[derive(Debug)]
struct SystemLock {
    locked: fs::File,
    path: PathBuf,
    id: FileId,
    process: u32,
}

impl SystemLock {
    fn take(path: &Path, owner_text: &str) -> Result<Self, LockError> {
        // Not truncated on opening: until the lock is ours, the text is that of its owner.
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let mut lock = SystemLock::of(file, path, |file| {
            let mut text = Vec::new();
            file.take(OWNER_TEXT_BYTES_MAX).read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        })?;
        lock.locked.set_len(0)?;
        lock.locked.write_all(owner_text.as_bytes())?;
        Ok(lock)
    }

    fn take_of_existing(path: &Path) -> Result<Self, LockError> {
        // Some file systems lock only writable files.
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        SystemLock::of(file, path, |_| Ok(String::new()))
    }

    /// Locks an open file; `owner_text` reads the text of the holder.
    fn of(
        file: fs::File,
        path: &Path,
        owner_text: impl FnOnce(fs::File) -> io::Result<String>,
    ) -> Result<Self, LockError> {
        let id = id_of(&file.metadata()?);
        let process = std::process::id();
        loop {
            // The list is locked during the acquisition, so that it is consistent with it.
            let mut here = LOCKED_HERE.lock();
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    here.insert((process, id));
                    break;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let is_here = here.contains(&(process, id));
                    drop(here);
                    let owner_text = owner_text(file)?;
                    return Err(if is_here {
                        LockError::HeldHere { owner_text }
                    } else {
                        LockError::Held { owner_text }
                    });
                }
                Err(errno) => return Err(LockError::Io(errno.into())),
            }
        }
        Ok(SystemLock {
            locked: file,
            path: path.to_owned(),
            id,
            process,
        })
    }
}

impl Lock for SystemLock {
    fn is_current(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(named) => Ok(id_of(&named) == self.id),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for SystemLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let mut here = LOCKED_HERE.lock();
            here.remove(&(self.process, self.id));
            // Where it cannot be released by name, the closing of the last descriptor does it, at
            // the latest with the process.
            let _ = rustix::fs::flock(&self.locked, FlockOperation::Unlock);
        }
    }
}

/// Makes the entry of an existing directory durable, which may have been created by a process that
/// ended between creation and sync. Its parents were synced before it was created.
fn sync_entry_of_existing(dir: &Path) -> io::Result<()> {
    let Some(parent) = dir.parent() else {
        return Ok(());
    };
    // The root of a mounted file system has no entry in the one it is mounted on, which may not
    // support sync.
    if fs::metadata(here_if_empty(parent))?.dev() != fs::metadata(dir)?.dev() {
        return Ok(());
    }
    match sync_directory(parent) {
        // A parent that we may not open, or on a read-only medium, was set up by others.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    let flags = i32::try_from(OFlags::DIRECTORY.bits()).map_err(io::Error::other)?;
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(here_if_empty(dir))?
        .sync_all()
}

/// The parent of a bare file name is the empty path, which means the working directory.
fn here_if_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_lock_ends_with_its_owner_though_another_process_still_has_its_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = SystemLock::take(&path, "first").unwrap();
        // State of a child between `fork` and the program it runs.
        let in_a_child = first.locked.try_clone().unwrap();
        assert!(matches!(
            SystemLock::take(&path, "second"),
            Err(LockError::HeldHere { .. })
        ));
        drop(first);
        let second = SystemLock::take(&path, "second").unwrap();
        drop(in_a_child);
        assert!(matches!(
            SystemLock::take(&path, "third"),
            Err(LockError::HeldHere { owner_text }) if owner_text == "second"
        ));
        drop(second);
    }
}
