//! Filters records of the log to data that may leave the database.
//!
//! Invariants: of a withheld table only its number leaves, like that of a dropped one, since
//! numbers are dense; the name of a batch's producer does not leave. Failure: a record that cannot
//! be read is damage of the log.

use super::TailRecord;
use crate::common::ids::{Sequence, StreamId, TableId};
use crate::core::Core;
use crate::metadata::catalog::{AddedFields, StreamIndex, StreamRecord, Table};
use crate::replication::state::omitted_table;
use crate::replication::subscriptions::ReplicationRules;
use crate::storage::tombstone::DeleteRecord;
use crate::wal::RecordKind;
use crate::{Error, Result};
use headwater_codec::light::decode_rows;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::{part_of, wide};
use std::collections::HashMap;

/// Filters the records of a database, one after the other.
pub(super) struct Filter<'a> {
    core: &'a Core,
    rules: &'a ReplicationRules,
    withholds_nothing: bool,
    /// Streams that were looked up, and whether they leave.
    streams: HashMap<StreamId, bool>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(core: &'a Core, rules: &'a ReplicationRules) -> Filter<'a> {
        Filter {
            core,
            rules,
            withholds_nothing: rules.withhold_nothing(),
            streams: HashMap::new(),
        }
    }

    /// The part of a record that may leave, if any.
    pub(super) fn pass(
        &mut self,
        sequence: Sequence,
        kind: u8,
        payload: &[u8],
    ) -> Result<Option<TailRecord>> {
        let damaged =
            |e: DecodeError| Error::internal(format!("record {} of the log: {e}", sequence.0));
        let Some(kind) = RecordKind::from_number(kind) else {
            return Err(Error::internal(format!(
                "a record of kind {kind} in the log"
            )));
        };
        let mut cursor = Cursor::new(payload);
        let payload = match kind {
            RecordKind::Write => self.rows(cursor, payload)?,
            RecordKind::NumberedWrite => {
                cursor.text("producer").map_err(damaged)?;
                cursor.varint("batch number").map_err(damaged)?;
                let at = payload.len() - cursor.remaining();
                self.rows(cursor, part_of(payload, at.., "a batch in the log"))?
            }
            RecordKind::Table => {
                let table = Table::decode(&mut cursor).map_err(damaged)?;
                match self.rules.withholds(&table.name) {
                    false => Some(payload.to_vec()),
                    true => Some(omitted_table_record(table.id)),
                }
            }
            RecordKind::Fields => {
                let added = AddedFields::decode(&mut cursor).map_err(damaged)?;
                self.leaves(added.table).then(|| payload.to_vec())
            }
            RecordKind::Streams => self.defined(cursor, payload).map_err(damaged)?,
            RecordKind::Delete => {
                let record = DeleteRecord::decode(&mut cursor).map_err(damaged)?;
                self.leaves(record.table).then(|| payload.to_vec())
            }
        };
        let kind = match kind {
            RecordKind::NumberedWrite => RecordKind::Write,
            other => other,
        };
        Ok(payload.map(|payload| TailRecord {
            sequence,
            kind,
            payload: payload.into(),
        }))
    }

    fn leaves(&self, table: TableId) -> bool {
        self.withholds_nothing
            || self
                .core
                .catalog
                .table(table)
                .is_some_and(|table| !self.rules.withholds(&table.name))
    }

    fn stream_leaves(&mut self, stream: StreamId) -> Result<bool> {
        if let Some(known) = self.streams.get(&stream) {
            return Ok(*known);
        }
        let pending = self.core.catalog.pending_stream(stream);
        let table = match pending {
            Some(record) => Some(record.table),
            None => self.core.meta.streams(&[stream])?.pop().map(|r| r.table),
        };
        // An unknown one was dropped.
        let leaves = table.is_some_and(|table| self.leaves(table));
        self.streams.insert(stream, leaves);
        Ok(leaves)
    }

    /// The rows of streams that may leave: `rest` are the bytes after the cursor.
    fn rows(&mut self, mut cursor: Cursor<'_>, rest: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.withholds_nothing {
            return Ok(Some(rest.to_vec()));
        }
        let damaged = |e: DecodeError| Error::internal(format!("a batch in the log: {e}"));
        let whole = cursor.remaining();
        let most = u64::try_from(whole).unwrap_or(u64::MAX);
        let count = cursor.varint_up_to(most, "entry count").map_err(damaged)?;
        let mut kept = Vec::new();
        for _ in 0..count {
            let from = whole - cursor.remaining();
            let id = cursor.varint_up_to(u64::from(u32::MAX), "stream id");
            let id = u32::try_from(id.map_err(damaged)?).unwrap_or(u32::MAX);
            decode_rows(&mut cursor).map_err(damaged)?;
            let until = whole - cursor.remaining();
            if self.stream_leaves(StreamId(id))? {
                kept.push(part_of(rest, from..until, "a batch in the log"));
            }
        }
        Ok(together(&kept))
    }

    fn defined(
        &self,
        mut cursor: Cursor<'_>,
        payload: &[u8],
    ) -> std::result::Result<Option<Vec<u8>>, DecodeError> {
        let most = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        let count = cursor.varint_up_to(most, "stream count")?;
        let mut kept = Vec::new();
        for _ in 0..count {
            let from = payload.len() - cursor.remaining();
            let record = StreamRecord::decode(&mut cursor)?;
            let until = payload.len() - cursor.remaining();
            if self.leaves(record.table) {
                kept.push(part_of(payload, from..until, "streams in the log"));
            }
        }
        Ok(together(&kept))
    }
}

/// Parts preceded by their number; `None` without parts.
fn together(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    out.put_varint(wide(parts.len()));
    for part in parts {
        out.extend_from_slice(part);
    }
    (!parts.is_empty()).then_some(out)
}

fn omitted_table_record(id: TableId) -> Vec<u8> {
    let mut out = Vec::new();
    omitted_table(id).encode(&mut out);
    out
}
