//! A store in a directory (`file://`): an object is a file. For trials, for tests, and for a
//! directory that several machines mount, as far as its locks are valid there.
//!
//! Invariants: a put is made under an exclusive lock of the directory, and is synced before it is
//! answered. A read returns a whole version: files are replaced by renaming. Concurrency: any
//! number of processes and threads. Failure: an interrupted put leaves a file below `.new`, which
//! is not an object and is overwritten by the next put.

use crate::store::{Etag, Listed, Object, ObjectStore, Page, Put, StoreFailure};
use headwater_types::Timestamp;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Objects of a list at once.
const PAGE: usize = 1000;

/// A store in a directory.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
}

fn failed(path: &Path, error: &std::io::Error) -> StoreFailure {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreFailure::lasting(text),
        _ => StoreFailure::passing(text),
    }
}

fn etag(bytes: &[u8]) -> Etag {
    let hash = Sha256::digest(bytes);
    Etag(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Directory {
    /// The store in a directory, which is made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(root: &Path) -> Result<Directory, StoreFailure> {
        make_dir(root)?;
        Ok(Directory {
            root: root.to_owned(),
        })
    }

    fn path(&self, key: &str) -> Result<PathBuf, StoreFailure> {
        let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
        match key.split('/').all(is_plain) {
            true => Ok(self.root.join(key)),
            false => Err(StoreFailure::lasting(format!(
                "{key}: expected a key whose parts are not empty and do not begin with a dot"
            ))),
        }
    }

    /// Locked until it is dropped.
    fn lock(&self) -> Result<File, StoreFailure> {
        let path = self.root.join(".lock");
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| failed(&path, &e))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|e| failed(&path, &e.into()))?;
        Ok(file)
    }

    fn put(&self, path: &Path, bytes: &[u8]) -> Result<Put, StoreFailure> {
        let new = self.root.join(".new");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.map_err(|e| failed(&new, &e))?;
        let folder = path.parent().unwrap_or(&self.root);
        make_dir(folder)?;
        std::fs::rename(&new, path).map_err(|e| failed(path, &e))?;
        let synced = File::open(folder).and_then(|dir| dir.sync_all());
        synced.map_err(|e| failed(folder, &e))?;
        Ok(Put::Stored(etag(bytes)))
    }

    fn walk(&self, folder: &Path, found: &mut Vec<Listed>) -> Result<(), StoreFailure> {
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|e| failed(folder, &e))?,
        };
        for entry in entries {
            let path = entry.map_err(|e| failed(folder, &e))?.path();
            // A hidden file is not an object: the lock, or a put in progress.
            if !is_hidden(&path) {
                self.look_at(&path, found)?;
            }
        }
        Ok(())
    }

    fn look_at(&self, path: &Path, found: &mut Vec<Listed>) -> Result<(), StoreFailure> {
        let name = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        match std::fs::metadata(path) {
            // The file was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(path, &error)),
            Ok(meta) if meta.is_dir() => self.walk(path, found),
            Ok(meta) => {
                found.extend(name.map(|key| Listed {
                    key: key.to_owned(),
                    bytes: meta.len(),
                    modified: meta.modified().ok().and_then(instant),
                }));
                Ok(())
            }
        }
    }
}

/// An instant of the file system; `None` = outside the supported range.
fn instant(of: SystemTime) -> Option<Timestamp> {
    let since = of.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let nanos = i64::try_from(since.as_nanos()).ok()?;
    Some(Timestamp::from_nanos(nanos))
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_none_or(|name| name.starts_with('.'))
}

/// Creates a directory, and makes its name durable.
fn make_dir(path: &Path) -> Result<(), StoreFailure> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    match DirBuilder::new().create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(path, &error)),
        _ => {}
    }
    let parent = path.parent().unwrap_or(path);
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|e| failed(parent, &e))
}

fn open(path: &Path) -> Result<Option<File>, StoreFailure> {
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(|e| failed(path, &e)),
    }
}

impl ObjectStore for Directory {
    fn get(&self, key: &str) -> Result<Option<Object>, StoreFailure> {
        let path = self.path(key)?;
        let Some(mut file) = open(&path)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|e| failed(&path, &e))?;
        let etag = etag(&bytes);
        Ok(Some(Object { bytes, etag }))
    }

    fn get_range(&self, key: &str, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, StoreFailure> {
        let path = self.path(key)?;
        let Some(mut file) = open(&path)? else {
            return Ok(None);
        };
        let mut found = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let read = file.seek(SeekFrom::Start(from));
        let read = read.and_then(|_| file.read_exact(&mut found));
        read.map_err(|e| failed(&path, &e))?;
        Ok(Some(found))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<Put, StoreFailure> {
        let path = self.path(key)?;
        let _held = self.lock()?;
        match open(&path)? {
            Some(_) => Ok(Put::Refused),
            None => self.put(&path, bytes),
        }
    }

    fn replace(&self, key: &str, bytes: &[u8], expected: &Etag) -> Result<Put, StoreFailure> {
        let path = self.path(key)?;
        let _held = self.lock()?;
        match self.get(key)?.is_some_and(|found| found.etag == *expected) {
            true => self.put(&path, bytes),
            false => Ok(Put::Refused),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Page, StoreFailure> {
        // Matching keys are below the last directory of the prefix.
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut found = Vec::new();
        self.walk(&self.root.join(folder), &mut found)?;
        found.retain(|object| object.key.starts_with(prefix) && object.key.as_str() > after);
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let more = found.len() > PAGE;
        found.truncate(PAGE);
        Ok(Page {
            objects: found,
            more,
        })
    }

    fn delete(&self, key: &str) -> Result<(), StoreFailure> {
        let path = self.path(key)?;
        let _held = self.lock()?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|e| failed(&path, &e)),
        }
    }
}
