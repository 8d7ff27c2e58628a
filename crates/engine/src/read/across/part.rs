//! One of several databases that are read together.
//!
//! Invariants: numbers of parts ascend in the order of the parts and are used once. Concurrency:
//! immutable.

use crate::Result;
use crate::read::single::SingleSnapshot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A database among others.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) name: Arc<str>,
    pub(super) number: u32,
    pub(super) snapshot: SingleSnapshot,
}

/// Key bytes for table 0 of the streams of each table, sorted.
pub(super) type KeysByTable = BTreeMap<String, Vec<Arc<[u8]>>>;

/// The streams of each table of a database.
pub(super) fn keys_of(snapshot: &SingleSnapshot) -> Result<KeysByTable> {
    let mut all = BTreeMap::new();
    for table in snapshot.tables() {
        let keys = snapshot.stream_keys(table)?;
        let keys = keys.into_iter().map(for_table_0);
        all.insert(table.name.clone(), keys.collect());
    }
    Ok(all)
}

fn for_table_0(mut key: Box<[u8]>) -> Arc<[u8]> {
    if let Some(table) = key.first_chunk_mut::<4>() {
        *table = [0; 4];
    }
    key.into()
}

/// The parts, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts(Vec<Arc<Part>>);

impl Parts {
    fn place(&self, number: u32) -> Option<usize> {
        self.0.binary_search_by_key(&number, |p| p.number).ok()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Part> {
        self.0.get(self.place(number)?).map(|part| &**part)
    }

    pub(super) fn shared(&self, number: u32) -> Option<Arc<Part>> {
        self.0.get(self.place(number)?).cloned()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.0.iter().map(|part| &**part)
    }

    /// Puts a part, replacing the part of the same number.
    pub(super) fn put(&mut self, part: Arc<Part>) {
        match self.0.binary_search_by_key(&part.number, |p| p.number) {
            Ok(at) => {
                if let Some(known) = self.0.get_mut(at) {
                    *known = part;
                }
            }
            Err(at) => self.0.insert(at, part),
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.0.retain(|part| part.number != number);
    }
}
