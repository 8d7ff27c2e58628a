//! What is known of what a copy keeps, and what is shown of it: partitions that a source has cut
//! away because of their age, in stretches of time.
//!
//! It is read beside what the state names: in a kept stretch nothing else is shown.
//!
//! Invariants: the stretches of a partition are apart; what is deleted of one is in none, or is
//! said beside it.
//! Concurrency: plain data; [`super::keeping`] decides what is kept.

use crate::common::ids::{SegmentId, Sequence, ShardIndex, TableId};
use crate::common::ranges::{overlapping, union, without};
use crate::replication::state::{State, StatePartition};
use crate::storage::segment::Piece;
use crate::storage::tombstone::{DeleteRecord, Tombstone};
use headwater_types::{ClosedRange, Timestamp};
use std::collections::{BTreeMap, HashMap};

/// A delete, and its number.
pub(super) type Deleted = (Sequence, DeleteRecord);

/// Why something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its retention has passed at the source.
    Cut,
    /// The source has aged it: it has buckets of it, or had.
    Aged,
}

impl Cause {
    /// As it is written.
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

/// A partition, and what is kept of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) partition: StatePartition,
    /// By time, apart.
    pub(super) stretches: Vec<(Cause, ClosedRange)>,
    /// What was deleted of it, so far as it can be told apart here.
    pub(super) deletes: Vec<(Sequence, DeleteRecord)>,
}

/// What changes of what is kept.
#[derive(Debug, Default)]
pub(super) struct KeptChange {
    pub(super) put: Vec<Kept>,
    pub(super) gone: Vec<SegmentId>,
}

impl KeptChange {
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }

    /// True when a segment is kept after it, where it was before or was not.
    pub(super) fn keeps(&self, id: SegmentId, was_kept: bool) -> bool {
        let is_put = self.put.iter().any(|kept| kept.partition.id == id);
        is_put || (was_kept && !self.gone.contains(&id))
    }

    pub(super) fn apply(self, kept: &mut BTreeMap<SegmentId, Kept>) {
        for id in &self.gone {
            kept.remove(id);
        }
        kept.extend(self.put.into_iter().map(|kept| (kept.partition.id, kept)));
    }
}

impl Kept {
    fn ranges(&self) -> Vec<ClosedRange> {
        self.stretches.iter().map(|(_, range)| *range).collect()
    }

    /// Takes deletes in as they can be carried out.
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

    /// Forgets stretches whose time has come here, too.
    pub(super) fn end(&mut self, has_ended: &dyn Fn(Cause, Timestamp) -> bool) {
        self.stretches
            .retain(|(cause, range)| !has_ended(*cause, range.last));
    }

    /// True when the source has content of it, without its rows, that came later.
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

/// What is shown of partitions that are not shown as a whole, or of which something was deleted: of
/// those that are kept their stretches, of the others the rest. What has rows goes before what has
/// none, and older content before newer.
pub(super) fn pieces<'a>(
    kept: impl Iterator<Item = &'a Kept>,
    shown: &[StatePartition],
    deleted: &BTreeMap<SegmentId, Vec<Deleted>>,
) -> HashMap<SegmentId, Vec<Piece>> {
    let mut kept: Vec<&Kept> = kept.collect();
    kept.sort_by_key(|kept| (kept.partition.record.aged, kept.partition.id));
    let mut pieces = HashMap::new();
    let mut taken: BTreeMap<(TableId, ShardIndex), Vec<ClosedRange>> = BTreeMap::new();
    for kept in kept {
        let record = &kept.partition.record;
        let taken = taken.entry((record.table, record.shard)).or_default();
        let own = union(kept.ranges());
        let left = without(&own, taken);
        let deletes = tombstones(&kept.deletes);
        let of_kept = left.into_iter().map(|span| Piece {
            span,
            deletes: deletes.clone(),
        });
        pieces.insert(kept.partition.id, of_kept.collect());
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
        let left = left.map(|span| Piece {
            span,
            deletes: deletes.clone(),
        });
        pieces.insert(partition.id, left.collect());
    }
    pieces
}
