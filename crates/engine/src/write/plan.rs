//! Definitions that a batch needs: tables, fields, wider types and streams. None of them is in
//! force until all of the batch is decided.
//!
//! Invariants: a batch that plans more than streams has the [`Turn`], so that the plan still fits
//! when it is defined; it has waited for memory before, so that no definition remains of a batch
//! that is refused afterwards. Writes that fit their tables have an empty plan.

use super::entry::{EntryCheck, field_at};
use super::gathered::GroupedBatch;
use super::pressure::wait_for_memory;
use super::refusals::{mixed_types, refuse_inexact};
use crate::common::ids::TableId;
use crate::common::refused::{REFUSED_FIELDS, REFUSED_TABLES, REFUSED_TYPE};
use crate::core::{Core, Turn};
use crate::metadata::catalog::{
    Field, LimitExceeded, PlannedTable, Table, TableLifetime, TableLimits, check_name,
};
use crate::write::widening::{Integers, STREAMS_LOOKED_AT, look};
use crate::{Error, Result};
use headwater_types::invariant::wide;
use headwater_types::{Column, FieldId, FieldType};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The definitions that a batch needs.
pub(super) struct Plan<'a> {
    core: &'a Arc<Core>,
    turn: Option<Turn<'a>>,
    tables: Vec<PlannedTable>,
    streams: HashMap<TableId, NewKeys>,
    /// Results of checks of integers, so that one batch makes each check once.
    looks: HashMap<(TableId, FieldId), Integers>,
    /// The table of the previous entry: entries of one table are mostly adjacent.
    cache: Option<Arc<Table>>,
}

/// New streams of a table in the batch.
#[derive(Default)]
struct NewKeys {
    /// Upper bound of their number.
    noted: u64,
    /// Exact set, where the limit is near.
    exact: Option<HashSet<Box<[u8]>>>,
}

/// Fields that an entry adds to its table, and fields that it widens.
#[derive(Default)]
struct FieldChanges {
    added: Vec<Field>,
    widened: Vec<FieldId>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(core: &'a Arc<Core>) -> Plan<'a> {
        Plan {
            core,
            turn: None,
            tables: Vec::new(),
            streams: HashMap::new(),
            looks: HashMap::new(),
            cache: None,
        }
    }

    /// The planned tables.
    pub(super) fn tables(&self) -> &[PlannedTable] {
        &self.tables
    }

    /// True when the batch has already waited for memory.
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// The planned table of this name.
    pub(super) fn find(&mut self, name: &str) -> Option<Arc<Table>> {
        match self.cache.take().filter(|t| t.name == name) {
            Some(table) => Some(table),
            None => self.look_up(name),
        }
    }

    fn look_up(&self, name: &str) -> Option<Arc<Table>> {
        let planned = self.tables.iter().find(|p| p.table.name == name);
        let planned = planned.map(|p| Arc::clone(&p.table));
        planned.or_else(|| self.core.catalog.table_named(name))
    }

    /// Remembers the table: the next entry is likely of it.
    pub(super) fn remember(&mut self, table: &Arc<Table>) {
        self.cache = Some(Arc::clone(table));
    }

    /// Waits for the turn to define; returns the present table.
    pub(super) fn begin(&mut self, name: &str) -> Result<Option<Arc<Table>>> {
        if self.turn.is_none() {
            wait_for_memory(self.core)?;
            self.turn = Some(self.core.defining.begin(self.core.options.busy_timeout)?);
        }
        Ok(self.look_up(name))
    }

    /// The number of the next new table.
    pub(super) fn next_table(&self) -> TableId {
        let new = self.tables.iter().filter(|p| p.base.is_none()).count();
        let next = self.core.catalog.table_count() + new;
        TableId(u32::try_from(next).unwrap_or(u32::MAX))
    }

    /// True for a table that does not exist yet.
    pub(super) fn makes(&self, table: TableId) -> bool {
        self.tables
            .iter()
            .any(|p| p.base.is_none() && p.table.id == table)
    }

    fn put(&mut self, base: Option<Arc<Table>>, table: Arc<Table>) {
        match self.tables.iter_mut().find(|p| p.table.id == table.id) {
            Some(planned) => planned.table = table,
            None => self.tables.push(PlannedTable { base, table }),
        }
    }

    /// The table, with a note that some of its values may expire.
    pub(super) fn let_expire(&mut self, table: &Arc<Table>) -> Result<Arc<Table>> {
        if table.lifetime.expires {
            return Ok(Arc::clone(table));
        }
        let now = self.begin(&table.name)?.filter(|now| now.id == table.id);
        let now = now.ok_or_else(|| super::dropped_meanwhile(&table.name))?;
        let mut expiring = Table::clone(&now);
        expiring.lifetime.expires = true;
        let expiring = Arc::new(expiring);
        self.put(Some(now), Arc::clone(&expiring));
        self.remember(&expiring);
        Ok(expiring)
    }

    /// Reason why the table cannot have this additional stream, if any.
    pub(super) fn streams_beyond(
        &self,
        table: TableId,
        key: &[u8],
        gathered: &GroupedBatch<'_>,
    ) -> Option<String> {
        let there = self.core.catalog.stream_count(table);
        let most = wide(self.core.options.streams_max);
        let new = self.streams.get(&table);
        if there + new.map_or(0, |new| new.noted) < most {
            return None;
        }
        let counted = match new.and_then(|new| new.exact.as_ref()) {
            Some(keys) if keys.contains(key) => return None,
            Some(keys) => wide(keys.len()),
            None => {
                let keys = gathered.new_keys(table);
                if keys.contains(key) {
                    return None;
                }
                wide(keys.len())
            }
        };
        let count = there + counted + 1;
        (count > most).then(|| {
            format!(
                "the table would have {count} streams, the limit is {most} (setting streams_max)"
            )
        })
    }

    /// Notes a stream that must be defined.
    pub(super) fn note_new_stream(&mut self, table: TableId, key: &[u8]) {
        let new = self.streams.entry(table).or_default();
        new.noted += 1;
        if let Some(keys) = &mut new.exact {
            keys.insert(key.into());
        }
    }

    /// Counts the new streams of a table exactly from now on.
    pub(super) fn count_out(&mut self, table: TableId, gathered: &GroupedBatch<'_>) {
        let there = self.core.catalog.stream_count(table);
        let most = wide(self.core.options.streams_max);
        if let Some(new) = self.streams.get_mut(&table)
            && new.exact.is_none()
            && there + new.noted >= most
        {
            let keys = gathered.new_keys(table);
            new.noted = wide(keys.len());
            new.exact = Some(keys);
        }
    }

    /// Plans the table and the fields that the valid rows of an entry need, as far as limits allow,
    /// and wider types where they change no stored value. Other rows are refused, and nothing is
    /// planned for them.
    pub(super) fn add(
        &mut self,
        gathered: &GroupedBatch<'_>,
        table: Option<Arc<Table>>,
        (name, entry): (&str, usize),
        fields: &[(String, Column)],
        accepting: &mut EntryCheck,
    ) -> Result<Option<Arc<Table>>> {
        check_distinct(name, entry, fields)?;
        let limits = TableLimits::of(&self.core.options);
        let (there, bytes) = self.core.catalog.usage();
        let new = self.tables.iter().filter(|p| p.base.is_none()).count();
        if table.is_none() && there + new >= limits.tables {
            let beyond = LimitExceeded::Tables(limits.tables);
            accepting.refuse_all(REFUSED_TABLES, || format!("table `{name}`: {beyond}"));
            return Ok(None);
        }
        let now = table.clone().unwrap_or_else(|| Arc::new(self.empty(name)));
        let candidates = self.candidates(gathered, &now, fields, accepting)?;
        let mut planned = with(&now, &candidates, fields, accepting);
        let planned_bytes: usize = self.tables.iter().map(PlannedTable::added_bytes).sum();
        let grows = planned.heap_bytes() > now.heap_bytes() || table.is_none();
        let added = match &table {
            None => planned.heap_bytes(),
            Some(now) => planned.heap_bytes().saturating_sub(now.heap_bytes()),
        };
        if grows && bytes + planned_bytes + added > limits.bytes {
            let beyond = LimitExceeded::Bytes(limits.bytes);
            if table.is_none() {
                accepting.refuse_all(REFUSED_TABLES, || format!("table `{name}`: {beyond}"));
                return Ok(None);
            }
            // Rows without new fields are valid nevertheless.
            for (field, column) in fields {
                if candidates.added.iter().any(|f| f.name == *field) {
                    accepting.refuse_present(column, REFUSED_FIELDS, || {
                        format!("field `{field}`: {beyond}")
                    });
                }
            }
            planned = with(&now, &candidates, fields, accepting);
        }
        if !accepting.any_good() {
            return Ok(table);
        }
        if table.as_deref() == Some(&planned) {
            return Ok(table);
        }
        let planned = Arc::new(planned);
        self.put(table, Arc::clone(&planned));
        Ok(Some(planned))
    }

    fn empty(&self, name: &str) -> Table {
        Table {
            id: self.next_table(),
            name: name.to_owned(),
            duplicates: crate::Duplicates::Last,
            leaf_events: self.core.options.leaf_events,
            fields: Vec::new(),
            tags: Vec::new(),
            lifetime: TableLifetime::FOREVER,
        }
    }

    /// Fields that the valid rows would add; refuses rows that cannot have them.
    fn candidates(
        &mut self,
        gathered: &GroupedBatch<'_>,
        table: &Table,
        fields: &[(String, Column)],
        accepting: &mut EntryCheck,
    ) -> Result<FieldChanges> {
        let mut wanted = FieldChanges::default();
        // First the existing fields: a row that conflicts with one adds no field.
        let known = fields
            .iter()
            .enumerate()
            .filter_map(|(at, (name, column))| {
                let id = field_at(table, at, name)?;
                Some((name, column, id, table.field(id)?))
            });
        for (name, column, id, field) in known {
            match (field.field_type, column.field_type()) {
                (expected, found) if expected == found => {}
                (FieldType::F64, FieldType::I64) => refuse_inexact(name, column, accepting),
                (FieldType::I64, FieldType::F64) => {
                    if !accepting.any_good_in(column) {
                        continue;
                    }
                    match self.integers(gathered, table, id)? {
                        Integers::Exact => wanted.widened.push(id),
                        why => accepting
                            .refuse_present(column, REFUSED_TYPE, || stays_i64(table, name, why)),
                    }
                }
                (expected, found) => accepting.refuse_present(column, REFUSED_TYPE, || {
                    mixed_types(table, name, expected, found)
                }),
            }
        }
        let most = self.core.options.fields_max;
        for (at, (name, column)) in fields.iter().enumerate() {
            if field_at(table, at, name).is_some()
                || !accepting.any_good_in(column)
                || check_name("field", name).is_err()
            {
                continue;
            }
            if table.fields.len() + wanted.added.len() < most {
                wanted.added.push(Field {
                    name: name.clone(),
                    field_type: column.field_type(),
                });
                continue;
            }
            accepting.refuse_present(column, REFUSED_FIELDS, || {
                format!("field `{name}`: the table already has {most} fields, the maximum")
            });
        }
        Ok(wanted)
    }

    /// Checks if a field of integers has only values that floats represent: in the database, and in
    /// this batch so far.
    fn integers(
        &mut self,
        gathered: &GroupedBatch<'_>,
        table: &Table,
        field: FieldId,
    ) -> Result<Integers> {
        if let Some(value) = gathered.inexact_in(table.id, field) {
            return Ok(Integers::Inexact(value));
        }
        if let Some(found) = self.looks.get(&(table.id, field)) {
            return Ok(*found);
        }
        let turn = self.turn.as_ref();
        let turn = turn.ok_or_else(|| Error::internal("a field type is widened out of order"))?;
        let found = look(self.core, turn, table, field, STREAMS_LOOKED_AT)?;
        self.looks.insert((table.id, field), found);
        Ok(found)
    }
}

/// The table with the candidates that a valid row still needs.
fn with(
    table: &Table,
    wanted: &FieldChanges,
    fields: &[(String, Column)],
    accepting: &EntryCheck,
) -> Table {
    let needed = |name: &str| {
        let mut of_name = fields.iter().filter(|(n, _)| n == name);
        of_name.any(|(_, column)| accepting.any_good_in(column))
    };
    let mut out = table.clone();
    for id in &wanted.widened {
        if let Some(field) = out.fields.get_mut(id.0 as usize)
            && needed(&field.name)
        {
            field.field_type = FieldType::F64;
        }
    }
    let added = wanted.added.iter().filter(|field| needed(&field.name));
    out.fields.extend(added.cloned());
    out
}

fn check_distinct(name: &str, entry: usize, fields: &[(String, Column)]) -> Result<()> {
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).all(|w| !matches!(w, [a, b] if a == b)) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "entry {entry} ({name}): a field is specified more than once"
        ))),
    }
}

/// The refusal of a row with a float whose field remains an integer field.
fn stays_i64(table: &Table, name: &str, why: Integers) -> String {
    let table = &table.name;
    let holds = match why {
        Integers::Inexact(value) => {
            format!("contains {value}, which f64 cannot represent exactly")
        }
        _ => "may contain integers beyond 2^53, which f64 cannot represent exactly".to_owned(),
    };
    format!(
        "field `{name}` of table `{table}` is i64, found f64, and {holds}: send i64, use another field, or convert it with ALTER TABLE \"{table}\" ALTER COLUMN \"{name}\" TYPE DOUBLE"
    )
}
