//! The folder that backups go to.
//!
//! Invariants: files that are not in a valid manifest are removed, older manifests before their
//! files. Concurrency: one backup into a folder at a time, by a lock.

use super::manifest::{self, FileKind, Manifest};
use crate::device::layout::meta_path;
use crate::{Error, ErrorKind, Result};
use headwater_io::{Env, Files, Lock, LockError};
use std::collections::HashSet;
use std::path::Path;

/// The folder that backups go to.
pub(super) struct BackupFolder<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) dir: &'a Path,
    pub(super) before: Option<Manifest>,
    pub(super) number: u64,
    _lock: Box<dyn Lock>,
}

impl<'a> BackupFolder<'a> {
    pub(super) fn open(env: &'a Env, dir: &'a Path) -> Result<BackupFolder<'a>> {
        let files = &*env.files;
        let index = env.index_files();
        let exists = |path: &Path| {
            files
                .exists(path)
                .map_err(|e| Error::io("look for", path, e))
        };
        let meta = meta_path(dir);
        let has_meta = index
            .exists(&meta)
            .map_err(|e| Error::io("look for", &meta, e))?;
        if has_meta {
            return Err(Error::invalid(format!(
                "{} contains a database, not a backup: specify another folder",
                dir.display()
            )));
        }
        if !exists(&manifest::folder(dir))? && exists(dir)? {
            let names = files.list(dir).map_err(|e| Error::io("list", dir, e))?;
            if names.iter().any(|n| n != "lock") {
                return Err(Error::invalid(format!(
                    "{} contains files that are not a backup: specify an empty folder or an existing backup",
                    dir.display()
                )));
            }
        }
        let create = |path: &Path| {
            files
                .create_dir_all(path)
                .map_err(|e| Error::io("create", path, e))
        };
        create(dir)?;
        let lock = take_lock(files, dir)?;
        create(&manifest::folder(dir))?;
        for folder in FileKind::folders() {
            create(&dir.join(folder))?;
        }
        let before = Manifest::newest(files, dir)?;
        let target = BackupFolder {
            files,
            dir,
            number: before.as_ref().map_or(1, |b| b.number + 1),
            before,
            _lock: lock,
        };
        target.remove_unnamed(target.before.as_ref())?;
        Ok(target)
    }

    pub(super) fn check_identity(&self, identity: u64) -> Result<()> {
        match &self.before {
            Some(before) if before.identity != identity => Err(Error::invalid(format!(
                "{} contains backups of another database: specify another folder",
                self.dir.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Removes files that `manifest` does not name: leftovers of an interrupted backup, or parts of
    /// an older one.
    pub(super) fn remove_unnamed(&self, manifest: Option<&Manifest>) -> Result<()> {
        let number = manifest.map(|m| m.number);
        let folder = manifest::folder(self.dir);
        // Older manifests are removed before their files: a valid manifest never names a removed
        // file.
        self.remove_from(&folder, |name| {
            name.strip_suffix(".manifest").and_then(|n| n.parse().ok()) == number
                && number.is_some()
        })?;
        for kind in [FileKind::Meta, FileKind::Segment, FileKind::Log] {
            let named: HashSet<&str> = manifest
                .iter()
                .flat_map(|m| &m.entries)
                .filter(|e| e.kind == kind)
                .map(|e| e.name.as_str())
                .collect();
            self.remove_from(&self.dir.join(kind.folder()), |name| named.contains(name))?;
        }
        Ok(())
    }

    fn remove_from(&self, folder: &Path, keep: impl Fn(&str) -> bool) -> Result<()> {
        let mut removed = false;
        for name in self
            .files
            .list(folder)
            .map_err(|e| Error::io("list", folder, e))?
        {
            if !keep(&name) {
                let path = folder.join(&name);
                self.files
                    .remove(&path)
                    .map_err(|e| Error::io("remove", &path, e))?;
                removed = true;
            }
        }
        if removed {
            self.sync_dir(folder)
        } else {
            Ok(())
        }
    }

    pub(super) fn sync_dir(&self, folder: &Path) -> Result<()> {
        self.files
            .sync_dir(folder)
            .map_err(|e| Error::io("sync", folder, e))
    }
}

fn take_lock(files: &dyn Files, dir: &Path) -> Result<Box<dyn Lock>> {
    let path = dir.join("lock");
    files
        .lock(&path, &format!("pid {}", std::process::id()))
        .map_err(|error| match error {
            LockError::Held { owner_text } | LockError::HeldHere { owner_text } => Error::new(
                ErrorKind::Locked,
                format!(
                    "another backup into {} is running ({owner_text}): wait until it ends",
                    dir.display()
                ),
            ),
            LockError::Io(error) => Error::io("lock", &path, error),
            other => Error::new(
                ErrorKind::Io,
                format!("cannot lock {}: {other}", path.display()),
            ),
        })
}
