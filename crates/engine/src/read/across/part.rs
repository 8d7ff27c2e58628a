//! One of several databases that are read together.
//!
//! Invariants: numbers of parts ascend with their ranks, and of equal ranks with their names. A
//! part is asked for streams by the names under which they are shown, and its snapshot by its own
//! names.
//! Concurrency: immutable.

use crate::common::ids::TableId;
use crate::metadata::catalog::{decode_stream_key, stream_key};
use crate::read::added_tags::AddedTags;
use crate::read::handle::StreamHandle;
use crate::read::single::{ResolvedStream, SingleSnapshot};
use crate::{Error, ErrorKind, Result};
use headwater_types::StreamName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A database among others.
#[derive(Debug)]
pub(crate) struct DatabasePart {
    pub(super) name: Arc<str>,
    pub(super) snapshot: SingleSnapshot,
    pub(super) tags: AddedTags,
}

/// A stream that was looked for; `None` where there is none.
fn if_found<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

impl DatabasePart {
    /// Looks up a stream by its shown name.
    pub(super) fn find(&self, shown: &StreamName) -> Result<Option<ResolvedStream<'_>>> {
        let own = self.tags.own(shown);
        let found = own.map(|own| if_found(self.snapshot.find(&own)));
        Ok(found.transpose()?.flatten())
    }

    /// Looks up a stream that was looked up before.
    pub(super) fn find_again(&self, handle: &StreamHandle) -> Result<Option<ResolvedStream<'_>>> {
        match self.snapshot.find_known(handle, &self.tags)? {
            None => self.find(handle.name()),
            found => Ok(found),
        }
    }

    /// Looks up a stream by its shown name, to read it many times.
    pub(super) fn handle(&self, shown: &StreamName) -> Result<StreamHandle> {
        let found = self.find(shown)?;
        let found = found.ok_or_else(|| Error::not_found(format!("no stream `{shown}`")))?;
        let handle = StreamHandle::new(shown.clone(), self.snapshot.core(), &found);
        Ok(handle.with_tags(shown.clone(), &self.tags))
    }

    /// A stream that was looked up in its snapshot, under its shown name.
    pub(super) fn shown_handle(&self, own: StreamHandle) -> StreamHandle {
        let shown = self.tags.shown(own.name());
        own.with_tags(shown, &self.tags)
    }
}

/// Key bytes for table 0 of the streams of each table, sorted.
pub(super) type KeysByTable = BTreeMap<String, Vec<Arc<[u8]>>>;

/// The streams of each table of a database, with these tags added.
pub(super) fn keys_of(snapshot: &SingleSnapshot, tags: &AddedTags) -> Result<KeysByTable> {
    let mut all = BTreeMap::new();
    for table in snapshot.tables() {
        let keys = snapshot.stream_keys(table)?;
        let mut keys: Vec<Arc<[u8]>> = keys.into_iter().map(for_table_0).collect();
        if !tags.is_empty() {
            let own = keys.iter();
            let shown = own.map(|key| shown_key(snapshot, &table.name, key, tags));
            keys = shown.collect::<Result<_>>()?;
            keys.sort_unstable();
        }
        all.insert(table.name.clone(), keys);
    }
    Ok(all)
}

/// Key bytes of the shown name of a stream with these key bytes.
fn shown_key(
    snapshot: &SingleSnapshot,
    table: &str,
    own: &[u8],
    tags: &AddedTags,
) -> Result<Arc<[u8]>> {
    let own = decode_stream_key(table, own);
    let own = own.map_err(|e| Error::decode(snapshot.core().meta.path(), 0, e))?;
    let mut key = Vec::with_capacity(64);
    stream_key(TableId(0), tags.shown(&own).tags(), &mut key);
    Ok(key.into())
}

fn for_table_0(mut key: Box<[u8]>) -> Arc<[u8]> {
    if let Some(table) = key.first_chunk_mut::<4>() {
        *table = [0; 4];
    }
    key.into()
}

/// The parts, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct DatabaseParts(Vec<(u32, Arc<DatabasePart>)>);

impl DatabaseParts {
    fn position(&self, number: u32) -> Option<usize> {
        self.0.binary_search_by_key(&number, |(n, _)| *n).ok()
    }

    pub(super) fn get(&self, number: u32) -> Option<&DatabasePart> {
        self.0.get(self.position(number)?).map(|(_, part)| &**part)
    }

    pub(super) fn shared(&self, number: u32) -> Option<Arc<DatabasePart>> {
        self.0
            .get(self.position(number)?)
            .map(|(_, part)| Arc::clone(part))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &DatabasePart> {
        self.0.iter().map(|(_, part)| &**part)
    }

    /// Puts a part, replacing the part of the same number.
    pub(super) fn put(&mut self, number: u32, part: Arc<DatabasePart>) {
        match self.0.binary_search_by_key(&number, |(n, _)| *n) {
            Ok(at) => {
                if let Some(known) = self.0.get_mut(at) {
                    *known = (number, part);
                }
            }
            Err(at) => self.0.insert(at, (number, part)),
        }
    }

    /// Gives each part another number; the order of the numbers stays.
    pub(super) fn renumber(&mut self, new: &BTreeMap<u32, u32>) {
        for (number, _) in &mut self.0 {
            *number = new.get(number).copied().unwrap_or(*number);
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.0.retain(|(n, _)| *n != number);
    }
}
