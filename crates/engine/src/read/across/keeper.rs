//! Parts and the catalog over them, updated from one snapshot to the next.
//!
//! Invariants: the catalog agrees with the snapshots of the retained parts, and with the tags that
//! are added to their streams. Numbers of parts ascend
//! with rank and name, whatever the order in which parts were put; they leave gaps, so that a part
//! between two others seldom changes the numbers of others. Of one open database the newest
//! snapshot that was put counts. A name is that of a part, or of an unreadable part, not of both.
//! Numbers of definitions are used once in a process, and are above the numbers of all databases.
//! Concurrency: everything that must be read of a part is read before the part is put; one thread
//! at a time changes a keeper. Failure: a part that cannot be read through changes nothing.

use super::AcrossSnapshot;
use super::catalog::{CatalogAcross, Ownership};
use super::owners::Owners;
use super::part::{DatabasePart, DatabaseParts, KeysByTable, keys_of};
use super::tables::PartTable;
use super::unreadable::UnreadableParts;
use crate::read::added_tags::AddedTags;
use crate::read::single::SingleSnapshot;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Start of the numbers of definitions here: a database counts its own from 0, and never reaches
/// this number.
static NUMBERS: AtomicU64 = AtomicU64::new(1 << 48);

/// Distance of the numbers of neighbouring parts.
const STEP: u32 = 1 << 12;

pub(super) fn new_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// A new state of a part.
#[derive(Debug)]
pub(crate) struct Change {
    name: Arc<str>,
    rank: u64,
    snapshot: SingleSnapshot,
    tags: AddedTags,
    /// Its streams; `None` = the streams of the part that it was compared with.
    keys: Option<KeysByTable>,
}

impl Change {
    /// A change whose database has not been read through yet.
    pub(crate) fn unseen(
        name: Arc<str>,
        rank: u64,
        snapshot: SingleSnapshot,
        tags: AddedTags,
    ) -> Change {
        let keys = None;
        Change {
            name,
            rank,
            snapshot,
            tags,
            keys,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads through the database that is to replace `before`, if its definitions may differ.
    pub(crate) fn look(&mut self, before: Option<&DatabasePart>) -> Result<()> {
        let is_known = before.is_some_and(|b| has_streams_of((&self.snapshot, &self.tags), b));
        if !is_known && self.keys.is_none() {
            self.keys = Some(keys_of(&self.snapshot, &self.tags)?);
        }
        Ok(())
    }
}

/// True when both snapshots are of one open database, with no definition made between them.
fn has_definitions_of(a: &SingleSnapshot, b: &SingleSnapshot) -> bool {
    a.is_of_core(b.core()) && a.definitions().is_some() && a.definitions() == b.definitions()
}

/// True when a snapshot with these tags has the same streams, under the same shown names, as a
/// part.
fn has_streams_of((snapshot, tags): (&SingleSnapshot, &AddedTags), part: &DatabasePart) -> bool {
    *tags == part.tags && has_definitions_of(snapshot, &part.snapshot)
}

/// Parts, and the catalog over them.
#[derive(Debug)]
pub(crate) struct Keeper {
    parts: Arc<DatabaseParts>,
    numbers: HashMap<Arc<str>, u32>,
    /// The streams of each part, by number.
    keys: BTreeMap<u32, KeysByTable>,
    /// Numbers by rank and name.
    order: BTreeMap<(u64, Arc<str>), u32>,
    unreadable: Arc<UnreadableParts>,
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
            order: BTreeMap::new(),
            unreadable: Arc::default(),
            catalog: Arc::default(),
            definitions: new_number(),
            owners: None,
            owners_changed: false,
        }
    }
}

impl Keeper {
    /// The part of a name, if the keeper has it.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<DatabasePart>> {
        self.parts.shared(*self.numbers.get(name)?)
    }

    /// Puts a part, replacing the part of the same name. Returns the change when the part that it
    /// was compared with is no longer current: the database must be read through again.
    pub(crate) fn put(&mut self, change: Change) -> Result<Option<Change>> {
        let before = self.find(&change.name);
        if let Some(before) = before.as_deref() {
            let newer = &change.snapshot;
            if newer.is_of_core(before.snapshot.core())
                && newer.sequence() < before.snapshot.sequence()
            {
                return Ok(None);
            }
        }
        let is_compared = |b: &DatabasePart| has_streams_of((&change.snapshot, &change.tags), b);
        if change.keys.is_none() && !before.as_deref().is_some_and(is_compared) {
            return Ok(Some(change));
        }
        let mut keys = change.keys;
        if let Some(number) = self.numbers.get(&change.name).copied()
            && self.order.get(&(change.rank, Arc::clone(&change.name))) != Some(&number)
        {
            // The part has another rank than before: it leaves, and enters at its new position.
            keys = keys.or_else(|| self.keys.get(&number).cloned());
            self.remove(&change.name)?;
        }
        let number = self.number(&change.name, change.rank)?;
        let part = Arc::new(DatabasePart {
            name: change.name,
            snapshot: change.snapshot,
            tags: change.tags,
        });
        self.put_tables(number, &part)?;
        if let Some(keys) = keys {
            self.put_keys(number, keys)?;
        }
        self.make_readable(&part.name);
        Arc::make_mut(&mut self.parts).put(number, part);
        Ok(None)
    }

    /// The number of a part: between the numbers of the parts before and after it by rank and name.
    fn number(&mut self, name: &Arc<str>, rank: u64) -> Result<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let place = (rank, Arc::clone(name));
        let number = match self.free_number(&place) {
            Some(number) => number,
            None => {
                self.renumber()?;
                let free = self.free_number(&place);
                free.ok_or_else(|| Error::internal("more parts than there are numbers for"))?
            }
        };
        self.order.insert(place, number);
        self.numbers.insert(Arc::clone(name), number);
        self.definitions = new_number();
        // The rules may assign streams of other parts to the new part.
        self.owners_changed |= self.owners.is_some();
        Ok(number)
    }

    /// A number that no part has, for a part at this place; `None` where there is none left.
    fn free_number(&self, place: &(u64, Arc<str>)) -> Option<u32> {
        let before = self.order.range(..place).next_back();
        let before = before.map_or(0, |(_, number)| *number);
        match self.order.range(place..).next() {
            None => before.checked_add(STEP),
            Some((_, after)) => {
                let half = after.saturating_sub(before) / 2;
                (half > 0).then_some(before.saturating_add(half))
            }
        }
    }

    /// Gives all parts numbers with gaps between them.
    fn renumber(&mut self) -> Result<()> {
        let mut new = BTreeMap::new();
        let mut next: u32 = 0;
        for number in self.order.values_mut() {
            let free = next.checked_add(STEP);
            next = free.ok_or_else(|| Error::internal("more parts than there are numbers for"))?;
            new.insert(*number, next);
            *number = next;
        }
        let renumbered = |number: u32| new.get(&number).copied().unwrap_or(number);
        let numbers = self.numbers.values_mut();
        numbers.for_each(|number| *number = renumbered(*number));
        let keys = std::mem::take(&mut self.keys).into_iter();
        self.keys = keys.map(|(n, keys)| (renumbered(n), keys)).collect();
        Arc::make_mut(&mut self.parts).renumber(&new);
        let whose = Ownership {
            owners: self.owners.as_ref(),
            numbers: &self.numbers,
            names: &self.names(),
            unreadable: &self.unreadable,
        };
        Arc::make_mut(&mut self.catalog).renumber(&new, &whose)?;
        self.definitions = new_number();
        Ok(())
    }

    /// Records that a part which is known cannot be read, and why. A part of this name leaves.
    pub(crate) fn set_unreadable(&mut self, name: &str, reason: &str) -> Result<()> {
        self.remove(name)?;
        Arc::make_mut(&mut self.unreadable).insert(name, reason);
        self.definitions = new_number();
        self.owners_changed |= self.owners.is_some();
        Ok(())
    }

    fn make_readable(&mut self, name: &str) {
        if self.unreadable.has(name) {
            Arc::make_mut(&mut self.unreadable).remove(name);
            self.definitions = new_number();
            self.owners_changed |= self.owners.is_some();
        }
    }

    /// Records the current tables of a part; tables that the part no longer has stay until their
    /// streams are removed.
    fn put_tables(&mut self, number: u32, part: &DatabasePart) -> Result<()> {
        for table in part.snapshot.tables() {
            let known = self.catalog.part_table(&table.name, number);
            if known.is_some_and(|k| Arc::ptr_eq(&k.table, table)) {
                // Tags are definitions too: they are compared together with the streams.
                let before = self.parts.get(number);
                if before.is_some_and(|b| has_streams_of((&part.snapshot, &part.tags), b)) {
                    continue;
                }
            }
            let new = PartTable {
                part: Arc::clone(&part.name),
                table: Arc::clone(table),
                tags: part
                    .tags
                    .shown_keys(part.snapshot.table_info(&table.name)?.tags),
            };
            if known != Some(&new) {
                Arc::make_mut(&mut self.catalog).put_table(number, new);
                self.definitions = new_number();
            }
        }
        Ok(())
    }

    /// Records the current streams of a part, whose tables are recorded already.
    fn put_keys(&mut self, number: u32, keys: KeysByTable) -> Result<()> {
        let before = self.keys.remove(&number).unwrap_or_default();
        let none = Vec::new();
        let names = self.names();
        let tables: BTreeSet<&String> = before.keys().chain(keys.keys()).collect();
        for table in tables {
            let old = before.get(table).unwrap_or(&none);
            let new = keys.get(table).unwrap_or(&none);
            if old != new {
                let whose = Ownership {
                    owners: self.owners.as_ref(),
                    numbers: &self.numbers,
                    names: &names,
                    unreadable: &self.unreadable,
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
        self.make_readable(name);
        let Some(number) = self.numbers.get(name).copied() else {
            return Ok(());
        };
        self.put_keys(number, KeysByTable::new())?;
        self.keys.remove(&number);
        self.numbers.remove(name);
        self.order.retain(|_, known| *known != number);
        Arc::make_mut(&mut self.parts).remove(number);
        self.definitions = new_number();
        self.owners_changed |= self.owners.is_some();
        Ok(())
    }

    /// Names of the parts by number, if there are rules of ownership.
    fn names(&self) -> BTreeMap<u32, Arc<str>> {
        let known = self.order.iter().filter(|_| self.owners.is_some());
        known
            .map(|((_, name), number)| (*number, Arc::clone(name)))
            .collect()
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
                names: &self.names(),
                unreadable: &self.unreadable,
            };
            Arc::make_mut(&mut self.catalog).recompute_owners(&whose)?;
            self.definitions = new_number();
            self.owners_changed = false;
        }
        let mut parts = self.parts.iter();
        let are_known = parts.all(|part| part.snapshot.definitions().is_some());
        Ok(AcrossSnapshot {
            parts: Arc::clone(&self.parts),
            catalog: Arc::clone(&self.catalog),
            unreadable: Arc::clone(&self.unreadable),
            overlaps: Arc::default(),
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
