//! Arrays of numpy, and values of single events, as the caller hands them in.
//!
//! Invariant: memory of an array is borrowed only as long as the array is owned here, and every
//! array has as many rows as there are times.

use crate::arrow_columns;
use crate::errors::{Outcome, Problem};
use crate::input::{Field, Source, TableRows, Tag, Tags, Text};
use arrow_array::{Array, ArrayRef};
use headwater::{FieldType, Value};
use numpy::{PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};
use std::borrow::Cow;

/// A field: its name, its kind, units of a row (for fixed widths), the array, and the rows without
/// a value.
pub(crate) type FieldArray<'py> = (
    String,
    String,
    usize,
    Bound<'py, PyAny>,
    Option<PyReadonlyArray1<'py, u8>>,
);
/// A tag by row: its key, a code for each row, the values of the codes.
pub(crate) type TagArray<'py> = (String, PyReadonlyArray1<'py, i32>, Vec<String>);
/// Data of a field: an array whose memory is borrowed for the life of the value.
pub(crate) enum FieldData<'py> {
    F64(PyReadonlyArray1<'py, f64>),
    I64(PyReadonlyArray1<'py, i64>),
    U64(PyReadonlyArray1<'py, u64>),
    Bool(PyReadonlyArray1<'py, u8>),
    Text(FieldType, Text),
    Utf32(PyReadonlyArray1<'py, u32>, usize),
    Fixed(PyReadonlyArray1<'py, u8>, usize),
    Arrow(ArrayRef),
}

pub(crate) fn slice<'a, T: numpy::Element>(array: &'a PyReadonlyArray1<'_, T>) -> Outcome<&'a [T]> {
    array
        .as_slice()
        .map_err(|e| Problem::invalid(format!("expected a contiguous array: {e}")))
}

impl<'py> FieldData<'py> {
    fn new(field: &FieldArray<'py>) -> Outcome<FieldData<'py>> {
        let (name, kind, width, array, absent) = field;
        Ok(match kind.as_str() {
            "f64" => FieldData::F64(array.extract()?),
            "i64" => FieldData::I64(array.extract()?),
            "u64" => FieldData::U64(array.extract()?),
            "bool" => FieldData::Bool(array.extract()?),
            "utf32" => FieldData::Utf32(array.extract()?, *width),
            "fixed" => FieldData::Fixed(array.extract()?, *width),
            "arrow" => FieldData::Arrow(arrow_columns::single(name, array)?),
            "string" => FieldData::Text(FieldType::String, objects(name, array, absent, true)?),
            "bytes" => FieldData::Text(FieldType::Bytes, objects(name, array, absent, false)?),
            other => return Err(Problem::invalid(format!("unknown column kind {other}"))),
        })
    }

    fn source(&self) -> Outcome<Source<'_>> {
        Ok(match self {
            FieldData::F64(v) => Source::F64(slice(v)?),
            FieldData::I64(v) => Source::I64(slice(v)?),
            FieldData::U64(v) => Source::U64(slice(v)?),
            FieldData::Bool(v) => Source::Bool(slice(v)?),
            FieldData::Text(kind, text) => Source::Text(*kind, text),
            FieldData::Utf32(v, width) => Source::Utf32(slice(v)?, *width),
            FieldData::Fixed(v, width) => Source::Fixed(slice(v)?, *width),
            FieldData::Arrow(v) => Source::Arrow(v),
        })
    }

    fn rows(&self) -> usize {
        match self {
            FieldData::F64(v) => v.len(),
            FieldData::I64(v) => v.len(),
            FieldData::U64(v) => v.len(),
            FieldData::Bool(v) => v.len(),
            FieldData::Text(_, text) => text.ends.len(),
            FieldData::Utf32(v, width) => v.len() / (*width).max(1),
            FieldData::Fixed(v, width) => v.len() / (*width).max(1),
            FieldData::Arrow(v) => v.len(),
        }
    }
}

/// The text of an array of `str` or of `bytes`.
pub(crate) fn objects(
    name: &str,
    array: &Bound<'_, PyAny>,
    absent: &Option<PyReadonlyArray1<'_, u8>>,
    strings: bool,
) -> Outcome<Text> {
    let py = array.py();
    let array: PyReadonlyArray1<'_, Py<PyAny>> = array.extract()?;
    let absent = absent.as_ref().map(slice).transpose()?;
    let mut out = Text::default();
    for (row, value) in slice(&array)?.iter().enumerate() {
        if absent.and_then(|a| a.get(row)).is_some_and(|a| *a != 0) {
            out.push(b"");
            continue;
        }
        let value = value.bind(py);
        if let (true, Ok(text)) = (strings, value.cast::<PyString>()) {
            out.push(text.to_str()?.as_bytes());
        } else if let (false, Ok(bytes)) = (strings, value.cast::<PyBytes>()) {
            out.push(bytes.as_bytes());
        } else {
            let expected = if strings { "str" } else { "bytes" };
            let found = value.get_type().name()?.to_string();
            return Err(Problem::invalid(format!(
                "field `{name}`, row {row}: expected {expected}, found {found}"
            )));
        }
    }
    Ok(out)
}

/// One value of an event.
pub(crate) fn value(name: &str, object: &Bound<'_, PyAny>) -> Outcome<Value> {
    if let Ok(v) = object.cast::<PyBool>() {
        return Ok(Value::Bool(v.is_true()));
    }
    if object.cast::<PyInt>().is_ok() {
        return match object.extract::<i64>() {
            Ok(v) => Ok(Value::I64(v)),
            Err(_) => object
                .extract::<u64>()
                .map(Value::U64)
                .map_err(|_| Problem::invalid(format!("`{name}`: an integer beyond 64 bits"))),
        };
    }
    if let Ok(v) = object.cast::<PyFloat>() {
        return Ok(Value::F64(v.value()));
    }
    if let Ok(v) = object.cast::<PyString>() {
        return Ok(Value::String(v.to_str()?.to_owned()));
    }
    if let Ok(v) = object.cast::<PyBytes>() {
        return Ok(Value::Bytes(v.as_bytes().to_vec()));
    }
    let found = object.get_type().name()?.to_string();
    Err(Problem::invalid(format!(
        "`{name}`: expected a number, bool, str or bytes, found {found}"
    )))
}

/// Holds the arrays of one call while its rows are written.
pub(crate) struct Arrays<'py> {
    times: PyReadonlyArray1<'py, i64>,
    fields: Vec<FieldArray<'py>>,
    held: Vec<FieldData<'py>>,
    tags: Vec<TagArray<'py>>,
}

impl<'py> Arrays<'py> {
    pub(crate) fn new(
        times: PyReadonlyArray1<'py, i64>,
        fields: Vec<FieldArray<'py>>,
        tags: Vec<TagArray<'py>>,
    ) -> Outcome<Arrays<'py>> {
        let held: Vec<FieldData<'py>> =
            fields.iter().map(FieldData::new).collect::<Outcome<_>>()?;
        let rows = times.len();
        let check = |what: &str, name: &str, found: usize| {
            if found == rows {
                return Ok(());
            }
            Err(Problem::invalid(format!(
                "{what} `{name}` has {found} rows, time has {rows}: all must have the same length"
            )))
        };
        for ((name, _, _, _, absent), held) in fields.iter().zip(&held) {
            // A fixed width of 0 has no units to count.
            let no_width = matches!(held, FieldData::Utf32(_, 0) | FieldData::Fixed(_, 0));
            if !no_width {
                check("field", name, held.rows())?;
            }
            if let Some(absent) = absent {
                check("the mask of field", name, absent.len())?;
            }
        }
        for (key, codes, _) in &tags {
            check("tag", key, codes.len())?;
        }
        Ok(Arrays {
            times,
            fields,
            held,
            tags,
        })
    }

    /// The rows, borrowed.
    pub(crate) fn part(&self, table: String, fixed: Tags) -> Outcome<TableRows<'_>> {
        let mut fields = Vec::with_capacity(self.fields.len());
        for ((name, _, _, _, absent), held) in self.fields.iter().zip(&self.held) {
            fields.push(Field {
                name: name.clone(),
                source: held.source()?,
                absent: absent.as_ref().map(slice).transpose()?,
            });
        }
        let mut tags = Vec::with_capacity(self.tags.len());
        for (key, codes, values) in &self.tags {
            tags.push(Tag {
                key: key.clone(),
                codes: Cow::Borrowed(slice(codes)?),
                values: values.clone(),
            });
        }
        Ok(TableRows {
            table,
            fixed,
            tags,
            times: Cow::Borrowed(slice(&self.times)?),
            fields,
        })
    }
}
