//! States without some tables, since their data may not leave the database.
//!
//! A node that passes a state on may leave out more tables, and then assigns it another view.
//!
//! Invariants: a state has only the number of such a table, like that of a dropped one: numbers of
//! tables are dense. The view is part of the state's name, so that a difference is only applied to
//! a state with the same tables left out.

use super::{State, StateName};
use crate::common::ids::TableId;
use crate::metadata::catalog::{Duplicates, Table, TableLifetime};
use std::sync::Arc;

/// Placeholder of a table that is left out.
pub(crate) fn omitted_table(id: TableId) -> Arc<Table> {
    Arc::new(Table {
        id,
        // A placeholder name; no reader sees it.
        name: "-".to_owned(),
        duplicates: Duplicates::Last,
        leaf_events: 1,
        fields: Vec::new(),
        tags: Vec::new(),
        lifetime: TableLifetime {
            dropped: true,
            ..TableLifetime::FOREVER
        },
    })
}

/// The number of a list of tables that are left out, sorted ascending (FNV-1a).
pub(crate) fn view_of(tables: &[TableId]) -> u64 {
    if tables.is_empty() {
        return 0;
    }
    let bytes = tables.iter().flat_map(|table| table.0.to_le_bytes());
    hashed(0xcbf2_9ce4_8422_2325, bytes)
}

fn hashed(start: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    let hash = bytes.fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

impl State {
    /// The state without these additional tables, sorted ascending.
    pub(crate) fn without(&self, tables: &[TableId]) -> State {
        let stays = |table: TableId| tables.binary_search(&table).is_err();
        let bytes = self.name.view.to_le_bytes().into_iter();
        let mut out = State {
            name: StateName {
                view: hashed(view_of(tables), bytes),
                ..self.name
            },
            ..self.clone()
        };
        for table in out.tables.iter_mut().filter(|t| !stays(t.id)) {
            *table = omitted_table(table.id);
        }
        let streams = self.streams.iter().filter(|record| stays(record.table));
        out.streams = streams.cloned().collect();
        out.deletes.retain(|(_, record)| stays(record.table));
        out.newest_deletes.retain(|(table, _)| stays(*table));
        out.ends.deletes.retain(|(_, record)| stays(record.table));
        out.partitions.retain(|p| stays(p.record.table));
        out
    }
}
