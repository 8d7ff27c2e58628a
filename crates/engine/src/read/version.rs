//! The version of a range of a stream, as a number: equal numbers mean equal data. For caches and
//! for `ETag`.
//!
//! Invariants: two versions of one open database, stream and range are equal only if every read of
//! the range returns the same in both; the reverse does not hold (a flush changes the version and
//! not the data). The number has no meaning after the database was closed: its hash has a random
//! key, so that versions of another process are not taken for equal. For a copy it has the same
//! meaning as long as the copy is open, however often the copy is refreshed. Concurrency: [`quick`]
//! takes no lock that is ever held over I/O, and gives up where the catalog is busy.

use super::single::{ResolvedStream, SingleSnapshot};
use crate::Result;
use crate::common::ids::{Sequence, StreamId};
use crate::core::Core;
use crate::memory::chunk::Chunk;
use crate::metadata::catalog::{Table, stream_key};
use crate::storage::partitions::PartitionSet;
use crate::storage::tombstone::Tombstone;
use headwater_types::{ClosedRange, StreamName};
use std::hash::{Hash, Hasher};

/// The version of a range of a stream: see [`crate::Snapshot::version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataVersion {
    /// A keyed hash of the contents of the range.
    pub number: u64,
    /// No write can change the range: it is before the times that the table accepts. Deletes,
    /// retention and drops still can, and so can writes once retention or aging moves back.
    pub is_closed: bool,
}

/// The inputs of a version.
pub(super) struct VersionInputs<'a> {
    pub(super) core: &'a Core,
    pub(super) table: &'a Table,
    pub(super) stream: StreamId,
    pub(super) sequence: Sequence,
    pub(super) partitions: &'a PartitionSet,
    pub(super) tombstones: &'a [Tombstone],
    /// Chunks in memory that may have events in the range.
    pub(super) chunks: Vec<&'a Chunk>,
}

impl VersionInputs<'_> {
    /// `None` for a table in which values expire: time alone changes its contents.
    pub(super) fn version(&self, range: &ClosedRange) -> Option<DataVersion> {
        let lifetime = &self.table.lifetime;
        if lifetime.expires {
            return None;
        }
        let mut hasher = self.core.catalog.keyed_hasher();
        hasher.write_u32(self.stream.0);
        lifetime.retention_cutoff.hash(&mut hasher);
        for field in &self.table.fields {
            // A widened field has other values.
            hasher.write_u8(field.field_type as u8);
        }
        for partition in self.partitions.overlapping(self.table.id, range) {
            hasher.write_u64(partition.id().0);
            hasher.write_u64(partition.record.footer_offset);
            if let Some(piece) = &partition.piece {
                hasher.write_i64(piece.span.first.as_nanos());
                hasher.write_i64(piece.span.last.as_nanos());
                hasher.write_u64(piece.newest_delete().0);
            }
        }
        let deletes = self.tombstones.iter().filter(|t| {
            t.sequence <= self.sequence
                && t.concerns(self.table.id, self.stream)
                && t.range.overlaps(range)
        });
        for tombstone in deletes {
            hasher.write_u64(tombstone.sequence.0);
        }
        // Rows in memory are identified by their sequences: a sequence has one content.
        hasher.write_u64(u64::MAX);
        for chunk in &self.chunks {
            if let Some(rows) = visible_rows(chunk, range, self.sequence) {
                hasher.write_u64(rows.first_sequence.0);
                hasher.write_u64(rows.last_sequence.0);
                hasher.write_u64(rows.count as u64);
            }
        }
        Some(DataVersion {
            number: hasher.finish(),
            // A copy may receive a newer version.
            is_closed: self.core.store.here().is_none() && lifetime.floor().ends(range.last),
        })
    }
}

/// The visible rows of a chunk in a range.
struct VisibleRows {
    first_sequence: Sequence,
    last_sequence: Sequence,
    count: usize,
}

/// `None` without any. Rows are examined one by one, so that a range before the end of a chunk that
/// grows keeps its version.
fn visible_rows(chunk: &Chunk, range: &ClosedRange, at: Sequence) -> Option<VisibleRows> {
    let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
    if range.intersect(&chunk.span) == chunk.span && chunk.last_sequence <= at {
        return Some(VisibleRows {
            first_sequence: chunk.first_sequence,
            last_sequence: chunk.last_sequence,
            count: chunk.len(),
        });
    }
    let times = &chunk.rows.times;
    let rows = if chunk.sorted {
        times.partition_point(|t| *t < first)..times.partition_point(|t| *t <= last)
    } else {
        0..times.len()
    };
    let sequences = rows
        .filter(|row| times.get(*row).is_some_and(|t| first <= *t && *t <= last))
        .map(|row| chunk.sequences.get(row))
        .filter(|sequence| *sequence <= at);
    sequences.fold(None, |seen, sequence| {
        Some(match seen {
            None => VisibleRows {
                first_sequence: sequence,
                last_sequence: sequence,
                count: 1,
            },
            Some(seen) => VisibleRows {
                first_sequence: seen.first_sequence.min(sequence),
                last_sequence: seen.last_sequence.max(sequence),
                count: seen.count + 1,
            },
        })
    })
}

impl SingleSnapshot {
    /// As `Snapshot::version`.
    pub(super) fn version(
        &self,
        stream: &StreamName,
        range: &ClosedRange,
    ) -> Result<Option<DataVersion>> {
        self.version_found(self.find(stream)?, range)
    }

    pub(super) fn version_found(
        &self,
        found: ResolvedStream<'_>,
        range: &ClosedRange,
    ) -> Result<Option<DataVersion>> {
        let chunks = found.chunks(range)?;
        let seen = VersionInputs {
            core: self.core(),
            table: found.table,
            stream: found.stream,
            sequence: self.at(),
            partitions: &found.snapshot.partitions,
            tombstones: &found.snapshot.tombstones,
            chunks: chunks.iter().map(|c| &**c).collect(),
        };
        Ok(seen.version(range))
    }
}

/// The version that a snapshot taken now would have, without waiting for anything that could wait
/// for I/O. `None` when the version cannot be determined that way: the stream was not used since
/// opening, definitions are being changed, or values expire.
pub(crate) fn quick(core: &Core, name: &StreamName, range: &ClosedRange) -> Option<DataVersion> {
    let mut key = Vec::with_capacity(64);
    loop {
        let deletes = core.write_barrier.deletes();
        let table = core.catalog.try_table_named(name.table())?;
        stream_key(table.id, name.tags(), &mut key);
        let stream = core.catalog.try_known_stream(&key)?;
        let shard = core.shards.get(core.shards.of_key(&key)).ok()?;
        let state = shard.state.lock();
        // As for a snapshot: the shard first, the sequence afterwards.
        let seen = VersionInputs {
            core,
            table: &table,
            stream,
            sequence: core.log.published(),
            partitions: &state.partitions,
            tombstones: &state.tombstones,
            chunks: state
                .memory(stream)
                .map_or_else(Vec::new, |m| m.live(range).map(|c| &**c).collect()),
        };
        let version = seen.version(range)?;
        drop(state);
        if core.write_barrier.deletes() == deletes {
            return Some(version);
        }
    }
}
