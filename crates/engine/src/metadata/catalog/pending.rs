//! Definitions that are not in the metadata yet.
//!
//! Invariants: sorted by sequence. For a table with added fields only these fields are stored, and
//! the table as it was before the first of them, so that adding fields one by one uses memory for
//! the fields and not for a table each.

use super::streams::StreamRecord;
use super::table::{AddedFields, Table, TableRecord};
use crate::common::ids::{NumberMap, Sequence, TableId};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A definition on its way from the log to the metadata.
#[derive(Clone, Debug)]
pub(crate) enum Definition {
    Table(Arc<Table>),
    Stream(Arc<StreamRecord>),
    /// The stream is dropped; its number is never reused.
    Dropped(Arc<StreamRecord>),
}

#[derive(Debug)]
enum PendingChange {
    Full(Definition),
    Fields(AddedFields),
}

impl PendingChange {
    /// Bytes of memory of the definition.
    fn bytes(&self) -> usize {
        match self {
            PendingChange::Full(Definition::Table(table)) => table.heap_bytes(),
            PendingChange::Full(Definition::Stream(record)) => record.pending_bytes(),
            PendingChange::Full(Definition::Dropped(_)) => 0,
            PendingChange::Fields(added) => added.heap_bytes(),
        }
    }

    fn table(&self) -> Option<TableId> {
        match self {
            PendingChange::Full(Definition::Table(table)) => Some(table.id),
            PendingChange::Fields(added) => Some(added.table),
            PendingChange::Full(_) => None,
        }
    }
}

/// Definitions not yet in the metadata.
#[derive(Debug, Default)]
pub(super) struct Pending {
    list: Vec<(Sequence, PendingChange)>,
    /// Tables in the list, as they were before their changes.
    before: NumberMap<TableId, Arc<Table>>,
}

impl Pending {
    pub(super) fn push_stream(&mut self, sequence: Sequence, definition: Definition) {
        self.list.push((sequence, PendingChange::Full(definition)));
    }

    /// Adds a changed or new table.
    pub(super) fn push_table(
        &mut self,
        sequence: Sequence,
        before: Option<Arc<Table>>,
        record: TableRecord,
    ) {
        let change = match record {
            TableRecord::Full(table) => PendingChange::Full(Definition::Table(table)),
            TableRecord::Fields(added) => PendingChange::Fields(added),
        };
        if let (Some(before), Some(table)) = (before, change.table()) {
            self.before.entry(table).or_insert(before);
        }
        self.list.push((sequence, change));
    }

    /// The tables in the list as of this sequence, each with the sequence of its change.
    fn tables_up_to(
        &self,
        sequence: Sequence,
    ) -> Result<BTreeMap<TableId, (Sequence, Arc<Table>)>> {
        let mut out: BTreeMap<TableId, (Sequence, Arc<Table>)> = BTreeMap::new();
        for (at, change) in self.list.iter().take_while(|(s, _)| *s <= sequence) {
            match change {
                PendingChange::Full(Definition::Table(table)) => {
                    out.insert(table.id, (*at, Arc::clone(table)));
                }
                PendingChange::Full(_) => {}
                PendingChange::Fields(added) => {
                    let known = out.remove(&added.table).map(|(_, table)| table);
                    let known = known.or_else(|| self.before.get(&added.table).cloned());
                    let mut table = known.ok_or_else(|| {
                        Error::internal(format!("fields of an unknown table {}", added.table.0))
                    })?;
                    added.add_to(Arc::make_mut(&mut table))?;
                    out.insert(added.table, (*at, table));
                }
            }
        }
        Ok(out)
    }

    /// Definitions to commit up to a sequence: the newest definition of each table.
    pub(super) fn up_to(&self, sequence: Sequence) -> Result<Vec<(Sequence, Definition)>> {
        let tables = self.tables_up_to(sequence)?.into_values();
        let tables = tables.map(|(at, table)| (at, Definition::Table(table)));
        let upto = self.list.iter().take_while(|(s, _)| *s <= sequence);
        let others = upto.filter_map(|(at, change)| match change {
            PendingChange::Full(Definition::Table(_)) | PendingChange::Fields(_) => None,
            PendingChange::Full(definition) => Some((*at, definition.clone())),
        });
        Ok(tables.chain(others).collect())
    }

    /// Forgets definitions that the metadata have now. Returns the bytes they used; `each` is
    /// called for every stream.
    pub(super) fn applied_up_to(
        &mut self,
        sequence: Sequence,
        mut each: impl FnMut(&StreamRecord),
    ) -> Result<usize> {
        let now = self.tables_up_to(sequence)?;
        let left = self.list.partition_point(|(s, _)| *s <= sequence);
        let rest = self.list.split_off(left);
        let mut bytes = 0;
        for (_, change) in std::mem::replace(&mut self.list, rest) {
            bytes += change.bytes();
            if let PendingChange::Full(Definition::Stream(record)) = &change {
                each(record);
            }
        }
        let mut before = NumberMap::default();
        for table in self.list.iter().filter_map(|(_, change)| change.table()) {
            let known = now.get(&table).map(|(_, known)| known);
            if let Some(known) = known.or_else(|| self.before.get(&table)) {
                before.insert(table, Arc::clone(known));
            }
        }
        self.before = before;
        Ok(bytes)
    }

    /// Bytes of memory of all pending definitions.
    pub(super) fn bytes(&self) -> usize {
        self.list.iter().map(|(_, change)| change.bytes()).sum()
    }

    /// The smallest sequence.
    pub(super) fn first(&self) -> Option<Sequence> {
        self.list.first().map(|(s, _)| *s)
    }

    /// The largest sequence of a table's definition.
    pub(super) fn newest_table(&self) -> Option<Sequence> {
        let newest = self.list.iter().rev().find(|(_, c)| c.table().is_some());
        newest.map(|(s, _)| *s)
    }

    /// Streams that were dropped.
    pub(super) fn dropped(&self) -> Vec<StreamRecord> {
        let records = self.list.iter().filter_map(|(_, change)| match change {
            PendingChange::Full(Definition::Dropped(record)) => Some((**record).clone()),
            _ => None,
        });
        records.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::metadata::catalog::{Duplicates, Field, TableLifetime};
    use headwater_types::FieldType;

    fn table(fields: &[&str]) -> Arc<Table> {
        let field = |name: &&str| Field {
            name: (*name).to_owned(),
            field_type: FieldType::I64,
        };
        Arc::new(Table {
            id: TableId(3),
            name: "t".into(),
            duplicates: Duplicates::Last,
            leaf_events: 16,
            fields: fields.iter().map(field).collect(),
            tags: Vec::new(),
            lifetime: TableLifetime::FOREVER,
        })
    }

    /// Pushes the changes that lead from each table to the next.
    fn pending(tables: &[(u64, Arc<Table>)]) -> Pending {
        let mut pending = Pending::default();
        for pair in tables.windows(2) {
            let [(_, old), (sequence, new)] = pair else {
                unreachable!()
            };
            let record = TableRecord::of(Some(old), new);
            pending.push_table(Sequence(*sequence), Some(Arc::clone(old)), record);
        }
        pending
    }

    fn at(pending: &Pending, sequence: u64) -> Option<(u64, Table)> {
        let mut all = pending.up_to(Sequence(sequence)).unwrap();
        assert!(all.len() <= 1);
        match all.pop()? {
            (s, Definition::Table(table)) => Some((s.0, (*table).clone())),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn a_table_is_as_it_was_at_every_sequence_before_and_after_a_part_was_stored() {
        let mut widened = (*table(&["a", "b", "c"])).clone();
        widened.fields[1].field_type = FieldType::F64;
        let widened = Arc::new(widened);
        let mut longer = (*widened).clone();
        longer.fields.extend(table(&["d", "e"]).fields.clone());
        let tables = [
            (0, table(&["a"])),
            (4, table(&["a", "b"])),
            (7, table(&["a", "b", "c"])),
            (9, widened),
            (12, Arc::new(longer)),
        ];
        for stored in 0..=13 {
            let mut pending = pending(&tables);
            assert_eq!(pending.first(), Some(Sequence(4)));
            assert_eq!(pending.newest_table(), Some(Sequence(12)));
            let all = pending.bytes();
            let freed = pending
                .applied_up_to(Sequence(stored), |_| unreachable!())
                .unwrap();
            assert_eq!(pending.bytes(), all - freed);
            for sequence in 0..=13 {
                let newest = tables.iter().rev().find(|(s, _)| *s <= sequence).unwrap();
                let expected =
                    (newest.0 > stored && newest.0 > 0).then(|| (newest.0, (*newest.1).clone()));
                assert_eq!(at(&pending, sequence), expected, "{stored} {sequence}");
            }
        }
    }

    #[test]
    fn fields_added_one_by_one_take_memory_for_themselves_only() {
        let names: Vec<String> = (0..500).map(|i| format!("field {i:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let tables: Vec<(u64, Arc<Table>)> =
            (0..=500).map(|n| (n as u64, table(&names[..n]))).collect();
        let pending = pending(&tables);
        assert!(pending.bytes() < 500 * 200, "{}", pending.bytes());
        assert_eq!(at(&pending, 500).unwrap().1, *tables[500].1);
    }
}
