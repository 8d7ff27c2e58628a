//! The stretches where a table has rows, with imprints that outlive the process and show whether a
//! stretch is unchanged: for programs that maintain a copy of the rows in another form.
//!
//! Invariants: every row that the snapshot shows is in a stretch. Where two snapshots, also of
//! different openings of a database or of different databases, show the same set of stretches with
//! imprints for a range, and types of fields are the same, reads of the range return the same rows:
//! an imprint is the head of a segment's chain of hashes. The reverse does not hold. Concurrency:
//! no lock is held over I/O. Failure: no segment is read, so damage is not met here.

use super::single::SingleSnapshot;
use crate::core::shard::ShardSnapshot;
use crate::metadata::catalog::Table;
use crate::storage::segment::Partition;
use crate::{Error, Result};
use headwater_types::{ClosedRange, Timestamp};

/// A span of time in which a table has rows or buckets of some of its streams. Stretches may
/// overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The span, without the part before the table's retention cutoff.
    pub range: ClosedRange,
    /// A hash of its stored form. `None` = the content may change without being stored again
    /// (events in memory, deletes that are not carried out, values that expire, parts of a copy),
    /// or was stored before there were hashes: only a read shows whether it changed.
    pub imprint: Option<[u8; 32]>,
    /// True when its rows were aged away and only their buckets remain.
    pub is_aged: bool,
    /// True when it is unreadable.
    pub is_unreadable: bool,
}

/// The stretches of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretches {
    /// The identity of the database, shared only with databases restored from a backup of it.
    pub identity: u64,
    /// Rows before this instant are removed because of their age, or will be shortly, and cannot be
    /// written; `None` = there is no such instant.
    pub floor: Option<Timestamp>,
    /// The stretches, by their first instants.
    pub all: Vec<Stretch>,
}

impl SingleSnapshot {
    /// As `Snapshot::stretches`.
    pub(super) fn stretches(&self, table: &str) -> Result<Stretches> {
        let table = self.table(table)?;
        let core = self.core();
        let mut all = Vec::new();
        for (index, seen) in core.shards.indices().zip(&self.shards) {
            let in_memory = core.shards.get(index)?.state.lock().streams_of(table.id);
            all.extend(in_memory.into_iter().map(|(_, span)| changing(span)));
            let partitions = seen.partitions.of(table.id).iter();
            all.extend(partitions.map(|partition| self.stretch(table, seen, partition)));
        }
        if let Some(last) = table.lifetime.retention_cutoff.last_before() {
            for stretch in &mut all {
                stretch.range.first = stretch.range.first.max(last.next().unwrap_or(last));
            }
        }
        all.retain(|stretch: &Stretch| !stretch.range.is_empty());
        all.sort_by_key(|stretch| (stretch.range.first, stretch.range.last, stretch.imprint));
        let floor = table.lifetime.floor().last_before();
        Ok(Stretches {
            identity: core.meta.lineage()?.identity,
            floor: floor.map(|last| last.next().unwrap_or(last)),
            all,
        })
    }

    fn stretch(&self, table: &Table, seen: &ShardSnapshot, partition: &Partition) -> Stretch {
        let span = partition.span();
        let is_deleted_from = seen.tombstones.iter().any(|t| {
            t.table == table.id
                && t.sequence <= self.at()
                && t.sequence > partition.record.sequence
                && t.range.overlaps(&span)
        });
        let is_as_stored = !is_deleted_from && !table.lifetime.expires && partition.piece.is_none();
        Stretch {
            range: span,
            imprint: partition.record.chain.filter(|_| is_as_stored),
            is_aged: partition.record.aged,
            is_unreadable: partition.unreadable.is_some(),
        }
    }
}

/// A stretch that may change at any time.
fn changing(range: ClosedRange) -> Stretch {
    Stretch {
        range,
        imprint: None,
        is_aged: false,
        is_unreadable: false,
    }
}

/// The error of an operation that several databases do not offer.
pub(super) fn of_several(what: &str) -> Error {
    Error::invalid(format!(
        "{what}: not available for several databases at once, query each of them separately"
    ))
}
