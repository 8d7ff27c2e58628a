//! The newest values.

use crate::column::hw_value;
use crate::database::{Store, hw_db};
use crate::handles;
use crate::snapshot::{hw_snapshot, view_of};
use crate::status::{guard, hw_error, out, write_result};
use crate::stream::{Named, Stream, Walk, hw_stream, hw_stream_name};
use crate::text::{by_key, hw_str, hw_tag, pointer, tags};
use headwater::LastValue;
use std::sync::Arc;

/// The newest value of a field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_last_value {
    /// Which stream, by its index in the list of streams.
    pub stream: usize,
    /// The field.
    pub field: hw_str,
    /// When, ns since 1970.
    pub time_ns: i64,
    /// The value itself.
    pub value: hw_value,
}

/// The newest values of streams: for each stream and field at most one. Release the handle when
/// they have been read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_last_values {
    /// To release.
    pub handle: u64,
    /// The number of values.
    pub count: usize,
    /// The values, stream by stream.
    pub values: *const hw_last_value,
    /// The number of streams.
    pub stream_count: usize,
    /// Their names.
    pub streams: *const hw_stream_name,
}

struct LastResult {
    values: Box<[hw_last_value]>,
    streams: Box<[hw_stream_name]>,
    /// The memory that the other two point into.
    _memory: Vec<(Arc<Named>, Vec<LastValue>)>,
}

// SAFETY: the pointers in `values` and `streams` lead to `_memory`, which lives as long, is never
// changed, and may be read by any thread.
unsafe impl Send for LastResult {}
// SAFETY: as above.
unsafe impl Sync for LastResult {}

impl hw_last_values {
    fn make(found: Vec<(Arc<Named>, Vec<LastValue>)>) -> hw_last_values {
        let mut values = Vec::new();
        for (stream, (_, of_stream)) in found.iter().enumerate() {
            values.extend(of_stream.iter().map(|last| hw_last_value {
                stream,
                field: hw_str::of(&last.field),
                time_ns: last.time.as_nanos(),
                value: hw_value::of(&last.value),
            }));
        }
        let (handle, kept) = handles::register_result(LastResult {
            values: values.into(),
            streams: found.iter().map(|(named, _)| named.view()).collect(),
            _memory: found,
        });
        hw_last_values {
            handle,
            count: kept.values.len(),
            values: pointer(&kept.values),
            stream_count: kept.streams.len(),
            streams: pointer(&kept.streams),
        }
    }
}

/// The newest value of each field of a stream; fields without any are left out. snapshot 0 = as it
/// is now. HW_NOT_FOUND while nothing was written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_last(
    stream: hw_stream,
    snapshot: hw_snapshot,
    values: *mut hw_last_values,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(values, "values")?;
        let stream = handles::get::<Stream>(stream)?;
        let view = stream.view(snapshot)?;
        let found = stream.at(&view)?.last(&view)?;
        let found = vec![(Arc::clone(&stream.named), found)];
        write_result(values, hw_last_values::make(found), "values")
    })
}

/// As hw_last, for all streams of a table that have these tags; no tags = all of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_last_table(
    db: hw_db,
    snapshot: hw_snapshot,
    table: hw_str,
    tags: *const hw_tag,
    tag_count: usize,
    values: *mut hw_last_values,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(values, "values")?;
        let store = handles::get::<Store>(db)?;
        let view = view_of(&Arc::downgrade(&store), snapshot)?;
        let tags = by_key(self::tags(tags, tag_count)?);
        let mut walk = Walk::new(table.read("table")?, tags, None);
        let mut found = Vec::new();
        while let Some(name) = walk.next(&view)? {
            let last = view.last(&name)?;
            found.push((Arc::new(Named::new(name)), last));
        }
        write_result(values, hw_last_values::make(found), "values")
    })
}
