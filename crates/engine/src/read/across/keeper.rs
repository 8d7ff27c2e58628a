//! Parts and the catalog over them, updated from one snapshot to the next.
//!
//! Invariants: the catalog agrees with the snapshots of the retained parts. Of one open database
//! the newest snapshot that was put counts. Numbers of definitions are used once in a process, and
//! are above the numbers of all databases. Concurrency: everything that must be read of a part is
//! read before the part is put; one thread at a time changes a keeper. Failure: a part that cannot
//! be read through changes nothing.

use super::AcrossSnapshot;
use super::catalog::{CatalogAcross, Ownership};
use super::owners::Owners;
use super::part::{KeysByTable, Part, Parts, keys_of};
use super::tables::PartTable;
use crate::Result;
use crate::read::single::SingleSnapshot;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Start of the numbers of definitions here: a database counts its own from 0, and never reaches
/// this number.
static NUMBERS: AtomicU64 = AtomicU64::new(1 << 48);

fn new_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// A new state of a part.
#[derive(Debug)]
pub(crate) struct Change {
    name: Arc<str>,
    snapshot: SingleSnapshot,
    /// Its streams; `None` = the streams of the part that it was compared with.
    keys: Option<KeysByTable>,
}

impl Change {
    /// A change whose database has not been read through yet.
    pub(crate) fn unseen(name: Arc<str>, snapshot: SingleSnapshot) -> Change {
        let keys = None;
        Change {
            name,
            snapshot,
            keys,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads through the database that is to replace `before`, if its definitions may differ.
    pub(crate) fn look(&mut self, before: Option<&Part>) -> Result<()> {
        let is_known = before.is_some_and(|b| has_definitions_of(&self.snapshot, &b.snapshot));
        if !is_known && self.keys.is_none() {
            self.keys = Some(keys_of(&self.snapshot)?);
        }
        Ok(())
    }
}

/// True when both snapshots are of one open database, with no definition made between them.
fn has_definitions_of(a: &SingleSnapshot, b: &SingleSnapshot) -> bool {
    a.is_of_core(b.core()) && a.definitions().is_some() && a.definitions() == b.definitions()
}

/// Parts, and the catalog over them.
#[derive(Debug)]
pub(crate) struct Keeper {
    parts: Arc<Parts>,
    numbers: HashMap<Arc<str>, u32>,
    /// The streams of each part, by number.
    keys: BTreeMap<u32, KeysByTable>,
    next: u32,
    catalog: Arc<CatalogAcross>,
    definitions: u64,
    owners: Option<Owners>,
    /// True when the owner of each stream must be recomputed.
    owners_changed: bool,
}

impl Default for Keeper {
    fn default() -> Keeper {
        Keeper {
            parts: Arc::default(),
            numbers: HashMap::new(),
            keys: BTreeMap::new(),
            next: 0,
            catalog: Arc::default(),
            definitions: new_number(),
            owners: None,
            owners_changed: false,
        }
    }
}

impl Keeper {
    /// The part of a name, if the keeper has it.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Part>> {
        self.parts.shared(*self.numbers.get(name)?)
    }

    /// Puts a part, replacing the part of the same name. Returns the change when the part that it
    /// was compared with is no longer current: the database must be read through again.
    pub(crate) fn put(&mut self, change: Change) -> Result<Option<Change>> {
        let before = self.known(&change.name);
        if let Some(before) = before.as_deref() {
            let newer = &change.snapshot;
            if newer.is_of_core(before.snapshot.core())
                && newer.sequence() < before.snapshot.sequence()
            {
                return Ok(None);
            }
        }
        let is_compared = |b: &Part| has_definitions_of(&change.snapshot, &b.snapshot);
        if change.keys.is_none() && !before.as_deref().is_some_and(is_compared) {
            return Ok(Some(change));
        }
        let number = self.number(&change.name);
        let part = Arc::new(Part {
            name: change.name,
            number,
            snapshot: change.snapshot,
        });
        self.put_tables(&part)?;
        if let Some(keys) = change.keys {
            self.put_keys(number, keys)?;
        }
        Arc::make_mut(&mut self.parts).put(part);
        Ok(None)
    }

    /// The number of a part; a new part gets a number after all existing ones.
    fn number(&mut self, name: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.next;
        self.next = self.next.saturating_add(1);
        self.numbers.insert(Arc::clone(name), number);
        self.definitions = new_number();
        // The rules may assign streams of other parts to the new part.
        self.owners_changed |= self.owners.is_some();
        number
    }

    /// Records the current tables of a part; tables that the part no longer has stay until their
    /// streams are removed.
    fn put_tables(&mut self, part: &Part) -> Result<()> {
        for table in part.snapshot.tables() {
            let known = self.catalog.part_table(&table.name, part.number);
            if known.is_some_and(|k| Arc::ptr_eq(&k.table, table)) {
                // Tags are definitions too: they are compared together with the streams.
                let before = self.parts.get(part.number);
                if before.is_some_and(|b| has_definitions_of(&part.snapshot, &b.snapshot)) {
                    continue;
                }
            }
            let new = PartTable {
                part: Arc::clone(&part.name),
                table: Arc::clone(table),
                tags: part.snapshot.table_info(&table.name)?.tags,
            };
            if known != Some(&new) {
                Arc::make_mut(&mut self.catalog).put_table(part.number, new);
                self.definitions = new_number();
            }
        }
        Ok(())
    }

    /// Records the current streams of a part, whose tables are recorded already.
    fn put_keys(&mut self, number: u32, keys: KeysByTable) -> Result<()> {
        let before = self.keys.remove(&number).unwrap_or_default();
        let none = Vec::new();
        let tables: BTreeSet<&String> = before.keys().chain(keys.keys()).collect();
        for table in tables {
            let old = before.get(table).unwrap_or(&none);
            let new = keys.get(table).unwrap_or(&none);
            if old != new {
                let whose = Ownership {
                    owners: self.owners.as_ref(),
                    numbers: &self.numbers,
                };
                let catalog = Arc::make_mut(&mut self.catalog);
                for (key, is_there) in differences(old, new) {
                    catalog.put_stream((number, is_there), table, key, &whose)?;
                }
                self.definitions = new_number();
            }
            if !keys.contains_key(table) {
                Arc::make_mut(&mut self.catalog).remove_table(number, table);
                self.definitions = new_number();
            }
        }
        self.keys.insert(number, keys);
        Ok(())
    }

    /// Removes a part.
    pub(crate) fn remove(&mut self, name: &str) -> Result<()> {
        let Some(number) = self.numbers.get(name).copied() else {
            return Ok(());
        };
        self.put_keys(number, KeysByTable::new())?;
        self.keys.remove(&number);
        self.numbers.remove(name);
        Arc::make_mut(&mut self.parts).remove(number);
        self.definitions = new_number();
        self.owners_changed |= self.owners.is_some();
        Ok(())
    }

    /// Sets the rules of ownership.
    pub(crate) fn set_owners(&mut self, owners: Option<Owners>) {
        self.owners = owners;
        self.owners_changed = true;
    }

    /// A snapshot of all parts, each as it was last put.
    pub(crate) fn snapshot(&mut self) -> Result<AcrossSnapshot> {
        if self.owners_changed {
            let whose = Ownership {
                owners: self.owners.as_ref(),
                numbers: &self.numbers,
            };
            Arc::make_mut(&mut self.catalog).ask_owners(&whose)?;
            self.definitions = new_number();
            self.owners_changed = false;
        }
        let mut parts = self.parts.iter();
        let are_known = parts.all(|part| part.snapshot.definitions().is_some());
        Ok(AcrossSnapshot {
            parts: Arc::clone(&self.parts),
            catalog: Arc::clone(&self.catalog),
            number: new_number(),
            definitions: are_known.then_some(self.definitions),
        })
    }
}

/// Keys that are in only one of two sorted lists; true for keys of the second list.
fn differences<'a>(
    old: &'a [Arc<[u8]>],
    new: &'a [Arc<[u8]>],
) -> impl Iterator<Item = (&'a Arc<[u8]>, bool)> {
    let gone = old.iter().filter(|k| new.binary_search(k).is_err());
    let added = new.iter().filter(|k| old.binary_search(k).is_err());
    gone.map(|k| (k, false)).chain(added.map(|k| (k, true)))
}
