//! A statement's view of the database: a snapshot, and the tables that the session may see.
//!
//! Invariants: all reads of a statement are of one snapshot; a stream that the session may not read
//! is never visible, nor is a tag or a field that only such streams have (a field whose name the
//! access hides); streams are sorted by their tags' columns, absent tags last, so that rows of
//! consecutive streams are ordered by (tags, time). Concurrency: immutable except for caches of the
//! snapshot's contents.

mod pages;
mod streams;

pub(crate) use pages::{Choice, Chosen, Pages};
pub(crate) use streams::{LoadedNames, Streams};

use crate::columns::{TIME, arrow_field, tag_type, time_type};
use crate::error::{Error, Result};
use crate::left_out::LeftOut;
use crate::syntax::past_table;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use headwater::{FieldType, Snapshot, StreamName};
use headwater_ask::Access;
use headwater_wire::free_name;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of names that are checked together.
const PAGE_MAX: usize = 4_096;

/// Role of a column of a table.
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
    /// Role of each column.
    pub(crate) roles: Vec<Role>,
    /// The fields by their names in the table; a column may have another name.
    pub(crate) fields: Vec<(String, FieldType)>,
    /// Tag keys, sorted.
    pub(crate) keys: Arc<[String]>,
    /// All streams; `None` = more than fit into memory; these are read page by page.
    pub(crate) streams: Option<Arc<Streams>>,
    /// The named snapshot of the table; `None` = the current state.
    pub(crate) past: Option<String>,
}

impl TableView {
    fn new(
        name: &str,
        fields: Vec<(String, FieldType)>,
        keys: Arc<[String]>,
        streams: Option<Arc<Streams>>,
    ) -> TableView {
        let mut columns = vec![Field::new(TIME, time_type(), false)];
        let mut roles = vec![Role::Time];
        let mut taken = BTreeSet::from([TIME.to_owned()]);
        let mut free = |name: &str| {
            let name = free_name(name, |name| taken.contains(name));
            taken.insert(name.clone());
            name
        };
        for (at, key) in keys.iter().enumerate() {
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
            keys,
            streams,
            past: None,
        }
    }

    /// Role of a column.
    pub(crate) fn role(&self, column: &str) -> Option<Role> {
        let at = self.schema.index_of(column).ok()?;
        self.roles.get(at).copied()
    }

    /// The columns of tags.
    pub(crate) fn tag_schema(&self) -> SchemaRef {
        let columns = self.schema.fields().iter().zip(&self.roles);
        let tags = columns.filter(|(_, role)| matches!(role, Role::Tag(_)));
        let tags: Vec<_> = tags.map(|(field, _)| Arc::clone(field)).collect();
        Arc::new(Schema::new(tags))
    }

    /// The tags' columns, a row per stream, under their names in the table.
    pub(crate) fn tag_rows(&self, streams: &Streams) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for at in 0..self.keys.len() {
            if let Some(array) = streams.tag(at)? {
                arrays.push(Arc::new(array.clone()));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(streams.len()));
        RecordBatch::try_new_with_options(self.tag_schema(), arrays, &options)
            .map_err(|e| Error::internal(e.to_string()))
    }
}

/// Cached tables of earlier statements.
#[derive(Debug, Default)]
pub(crate) struct TableCache {
    state: Mutex<Cached>,
    names: Arc<LoadedNames>,
    /// Maximum stream names of a table in memory; for a table with more streams, none are loaded.
    names_max: usize,
}

#[derive(Debug, Default)]
struct Cached {
    definitions: u64,
    /// By table and the key of the access.
    tables: HashMap<(String, String), Option<Arc<TableView>>>,
}

/// Maximum number of cached tables.
const CACHED_MAX: usize = 4_096;

impl TableCache {
    pub(crate) fn new(names_max: usize) -> TableCache {
        TableCache {
            names_max,
            ..TableCache::default()
        }
    }

    /// Counter of the names of streams in memory for statements and tables.
    pub(crate) fn names(&self) -> &LoadedNames {
        &self.names
    }

    fn get(&self, definitions: u64, key: &(String, String)) -> Option<Option<Arc<TableView>>> {
        let state = self.state.lock();
        (state.definitions == definitions)
            .then(|| state.tables.get(key).cloned())
            .flatten()
    }

    fn cache_table(&self, definitions: u64, key: (String, String), table: Option<Arc<TableView>>) {
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

/// Opens a named snapshot.
type OpenPast = Arc<dyn Fn(&str) -> headwater::Result<Snapshot> + Send + Sync>;

/// The view of one statement.
pub(crate) struct View {
    snapshot: Snapshot,
    access: Arc<dyn Access>,
    /// Parts that the snapshot does not have, since they cannot be read.
    left_out: LeftOut,
    cache: Arc<TableCache>,
    /// The access's key in the cache of tables; `None` = not shared.
    access_key: Option<String>,
    tables: Mutex<HashMap<String, Option<Arc<TableView>>>>,
    /// Opens named snapshots.
    past: Option<OpenPast>,
    /// Views of the named snapshots that the statement reads.
    named: Mutex<HashMap<String, Arc<View>>>,
    /// Set when some table has a field that the session does not see. Later changes of this depend
    /// on values, not on definitions, so plans and tables of this view are not cached.
    hides: AtomicBool,
    /// State that nodes of the statement's plan share, by number.
    shared: Mutex<HashMap<u64, Arc<dyn Any + Send + Sync>>>,
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
            left_out: LeftOut::default(),
            cache,
            access_key,
            tables: Mutex::new(HashMap::new()),
            past: None,
            named: Mutex::new(HashMap::new()),
            hides: AtomicBool::new(false),
            shared: Mutex::new(HashMap::new()),
        }
    }

    /// The statement's shared state with a number, which identifies one use in the process; built
    /// at the first call.
    pub(crate) fn shared<T: Any + Send + Sync>(
        &self,
        number: u64,
        make: impl FnOnce() -> T,
    ) -> Result<Arc<T>> {
        let mut shared = self.shared.lock();
        let found = shared.entry(number).or_insert_with(|| Arc::new(make()));
        let found = Arc::clone(found).downcast();
        found.map_err(|_| Error::internal("two things are kept under one number"))
    }

    /// The view without parts that cannot be read, which it lists.
    pub(crate) fn without_unreadable(self) -> View {
        let parts = self.snapshot.unreadable_parts();
        let left_out = LeftOut::new(parts, self.access.reads_everything());
        View {
            snapshot: self.snapshot.allowing_partial(),
            left_out,
            ..self
        }
    }

    /// Parts that the view leaves out.
    pub(crate) fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// The same view, with access to named snapshots.
    pub(crate) fn with_past(self, past: OpenPast) -> View {
        View {
            past: Some(past),
            ..self
        }
    }

    /// The view of a named snapshot: the same one throughout the statement.
    fn past(&self, name: &str) -> Result<Arc<View>> {
        let mut named = self.named.lock();
        if let Some(view) = named.get(name) {
            return Ok(Arc::clone(view));
        }
        let Some(open) = &self.past else {
            return Err(Error::internal("a snapshot within a snapshot"));
        };
        let snapshot = open(name).map_err(|error| match error.kind() {
            headwater::ErrorKind::NotFound => {
                let error = Error::unknown_snapshot(format!("there is no snapshot `{name}`"));
                error.with_hint("SHOW SNAPSHOTS lists them")
            }
            headwater::ErrorKind::Gone => Error::snapshot_gone(error.to_string()),
            _ => Error::from(error),
        })?;
        // Another snapshot may have the name when a plan is reused.
        self.hides.store(true, Ordering::Relaxed);
        let view = View {
            access_key: None,
            ..View::new(snapshot, Arc::clone(&self.access), Arc::clone(&self.cache))
        };
        let view = Arc::new(view);
        named.insert(name.to_owned(), Arc::clone(&view));
        Ok(view)
    }

    /// The view of a table: this one, or that of a named snapshot.
    pub(crate) fn of(self: &Arc<View>, table: &TableView) -> Result<Arc<View>> {
        match &table.past {
            None => Ok(Arc::clone(self)),
            Some(name) => self.past(name),
        }
    }

    /// A table of a named snapshot, if the session sees it.
    fn past_table(&self, snapshot: &str, table: &str) -> Result<Option<Arc<TableView>>> {
        let found = self.past(snapshot)?.load(table)?.0;
        let found = found.and_then(Arc::into_inner);
        Ok(found.map(|table| {
            Arc::new(TableView {
                past: Some(snapshot.to_owned()),
                ..table
            })
        }))
    }

    /// The key by which sessions with the same rights share plans of this view.
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
        if !self.reads_all() {
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
        if let Some((snapshot, table)) = past_table(name) {
            let table = self.past_table(snapshot, table)?;
            self.tables.lock().insert(name.to_owned(), table.clone());
            return Ok(table);
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
                    self.cache.cache_table(definitions, key, table.clone());
                }
                table
            }
        };
        self.tables.lock().insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// Number of names that are checked together.
    fn page_len(&self) -> usize {
        self.cache.names_max.clamp(1, PAGE_MAX)
    }

    /// Streams with the tags of a table, sorted by their tags' columns.
    fn sorted(&self, names: Vec<StreamName>, keys: &Arc<[String]>) -> Streams {
        Streams::sorted(names, Arc::clone(keys), &self.cache.names)
    }

    /// The table, and whether all of its fields are visible.
    fn load(&self, name: &str) -> Result<(Option<Arc<TableView>>, bool)> {
        let not_found = |error: &headwater::Error| error.kind() == headwater::ErrorKind::NotFound;
        let info = match self.snapshot.table_info(name) {
            Err(error) if not_found(&error) => return Ok((None, true)),
            other => other?,
        };
        let all = self.reads_all();
        let most = self.cache.names_max;
        let mut keys: BTreeSet<String> = if all {
            info.tags.iter().cloned().collect()
        } else {
            BTreeSet::new()
        };
        // `None` = more than fit into memory.
        let mut names = Some(Vec::new());
        if all && u64::try_from(most).is_ok_and(|most| info.streams > most) {
            names = None;
        }
        let mut last: Option<StreamName> = None;
        // A session that sees only some of the streams sees only their tags.
        while names.is_some() || (!all && keys.len() < info.tags.len()) {
            let page = self
                .snapshot
                .streams_after(name, last.as_ref(), self.page_len())?;
            let is_last = page.len() < self.page_len();
            last = page.last().cloned();
            for stream in page {
                if !all && !self.access.reads(name, stream.tags()) {
                    continue;
                }
                for (key, _) in stream.tags() {
                    if !keys.contains(key) {
                        keys.insert(key.clone());
                    }
                }
                match &mut names {
                    Some(held) if held.len() < most => held.push(stream),
                    _ => names = None,
                }
            }
            if is_last {
                break;
            }
        }
        if !all && names.as_ref().is_some_and(Vec::is_empty) && !self.access.manages(name) {
            return Ok((None, true));
        }
        let keys: Arc<[String]> = keys.into_iter().collect();
        let visible = match all {
            true => None,
            false => self.access.fields(&self.snapshot, name)?,
        };
        let count = info.fields.len();
        let fields: Vec<_> = info
            .fields
            .into_iter()
            .filter(|f| {
                visible
                    .as_ref()
                    .is_none_or(|visible| visible.contains(&f.name))
            })
            .map(|f| (f.name, f.field_type))
            .collect();
        let is_whole = fields.len() == count;
        let streams = names.map(|n| Arc::new(self.sorted(n, &keys)));
        let table = TableView::new(name, fields, keys, streams);
        Ok((Some(Arc::new(table)), is_whole))
    }
}
