//! Hashes of groups, stored with the partitions: the ledger.
//!
//! Invariants: stored hashes are of the segment's bytes; a partition whose record has the head of a
//! chain has the hashes of all its groups. A segment that was not written by a job has no hashes
//! until it has been read. Concurrency: redb's own.

use super::{Meta, MetaChange, PARTITIONS, PartitionRecord, table_of};
use crate::common::ids::SegmentId;
use crate::metadata::ledger::{GroupHashes, Hash};
use crate::{Error, Result};
use redb::{ReadableTable, TableDefinition};

/// By segment and end of the group.
const HASHES: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("group_hashes");

/// Hashes of the groups of a segment as of a transaction, sorted ascending.
pub(super) fn hashes_at(
    meta: &Meta,
    transaction: &redb::ReadTransaction,
    id: SegmentId,
) -> Result<Vec<GroupHashes>> {
    let Some(table) = table_of(transaction, HASHES)? else {
        return Ok(Vec::new());
    };
    let mut out = Vec::new();
    let range = (id.0, 0)..=(id.0, u64::MAX);
    for entry in table.range(range).map_err(Error::meta)? {
        let (key, value) = entry.map_err(Error::meta)?;
        let (_, end) = key.value();
        let hashes = GroupHashes::decode(end, value.value())
            .map_err(|e| meta.damaged(e.expected, format!("hashes of segment {}", id.0)))?;
        out.push(hashes);
    }
    Ok(out)
}

impl Meta {
    /// Stored hashes of the groups of a segment, sorted ascending.
    pub(crate) fn hashes(&self, id: SegmentId) -> Result<Vec<GroupHashes>> {
        match self.begin_read()? {
            Some(transaction) => hashes_at(self, &transaction, id),
            None => Ok(Vec::new()),
        }
    }

    /// Stores the hashes of a change, and forgets those of removed segments.
    pub(super) fn commit_hashes(
        &self,
        transaction: &redb::WriteTransaction,
        change: &MetaChange,
    ) -> Result<()> {
        if change.partitions.is_empty() && change.removed.is_empty() {
            return Ok(());
        }
        let mut table = transaction.open_table(HASHES).map_err(Error::meta)?;
        let is_hashed = |id: &SegmentId| change.hashes.iter().any(|(of, _)| of == id);
        let put = change.partitions.iter();
        let unknown = put.filter(|(id, record)| record.chain.is_none() && !is_hashed(id));
        let unknown = unknown.map(|(id, _)| id);
        for id in change.removed.iter().chain(unknown) {
            table
                .retain_in((id.0, 0)..=(id.0, u64::MAX), |_, _| false)
                .map_err(Error::meta)?;
        }
        for (id, groups) in &change.hashes {
            for group in groups {
                table
                    .insert((id.0, group.end), group.encode().as_slice())
                    .map_err(Error::meta)?;
            }
        }
        Ok(())
    }

    /// Stores hashes of groups that were read, and the head of the chain if it is known by now.
    /// When the segment has got another group since, the metadata do not change and the result says
    /// so.
    pub(crate) fn put_hashes(
        &self,
        id: SegmentId,
        record: &PartitionRecord,
        groups: &[GroupHashes],
        chain: Option<Hash>,
    ) -> Result<bool> {
        let transaction = self.begin_write()?;
        {
            let mut partitions = transaction.open_table(PARTITIONS).map_err(Error::meta)?;
            let known = partitions.get(id.0).map_err(Error::meta)?;
            let known = known.map(|bytes| PartitionRecord::decode(bytes.value()));
            let known = known
                .transpose()
                .map_err(|e| self.damaged(e.expected, format!("partition record {}", id.0)))?;
            let known = known.filter(|known| {
                (known.footer_offset, known.committed_bytes)
                    == (record.footer_offset, record.committed_bytes)
            });
            // An uncommitted transaction has no effect.
            let Some(known) = known else {
                return Ok(false);
            };
            let mut table = transaction.open_table(HASHES).map_err(Error::meta)?;
            for group in groups {
                table
                    .insert((id.0, group.end), group.encode().as_slice())
                    .map_err(Error::meta)?;
            }
            if chain.is_some() {
                let record = PartitionRecord { chain, ..known };
                partitions
                    .insert(id.0, record.encode().as_slice())
                    .map_err(Error::meta)?;
            }
        }
        if chain.is_some() {
            // The name of a state covers the heads of chains.
            self.name_state(&transaction)?;
        }
        transaction.commit().map_err(Error::meta)?;
        Ok(true)
    }
}
