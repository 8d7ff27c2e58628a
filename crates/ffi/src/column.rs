//! Columns and single values at the border.
//!
//! Invariants: incoming values are copied, and absent rows are blanked, so that columns of the
//! engine are well-formed whatever the caller's memory contains there. Outgoing pointers lead into
//! columns that the result keeps.
//! Failure: `HW_INVALID` with the field's name.

use crate::status::{Outcome, invalid};
use crate::text::{hw_str, pointer, slice};
use headwater::{Bitmap, Column, FieldType, Value, Values, VarBytes};
use std::ffi::c_void;

/// Doubles: 8 bytes a row.
pub const HW_F64: i32 = 1;
/// Signed integers: 8 bytes a row.
pub const HW_I64: i32 = 2;
/// Unsigned integers: 8 bytes a row.
pub const HW_U64: i32 = 3;
/// Booleans: one byte a row, 0 or 1; what is not 0 is taken as true.
pub const HW_BOOL: i32 = 4;
/// UTF-8 text: offsets and bytes.
pub const HW_STRING: i32 = 5;
/// Bytes of any content: offsets and bytes.
pub const HW_BYTES: i32 = 6;

pub(crate) fn field_type(number: i32, what: &str) -> Outcome<FieldType> {
    u8::try_from(number)
        .ok()
        .and_then(FieldType::from_number)
        .ok_or_else(|| {
            invalid(format!(
                "{what}: expected a type HW_F64 (1) to HW_BYTES (6), found {number}"
            ))
        })
}

/// The values of a field, one for each row of its rows.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_column {
    /// The field.
    pub name: hw_str,
    /// HW_F64 …
    pub value_type: i32,
    /// Rows without a value. Not looked at in columns to write.
    pub absent_count: usize,
    /// A bit for each row, the lowest of the first byte first: 1 = there is a value. NULL = every
    /// row has one.
    pub validity: *const u8,
    /// HW_F64, HW_I64, HW_U64: 8 bytes a row; HW_BOOL: 1 byte a row. Else NULL. The values of
    /// absent rows mean nothing.
    pub values: *const c_void,
    /// HW_STRING, HW_BYTES: rows + 1 numbers; row i is the bytes from number i to number i + 1.
    /// Else NULL.
    pub offsets: *const u32,
    /// HW_STRING, HW_BYTES: the bytes of all rows. Else NULL.
    pub bytes: *const u8,
}

/// A bitmap of the caller's: `None` when every row is present.
pub(crate) fn validity(data: *const u8, rows: usize, what: &str) -> Outcome<Option<Bitmap>> {
    if data.is_null() {
        return Ok(None);
    }
    let bytes = slice(data, rows.div_ceil(8), what)?;
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let bitmap = Bitmap::from_words(words.collect(), rows);
    Ok(bitmap.filter(|bits| bits.count_ones() != rows))
}

/// A column of numbers or booleans, copied.
pub(crate) fn fixed(
    what: &str,
    field_type: FieldType,
    values: *const c_void,
    presence: Option<Bitmap>,
    rows: usize,
) -> Outcome<Column> {
    fn copied<T: Copy + Default, U>(
        what: &str,
        values: *const c_void,
        presence: &Option<Bitmap>,
        rows: usize,
        convert: impl Fn(T) -> U,
    ) -> Outcome<Vec<U>> {
        let values = slice(values.cast::<T>(), rows, what)?;
        let copied = values
            .iter()
            .enumerate()
            .map(|(row, value)| match presence {
                Some(bits) if !bits.get(row) => convert(T::default()),
                _ => convert(*value),
            });
        Ok(copied.collect())
    }
    let values = match field_type {
        FieldType::F64 => Values::F64(copied(what, values, &presence, rows, |v: f64| v)?),
        FieldType::I64 => Values::I64(copied(what, values, &presence, rows, |v: i64| v)?),
        FieldType::U64 => Values::U64(copied(what, values, &presence, rows, |v: u64| v)?),
        FieldType::Bool => Values::Bool(copied(what, values, &presence, rows, |v: u8| v != 0)?),
        FieldType::String | FieldType::Bytes => {
            return Err(invalid(format!(
                "{what}: text needs offsets and bytes, not values"
            )));
        }
    };
    column(what, values, presence)
}

/// A column of text or bytes, copied; `offset` gives the beginning of a row, and behind the last
/// row its end.
pub(crate) fn text(
    what: &str,
    field_type: FieldType,
    offsets: &[u32],
    bytes: *const u8,
    presence: Option<Bitmap>,
) -> Outcome<Column> {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
        return Err(invalid(format!(
            "{what}: expected rows + 1 offsets, found none"
        )));
    };
    if !offsets.is_sorted() {
        return Err(invalid(format!("{what}: offsets must not decrease")));
    }
    let bytes = slice(bytes, *last as usize, what)?;
    let part = |from: u32, to: u32| &bytes[from as usize..to as usize];
    let values = match &presence {
        None => {
            let ends = offsets[1..].iter().map(|end| end - first).collect();
            VarBytes::from_parts(ends, part(*first, *last).to_vec())
                .ok_or_else(|| invalid(format!("{what}: offsets must not decrease")))?
        }
        Some(bits) => {
            let mut values = VarBytes::new();
            for (row, ends) in offsets.windows(2).enumerate() {
                let is_present = bits.get(row);
                values.push(if is_present {
                    part(ends[0], ends[1])
                } else {
                    b""
                });
            }
            values
        }
    };
    let values = if field_type == FieldType::String {
        Values::String(values)
    } else {
        Values::Bytes(values)
    };
    column(what, values, presence)
}

fn column(what: &str, values: Values, presence: Option<Bitmap>) -> Outcome<Column> {
    Column::from_parts(values, presence).ok_or_else(|| {
        invalid(format!(
            "{what}: expected text in UTF-8 (use HW_BYTES for other bytes)"
        ))
    })
}

impl hw_column {
    /// The column, copied, and its name.
    pub(crate) fn read(&self, rows: usize) -> Outcome<(String, Column)> {
        let name = self.name.read("field name")?;
        let what = format!("field `{name}`");
        let field_type = field_type(self.value_type, &what)?;
        let presence = validity(self.validity, rows, &what)?;
        let column = match field_type {
            FieldType::String | FieldType::Bytes => {
                let offsets = slice(self.offsets, rows + 1, &what)?;
                text(&what, field_type, offsets, self.bytes, presence)?
            }
            _ => fixed(&what, field_type, self.values, presence, rows)?,
        };
        Ok((name.to_owned(), column))
    }
}

/// One value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_value {
    /// HW_F64 …: says which of the following counts. 0 = no value.
    pub value_type: i32,
    /// HW_BOOL: 0 or 1.
    pub boolean: u8,
    /// The value of HW_F64.
    pub f64: f64,
    /// The value of HW_I64.
    pub i64: i64,
    /// The value of HW_U64.
    pub u64: u64,
    /// HW_STRING, HW_BYTES.
    pub text: hw_str,
}

impl hw_value {
    pub(crate) const NONE: hw_value = hw_value {
        value_type: 0,
        boolean: 0,
        f64: 0.0,
        i64: 0,
        u64: 0,
        text: hw_str::EMPTY,
    };

    /// A value that points into `value`, where that is text.
    pub(crate) fn of(value: &Value) -> hw_value {
        let mut out = hw_value::NONE;
        match value {
            Value::F64(v) => (out.value_type, out.f64) = (HW_F64, *v),
            Value::I64(v) => (out.value_type, out.i64) = (HW_I64, *v),
            Value::U64(v) => (out.value_type, out.u64) = (HW_U64, *v),
            Value::Bool(v) => (out.value_type, out.boolean) = (HW_BOOL, u8::from(*v)),
            Value::String(v) => (out.value_type, out.text) = (HW_STRING, hw_str::of(v)),
            Value::Bytes(v) => (out.value_type, out.text) = (HW_BYTES, hw_str::of_bytes(v)),
        }
        out
    }

    /// The value, copied.
    pub(crate) fn read(&self, what: &str) -> Outcome<Value> {
        Ok(match field_type(self.value_type, what)? {
            FieldType::F64 => Value::F64(self.f64),
            FieldType::I64 => Value::I64(self.i64),
            FieldType::U64 => Value::U64(self.u64),
            FieldType::Bool => Value::Bool(self.boolean != 0),
            FieldType::String => Value::String(self.text.read(what)?.to_owned()),
            FieldType::Bytes => Value::Bytes(self.text.bytes(what)?.to_vec()),
        })
    }
}

/// Memory of a result's column besides the column: words and offsets in the layout of the border.
pub(crate) struct Layout {
    validity: Option<Vec<u64>>,
    offsets: Option<Vec<u32>>,
}

impl Layout {
    pub(crate) fn of(column: &Column) -> Layout {
        let words = |bits: &Bitmap| bits.words().iter().map(|w| w.to_le()).collect();
        let offsets = match column.values() {
            Values::String(text) | Values::Bytes(text) => {
                let mut offsets = Vec::with_capacity(text.len() + 1);
                offsets.push(0);
                offsets.extend_from_slice(text.ends());
                Some(offsets)
            }
            _ => None,
        };
        Layout {
            validity: column.presence().map(words),
            offsets,
        }
    }

    /// False when nothing points to it.
    pub(crate) fn is_referenced(&self) -> bool {
        self.validity.is_some() || self.offsets.is_some()
    }

    /// The column as the caller sees it, as long as column, name and layout live and do not change.
    pub(crate) fn view(&self, name: &str, column: &Column) -> hw_column {
        let none = std::ptr::null();
        let (values, bytes): (*const c_void, *const u8) = match column.values() {
            Values::F64(v) => (pointer(v).cast(), none),
            Values::I64(v) => (pointer(v).cast(), none),
            Values::U64(v) => (pointer(v).cast(), none),
            Values::Bool(v) => (pointer(v).cast(), none),
            Values::String(v) | Values::Bytes(v) => (std::ptr::null(), pointer(v.bytes())),
        };
        hw_column {
            name: hw_str::of(name),
            value_type: i32::from(column.field_type() as u8),
            absent_count: column.len() - column.present_count(),
            validity: self
                .validity
                .as_ref()
                .map_or(std::ptr::null(), |words| pointer(words).cast()),
            values,
            offsets: self
                .offsets
                .as_ref()
                .map_or(std::ptr::null(), |offsets| pointer(offsets)),
            bytes,
        }
    }
}
