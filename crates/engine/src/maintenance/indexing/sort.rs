//! Entries of a run in memory, to be sorted.
//!
//! Invariants: entries are written in the order of key and row.

use crate::Result;
use crate::storage::index::RunWriter;
use headwater_types::invariant::wide;

/// An entry: the location of its key, and its row. The first bytes of the key decide most
/// comparisons.
#[derive(Clone, Copy)]
struct Entry {
    first: u64,
    start: usize,
    len: usize,
    row: u32,
}

/// Entries of a run.
#[derive(Default)]
pub(super) struct Sorter {
    keys: Vec<u8>,
    entries: Vec<Entry>,
}

impl Sorter {
    pub(super) fn push(&mut self, key: &[u8], row: u32) {
        let mut first = [0; 8];
        for (to, from) in first.iter_mut().zip(key) {
            *to = *from;
        }
        self.entries.push(Entry {
            first: u64::from_be_bytes(first),
            start: self.keys.len(),
            len: key.len(),
            row,
        });
        self.keys.extend_from_slice(key);
    }

    /// Approximate memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        wide(self.keys.len() + self.entries.len() * size_of::<Entry>())
    }

    /// Writes all entries to a run.
    pub(super) fn write(mut self, run: &mut RunWriter) -> Result<()> {
        let keys = &self.keys;
        let key = |e: &Entry| keys.get(e.start..e.start + e.len);
        self.entries.sort_unstable_by(|a, b| {
            let first = a.first.cmp(&b.first);
            first
                .then_with(|| key(a).cmp(&key(b)))
                .then(a.row.cmp(&b.row))
        });
        for entry in &self.entries {
            let key = headwater_types::invariant::part_of(
                keys,
                entry.start..entry.start + entry.len,
                "a key",
            );
            run.push(key, entry.row)?;
        }
        Ok(())
    }
}
