//! Records of rows that a retention removed while the log still has them. Format:
//! docs/format/meta.md.

use super::Meta;
use crate::common::ids::{Sequence, ShardIndex, TableId};
use crate::metadata::catalog::Cutoff;
use crate::metadata::removed_rows::{RemovedChange, RemovedMark};
use crate::{Error, Result};
use redb::{ReadableTable, TableDefinition};

/// By table, shard and sequence: the instant before which rows of log records up to that sequence
/// are removed. Missing until the first removal.
const REMOVED: TableDefinition<'_, (u32, u16, u64), i64> = TableDefinition::new("removed");

impl Meta {
    pub(crate) fn removed(&self) -> Result<Vec<RemovedMark>> {
        let Some(table) = self.table(REMOVED)? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (key, before) = entry.map_err(Error::meta)?;
            let (table, shard, sequence) = key.value();
            out.push(RemovedMark {
                table: TableId(table),
                shard: ShardIndex(shard),
                sequence: Sequence(sequence),
                before: Cutoff::from_nanos(before.value()),
            });
        }
        Ok(out)
    }

    pub(super) fn commit_removed(
        &self,
        transaction: &redb::WriteTransaction,
        change: &RemovedChange,
    ) -> Result<()> {
        if *change == RemovedChange::default() {
            return Ok(());
        }
        let key = |mark: &RemovedMark| (mark.table.0, mark.shard.0, mark.sequence.0);
        let mut table = transaction.open_table(REMOVED).map_err(Error::meta)?;
        for mark in &change.removed {
            table.remove(key(mark)).map_err(Error::meta)?;
        }
        for mark in &change.new {
            let before = mark.before.as_nanos();
            table.insert(key(mark), before).map_err(Error::meta)?;
        }
        Ok(())
    }
}
