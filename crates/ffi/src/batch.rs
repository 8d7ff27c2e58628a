//! Batches: rows of any number of streams, collected by the caller, written all or nothing.
//!
//! Invariants: what is added is copied at once. A call that fails adds nothing.
//! Concurrency: one call at a time for each batch.

use crate::column::{self, hw_column, hw_value};
use crate::handles::{self, Handled};
use crate::status::{Outcome, guard, hw_error, invalid, lock, out, write_result};
use crate::stream::{Stream, hw_stream};
use crate::text::{hw_str, slice};
use headwater::{Batch, Column, FieldType, StreamRows, Timestamp, Value};
use std::ffi::c_void;
use std::sync::Mutex;

/// A batch to fill and to write. To end with hw_release.
pub type hw_batch = u64;

/// A batch behind a handle.
pub(crate) struct Builder(pub(crate) Mutex<Filling>);

/// A batch while it is filled.
#[derive(Clone, Default)]
pub(crate) struct Filling {
    batch: Batch,
    /// The rows that columns are added to.
    open: Option<StreamRows>,
}

impl Handled for Builder {
    const KIND: &'static str = "a batch";
}

impl Filling {
    fn close(&mut self) -> &mut Batch {
        if let Some(rows) = self.open.take() {
            self.batch.push(rows);
        }
        &mut self.batch
    }

    /// Adds rows that are whole.
    pub(crate) fn add_rows(&mut self, rows: StreamRows) {
        self.close().push(rows);
    }

    /// The batch; this one is empty then, without producer and expiry.
    pub(crate) fn take(&mut self) -> Batch {
        self.close();
        std::mem::take(&mut self.batch)
    }

    fn open(&mut self) -> Outcome<&mut StreamRows> {
        self.open.as_mut().ok_or_else(|| {
            invalid("there are no rows to add a column to: call hw_batch_rows first")
        })
    }

    fn add(&mut self, name: &str, column: Column) -> Outcome<()> {
        let rows = self.open()?;
        if rows.fields.iter().any(|(known, _)| known == name) {
            return Err(invalid(format!(
                "field `{name}` is specified more than once for the same rows"
            )));
        }
        rows.fields.push((name.to_owned(), column));
        Ok(())
    }
}

pub(crate) fn change(
    batch: hw_batch,
    change: impl FnOnce(&mut Filling) -> Outcome<()>,
) -> Outcome<()> {
    let batch = handles::get::<Builder>(batch)?;
    let mut filling = lock(&batch.0)?;
    change(&mut filling)
}

/// An empty batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_new(batch: *mut hw_batch, error: *mut hw_error) -> i32 {
    guard(error, || {
        out(batch, "batch")?;
        let empty = Builder(Mutex::new(Filling::default()));
        write_result(batch, handles::register(empty).0, "batch")
    })
}

/// Another batch with the same content, for instance to write it again when that was HW_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_copy(
    batch: hw_batch,
    copy: *mut hw_batch,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(copy, "copy")?;
        let batch = handles::get::<Builder>(batch)?;
        let content = lock(&batch.0)?.clone();
        write_result(
            copy,
            handles::register(Builder(Mutex::new(content))).0,
            "copy",
        )
    })
}

/// Makes a batch empty, without producer and expiry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_clear(batch: hw_batch, error: *mut hw_error) -> i32 {
    guard(error, || {
        change(batch, |filling| {
            *filling = Filling::default();
            Ok(())
        })
    })
}

/// Begins rows of a stream: their times, ns since 1970, in any order. Columns that are added next
/// are of these rows; a field without a column is absent in all of them. The rows of one stream may
/// come in several parts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_rows(
    batch: hw_batch,
    stream: hw_stream,
    times_ns: *const i64,
    row_count: usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let stream = handles::get::<Stream>(stream)?;
        let times = slice(times_ns, row_count, "times_ns")?.to_vec();
        change(batch, |filling| {
            filling.close();
            let mut rows = StreamRows::new(stream.name().clone());
            rows.times = times;
            filling.open = Some(rows);
            Ok(())
        })
    })
}

/// Adds a column of any type to the rows begun last; it has as many rows as they.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_column(
    batch: hw_batch,
    column: *const hw_column,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let column = slice(column, 1, "column")?;
        change(batch, |filling| {
            let rows = filling.open()?.times.len();
            for column in column {
                let (name, column) = column.read(rows)?;
                filling.add(&name, column)?;
            }
            Ok(())
        })
    })
}

/// Adds a column of numbers or booleans.
fn add_fixed(
    batch: hw_batch,
    field: hw_str,
    field_type: FieldType,
    values: *const c_void,
    validity: *const u8,
) -> Outcome<()> {
    let name = field.read("field")?;
    change(batch, |filling| {
        let rows = filling.open()?.times.len();
        let presence = column::validity(validity, rows, name)?;
        let column = column::fixed(name, field_type, values, presence, rows)?;
        filling.add(name, column)
    })
}

/// Adds a column of doubles to the rows begun last; validity as in hw_column, NULL = every row has
/// a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_f64(
    batch: hw_batch,
    field: hw_str,
    values: *const f64,
    validity: *const u8,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        add_fixed(batch, field, FieldType::F64, values.cast(), validity)
    })
}

/// As hw_batch_f64, of signed integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_i64(
    batch: hw_batch,
    field: hw_str,
    values: *const i64,
    validity: *const u8,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        add_fixed(batch, field, FieldType::I64, values.cast(), validity)
    })
}

/// As hw_batch_f64, of unsigned integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_u64(
    batch: hw_batch,
    field: hw_str,
    values: *const u64,
    validity: *const u8,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        add_fixed(batch, field, FieldType::U64, values.cast(), validity)
    })
}

/// As hw_batch_f64, of booleans: a byte a row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_bool(
    batch: hw_batch,
    field: hw_str,
    values: *const u8,
    validity: *const u8,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        add_fixed(batch, field, FieldType::Bool, values.cast(), validity)
    })
}

/// Adds a column of text: offsets and bytes as in hw_column. value_type is HW_STRING or HW_BYTES.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_text(
    batch: hw_batch,
    field: hw_str,
    value_type: i32,
    offsets: *const u32,
    bytes: *const u8,
    validity: *const u8,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let name = field.read("field")?;
        let field_type = column::field_type(value_type, name)?;
        if !matches!(field_type, FieldType::String | FieldType::Bytes) {
            return Err(invalid(format!(
                "{name}: expected HW_STRING or HW_BYTES, found {value_type}"
            )));
        }
        change(batch, |filling| {
            let rows = filling.open()?.times.len();
            let presence = column::validity(validity, rows, name)?;
            let offsets = slice(offsets, rows + 1, name)?;
            let column = column::text(name, field_type, offsets, bytes, presence)?;
            filling.add(name, column)
        })
    })
}

/// A value and its field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_field_value {
    /// The field.
    pub field: hw_str,
    /// The value.
    pub value: hw_value,
}

/// Adds one row of a stream: for programs that have their events one by one. HW_INVALID when a
/// field has values of another type in this batch; the row is not added then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_row(
    batch: hw_batch,
    stream: hw_stream,
    time_ns: i64,
    values: *const hw_field_value,
    value_count: usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let stream = handles::get::<Stream>(stream)?;
        let values = slice(values, value_count, "values")?
            .iter()
            .map(|v| {
                let field = v.field.read("field")?;
                Ok((field, v.value.read(field)?))
            })
            .collect::<Outcome<Vec<(&str, Value)>>>()?;
        change(batch, |filling| {
            let rows = filling.close().stream(stream.name());
            rows.row(time_ns, values)
                .map_err(|e| invalid(e.to_string()))
        })
    })
}

/// Lets every value of the batch end at an instant, ns since 1970: from then on no reader finds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_expire_at(
    batch: hw_batch,
    at_ns: i64,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        change(batch, |filling| {
            filling.batch.expire_at(Timestamp::from_nanos(at_ns));
            Ok(())
        })
    })
}

/// Numbers the batch, so that writing it again after an error or a restart stores it once: the
/// numbers of a producer rise from batch to batch, and one number has one content. The name is 1 to
/// 255 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_set_producer(
    batch: hw_batch,
    name: hw_str,
    number: u64,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let name = name.read("name")?;
        change(batch, |filling| {
            filling.batch.set_producer(name, number);
            Ok(())
        })
    })
}

/// Lets the batch be stored only as a whole: when a row is refused, none is stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_batch_require_all(batch: hw_batch, error: *mut hw_error) -> i32 {
    guard(error, || {
        change(batch, |filling| {
            filling.batch.require_all();
            Ok(())
        })
    })
}
