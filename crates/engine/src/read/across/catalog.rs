//! Tables and streams over all parts.
//!
//! Changes of a part update the catalog in place of a rebuild; snapshots taken before share
//! everything that does not change.
//!
//! Invariants: a table exists as long as a part has it. Its streams are the streams of all parts,
//! each with the parts that have it and the ranges that are shown of it. Concurrency: immutable
//! where it is shared.

use super::index::{Entry, StreamIndex};
use super::owners::{Owners, ShownParts};
use super::tables::{PartTable, UnionTable};
use super::unreadable::UnreadableParts;
use crate::metadata::catalog::decode_stream_key;
use crate::{Error, Result};
use headwater_codec::DecodeError;
use headwater_types::StreamName;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Ownership rules and parts, for a catalog that is being changed.
pub(super) struct Ownership<'a> {
    pub(super) owners: Option<&'a Owners>,
    /// Numbers of the present parts, by name.
    pub(super) numbers: &'a HashMap<Arc<str>, u32>,
    /// Names of the present parts, by number; empty without owners.
    pub(super) names: &'a BTreeMap<u32, Arc<str>>,
    pub(super) unreadable: &'a UnreadableParts,
}

impl Ownership<'_> {
    fn shown(&self, table: &str, key: &[u8], holders: &[u32]) -> Result<ShownParts> {
        let owned = match self.owners {
            Some(owners) => {
                let known = holders.iter().filter_map(|number| self.names.get(number));
                let known = known.chain(self.unreadable.names()).cloned();
                owners.of(&name_of(table, key)?, &known.collect::<Vec<_>>())
            }
            None => Vec::new(),
        };
        let number_of = |name: &str| self.numbers.get(name).copied();
        Ok(ShownParts::of(&owned, holders, &number_of))
    }
}

/// A table over all parts.
#[derive(Clone, Debug, Default)]
pub(super) struct TableAcross {
    pub(super) streams: StreamIndex,
    /// By the number of the part.
    parts: BTreeMap<u32, PartTable>,
    /// Built from `parts` on first use.
    union: Arc<OnceLock<Option<Arc<UnionTable>>>>,
}

impl TableAcross {
    pub(super) fn union(&self) -> Result<&Arc<UnionTable>> {
        let made = self
            .union
            .get_or_init(|| UnionTable::of(&self.parts).map(Arc::new));
        let made = made.as_ref();
        made.ok_or_else(|| Error::internal("a table that no part has"))
    }

    /// The parts that have the table, by number.
    pub(super) fn parts(&self) -> impl Iterator<Item = u32> {
        self.parts.keys().copied()
    }
}

/// Tables and streams over all parts.
#[derive(Clone, Debug, Default)]
pub(super) struct CatalogAcross {
    tables: BTreeMap<String, Arc<TableAcross>>,
}

impl CatalogAcross {
    pub(super) fn table(&self, name: &str) -> Result<&TableAcross> {
        let found = self.tables.get(name).map(|table| &**table);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.tables.keys().map(String::as_str).take(10).collect();
            Error::not_found(format!(
                "no table `{name}`; there are: {}",
                known.join(", ")
            ))
        })
    }

    pub(super) fn table_names(&self) -> impl Iterator<Item = &String> {
        self.tables.keys()
    }

    /// The table as one part has it.
    pub(super) fn part_table(&self, table: &str, part: u32) -> Option<&PartTable> {
        self.tables.get(table)?.parts.get(&part)
    }

    fn table_mut(&mut self, name: &str) -> &mut TableAcross {
        let table = self.tables.entry(name.to_owned()).or_default();
        Arc::make_mut(table)
    }

    /// Records the current table of a part.
    pub(super) fn put_table(&mut self, part: u32, table: PartTable) {
        let name = table.table.name.clone();
        let known = self.table_mut(&name);
        known.parts.insert(part, table);
        known.union = Arc::default();
    }

    /// Removes the table of a part. All of its streams were removed from the part before.
    pub(super) fn remove_table(&mut self, part: u32, name: &str) {
        let known = self.table_mut(name);
        known.parts.remove(&part);
        known.union = Arc::default();
        if known.parts.is_empty() {
            self.tables.remove(name);
        }
    }

    /// Records that a part has a stream, or no longer has it.
    pub(super) fn put_stream(
        &mut self,
        (part, is_there): (u32, bool),
        table: &str,
        key: &Arc<[u8]>,
        whose: &Ownership<'_>,
    ) -> Result<()> {
        let streams = &mut self.table_mut(table).streams;
        let known = streams.find(key);
        let mut holders = known.map_or_else(Vec::new, |entry| entry.holders.clone());
        match (holders.binary_search(&part), is_there) {
            (Err(at), true) => holders.insert(at, part),
            (Ok(at), false) => drop(holders.remove(at)),
            _ => {}
        }
        if holders.is_empty() {
            streams.remove(key);
            return Ok(());
        }
        let shown = whose.shown(table, key, &holders)?;
        streams.put(Entry {
            key: Arc::clone(key),
            holders,
            shown,
        });
        Ok(())
    }

    /// Gives the parts other numbers, in the same order.
    pub(super) fn renumber(
        &mut self,
        new: &BTreeMap<u32, u32>,
        whose: &Ownership<'_>,
    ) -> Result<()> {
        let renumbered = |number: u32| new.get(&number).copied().unwrap_or(number);
        let names: Vec<String> = self.tables.keys().cloned().collect();
        for name in names {
            let table = self.table_mut(&name);
            let parts = std::mem::take(&mut table.parts).into_iter();
            table.parts = parts.map(|(n, part)| (renumbered(n), part)).collect();
            table.union = Arc::default();
            let mut streams = StreamIndex::default();
            for entry in table.streams.iter() {
                let holders: Vec<u32> = entry.holders.iter().map(|n| renumbered(*n)).collect();
                streams.put(Entry {
                    key: Arc::clone(&entry.key),
                    shown: whose.shown(&name, &entry.key, &holders)?,
                    holders,
                });
            }
            table.streams = streams;
        }
        Ok(())
    }

    /// Recomputes with the current rules which part owns each stream.
    pub(super) fn recompute_owners(&mut self, whose: &Ownership<'_>) -> Result<()> {
        let names: Vec<String> = self.tables.keys().cloned().collect();
        for name in names {
            let streams = &mut self.table_mut(&name).streams;
            let mut changed = Vec::new();
            for entry in streams.iter() {
                let shown = whose.shown(&name, &entry.key, &entry.holders)?;
                if shown != entry.shown {
                    let entry = entry.clone();
                    changed.push(Entry { shown, ..entry });
                }
            }
            for entry in changed {
                streams.put(entry);
            }
        }
        Ok(())
    }
}

/// The stream of a table with these key bytes.
pub(super) fn name_of(table: &str, key: &[u8]) -> Result<StreamName> {
    decode_stream_key(table, key).map_err(|e| unreadable(&e))
}

/// The error for unreadable key bytes; they were checked when they were inserted.
pub(super) fn unreadable(error: &DecodeError) -> Error {
    Error::internal(format!("key bytes of a stream: {error}"))
}
