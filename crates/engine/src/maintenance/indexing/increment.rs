//! The next increment of work on indexes.

use super::adapt::adapt;
use super::change::{drop_indexes, forget_segments, replace};
use super::merge::merge;
use super::plan::{Missing, missing, to_merge};
use super::space::{index_space, is_alive, partitions};
use super::take_in::take_in;
use crate::common::ids::SegmentId;
use crate::core::Core;
use crate::metadata::catalog::Table;
use crate::storage::index::{Front, IndexDefinition, IndexId, Lookup, SegmentRuns, types_in};
use crate::storage::segment::Partition;
use crate::{ErrorKind, Result};
use std::collections::HashSet;
use std::sync::Arc;

/// Outcome of an increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is nothing to do.
    Nothing,
    /// Something was done, and there may be more.
    Done,
}

/// Does the next increment of work: of one index, or of any.
pub(crate) fn next_increment(core: &Core, only: Option<IndexId>) -> Result<Outcome> {
    if core.indexes.is_empty() && !core.indexes.any_policy() {
        return Ok(Outcome::Nothing);
    }
    let _changing = core.indexes.begin_change();
    if let_go(core)? || (only.is_none() && adapt(core)?) {
        return Ok(Outcome::Done);
    }
    for definition in core.indexes.definitions().iter() {
        if only.is_some_and(|only| only != definition.id) {
            continue;
        }
        let Some(table) = core.catalog.table(definition.table) else {
            return Err(crate::Error::internal(
                "an index refers to an unknown table",
            ));
        };
        // The space of a table's indexes changes with each increment.
        let is_full = index_space(core, &table).is_some_and(|space| space.is_full());
        for partition in partitions(core, &table) {
            if is_full && misses_leaves(core, definition, &table, &partition) {
                continue;
            }
            if increment_of(core, definition, &table, &partition)? == Outcome::Done {
                return Ok(Outcome::Done);
            }
        }
    }
    Ok(Outcome::Nothing)
}

/// True when an index does not contain some leaves yet.
fn misses_leaves(
    core: &Core,
    definition: &IndexDefinition,
    table: &Table,
    partition: &Partition,
) -> bool {
    let runs = core.indexes.runs(partition.id(), definition.id);
    let missing = missing(partition, &runs, types_in(table, definition));
    matches!(missing, Missing::Leaves)
}

/// Drops indexes of dropped tables, and forgets runs of removed segments. True when there were any.
fn let_go(core: &Core) -> Result<bool> {
    let definitions = core.indexes.definitions();
    let gone = definitions.iter().filter(|index| !is_alive(core, index));
    let gone: Vec<IndexId> = gone.map(|index| index.id).collect();
    if !gone.is_empty() {
        drop_indexes(core, &gone)?;
        return Ok(true);
    }
    // Runs first: a run beside a segment is made after the segment.
    let with_runs: HashSet<SegmentId> = {
        let runs = core.indexes.all_runs();
        runs.into_iter().map(|((segment, _), _)| segment).collect()
    };
    let mut there = HashSet::new();
    for shard in &core.shards {
        let partitions = Arc::clone(&shard.state.lock().partitions);
        there.extend(partitions.all().map(|p| p.id()));
    }
    let gone: Vec<SegmentId> = with_runs.difference(&there).copied().collect();
    if gone.is_empty() {
        return Ok(false);
    }
    forget_segments(core, &gone)?;
    Ok(true)
}

/// An increment of work beside one segment. A segment that cannot be read is skipped from then on.
fn increment_of(
    core: &Core,
    definition: &IndexDefinition,
    table: &Table,
    partition: &Partition,
) -> Result<Outcome> {
    let (segment, length) = (partition.id(), partition.record.committed_bytes);
    if core.indexes.is_unindexable(segment, definition.id, length) {
        return Ok(Outcome::Nothing);
    }
    let runs = core.indexes.runs(segment, definition.id);
    let done = match missing(partition, &runs, types_in(table, definition)) {
        Missing::Nothing => return Ok(Outcome::Nothing),
        Missing::Leaves => leaves(core, definition, table, partition, &runs),
        Missing::Merge => merge_some(core, definition, partition, &runs),
    };
    match done {
        Ok(()) => Ok(Outcome::Done),
        // Damaged, or its rows were freed before it was indexed.
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Elsewhere) => {
            tracing::warn!(
                segment = segment.0, index = %definition.name, %error,
                "cannot index a segment; filters read its rows instead"
            );
            core.indexes.leave_alone(segment, definition.id, length);
            Ok(Outcome::Done)
        }
        Err(error) => Err(error),
    }
}

/// Indexes leaves that are in none of the runs, after dropping useless runs.
fn leaves(
    core: &Core,
    definition: &IndexDefinition,
    table: &Table,
    partition: &Partition,
    runs: &SegmentRuns,
) -> Result<()> {
    let place = (partition.id(), definition.id);
    let mut useless = runs.useless(types_in(table, definition));
    let mut fronts: Vec<Arc<Front>> = Vec::new();
    for run in &runs.runs {
        if useless.contains(&run.number) {
            continue;
        }
        match Lookup::new(&core.indexes, run) {
            Some(lookup) => fronts.push(Arc::clone(&lookup.front)),
            None => useless.push(run.number),
        }
    }
    let taken = take_in(core, definition, table, partition, &fronts)?;
    let complete_to = if taken.is_all {
        partition.record.committed_bytes
    } else {
        0
    };
    replace(core, place, &useless, taken.run, complete_to)
}

/// Merges the smaller runs, or all runs when most of their rows were removed.
fn merge_some(
    core: &Core,
    definition: &IndexDefinition,
    partition: &Partition,
    runs: &SegmentRuns,
) -> Result<()> {
    let mut sorted = runs.runs.clone();
    sorted.sort_by_key(|run| run.record.rows);
    let sizes: Vec<u64> = sorted.iter().map(|run| run.record.rows).collect();
    match to_merge(&sizes) {
        0 => {}
        count => sorted.truncate(count),
    }
    let merged = merge(core, partition, &sorted, runs.complete_to)?;
    let gone: Vec<u64> = sorted.iter().map(|run| run.number).collect();
    let place = (partition.id(), definition.id);
    replace(core, place, &gone, merged, runs.complete_to)
}
