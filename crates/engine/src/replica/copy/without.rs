//! Ranges that a copy cannot fetch: its source passes on its own data, and reports the rest as
//! outside its subscription.
//!
//! A version without other missing ranges is shown like a complete one. But it does not replace
//! complete data: the old version of a rewritten segment is shown until all of its replacement is
//! present.
//!
//! Concurrency and failure: as for the copy.

use super::RemoteCopy;
use super::receive::Receiving;
use crate::common::ids::SegmentId;
use crate::replication::needed::Reason;
use crate::replication::state::StatePartition;
use crate::{ErrorKind, Result};
use headwater_types::ByteRange;
use std::collections::BTreeSet;

impl RemoteCopy {
    /// Declares ranges of a segment, ascending and disjoint, that cannot be fetched: new versions
    /// of it are shown without them. An empty list revokes this.
    ///
    /// # Errors
    /// `full`, `io`: the copy refuses further input then, until it is opened again.
    pub fn do_without(&self, segment: u64, ranges: Vec<ByteRange>) -> Result<()> {
        let mut receiving = self.inner.receiving.lock();
        receiving.check()?;
        let id = SegmentId(segment);
        let known = receiving.without.get(&id);
        if known.map_or(ranges.is_empty(), |known| *known == ranges) {
            return Ok(());
        }
        match ranges.is_empty() || receiving.state.partition(id).is_none() {
            true => drop(receiving.without.remove(&id)),
            false => drop(receiving.without.insert(id, ranges)),
        }
        let shown = receiving.show(None);
        receiving.believed(shown)
    }

    /// Declares that all ranges can be fetched from now on, as far as is known. The partitions
    /// shown stay.
    pub fn do_without_nothing(&self) {
        self.inner.receiving.lock().without.clear();
    }

    /// The missing ranges of a segment that are subscribed or requested, ascending; `None` when its
    /// subscribed ranges are not known yet.
    #[must_use]
    pub fn missing_of(&self, segment: u64) -> Option<Vec<ByteRange>> {
        let receiving = self.inner.receiving.lock();
        receiving.missing.missing_of(SegmentId(segment))
    }
}

impl RemoteCopy {
    /// Segments of the state whose header, footers or blocks are damaged: no more bytes of them are
    /// fetched, unless the present bytes are [forgotten](RemoteCopy::forget).
    #[must_use]
    pub fn damaged(&self) -> Vec<u64> {
        self.inner.receiving.lock().missing.damaged()
    }
}

impl Receiving {
    /// Segments of the state that are shown although ranges that cannot be fetched are missing.
    pub(super) fn shown_without(&self) -> Result<BTreeSet<SegmentId>> {
        let mut found = BTreeSet::new();
        let named = self.without.iter();
        let named = named.filter_map(|(id, ranges)| Some((id, ranges, self.state.partition(*id)?)));
        for (id, ranges, partition) in named {
            let missing = &self.missing;
            if !missing.is_complete(*id)
                && missing.is_complete_but_for(*id, ranges)
                && !self.takes_away(partition)?
            {
                found.insert(*id);
            }
        }
        Ok(found)
    }

    /// True when a partition would replace another segment that is complete here.
    fn takes_away(&self, partition: &StatePartition) -> Result<bool> {
        let (record, span) = (&partition.record, partition.record.span());
        let meets = |p: &&StatePartition| {
            (p.record.table, p.record.shard) == (record.table, record.shard)
                && p.id != partition.id
                && p.record.span().overlaps(&span)
        };
        for shown in self.shown.iter().filter(meets) {
            if self.has_complete(shown)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True when all subscribed ranges of an earlier version are present.
    fn has_complete(&self, partition: &StatePartition) -> Result<bool> {
        let pack = self.pack(partition.id);
        let found = match self.needed(&self.store(&[partition]), partition) {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Elsewhere) => {
                return Ok(false);
            }
            other => other?,
        };
        let are_here = found.ranges.iter().all(|wanted| {
            let range = &wanted.range;
            wanted.reason == Reason::Ahead || pack.has(range.byte_range())
        });
        Ok(found.is_complete && are_here)
    }
}
