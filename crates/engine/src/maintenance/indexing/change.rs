//! Changes of indexes as they are committed.
//!
//! Invariants: the definition of an index's table is durable before the index is. Runs are removed
//! from the metadata before their files are. Failure: after a failed transaction the database
//! latches, since the transaction may be on the medium nevertheless.

use super::space::{IndexSpace, index_space, is_alive};
use crate::common::ids::SegmentId;
use crate::core::Core;
use crate::metadata::catalog::check_name;
use crate::metadata::tables::IndexChange;
use crate::storage::index::{FIELDS_MAX, IndexDefinition, IndexId, Run, SegmentRuns};
use crate::{Error, Result};
use headwater_types::invariant::wide;

/// Maximum number of indexes of a database.
const INDEXES_MAX: usize = 256;

pub(super) fn commit(core: &Core, change: &IndexChange) -> Result<()> {
    let _one_at_a_time = core.commits.begin();
    let made = core.meta.change_indexes(change);
    made.inspect_err(|error| core.log.latch(error.clone()))
}

/// Defines an index; its runs are made by increments.
pub(crate) fn create(core: &Core, name: &str, table: &str, fields: &[String]) -> Result<()> {
    let _changing = core.indexes.begin_change();
    let definition = define(core, name, table, fields)?;
    let space = core
        .catalog
        .table(definition.table)
        .and_then(|table| index_space(core, &table));
    if let Some(space) = space.filter(IndexSpace::is_full) {
        return Err(Error::invalid(format!(
            "index `{name}`: the indexes of table `{table}` take {} bytes, and its index_budget allows {}: drop an index, or raise index_budget",
            space.bytes, space.allowed
        )));
    }
    core.check_space()?;
    core.log.sync_up_to(core.log.newest())?;
    commit(
        core,
        &IndexChange {
            defined: vec![(definition.id.0, definition.encode())],
            ..IndexChange::default()
        },
    )?;
    core.indexes.add_definition(definition);
    Ok(())
}

pub(super) fn define(
    core: &Core,
    name: &str,
    table: &str,
    fields: &[String],
) -> Result<IndexDefinition> {
    check_name("index", name)?;
    let known = core.indexes.definitions();
    if known
        .iter()
        .any(|index| index.name == name && is_alive(core, index))
    {
        return Err(Error::invalid(format!("index `{name}` already exists")));
    }
    if known.len() >= INDEXES_MAX {
        return Err(Error::invalid(format!(
            "cannot create index `{name}`: there are already {INDEXES_MAX} indexes, the maximum: drop one first"
        )));
    }
    let found = core.catalog.table_named(table);
    let found = found.ok_or_else(|| Error::not_found(format!("no table `{table}`")))?;
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return Err(Error::invalid(format!(
            "index `{name}` has {} fields: expected 1 to {FIELDS_MAX}",
            fields.len()
        )));
    }
    let mut ids = Vec::new();
    for field in fields {
        let id = found
            .field_id(field)
            .ok_or_else(|| Error::not_found(format!("table `{table}` has no field `{field}`")))?;
        if ids.contains(&id) {
            return Err(Error::invalid(format!(
                "field `{field}` is specified more than once"
            )));
        }
        ids.push(id);
    }
    let next = u32::try_from(core.meta.next_index()?);
    let next = next.map_err(|_| {
        Error::invalid(format!(
            "cannot create index `{name}`: this database has used up all index numbers"
        ))
    })?;
    Ok(IndexDefinition {
        id: IndexId(next),
        table: found.id,
        name: name.to_owned(),
        fields: ids,
    })
}

/// Drops indexes with their runs. The caller has begun the change.
pub(crate) fn drop_indexes(core: &Core, gone: &[IndexId]) -> Result<()> {
    let runs = core.indexes.all_runs();
    let own = runs.iter().filter(|((_, index), _)| gone.contains(index));
    commit(
        core,
        &IndexChange {
            dropped: gone.iter().map(|id| id.0).collect(),
            forgotten: own.flat_map(|(_, runs)| keys(runs)).collect(),
            ..IndexChange::default()
        },
    )?;
    core.indexes.remove_definitions(gone);
    Ok(())
}

fn keys(runs: &SegmentRuns) -> impl Iterator<Item = (u64, u64)> {
    runs.runs.iter().map(|run| (run.segment.0, run.number))
}

/// Forgets the runs of removed segments.
pub(super) fn forget_segments(core: &Core, gone: &[SegmentId]) -> Result<()> {
    let runs = core.indexes.all_runs();
    let own = runs
        .iter()
        .filter(|((segment, _), _)| gone.contains(segment));
    let forgotten: Vec<(u64, u64)> = own.flat_map(|(_, runs)| keys(runs)).collect();
    if !forgotten.is_empty() {
        let change = IndexChange {
            forgotten,
            ..IndexChange::default()
        };
        commit(core, &change)?;
    }
    core.indexes.forget_segments(gone);
    Ok(())
}

/// Replaces runs by another one. The remaining runs promise no more than `complete_to`.
pub(super) fn replace(
    core: &Core,
    place: (SegmentId, IndexId),
    gone: &[u64],
    new: Option<Run>,
    complete_to: u64,
) -> Result<()> {
    if new.is_some() || !gone.is_empty() {
        let staying = core.indexes.runs(place.0, place.1);
        let lowered = staying.lowered(gone, complete_to);
        let runs = new.iter().map(|run| {
            let bytes = run.record.file_bytes();
            core.counters.bytes(0, 0, bytes, 0);
            ((run.segment.0, run.number), run.record.encode())
        });
        let change = IndexChange {
            runs: runs.chain(lowered).collect(),
            forgotten: gone.iter().map(|number| (place.0.0, *number)).collect(),
            ..IndexChange::default()
        };
        commit(core, &change)?;
        tracing::debug!(
            segment = place.0.0,
            index = place.1.0,
            runs_before = wide(gone.len()),
            "created runs of an index"
        );
    }
    core.indexes.replace(place, gone, new, complete_to);
    Ok(())
}
