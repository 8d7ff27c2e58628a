//! Takes events out of a shard's memory: which streams, and up to which time.
//!
//! Invariants: what is taken of a stream is every event of its range with a sequence up to the step's; nothing is removed from
//! memory here, that is done when the step has been committed.
//! Concurrency: the shard is looked at for one stream at a time, so that writers never wait for a step.

use super::plan::{self, Buffers, Urgency};
use crate::catalog::Table;
use crate::core::Core;
use crate::ids::{Sequence, StreamId, TableId};
use crate::late::FlushRule;
use crate::memory::{Chunk, sorted_rows};
use crate::policy::InForce;
use crate::shard::Shard;
use crate::{Error, Result};
use headwater_codec::{ClosedRange, Rows};
use std::collections::HashMap;
use std::sync::Arc;

/// A step takes at most this many streams, and fewer where memory is small.
const STREAMS_MAX: usize = 8192;
/// So many of any case: each step costs a commit.
const STREAMS_LEAST: usize = 1024;
/// One stream for so many bytes of the budget: what a step holds of them then stays small beside it, with two shards at it.
const BUDGET_PER_STREAM: usize = 4096;

/// What was taken of one stream.
pub(super) struct Taken {
    pub(super) stream: StreamId,
    pub(super) table: Arc<Table>,
    pub(super) range: ClosedRange,
    pub(super) rows: Rows,
}

/// Looks up what a step stores. Nothing is removed yet.
pub(super) fn take(
    core: &Core,
    shard: &Shard,
    in_force: &InForce,
    buffers: Buffers,
    urgency: Urgency,
    sequence: Sequence,
) -> Result<Vec<Taken>> {
    struct Candidate {
        stream: StreamId,
        table: TableId,
        watermark: Option<i64>,
        bytes: usize,
        flank_rows: usize,
        late_rows: usize,
        first_sequence: Sequence,
    }
    let (mut candidates, shard_bytes) = {
        let state = shard.state.lock();
        let candidates: Vec<Candidate> = state
            .active()
            .filter_map(|(stream, slot)| {
                let memory = &slot.memory;
                Some(Candidate {
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
            .collect();
        (candidates, state.bytes)
    };
    let exact = matches!(core.options.flush_rule, FlushRule::LabExact { .. });
    let retain = in_force.candidate.policy.retain_events as usize;
    let mut tables: HashMap<TableId, Arc<Table>> = HashMap::new();
    let mut table_of = |id: TableId| -> Result<Arc<Table>> {
        if let Some(table) = tables.get(&id) {
            return Ok(Arc::clone(table));
        }
        let table = core
            .catalog
            .table(id)
            .ok_or_else(|| Error::internal(format!("no table {}", id.0)))?;
        tables.insert(id, Arc::clone(&table));
        Ok(table)
    };
    // What to free: half of what the shard holds. Streams with whole leaves first, then the largest; for a log that is too
    // long the streams with the oldest events.
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
        (core.options.memory_budget_bytes / BUDGET_PER_STREAM).clamp(STREAMS_LEAST, STREAMS_MAX);
    let mut out: Vec<Taken> = Vec::new();
    let mut freed = 0;
    let rounds: &[bool] = if urgency == Urgency::Memory && !exact {
        &[true, false]
    } else {
        &[false]
    };
    let mut done = vec![false; candidates.len()];
    for whole_leaves in rounds {
        for (candidate, done) in candidates.iter().zip(&mut done) {
            if freed >= goal || out.len() >= streams_max {
                break;
            }
            if *done {
                continue;
            }
            let table = table_of(candidate.table)?;
            let leaf_events = in_force.leaf_events(&core.options, table.leaf_events);
            if *whole_leaves && candidate.flank_rows + candidate.late_rows < leaf_events {
                continue;
            }
            let chunks: Vec<Arc<Chunk>> = {
                let state = shard.state.lock();
                let memory = state.memory(candidate.stream);
                memory.map_or_else(Vec::new, |m| {
                    m.flank.iter().chain(&m.late).cloned().collect()
                })
            };
            let (range, rows) = take_stream(
                &chunks,
                candidate.watermark,
                buffers,
                Keep {
                    retain: match urgency {
                        Urgency::Memory if exact => retain,
                        Urgency::Memory => retain.min(candidate.flank_rows / 4 * 3),
                        Urgency::Log | Urgency::All => 0,
                    },
                    whole_leaves_of: whole_leaves.then_some(leaf_events),
                },
                sequence,
                &table,
            );
            if rows.is_empty() {
                continue;
            }
            *done = true;
            freed +=
                candidate.bytes * rows.len() / (candidate.flank_rows + candidate.late_rows).max(1);
            out.push(Taken {
                stream: candidate.stream,
                table,
                range,
                rows,
            });
        }
    }
    out.sort_by_key(|t| (t.table.id, t.stream));
    Ok(out)
}

/// What a step leaves of a stream's in-order events.
#[derive(Clone, Copy)]
struct Keep {
    /// The newest so many; a part of what is there at most, so that every step frees memory.
    retain: usize,
    /// Take whole leaves of this size only.
    whole_leaves_of: Option<usize>,
}

fn take_stream(
    chunks: &[Arc<Chunk>],
    watermark: Option<i64>,
    buffers: Buffers,
    keep: Keep,
    sequence: Sequence,
    table: &Table,
) -> (ClosedRange, Rows) {
    let all = match buffers {
        Buffers::Late => plan::take_range(Buffers::Late, watermark, None),
        Buffers::Flank => plan::take_range(Buffers::Flank, watermark, Some(i64::MAX)),
        Buffers::Both => ClosedRange::ALL,
    };
    if all.is_empty() {
        return (ClosedRange::EMPTY, Rows::default());
    }
    let mut rows = sorted_rows(chunks, &all, sequence, table, None);
    if buffers == Buffers::Late || (keep.retain == 0 && keep.whole_leaves_of.is_none()) {
        return (all, rows);
    }
    let flank_from = watermark.map_or(0, |w| rows.times.partition_point(|t| *t <= w));
    let flank = rows.times.get(flank_from..).unwrap_or_default();
    let cut = plan::cut(
        flank,
        keep.retain,
        keep.whole_leaves_of.unwrap_or(1),
        keep.whole_leaves_of.is_some(),
    );
    let range = plan::take_range(buffers, watermark, cut);
    if range.is_empty() {
        return (range, Rows::default());
    }
    let end = rows.times.partition_point(|t| *t <= range.last.as_nanos());
    rows.truncate(end);
    (range, rows)
}
