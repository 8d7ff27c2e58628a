//! Takes events from a shard's memory: which streams, and up to which time.
//!
//! Invariants: a job takes of a stream every event of its range with a sequence up to the job's;
//! events are not removed from memory here but after the commit of the job. Concurrency: the shard
//! is locked for one stream at a time, so that writers never wait for a job.

use super::buffers::{self, Buffers, Urgency};
use crate::common::ids::{Sequence, StreamId, TableId};
use crate::common::ranges::contains_instant;
use crate::core::Core;
use crate::core::policy_choice::InForce;
use crate::core::shard::{Shard, ShardState};
use crate::memory::chunk::Chunk;
use crate::memory::sorted_rows;
use crate::metadata::catalog::Table;
use crate::storage::partitions::PartitionSet;
use crate::{Error, Result};
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Rows, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum streams that a job takes; less where memory is small.
const STREAMS_MAX: usize = 8192;
/// Minimum of that limit: each job costs a commit.
const STREAMS_MIN: usize = 1024;
/// Bytes of the budget per stream of that limit: a job's memory for streams then stays small beside
/// the budget, with two shards at work.
const BUDGET_PER_STREAM: usize = 4096;

/// Rows taken of one stream.
pub(super) struct TakenRows {
    pub(super) stream: StreamId,
    pub(super) table: Arc<Table>,
    pub(super) range: ClosedRange,
    pub(super) rows: Rows,
}

/// A stream with events in memory that a job may take.
struct StreamCandidate {
    stream: StreamId,
    table: TableId,
    watermark: Option<Timestamp>,
    bytes: usize,
    flank_rows: usize,
    late_rows: usize,
    first_sequence: Sequence,
}

/// Looks up the rows that a job stores, without removing them.
pub(super) fn take(
    core: &Core,
    shard: &Shard,
    in_force: &InForce,
    buffers: Buffers,
    urgency: Urgency,
    sequence: Sequence,
) -> Result<Vec<TakenRows>> {
    let (mut candidates, shard_bytes, partitions) = {
        let state = shard.state.lock();
        let candidates = candidates(&state, sequence);
        (candidates, state.bytes, Arc::clone(&state.partitions))
    };
    let exact = core.mode.is_exact();
    // The memory to free: half of the shard's. Streams with whole leaves first, then the largest;
    // for a log that is too long the streams with the oldest events.
    match urgency {
        Urgency::Memory => candidates.sort_by_key(|c| std::cmp::Reverse((c.bytes, c.stream))),
        Urgency::Log | Urgency::All => candidates.sort_by_key(|c| (c.first_sequence, c.stream)),
    }
    let goal = match urgency {
        Urgency::All => usize::MAX,
        Urgency::Memory | Urgency::Log if exact => usize::MAX,
        Urgency::Memory | Urgency::Log => shard_bytes / 2,
    };
    let streams_max =
        (core.options.memory_budget_bytes / BUDGET_PER_STREAM).clamp(STREAMS_MIN, STREAMS_MAX);
    let rounds: &[bool] = if urgency == Urgency::Memory && !exact {
        &[true, false]
    } else {
        &[false]
    };
    let mut taking = StreamTaking {
        core,
        shard,
        in_force,
        buffers,
        urgency,
        sequence,
        partitions,
        tables: HashMap::new(),
        freed: 0,
        out: Vec::new(),
    };
    let mut done = vec![false; candidates.len()];
    for whole_leaves in rounds {
        for (candidate, done) in candidates.iter().zip(&mut done) {
            if taking.freed >= goal || taking.out.len() >= streams_max {
                break;
            }
            if *done {
                continue;
            }
            *done = taking.take(candidate, *whole_leaves)?;
        }
    }
    let mut out = taking.out;
    out.sort_by_key(|t| (t.table.id, t.stream));
    Ok(out)
}

/// Lists the streams with events in memory up to a sequence.
fn candidates(state: &ShardState, sequence: Sequence) -> Vec<StreamCandidate> {
    state
        .active()
        .filter_map(|(stream, slot)| {
            let memory = &slot.memory;
            Some(StreamCandidate {
                stream,
                table: slot.table,
                watermark: memory.watermark,
                bytes: memory.bytes,
                flank_rows: memory.flank_rows,
                late_rows: memory.late_rows,
                first_sequence: memory.first_sequence()?,
            })
        })
        .filter(|c| c.first_sequence <= sequence)
        .collect()
}

/// State of taking rows stream by stream.
struct StreamTaking<'a> {
    core: &'a Core,
    shard: &'a Shard,
    in_force: &'a InForce,
    buffers: Buffers,
    urgency: Urgency,
    sequence: Sequence,
    /// The partitions when the job began.
    partitions: Arc<PartitionSet>,
    /// Tables looked up so far.
    tables: HashMap<TableId, Arc<Table>>,
    /// Approximate bytes in memory of the rows taken.
    freed: usize,
    out: Vec<TakenRows>,
}

impl StreamTaking<'_> {
    /// Takes the rows of a stream; false when it has no rows to take now.
    fn take(&mut self, candidate: &StreamCandidate, whole_leaves: bool) -> Result<bool> {
        let table = self.table(candidate.table)?;
        let leaf_events = self
            .in_force
            .leaf_events(&self.core.options, table.leaf_events);
        if whole_leaves && candidate.flank_rows + candidate.late_rows < leaf_events {
            return Ok(false);
        }
        let chunks: Vec<Arc<Chunk>> = {
            let state = self.shard.state.lock();
            let memory = state.memory(candidate.stream);
            memory.map_or_else(Vec::new, |m| {
                m.flank.iter().chain(&m.late).cloned().collect()
            })
        };
        let (range, rows) = take_stream(
            &chunks,
            candidate.watermark,
            self.buffers,
            self.retained(candidate, whole_leaves.then_some(leaf_events)),
            self.sequence,
            &table,
        );
        // Rows of unreadable partitions would prevent a job from storing other rows.
        let blocked = self.partitions.unreadable_spans(candidate.table);
        if rows
            .times
            .iter()
            .all(|time| contains_instant(&blocked, Timestamp::from_nanos(*time)))
        {
            return Ok(false);
        }
        self.freed +=
            candidate.bytes * rows.len() / (candidate.flank_rows + candidate.late_rows).max(1);
        self.out.push(TakenRows {
            stream: candidate.stream,
            table,
            range,
            rows,
        });
        Ok(true)
    }

    /// Looks up a table, once.
    fn table(&mut self, id: TableId) -> Result<Arc<Table>> {
        if let Some(table) = self.tables.get(&id) {
            return Ok(Arc::clone(table));
        }
        let table = self
            .core
            .catalog
            .table(id)
            .ok_or_else(|| Error::internal(format!("no table {}", id.0)))?;
        self.tables.insert(id, Arc::clone(&table));
        Ok(table)
    }

    /// Determines the in-order events of a stream that stay in memory.
    fn retained(
        &self,
        candidate: &StreamCandidate,
        whole_leaves_of: Option<usize>,
    ) -> RetainedEvents {
        let exact = self.core.mode.is_exact();
        let retain = self.in_force.candidate.policy.retain_events as usize;
        RetainedEvents {
            retain: match self.urgency {
                Urgency::Memory if exact => retain,
                Urgency::Memory => retain.min(candidate.flank_rows / 4 * 3),
                Urgency::Log | Urgency::All => 0,
            },
            whole_leaves_of,
            exact,
        }
    }
}

/// The part of a stream's in-order events that a job leaves in memory.
#[derive(Clone, Copy)]
struct RetainedEvents {
    /// Number of the newest events to retain; at most a part of all, so that every job frees
    /// memory.
    retain: usize,
    /// Take whole leaves of this size only.
    whole_leaves_of: Option<usize>,
    /// Events of one time count as one among the retained events.
    exact: bool,
}

impl RetainedEvents {
    /// The end of the in-order events that are not retained, if it is determined before events are
    /// sorted: retained ones would be sorted again by every job until they are stored.
    fn bound(
        &self,
        chunks: &[Arc<Chunk>],
        watermark: Option<Timestamp>,
        sequence: Sequence,
    ) -> FlankBound {
        if self.exact || self.retain == 0 {
            return FlankBound::None;
        }
        let in_order = |time: Timestamp| watermark.is_none_or(|w| time > w);
        let mut times: Vec<i64> = Vec::new();
        for chunk in chunks.iter().filter(|c| in_order(c.span.last)) {
            if in_order(chunk.span.first) && chunk.last_sequence <= sequence {
                times.extend_from_slice(&chunk.rows.times);
                continue;
            }
            let rows = chunk.rows.times.iter().enumerate();
            let counted = rows.filter(|(row, time)| {
                in_order(Timestamp::from_nanos(**time)) && chunk.sequences.get(*row) <= sequence
            });
            times.extend(counted.map(|(_, time)| *time));
        }
        match times.len().saturating_sub(self.retain).checked_sub(1) {
            Some(last) => {
                let (_, last, _) = times.select_nth_unstable(last);
                FlankBound::Upto(Timestamp::from_nanos(*last))
            }
            None => FlankBound::Nothing,
        }
    }
}

/// Upper bound of the in-order events to take.
enum FlankBound {
    /// The bound is not known yet.
    None,
    /// All events are retained.
    Nothing,
    /// Events up to this time are taken.
    Upto(Timestamp),
}

fn take_stream(
    chunks: &[Arc<Chunk>],
    watermark: Option<Timestamp>,
    buffers: Buffers,
    keep: RetainedEvents,
    sequence: Sequence,
    table: &Table,
) -> (ClosedRange, Rows) {
    let bound = match buffers {
        Buffers::Late => FlankBound::None,
        Buffers::Flank | Buffers::Both => keep.bound(chunks, watermark, sequence),
    };
    let (upto, retain) = match bound {
        FlankBound::None => (Some(Timestamp::MAX), keep.retain),
        FlankBound::Nothing => (None, 0),
        FlankBound::Upto(last) => (Some(last), 0),
    };
    let all = buffers::take_range(buffers, watermark, upto);
    if all.is_empty() {
        return (ClosedRange::EMPTY, Rows::default());
    }
    let mut rows = sorted_rows(chunks, &all, sequence, table, None);
    if buffers == Buffers::Late || (retain == 0 && keep.whole_leaves_of.is_none()) {
        return (all, rows);
    }
    let flank_from = watermark.map_or(0, |w| rows.times.partition_point(|t| *t <= w.as_nanos()));
    let flank = part_of(&rows.times, flank_from.., "in-order events");
    let cut = buffers::cut(
        flank,
        retain,
        keep.whole_leaves_of.unwrap_or(1),
        keep.whole_leaves_of.is_some(),
    );
    let range = buffers::take_range(buffers, watermark, cut);
    if range.is_empty() {
        return (range, Rows::default());
    }
    let end = rows.times.partition_point(|t| *t <= range.last.as_nanos());
    rows.truncate(end);
    (range, rows)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::memory::chunk::Sequences;
    use crate::metadata::catalog::{Duplicates, Field, TableLifetime};
    use headwater_types::{Column, FieldId, FieldType, Values};
    use proptest::prelude::*;

    fn table() -> Table {
        Table {
            id: TableId(0),
            name: "t".to_owned(),
            duplicates: Duplicates::Last,
            leaf_events: 16,
            fields: vec![Field {
                name: "a".to_owned(),
                field_type: FieldType::I64,
            }],
            tags: Vec::new(),
            lifetime: TableLifetime::FOREVER,
        }
    }

    proptest! {
        /// All times differ here; with equal times more may be retained when events are not sorted
        /// first.
        #[test]
        fn what_is_kept_back_is_the_same_whether_or_not_it_is_put_in_order(
            times in Just((0..60i64).map(|t| t * 3).collect::<Vec<i64>>()).prop_shuffle(),
            rows_of_a_write in 1usize..20,
            watermark in prop_oneof![Just(None), (-1i64..200).prop_map(|w| Some(Timestamp::from_nanos(w)))],
            seen in 0u64..40,
            retain in 0usize..70,
            leaf in prop_oneof![Just(None), (1usize..20).prop_map(Some)],
            buffers in prop_oneof![Just(Buffers::Flank), Just(Buffers::Late), Just(Buffers::Both)],
        ) {
            let chunks: Vec<Arc<Chunk>> = (1u64..)
                .zip(times.chunks(rows_of_a_write))
                .filter_map(|(sequence, part)| {
                    let values = Column::from_values(Values::I64(part.to_vec()));
                    let rows = Rows { times: part.to_vec(), columns: vec![(FieldId(0), values)] };
                    Chunk::new(rows, Sequences::One(Sequence(sequence)), 0)
                })
                .collect();
            let taken = |exact: bool| {
                let keep = RetainedEvents { retain, whole_leaves_of: leaf, exact };
                take_stream(&chunks, watermark, buffers, keep, Sequence(seen), &table())
            };
            let ((range, rows), (range_exact, rows_exact)) = (taken(false), taken(true));
            prop_assert_eq!(&rows.times, &rows_exact.times);
            prop_assert!(rows.is_empty() || rows == rows_exact);
            // Each range covers only taken events.
            for range in [range, range_exact] {
                let inside = chunks.iter().flat_map(|chunk| {
                    let seen = chunk.first_sequence <= Sequence(seen);
                    chunk.rows.times.iter().filter(move |_| seen)
                });
                let mut inside: Vec<i64> = inside
                    .copied()
                    .filter(|t| range.first.as_nanos() <= *t && *t <= range.last.as_nanos())
                    .collect();
                inside.sort_unstable();
                prop_assert!(rows.is_empty() || inside == rows.times, "{:?} {:?}", inside, rows.times);
            }
            if retain > 0 && buffers == Buffers::Flank && leaf.is_none() {
                let in_order = chunks.iter()
                    .filter(|c| c.first_sequence <= Sequence(seen))
                    .flat_map(|c| &c.rows.times)
                    .filter(|t| watermark.is_none_or(|w| **t > w.as_nanos()))
                    .count();
                prop_assert_eq!(rows.len(), in_order.saturating_sub(retain));
            }
        }
    }
}
