//! States of which some tables are left out, since nothing of them may leave the database.
//!
//! Invariants: of such a table a state holds its number only, as that of one that was dropped:
//! numbers of tables are dense. What was left out is part of the state's name, so that what differs
//! is never put on a state of which something else was left out.

use crate::catalog::{Duplicates, Life, Table};
use crate::ids::TableId;
use std::sync::Arc;

/// What stands in the place of a table that is left out.
pub(crate) fn left_out(id: TableId) -> Arc<Table> {
    Arc::new(Table {
        id,
        // A name that says nothing; no reader sees it.
        name: "-".to_owned(),
        duplicates: Duplicates::Last,
        leaf_events: 1,
        fields: Vec::new(),
        tags: Vec::new(),
        life: Life {
            dropped: true,
            ..Life::FOREVER
        },
    })
}

/// The number that stands for a list of tables that are left out, which rises (FNV-1a).
pub(crate) fn view_of(tables: &[TableId]) -> u64 {
    if tables.is_empty() {
        return 0;
    }
    let bytes = tables.iter().flat_map(|table| table.0.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}
