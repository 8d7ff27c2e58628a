//! The streams of a table over all parts, by name.
//!
//! Sorted pages that are shared until they change: a reader of the index sees it unchanged, and a
//! change costs one page and the list of pages.
//!
//! Invariants: keys are sorted over all pages, no page is empty, each key has at least one part.
//! Concurrency: immutable where it is shared.

use super::owners::ShownParts;
use crate::metadata::catalog::{KeyMatch, TagFilter, Walk};
use headwater_codec::DecodeError;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of entries of a page.
const PAGE_MAX: usize = 512;

/// A stream.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its key bytes, for table 0.
    pub(super) key: Arc<[u8]>,
    /// The parts that have the stream, sorted.
    pub(super) holders: Vec<u32>,
    pub(super) shown: ShownParts,
}

/// The streams of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamIndex {
    pages: Vec<Arc<Vec<Entry>>>,
    /// Number of streams with a shown range.
    shown: u64,
    /// Streams whose shown ranges are not simply all data of a single part.
    pub(super) contested: BTreeSet<Arc<[u8]>>,
}

impl StreamIndex {
    /// Number of streams with a shown range.
    pub(super) fn len(&self) -> u64 {
        self.shown
    }

    /// The page in which a key is or would be.
    fn page_of(&self, key: &[u8]) -> usize {
        let behind = self
            .pages
            .partition_point(|page| page.first().is_some_and(|e| *e.key <= *key));
        behind.saturating_sub(1)
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<&Entry> {
        let page = self.pages.get(self.page_of(key))?;
        let at = page.binary_search_by(|e| (*e.key).cmp(key)).ok()?;
        page.get(at)
    }

    fn count(&mut self, entry: &Entry, is_there: bool) {
        let is_plain = entry.holders.len() == 1 && matches!(entry.shown, ShownParts::All(_));
        match (is_plain, is_there) {
            (false, true) => drop(self.contested.insert(Arc::clone(&entry.key))),
            (false, false) => drop(self.contested.remove(&entry.key)),
            (true, _) => {}
        }
        let shown = u64::from(!entry.shown.is_nothing());
        self.shown = match is_there {
            true => self.shown.saturating_add(shown),
            false => self.shown.saturating_sub(shown),
        };
    }

    /// Inserts a stream, replacing the entry of its key.
    pub(super) fn put(&mut self, entry: Entry) {
        if let Some(before) = self.replaced(entry.clone()) {
            self.count(&before, false);
        }
        self.count(&entry, true);
    }

    /// Inserts a stream and returns the entry that it replaces.
    fn replaced(&mut self, entry: Entry) -> Option<Entry> {
        let at = self.page_of(&entry.key);
        let Some(page) = self.pages.get_mut(at) else {
            self.pages.push(Arc::new(vec![entry]));
            return None;
        };
        let page = Arc::make_mut(page);
        match page.binary_search_by(|e| e.key.cmp(&entry.key)) {
            Ok(place) => Some(std::mem::replace(page.get_mut(place)?, entry)),
            Err(place) => {
                page.insert(place, entry);
                if page.len() > PAGE_MAX {
                    let behind = page.split_off(PAGE_MAX / 2);
                    self.pages.insert(at + 1, Arc::new(behind));
                }
                None
            }
        }
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, key: &[u8]) {
        let at = self.page_of(key);
        let Some(page) = self.pages.get_mut(at) else {
            return;
        };
        let Ok(place) = page.binary_search_by(|e| (*e.key).cmp(key)) else {
            return;
        };
        let page = Arc::make_mut(page);
        let gone = page.remove(place);
        if page.is_empty() {
            self.pages.remove(at);
        }
        self.count(&gone, false);
    }

    /// All streams, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// Streams whose keys are not below `key`, by name.
    fn starting_at(&self, key: &[u8]) -> impl Iterator<Item = &Entry> {
        let at = self.page_of(key);
        let pages = self.pages.iter().skip(at);
        let first = pages
            .clone()
            .next()
            .map_or(0, |page| page.partition_point(|entry| *entry.key < *key));
        pages.flat_map(|page| page.iter()).skip(first)
    }

    /// Visits the shown streams after `after` that pass the filter, until `each` returns false.
    pub(super) fn walk(
        &self,
        after: &[u8],
        having: &TagFilter,
        each: &mut dyn FnMut(&Entry) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut from: Option<Vec<u8>> = Some(after.to_vec());
        while let Some(key) = from.take() {
            for entry in self.starting_at(&key) {
                if *entry.key <= *after || entry.shown.is_nothing() {
                    continue;
                }
                match having.look(&entry.key)? {
                    KeyMatch::Match if !each(entry)? => return Ok(()),
                    KeyMatch::Match | KeyMatch::Not(Walk::Next) => {}
                    KeyMatch::Not(Walk::End) => return Ok(()),
                    KeyMatch::Not(Walk::From(next)) => {
                        from = Some(next);
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::common::ids::TableId;
    use crate::metadata::catalog::stream_key;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(id: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let tags = [("id".to_owned(), id.to_string())];
        stream_key(TableId(0), &tags, &mut out);
        out
    }

    fn shown(kind: u8) -> ShownParts {
        match kind {
            0 => ShownParts::Ranges(Vec::new().into()),
            _ => ShownParts::All(1),
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_sorted_map_holds(
            steps in prop::collection::vec((0u16..2_000, 0u8..4, 1usize..3), 0..3_000),
            after in 0u16..2_000,
        ) {
            let mut index = StreamIndex::default();
            let mut model: BTreeMap<Vec<u8>, (Vec<u32>, ShownParts)> = BTreeMap::new();
            for (id, kind, holders) in steps {
                let key = key(id);
                if kind == 3 {
                    index.remove(&key);
                    model.remove(&key);
                    continue;
                }
                let holders: Vec<u32> = (1..).take(holders).collect();
                model.insert(key.clone(), (holders.clone(), shown(kind)));
                index.put(Entry { key: key.into(), holders, shown: shown(kind) });
            }
            let visible = model.iter().filter(|(_, (_, s))| !s.is_nothing());
            prop_assert_eq!(index.len(), visible.clone().count() as u64);
            let contested = model.iter().filter(|(_, (h, s))| h.len() > 1 || s.is_nothing());
            let found: Vec<&[u8]> = index.contested.iter().map(|k| &**k).collect();
            prop_assert_eq!(found, contested.map(|(k, _)| k.as_slice()).collect::<Vec<_>>());
            let all: Vec<&[u8]> = index.iter().map(|e| &*e.key).collect();
            prop_assert_eq!(all, model.keys().map(Vec::as_slice).collect::<Vec<_>>());
            let after = key(after);
            let mut walked = Vec::new();
            let having = TagFilter::default();
            index.walk(&after, &having, &mut |e| { walked.push(e.key.to_vec()); Ok(true) }).unwrap();
            let behind = visible.filter(|(k, _)| **k > after).map(|(k, _)| k.clone());
            prop_assert_eq!(walked, behind.collect::<Vec<_>>());
            for key in model.keys() {
                prop_assert!(index.find(key).is_some_and(|e| *e.key == **key));
            }
        }
    }
}
