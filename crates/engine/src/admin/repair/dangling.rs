//! Removes references to tables and fields whose definitions are lost: the next definition gets the
//! same number, for a different table or field.

use super::log::highest_named;
use super::plan::{Planning, damage};
use crate::common::ids::TableId;
use crate::metadata::catalog::Table;
use crate::metadata::tables::IndexChange;
use crate::open::reader::open_core;
use crate::storage::index::{IndexDefinition, IndexId};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Reason why an index has lost its meaning, if it has.
fn lost_of(index: &IndexDefinition, table: Option<&Arc<Table>>) -> Option<String> {
    let Some(table) = table else {
        return Some(format!("table number {}", index.table.0));
    };
    let mut fields = index.fields.iter();
    let lost = fields.find(|field| table.field(**field).is_none())?;
    Some(format!("field number {} of table `{}`", lost.0, table.name))
}

impl Planning<'_> {
    /// Plans the end of indexes, and of their policies, over definitions that are lost with the
    /// log; and ensures that no record number named in the metadata is reused. True when the log is
    /// changed for this.
    pub(super) fn without_dangling(&mut self) -> Result<bool> {
        let core = match open_core(&self.overlay(), self.options) {
            Ok((core, _)) => core,
            // The damage is already reported.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(false),
            Err(error) => return Err(error),
        };
        let meta = self.open_meta()?;
        for (id, bytes) in meta.indexes()? {
            let index = IndexDefinition::decode(IndexId(id), &bytes);
            let index = index.map_err(|e| Error::decode(&self.meta_path, 0, e))?;
            let table = core.catalog.table(index.table);
            if let Some(lost) = lost_of(&index, table.as_ref()) {
                let expected = format!("{lost}, which index `{}` covers", index.name);
                self.find(
                    damage(&self.meta_path.clone(), 0, expected, "no definition"),
                    "the index is dropped",
                );
                self.lost
                    .push(format!("index `{}`, together with {lost}", index.name));
                self.dangling.dropped.push(id);
            }
        }
        for (table, _) in meta.index_policies()? {
            if core.catalog.table(TableId(table)).is_some() {
                continue;
            }
            let expected = format!("table number {table}, which has an index policy");
            self.find(
                damage(&self.meta_path.clone(), 0, expected, "no definition"),
                "the index policy is dropped",
            );
            self.dangling.removed_policies.push(table);
        }
        if !self.dangling.is_empty() {
            meta.change_indexes(&IndexChange {
                dropped: self.dangling.dropped.clone(),
                removed_policies: self.dangling.removed_policies.clone(),
                ..IndexChange::default()
            })?;
        }
        let named = highest_named(&meta)?;
        let newest = core.log.newest();
        drop((meta, core));
        if named <= newest {
            return Ok(false);
        }
        let found = format!("none after {}", newest.0);
        let expected = format!(
            "log records up to {}, which the metadata refers to",
            named.0
        );
        let log_dir = self.log_folder();
        self.find(
            damage(&log_dir, 0, expected, found),
            "their numbers are not reused",
        );
        self.take_numbers_up_to(named)?;
        Ok(true)
    }
}
