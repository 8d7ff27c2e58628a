//! Rows as Arrow: a struct array whose first child is `time`, followed by tags, if requested, and
//! fields.

use super::{ARROW_FLAG_NULLABLE, ArrowArray, ArrowSchema, TIME, TIME_FORMAT, format_of};
use crate::handles;
use crate::rows::Rows;
use crate::status::{Outcome, guard, hw_error, invalid, out, write_result};
use headwater::{Column, FieldType, Values};
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// A column of a schema.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) format: &'static str,
    pub(super) nullable: bool,
}

/// The columns of rows: time, tags, fields.
pub(super) fn describe<'a>(
    tags: &[String],
    fields: impl IntoIterator<Item = (&'a str, FieldType)>,
) -> Vec<Described> {
    let time = Described {
        name: TIME.into(),
        format: TIME_FORMAT,
        nullable: false,
    };
    let tags = tags.iter().map(|key| Described {
        name: key.clone(),
        format: format_of(FieldType::String),
        nullable: true,
    });
    let fields = fields.into_iter().map(|(name, field_type)| Described {
        name: name.to_owned(),
        format: format_of(field_type),
        nullable: true,
    });
    std::iter::once(time).chain(tags).chain(fields).collect()
}

/// Memory of an exported schema.
struct SchemaParts {
    _format: CString,
    _name: CString,
    children: Box<[*mut ArrowSchema]>,
}

fn text(text: &str) -> Outcome<CString> {
    CString::new(text).map_err(|_| invalid(format!("the name {text:?} contains a NUL byte")))
}

fn schema(
    name: &str,
    format: &str,
    flags: i64,
    children: Vec<ArrowSchema>,
) -> Outcome<ArrowSchema> {
    let (format, name) = (text(format)?, text(name)?);
    let children: Box<[*mut ArrowSchema]> = children
        .into_iter()
        .map(|child| Box::into_raw(Box::new(child)))
        .collect();
    let mut parts = Box::new(SchemaParts {
        children,
        _format: format,
        _name: name,
    });
    Ok(ArrowSchema {
        format: parts._format.as_ptr(),
        name: parts._name.as_ptr(),
        metadata: null(),
        flags,
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    })
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: by the specification this is called once, with a schema whose callback this is: one
    // made here, perhaps moved.
    let Some(schema) = (unsafe { schema.as_mut() }) else {
        return;
    };
    if schema.release.take().is_none() {
        return;
    }
    // SAFETY: `schema` made private_data of a box of these parts, and nobody else frees it.
    let parts = unsafe { Box::from_raw(schema.private_data.cast::<SchemaParts>()) };
    for child in &parts.children {
        // SAFETY: each was made of a box; one that was moved out has no callback any more.
        let mut child = unsafe { Box::from_raw(*child) };
        if let Some(release) = child.release {
            // SAFETY: its own callback, called once.
            unsafe { release(&raw mut *child) };
        }
    }
    schema.private_data = null_mut();
}

/// The schema of rows with these columns.
pub(super) fn schema_of(columns: &[Described]) -> Outcome<ArrowSchema> {
    // Checked first, so that nothing is left behind half made.
    for column in columns {
        text(&column.name)?;
    }
    let children = columns.iter().map(|column| {
        let flags = if column.nullable {
            ARROW_FLAG_NULLABLE
        } else {
            0
        };
        schema(&column.name, column.format, flags, Vec::new())
    });
    schema("", "+s", 0, children.collect::<Outcome<_>>()?)
}

/// Memory of an exported array, its own or shared.
struct ArrayParts {
    buffers: Box<[*const c_void]>,
    children: Box<[*mut ArrowArray]>,
    _rows: Option<Arc<Rows>>,
    _own: Own,
}

/// Buffers that are made for the export, because the layout is another one.
enum Own {
    None,
    Bits { _bits: Vec<u8> },
    Text { offsets: Vec<i32>, bytes: Vec<u8> },
}

fn array(
    length: usize,
    nulls: usize,
    buffers: Vec<*const c_void>,
    children: Vec<ArrowArray>,
    rows: Option<Arc<Rows>>,
    own: Own,
) -> ArrowArray {
    let children: Box<[*mut ArrowArray]> = children
        .into_iter()
        .map(|child| Box::into_raw(Box::new(child)))
        .collect();
    let mut parts = Box::new(ArrayParts {
        buffers: buffers.into(),
        children,
        _rows: rows,
        _own: own,
    });
    ArrowArray {
        length: length as i64,
        null_count: nulls as i64,
        offset: 0,
        n_buffers: parts.buffers.len() as i64,
        n_children: parts.children.len() as i64,
        buffers: parts.buffers.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: by the specification this is called once, with an array whose callback this is: one
    // made here, perhaps moved.
    let Some(array) = (unsafe { array.as_mut() }) else {
        return;
    };
    if array.release.take().is_none() {
        return;
    }
    // SAFETY: `array` made private_data of a box of these parts, and nobody else frees it.
    let parts = unsafe { Box::from_raw(array.private_data.cast::<ArrayParts>()) };
    for child in &parts.children {
        // SAFETY: each was made of a box; one that was moved out has no callback any more.
        let mut child = unsafe { Box::from_raw(*child) };
        if let Some(release) = child.release {
            // SAFETY: its own callback, called once.
            unsafe { release(&raw mut *child) };
        }
    }
    array.private_data = null_mut();
}

/// Texts of one value for all rows, or none at all.
fn repeated(value: Option<&str>, rows: usize) -> Outcome<ArrowArray> {
    let Some(value) = value else {
        let own = Own::Text {
            offsets: vec![0; rows + 1],
            bytes: vec![0; rows.div_ceil(8)],
        };
        // No bit is set: the bitmap and the (empty) bytes may be the same zeros.
        return Ok(text_array(rows, rows, own, true));
    };
    let end = |row: usize| i32::try_from(row * value.len()).ok();
    let offsets = (0..=rows).map(end).collect::<Option<Vec<i32>>>();
    let own = Own::Text {
        offsets: offsets.ok_or_else(|| too_long("a tag"))?,
        bytes: value.as_bytes().repeat(rows),
    };
    Ok(text_array(rows, 0, own, false))
}

fn text_array(rows: usize, nulls: usize, own: Own, all_absent: bool) -> ArrowArray {
    let buffers = match &own {
        Own::Text { offsets, bytes } => {
            let data: *const c_void = bytes.as_ptr().cast();
            let validity = if all_absent { data } else { null() };
            vec![validity, offsets.as_ptr().cast(), data]
        }
        Own::None | Own::Bits { .. } => vec![null(); 3],
    };
    array(rows, nulls, buffers, Vec::new(), None, own)
}

fn too_long(what: &str) -> crate::status::Failure {
    invalid(format!(
        "{what} has more than 2 GiB of text in these rows: use hw_scan_open, or read a shorter range"
    ))
}

fn of_column(rows: &Arc<Rows>, index: usize, column: &Column) -> Outcome<ArrowArray> {
    let view = &rows.views()[index];
    let mut own = Own::None;
    let buffers: Vec<*const c_void> = match column.values() {
        Values::String(text) | Values::Bytes(text) => {
            // Offsets are signed there.
            if text.bytes().len() > i32::MAX as usize {
                return Err(too_long("a field"));
            }
            vec![view.validity.cast(), view.offsets.cast(), view.bytes.cast()]
        }
        Values::Bool(flags) => {
            let byte = |flags: &[bool]| {
                let bits = flags.iter().enumerate();
                bits.fold(0u8, |byte, (bit, flag)| byte | u8::from(*flag) << bit)
            };
            let bits: Vec<u8> = flags.chunks(8).map(byte).collect();
            let data = bits.as_ptr().cast();
            own = Own::Bits { _bits: bits };
            vec![view.validity.cast(), data]
        }
        Values::F64(_) | Values::I64(_) | Values::U64(_) => {
            vec![view.validity.cast(), view.values]
        }
    };
    let keep = Some(Arc::clone(rows));
    Ok(array(
        column.len(),
        view.absent_count,
        buffers,
        Vec::new(),
        keep,
        own,
    ))
}

/// Rows as a struct array; `tags` are given as columns behind the time. The array keeps the rows
/// alive; numbers and texts are not copied.
pub(super) fn array_of(rows: &Arc<Rows>, tags: &[String]) -> Outcome<ArrowArray> {
    let count = rows.times().len();
    let times = vec![null(), rows.times().as_ptr().cast()];
    let keep = Some(Arc::clone(rows));
    let mut children = Dropping(vec![array(count, 0, times, Vec::new(), keep, Own::None)]);
    for key in tags {
        children.0.push(repeated(rows.name().tag(key), count)?);
    }
    for (index, column) in rows.columns().iter().enumerate() {
        children.0.push(of_column(rows, index, column)?);
    }
    let children = std::mem::take(&mut children.0);
    Ok(array(count, 0, vec![null()], children, None, Own::None))
}

/// Arrays that are released when what they were made for fails.
struct Dropping(Vec<ArrowArray>);

impl Drop for Dropping {
    fn drop(&mut self) {
        for array in &mut self.0 {
            // SAFETY: made here, not given to anybody.
            unsafe { release_array(array) };
        }
    }
}

/// Rows as Arrow: a struct array with the times as `time` (timestamp[ns, UTC]) and then the fields.
/// Schema and array are the caller's to release, by their callbacks, and stay valid when the handle
/// of the rows is released; nothing but booleans is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_rows_arrow(
    rows: u64,
    schema: *mut ArrowSchema,
    array: *mut ArrowArray,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(schema, "schema")?;
        out(array, "array")?;
        let rows = handles::get::<Rows>(rows)?;
        let types = rows.columns().iter().map(Column::field_type);
        let fields = rows.names().iter().map(|name| &**name).zip(types);
        let made = schema_of(&describe(&[], fields))?;
        write_result(schema, made, "schema")?;
        match array_of(&rows, &[]) {
            Ok(made) => write_result(array, made, "array"),
            Err(failure) => {
                // SAFETY: just written, and the caller does not take it, since the call fails.
                unsafe { release_schema(schema) };
                Err(failure)
            }
        }
    })
}
