//! Bytes on disk.

use std::path::Path;

/// Bytes of all files in a directory, by their lengths.
pub(crate) fn bytes_in(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() {
            bytes_in(&entry.path())?
        } else {
            about.len()
        };
    }
    Ok(bytes)
}
