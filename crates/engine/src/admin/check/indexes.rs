//! Compares indexes with the rows.
//!
//! For every leaf that the segment still has, the entries are counted and their hashes summed, once
//! from the run and once from the rows: so a run of any size is compared in a few bytes per leaf.
//!
//! Failure: a disagreement is damage of the run's file. A missing file is not damage: its owner may
//! just have dropped it, and makes it again.

use super::Checker;
use crate::common::error::Damage;
use crate::common::ids::StreamId;
use crate::metadata::catalog::Table;
use crate::storage::index::{Front, IndexDefinition, Run, put_row_key};
use crate::storage::segment::LeafEntry;
use crate::{ErrorKind, Result};
use headwater_codec::checksum::crc32c;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Entries of a leaf: their number, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    entries: u64,
    sum: u64,
}

impl Tally {
    /// `row` is counted from the leaf's first.
    fn add(&mut self, key: &[u8], row: u32) {
        let mut bytes = key.to_vec();
        bytes.extend_from_slice(&row.to_le_bytes());
        self.entries += 1;
        self.sum = self.sum.wrapping_add(u64::from(crc32c(&bytes)));
    }
}

impl Checker<'_> {
    /// Compares the runs of all indexes beside the partition with its rows.
    pub(super) fn indexes(&mut self) -> Result<()> {
        let definitions = self.core.indexes.definitions();
        let Some(table) = self.core.catalog.table(self.partition.record.table) else {
            return Ok(());
        };
        let leaves = if definitions.is_empty() {
            Vec::new()
        } else {
            self.leaves()?
        };
        for definition in definitions.iter().filter(|index| index.table == table.id) {
            let runs = self.core.indexes.runs(self.partition.id(), definition.id);
            let types = crate::storage::index::types_in(&table, definition);
            let mut held: HashSet<(StreamId, u64, u32)> = HashSet::new();
            let mut all_read = true;
            for run in &runs.runs {
                if run.record.types != types {
                    // Leaves that were widened since are indexed again.
                    all_read = false;
                    continue;
                }
                match self.run(definition, &table, run, &leaves) {
                    Ok(front) => held.extend(front.leaves.iter().map(|leaf| leaf.key())),
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        all_read = false;
                        self.note::<()>(Err(error))?;
                    }
                    Err(error) if error.kind() == ErrorKind::Io => all_read = false,
                    Err(error) => return Err(error),
                }
            }
            let is_complete = runs.complete_to == self.partition.record.committed_bytes;
            let missing = leaves
                .iter()
                .find(|(stream, leaf)| !held.contains(&(*stream, leaf.offset, leaf.row_start)));
            if let (Some((stream, leaf)), true, true) = (missing, is_complete, all_read) {
                self.expect(
                    false,
                    leaf.offset,
                    format!(
                        "a leaf of stream {} in index `{}`",
                        stream.0, definition.name
                    ),
                    "no index run with this leaf",
                );
            }
        }
        Ok(())
    }

    /// All leaves of the partition.
    fn leaves(&self) -> Result<Vec<(StreamId, LeafEntry)>> {
        let state = self.core.store.state(self.partition)?;
        let mut leaves = Vec::new();
        for page in state.pages() {
            self.core
                .store
                .each_stream(&state, page, &mut |stream, held| {
                    let own = held.main.iter().chain(held.late.iter().flatten());
                    leaves.extend(own.map(|leaf| (stream, *leaf)));
                    Ok(())
                })?;
        }
        Ok(leaves)
    }

    /// Compares a run with the rows of its leaves that the partition has.
    fn run(
        &mut self,
        definition: &IndexDefinition,
        table: &Table,
        run: &Arc<Run>,
        leaves: &[(StreamId, LeafEntry)],
    ) -> Result<Front> {
        let front = run.front()?;
        self.report.index_runs += 1;
        let mut found: BTreeMap<u32, Tally> = BTreeMap::new();
        for place in &front.blocks {
            let entries = run.block(place)?;
            for (key, rows) in entries.keys() {
                for row in rows {
                    let Some(leaf) = front.leaf_of(*row) else {
                        self.disagrees(run, "rows of the indexed leaves", format!("row {row}"));
                        continue;
                    };
                    found
                        .entry(leaf.start)
                        .or_default()
                        .add(key, row - leaf.start);
                }
            }
        }
        let own = leaves
            .iter()
            .filter_map(|(stream, leaf)| Some((leaf, front.slot(*stream, leaf)?)));
        for (leaf, slot) in own {
            let expected = self.tally(definition, table, leaf);
            if expected
                .as_ref()
                .is_err_and(|e| e.kind() == ErrorKind::Elsewhere)
            {
                continue;
            }
            let Some(expected) = self.note(expected)? else {
                return Ok(front);
            };
            let found = found
                .get(&slot.start)
                .copied()
                .unwrap_or_else(Tally::default);
            if found != expected {
                let what = format!("{expected:?} of the leaf at {}", leaf.offset);
                self.disagrees(run, &what, format!("{found:?}"));
            }
        }
        Ok(front)
    }

    fn disagrees(&mut self, run: &Run, expected: &str, found: String) {
        self.report.damages.push(Damage {
            file: run.path().to_owned(),
            offset: 0,
            expected: expected.to_owned(),
            found,
        });
    }

    /// The entries that a leaf's rows should have.
    fn tally(
        &self,
        definition: &IndexDefinition,
        table: &Table,
        leaf: &LeafEntry,
    ) -> Result<Tally> {
        let (store, id) = (&self.core.store, self.partition.id());
        let rows = store.leaf_fields(id, leaf, &definition.fields, table)?;
        let columns: Vec<_> = definition.fields.iter().map(|f| rows.column(*f)).collect();
        let (mut tally, mut key) = (Tally::default(), Vec::new());
        for (row, at) in (0u32..).zip(0..rows.len()) {
            if put_row_key(&columns, at, &mut key) {
                tally.add(&key, row);
            }
        }
        Ok(tally)
    }
}
