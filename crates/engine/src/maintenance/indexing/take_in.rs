//! Makes a run of leaves that are not indexed yet.
//!
//! Failure: a leaf that cannot be read ends the increment; the segment is skipped from then on.

use super::plan::unindexed_leaves;
use super::sort::Sorter;
use crate::common::ids::SegmentId;
use crate::core::Core;
use crate::metadata::catalog::Table;
use crate::storage::index::{Front, IndexDefinition, Run, RunWriter, put_row_key};
use crate::storage::segment::Partition;
use crate::{Error, Result};
use headwater_types::FieldType;
use std::sync::Arc;

/// Approximate maximum of rows of a run that is made at once.
const ROWS_MAX: u64 = 1 << 18;
/// Share (1/n) of the memory budget for sorting the entries of a run.
const MEMORY_SHARE: usize = 8;

/// A run that was written, with true if it completes the index.
pub(super) struct IndexedRun {
    /// `None` = there were no leaves to index.
    pub(super) run: Option<Run>,
    pub(super) is_all: bool,
}

/// The fields of an index with their present types.
fn typed(
    definition: &IndexDefinition,
    table: &Table,
) -> Result<Vec<(headwater_types::FieldId, FieldType)>> {
    let typed = definition.fields.iter().map(|id| {
        let field = table.field(*id).ok_or_else(|| {
            let (index, table) = (&definition.name, &table.name);
            Error::internal(format!(
                "index `{index}` refers to field {} of `{table}`, which does not exist",
                id.0
            ))
        })?;
        Ok((*id, field.field_type))
    });
    typed.collect()
}

/// Writes a run of leaves that these fronts do not contain.
pub(super) fn take_in(
    core: &Core,
    definition: &IndexDefinition,
    table: &Table,
    partition: &Partition,
    fronts: &[Arc<Front>],
) -> Result<IndexedRun> {
    let (leaves, is_all) = unindexed_leaves(core, partition, fronts, ROWS_MAX)?;
    if leaves.is_empty() {
        return Ok(IndexedRun { run: None, is_all });
    }
    let memory = headwater_types::invariant::wide(core.options.memory_budget_bytes / MEMORY_SHARE);
    let segment: SegmentId = partition.id();
    let mut sorter = Sorter::default();
    let mut key = Vec::new();
    let mut taken = Vec::new();
    let mut start = 0u32;
    let mut is_cut = false;
    for (stream, leaf) in leaves_in_order(leaves) {
        if sorter.bytes() > memory && !taken.is_empty() {
            is_cut = true;
            break;
        }
        let rows = core
            .store
            .leaf_fields(segment, &leaf, &definition.fields, table)?;
        let columns: Vec<_> = definition.fields.iter().map(|f| rows.column(*f)).collect();
        for (row, at) in (start..).zip(0..rows.len()) {
            if put_row_key(&columns, at, &mut key) {
                sorter.push(&key, row);
            }
        }
        start = start
            .checked_add(leaf.count)
            .ok_or_else(|| Error::internal("an index run of 2^32 rows"))?;
        taken.push((stream, leaf));
    }
    let number = core.indexes.take_number();
    let mut writer = RunWriter::new(core.indexes.files(), core.indexes.dir(), (segment, number))?;
    sorter.write(&mut writer)?;
    let is_all = is_all && !is_cut;
    let front = Front {
        index: definition.id,
        segment,
        fields: typed(definition, table)?,
        leaves: Front::numbered(taken)
            .ok_or_else(|| Error::internal("an index run of 2^32 rows"))?,
        blocks: Vec::new(),
    };
    let complete_to = if is_all {
        partition.record.committed_bytes
    } else {
        0
    };
    let run = writer.finish(definition.id, front, complete_to)?;
    Ok(IndexedRun {
        run: Some(run),
        is_all,
    })
}

/// In the numbering order of a front.
fn leaves_in_order(
    mut leaves: Vec<(
        crate::common::ids::StreamId,
        crate::storage::segment::LeafEntry,
    )>,
) -> Vec<(
    crate::common::ids::StreamId,
    crate::storage::segment::LeafEntry,
)> {
    leaves.sort_by_key(|(stream, leaf)| (*stream, leaf.offset, leaf.row_start));
    leaves
}
