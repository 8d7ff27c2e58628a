//! What a copy has to do without: its source passes on what it has, and says of the rest that it
//! does not want that itself.
//!
//! A version that lacks nothing else is shown, as one would be that lacks nothing. But what is here
//! as a whole does not go for it: a segment that was rewritten is shown as it was until all of what
//! took its place is here.
//!
//! Concurrency and failure: as for the copy.

use super::RemoteCopy;
use super::receive::Receiving;
use crate::common::ids::SegmentId;
use crate::replication::needed::Reason;
use crate::replication::state::StatePartition;
use crate::{ErrorKind, Result};
use std::collections::BTreeSet;

impl RemoteCopy {
    /// Of a segment these ranges cannot be had, each from its first byte to the first one behind,
    /// rising and apart: what is new of it is shown without them. An empty list takes that back.
    ///
    /// # Errors
    /// `full`, `io`: the copy takes nothing more then, until it is opened again.
    pub fn do_without(&self, segment: u64, ranges: Vec<(u64, u64)>) -> Result<()> {
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

    /// Everything can be had from now on, as far as is known. What is shown stays.
    pub fn do_without_nothing(&self) {
        self.inner.receiving.lock().without.clear();
    }

    /// What is missing of a segment, and is wanted or asked for: offset and length of each, rising;
    /// `None` when it is not known yet what is wanted of it.
    #[must_use]
    pub fn missing_of(&self, segment: u64) -> Option<Vec<(u64, u64)>> {
        let receiving = self.inner.receiving.lock();
        receiving.lacks.missing_of(SegmentId(segment))
    }
}

impl RemoteCopy {
    /// Segments of the state whose header, footers or blocks are not what they should be: nothing
    /// more is asked for of them, unless what is here is [forgotten](RemoteCopy::forget).
    #[must_use]
    pub fn damaged(&self) -> Vec<u64> {
        self.inner.receiving.lock().lacks.damaged()
    }
}

impl Receiving {
    /// Segments of the state that are shown although something is missing that cannot be had.
    pub(super) fn shown_without(&self) -> Result<BTreeSet<SegmentId>> {
        let mut found = BTreeSet::new();
        let named = self.without.iter();
        let named = named.filter_map(|(id, ranges)| Some((id, ranges, self.state.partition(*id)?)));
        for (id, ranges, partition) in named {
            let lacks = &self.lacks;
            if !lacks.is_complete(*id)
                && lacks.is_complete_but_for(*id, ranges)
                && !self.takes_away(partition)?
            {
                found.insert(*id);
            }
        }
        Ok(found)
    }

    /// True when a partition would take the place of another segment of which all is here.
    fn takes_away(&self, partition: &StatePartition) -> Result<bool> {
        let (record, span) = (&partition.record, partition.record.span());
        let meets = |p: &&StatePartition| {
            (p.record.table, p.record.shard) == (record.table, record.shard)
                && p.id != partition.id
                && p.record.span().overlaps(&span)
        };
        for shown in self.shown.iter().filter(meets) {
            if self.has_whole(shown)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True when all is here that is wanted of a version before.
    fn has_whole(&self, partition: &StatePartition) -> Result<bool> {
        let pack = self.pack(partition.id);
        let found = match self.needed(&self.store(&[partition]), partition) {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Elsewhere) => {
                return Ok(false);
            }
            other => other?,
        };
        let are_here = found.ranges.iter().all(|wanted| {
            let range = &wanted.range;
            wanted.reason == Reason::Ahead || pack.missing(range.offset, range.bytes).is_empty()
        });
        Ok(found.is_whole && are_here)
    }
}
