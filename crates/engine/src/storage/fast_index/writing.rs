//! Writes the file of one segment after a commit.
//!
//! Invariants: the bytes written are the bytes of the segment up to a committed footer.
//! Concurrency: the writer of a segment's file holds its lock. Failure: a file whose writing failed
//! is removed; on a full device nothing is written for a while.

use super::file::{IndexFile, NewBatch, NotAppended, ReadSegment, bytes_of};
use super::format::UpTo;
use super::{FastIndex, RepeatKind};
use crate::common::ids::SegmentId;
use crate::device::reserve::is_full;
use crate::{Error, Result};
use headwater_types::ByteRange;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A segment's file while it is written.
pub(crate) struct Writing<'a> {
    pub(super) index: &'a FastIndex,
    pub(super) id: SegmentId,
    pub(super) to: UpTo,
    pub(super) lock: Arc<Mutex<()>>,
}

impl Writing<'_> {
    /// The footer up to which the file is complete; `None` = the file is empty.
    pub(crate) fn from(&self) -> Option<UpTo> {
        Some(self.index.file(self.id)?.up_to)
    }

    /// True when nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        let from = self.from();
        let is_whole = from.is_some_and(|up_to| up_to.footer_offset == self.to.footer_offset);
        if is_whole {
            self.index
                .segments
                .lock()
                .mark_written_up_to(self.id, &self.to);
        }
        is_whole
    }

    /// Reports that the footers of the segment do not lead to the end of the file.
    pub(crate) fn doubt(&self, reason: &str) {
        self.index.drop_doubted(self.id, reason);
    }

    /// Writes these stretches of the segment, which are sorted, after the file's contents up to
    /// `from`.
    pub(crate) fn append(
        &self,
        from: Option<UpTo>,
        ranges: &[ByteRange],
        footer_crc: u32,
        segment: ReadSegment<'_>,
    ) -> Result<()> {
        let _alone = self.lock.lock();
        let index = self.index;
        if index.retired.load(Ordering::Acquire) {
            return Ok(());
        }
        let removals = index.removals(self.id);
        let before = index.file(self.id);
        if before.as_ref().map(|file| file.up_to) != from {
            // Another writer was faster.
            return Ok(());
        }
        let most = index.config.bytes_max.unwrap_or(u64::MAX);
        let held = index.bytes();
        if held.saturating_add(bytes_of(ranges)) > most {
            index.pause();
            return Ok(());
        }
        let batch = NewBatch {
            header: index.header(self.id),
            up_to: self.to,
            footer_crc,
            ranges,
        };
        let (files, path) = (&*index.config.files, index.path(self.id));
        let end = before.as_ref().map_or(0, |file| file.end);
        let written = match &before {
            Some(file) => file.appended(files, &path, &batch, segment),
            None => {
                // The path may still have a file that is not trusted.
                index.unlink(self.id);
                IndexFile::begin(files, &path, &batch, segment)
            }
        };
        match written {
            Ok(file) => {
                let grown = file.end.saturating_sub(end);
                index.config.written.fetch_add(grown, Ordering::Relaxed);
                index.note_written(self.id, &self.to, file, removals);
                Ok(())
            }
            Err(failed) => {
                // Bytes after the last batch would be in doubt.
                index.take_away(self.id);
                index.unlink(self.id);
                match failed {
                    NotAppended::Segment(error) => Err(error),
                    NotAppended::File(error) if is_full(&error) => {
                        if index.config.kind == RepeatKind::Newest && held > 0 {
                            // Segments beyond these bytes do not fit.
                            index.space.store(held, Ordering::Relaxed);
                        }
                        index.pause();
                        Ok(())
                    }
                    NotAppended::File(error) => {
                        index.pause();
                        Err(Error::io("write", &path, error))
                    }
                }
            }
        }
    }
}
