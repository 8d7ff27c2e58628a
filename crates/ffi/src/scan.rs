//! Asking for rows: all at once, or some at a time.
//!
//! Invariants: what one call reads, and all that one scan reads, is of one snapshot.
//! Concurrency: one call at a time for each scan.
//! Failure: a damaged part of a file is `HW_CORRUPT` for the call that met it; a scan goes on
//! behind it.

use crate::database::open_still;
use crate::handles::{self, Handled};
use crate::query::{Query, Subject, hw_query};
use crate::rows::{FieldNames, Rows, gather, hw_rows, names_of};
use crate::snapshot::{Sight, hw_snapshot, view_of};
use crate::status::{
    Failure, HW_NOT_FOUND, Outcome, guard, hw_error, invalid, lock, out, write_result,
};
use crate::stream::{Named, Stream, Walk};
use headwater::{ClosedRange, FieldType, Scan, ScanSpec};
use std::sync::{Arc, Mutex};

/// A scan that gives its rows some at a time, in bounded memory. To end with hw_release.
pub type hw_scan = u64;

/// The stream of a query, for functions that read one.
pub(crate) fn one_stream(query: &Query) -> Outcome<&Arc<Stream>> {
    match &query.subject {
        Subject::Stream(stream) => Ok(stream),
        Subject::Table { .. } => Err(invalid(
            "the query is for the streams of a table: read it with hw_scan_open",
        )),
    }
}

pub(crate) fn range(first_ns: i64, last_ns: i64) -> ClosedRange {
    ClosedRange::nanos(first_ns, last_ns)
}

/// All rows of a query for one stream, from first_ns to last_ns, both included (INT64_MIN and
/// INT64_MAX = all). snapshot 0 = as it is now. HW_NOT_FOUND while nothing was written to the
/// stream, or for an unknown field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_read(
    query: hw_query,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    rows: *mut hw_rows,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(rows, "rows")?;
        let query = handles::get::<Query>(query)?;
        let stream = one_stream(&query)?;
        let view = view_of(&query.store, snapshot)?;
        let found = stream.at(&view)?;
        let mut scan =
            query.read_range(range(first_ns, last_ns), |spec| found.scan(&view, spec))?;
        let chunk = gather(&mut scan)?;
        let names = query.names.clone().unwrap_or_else(|| names_of(&scan));
        let named = Arc::clone(&stream.named);
        write_result(rows, Rows::new(chunk, names, named).hand_out(), "rows")
    })
}

/// A scan behind a handle.
pub(crate) struct Cursor(Mutex<Walking>);

struct Walking {
    query: Arc<Query>,
    view: Sight,
    range: ClosedRange,
    /// The fields that every stream gives.
    fields: Vec<(String, FieldType)>,
    names: FieldNames,
    /// Streams that follow; of a query for one stream: none.
    walk: Option<Walk>,
    current: Option<(Scan, Arc<Named>)>,
    /// The next rows, when they were read ahead.
    ahead: Option<Outcome<Option<Rows>>>,
}

impl Handled for Cursor {
    const KIND: &'static str = "a scan";
}

impl Cursor {
    fn open(query: Arc<Query>, view: Sight, range: ClosedRange) -> Outcome<Cursor> {
        let snapshot = &view;
        let (fields, walk, current) = match &query.subject {
            Subject::Table { table, tags } => {
                let known = snapshot.fields(table)?;
                let fields = match &query.names {
                    None => known,
                    Some(names) => chosen(table, &known, names)?,
                };
                (fields, Some(Walk::new(table, tags.clone(), None)), None)
            }
            Subject::Stream(stream) => {
                let found = stream.at(snapshot)?;
                let scan = query.read_range(range, |spec| found.scan(snapshot, spec))?;
                let named = Arc::clone(&stream.named);
                (scan.fields().to_vec(), None, Some((scan, named)))
            }
        };
        let names = fields.iter().map(|(name, _)| name.as_str().into());
        Ok(Cursor(Mutex::new(Walking {
            names: names.collect(),
            fields,
            walk,
            current,
            ahead: None,
            range,
            view,
            query,
        })))
    }

    /// The next rows, at least one; `None` at the end.
    pub(crate) fn next(&self) -> Outcome<Option<Rows>> {
        lock(&self.0)?.next()
    }

    /// True when there is nothing after what was given last; what there is, an error too, is kept
    /// for the next call.
    fn is_at_end(&self) -> Outcome<bool> {
        let mut walking = lock(&self.0)?;
        if walking.ahead.is_none() {
            let next = walking.next();
            walking.ahead = Some(next);
        }
        Ok(matches!(walking.ahead, Some(Ok(None))))
    }

    /// Names and types of the columns of all rows.
    pub(crate) fn fields(&self) -> Outcome<Vec<(String, FieldType)>> {
        Ok(lock(&self.0)?.fields.clone())
    }

    /// Tag keys of the table, of a scan over its streams.
    pub(crate) fn tag_keys(&self) -> Outcome<Vec<String>> {
        let walking = lock(&self.0)?;
        let Subject::Table { table, .. } = &walking.query.subject else {
            return Ok(Vec::new());
        };
        let tables = open_still(&walking.query.store)?.tables();
        let tags = tables
            .into_iter()
            .find(|t| t.name == *table)
            .map(|t| t.tags);
        Ok(tags.unwrap_or_default())
    }
}

/// The fields of a table that are asked for.
fn chosen(
    table: &str,
    known: &[(String, FieldType)],
    names: &FieldNames,
) -> Outcome<Vec<(String, FieldType)>> {
    let find = |name: &str| known.iter().find(|(k, _)| k == name).cloned();
    let fields = names.iter().map(|name| {
        find(name).ok_or_else(|| {
            Failure::new(
                HW_NOT_FOUND,
                format!("table `{table}` has no field `{name}`"),
            )
        })
    });
    fields.collect()
}

impl Walking {
    fn next(&mut self) -> Outcome<Option<Rows>> {
        if let Some(ahead) = self.ahead.take() {
            return ahead;
        }
        loop {
            if let Some((scan, named)) = &mut self.current {
                if let Some(chunk) = scan.next() {
                    let rows = Rows::new(chunk?, Arc::clone(&self.names), Arc::clone(named));
                    return Ok(Some(rows));
                }
                self.current = None;
            }
            let snapshot = &*self.view;
            let Some(walk) = &mut self.walk else {
                return Ok(None);
            };
            let Some(name) = walk.next(snapshot)? else {
                self.walk = None;
                return Ok(None);
            };
            let ask = |spec: &ScanSpec| snapshot.scan(&name, spec);
            let scan = self.query.read_range(self.range, ask)?;
            self.current = Some((scan, Arc::new(Named::new(name))));
        }
    }
}

/// Begins a scan of a query, from first_ns to last_ns, both included. The streams of a table come
/// one after the other, in the order of the catalog. snapshot 0 = as it is now; the scan keeps what
/// it reads, the snapshot may be released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_scan_open(
    query: hw_query,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    scan: *mut hw_scan,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(scan, "scan")?;
        let query = handles::get::<Query>(query)?;
        let view = view_of(&query.store, snapshot)?;
        let cursor = Cursor::open(query, view, range(first_ns, last_ns))?;
        write_result(scan, handles::register(cursor).0, "scan")
    })
}

/// The next rows of a scan, at least one; at its end rows->handle is 0. HW_CORRUPT for a damaged
/// part: the next call goes on behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_scan_next(
    scan: hw_scan,
    rows: *mut hw_rows,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(rows, "rows")?;
        let cursor = handles::get::<Cursor>(scan)?;
        let next = cursor.next()?;
        write_result(rows, next.map_or(hw_rows::END, Rows::hand_out), "rows")
    })
}

/// hw_scan_open and the first hw_scan_next in one call, for reads that are mostly small: rows gets
/// the first rows, and scan the scan to go on with, or 0 when these were all; rows->handle is 0
/// when there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_scan_begin(
    query: hw_query,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    rows: *mut hw_rows,
    scan: *mut hw_scan,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(rows, "rows")?;
        out(scan, "scan")?;
        let query = handles::get::<Query>(query)?;
        let view = view_of(&query.store, snapshot)?;
        let cursor = Cursor::open(query, view, range(first_ns, last_ns))?;
        let first = cursor.next()?;
        let is_all = first.is_none() || cursor.is_at_end()?;
        write_result(rows, first.map_or(hw_rows::END, Rows::hand_out), "rows")?;
        let handle = if is_all {
            0
        } else {
            handles::register(cursor).0
        };
        write_result(scan, handle, "scan")
    })
}
