//! Existing files of an older backup in the folder.

use super::each_part;
use super::manifest::{Entry, FileKind};
use super::target::BackupFolder;
use super::view::verify;
use crate::common::error::Damage;
use crate::{Error, Result};
use headwater_io::{File, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Bytes at the end of the copy that are compared before anything is appended.
const TAIL_BYTES: u64 = 64 << 10;
/// A footer's length, checksum and magic.
const TRAILER_BYTES: u64 = 16;

/// A copy that the newest manifest names.
pub(super) struct EarlierCopy<'a> {
    target: &'a BackupFolder<'a>,
    pub(super) entry: Entry,
}

impl<'a> EarlierCopy<'a> {
    /// The copy of a file of the database, if an older backup has one.
    pub(super) fn find(
        target: &'a BackupFolder<'a>,
        kind: FileKind,
        id: u64,
    ) -> Option<EarlierCopy<'a>> {
        let entry = target.before.as_ref()?.find(kind, id)?.clone();
        Some(EarlierCopy { target, entry })
    }

    fn open(&self) -> Result<Option<Arc<dyn File>>> {
        let path = self.entry.path(self.target.dir);
        match self.target.files.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            other => Ok(Some(other.map_err(|e| Error::io("open", &path, e))?)),
        }
    }

    /// Its file, if that has its recorded length.
    fn complete_file(&self) -> Result<Option<Arc<dyn File>>> {
        let Some(file) = self.open()? else {
            return Ok(None);
        };
        let path = self.entry.path(self.target.dir);
        let len = file.len().map_err(|e| Error::io("read", &path, e))?;
        Ok((len >= self.entry.bytes).then_some(file))
    }

    /// True when its bytes, within the compared part, are a prefix of these.
    pub(super) fn is_front_of(&self, source: (&dyn File, &Path)) -> Result<bool> {
        let Some(copied) = self.complete_file()? else {
            return Ok(false);
        };
        let path = self.entry.path(self.target.dir);
        // After a restore, or a power cut that lost a commit included in the backup, the same name
        // can have other bytes. Every group of a segment ends with a footer that has a checksum and
        // the sequence of its job, and every record of the log has both: different histories differ
        // there.
        let tail = self.entry.bytes.saturating_sub(TAIL_BYTES);
        let crc = |file: (&dyn File, &Path)| {
            let head = each_part(file, 0, tail.min(64), 0, |_, _| Ok(()))?;
            each_part(file, tail, self.entry.bytes, head, |_, _| Ok(()))
        };
        Ok(crc(source)? == crc((&*copied, &path))?)
    }

    /// True when its last footer, by length and checksum, is at the same offset of these bytes.
    pub(super) fn ends_alike(&self, source: (&dyn File, &Path)) -> Result<bool> {
        let Some(copied) = self.complete_file()? else {
            return Ok(false);
        };
        let path = self.entry.path(self.target.dir);
        let from = self.entry.bytes.saturating_sub(TRAILER_BYTES);
        let crc =
            |file: (&dyn File, &Path)| each_part(file, from, self.entry.bytes, 0, |_, _| Ok(()));
        Ok(crc(source)? == crc((&*copied, &path))?)
    }

    /// The first difference between its bytes and the copied ones.
    pub(super) fn damage(&self) -> Result<Option<Damage>> {
        verify(self.target.files, self.target.dir, &self.entry)
    }
}
