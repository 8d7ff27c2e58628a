//! The file of a segment, removed when it is not needed any more.
//!
//! Invariants: the file is removed once, when the last reference is dropped, and only when the
//! metadata refer to it neither as a part of the database nor for a named snapshot. Concurrency:
//! shared by partitions, snapshots and readers; no lock. Failure: a file that cannot be removed is
//! removed by the next opening.

use crate::common::ids::SegmentId;
use crate::storage::fast_index::Repeats;
use headwater_io::{Files, OpenMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A segment's file. The file is removed from the disk when it was replaced and its last reader has
/// ended.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) id: SegmentId,
    path: PathBuf,
    files: Arc<dyn Files>,
    /// The fast indexes that repeat parts of the file.
    repeats: Arc<Repeats>,
    replaced: AtomicBool,
    /// Number of named snapshots that retain the file.
    keepers: AtomicU32,
    /// True when the `.kept` file exists beside it.
    has_marker: AtomicBool,
}

/// The name of the file beside a segment that only named snapshots retain, so that metadata that
/// are rebuilt do not take the segment for a part of the database.
pub(crate) fn marker_name(id: SegmentId) -> String {
    format!("{}.kept", id.0)
}

impl SegmentFile {
    /// The file at a path; `is_retained` = it is not part of the database, but named snapshots are
    /// about to retain it.
    pub(super) fn new(
        id: SegmentId,
        (path, files): (PathBuf, Arc<dyn Files>),
        repeats: &Arc<Repeats>,
        is_retained: bool,
    ) -> SegmentFile {
        SegmentFile {
            id,
            path,
            files,
            repeats: Arc::clone(repeats),
            replaced: AtomicBool::new(is_retained),
            keepers: AtomicU32::new(0),
            has_marker: AtomicBool::new(is_retained),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True when the metadata do not refer to the file any more.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// Records that the metadata do not refer to this file any more, except for named snapshots.
    pub(crate) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Release);
        if self.keepers.load(Ordering::Acquire) > 0 {
            self.write_marker();
        }
    }

    /// True when a named snapshot retains the file.
    pub(crate) fn is_retained(&self) -> bool {
        self.keepers.load(Ordering::Acquire) > 0
    }

    /// Retains the file for a named snapshot, even when it is replaced and has no reader.
    pub(crate) fn keep(&self) {
        self.keepers.fetch_add(1, Ordering::AcqRel);
        if self.is_replaced() {
            self.write_marker();
        }
    }

    /// Releases the file from a named snapshot.
    pub(crate) fn let_go(&self) {
        let before = self.keepers.fetch_sub(1, Ordering::AcqRel);
        assert!(
            before > 0,
            "segment {} was released without being retained",
            self.id.0
        );
    }

    fn write_marker(&self) {
        if self.has_marker.swap(true, Ordering::AcqRel) {
            return;
        }
        let path = self.path.with_file_name(marker_name(self.id));
        match self.files.open(&path, OpenMode::CreateNew) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                // The next opening creates the file.
                tracing::warn!(path = %path.display(), %error, "cannot mark a segment that only snapshots retain");
            }
            _ => {}
        }
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if !self.is_replaced() || self.keepers.load(Ordering::Acquire) > 0 {
            return;
        }
        for kept in self.repeats.all() {
            kept.forget(self.id);
        }
        if let Err(error) = self.files.remove(&self.path) {
            // The next opening removes the file: the metadata do not refer to it.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a replaced segment");
        }
        if self.has_marker.load(Ordering::Acquire) {
            let path = self.path.with_file_name(marker_name(self.id));
            if let Err(error) = self.files.remove(&path) {
                tracing::debug!(path = %path.display(), %error, "cannot remove the mark of a replaced segment; the next opening removes it");
            }
        }
    }
}
