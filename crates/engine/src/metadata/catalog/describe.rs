//! A table as users see it.

use super::{Catalog, Table, TableInfo};

impl Catalog {
    /// A table's definition, with its number of streams and its tag keys.
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
            retention: table.lifetime.retention,
            raw_for: table.lifetime.raw_for,
            cut: table.lifetime.retention_cutoff.instant(),
            aged_to: table.lifetime.aged_to.instant(),
        }
    }
}
