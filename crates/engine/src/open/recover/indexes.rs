//! Loads the indexes that the metadata name, and repairs their files.
//!
//! Invariants: a run without a file does not exist: a backup has no files of runs. The owner
//! removes files that the metadata do not name, after everything has been checked. Failure: a
//! record that cannot be decoded is damage of the metadata.

use super::Recovery;
use crate::Result;
use crate::common::error::Error;
use crate::common::ids::{SegmentId, TableId};
use crate::metadata::tables::{IndexChange, Meta};
use crate::storage::index::{
    IndexDefinition, IndexId, Indexes, PolicyRecord, RunRecord, parse_name,
};
use crate::storage::segment::Store;
use headwater_io::Files;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The indexes of a database whose segments `store` reads; files of runs are written by `files`.
pub(super) fn load(
    meta: &Meta,
    store: &Store,
    files: &Arc<dyn Files>,
    cache_bytes: usize,
) -> Result<Indexes> {
    let indexes = Indexes::new(files, store.dir(), cache_bytes);
    let mut definitions = Vec::new();
    for (id, bytes) in meta.indexes()? {
        let definition = IndexDefinition::decode(IndexId(id), &bytes);
        definitions.push(definition.map_err(|e| Error::decode(meta.path(), 0, e))?);
    }
    let mut runs = Vec::new();
    for ((segment, number), bytes) in meta.index_runs()? {
        let record = RunRecord::decode(&bytes);
        let record = record.map_err(|e| Error::decode(meta.path(), 0, e))?;
        runs.push(((SegmentId(segment), number), record));
    }
    indexes.load(definitions, runs);
    let mut policies = BTreeMap::new();
    for (table, bytes) in meta.index_policies()? {
        let record = PolicyRecord::decode(&bytes);
        let record = record.map_err(|e| Error::decode(meta.path(), 0, e))?;
        policies.insert(TableId(table), record);
    }
    indexes.load_policies(policies);
    Ok(indexes)
}

/// Removes files among `present` that are runs without a commit, and forgets runs with missing
/// files.
pub(super) fn settle(
    meta: &Meta,
    store: &Store,
    present: &[String],
    indexes: &Indexes,
    recovery: &mut Recovery,
) -> Result<()> {
    let (files, dir) = (indexes.files(), store.dir());
    let present = present
        .iter()
        .filter_map(|name| Some((name, parse_name(name)?)));
    let named: HashSet<(SegmentId, u64)> = indexes.run_ids().into_iter().collect();
    let mut there = HashSet::new();
    for (name, place) in present {
        if named.contains(&place) {
            there.insert(place);
            continue;
        }
        let path = dir.join(name);
        files
            .remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
        tracing::info!(path = %path.display(), "removed an uncommitted part of an index");
        recovery.files_removed += 1;
    }
    let lost: HashSet<(SegmentId, u64)> = named.difference(&there).copied().collect();
    if lost.is_empty() {
        return Ok(());
    }
    tracing::info!(
        runs = lost.len(),
        "parts of indexes are missing; they will be rebuilt"
    );
    let numbers: Vec<u64> = lost.iter().map(|(_, number)| *number).collect();
    let all = indexes.all_runs();
    let with_losses = all.iter().filter(|(_, runs)| {
        let mut numbers_there = runs.runs.iter().map(|run| (run.segment, run.number));
        numbers_there.any(|place| lost.contains(&place))
    });
    meta.change_indexes(&IndexChange {
        runs: with_losses
            .flat_map(|(_, runs)| runs.lowered(&numbers, 0))
            .collect(),
        forgotten: lost
            .iter()
            .map(|(segment, number)| (segment.0, *number))
            .collect(),
        ..IndexChange::default()
    })?;
    indexes.forget_runs(&lost);
    Ok(())
}
