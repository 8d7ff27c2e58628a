//! The newest record that concerns a table, since opening: for clients that read a table again only
//! when it has changed.
//!
//! Invariants: a record is noted before it is published, so that a reader of its data finds the
//! entry; numbers never decrease. Changes by time alone (values that expire, rows that age) are not
//! noted. Concurrency: one lock, for a lookup or a change of one map.

use crate::common::ids::{Sequence, TableId};
use parking_lot::Mutex;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct TableChanges(Mutex<HashMap<TableId, Sequence>>);

impl TableChanges {
    /// Notes a record that concerns these tables.
    pub(crate) fn note(&self, tables: impl IntoIterator<Item = TableId>, sequence: Sequence) {
        let mut all = self.0.lock();
        for table in tables {
            let newest = all.entry(table).or_default();
            *newest = sequence.max(*newest);
        }
    }

    /// The newest record of a table; 0 without one.
    pub(crate) fn newest(&self, table: TableId) -> Sequence {
        let all = self.0.lock();
        all.get(&table).map_or(Sequence(0), |newest| *newest)
    }
}
