//! A scan as a stream of Arrow arrays.

use super::export::{Described, array_of, describe, schema_of};
use super::{ArrowArray, ArrowArrayStream, ArrowSchema};
use crate::handles;
use crate::scan::{Cursor, hw_scan};
use crate::status::{HW_OK, Outcome, guard, hw_error, out, write_result};
use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// The specification's errno: an input/output error.
const EIO: c_int = 5;
/// The code for a wrong argument.
const EINVAL: c_int = 22;

struct StreamState {
    cursor: Arc<Cursor>,
    tags: Vec<String>,
    columns: Vec<Described>,
    last_error: Option<CString>,
}

/// Runs a callback of a stream; what goes wrong becomes a number and a text.
///
/// # Safety
/// `stream` is one made here and not released.
unsafe fn run(
    stream: *mut ArrowArrayStream,
    body: impl FnOnce(&StreamState) -> Outcome<()>,
) -> c_int {
    // SAFETY: the caller of the callback gives a stream that was not released.
    let parts = unsafe { (*stream).private_data.cast::<StreamState>().as_mut() };
    let Some(parts) = parts else {
        return EINVAL;
    };
    let mut error = hw_error::NONE;
    if guard(&raw mut error, || body(parts)) == HW_OK {
        return 0;
    }
    // SAFETY: `guard` filled the message in, which ends with a NUL.
    let message = unsafe { std::ffi::CStr::from_ptr(error.message) };
    parts.last_error = Some(message.to_owned());
    // SAFETY: the error is ours.
    unsafe { crate::status::hw_error_free(&raw mut error) };
    EIO
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, schema: *mut ArrowSchema) -> c_int {
    // SAFETY: as the specification has it.
    unsafe {
        run(stream, |parts| {
            write_result(schema, schema_of(&parts.columns)?, "schema")
        })
    }
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, array: *mut ArrowArray) -> c_int {
    // SAFETY: as the specification has it.
    unsafe {
        run(stream, |parts| {
            out(array, "array")?;
            let made = match parts.cursor.next()? {
                Some(rows) => array_of(&Arc::new(rows), &parts.tags)?,
                None => ArrowArray {
                    length: 0,
                    null_count: 0,
                    offset: 0,
                    n_buffers: 0,
                    n_children: 0,
                    buffers: null_mut(),
                    children: null_mut(),
                    dictionary: null_mut(),
                    // What says that the stream is at its end.
                    release: None,
                    private_data: null_mut(),
                },
            };
            write_result(array, made, "array")
        })
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: the caller of the callback gives a stream that was not released.
    let parts = unsafe { (*stream).private_data.cast::<StreamState>().as_ref() };
    let message = parts.and_then(|parts| parts.last_error.as_ref());
    message.map_or(null(), |message| message.as_ptr())
}

unsafe extern "C" fn release(stream: *mut ArrowArrayStream) {
    // SAFETY: by the specification this is called once, with a stream whose callback this is.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return;
    };
    if stream.release.take().is_some() {
        // SAFETY: `hw_scan_arrow` made private_data of a box of these parts.
        drop(unsafe { Box::from_raw(stream.private_data.cast::<StreamState>()) });
        stream.private_data = null_mut();
    }
}

/// A scan as a stream of Arrow arrays: struct arrays with the times as `time`, of a scan over the
/// streams of a table then a column of text for each tag key of the table, and then the fields. The
/// stream is the caller's to release by its callback; the handle of the scan may be released
/// before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_scan_arrow(
    scan: hw_scan,
    stream: *mut ArrowArrayStream,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(stream, "stream")?;
        let cursor = handles::get::<Cursor>(scan)?;
        let tags = cursor.tag_keys()?;
        let fields = cursor.fields()?;
        let columns = describe(&tags, fields.iter().map(|(n, t)| (n.as_str(), *t)));
        // Names that cannot be represented there are known at once.
        let checked = schema_of(&columns)?;
        release_checked(checked);
        let parts = Box::new(StreamState {
            cursor,
            tags,
            columns,
            last_error: None,
        });
        let made = ArrowArrayStream {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release),
            private_data: Box::into_raw(parts).cast(),
        };
        write_result(stream, made, "stream")
    })
}

fn release_checked(mut schema: ArrowSchema) {
    if let Some(release) = schema.release {
        // SAFETY: made by `schema_of`, and nobody else has it.
        unsafe { release(&raw mut schema) };
    }
}
