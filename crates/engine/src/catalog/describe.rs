//! A table as users see it.

use super::{Catalog, Table, TableInfo};
use headwater_types::Timestamp;
use std::time::Duration;

impl Catalog {
    /// A table's definition, with what is known of its streams.
    pub(crate) fn table_info(&self, table: &Table) -> TableInfo {
        let mut tags = self.tag_keys(table.id);
        if !table.tags.is_empty() {
            tags.extend_from_slice(&table.tags);
            tags.sort_unstable();
            tags.dedup();
        }
        TableInfo {
            name: table.name.clone(),
            duplicates: table.duplicates,
            leaf_events: table.leaf_events,
            tags,
            fields: table.fields.clone(),
            streams: self.stream_count(table.id),
            retention: table.life.retention_ns.map(duration),
            raw_for: table.life.raw_ns.map(duration),
            cut: horizon(table.life.cut),
            aged_to: horizon(table.life.aged_to),
        }
    }
}

fn duration(ns: i64) -> Duration {
    Duration::from_nanos(ns.unsigned_abs())
}

fn horizon(at: i64) -> Option<Timestamp> {
    (at > i64::MIN).then(|| Timestamp::from_nanos(at))
}
