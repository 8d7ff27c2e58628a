//! Files that only their owner may read, and that are replaced whole.
//!
//! Invariant: a reader sees the old file or the new one, also after a power failure.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens files that only their owner may read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// Replaces a file atomically; its folder must exist.
///
/// # Errors
/// The system's own; then the file of before is still there.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let mut file = private().truncate(true).open(new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(new, path)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
