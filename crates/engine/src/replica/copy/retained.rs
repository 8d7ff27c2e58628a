//! Records of the data that a copy retains, and its visible stretches: partitions that a source has
//! removed because of their age, in stretches of time.
//!
//! Retained stretches are read beside the partitions that the state names: in such a stretch no
//! other partition is shown.
//!
//! Invariants: the stretches of a partition are disjoint; deleted rows are outside of them, or are
//! listed beside them. Concurrency: plain data; [`super::keeping`] decides which data is retained.

use crate::common::ids::{SegmentId, Sequence, ShardIndex, TableId};
use crate::common::ranges::{overlapping, union, without};
use crate::replication::state::{State, StatePartition};
use crate::storage::segment::ShownStretch;
use crate::storage::tombstone::{DeleteRecord, Tombstone};
use headwater_types::{ClosedRange, Timestamp};
use std::collections::{BTreeMap, HashMap};

/// A delete, and its number.
pub(super) type Deleted = (Sequence, DeleteRecord);

/// Reason for which data is retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its retention has passed at the source.
    Cut,
    /// The source has aged it, and has or had buckets of it.
    Aged,
}

impl Cause {
    /// Encoded value.
    pub(super) fn code(self) -> u8 {
        match self {
            Cause::Cut => 1,
            Cause::Aged => 2,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Cause> {
        [Cause::Cut, Cause::Aged]
            .into_iter()
            .find(|cause| cause.code() == code)
    }
}

/// A partition, and its retained stretches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RetainedPartition {
    pub(super) partition: StatePartition,
    /// By time, disjoint.
    pub(super) stretches: Vec<(Cause, ClosedRange)>,
    /// The deletes in it, as far as its contents can be distinguished here.
    pub(super) deletes: Vec<(Sequence, DeleteRecord)>,
}

/// The changes of retained data.
#[derive(Debug, Default)]
pub(super) struct RetainedChange {
    pub(super) put: Vec<RetainedPartition>,
    pub(super) removed: Vec<SegmentId>,
}

impl RetainedChange {
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }

    /// True when a segment is retained after the change; `was_retained` = it was before.
    pub(super) fn retains(&self, id: SegmentId, was_retained: bool) -> bool {
        let is_put = self.put.iter().any(|retained| retained.partition.id == id);
        is_put || (was_retained && !self.removed.contains(&id))
    }

    pub(super) fn apply(self, retained: &mut BTreeMap<SegmentId, RetainedPartition>) {
        for id in &self.removed {
            retained.remove(id);
        }
        let put = self.put.into_iter();
        retained.extend(put.map(|part| (part.partition.id, part)));
    }
}

impl RetainedPartition {
    fn ranges(&self) -> Vec<ClosedRange> {
        self.stretches.iter().map(|(_, range)| *range).collect()
    }

    /// Adds deletes in the form in which they can be carried out.
    pub(super) fn take(&mut self, deletes: Vec<Deleted>) {
        for (sequence, record) in deletes {
            match record.streams {
                None => self.delete_wholly(record.range),
                Some(_) => self.deletes.push((sequence, record)),
            }
        }
    }

    fn delete_wholly(&mut self, range: ClosedRange) {
        let left = self.stretches.iter().flat_map(|(cause, stretch)| {
            let left = without(&[*stretch], &[range]);
            left.into_iter().map(|left| (*cause, left))
        });
        self.stretches = left.collect();
    }

    /// Drops stretches whose lifetime has ended here, too.
    pub(super) fn end(&mut self, has_ended: &dyn Fn(Cause, Timestamp) -> bool) {
        self.stretches
            .retain(|(cause, range)| !has_ended(*cause, range.last));
    }

    /// True when the source has newer content of it, without its rows.
    pub(super) fn is_older(&self, state: &State) -> bool {
        let record = &self.partition.record;
        let ranges = self.ranges();
        state.partitions.iter().any(|now| {
            (now.record.table, now.record.shard) == (record.table, record.shard)
                && now.record.sequence > record.sequence
                && !overlapping(&ranges, &now.record.span()).is_empty()
        })
    }
}

fn tombstones(deletes: &[Deleted]) -> Vec<Tombstone> {
    let tombstones = deletes.iter().map(|(s, record)| record.tombstone(*s));
    tombstones.collect()
}

/// The visible stretches of partitions that are not shown as a whole or have deletes: the retained
/// stretches of retained partitions, and the remaining stretches of the others. Partitions with
/// rows precede partitions without, and older content precedes newer.
pub(super) fn pieces<'a>(
    retained: impl Iterator<Item = &'a RetainedPartition>,
    shown: &[StatePartition],
    deleted: &BTreeMap<SegmentId, Vec<Deleted>>,
) -> HashMap<SegmentId, Vec<ShownStretch>> {
    let mut retained: Vec<&RetainedPartition> = retained.collect();
    retained.sort_by_key(|retained| (retained.partition.record.aged, retained.partition.id));
    let mut pieces = HashMap::new();
    let mut taken: BTreeMap<(TableId, ShardIndex), Vec<ClosedRange>> = BTreeMap::new();
    for retained in retained {
        let record = &retained.partition.record;
        let taken = taken.entry((record.table, record.shard)).or_default();
        let own = union(retained.ranges());
        let left = without(&own, taken);
        let deletes = tombstones(&retained.deletes);
        let of_retained = left.into_iter().map(|span| ShownStretch {
            span,
            deletes: deletes.clone(),
        });
        pieces.insert(retained.partition.id, of_retained.collect());
        *taken = union(taken.iter().copied().chain(own).collect());
    }
    for partition in shown {
        let record = &partition.record;
        let span = record.span();
        let of_shard = taken.get(&(record.table, record.shard));
        let met = of_shard.map(|taken| overlapping(taken, &span));
        let met = met.unwrap_or_default();
        let deleted = deleted.get(&partition.id);
        if met.is_empty() && deleted.is_none() {
            continue;
        }
        let deletes = deleted.map_or_else(Vec::new, |deleted| tombstones(deleted));
        let left = without(&[span], met).into_iter();
        let left = left.map(|span| ShownStretch {
            span,
            deletes: deletes.clone(),
        });
        pieces.insert(partition.id, left.collect());
    }
    pieces
}
