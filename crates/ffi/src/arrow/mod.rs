//! The Arrow C data interface: rows to and from every library that knows Arrow, without a line of
//! ours in it.
//!
//! Source: the Apache Arrow specification, "The Arrow C data interface" and "The Arrow C stream
//! interface". The structs are those of the specification; the header declares them under the
//! guards it demands.
//!
//! Invariants: an exported structure owns what it points to, together with others, until its
//! release callback is called; children may be moved out of their parent and released by
//! themselves. An imported structure is copied, and stays the caller's.

mod export;
mod import;
mod stream;

pub use export::hw_rows_arrow;
pub use import::hw_batch_arrow;
pub use stream::hw_scan_arrow;

use std::ffi::{c_char, c_int, c_void};

/// Type and name of a column.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "the specification says what each is")]
pub struct ArrowSchema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut ArrowSchema,
    pub dictionary: *mut ArrowSchema,
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    pub private_data: *mut c_void,
}

/// Values of a column.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "the specification says what each is")]
pub struct ArrowArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    pub private_data: *mut c_void,
}

/// Rows that come some at a time.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "the specification says what each is")]
pub struct ArrowArrayStream {
    pub get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    pub get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    pub private_data: *mut c_void,
}

/// A column may hold absent values.
const ARROW_FLAG_NULLABLE: i64 = 2;
/// The name of the column of times.
const TIME: &str = "time";
/// Instants in nanoseconds, UTC.
const TIME_FORMAT: &str = "tsn:UTC";

/// The format string of a type of ours.
fn format_of(field_type: headwater::FieldType) -> &'static str {
    use headwater::FieldType;
    match field_type {
        FieldType::F64 => "g",
        FieldType::I64 => "l",
        FieldType::U64 => "L",
        FieldType::Bool => "b",
        FieldType::String => "u",
        FieldType::Bytes => "z",
    }
}
