//! The space that the indexes of a table use, and its limit.

use crate::common::ids::TableId;
use crate::core::Core;
use crate::metadata::catalog::Table;
use crate::storage::index::IndexDefinition;
use crate::storage::segment::Partition;
use std::sync::Arc;

/// True while the index's table exists.
pub(crate) fn is_alive(core: &Core, index: &IndexDefinition) -> bool {
    let table = core.catalog.table(index.table);
    table.is_some_and(|table| !table.lifetime.dropped)
}

/// The partitions of a table that can be read.
pub(crate) fn partitions(core: &Core, table: &Table) -> Vec<Arc<Partition>> {
    let mut out = Vec::new();
    for shard in &core.shards {
        let partitions = Arc::clone(&shard.state.lock().partitions);
        let own = partitions.of(table.id).iter();
        out.extend(own.filter(|p| p.unreadable.is_none()).cloned());
    }
    out
}

/// Rows and bytes of the segments of a table.
pub(super) fn sizes(core: &Core, table: &Table) -> (u64, u64) {
    let partitions = partitions(core, table);
    let sum = |of: &dyn Fn(&Partition) -> u64| partitions.iter().map(|p| of(p)).sum();
    (
        sum(&|p| p.record.events),
        sum(&|p| p.record.committed_bytes),
    )
}

/// Bytes of the runs of these indexes.
pub(super) fn bytes_of(core: &Core, indexes: &[Arc<IndexDefinition>]) -> u64 {
    let all = core.indexes.all_runs().into_iter();
    let own = all.filter(|((_, id), _)| indexes.iter().any(|index| index.id == *id));
    own.flat_map(|(_, runs)| runs.runs.clone())
        .map(|run| run.record.file_bytes())
        .sum()
}

/// Existing indexes of a table.
pub(super) fn of_table(core: &Core, table: TableId) -> Vec<Arc<IndexDefinition>> {
    let all = core.indexes.definitions();
    let own = all
        .iter()
        .filter(|index| index.table == table && is_alive(core, index));
    own.cloned().collect()
}

/// Space used by the indexes of a table, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexSpace {
    pub(crate) bytes: u64,
    pub(crate) allowed: u64,
}

impl IndexSpace {
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= self.allowed
    }
}

/// The space budget of a table's indexes; `None` = unlimited.
pub(crate) fn index_space(core: &Core, table: &Table) -> Option<IndexSpace> {
    let policy = core.indexes.policy(table.id)?;
    let budget = policy.policy.budget_in_force()?;
    Some(IndexSpace {
        bytes: bytes_of(core, &of_table(core, table.id)),
        allowed: budget.bytes_of(sizes(core, table).1),
    })
}

/// True when a table made the index by itself.
pub(crate) fn is_automatic(core: &Core, index: &IndexDefinition) -> bool {
    let policy = core.indexes.policy(index.table);
    policy.is_some_and(|record| record.has_created(index))
}
