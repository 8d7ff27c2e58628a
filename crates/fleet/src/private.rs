//! Files that only their owner may read, and that are replaced whole.
//!
//! Invariant: a reader sees the file of before or that of after, also over a power cut.

use crate::error::{FleetError, FleetErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The version of each of these files.
pub(crate) const VERSION: u32 = 1;

/// Reads a file of JSON; `None` when there is none.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FleetError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FleetError::io(path, &error)),
    };
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|error| damaged(path, &error))
}

/// Why a file is none of these.
pub(crate) fn damaged(path: &Path, reason: &dyn std::fmt::Display) -> FleetError {
    FleetError::new(
        FleetErrorKind::Io,
        format!(
            "{}: {reason}; correct it, or move it away and join again",
            path.display()
        ),
    )
}

/// Puts a file of JSON in the place of the one before.
pub(crate) fn replace<T: Serialize>(path: &Path, content: &T) -> Result<(), FleetError> {
    let text = serde_json::to_vec_pretty(content).map(|mut text| {
        text.push(b'\n');
        text
    });
    let text = text.map_err(|error| FleetError::io(path, &error.into()))?;
    replace_bytes(path, &text)
}

/// Puts a file in the place of the one before.
pub(crate) fn replace_bytes(path: &Path, content: &[u8]) -> Result<(), FleetError> {
    let write = || -> io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir)?;
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = Path::new(&new);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(new)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(new, path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|error| FleetError::io(path, &error))
}

/// Takes a file away, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), FleetError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FleetError::io(path, &error)),
        _ => Ok(()),
    }
}
