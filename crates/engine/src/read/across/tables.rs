//! A table over all parts that have it: fields by name, all other properties from the first part
//! that has it.
//!
//! A field that has another type in a later part appears twice: under its name with the type of the
//! first part that has it, and as `name@part` for the later one.
//!
//! Invariants: a field of the table is read from a part as one of the part's own fields, which has
//! the same type, or the part has no value of it. Each field of a part appears once. Concurrency:
//! immutable.

use crate::common::ids::TableId;
use crate::metadata::catalog::{Field, Table, TableInfo};
use headwater_types::FieldId;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A table as a part has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartTable {
    /// The name of the part.
    pub(super) part: Arc<str>,
    pub(super) table: Arc<Table>,
    /// Tag keys of its streams, and the declared ones.
    pub(super) tags: Vec<String>,
}

/// Mapping from the fields of a table to those of a part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PartFields {
    /// The same fields in the same order.
    Same,
    /// The part's field for each field of the table.
    Mapped(Vec<Option<FieldId>>),
}

/// A table over all parts.
#[derive(Debug)]
pub(super) struct UnionTable {
    /// The definition as if all data were in one database; its number has no meaning.
    pub(super) table: Arc<Table>,
    /// Tag keys, sorted.
    tags: Vec<String>,
    /// By the number of the part.
    parts: BTreeMap<u32, PartFields>,
    /// Hash of its fields, which distinguishes it from other union tables.
    pub(super) fingerprint: u64,
}

impl UnionTable {
    /// The union of a table over these parts, by number; `None` without any.
    pub(super) fn of(parts: &BTreeMap<u32, PartTable>) -> Option<UnionTable> {
        let first = &parts.values().next()?.table;
        let fields = Fields::of(parts);
        let mut mapped = BTreeMap::new();
        for (number, part) in parts {
            mapped.insert(*number, fields.of_part(*number, part));
        }
        let tags: BTreeSet<&String> = parts.values().flat_map(|p| &p.tags).collect();
        let mut hasher = DefaultHasher::new();
        for field in &fields.list {
            field.name.hash(&mut hasher);
            field.field_type.hash(&mut hasher);
        }
        Some(UnionTable {
            tags: tags.into_iter().cloned().collect(),
            table: Arc::new(Table {
                id: TableId(0),
                fields: fields.list,
                ..(**first).clone()
            }),
            parts: mapped,
            fingerprint: hasher.finish(),
        })
    }

    pub(super) fn fields_of(&self, part: u32) -> Option<&PartFields> {
        self.parts.get(&part)
    }

    pub(super) fn info(&self, streams: u64) -> TableInfo {
        let lifetime = &self.table.lifetime;
        TableInfo {
            name: self.table.name.clone(),
            duplicates: self.table.duplicates,
            leaf_events: self.table.leaf_events,
            tags: self.tags.clone(),
            fields: self.table.fields.clone(),
            streams,
            retention: lifetime.retention,
            raw_for: lifetime.raw_for,
            cut: lifetime.retention_cutoff.instant(),
            aged_to: lifetime.aged_to.instant(),
        }
    }
}

/// The fields of all parts.
struct Fields<'a> {
    list: Vec<Field>,
    /// Positions of the fields that keep their own name.
    plain: HashMap<&'a str, usize>,
    /// Positions of the renamed fields, by part and their name in the part.
    renamed: HashMap<(u32, &'a str), usize>,
}

impl<'a> Fields<'a> {
    fn of(parts: &'a BTreeMap<u32, PartTable>) -> Fields<'a> {
        let mut fields = Fields {
            list: Vec::new(),
            plain: HashMap::new(),
            renamed: HashMap::new(),
        };
        let mut conflicts: Vec<(u32, &PartTable, &Field)> = Vec::new();
        for (number, part) in parts {
            for field in &part.table.fields {
                match fields.plain.get(field.name.as_str()) {
                    None => {
                        fields.plain.insert(&field.name, fields.list.len());
                        fields.list.push(field.clone());
                    }
                    Some(at) => {
                        let known = fields.list.get(*at).map(|f| f.field_type);
                        if known != Some(field.field_type) {
                            conflicts.push((*number, part, field));
                        }
                    }
                }
            }
        }
        let mut taken: BTreeSet<String> = fields.list.iter().map(|f| f.name.clone()).collect();
        for (number, part, field) in conflicts {
            let mut name = format!("{}@{}", field.name, part.part);
            while !taken.insert(name.clone()) {
                name.push('@');
                name.push_str(&part.part);
            }
            fields
                .renamed
                .insert((number, &field.name), fields.list.len());
            let field_type = field.field_type;
            fields.list.push(Field { name, field_type });
        }
        fields
    }

    /// The fields of the table that a part has, with their numbers in the part.
    fn of_part(&self, number: u32, part: &PartTable) -> PartFields {
        if part.table.fields == self.list {
            return PartFields::Same;
        }
        let mut mapped = vec![None; self.list.len()];
        for (own, field) in part.table.fields.iter().enumerate() {
            let renamed = self.renamed.get(&(number, field.name.as_str()));
            let at = renamed.or_else(|| self.plain.get(field.name.as_str()));
            let slot = at.and_then(|at| mapped.get_mut(*at));
            if let (Some(slot), Ok(own)) = (slot, u32::try_from(own)) {
                *slot = Some(FieldId(own));
            }
        }
        PartFields::Mapped(mapped)
    }
}

impl PartFields {
    /// The name of a field of the table in a part; `None` = the part has no values of it.
    pub(super) fn name_in<'a>(
        &self,
        union: &'a UnionTable,
        part: &'a Table,
        field: FieldId,
    ) -> Option<&'a str> {
        let found = match self {
            PartFields::Same => union.table.field(field),
            PartFields::Mapped(fields) => {
                let at = usize::try_from(field.0).ok()?;
                part.field((*fields.get(at)?)?)
            }
        };
        found.map(|f| f.name.as_str())
    }
}
