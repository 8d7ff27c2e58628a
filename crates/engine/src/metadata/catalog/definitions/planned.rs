//! Tables and streams that a batch needs are defined together, or not at all.

use super::{Catalog, State};
use crate::common::ids::{Sequence, ShardIndex, StreamId, TableId};
use crate::metadata::catalog::limits::{LimitExceeded, TableLimits};
use crate::metadata::catalog::pending::Definition;
use crate::metadata::catalog::streams::StreamRecord;
use crate::metadata::catalog::table::{Table, TableRecord};
use crate::{Error, Result};
use headwater_types::invariant::wide;
use std::sync::Arc;

/// A planned table.
#[derive(Debug)]
pub(crate) struct PlannedTable {
    /// Table before the plan; `None` = it is new.
    pub(crate) base: Option<Arc<Table>>,
    /// The base with more fields, or wider ones.
    pub(crate) table: Arc<Table>,
}

impl PlannedTable {
    /// Additional bytes of its definition.
    pub(crate) fn added_bytes(&self) -> usize {
        let before = self.base.as_ref().map_or(0, |base| base.heap_bytes());
        self.table.heap_bytes().saturating_sub(before)
    }
}

/// Key bytes of streams of a table that were just found to be undefined.
pub(crate) type NewStreamKeys = (TableId, Vec<Box<[u8]>>);

/// Outcome of a plan.
pub(crate) enum Planned {
    /// All definitions are in force.
    Defined,
    /// No definition is in force: this table was dropped meanwhile.
    Dropped(String),
    /// No definition is in force: this table would have too many streams, with the message.
    Full(TableId, String),
}

impl Catalog {
    /// Number of existing tables, and bytes of their definitions.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let state = self.state.read();
        (state.table_ids.len(), state.table_bytes)
    }

    /// Defines tables and streams together. A caller that plans tables has the turn to define: no
    /// other thread adds or widens fields. Streams that any thread defined meanwhile do not change:
    /// one log record has all streams that are really new.
    pub(crate) fn define_planned(
        &self,
        (tables, streams): (&[PlannedTable], &[NewStreamKeys]),
        (limits, streams_max): (TableLimits, usize),
        shard_of: impl Fn(&[u8]) -> ShardIndex,
        mut enqueue_table: impl FnMut(&TableRecord) -> Result<Sequence>,
        enqueue_streams: impl FnOnce(&[StreamRecord]) -> Result<Sequence>,
    ) -> Result<Planned> {
        let mut state = self.writing();
        let mut changed = Vec::with_capacity(tables.len());
        for planned in tables {
            match state.planned(planned, changed.len(), limits)? {
                Some(change) => changed.push(change),
                None => return Ok(Planned::Dropped(planned.table.name.clone())),
            }
        }
        let mut records: Vec<StreamRecord> = Vec::new();
        let mut next = state.next_stream;
        for (table, keys) in streams {
            let before = records.len();
            for key in keys {
                let is_defined = state.stream_ids.contains_key(&self.hash(key))
                    || state.pending_keys.contains(&**key);
                if is_defined {
                    continue;
                }
                records.push(StreamRecord {
                    id: StreamId(next),
                    table: *table,
                    shard: shard_of(key),
                    key: key.clone(),
                });
                next = next
                    .checked_add(1)
                    .ok_or_else(|| Error::invalid("too many streams: 2^32"))?;
            }
            let there = state.stream_counts.get(table.0 as usize).copied();
            let new = wide(records.len() - before);
            let count = there.unwrap_or(0) + new;
            if new > 0 && count > wide(streams_max) {
                let message = format!(
                    "the table would have {count} streams, the limit is {streams_max} (setting streams_max)"
                );
                return Ok(Planned::Full(*table, message));
            }
        }
        for (old, table) in changed {
            let record = TableRecord::of(old.as_ref(), &table);
            let sequence = enqueue_table(&record)?;
            state.put_table(table);
            state.pending.push_table(sequence, old, record);
        }
        if records.is_empty() {
            return Ok(Planned::Defined);
        }
        let sequence = enqueue_streams(&records)?;
        for record in records {
            let record = Arc::new(record);
            state.put_stream(self.hash(&record.key), &record);
            state
                .pending
                .push_stream(sequence, Definition::Stream(record));
        }
        Ok(Planned::Defined)
    }
}

/// A table before and after a change.
type Change = (Option<Arc<Table>>, Arc<Table>);

impl State {
    /// A planned table over the one in force: its lifetime may have moved since. `None` when the
    /// table was dropped.
    fn planned(
        &self,
        planned: &PlannedTable,
        changes_before: usize,
        limits: TableLimits,
    ) -> Result<Option<Change>> {
        let name = &planned.table.name;
        let named = self.table_ids.get(name);
        if planned.base.is_none() {
            // The new ones have the numbers after the existing ones.
            let expected = planned.table.id.0 as usize;
            let is_next =
                (self.tables.len()..=self.tables.len() + changes_before).contains(&expected);
            if named.is_some() || !is_next {
                return Err(Error::internal(format!(
                    "table `{name}` was planned as number {expected}, and there are {}",
                    self.tables.len()
                )));
            }
            let table = Arc::clone(&planned.table);
            if self.table_ids.len() >= limits.tables {
                let beyond = LimitExceeded::Tables(limits.tables);
                return Err(Error::invalid(format!("table `{name}`: {beyond}")));
            }
            return Ok(Some((None, table)));
        }
        let now = named.filter(|id| **id == planned.table.id);
        let Some(now) = now.and_then(|id| self.tables.get(id.0 as usize)) else {
            return Ok(None);
        };
        let mut table = Table::clone(&planned.table);
        table.leaf_events = now.leaf_events;
        table.duplicates = now.duplicates;
        table.tags.clone_from(&now.tags);
        table.lifetime = now.lifetime;
        table.lifetime.expires |= planned.table.lifetime.expires;
        Ok(Some((Some(Arc::clone(now)), Arc::new(table))))
    }
}
