//! Events of spans of unreadable partitions: in memory as far as it suffices, otherwise only in the
//! log ("parked").
//!
//! Invariants, failure: see [`crate::read::unreadable`].

use super::ShardState;
use crate::common::ids::{Sequence, TableId};
use crate::common::ranges::contains_instant;
use crate::storage::segment::Partition;
use crate::{Error, Options};
use headwater_types::{ClosedRange, Rows, Timestamp};
use std::sync::Arc;

/// State of the spans of a shard's unreadable partitions.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    /// Approximate bytes of these events in memory.
    parked_bytes: usize,
    /// Approximate bytes of events accepted since opening that are only in the log.
    bytes: usize,
    /// Number of these events.
    pub(crate) events: u64,
    /// The first record with events that are only in the log.
    pub(crate) first: Option<Sequence>,
}

impl Parked {
    /// Approximate bytes of events accepted since opening that are only in the log.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records that events from this record on are only in the log.
    pub(crate) fn from(&mut self, sequence: Sequence) {
        self.first = Some(self.first.map_or(sequence, |first| first.min(sequence)));
    }
}

/// Division of rows that are in the log.
pub(crate) struct AdmittedRows {
    /// Rows to put into memory.
    pub(crate) rows: Rows,
    /// Number of the other rows.
    pub(crate) parked: usize,
    parked_bytes: usize,
}

/// Maximum bytes of these events in a shard's memory: small in comparison with the limit at which
/// workers flush.
pub(crate) fn parked_bytes_max(options: &Options, shards: usize) -> usize {
    options.memory_budget_bytes / 4 / shards.max(1)
}

impl ShardState {
    /// Decides which rows of a record are put into memory. The others stay in the log, which is
    /// kept from that record on.
    pub(crate) fn admit(
        &mut self,
        table: TableId,
        rows: Rows,
        sequence: Sequence,
        held_max: usize,
    ) -> AdmittedRows {
        let spans = self.partitions.unreadable_spans(table);
        let inside = match &*spans {
            [] => 0,
            spans => rows
                .times
                .iter()
                .filter(|t| contains_instant(spans, Timestamp::from_nanos(**t)))
                .count(),
        };
        if inside == 0 {
            return AdmittedRows {
                rows,
                parked: 0,
                parked_bytes: 0,
            };
        }
        let bytes = rows.heap_bytes() / rows.len().max(1) * inside;
        if self.parked.parked_bytes + bytes <= held_max {
            self.parked.parked_bytes += bytes;
            return AdmittedRows {
                rows,
                parked: 0,
                parked_bytes: 0,
            };
        }
        self.parked.from(sequence);
        let outside: Vec<u32> = (0u32..)
            .zip(&rows.times)
            .filter(|(_, t)| !contains_instant(&spans, Timestamp::from_nanos(**t)))
            .map(|(row, _)| row)
            .collect();
        AdmittedRows {
            rows: rows.gather(&outside),
            parked: inside,
            parked_bytes: bytes,
        }
    }

    /// Counts events that were accepted just now and are only in the log.
    pub(crate) fn count_parked(&mut self, admitted: &AdmittedRows) {
        self.parked.events += admitted.parked as u64;
        self.parked.bytes += admitted.parked_bytes;
    }

    /// Marks a partition as unreadable from now on.
    pub(crate) fn set_unreadable(&mut self, partition: &Partition, error: Error) {
        let (record, file) = (partition.record.clone(), Arc::clone(&partition.file));
        let unreadable = Partition::with(record, file, Some(error));
        Arc::make_mut(&mut self.partitions).put(Arc::new(unreadable));
    }

    /// Leaves the events of a span to the log if they are too many for memory. Returns the change
    /// of memory in bytes.
    pub(crate) fn park(&mut self, table: TableId, span: &ClosedRange, held_max: usize) -> isize {
        let inside = |time: Timestamp| span.contains(time);
        let mut found = Vec::new();
        let mut bytes = 0;
        for (stream, slot) in self.active().filter(|(_, slot)| slot.table == table) {
            let mut rows = 0;
            for chunk in slot.memory.flank.iter().chain(&slot.memory.late) {
                let here = chunk
                    .rows
                    .times
                    .iter()
                    .filter(|t| inside(Timestamp::from_nanos(**t)))
                    .count();
                rows += here;
                bytes += chunk.bytes / chunk.len().max(1) * here;
            }
            if rows > 0 {
                found.push((stream, rows, slot.memory.first_sequence()));
            }
        }
        if self.parked.parked_bytes + bytes <= held_max {
            self.parked.parked_bytes += bytes;
            return 0;
        }
        let (version, open) = (self.version, self.snapshots.clone());
        self.parked.bytes += bytes;
        let mut change = 0;
        for (stream, rows, first) in found {
            if let Some(first) = first {
                self.parked.from(first);
            }
            self.parked.events += rows as u64;
            let (_, less) = self.with_stream(stream, table, |memory| {
                memory.remove_deleted(&|time, _| !inside(time), version, &open)
            });
            change += less;
        }
        change
    }
}
