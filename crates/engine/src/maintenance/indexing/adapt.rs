//! Indexes that a table makes and drops by itself, and the space budget of its indexes.
//!
//! Invariants: an index that a user defined is never dropped here. While the runs of a table's
//! indexes are at or above the space budget, no further leaves are indexed: the runs exceed it by
//! one run at most, and filters read the missing leaves. Failure: as of every change of indexes;
//! the counts stay.

use super::change::{commit, define, drop_indexes};
use super::space::{bytes_of, of_table, sizes};
use crate::Result;
use crate::common::ids::TableId;
use crate::core::Core;
use crate::metadata::catalog::Table;
use crate::metadata::tables::IndexChange;
use crate::storage::index::{AUTOMATIC_MAX, IndexDefinition, PolicyRecord};
use headwater_types::FieldId;
use std::sync::Arc;

/// Assumed bytes of an entry, before there is one.
const ENTRY_BYTES: u64 = 8;
/// Minimum rows in segments: smaller tables are read as fast without an index.
const ROWS_MIN: u64 = 1 << 12;

/// Makes or drops an index of a table that does so by itself, if one is due. The caller has begun
/// the change.
pub(super) fn adapt(core: &Core) -> Result<bool> {
    for (id, record) in core.indexes.policies() {
        let table = core
            .catalog
            .table(id)
            .filter(|table| !table.lifetime.dropped);
        let Some(table) = table else {
            forget(core, id)?;
            return Ok(true);
        };
        if adapt_table(core, &table, &record)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn adapt_table(core: &Core, table: &Table, record: &PolicyRecord) -> Result<bool> {
    let now = core.env.clock.monotonic();
    let indexes = of_table(core, table.id);
    let made = indexes.iter().filter(|index| record.has_created(index));
    let made: Vec<&Arc<IndexDefinition>> = made.collect();
    if made.is_empty() && !record.policy.auto {
        return Ok(false);
    }
    let (rows, bytes) = sizes(core, table);
    let allowed = record.policy.budget_in_force();
    let allowed = allowed.map_or(u64::MAX, |budget| budget.bytes_of(bytes));
    let taken = bytes_of(core, &indexes);
    // The last run that was made may have exceeded the budget somewhat.
    let is_too_much = taken > allowed.saturating_add(allowed / 4);
    if let Some(index) = to_drop(core, table, record, &made, (rows, is_too_much)) {
        tracing::info!(
            index = %index.name, table = %table.name, is_too_much,
            "dropped an automatic index"
        );
        drop_created(core, table.id, record, index)?;
        return Ok(true);
    }
    if !record.policy.auto || rows < ROWS_MIN || made.len() >= AUTOMATIC_MAX {
        return Ok(false);
    }
    let is_indexed = |field: FieldId| indexes.iter().any(|i| i.fields.first() == Some(&field));
    let field = core
        .indexes
        .demand()
        .to_make(table.id, rows, &is_indexed, now);
    let field = field.and_then(|id| Some((id, table.field(id)?)));
    let Some((id, field)) = field else {
        return Ok(false);
    };
    if taken.saturating_add(rows.saturating_mul(ENTRY_BYTES)) > allowed {
        return Ok(false);
    }
    let name = free_name(core, &table.name, &field.name);
    let Some(name) = name else { return Ok(false) };
    core.check_space()?;
    let fields = [field.name.clone()];
    let definition = match define(core, &name, &table.name, &fields) {
        Ok(definition) => definition,
        // The maximum number of indexes is reached, or the name is not valid.
        Err(error) => {
            tracing::debug!(%error, "cannot create an automatic index");
            return Ok(false);
        }
    };
    let mut record = record.clone();
    record.created.retain(|(id, name)| {
        let mut known = indexes.iter();
        known.any(|index| index.id == *id && index.name == *name)
    });
    record
        .created
        .push((definition.id, definition.name.clone()));
    core.log.sync_up_to(core.log.newest())?;
    let change = IndexChange {
        defined: vec![(definition.id.0, definition.encode())],
        policies: vec![(table.id.0, record.encode())],
        ..IndexChange::default()
    };
    commit(core, &change)?;
    tracing::info!(index = %name, table = %table.name, "creating an automatic index: filters read many rows that do not match");
    core.indexes.set_policy(table.id, Some(record));
    core.indexes.add_definition(definition);
    core.indexes.demand().changed(table.id, id, Some(now));
    Ok(true)
}

/// The index that spares the least work: one below the threshold, or any, where together they
/// exceed their space budget or indexes are not allowed any more.
fn to_drop<'a>(
    core: &Core,
    table: &Table,
    record: &PolicyRecord,
    made: &[&'a Arc<IndexDefinition>],
    (rows, is_too_much): (u64, bool),
) -> Option<&'a Arc<IndexDefinition>> {
    let now = core.env.clock.monotonic();
    let mut demand = core.indexes.demand();
    let mut due: Vec<(f64, &Arc<IndexDefinition>)> = Vec::new();
    for index in made {
        let Some(field) = index.fields.first() else {
            return Some(*index);
        };
        let spares_little = demand.is_to_drop((table.id, *field), rows, now);
        if spares_little || is_too_much || !record.policy.auto {
            due.push((demand.worth(table.id, *field, now), index));
        }
    }
    let least = due.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    least.map(|(_, index)| index)
}

/// An unused index name: the default name, or the default name with a number.
fn free_name(core: &Core, table: &str, field: &str) -> Option<String> {
    let known = core.indexes.definitions();
    let is_free = |name: &String| known.iter().all(|index| index.name != *name);
    let plain = format!("{table}_{field}_auto");
    let numbered = (1..AUTOMATIC_MAX).map(|number| format!("{plain}{number}"));
    std::iter::once(plain.clone()).chain(numbered).find(is_free)
}

fn drop_created(
    core: &Core,
    table: TableId,
    record: &PolicyRecord,
    index: &Arc<IndexDefinition>,
) -> Result<()> {
    drop_indexes(core, &[index.id])?;
    if let Some(field) = index.fields.first() {
        core.indexes.demand().changed(table, *field, None);
    }
    let mut record = record.clone();
    record.created.retain(|(id, _)| *id != index.id);
    put(core, table, record)
}

/// Sets the index policy of a table. The caller has begun the change.
pub(crate) fn put(core: &Core, table: TableId, record: PolicyRecord) -> Result<()> {
    let change = IndexChange {
        policies: vec![(table.0, record.encode())],
        ..IndexChange::default()
    };
    commit(core, &change)?;
    core.indexes.set_policy(table, Some(record));
    Ok(())
}

fn forget(core: &Core, table: TableId) -> Result<()> {
    let change = IndexChange {
        removed_policies: vec![table.0],
        ..IndexChange::default()
    };
    commit(core, &change)?;
    core.indexes.set_policy(table, None);
    core.indexes.demand().forget(table);
    Ok(())
}
