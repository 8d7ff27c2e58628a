//! The names of a file system in memory: directories, and files with some node each.
//!
//! Invariants: keys are normal paths ([`crate::memfs::normal`]); a name is a file or a directory,
//! never both; the parent of every name is a directory; `/` and the empty path (the working
//! directory) always are directories.
//! Concurrency: a plain value, guarded by its owner.
//! Failure: the error kinds of a Unix kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Names, and the nodes they refer to.
#[derive(Clone, Debug)]
pub(crate) struct Tree<N> {
    /// Directories besides the two that always exist.
    pub(crate) dirs: BTreeSet<PathBuf>,
    /// Files by their paths.
    pub(crate) files: BTreeMap<PathBuf, N>,
}

impl<N> Default for Tree<N> {
    fn default() -> Self {
        Tree {
            dirs: BTreeSet::new(),
            files: BTreeMap::new(),
        }
    }
}

impl<N> Tree<N> {
    /// True when `path` is a directory.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        is_root(path) || self.dirs.contains(path)
    }

    /// True when `path` is a file or a directory.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.is_dir(path) || self.files.contains_key(path)
    }

    /// `Ok` when `path` is a directory.
    pub(crate) fn require_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Ok(());
        }
        let file_in_the_way = path.ancestors().any(|above| self.files.contains_key(above));
        Err(if file_in_the_way {
            Errno::NOTDIR.into()
        } else {
            Errno::NOENT.into()
        })
    }

    /// The file at `path`.
    pub(crate) fn find(&self, path: &Path) -> io::Result<&N> {
        if self.is_dir(path) {
            return Err(Errno::ISDIR.into());
        }
        match self.files.get(path) {
            Some(node) => Ok(node),
            None => {
                path.parent()
                    .map_or(Ok(()), |parent| self.require_dir(parent))?;
                Err(Errno::NOENT.into())
            }
        }
    }

    /// `Ok` when a file can be created at `path`.
    pub(crate) fn require_free(&self, path: &Path) -> io::Result<()> {
        if self.contains(path) {
            return Err(Errno::EXIST.into());
        }
        path.parent()
            .map_or(Ok(()), |parent| self.require_dir(parent))
    }

    /// The directories to create, top down, so that `dir` exists.
    pub(crate) fn missing_dirs(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        if dir.ancestors().any(|above| self.files.contains_key(above)) {
            return Err(Errno::NOTDIR.into());
        }
        let mut missing: Vec<PathBuf> = dir
            .ancestors()
            .take_while(|above| !self.is_dir(above))
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        Ok(missing)
    }

    /// The sorted names of the files directly in `dir`.
    pub(crate) fn names_in(&self, dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = self
            .files
            .keys()
            .filter(|path| path.parent() == Some(dir))
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect();
        names.sort_unstable();
        names
    }
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}
