//! Makes a database of a backup.

use super::copy;
use super::manifest::{Entry, Kind, Manifest};
use crate::check::{CheckReport, check};
use crate::error::Damage;
use crate::{Error, Options, Result, owner};
use headwater_io::{Env, Files, OpenMode};
use std::path::Path;

/// Makes the database in `options.dir`, which must be empty or not there, of the backup in `from`, and checks all of it. The
/// metadata are written last: a restore that was cut short leaves what does not open.
///
/// # Errors
/// `not_found` without a backup, `invalid` when the folder is not empty, `corrupt` when a file of the backup is not what was
/// backed up, `full`, `io`. Damage found by the check is part of the report.
pub fn restore(env: &Env, from: &Path, options: &Options) -> Result<CheckReport> {
    options.validate()?;
    let files = &*env.files;
    let dir = options.dir.as_path();
    let manifest = Manifest::of(files, from)?;
    require_empty(files, dir)?;
    let folders = [dir.to_owned(), dir.join("log"), dir.join("segment")];
    for folder in &folders {
        files
            .create_dir_all(folder)
            .map_err(|e| Error::io("create", folder, e))?;
    }
    let lock = owner::take_lock(env, dir)?;
    // The metadata last, and only when the rest is on the medium.
    let part = |last: bool| {
        for entry in &manifest.entries {
            if (entry.kind == Kind::Meta) == last {
                restore_file(files, from, dir, entry)?;
            }
        }
        for folder in &folders {
            files
                .sync_dir(folder)
                .map_err(|e| Error::io("sync", folder, e))?;
        }
        Ok(())
    };
    part(false)?;
    // What a failed sync leaves looks whole until the power goes: nobody may open it and build on it.
    part(true).map_err(|error: Error| match remove_meta(files, dir) {
        Ok(()) => error,
        Err(left) => Error::new(
            error.kind(),
            format!("{error}; what was made of it must be removed: {left}"),
        ),
    })?;
    drop(lock);
    check(env.clone(), options.clone())
}

fn remove_meta(files: &dyn Files, dir: &Path) -> Result<()> {
    let path = dir.join("meta.redb");
    match files.remove(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", &path, error))
        }
        _ => Ok(()),
    }
}

fn require_empty(files: &dyn Files, dir: &Path) -> Result<()> {
    let mut found = match files.list(dir) {
        Ok(names) => names.into_iter().find(|n| n != "lock"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io("list", dir, error)),
    };
    for name in ["log", "segment"] {
        match files.list(&dir.join(name)) {
            Ok(names) if names.is_empty() => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Ok(_) => found = Some(name.to_owned()),
            Err(error) => return Err(Error::io("list", &dir.join(name), error)),
        }
    }
    match found {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "{} is not empty (it holds {name}): restore into an empty folder",
            dir.display()
        ))),
    }
}

fn restore_file(files: &dyn Files, from: &Path, dir: &Path, entry: &Entry) -> Result<()> {
    let source_path = entry.path(from);
    let target_path = dir.join(entry.restored_path());
    let source = files
        .open(&source_path, OpenMode::Read)
        .map_err(|e| Error::io("open", &source_path, e))?;
    let target = files
        .open(&target_path, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", &target_path, e))?;
    let crc = copy(
        (&*source, &source_path),
        (&*target, &target_path),
        0,
        entry.bytes,
        0,
    )?;
    if crc != entry.crc {
        return Err(Error::damage(Damage {
            file: source_path,
            offset: 0,
            expected: format!("{} bytes with checksum {:08x}", entry.bytes, entry.crc),
            found: format!("checksum {crc:08x}"),
        }));
    }
    target
        .set_len(entry.full_bytes.max(entry.bytes))
        .and_then(|()| target.sync_data())
        .map_err(|e| Error::io("write", &target_path, e))
}
