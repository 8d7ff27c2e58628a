//! The database as one statement sees it: a snapshot, and of its tables what the session may see.
//!
//! Invariants: all of a statement reads one snapshot; a stream that the session may not read
//! appears nowhere, nor does a tag or a field that only such streams have (a field whose name the
//! access does not tell); streams are in the order of their tags' columns, absent tags last, so
//! that rows of streams read one after the other are ordered by (tags, time).
//! Concurrency: immutable but for caches of what the snapshot holds.

use crate::columns::{TIME, arrow_field, tag_type, time_type};
use crate::error::{Error, Result};
use arrow::array::{
    ArrayRef, DictionaryArray, Int32Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::datatypes::{Field, Int32Type, Schema, SchemaRef};
use headwater::{FieldType, Snapshot, StreamHandle, StreamName};
use headwater_ask::Access;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What a column of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Time,
    /// Index of the tag key.
    Tag(usize),
    /// Index of the field.
    Field(usize),
}

/// A table as a session sees it.
#[derive(Debug)]
pub(crate) struct TableView {
    pub(crate) name: String,
    pub(crate) schema: SchemaRef,
    /// What each column is.
    pub(crate) roles: Vec<Role>,
    /// The fields under their names in the table; a column may be called otherwise.
    pub(crate) fields: Vec<(String, FieldType)>,
    pub(crate) streams: Streams,
}

/// Streams with their tags as columns.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Tag keys, sorted.
    pub(crate) keys: Vec<String>,
    names: Vec<StreamName>,
    handles: Vec<OnceLock<StreamHandle>>,
    /// Per key its value in each stream.
    tags: Vec<DictionaryArray<Int32Type>>,
}

impl Streams {
    fn new(mut names: Vec<StreamName>, keys: BTreeSet<String>) -> Result<Streams> {
        let keys: Vec<String> = keys.into_iter().collect();
        names.sort_by(|a, b| {
            let values = |n: &StreamName| -> Vec<(bool, String)> {
                let of = |key: &String| match n.tag(key) {
                    Some(value) => (false, value.to_owned()),
                    None => (true, String::new()),
                };
                keys.iter().map(of).collect()
            };
            values(a).cmp(&values(b))
        });
        let mut tags = Vec::with_capacity(keys.len());
        for key in &keys {
            let mut numbers: BTreeMap<&str, i32> = BTreeMap::new();
            for value in names.iter().filter_map(|n| n.tag(key)) {
                numbers.insert(value, 0);
            }
            for (number, slot) in (0..).zip(numbers.values_mut()) {
                *slot = number;
            }
            let rows: Int32Array = names
                .iter()
                .map(|n| n.tag(key).and_then(|v| numbers.get(v)).copied())
                .collect();
            let values: StringArray = numbers.keys().map(|v| Some(*v)).collect();
            let array = DictionaryArray::try_new(rows, Arc::new(values))
                .map_err(|e| Error::internal(e.to_string()))?;
            tags.push(array);
        }
        let mut handles = Vec::new();
        handles.resize_with(names.len(), OnceLock::new);
        Ok(Streams {
            keys,
            names,
            handles,
            tags,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, stream: u32) -> Option<&StreamName> {
        self.names.get(stream as usize)
    }

    /// The stream, ready to be read; `None` when the snapshot has it no more.
    pub(crate) fn handle(&self, stream: u32, snapshot: &Snapshot) -> Result<Option<&StreamHandle>> {
        let (Some(name), Some(slot)) = (self.name(stream), self.handles.get(stream as usize))
        else {
            return Err(Error::internal("a stream that its table does not have"));
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

    /// The values of a tag, one per stream.
    pub(crate) fn tag(&self, key: usize) -> Option<&DictionaryArray<Int32Type>> {
        self.tags.get(key)
    }

    /// A column of `rows` rows of one stream.
    pub(crate) fn tag_column(&self, key: usize, stream: u32, rows: usize) -> Result<ArrayRef> {
        let array = self
            .tags
            .get(key)
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

impl TableView {
    fn new(name: &str, fields: Vec<(String, FieldType)>, streams: Streams) -> TableView {
        let mut columns = vec![Field::new(TIME, time_type(), false)];
        let mut roles = vec![Role::Time];
        let mut taken = BTreeSet::from([TIME.to_owned()]);
        let mut free = |name: &str| {
            let mut name = name.to_owned();
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            name
        };
        for (at, key) in streams.keys.iter().enumerate() {
            columns.push(Field::new(free(key), tag_type(), true));
            roles.push(Role::Tag(at));
        }
        for (at, (name, of)) in fields.iter().enumerate() {
            columns.push(arrow_field(&free(name), *of));
            roles.push(Role::Field(at));
        }
        TableView {
            name: name.to_owned(),
            schema: Arc::new(Schema::new(columns)),
            roles,
            fields,
            streams,
        }
    }

    /// What a column is.
    pub(crate) fn role(&self, column: &str) -> Option<Role> {
        let at = self.schema.index_of(column).ok()?;
        self.roles.get(at).copied()
    }

    /// The tags' columns, a row per stream, under their names in the table.
    pub(crate) fn tag_rows(&self) -> Result<RecordBatch> {
        let mut columns = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for (field, role) in self.schema.fields().iter().zip(&self.roles) {
            if let Role::Tag(at) = role
                && let Some(array) = self.streams.tag(*at)
            {
                columns.push(Arc::clone(field));
                arrays.push(Arc::new(array.clone()));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.streams.len()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(columns)), arrays, &options)
            .map_err(|e| Error::internal(e.to_string()))
    }
}

/// Tables as they were prepared for earlier statements.
#[derive(Debug, Default)]
pub(crate) struct TableCache {
    state: Mutex<Cached>,
}

#[derive(Debug, Default)]
struct Cached {
    definitions: u64,
    /// By table and the key of the access.
    tables: HashMap<(String, String), Option<Arc<TableView>>>,
}

/// Tables kept at most; a session of its own kind has its own.
const CACHED_MAX: usize = 4_096;

impl TableCache {
    fn get(&self, definitions: u64, key: &(String, String)) -> Option<Option<Arc<TableView>>> {
        let state = self.state.lock();
        (state.definitions == definitions)
            .then(|| state.tables.get(key).cloned())
            .flatten()
    }

    fn put(&self, definitions: u64, key: (String, String), table: Option<Arc<TableView>>) {
        let mut state = self.state.lock();
        if state.definitions > definitions {
            return;
        }
        if state.definitions < definitions || state.tables.len() >= CACHED_MAX {
            state.tables.clear();
            state.definitions = definitions;
        }
        state.tables.insert(key, table);
    }
}

/// What one statement sees.
pub(crate) struct View {
    snapshot: Snapshot,
    access: Arc<dyn Access>,
    cache: Arc<TableCache>,
    /// The access's key in the cache of tables; `None` = nothing is shared.
    access_key: Option<String>,
    tables: Mutex<HashMap<String, Option<Arc<TableView>>>>,
    /// Some table has a field that the session is not told of. When it will be depends on values,
    /// not on definitions, so nothing that was made of this view is kept.
    hides: AtomicBool,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("sequence", &self.snapshot.sequence())
            .finish_non_exhaustive()
    }
}

/// The key of an access in caches.
pub(crate) fn access_key(access: &dyn Access) -> Option<String> {
    if access.all() {
        return Some("all".to_owned());
    }
    access.key().map(|key| format!("key {key}"))
}

impl View {
    pub(crate) fn new(snapshot: Snapshot, access: Arc<dyn Access>, cache: Arc<TableCache>) -> View {
        let access_key = access_key(&*access);
        View {
            snapshot,
            access,
            cache,
            access_key,
            tables: Mutex::new(HashMap::new()),
            hides: AtomicBool::new(false),
        }
    }

    /// The key under which what was made of this view may be kept for others who may do the same.
    pub(crate) fn shared_key(&self) -> Option<String> {
        let hides = self.hides.load(Ordering::Relaxed);
        self.access_key.clone().filter(|_| !hides)
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The tables that the session sees, by name.
    pub(crate) fn table_names(&self) -> Result<Vec<String>> {
        let mut names = self.snapshot.table_names();
        if !self.access.all() {
            let mut seen = Vec::new();
            for name in names {
                if self.table(&name)?.is_some() {
                    seen.push(name);
                }
            }
            names = seen;
        }
        Ok(names)
    }

    /// A table, if the session sees it.
    pub(crate) fn table(&self, name: &str) -> Result<Option<Arc<TableView>>> {
        if let Some(known) = self.tables.lock().get(name) {
            return Ok(known.clone());
        }
        let cached = self.snapshot.definitions().zip(self.access_key.as_ref());
        let key =
            cached.map(|(definitions, access)| (definitions, (name.to_owned(), access.clone())));
        let known = key
            .as_ref()
            .and_then(|(definitions, key)| self.cache.get(*definitions, key));
        let table = match known {
            Some(table) => table,
            None => {
                let (table, is_whole) = self.load(name)?;
                if !is_whole {
                    self.hides.store(true, Ordering::Relaxed);
                } else if let Some((definitions, key)) = key {
                    self.cache.put(definitions, key, table.clone());
                }
                table
            }
        };
        self.tables.lock().insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// The table, and whether it has all of its fields.
    fn load(&self, name: &str) -> Result<(Option<Arc<TableView>>, bool)> {
        let not_found = |error: &headwater::Error| error.kind() == headwater::ErrorKind::NotFound;
        let info = match self.snapshot.table_info(name) {
            Err(error) if not_found(&error) => return Ok((None, true)),
            other => other?,
        };
        let mut names = self.snapshot.streams(name, &[])?;
        let keys: BTreeSet<String> = if self.access.all() {
            info.tags.into_iter().collect()
        } else {
            names.retain(|stream| self.access.reads(name, stream.tags()));
            if names.is_empty() && !self.access.manages(name) {
                return Ok((None, true));
            }
            let tags = names.iter().flat_map(|n| n.tags());
            tags.map(|(key, _)| key.clone()).collect()
        };
        let told = match self.access.all() {
            true => None,
            false => self.access.fields(&self.snapshot, name)?,
        };
        let count = info.fields.len();
        let fields: Vec<_> = info
            .fields
            .into_iter()
            .filter(|f| told.as_ref().is_none_or(|told| told.contains(&f.name)))
            .map(|f| (f.name, f.field_type))
            .collect();
        let is_whole = fields.len() == count;
        let streams = Streams::new(names, keys)?;
        let table = TableView::new(name, fields, streams);
        Ok((Some(Arc::new(table)), is_whole))
    }
}
