//! Replay of the tail of a copy: records of its source that no state includes yet.
//!
//! Invariants: data that the source no longer stores is not shown. Late events in a stretch whose
//! rows are missing are left out until a state contains them: adding them to their buckets would
//! need rows that are elsewhere, and would remove the buckets of this copy. Failure: data from
//! another machine is checked before it is used.

use super::Replayer;
use super::plan::CarriedRecords;
use crate::Result;
use crate::common::error::{Damage, Error, ErrorKind};
use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::core::shard::Shard;
use crate::metadata::catalog::Cutoff;
use crate::replication::needed::{NeededRange, needed_of_stream};
use crate::replication::tail::TailRecord;
use crate::storage::segment::{Partition, PresentRanges, Store};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::RecordKind;
use headwater_types::{FieldType, Rows, Timestamp};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// The visible part of a tail.
#[derive(Default)]
pub(super) struct VisibleTail {
    /// Cutoffs of data that the source no longer stores.
    cuts: HashMap<TableId, Cutoff>,
    /// Partitions with missing rows.
    incomplete: HashSet<SegmentId>,
    here: Option<Arc<dyn PresentRanges>>,
    /// Time up to which rows are not inserted between the stored rows of a stream.
    closed_to: HashMap<(SegmentId, StreamId), Option<Timestamp>>,
}

impl VisibleTail {
    /// The part of these records that is visible beside segments.
    pub(super) fn of(carried: &mut CarriedRecords, store: &Store) -> VisibleTail {
        VisibleTail {
            cuts: std::mem::take(&mut carried.cuts),
            incomplete: std::mem::take(&mut carried.incomplete),
            here: store.here().cloned(),
            closed_to: HashMap::new(),
        }
    }

    /// The newest instant of a stream in a partition with missing rows of the stream.
    fn closed_to(
        &mut self,
        store: &Store,
        partition: &Partition,
        stream: StreamId,
    ) -> Result<Option<Timestamp>> {
        let key = (partition.id(), stream);
        if let Some(known) = self.closed_to.get(&key) {
            return Ok(*known);
        }
        let found = match self.look(store, partition, stream) {
            // The reader of that stretch gets the error.
            Err(error) if matches!(error.kind(), ErrorKind::Elsewhere | ErrorKind::Corrupt) => None,
            found => found?,
        };
        self.closed_to.insert(key, found);
        Ok(found)
    }

    fn look(
        &self,
        store: &Store,
        partition: &Partition,
        stream: StreamId,
    ) -> Result<Option<Timestamp>> {
        let (Some(here), true) = (&self.here, self.incomplete.contains(&partition.id())) else {
            return Ok(None);
        };
        let segment = store.state(partition)?;
        let Some(held) = store.stream(&segment, stream)? else {
            return Ok(None);
        };
        let range = (partition.span(), Vec::new());
        let rows = needed_of_stream(store, partition, (stream, &held), range, None)?;
        let is_here = |range: &NeededRange| {
            let missing = here.missing(partition.id(), range.byte_range());
            missing.is_empty()
        };
        let are_here = rows.is_complete && rows.ranges.iter().all(|(range, _)| is_here(range));
        Ok(held.watermark().filter(|_| !are_here))
    }

    /// The visible rows.
    pub(super) fn shown(
        &mut self,
        store: &Store,
        shard: &Shard,
        (stream, table): (StreamId, TableId),
        rows: Rows,
    ) -> Result<Rows> {
        let cut = self.cuts.get(&table).copied();
        if cut.is_none() && self.incomplete.is_empty() {
            return Ok(rows);
        }
        let partitions = Arc::clone(&shard.state.lock().partitions);
        let mut kept: Vec<u32> = Vec::new();
        for (row, time) in (0u32..).zip(&rows.times) {
            let time = Timestamp::from_nanos(*time);
            if cut.is_some_and(|cut| cut.ends(time)) {
                continue;
            }
            let mut around = partitions.of(table).iter();
            let around = around.find(|p| p.span().contains(time));
            let closed_to = match around {
                None => None,
                Some(partition) => self.closed_to(store, partition, stream)?,
            };
            let is_late = closed_to.is_some_and(|newest| time <= newest);
            if !is_late {
                kept.push(row);
            }
        }
        Ok(match kept.len() == rows.len() {
            true => rows,
            false => rows.gather(&kept),
        })
    }
}

impl Replayer<'_> {
    /// Replays the records of a copy after its segments: the deletes of its state, and its tail;
    /// the state has every definition up to `defined`.
    pub(super) fn copied(
        &mut self,
        deletes: &[(Sequence, DeleteRecord)],
        tail: &[TailRecord],
        defined: Sequence,
    ) -> Result<()> {
        let mut deletes = deletes.iter().peekable();
        for record in tail {
            while let Some((sequence, delete)) = deletes.next_if(|(at, _)| *at <= record.sequence) {
                self.delete(*sequence, delete)?;
            }
            let is_defined = match record.kind {
                RecordKind::Table | RecordKind::Fields | RecordKind::Streams => {
                    record.sequence <= defined
                }
                // A pending delete is in the state too, in the same form.
                RecordKind::Delete | RecordKind::Write | RecordKind::NumberedWrite => false,
            };
            if !is_defined {
                let (kind, payload) = (record.kind.number(), &*record.payload);
                self.record(record.sequence, kind, payload, Path::new("tail"), 0)?;
            }
        }
        for (sequence, delete) in deletes {
            self.delete(*sequence, delete)?;
        }
        Ok(())
    }

    /// Checks that the rows of a tail only have fields of their table.
    pub(super) fn check_fields(&self, table: TableId, rows: &Rows) -> Result<()> {
        let known = self.catalog.table(table);
        for (field, column) in &rows.columns {
            let at = usize::try_from(field.0).unwrap_or(usize::MAX);
            let defined = known.as_ref().and_then(|table| table.fields.get(at));
            let found = column.field_type();
            // An integer field may have been widened to floats since.
            let fits = defined.is_some_and(|defined| {
                defined.field_type == found
                    || (defined.field_type, found) == (FieldType::F64, FieldType::I64)
            });
            if !fits {
                return Err(Error::damage(Damage {
                    file: Path::new("tail").to_owned(),
                    offset: 0,
                    expected: "values of fields of the table".into(),
                    found: format!("{found} for field {} of table {}", field.0, table.0),
                }));
            }
        }
        Ok(())
    }
}
