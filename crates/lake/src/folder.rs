//! A lake in a folder of this machine: its files, and commits of metadata.
//!
//! Invariants: a file that is reported as written is on the device, including its name. Of two
//! writers of the same metadata one wins: the name is hard-linked, which fails if it exists.
//! Failure: a file of an interrupted write has a name that starts with a dot, or that no metadata
//! name.

use crate::error::{LakeError, Result};
use crate::names::{HINT, METADATA, metadata_file, version_of};
use crate::steps::Steps;
use headwater::Timestamp;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file of a table, as it is listed.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| LakeError::io(path, e))
}

/// Writes a file, which is on the device afterwards, but perhaps not its name.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|e| LakeError::io(path, e))
}

/// Creates a file to write to, and its folder.
pub(crate) fn create(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        make(folder)?;
    }
    File::create_new(path).map_err(|e| LakeError::io(path, e))
}

pub(crate) fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| LakeError::io(folder, e))
}

pub(crate) fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|e| LakeError::io(path, e))
}

/// Syncs a folder, and `levels` folders above it: the name of each may be new.
pub(crate) fn sync(folder: &Path, levels: usize) -> Result<()> {
    for folder in folder.ancestors().take(levels) {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| LakeError::io(folder, e))?;
    }
    Ok(())
}

/// Entries of a folder; empty if it does not exist, or is not a folder.
fn entries(of: &Path) -> Result<Vec<DirEntry>> {
    let io = |e| LakeError::io(of, e);
    match fs::read_dir(of) {
        Ok(entries) => entries.collect::<io::Result<_>>().map_err(io),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(e) => Err(io(e)),
    }
}

/// Folders in a folder, sorted by name; empty if it does not exist.
pub(crate) fn folders(of: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in entries(of)? {
        let name = entry.file_name().into_string();
        if let (Ok(name), true) = (name, entry.path().is_dir()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Number of commits of a table; `None` = the table does not exist.
pub(crate) fn newest(dir: &Path) -> Result<Option<u64>> {
    let names = entries(&dir.join(METADATA))?.into_iter();
    let versions = names.filter_map(|entry| version_of(entry.file_name().to_str()?));
    Ok(versions.max())
}

/// Creates the metadata of a version; false if they exist already, and then no state is changed.
pub(crate) fn commit(
    dir: &Path,
    version: u64,
    (prefix, bytes): (&str, &[u8]),
    steps: &Steps,
) -> Result<bool> {
    let folder = dir.join(METADATA);
    let temporary = folder.join(format!(".{prefix}-{version}.tmp"));
    write(&temporary, bytes)?;
    // For a new table also the name of the table's folder.
    sync(&folder, if version == 1 { 3 } else { 1 })?;
    steps.at("metadata written")?;
    let target = metadata_file(dir, version);
    let was_first = match fs::hard_link(&temporary, &target) {
        Ok(()) => true,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
        Err(e) => return Err(LakeError::io(&target, e)),
    };
    if was_first {
        sync(&folder, 1)?;
        steps.at("committed")?;
    }
    remove(&temporary)?;
    Ok(was_first)
}

/// Writes the version of the newest metadata to the hint file.
pub(crate) fn write_version_hint(dir: &Path, prefix: &str) -> Result<()> {
    let folder = dir.join(METADATA);
    let mut told = None;
    loop {
        let version = newest(dir)?;
        let Some(version) = version.filter(|_| version != told) else {
            return Ok(());
        };
        let temporary = folder.join(format!(".{prefix}-hint.tmp"));
        write(&temporary, version.to_string().as_bytes())?;
        let hint = folder.join(HINT);
        #[allow(
            clippy::disallowed_methods,
            reason = "it only repeats what other names say"
        )]
        let renamed = fs::rename(&temporary, &hint);
        renamed.map_err(|e| LakeError::io(&hint, e))?;
        // Another commit may have written the hint before this one.
        told = Some(version);
    }
}

/// Version in the hint, the file for readers that do not list.
pub(crate) fn hint_version(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join(METADATA).join(HINT)).ok()?;
    text.trim().parse().ok()
}

/// Files below a folder that were written before an instant.
pub(crate) fn older(folder: &Path, before: Timestamp, into: &mut Vec<Listed>) -> Result<()> {
    let is_older = |at: SystemTime| match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => {
            i128::try_from(since.as_nanos()).is_ok_and(|ns| ns <= before.as_nanos().into())
        }
        // Before 1970.
        Err(_) => true,
    };
    for entry in entries(folder)? {
        let path = entry.path();
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // A temporary file of another write.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(LakeError::io(&path, e)),
        };
        if metadata.is_dir() {
            older(&path, before, into)?;
            continue;
        }
        let modified = metadata.modified().map_err(|e| LakeError::io(&path, e))?;
        if is_older(modified) {
            let bytes = metadata.len();
            into.push(Listed { path, bytes });
        }
    }
    Ok(())
}
