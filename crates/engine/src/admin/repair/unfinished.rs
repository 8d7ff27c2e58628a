//! Segments with unreadable footers, or whose newest group may never have been committed.

use super::log::LogScan;
use super::mend::newest_is_readable;
use super::plan::{Planning, damage};
use super::scan::{ReadablePrefix, ScannedSegment, through_checkpoint};
use crate::Result;
use crate::common::ids::{SegmentId, Sequence};
use crate::device::layout::log_dir;
use crate::metadata::tables::PartitionRecord;
use crate::storage::segment::Store;
use std::collections::BTreeMap;

impl Planning<'_> {
    /// Contents of a segment with unreadable footers, according to a checkpoint.
    pub(super) fn rescued(
        &mut self,
        store: &Store,
        id: SegmentId,
        record: &PartitionRecord,
    ) -> Result<Option<ReadablePrefix>> {
        let meta = self.open_meta()?;
        let needed = meta.log_needed()?;
        let begun = (needed.first_generation, needed.newest_generation);
        let log = LogScan::read(&**self.env.log_files(), &log_dir(self.env, self.dir), begun)?;
        let first = log.records.keys().next().copied();
        let after = first.map_or(record.sequence, |s| Sequence(s.0.saturating_sub(1)));
        let found = through_checkpoint(store, id, record, after, &meta)?;
        if found.is_some() {
            self.find(
                damage(
                    &store.path(id),
                    record.footer_offset,
                    "readable footers",
                    "a damaged footer before a checkpoint",
                ),
                "a single footer replaces the checkpoint and the footers after it; the present file is moved to quarantine",
            );
        }
        Ok(found)
    }

    /// Without metadata it is unknown whether the newest job of a shard was committed. If its
    /// output cannot be read it may have been interrupted, and the log has its events: such groups
    /// are left out. Any later job of the shard proves a commit.
    pub(super) fn without_unfinished(&mut self, segments: &mut [ScannedSegment]) -> Result<()> {
        let sequence_of = |s: &ScannedSegment| Some(s.readable.as_ref()?.newest()?.sequence);
        let mut newest: BTreeMap<u16, Sequence> = BTreeMap::new();
        for segment in segments.iter() {
            if let (Some(header), Some(sequence)) = (&segment.header, sequence_of(segment)) {
                let slot = newest.entry(header.shard.0).or_default();
                *slot = sequence.max(*slot);
            }
        }
        let store = self.store();
        for segment in segments {
            let (Some(header), Some(whole)) = (&segment.header, &segment.readable) else {
                continue;
            };
            let is_newest = newest.get(&header.shard.0).copied() == sequence_of(segment);
            if !is_newest || newest_is_readable(&store, segment.id, whole)? {
                continue;
            }
            let found = damage(
                &segment.path,
                whole.offset,
                "a readable group",
                "damaged leaves or blocks in the newest group of the shard",
            );
            self.quarantined.insert(segment.path.clone());
            let limit = whole.offset;
            let before = ScannedSegment::open(&self.segment_files(), self.dir, segment.id, limit)?;
            segment.readable = before.and_then(|s| s.readable);
            self.find(
                found,
                "the group counts as an interrupted maintenance job: the segment is rolled back to the previous group; the log contains the events",
            );
        }
        Ok(())
    }
}
