//! Streams: looked up once, written to and read many times.
//!
//! Invariants: a stream is a name, and exists before anything was written to it. A read gives the
//! same as one by its name in every snapshot.
//! Concurrency: immutable but for the lookup that the first read caches.

use crate::database::{Store, hw_db};
use crate::handles::{self, Handled};
use crate::snapshot::{Sight, hw_snapshot, view_of};
use crate::status::{Outcome, guard, hw_error, invalid, out, write_result};
use crate::text::{by_key, hw_str, hw_tag, pointer, tags};
use headwater::{Snapshot, StreamHandle, StreamName};
use std::sync::{Arc, OnceLock, Weak};

/// A stream: a table and tags, to write to and to read. To end with hw_release.
pub type hw_stream = u64;

/// Name of a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_stream_name {
    /// "table,tag=value", with a backslash before commas, blanks, equals signs and backslashes in
    /// names.
    pub text: hw_str,
    /// The table.
    pub table: hw_str,
    /// The tags, sorted by key.
    pub tags: *const hw_tag,
    /// Their number.
    pub tag_count: usize,
}

impl hw_stream_name {
    /// Of no stream.
    pub(crate) const NONE: hw_stream_name = hw_stream_name {
        text: hw_str::EMPTY,
        table: hw_str::EMPTY,
        tags: std::ptr::null(),
        tag_count: 0,
    };
}

/// A name with what callers are shown of it.
pub(crate) struct Named {
    pub(crate) name: StreamName,
    text: String,
    tags: Box<[hw_tag]>,
}

// SAFETY: the pointers in `tags` lead to text of `name`, which lives as long, is never changed, and
// may be read by any thread.
unsafe impl Send for Named {}
// SAFETY: as above.
unsafe impl Sync for Named {}

impl Named {
    pub(crate) fn new(name: StreamName) -> Named {
        let tag = |(key, value): &(String, String)| hw_tag {
            key: hw_str::of(key),
            value: hw_str::of(value),
        };
        Named {
            text: name.to_string(),
            tags: name.tags().iter().map(tag).collect(),
            name,
        }
    }

    /// As the caller sees it, as long as this lives.
    pub(crate) fn view(&self) -> hw_stream_name {
        hw_stream_name {
            text: hw_str::of(&self.text),
            table: hw_str::of(self.name.table()),
            tags: pointer(&self.tags),
            tag_count: self.tags.len(),
        }
    }
}

/// A stream behind a handle.
pub(crate) struct Stream {
    pub(crate) store: Weak<Store>,
    pub(crate) named: Arc<Named>,
    handle: OnceLock<StreamHandle>,
}

impl Handled for Stream {
    const KIND: &'static str = "a stream";
}

impl Stream {
    pub(crate) fn name(&self) -> &StreamName {
        &self.named.name
    }

    /// Where the stream is, found once.
    pub(crate) fn at(&self, snapshot: &Snapshot) -> Outcome<&StreamHandle> {
        if let Some(found) = self.handle.get() {
            return Ok(found);
        }
        let found = snapshot.handle(self.name())?;
        Ok(self.handle.get_or_init(|| found))
    }

    /// The snapshot to read it in: the one behind a handle, or with 0 a new one.
    pub(crate) fn view(&self, snapshot: hw_snapshot) -> Outcome<Sight> {
        view_of(&self.store, snapshot)
    }
}

fn open(db: hw_db, name: StreamName) -> Outcome<hw_stream> {
    let store = handles::get::<Store>(db)?;
    let stream = Stream {
        store: Arc::downgrade(&store),
        named: Arc::new(Named::new(name)),
        handle: OnceLock::new(),
    };
    Ok(handles::register(stream).0)
}

/// A stream of a table with these tags, in any order. Nothing is read from the database: a stream
/// that is not there comes into being with the first write to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_stream_open(
    db: hw_db,
    table: hw_str,
    tags: *const hw_tag,
    tag_count: usize,
    stream: *mut hw_stream,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(stream, "stream")?;
        let name = StreamName::new(table.read("table")?, self::tags(tags, tag_count)?);
        write_result(stream, open(db, name)?, "stream")
    })
}

/// As hw_stream_open, by a name "table,tag=value,…"; a backslash keeps the character behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_stream_parse(
    db: hw_db,
    name: hw_str,
    stream: *mut hw_stream,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(stream, "stream")?;
        let text = name.read("name")?;
        let name = StreamName::parse(text)
            .ok_or_else(|| invalid(format!("expected `table,tag=value,…`, found `{text}`")))?;
        write_result(stream, open(db, name)?, "stream")
    })
}

/// Contents of a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_stream_info {
    /// Its rows. While rewritten rows or deletes wait to be merged it counts what they replace or
    /// remove too.
    pub rows: u64,
    /// 0 = it holds nothing, and the instants mean nothing.
    pub has_events: u8,
    /// Its earliest event, ns since 1970.
    pub first_ns: i64,
    /// Its latest event, ns since 1970.
    pub last_ns: i64,
}

/// Describes the contents of a stream, without reading its rows. snapshot 0 = as it is now.
/// HW_NOT_FOUND while nothing was written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_stream_describe(
    stream: hw_stream,
    snapshot: hw_snapshot,
    info: *mut hw_stream_info,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(info, "info")?;
        let stream = handles::get::<Stream>(stream)?;
        let found = stream.view(snapshot)?.stream_info(stream.name())?;
        let nanos = |at: Option<headwater::Timestamp>| at.map_or(0, headwater::Timestamp::as_nanos);
        let described = hw_stream_info {
            rows: found.rows,
            has_events: u8::from(found.first.is_some()),
            first_ns: nanos(found.first),
            last_ns: nanos(found.last),
        };
        write_result(info, described, "info")
    })
}

/// Streams by name. Release the handle when they have been read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_streams {
    /// To release.
    pub handle: u64,
    /// The names, until then.
    pub streams: *const hw_stream_name,
    /// Their number.
    pub count: usize,
}

struct Names {
    views: Box<[hw_stream_name]>,
    /// The memory that the views point into.
    _names: Vec<Named>,
}

// SAFETY: the pointers in `views` lead to `_names`, which live as long, are never changed, and may
// be read by any thread.
unsafe impl Send for Names {}
// SAFETY: as above.
unsafe impl Sync for Names {}

/// The streams of a table that have these tags; no tags = all of them. At most `limit` behind
/// `after`, in the order of the catalog; `after` is the name of a stream, or empty for the first.
/// snapshot 0 = as it is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_streams_list(
    db: hw_db,
    snapshot: hw_snapshot,
    table: hw_str,
    tags: *const hw_tag,
    tag_count: usize,
    after: hw_str,
    limit: usize,
    streams: *mut hw_streams,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(streams, "streams")?;
        let store = handles::get::<Store>(db)?;
        let view = view_of(&Arc::downgrade(&store), snapshot)?;
        let text = after.read("after")?;
        let after = if text.is_empty() {
            None
        } else {
            let parsed = StreamName::parse(text);
            Some(parsed.ok_or_else(|| {
                invalid(format!(
                    "after: expected `table,tag=value,…`, found `{text}`"
                ))
            })?)
        };
        let tags = by_key(self::tags(tags, tag_count)?);
        let mut walk = Walk::new(table.read("table")?, tags, after);
        let mut names = Vec::new();
        while names.len() < limit
            && let Some(name) = walk.next(&view)?
        {
            names.push(Named::new(name));
        }
        let names = Names {
            views: names.iter().map(Named::view).collect(),
            _names: names,
        };
        let (handle, kept) = handles::register_result(names);
        let list = hw_streams {
            handle,
            streams: pointer(&kept.views),
            count: kept.views.len(),
        };
        write_result(streams, list, "streams")
    })
}

/// Goes through the streams of a table with certain tags, some at a time.
pub(crate) struct Walk {
    table: String,
    tags: Vec<(String, Vec<String>)>,
    after: Option<StreamName>,
    page: std::vec::IntoIter<StreamName>,
    at_end: bool,
}

/// Streams looked up at a time.
const PAGE: usize = 256;

impl Walk {
    pub(crate) fn new(
        table: &str,
        tags: Vec<(String, Vec<String>)>,
        after: Option<StreamName>,
    ) -> Walk {
        Walk {
            table: table.to_owned(),
            tags,
            after,
            page: Vec::new().into_iter(),
            at_end: false,
        }
    }

    /// The next stream, if there is one. Always with the same snapshot.
    pub(crate) fn next(&mut self, snapshot: &Snapshot) -> Outcome<Option<StreamName>> {
        loop {
            for name in self.page.by_ref() {
                let has = |(key, values): &(String, Vec<String>)| {
                    name.tag(key)
                        .is_some_and(|tag| values.iter().any(|value| value == tag))
                };
                if self.tags.iter().all(has) {
                    return Ok(Some(name));
                }
            }
            if self.at_end {
                return Ok(None);
            }
            let page = snapshot.streams_after(&self.table, self.after.as_ref(), PAGE)?;
            self.at_end = page.len() < PAGE;
            self.after = page.last().cloned().or(self.after.take());
            self.page = page.into_iter();
        }
    }
}
