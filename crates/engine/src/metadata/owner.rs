//! The owner of a database: one process, by two locks.
//!
//! Invariants: an [`Owner`] has the lock of `DIR/lock`, which names it, and the lock of the
//! metadata's file, once that exists; no other process changes the files of the database meanwhile,
//! also when `DIR/lock` is removed. Failure: kind `locked`, which tells this process from another
//! one.

use crate::device::guard::{Guard, GuardedFiles};
use crate::device::layout::meta_path;
use crate::{Error, ErrorKind, Result};
use headwater_io::{Env, Lock, LockError};
use std::path::Path;
use std::sync::Arc;

/// Proof that this process owns a database: its locks.
pub(crate) struct Owner {
    pub(crate) guard: Arc<Guard>,
    /// Lock of the metadata's file, if it exists.
    pub(crate) meta_lock: Option<Box<dyn Lock>>,
    pub(crate) lock: Box<dyn Lock>,
}

impl Owner {
    /// Takes both locks, and permits changes of files only as the guard allows. The lock of
    /// `DIR/lock` names the owner; if that file is removed, the lock of the metadata, without which
    /// no database exists, still excludes all others.
    pub(crate) fn of(env: &mut Env, dir: &Path) -> Result<Owner> {
        let lock = take_lock(env, dir)?;
        let meta_lock = lock_meta(env, dir)?;
        let guard = Guard::new(&env.threads);
        let written = guard.bulk_written();
        *env = env.map_files(|files| Arc::new(GuardedFiles::new(files, &guard, written)));
        Ok(Owner {
            guard,
            meta_lock,
            lock,
        })
    }
}

/// Locks the metadata's file, if it exists.
pub(crate) fn lock_meta(env: &Env, dir: &Path) -> Result<Option<Box<dyn Lock>>> {
    let path = meta_path(dir);
    match env.index_files().lock_file(&path) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(not_locked(dir, &path, error)),
    }
}

pub(crate) fn take_lock(env: &Env, dir: &Path) -> Result<Box<dyn Lock>> {
    let path = dir.join("lock");
    env.files
        .lock(&path, &format!("pid {}", std::process::id()))
        .map_err(|error| not_locked(dir, &path, error))
}

fn not_locked(dir: &Path, path: &Path, error: LockError) -> Error {
    let dir = dir.display();
    match error {
        LockError::Held { owner_text } if owner_text.is_empty() => Error::new(
            ErrorKind::Locked,
            format!(
                "{dir} is in use by another process, which has locked {}: stop it first, and do not remove {dir}/lock",
                path.display()
            ),
        ),
        LockError::Held { owner_text } => Error::new(
            ErrorKind::Locked,
            format!("{dir} is in use by another process ({owner_text}): stop it first"),
        ),
        LockError::HeldHere { .. } => Error::new(
            ErrorKind::Locked,
            format!(
                "{dir} is already open in this process (pid {}): use that database, or close it and its snapshots first",
                std::process::id()
            ),
        ),
        LockError::Io(error) => Error::io("lock", path, error),
        other => Error::new(
            ErrorKind::Io,
            format!("cannot lock {}: {other}", path.display()),
        ),
    }
}
