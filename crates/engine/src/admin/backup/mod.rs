//! Backup and restore.
//!
//! A backup is a folder with its own layout (docs/format/backup.md): copies of the metadata, of
//! segments up to their committed lengths, and of the log's records, and a manifest that names them
//! with lengths and checksums. A later backup into the same folder copies only new bytes, and
//! becomes valid with its manifest, which is written last.
//!
//! Invariants: bytes that a valid manifest names are never changed; the newest valid manifest is
//! the backup; files it does not name have no meaning. A copy whose checksum fails is copied again,
//! and a good copy is never replaced by damaged bytes. One backup is one state of the database
//! ([`crate::metadata::tables::copy`]). Concurrency: beside an owner or without one; one backup
//! into a folder at a time. Failure: at any point the older backup is still the backup.

mod front;
mod manifest;
mod restore;
mod source;
mod target;
mod view;
mod write;

#[cfg(fuzzing)]
pub(crate) use manifest::fuzz_manifest;
pub use restore::restore;
pub use view::verify_backup;
pub use write::{BackupOptions, BackupReport, backup, backup_with};

use crate::device::tiers::without_tier;
use crate::{Database, Error, Result};
use headwater_codec::checksum::crc32c_append;
use headwater_io::File;
use headwater_types::invariant::first_mut;
use std::path::Path;

impl Database {
    /// Backs the database up into a folder, as [`crate::backup`] does: one state of it, with
    /// everything acknowledged before this call. Writers and readers go on meanwhile.
    ///
    /// # Errors
    /// As [`crate::backup`].
    pub fn backup(&self, to: &Path) -> Result<BackupReport> {
        self.backup_with(to, &BackupOptions::default())
    }

    /// Backs up like [`Database::backup`], with options.
    ///
    /// # Errors
    /// As [`crate::backup`].
    pub fn backup_with(&self, to: &Path, how: &BackupOptions) -> Result<BackupReport> {
        let core = self.own_core()?;
        // As for a process beside this one, `DIR/tier` names the present location of the log.
        backup_with(&without_tier(&core.env), &core.options, to, how)
    }
}

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Copies bytes `from..to` to the same offsets of another file. Returns the checksum that continues
/// from `crc`.
fn copy(
    source: (&dyn File, &Path),
    target: (&dyn File, &Path),
    from: u64,
    to: u64,
    crc: u32,
) -> Result<u32> {
    each_part(source, from, to, crc, |offset, part| {
        target
            .0
            .write_all_at(offset, part)
            .map_err(|e| Error::io("write", target.1, e))
    })
}

/// Passes bytes `from..to` on in parts. Returns the checksum that continues from `crc`.
fn each_part(
    source: (&dyn File, &Path),
    from: u64,
    to: u64,
    mut crc: u32,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u32> {
    let mut buffer = vec![0u8; COPY_BYTES];
    let mut offset = from;
    while offset < to {
        let count = usize::try_from(to - offset)
            .unwrap_or(COPY_BYTES)
            .min(COPY_BYTES);
        let part = first_mut(&mut buffer, count, "bytes to copy");
        source
            .0
            .read_exact_at(offset, part)
            .map_err(|e| Error::io("read", source.1, e))?;
        crc = crc32c_append(crc, part);
        each(offset, part)?;
        offset += count as u64;
    }
    Ok(crc)
}
