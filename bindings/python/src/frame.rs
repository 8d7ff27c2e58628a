//! Rows in memory, and their way to numpy and Arrow.
//!
//! Invariants: a frame never changes. Arrow consumers get its buffers without a copy; numpy arrays
//! use buffers without other references directly, and copies otherwise, so that every numpy array
//! may be written to.

use crate::columns::internal;
use crate::errors::Outcome;
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, TimestampNanosecondType, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, PrimitiveArray, RecordBatch, RecordBatchIterator, RecordBatchReader,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, SchemaRef};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyString};
use std::collections::HashMap;
use std::sync::Arc;

/// Distinct texts that share one Python object in a column.
const SHARED_TEXTS: usize = 4096;

/// Rows in memory, by columns: the native half of `headwater.Frame`.
#[pyclass(frozen, module = "headwater._native")]
pub(crate) struct Frame {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Frame {
    pub(crate) fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Frame {
        Frame { schema, batches }
    }

    /// Frame of one batch.
    pub(crate) fn of(batch: RecordBatch) -> Frame {
        Frame {
            schema: batch.schema(),
            batches: vec![batch],
        }
    }
}

#[pymethods]
impl Frame {
    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.schema.fields();
        fields.iter().map(|f| f.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Copies of the columns, in the form from which numpy arrays are created.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        to_numpy(py, &self.schema, self.batches.clone())
    }

    /// An Arrow stream of the rows, without a copy.
    fn __arrow_c_stream__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        stream_capsule(py, Box::new(reader))
    }
}

/// A capsule with an Arrow stream.
pub(crate) fn stream_capsule(
    py: Python<'_>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let stream = FFI_ArrowArrayStream::new(reader);
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

/// For each column its name, its kind, its values, and its absent rows: `(name, kind, values,
/// absent | None)`. A tag's values are `(codes, dictionary)`.
pub(crate) fn to_numpy<'py>(
    py: Python<'py>,
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
) -> PyResult<Bound<'py, PyList>> {
    let mut by_column: Vec<Vec<ArrayRef>> = vec![Vec::new(); schema.fields().len()];
    for batch in batches {
        let (_, columns, _) = batch.into_parts();
        for (parts, column) in by_column.iter_mut().zip(columns) {
            parts.push(column);
        }
    }
    let out = PyList::empty(py);
    for (field, parts) in schema.fields().iter().zip(by_column) {
        let absent = absent(py, &parts);
        let (kind, values) = match field.data_type() {
            DataType::Timestamp(..) => ("time", numbers::<TimestampNanosecondType>(py, parts)),
            DataType::Float64 => ("f64", numbers::<Float64Type>(py, parts)),
            DataType::Int64 => ("i64", numbers::<Int64Type>(py, parts)),
            DataType::UInt64 => ("u64", numbers::<UInt64Type>(py, parts)),
            DataType::Boolean => {
                let values: Vec<bool> = parts
                    .iter()
                    .flat_map(|p| p.as_boolean().values().iter())
                    .collect();
                ("bool", PyArray1::from_vec(py, values).into_any())
            }
            DataType::Utf8 => ("string", objects(py, &parts)?),
            DataType::Binary => ("bytes", objects(py, &parts)?),
            DataType::Dictionary(..) => ("tag", tag(py, parts)?),
            other => return Err(internal(format!("a column of type {other}")).into()),
        };
        out.append((field.name(), kind, values, absent))?;
    }
    Ok(out)
}

/// The absent rows; `None` if all rows have a value.
fn absent<'py>(py: Python<'py>, parts: &[ArrayRef]) -> Option<Bound<'py, PyArray1<bool>>> {
    if parts.iter().all(|p| p.null_count() == 0) {
        return None;
    }
    let mut out: Vec<bool> = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
    for part in parts {
        match part.nulls().map(NullBuffer::iter) {
            None => out.resize(out.len() + part.len(), false),
            Some(present) => out.extend(present.map(|p| !p)),
        }
    }
    Some(PyArray1::from_vec(py, out))
}

/// Values of a primitive array: its own vector if there are no other references.
fn vector<T: ArrowPrimitiveType>(array: ArrayRef) -> Vec<T::Native> {
    let own: PrimitiveArray<T> = array.as_primitive::<T>().clone();
    drop(array);
    let (_, values, _) = own.into_parts();
    let (len, whole) = (values.len(), values.inner().ptr_offset() == 0);
    if !whole {
        return values.to_vec();
    }
    match values.into_inner().into_vec::<T::Native>() {
        Ok(mut vector) => {
            vector.truncate(len);
            vector
        }
        Err(shared) => shared.typed_data::<T::Native>().to_vec(),
    }
}

fn numbers<'py, T: ArrowPrimitiveType>(py: Python<'py>, parts: Vec<ArrayRef>) -> Bound<'py, PyAny>
where
    T::Native: numpy::Element,
{
    let mut vectors = parts.into_iter().map(vector::<T>);
    let mut all = vectors.next().unwrap_or_default();
    for more in vectors {
        all.extend_from_slice(&more);
    }
    PyArray1::from_vec(py, all).into_any()
}

/// Text as Python objects, one for each row; equal ones are one object as long as there are few.
fn objects<'py, 'a>(py: Python<'py>, parts: &'a [ArrayRef]) -> PyResult<Bound<'py, PyAny>> {
    let mut out: Vec<Py<PyAny>> = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
    let mut known: HashMap<&'a [u8], Py<PyAny>> = HashMap::new();
    let mut put = |value: Option<&'a [u8]>, make: &dyn Fn() -> Py<PyAny>| {
        let Some(value) = value else {
            return py.None();
        };
        if let Some(object) = known.get(value) {
            return object.clone_ref(py);
        }
        let object = make();
        if known.len() < SHARED_TEXTS {
            known.insert(value, object.clone_ref(py));
        }
        object
    };
    for part in parts {
        if *part.data_type() == DataType::Utf8 {
            for value in part.as_string::<i32>() {
                let make = || {
                    PyString::new(py, value.unwrap_or_default())
                        .into_any()
                        .unbind()
                };
                out.push(put(value.map(str::as_bytes), &make));
            }
        } else {
            for value in part.as_binary::<i32>() {
                let make = || {
                    PyBytes::new(py, value.unwrap_or_default())
                        .into_any()
                        .unbind()
                };
                out.push(put(value, &make));
            }
        }
    }
    Ok(PyArray1::from_vec(py, out).into_any())
}

/// Codes, -1 for absent values, and the values of the codes. All parts have the same dictionary.
fn tag<'py>(py: Python<'py>, parts: Vec<ArrayRef>) -> PyResult<Bound<'py, PyAny>> {
    let mut codes: Vec<i32> = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
    let mut values: Vec<String> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let part = part.as_dictionary::<Int32Type>();
        codes.extend(part.keys().iter().map(|key| key.unwrap_or(-1)));
        if at == 0 {
            let dictionary = part.values().as_string::<i32>().iter();
            values = dictionary
                .map(|v| v.unwrap_or_default().to_owned())
                .collect();
        }
    }
    let values: Outcome<Bound<'py, PyList>> = PyList::new(py, values).map_err(Into::into);
    let pair = (PyArray1::from_vec(py, codes), values?).into_pyobject(py)?;
    Ok(pair.into_any())
}
