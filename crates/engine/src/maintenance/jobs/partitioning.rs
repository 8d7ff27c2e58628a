//! Divides the rows that a job took over partitions, and chooses spans for times without a
//! partition.
//!
//! Invariants: a job writes at most [`PARTITIONS_MAX`] partitions; rows of others, or of a
//! partition that is being rewritten or cannot be read, stay in memory.

use super::take::TakenRows;
use crate::common::ids::{SegmentId, TableId};
use crate::core::Core;
use crate::metadata::catalog::Table;
use crate::storage::partitions::{PartitionSet, Span, choose_span};
use crate::storage::segment::Partition;
use crate::{Error, Result};
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum partitions that a job writes; the rest waits for the next job.
const PARTITIONS_MAX: usize = 16;
/// Maximum times sampled to choose the span of a partition.
const PLACING_SAMPLES: usize = 8192;

/// The part of a stream's rows that one partition stores.
pub(super) struct StreamPart {
    pub(super) input: usize,
    pub(super) rows: std::ops::Range<usize>,
}

pub(super) enum TargetPartition {
    Existing(Arc<Partition>),
    New(Span),
}

pub(super) struct PartitionWork {
    pub(super) target: TargetPartition,
    pub(super) table: Arc<Table>,
    pub(super) parts: Vec<StreamPart>,
}

/// Divides the rows taken over at most [`PARTITIONS_MAX`] partitions, the oldest first.
pub(super) fn assign_partitions(
    core: &Core,
    partitions: &PartitionSet,
    busy: &std::collections::HashSet<SegmentId>,
    taken: &[TakenRows],
) -> Result<Vec<PartitionWork>> {
    let mut works: Vec<PartitionWork> = Vec::new();
    let mut by_table: BTreeMap<TableId, Vec<usize>> = BTreeMap::new();
    for (index, one) in taken.iter().enumerate() {
        by_table.entry(one.table.id).or_default().push(index);
    }
    for (table_id, members) in by_table {
        let first = members.first().and_then(|m| taken.get(*m));
        let table = first.map(|t| Arc::clone(&t.table)).ok_or_else(|| {
            Error::internal(format!("no rows were taken from table {}", table_id.0))
        })?;
        let mut spans: Vec<(ClosedRange, TargetPartition)> = partitions
            .of(table_id)
            .iter()
            .map(|p| (p.record.span(), TargetPartition::Existing(Arc::clone(p))))
            .collect();
        add_new_spans(core, partitions, &table, &members, taken, &mut spans);
        spans.sort_by_key(|(range, _)| range.first);
        for (range, target) in spans {
            let mut parts: Vec<StreamPart> = Vec::new();
            for member in &members {
                for one in part_of(taken, *member..=*member, "what a step took") {
                    let times = &one.rows.times;
                    let from = times.partition_point(|t| *t < range.first.as_nanos());
                    let to = times.partition_point(|t| *t <= range.last.as_nanos());
                    if from < to {
                        parts.push(StreamPart {
                            input: *member,
                            rows: from..to,
                        });
                    }
                }
            }
            let is_busy = matches!(&target, TargetPartition::Existing(p)
                if busy.contains(&p.id()) || p.unreadable.is_some());
            if is_busy && !parts.is_empty() {
                core.compaction.note_blocked_job();
            }
            if !parts.is_empty() && !is_busy {
                works.push(PartitionWork {
                    target,
                    table: Arc::clone(&table),
                    parts,
                });
            }
        }
    }
    works.truncate(PARTITIONS_MAX);
    Ok(works)
}

/// Chooses spans for the times without a partition.
fn add_new_spans(
    core: &Core,
    partitions: &PartitionSet,
    table: &Table,
    members: &[usize],
    taken: &[TakenRows],
    spans: &mut Vec<(ClosedRange, TargetPartition)>,
) {
    let mut homeless: Vec<i64> = Vec::new();
    let members = members.iter();
    for one in members.flat_map(|m| part_of(taken, *m..=*m, "what a step took")) {
        let mut from = 0;
        while let Some(time) = one.rows.times.get(from) {
            let rest = part_of(&one.rows.times, from.., "rows behind a partition");
            match partitions.owner(table.id, Timestamp::from_nanos(*time)) {
                Some(owner) => {
                    let last = owner.record.span().last.as_nanos();
                    from += rest.partition_point(|t| *t <= last);
                }
                None => {
                    homeless.push(*time);
                    from += 1;
                }
            }
        }
    }
    if homeless.is_empty() {
        return;
    }
    homeless.sort_unstable();
    let (events, bytes) = partitions
        .of(table.id)
        .iter()
        .fold((0u64, 0u64), |(e, b), p| {
            (e + p.record.events, b + p.record.live_bytes)
        });
    let columns = table.fields.len() as f64 + 1.0;
    let per_event = if events >= 10_000 {
        bytes as f64 / events as f64
    } else {
        3.0 * columns
    };
    let target_bytes = core.mode.partition_target_bytes(&core.options);
    // Each sampled time represents several events.
    let stride = homeless.len().div_ceil(PLACING_SAMPLES).max(1);
    let mut times: Vec<i64> = homeless;
    for _ in 0..PARTITIONS_MAX * 4 {
        if times.is_empty() {
            return;
        }
        let sampled: Vec<i64> = times.iter().step_by(stride).copied().collect();
        let existing: Vec<ClosedRange> = spans.iter().map(|(r, _)| *r).collect();
        let span = choose_span(
            &sampled,
            &existing,
            per_event * stride as f64,
            target_bytes,
            table.lifetime.level_max(),
        );
        let range = span.range();
        let before = times.len();
        times.retain(|t| !range.contains(Timestamp::from_nanos(*t)));
        if times.len() == before {
            return;
        }
        spans.push((range, TargetPartition::New(span)));
    }
}
