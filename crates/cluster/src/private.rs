//! Files of this crate, which only their owner may read and which are replaced whole, with errors
//! that name the file.
//!
//! Invariant: a reader sees the old file or the new one, also over a power cut.

use crate::error::{ClusterError, ClusterErrorKind};
use headwater_shell::replace_private;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

/// The version of each of these files.
pub(crate) const VERSION: u32 = 1;

/// Reads a file of JSON; `None` if it does not exist.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ClusterError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ClusterError::io(path, &error)),
    };
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|error| damaged(path, &error))
}

/// Error for a file with invalid content.
pub(crate) fn damaged(path: &Path, reason: &dyn std::fmt::Display) -> ClusterError {
    ClusterError::new(
        ClusterErrorKind::Io,
        format!(
            "{}: {reason}; correct it, or move it away and join again",
            path.display()
        ),
    )
}

/// Content of a JSON file.
pub(crate) fn text_of<T: Serialize>(path: &Path, content: &T) -> Result<Vec<u8>, ClusterError> {
    let text = serde_json::to_vec_pretty(content).map(|mut text| {
        text.push(b'\n');
        text
    });
    text.map_err(|error| ClusterError::io(path, &error.into()))
}

/// Replaces a file of JSON.
pub(crate) fn replace<T: Serialize>(path: &Path, content: &T) -> Result<(), ClusterError> {
    replace_bytes(path, &text_of(path, content)?)
}

/// Replaces a file.
pub(crate) fn replace_bytes(path: &Path, content: &[u8]) -> Result<(), ClusterError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let written = std::fs::create_dir_all(dir).and_then(|()| replace_private(path, content));
    written.map_err(|error| ClusterError::io(path, &error))
}

/// Checks the version of a file that was read.
pub(crate) fn check_version(path: &Path, version: u32) -> Result<(), ClusterError> {
    match version {
        VERSION => Ok(()),
        other => Err(damaged(
            path,
            &format!("it has version {other}; this program reads version {VERSION}"),
        )),
    }
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), ClusterError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ClusterError::io(path, &error))
        }
        _ => Ok(()),
    }
}
