//! Creates a database from a backup.

use super::copy;
use super::manifest::{Entry, FileKind, Manifest};
use crate::admin::check::{CheckReport, check};
use crate::common::error::Damage;
use crate::device::layout::{durable_roots, files_of, folders, log_dir, meta_path, segment_dir};
use crate::metadata::owner;
use crate::metadata::tables::{Meta, MetaChange};
use crate::{Error, ErrorKind, Options, Result};
use headwater_io::{Env, File, Files, MemoryFiles, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Creates the database in `options.dir`, which must be empty or not exist, from the backup in
/// `from`, and checks all of it. The metadata are written last: an interrupted restore leaves a
/// directory that does not open.
///
/// # Errors
/// `not_found` without a backup, `invalid` when the folder is not empty, `corrupt` when a file of
/// the backup differs from the original, `full`, `io`. Damage found by the check is part of the
/// report.
pub fn restore(env: &Env, from: &Path, options: &Options) -> Result<CheckReport> {
    options.validate()?;
    let dir = options.dir.as_path();
    let manifest = Manifest::of(&*env.files, from)?;
    require_empty(env, dir)?;
    for (files, folder) in folders(env, dir) {
        files
            .create_dir_all(&folder)
            .map_err(|e| Error::io("create", &folder, e))?;
    }
    let lock = owner::take_lock(env, dir)?;
    // The metadata last, and only when the rest is on the medium.
    let part = |last: bool| {
        for entry in &manifest.entries {
            if (entry.kind == FileKind::Meta) == last {
                restore_file(env, from, dir, entry)?;
            }
        }
        for (files, folder) in folders(env, dir) {
            files
                .sync_dir(&folder)
                .map_err(|e| Error::io("sync", &folder, e))?;
        }
        Ok(())
    };
    part(false)?;
    // After a failed sync files look complete until the power fails: an opening must not rely on
    // them.
    part(true).map_err(|error: Error| match remove_meta(env, dir) {
        Ok(()) => error,
        Err(left) => Error::new(
            error.kind(),
            format!("{error}; remove the incomplete result, which could not be removed: {left}"),
        ),
    })?;
    drop(lock);
    check(env.clone(), options.clone())
}

fn remove_meta(env: &Env, dir: &Path) -> Result<()> {
    let path = meta_path(dir);
    match env.index_files().remove(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", &path, error))
        }
        _ => Ok(()),
    }
}

fn require_empty(env: &Env, dir: &Path) -> Result<()> {
    let list = |files: &Arc<dyn Files>, dir: &Path| match files.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|e| Error::io("list", dir, e)),
    };
    let mut found = None;
    for (files, root) in durable_roots(env, dir) {
        let names = list(files, &root)?.into_iter();
        found = found.or_else(|| names.into_iter().find(|n| n != "lock"));
    }
    let parts = [
        ("log", env.log_files(), log_dir(env, dir)),
        ("segment", env.segment_files(), segment_dir(dir)),
    ];
    for (name, files, folder) in parts {
        if !list(files, &folder)?.is_empty() {
            found = Some(name.to_owned());
        }
    }
    match found {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "{} is not empty (it contains {name}): restore into an empty folder",
            dir.display()
        ))),
    }
}

fn restore_file(env: &Env, from: &Path, dir: &Path, entry: &Entry) -> Result<()> {
    let source_path = entry.path(from);
    let target_path = dir.join(entry.restored_path());
    let source = env
        .files
        .open(&source_path, OpenMode::Read)
        .map_err(|e| Error::io("open", &source_path, e))?;
    if entry.kind == FileKind::Meta {
        return restore_meta(env, dir, (&*source, &source_path), &target_path, entry);
    }
    let target = files_of(env, dir, &target_path)
        .open(&target_path, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", &target_path, e))?;
    let crc = copy(
        (&*source, &source_path),
        (&*target, &target_path),
        0,
        entry.bytes,
        0,
    )?;
    check_crc(crc, entry, &source_path)?;
    target
        .set_len(entry.full_bytes.max(entry.bytes))
        .and_then(|()| target.sync_data())
        .map_err(|e| Error::io("write", &target_path, e))
}

fn check_crc(crc: u32, entry: &Entry, source: &Path) -> Result<()> {
    if crc == entry.crc {
        return Ok(());
    }
    Err(Error::damage(Damage {
        file: source.to_owned(),
        offset: 0,
        expected: format!("{} bytes with checksum {:08x}", entry.bytes, entry.crc),
        found: format!("checksum {crc:08x}"),
    }))
}

/// Restores the metadata as another incarnation of the database: its states from here on are not
/// states of the database that was backed up. The change is made in memory, so that the old
/// metadata are never on the medium.
fn restore_meta(
    env: &Env,
    dir: &Path,
    (source, source_path): (&dyn File, &Path),
    target_path: &Path,
    entry: &Entry,
) -> Result<()> {
    let memory = MemoryFiles::new()
        .open(Path::new("/meta.redb"), OpenMode::CreateNew)
        .map_err(|e| Error::io("copy", source_path, e))?;
    let from = (source, source_path);
    let crc = copy(from, (&*memory, target_path), 0, entry.bytes, 0)?;
    check_crc(crc, entry, source_path)?;
    match Meta::open(target_path, Arc::clone(&memory)) {
        Ok(Some(meta)) => meta.renewing(&env.chance).commit(&MetaChange::default())?,
        // They were damaged when they were backed up: a repair begins another incarnation.
        Ok(None) => {}
        Err(error) if error.kind() == ErrorKind::Corrupt => {}
        Err(error) => return Err(error),
    }
    let target = files_of(env, dir, target_path)
        .open(target_path, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", target_path, e))?;
    let bytes = memory
        .len()
        .map_err(|e| Error::io("read", source_path, e))?;
    copy(
        (&*memory, source_path),
        (&*target, target_path),
        0,
        bytes,
        0,
    )?;
    target
        .sync_data()
        .map_err(|e| Error::io("write", target_path, e))
}
