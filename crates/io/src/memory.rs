//! A file system in memory that is always durable and never fails by itself.
//!
//! Invariants: as in [`Tree`]; at most one [`MemoryLock`] per node, during which its `owner` is
//! set. Concurrency: one lock over the names, one per file over its bytes; the second is never held
//! while acquiring the first. Failure: only caller mistakes, and files longer than 4 GiB.
//! Durability: `sync_data` and `sync_dir` are no-ops; all content is lost with the last clone.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use crate::files::{File, Files, OpenMode};
use crate::lock::{Lock, LockError};
use crate::memfs;
use crate::tree::Tree;

/// Files in memory; clones share them.
#[derive(Clone, Default)]
pub struct MemoryFiles {
    tree: Arc<Mutex<Tree<Arc<Node>>>>,
}

#[derive(Default)]
struct Node {
    content: RwLock<Vec<u8>>,
    owner: Mutex<Option<String>>,
}

impl MemoryFiles {
    /// An empty file system.
    ///
    /// ```
    /// use std::path::Path;
    /// use headwater_io::{Files, MemoryFiles, OpenMode};
    /// let files = MemoryFiles::new();
    /// files.create_dir_all(Path::new("/db")).unwrap();
    /// let file = files.open(Path::new("/db/a"), OpenMode::CreateNew).unwrap();
    /// file.write_all_at(0, b"hello").unwrap();
    /// assert_eq!(file.len().unwrap(), 5);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        MemoryFiles::default()
    }

    fn take_lock(
        &self,
        path: PathBuf,
        node: Arc<Node>,
        owner_text: &str,
    ) -> Result<MemoryLock, LockError> {
        let mut owner = node.owner.lock();
        if let Some(text) = &*owner {
            return Err(LockError::HeldHere {
                owner_text: text.clone(),
            });
        }
        *owner = Some(owner_text.to_owned());
        drop(owner);
        Ok(MemoryLock {
            files: self.clone(),
            path,
            node,
        })
    }
}

impl fmt::Debug for MemoryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = self.tree.lock();
        f.debug_struct("MemoryFiles")
            .field("files", &tree.files.len())
            .field("dirs", &tree.dirs.len())
            .finish()
    }
}

impl Files for MemoryFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let path = memfs::normal(path);
        let mut tree = self.tree.lock();
        let node = match mode {
            OpenMode::Read | OpenMode::Write => Arc::clone(tree.find(&path)?),
            OpenMode::CreateNew => create(&mut tree, &path)?,
        };
        Ok(Arc::new(MemoryFile {
            path,
            node,
            writable: mode != OpenMode::Read,
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = memfs::normal(path);
        let mut tree = self.tree.lock();
        tree.find(&path)?;
        tree.files.remove(&path);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = memfs::normal(dir);
        let tree = self.tree.lock();
        tree.require_dir(&dir)?;
        Ok(tree.names_in(&dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let dir = memfs::normal(dir);
        let mut tree = self.tree.lock();
        for missing in tree.missing_dirs(&dir)? {
            tree.dirs.insert(missing);
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.tree.lock().require_dir(&memfs::normal(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let path = memfs::normal(path);
        let tree = self.tree.lock();
        Ok(tree.contains(&path))
    }

    fn lock(&self, path: &Path, owner_text: &str) -> Result<Box<dyn Lock>, LockError> {
        let path = memfs::normal(path);
        let mut tree = self.tree.lock();
        let node = match tree.find(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&mut tree, &path)?,
            other => Arc::clone(other?),
        };
        let lock = self.take_lock(path, node, owner_text)?;
        *lock.node.content.write() = owner_text.as_bytes().to_vec();
        Ok(Box::new(lock))
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        let path = memfs::normal(path);
        let node = Arc::clone(self.tree.lock().find(&path)?);
        Ok(Box::new(self.take_lock(path, node, "")?))
    }
}

fn create(tree: &mut Tree<Arc<Node>>, path: &Path) -> io::Result<Arc<Node>> {
    tree.require_free(path)?;
    let node = Arc::new(Node::default());
    tree.files.insert(path.to_owned(), Arc::clone(&node));
    Ok(node)
}

struct MemoryFile {
    path: PathBuf,
    node: Arc<Node>,
    writable: bool,
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFile")
            .field("path", &self.path)
            .field("writable", &self.writable)
            .finish()
    }
}

impl MemoryFile {
    fn require_writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(Errno::BADF.into())
        }
    }
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(memfs::read(&self.node.content.read(), offset, buf))
    }

    fn try_read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        memfs::read(&self.node.content.read(), offset, buf) == buf.len()
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.require_writable()?;
        memfs::write(&mut self.node.content.write(), offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.node.content.read().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.require_writable()?;
        memfs::set_len(&mut self.node.content.write(), len)
    }
}

struct MemoryLock {
    files: MemoryFiles,
    path: PathBuf,
    node: Arc<Node>,
}

impl fmt::Debug for MemoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLock").finish_non_exhaustive()
    }
}

impl Lock for MemoryLock {
    fn is_current(&self) -> io::Result<bool> {
        let tree = self.files.tree.lock();
        Ok(tree
            .files
            .get(&self.path)
            .is_some_and(|named| Arc::ptr_eq(named, &self.node)))
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        *self.node.owner.lock() = None;
    }
}
