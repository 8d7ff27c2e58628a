//! Visible part of a table for a session: the only implementation, for every route, language and
//! front end.
//!
//! A table's tags and fields belong to all of its streams together. A token that may read only some
//! streams sees the tags of these streams, and the fields with values in them; a table without
//! readable streams seems absent. A token that may read every stream of a table, or manages it,
//! sees all of its fields.
//!
//! Invariants: visibility depends only on the readable streams. The fields of streams are cached by
//! the version of their data, never by token. Concurrency: a cache with any number of callers;
//! other values belong to one request. Failure: damage to a stream whose fields are not cached is
//! an error, so that no field is left out silently.

use super::Access;
use super::rules::Action;
use headwater::{
    Bins, ClosedRange, ErrorKind, FieldType, Result, Snapshot, StreamHandle, StreamName,
    SummarySpec,
};
use quick_cache::sync::Cache;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Streams whose fields are cached.
const CACHED_MAX: usize = 65_536;
/// Names examined together.
const NAMES_AT_ONCE: usize = 4_096;

/// Fields with their types, in the order of the table.
pub type Fields = Vec<(String, FieldType)>;

/// Visible part of a table.
#[derive(Debug)]
pub struct VisibleTable {
    /// The tags, sorted.
    pub tags: Vec<String>,
    /// Fields in the order of the table.
    pub fields: Fields,
}

/// Presence of values of each of the table's fields in a stream, at a version of its data.
#[derive(Debug)]
struct FieldPresence {
    version: u64,
    fields: Box<[bool]>,
}

/// Fields with values, by stream.
pub(super) struct StreamFields {
    streams: Cache<StreamName, Arc<FieldPresence>>,
}

impl std::fmt::Debug for StreamFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamFields")
            .field("streams", &self.streams.len())
            .finish()
    }
}

impl Default for StreamFields {
    fn default() -> StreamFields {
        StreamFields {
            streams: Cache::new(CACHED_MAX),
        }
    }
}

impl StreamFields {
    /// For each of the table's fields, whether the stream has a value of the field.
    fn of(
        &self,
        snapshot: &Snapshot,
        stream: &StreamName,
        known: &Fields,
    ) -> Result<Arc<FieldPresence>> {
        // Fields of the table are part of the version. A table whose values expire does not have a
        // version.
        let version = snapshot.version(stream, &ClosedRange::ALL)?;
        if let (Some(version), Some(kept)) = (version, self.streams.get(stream))
            && kept.version == version.number
            && kept.fields.len() == known.len()
        {
            return Ok(kept);
        }
        let spec = SummarySpec {
            range: ClosedRange::ALL,
            bins: Bins::Whole,
            fields: known.iter().map(|(name, _)| name.clone()).collect(),
        };
        let mut fields = vec![false; known.len()].into_boxed_slice();
        for bin in snapshot.summary(stream, &spec)? {
            for (holds, aggregate) in fields.iter_mut().zip(&bin.aggregates) {
                *holds |= aggregate.count > 0;
            }
        }
        let holds = Arc::new(FieldPresence {
            version: version.map_or(0, |v| v.number),
            fields,
        });
        if version.is_some() {
            self.streams.insert(stream.clone(), Arc::clone(&holds));
        }
        Ok(holds)
    }
}

/// `None` for an object that is absent or was removed.
fn ok_if_found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Access {
    /// Visible fields of a table; `None` when no part of the table is visible.
    ///
    /// # Errors
    /// Errors of the engine, except `not_found`.
    pub fn fields(&self, snapshot: &Snapshot, table: &str) -> Result<Option<Fields>> {
        let told = self.visible_table(snapshot, table, false)?;
        Ok(told.map(|told| told.fields))
    }

    /// The visible tags and fields of a table; `None` when no part of the table is visible. Reads
    /// the names of all streams, unless all streams are readable.
    ///
    /// # Errors
    /// Errors of the engine, except `not_found`.
    pub fn table(&self, snapshot: &Snapshot, table: &str) -> Result<Option<VisibleTable>> {
        self.visible_table(snapshot, table, true)
    }

    /// Looks a stream up; `None` when it is absent or not visible.
    ///
    /// # Errors
    /// Errors of the engine, except `not_found`.
    pub fn handle(&self, snapshot: &Snapshot, stream: &StreamName) -> Result<Option<StreamHandle>> {
        if !self.may_read_stream(stream) {
            return Ok(None);
        }
        ok_if_found(snapshot.handle(stream))
    }

    /// Looks a stream up for reads of one of its fields, with the type of the field; `None` when
    /// either is absent or not visible.
    ///
    /// # Errors
    /// Errors of the engine, except `not_found`.
    pub fn resolve(
        &self,
        snapshot: &Snapshot,
        stream: &StreamName,
        field: &str,
    ) -> Result<Option<(StreamHandle, FieldType)>> {
        let Some(handle) = self.handle(snapshot, stream)? else {
            return Ok(None);
        };
        let field_type = self.field_type(snapshot, &handle, field)?;
        Ok(field_type.map(|field_type| (handle, field_type)))
    }

    /// The type of a field of a stream that was looked up; `None` when the field is absent or not
    /// visible.
    ///
    /// # Errors
    /// Errors of the engine, except `not_found`.
    pub fn field_type(
        &self,
        snapshot: &Snapshot,
        handle: &StreamHandle,
        field: &str,
    ) -> Result<Option<FieldType>> {
        let Some(field_type) = ok_if_found(handle.field_type(snapshot, field))? else {
            return Ok(None);
        };
        let stream = handle.name();
        if self.shows_all_fields(stream.table()) {
            return Ok(Some(field_type));
        }
        let Some(known) = ok_if_found(snapshot.fields(stream.table()))? else {
            return Ok(None);
        };
        // Mostly the stream itself has values of the field.
        let own = self.fields_of(snapshot, stream, &known)?;
        let place = known.iter().position(|(name, _)| name == field);
        if let (Some(own), Some(place)) = (own, place)
            && own.fields.get(place) == Some(&true)
        {
            return Ok(Some(field_type));
        }
        let visible = self.fields(snapshot, stream.table())?.unwrap_or_default();
        let found = visible.into_iter().find(|(name, _)| name == field);
        Ok(found.map(|(_, field_type)| field_type))
    }

    /// True when every field of a table is visible, whatever the fields of its streams.
    pub fn shows_all_fields(&self, table: &str) -> bool {
        // A rule with tags does not fit a stream without any.
        let of_all = |action| self.rules_allow(action, table, &[]);
        of_all(Action::Read) || of_all(Action::Manage)
    }

    fn fields_of(
        &self,
        snapshot: &Snapshot,
        stream: &StreamName,
        known: &Fields,
    ) -> Result<Option<Arc<FieldPresence>>> {
        ok_if_found(self.guard().stream_fields.of(snapshot, stream, known))
    }

    fn visible_table(
        &self,
        snapshot: &Snapshot,
        table: &str,
        with_tags: bool,
    ) -> Result<Option<VisibleTable>> {
        let Some(known) = ok_if_found(snapshot.fields(table))? else {
            return Ok(None);
        };
        if self.reads_all() {
            let tags = if with_tags {
                ok_if_found(snapshot.table_info(table))?.map_or_else(Vec::new, |info| info.tags)
            } else {
                Vec::new()
            };
            return Ok(Some(VisibleTable {
                tags,
                fields: known,
            }));
        }
        if !self.may_read_some_of(table) {
            return Ok(None);
        }
        let mut told = vec![self.shows_all_fields(table); known.len()];
        let mut tags: BTreeSet<String> = BTreeSet::new();
        let mut is_seen = false;
        let mut last: Option<StreamName> = None;
        'pages: loop {
            let page = ok_if_found(snapshot.streams_after(table, last.as_ref(), NAMES_AT_ONCE))?;
            let page = page.unwrap_or_default();
            for stream in page.iter().filter(|s| self.may_read_stream(s)) {
                is_seen = true;
                if with_tags {
                    for (key, _) in stream.tags() {
                        if !tags.contains(key) {
                            tags.insert(key.clone());
                        }
                    }
                }
                if told.iter().any(|t| !t) {
                    if let Some(held) = self.fields_of(snapshot, stream, &known)? {
                        for (told, held) in told.iter_mut().zip(&held.fields) {
                            *told |= held;
                        }
                    }
                } else if !with_tags {
                    break 'pages;
                }
            }
            if page.len() < NAMES_AT_ONCE {
                break;
            }
            last = page.into_iter().next_back();
        }
        let fields = known.into_iter().zip(told);
        Ok(is_seen.then(|| VisibleTable {
            tags: tags.into_iter().collect(),
            fields: fields.filter(|(_, told)| *told).map(|(f, _)| f).collect(),
        }))
    }
}
