//! Merges runs of an index beside a segment into one. Memory: a block and the front of each run,
//! and the rows of one key at four bytes a row.
//!
//! Invariants: the new run holds the leaves of the old ones that the segment still has, each once,
//! with all of their entries.

use super::plan::all_leaves;
use crate::common::ids::StreamId;
use crate::core::Core;
use crate::storage::index::{Front, LeafSlot, Run, RunWriter};
use crate::storage::segment::Partition;
use crate::{Error, Result};
use headwater_codec::entries::Entries;
use headwater_types::invariant::part_of;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Location of a leaf.
type LeafKey = (StreamId, u64, u32);

/// A run that is read from the first entry to the last.
struct Cursor {
    run: Arc<Run>,
    front: Front,
    next_block: usize,
    /// Entries left in the current block, the next one last.
    remaining: Vec<(Vec<u8>, u32)>,
    /// Leaves whose entries this run contributes.
    own: HashSet<LeafKey>,
}

impl Cursor {
    /// Makes sure that there is a current entry, unless the run is at its end.
    fn fill(&mut self) -> Result<()> {
        while self.remaining.is_empty() {
            let Some(place) = self.front.blocks.get(self.next_block) else {
                return Ok(());
            };
            let entries: Entries = self.run.block(place)?;
            self.next_block += 1;
            for (key, rows) in entries.keys() {
                self.remaining
                    .extend(rows.iter().map(|row| (key.to_vec(), *row)));
            }
            self.remaining.reverse();
        }
        Ok(())
    }
}

/// Writes a run that replaces these; `None` when the segment has none of their leaves any more.
pub(super) fn merge(
    core: &Core,
    partition: &Partition,
    runs: &[Arc<Run>],
    complete_to: u64,
) -> Result<Option<Run>> {
    let living: HashSet<LeafKey> = all_leaves(core, partition)?
        .into_iter()
        .map(|(stream, leaf)| (stream, leaf.offset, leaf.row_start))
        .collect();
    let mut cursors = Vec::new();
    let mut leaves: HashMap<LeafKey, LeafSlot> = HashMap::new();
    for run in runs {
        let front = run.front().inspect_err(|error| run.set_damaged(error))?;
        let mut own = HashSet::new();
        for leaf in &front.leaves {
            let is_new = living.contains(&leaf.key()) && !leaves.contains_key(&leaf.key());
            if is_new {
                leaves.insert(leaf.key(), *leaf);
                own.insert(leaf.key());
            }
        }
        cursors.push(Cursor {
            run: Arc::clone(run),
            front,
            next_block: 0,
            remaining: Vec::new(),
            own,
        });
    }
    let (Some(first), false) = (runs.first(), leaves.is_empty()) else {
        return Ok(None);
    };
    let fields = cursors.first().map(|c| c.front.fields.clone());
    let too_many = || Error::internal("an index run of 2^32 rows");
    let slots = leaves
        .values()
        .map(|leaf| (leaf.stream, leaf.entry))
        .collect();
    let slots = Front::numbered(slots).ok_or_else(too_many)?;
    let starts: HashMap<LeafKey, u32> = slots.iter().map(|leaf| (leaf.key(), leaf.start)).collect();
    let number = core.indexes.take_number();
    let place = (partition.id(), number);
    let mut writer = RunWriter::new(core.indexes.files(), core.indexes.dir(), place)?;
    write(&mut cursors, &starts, &mut writer)?;
    let front = Front {
        index: first.record.index,
        segment: partition.id(),
        fields: fields.unwrap_or_else(Vec::new),
        leaves: slots,
        blocks: Vec::new(),
    };
    writer
        .finish(first.record.index, front, complete_to)
        .map(Some)
}

/// Writes the entries of all runs in order. Rows of one key are ordered differently in the new run
/// than in the old ones, so they are gathered first.
fn write(
    cursors: &mut [Cursor],
    starts: &HashMap<LeafKey, u32>,
    writer: &mut RunWriter,
) -> Result<()> {
    let mut rows: Vec<u32> = Vec::new();
    loop {
        for cursor in cursors.iter_mut() {
            let filled = cursor.fill();
            filled.inspect_err(|error| cursor.run.set_damaged(error))?;
        }
        let heads = cursors.iter().filter_map(|c| c.remaining.last());
        let Some(key) = heads.map(|(key, _)| key).min().cloned() else {
            return Ok(());
        };
        rows.clear();
        for cursor in cursors.iter_mut() {
            take_key(cursor, &key, starts, &mut rows)?;
        }
        rows.sort_unstable();
        for row in part_of(&rows, .., "rows of a key") {
            writer.push(&key, *row)?;
        }
    }
}

/// Takes the rows of a key from a run, with their new numbers.
fn take_key(
    cursor: &mut Cursor,
    key: &[u8],
    starts: &HashMap<LeafKey, u32>,
    rows: &mut Vec<u32>,
) -> Result<()> {
    loop {
        let filled = cursor.fill();
        filled.inspect_err(|error| cursor.run.set_damaged(error))?;
        let Some((_, row)) = cursor.remaining.pop_if(|(own, _)| own == key) else {
            return Ok(());
        };
        let leaf = cursor.front.leaf_of(row);
        let living = leaf.filter(|leaf| cursor.own.contains(&leaf.key()));
        if let Some(leaf) = living
            && let Some(start) = starts.get(&leaf.key())
        {
            rows.push(start + (row - leaf.start));
        }
    }
}
