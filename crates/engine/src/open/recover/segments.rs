//! Opens the segments that the metadata name, by a plan.
//!
//! Invariants: every partition of the metadata is in the set of its shard, including unreadable
//! ones; no file is changed. Failure: a partition of a shard that does not exist is damage of the
//! metadata.

use super::files;
use super::media::{queue_segments, repeat_segments, segment_files};
use super::plan::{Opening, SegmentAccess, SegmentCheck, SegmentPlan};
use crate::common::error::Damage;
use crate::common::ids::SegmentId;
use crate::device::layout::{meta_path, segment_dir};
use crate::metadata::tables::PartitionRecord;
use crate::storage::partitions::PartitionSet;
use crate::storage::queues::SegmentQueues;
use crate::storage::segment::{Paging, Partition, ReadCache, SegmentFile, ShownStretch, Store};
use crate::wal::Access;
use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Segments of a database that is being opened.
pub(super) struct OpenedSegments {
    /// Partitions as the metadata name them.
    pub(super) partitions: Vec<(SegmentId, PartitionRecord)>,
    pub(super) store: Store,
    /// The file of each partition.
    pub(super) files: HashMap<SegmentId, Arc<SegmentFile>>,
}

impl SegmentPlan {
    /// Opens the segments, and sorts their partitions by shard.
    pub(super) fn open(
        self,
        opening: &Opening,
        access: Access<'_>,
    ) -> Result<(OpenedSegments, Vec<PartitionSet>)> {
        let shards = usize::from(opening.meta.shards()?.max(1));
        let partitions = opening.meta.partitions()?;
        let queues = self.access.queue_sets(opening, &partitions)?;
        let mut store = self.store(opening, queues, shards)?;
        let (tier, guard) = (opening.devices.tier.as_deref(), &opening.devices.guard);
        let place = (&opening.env, &opening.options);
        repeat_segments(&store, place, tier, &partitions, guard);
        self.access.hold(&mut store, &partitions)?;
        let unreadable = match self.check {
            SegmentCheck::Files => files::look(&store, &partitions, access)?,
            SegmentCheck::Checked(unreadable) => unreadable,
        };
        let mut opened = OpenedSegments {
            partitions,
            store,
            files: HashMap::new(),
        };
        let sets = opened.sets(opening, shards, unreadable, self.pieces)?;
        Ok((opened, sets))
    }

    /// Makes the store that reads the segments.
    fn store(
        &self,
        opening: &Opening,
        queues: Option<SegmentQueues>,
        shards: usize,
    ) -> Result<Store> {
        let Opening {
            env, options, meta, ..
        } = opening;
        let (files, ahead) = segment_files(env, options, queues.as_ref());
        let ahead_bytes = ahead.as_ref().map_or(0, |(_, bytes)| *bytes);
        let own = || {
            let bytes = opening.cache_bytes().saturating_sub(ahead_bytes);
            ReadCache::alone(bytes, options.open_files_max, shards)
        };
        let store = Store::new(
            files,
            segment_dir(opening.dir()),
            self.cache.clone().unwrap_or_else(own),
            options.open_files_max,
            shards,
        );
        Ok(store
            .with_queues(queues)
            .with_read_ahead(ahead.map(|(ahead, _)| ahead))
            .with_paging(Paging {
                entries: options.index_page_entries,
            })
            .with_freed(meta.freed()?.into_iter().map(|(id, _)| id))
            .with_missing_ranges(self.here.clone()))
    }
}

impl SegmentAccess {
    /// Starts the queue sets before the segments, if configured.
    fn queue_sets(
        self,
        opening: &Opening,
        partitions: &files::Named,
    ) -> Result<Option<SegmentQueues>> {
        match self {
            SegmentAccess::Queued => queue_segments(&opening.env, &opening.options, partitions),
            SegmentAccess::StayOpen | SegmentAccess::OpenedOnRead => Ok(None),
        }
    }

    /// Keeps files open that may be removed at any time.
    fn hold(self, store: &mut Store, partitions: &files::Named) -> Result<()> {
        match self {
            SegmentAccess::Queued => Ok(()),
            SegmentAccess::StayOpen => store.pin(partitions.iter().map(|(id, _)| *id)),
            SegmentAccess::OpenedOnRead => store.pin(std::iter::empty()),
        }
    }
}

impl OpenedSegments {
    /// Sorts the partitions by shard, and records the file of each.
    fn sets(
        &mut self,
        opening: &Opening,
        shards: usize,
        mut unreadable: HashMap<SegmentId, Error>,
        mut pieces: HashMap<SegmentId, Vec<ShownStretch>>,
    ) -> Result<Vec<PartitionSet>> {
        let mut sets = vec![PartitionSet::default(); shards];
        for (id, record) in &self.partitions {
            let set = sets.get_mut(usize::from(record.shard.0)).ok_or_else(|| {
                Error::damage(Damage {
                    file: meta_path(opening.dir()),
                    offset: 0,
                    expected: format!("a shard below {shards}"),
                    found: format!("segment {} in shard {}", id.0, record.shard.0),
                })
            })?;
            let file = self.store.segment_file(*id);
            self.files.insert(*id, Arc::clone(&file));
            let reason = unreadable.remove(id);
            let partition = Partition::with(record.clone(), file, reason);
            match pieces.remove(id) {
                None => set.put(Arc::new(partition)),
                Some(pieces) => set.put_pieces(&partition, pieces),
            }
        }
        Ok(sets)
    }

    /// The number of the next segment.
    pub(super) fn next(&self, opening: &Opening) -> Result<u64> {
        let ids = self.partitions.iter().map(|(id, _)| id.0 + 1);
        Ok(opening.meta.next_segment()?.max(ids.max().unwrap_or(1)))
    }
}
