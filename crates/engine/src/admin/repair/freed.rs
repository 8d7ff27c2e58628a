//! Repair of segments whose rows were freed.
//!
//! Without metadata the files show which segments these are. Where both files exist, the one with
//! the rows is used, unless the other one has grown since.

use super::plan::{Planning, damage};
use crate::common::ids::SegmentId;
use crate::device::layout::segment_dir;
use crate::metadata::tables::{MetaChange, PartitionRecord};
use crate::storage::segment::{StubFiles, stub_of};
use crate::{Error, ErrorKind, Result};
use headwater_io::{Files, OpenMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file; `None` = there is no file.
fn bytes_of(files: &dyn Files, path: &Path) -> Result<Option<u64>> {
    let file = match files.open(path, OpenMode::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| Error::io("open", path, e))?,
    };
    let len = file.len().map_err(|e| Error::io("read", path, e))?;
    Ok(Some(len))
}

impl Planning<'_> {
    /// The files of segments in which to search for footers, with the files of freed segments in
    /// their place.
    pub(super) fn segment_files(&self) -> StubFiles {
        let bare = Arc::clone(self.env.segment_files());
        let stubs = StubFiles::new(bare, &segment_dir(self.dir)).with_zeros();
        stubs.set_freed(self.freed.iter().copied());
        stubs
    }

    /// The freed segments, according to their files.
    pub(super) fn freed_by_files(&self) -> Result<Vec<SegmentId>> {
        let dir = segment_dir(self.dir);
        let bare = self.env.segment_files();
        let names = match bare.list(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|e| Error::io("list", &dir, e))?,
        };
        let mut freed = Vec::new();
        for id in names.iter().filter_map(|name| stub_of(name)) {
            let stubs = StubFiles::new(Arc::clone(bare), &dir);
            let path = dir.join(format!("{}.seg", id.0));
            let with_rows = bytes_of(&**bare, &path)?;
            stubs.set_freed(std::iter::once(id));
            let counts = match (with_rows, bytes_of(&stubs, &path)) {
                (None, _) => true,
                (Some(with_rows), Ok(now)) => now.is_some_and(|now| now > with_rows),
                (Some(_), Err(error)) if error.kind() == ErrorKind::Corrupt => false,
                (Some(_), Err(error)) => return Err(error),
            };
            if counts {
                freed.push(id);
            }
        }
        Ok(freed)
    }

    /// Records in rebuilt metadata which of the segments in force were freed.
    pub(super) fn name_freed(&self, partitions: &[(SegmentId, PartitionRecord)]) -> Result<()> {
        let files = self.segment_files();
        let mut freed = Vec::new();
        for (id, _) in partitions.iter().filter(|(id, _)| files.is_freed(*id)) {
            let tail = files.tail(*id);
            let tail = tail.map_err(|e| Error::io("read", &files.stub_path(*id), e))?;
            freed.extend(tail.map(|(base, _)| (*id, base)));
        }
        match freed.is_empty() {
            true => Ok(()),
            false => self.open_meta()?.change_freed(&freed, &[], None),
        }
    }

    /// Offset in the file of a position after an offset of a segment; `None` = it is below the
    /// remaining parts, where nothing can be stored.
    pub(super) fn offset_in_file(&self, id: SegmentId, offset: u64) -> Result<Option<u64>> {
        let files = self.segment_files();
        let tail = files.tail(id);
        let tail = tail.map_err(|e| Error::io("read", &files.stub_path(id), e))?;
        Ok(match tail {
            None => Some(offset),
            Some((base, tail_at)) => offset.checked_sub(base).map(|behind| tail_at + behind),
        })
    }

    /// Drops a freed segment whose remaining parts cannot be read.
    pub(super) fn lose_stub(
        &mut self,
        id: SegmentId,
        error: &Error,
        held: String,
        change: &mut MetaChange,
    ) {
        let path = self.store().path(id);
        let found = error.damaged().cloned();
        let found = found.unwrap_or_else(|| damage(&path, 0, "a segment", error.to_string()));
        self.find(found, "the file is moved to quarantine");
        self.lost.push(format!(
            "aggregates of {held} (segment {}), whose rows were freed and remain on the cloud",
            id.0
        ));
        self.quarantined.insert(path);
        change.removed.push(id);
    }

    /// The file on the medium that represents a segment file.
    pub(super) fn on_medium(&self, path: PathBuf) -> PathBuf {
        let freed = self.freed.iter().find(|id| {
            let name = path.file_name().and_then(|name| name.to_str());
            name == Some(format!("{}.seg", id.0).as_str())
        });
        match freed {
            Some(id) => self.segment_files().stub_path(*id),
            None => path,
        }
    }
}
