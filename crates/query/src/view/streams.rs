//! Streams with their tags as columns: all of a table, or a page of them.
//!
//! Invariants: every name in memory is counted ([`LoadedNames`]). Concurrency: immutable, except
//! for lazy look-ups.

use crate::error::{Error, Result};
use arrow::array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow::datatypes::Int32Type;
use headwater::{Snapshot, StreamHandle, StreamName};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Counter of the names of streams in memory for statements.
#[derive(Debug, Default)]
pub(crate) struct LoadedNames {
    current: AtomicUsize,
    most: AtomicUsize,
}

impl LoadedNames {
    fn add(self: &Arc<LoadedNames>, count: usize) -> NamesPermit {
        let now = self.current.fetch_add(count, Ordering::Relaxed) + count;
        self.most.fetch_max(now, Ordering::Relaxed);
        NamesPermit {
            all: Arc::clone(self),
            count,
        }
    }

    /// The current number, and the maximum so far.
    pub(crate) fn counted(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.current), of(&self.most))
    }
}

/// Counts names until it is dropped.
#[derive(Debug)]
struct NamesPermit {
    all: Arc<LoadedNames>,
    count: usize,
}

impl Drop for NamesPermit {
    fn drop(&mut self) {
        self.all.current.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// A stream's name, or the resolved stream.
#[derive(Debug)]
enum Entry {
    Named(StreamName, OnceLock<StreamHandle>),
    Resolved(StreamHandle),
}

impl Entry {
    fn name(&self) -> &StreamName {
        match self {
            Entry::Named(name, _) => name,
            Entry::Resolved(handle) => handle.name(),
        }
    }
}

/// Streams with their tags as columns.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Tag keys, sorted.
    keys: Arc<[String]>,
    entries: Vec<Entry>,
    /// Per key its value in each stream, computed at the first use.
    tags: OnceLock<Vec<DictionaryArray<Int32Type>>>,
    _permit: NamesPermit,
}

impl Streams {
    fn of(keys: Arc<[String]>, entries: Vec<Entry>, loaded: &Arc<LoadedNames>) -> Streams {
        Streams {
            _permit: loaded.add(entries.len()),
            keys,
            entries,
            tags: OnceLock::new(),
        }
    }

    /// Streams sorted by their tags' columns, absent tags last.
    pub(super) fn sorted(
        mut names: Vec<StreamName>,
        keys: Arc<[String]>,
        loaded: &Arc<LoadedNames>,
    ) -> Streams {
        fn value<'a>(name: &'a StreamName, key: &str) -> (bool, &'a str) {
            let found = name.tag(key);
            (found.is_none(), found.unwrap_or_default())
        }
        names.sort_by(|a, b| {
            let values = keys.iter().map(|key| value(a, key).cmp(&value(b, key)));
            values.fold(std::cmp::Ordering::Equal, |all, one| all.then(one))
        });
        let entries = names
            .into_iter()
            .map(|name| Entry::Named(name, OnceLock::new()));
        Streams::of(keys, entries.collect(), loaded)
    }

    /// Streams in the given order.
    pub(super) fn of_handles(
        handles: Vec<StreamHandle>,
        keys: Arc<[String]>,
        loaded: &Arc<LoadedNames>,
    ) -> Streams {
        Streams::of(
            keys,
            handles.into_iter().map(Entry::Resolved).collect(),
            loaded,
        )
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn name(&self, stream: u32) -> Option<&StreamName> {
        self.entries.get(stream as usize).map(Entry::name)
    }

    /// The stream, ready to be read; `None` when it is no longer in the snapshot.
    pub(crate) fn handle(&self, stream: u32, snapshot: &Snapshot) -> Result<Option<&StreamHandle>> {
        let (name, slot) = match self.entries.get(stream as usize) {
            Some(Entry::Resolved(handle)) => return Ok(Some(handle)),
            Some(Entry::Named(name, slot)) => (name, slot),
            None => return Err(Error::internal("a stream that its table does not have")),
        };
        if slot.get().is_none() {
            match snapshot.handle(name) {
                Ok(handle) => drop(slot.set(handle)),
                Err(error) if error.kind() == headwater::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(slot.get())
    }

    /// The values of all tags, one per stream.
    fn tags(&self) -> Result<&[DictionaryArray<Int32Type>]> {
        if let Some(tags) = self.tags.get() {
            return Ok(tags);
        }
        let mut tags = Vec::with_capacity(self.keys.len());
        for key in &*self.keys {
            let values = || self.entries.iter().map(|entry| entry.name().tag(key));
            let mut numbers: BTreeMap<&str, i32> = BTreeMap::new();
            for value in values().flatten() {
                numbers.insert(value, 0);
            }
            for (number, slot) in (0..).zip(numbers.values_mut()) {
                *slot = number;
            }
            let number = |value: Option<&str>| value.and_then(|v| numbers.get(v)).copied();
            let rows: Int32Array = values().map(number).collect();
            let values: StringArray = numbers.keys().map(|v| Some(*v)).collect();
            let array = DictionaryArray::try_new(rows, Arc::new(values))
                .map_err(|e| Error::internal(e.to_string()))?;
            tags.push(array);
        }
        Ok(self.tags.get_or_init(|| tags))
    }

    /// The values of a tag, one per stream.
    pub(crate) fn tag(&self, key: usize) -> Result<Option<&DictionaryArray<Int32Type>>> {
        Ok(self.tags()?.get(key))
    }

    /// A column of `rows` rows of one stream.
    pub(crate) fn tag_column(&self, key: usize, stream: u32, rows: usize) -> Result<ArrayRef> {
        let array = self
            .tag(key)?
            .ok_or_else(|| Error::internal("a tag that its table does not have"))?;
        let number = array.key(stream as usize);
        let numbers = match number.and_then(|n| i32::try_from(n).ok()) {
            Some(number) => Int32Array::new(vec![number; rows].into(), None),
            None => Int32Array::new_null(rows),
        };
        DictionaryArray::try_new(numbers, Arc::clone(array.values()))
            .map(|a| Arc::new(a) as ArrayRef)
            .map_err(|e| Error::internal(e.to_string()))
    }
}
