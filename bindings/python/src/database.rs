//! The database as Python's `headwater.Database` uses it, and the tickets of writes on their way.

use crate::arrow_in;
use crate::ask;
use crate::care::backup_report;
use crate::errors::{Outcome, Problem};
use crate::frame::Frame;
use crate::input::{Field, Part, Source, Tag, Text};
use crate::options::{options, seconds};
use crate::scan::{Asked, Query};
use crate::shared::{Ends, OfProcess, Opened, Shared};
use crate::write::{Done, How, RefusedRow, Writer};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader};
use headwater::{
    AggregateSpec, Bins, ClosedRange, Comparison, DeleteSpec, Duplicates, FieldSpec, FieldType,
    Filter, Level, Reader, ScanSpec, StreamName, StreamRows, TableChange, TableSpec, Value,
};
use numpy::{PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pairs of tag and value.
type Tags = Vec<(String, String)>;
/// A field: its name, its kind, units of a row (for fixed widths), the array, and which rows have no value.
type FieldArray<'py> = (
    String,
    String,
    usize,
    Bound<'py, PyAny>,
    Option<PyReadonlyArray1<'py, u8>>,
);
/// A tag by row: its key, a code for each row, the values that codes stand for.
type TagArray<'py> = (String, PyReadonlyArray1<'py, i32>, Vec<String>);
/// A condition: field, operator, value.
type Condition<'py> = (String, String, Bound<'py, PyAny>);
/// How to write: when values expire, the producer and its number, all or nothing.
type HowTuple = (Option<i64>, Option<(String, u64)>, bool);
/// Rows stored, rows refused, the first refused ones, whether the batch had been stored before.
type DoneTuple = (u64, u64, Vec<RefusedRow>, bool);

fn how((expires_at, producer, require_all): HowTuple) -> How {
    How {
        expires_at,
        producer,
        require_all,
    }
}

fn done(done: Done) -> DoneTuple {
    (
        done.accepted,
        done.refused_count,
        done.refused,
        done.repeated,
    )
}

/// An array whose memory is borrowed as long as this lives.
enum Held<'py> {
    F64(PyReadonlyArray1<'py, f64>),
    I64(PyReadonlyArray1<'py, i64>),
    U64(PyReadonlyArray1<'py, u64>),
    Bool(PyReadonlyArray1<'py, u8>),
    Text(FieldType, Text),
    Utf32(PyReadonlyArray1<'py, u32>, usize),
    Fixed(PyReadonlyArray1<'py, u8>, usize),
    Arrow(ArrayRef),
}

fn slice<'a, T: numpy::Element>(array: &'a PyReadonlyArray1<'_, T>) -> Outcome<&'a [T]> {
    array
        .as_slice()
        .map_err(|e| Problem::invalid(format!("expected a contiguous array: {e}")))
}

impl<'py> Held<'py> {
    fn new(field: &FieldArray<'py>) -> Outcome<Held<'py>> {
        let (name, kind, width, array, absent) = field;
        Ok(match kind.as_str() {
            "f64" => Held::F64(array.extract()?),
            "i64" => Held::I64(array.extract()?),
            "u64" => Held::U64(array.extract()?),
            "bool" => Held::Bool(array.extract()?),
            "utf32" => Held::Utf32(array.extract()?, *width),
            "fixed" => Held::Fixed(array.extract()?, *width),
            "arrow" => Held::Arrow(arrow_in::single(name, array)?),
            "string" => Held::Text(FieldType::String, objects(name, array, absent, true)?),
            "bytes" => Held::Text(FieldType::Bytes, objects(name, array, absent, false)?),
            other => return Err(Problem::invalid(format!("a column of kind {other}"))),
        })
    }

    fn source(&self) -> Outcome<Source<'_>> {
        Ok(match self {
            Held::F64(v) => Source::F64(slice(v)?),
            Held::I64(v) => Source::I64(slice(v)?),
            Held::U64(v) => Source::U64(slice(v)?),
            Held::Bool(v) => Source::Bool(slice(v)?),
            Held::Text(kind, text) => Source::Text(*kind, text),
            Held::Utf32(v, width) => Source::Utf32(slice(v)?, *width),
            Held::Fixed(v, width) => Source::Fixed(slice(v)?, *width),
            Held::Arrow(v) => Source::Arrow(v),
        })
    }

    fn rows(&self) -> usize {
        match self {
            Held::F64(v) => v.len(),
            Held::I64(v) => v.len(),
            Held::U64(v) => v.len(),
            Held::Bool(v) => v.len(),
            Held::Text(_, text) => text.ends.len(),
            Held::Utf32(v, width) => v.len() / (*width).max(1),
            Held::Fixed(v, width) => v.len() / (*width).max(1),
            Held::Arrow(v) => v.len(),
        }
    }
}

/// The text of an array of `str` or of `bytes`.
fn objects(
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
fn value(name: &str, object: &Bound<'_, PyAny>) -> Outcome<Value> {
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

fn comparison(text: &str) -> Outcome<Comparison> {
    Ok(match text {
        "==" | "=" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        other => {
            return Err(Problem::invalid(format!(
                "where: expected one of == != < <= > >=, found {other:?}"
            )));
        }
    })
}

fn duplicates(text: &str) -> Outcome<Duplicates> {
    match text {
        "last" => Ok(Duplicates::Last),
        "keep" => Ok(Duplicates::Keep),
        other => Err(Problem::invalid(format!(
            "duplicates: expected 'last' or 'keep', found {other:?}"
        ))),
    }
}

fn field_specs(fields: Vec<(String, String)>) -> Outcome<Vec<FieldSpec>> {
    let spec = |(name, kind): (String, String)| {
        let field_type = FieldType::from_name(&kind).ok_or_else(|| {
            Problem::invalid(format!(
                "field `{name}`: expected f64, i64, u64, bool, string or bytes, found {kind:?}"
            ))
        })?;
        Ok(FieldSpec { name, field_type })
    };
    fields.into_iter().map(spec).collect()
}

fn life(what: &str, value: Option<f64>) -> Outcome<Option<Duration>> {
    value.map(|s| seconds(what, s)).transpose()
}

/// Which columns of Arrow data are what.
struct Roles {
    time: usize,
    tags: Vec<usize>,
    fields: Vec<usize>,
}

impl Roles {
    fn new(
        schema: &arrow_schema::Schema,
        time: &str,
        tags: &[String],
        fields: Option<&[String]>,
    ) -> Outcome<Roles> {
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let find = |name: &str| {
            let at = names.iter().position(|n| *n == name);
            at.ok_or_else(|| {
                Problem::invalid(format!(
                    "there is no column `{name}`; there are: {}",
                    names.join(", ")
                ))
            })
        };
        let time = find(time)?;
        let tags: Vec<usize> = tags.iter().map(|t| find(t)).collect::<Outcome<_>>()?;
        let fields = match fields {
            Some(fields) => fields.iter().map(|f| find(f)).collect::<Outcome<_>>()?,
            None => (0..names.len())
                .filter(|at| *at != time && !tags.contains(at))
                .collect(),
        };
        Ok(Roles { time, tags, fields })
    }

    fn part<'a>(&self, batch: &'a RecordBatch, table: &str, fixed: &Tags) -> Outcome<Part<'a>> {
        let schema = batch.schema_ref();
        let name = |at: usize| schema.field(at).name();
        let tags: Vec<Tag<'a>> = self
            .tags
            .iter()
            .map(|at| arrow_in::tag(name(*at), batch.column(*at)))
            .collect::<Outcome<_>>()?;
        let fields = self.fields.iter().map(|at| Field {
            name: name(*at).clone(),
            source: Source::Arrow(batch.column(*at)),
            absent: None,
        });
        Ok(Part {
            table: table.to_owned(),
            fixed: fixed.clone(),
            tags,
            times: arrow_in::times(name(self.time), batch.column(self.time))?,
            fields: fields.collect(),
        })
    }
}

/// An open database: the native half of `headwater.Database`.
#[pyclass(frozen, module = "headwater._native")]
pub(crate) struct Database {
    shared: Arc<Shared>,
}

impl Database {
    /// Takes a part in, in pieces if need be.
    fn take(
        &self,
        py: Python<'_>,
        writer: &mut Writer,
        part: &Part<'_>,
        first_row: usize,
    ) -> Outcome<()> {
        let mut at = 0;
        while at < part.len() {
            let rest = at..part.len();
            at += py.detach(|| writer.take(&self.shared, part, rest, first_row))?;
            py.check_signals()?;
        }
        Ok(())
    }

    fn write_part(&self, py: Python<'_>, part: &Part<'_>, how: How) -> PyResult<Writer> {
        let mut writer = Writer::new(how, self.shared.batch_bytes_max);
        let outcome = self
            .take(py, &mut writer, part, 0)
            .and_then(|()| py.detach(|| writer.flush(&self.shared)));
        told(py, outcome, &writer)?;
        Ok(writer)
    }

    fn read_arrow(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        table: &str,
        fixed: &Tags,
        columns: (&str, &[String], Option<&[String]>),
        writer: &mut Writer,
    ) -> Outcome<()> {
        let mut reader = arrow_in::reader(data)?;
        let roles = Roles::new(&reader.schema(), columns.0, columns.1, columns.2)?;
        let mut first_row = 0;
        while let Some(batch) = py.detach(|| reader.next()) {
            let batch = batch.map_err(|e| arrow_in::arrow(&e))?;
            let part = py.detach(|| roles.part(&batch, table, fixed))?;
            self.take(py, writer, &part, first_row)?;
            first_row += batch.num_rows();
        }
        py.detach(|| writer.flush(&self.shared))
    }

    fn ticket(&self, py: Python<'_>, writer: Writer) -> PyResult<Ticket> {
        let cell = Arc::new(TicketCell(Mutex::new(TicketState::Waiting(Box::new(
            writer,
        )))));
        let weak = Arc::downgrade(&cell);
        py.detach(|| self.shared.with(|_| self.shared.register(weak)))?;
        Ok(Ticket {
            cell: OfProcess::new(cell),
        })
    }
}

/// The outcome; an exception says how many rows were stored before.
fn told(py: Python<'_>, outcome: Outcome<()>, writer: &Writer) -> PyResult<()> {
    outcome.map_err(|problem| {
        let error = PyErr::from(problem);
        if writer.accepted() > 0 {
            let note = format!(
                "{} rows of this write were stored before; some more may have been",
                writer.accepted()
            );
            // A note that cannot be added changes nothing about the error.
            let _ = error.value(py).call_method1("add_note", (note,));
        }
        error
    })
}

/// Holds the arrays of one call while its rows are written.
struct Arrays<'py> {
    times: PyReadonlyArray1<'py, i64>,
    fields: Vec<FieldArray<'py>>,
    held: Vec<Held<'py>>,
    tags: Vec<TagArray<'py>>,
}

impl<'py> Arrays<'py> {
    fn new(
        times: PyReadonlyArray1<'py, i64>,
        fields: Vec<FieldArray<'py>>,
        tags: Vec<TagArray<'py>>,
    ) -> Outcome<Arrays<'py>> {
        let held: Vec<Held<'py>> = fields.iter().map(Held::new).collect::<Outcome<_>>()?;
        let rows = times.len();
        let check = |what: &str, name: &str, found: usize| {
            if found == rows {
                return Ok(());
            }
            Err(Problem::invalid(format!(
                "{what} `{name}` has {found} rows, time has {rows}: all must have as many"
            )))
        };
        for ((name, _, _, _, absent), held) in fields.iter().zip(&held) {
            // A fixed width of 0 has no units to count.
            let no_width = matches!(held, Held::Utf32(_, 0) | Held::Fixed(_, 0));
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

    fn part(&self, table: String, fixed: Tags) -> Outcome<Part<'_>> {
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
        Ok(Part {
            table,
            fixed,
            tags,
            times: Cow::Borrowed(slice(&self.times)?),
            fields,
        })
    }
}

#[pymethods]
impl Database {
    /// Opens a database.
    #[new]
    #[pyo3(signature = (path, read_only, settings=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        read_only: bool,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Database> {
        let options = options(path.clone(), settings)?;
        let bytes_max = options.batch_bytes_max;
        let opened = py.detach(|| -> Outcome<Opened> {
            Ok(if read_only {
                Opened::Reader(Reader::open(options)?)
            } else {
                Opened::Owner(headwater::Database::open(options)?)
            })
        })?;
        Ok(Database {
            shared: Arc::new(Shared::new(opened, path, bytes_max)),
        })
    }

    /// The directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.shared.path.clone()
    }

    /// Opened to read only.
    #[getter]
    fn read_only(&self) -> bool {
        self.shared.read_only
    }

    /// True after closing.
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.shared.is_closed())?)
    }

    /// Stores what is in memory and closes.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.shared.close())?)
    }

    /// Writes arrays and waits.
    #[expect(clippy::too_many_arguments, reason = "the Python side names them")]
    fn write_columns<'py>(
        &self,
        py: Python<'py>,
        table: String,
        tags: Tags,
        times: PyReadonlyArray1<'py, i64>,
        fields: Vec<FieldArray<'py>>,
        tag_columns: Vec<TagArray<'py>>,
        asked: HowTuple,
    ) -> PyResult<DoneTuple> {
        let arrays = Arrays::new(times, fields, tag_columns)?;
        let writer = self.write_part(py, &arrays.part(table, tags)?, how(asked))?;
        Ok(done(py.detach(|| writer.wait())?))
    }

    /// Hands arrays in.
    #[expect(clippy::too_many_arguments, reason = "the Python side names them")]
    fn submit_columns<'py>(
        &self,
        py: Python<'py>,
        table: String,
        tags: Tags,
        times: PyReadonlyArray1<'py, i64>,
        fields: Vec<FieldArray<'py>>,
        tag_columns: Vec<TagArray<'py>>,
        asked: HowTuple,
    ) -> PyResult<Ticket> {
        let arrays = Arrays::new(times, fields, tag_columns)?;
        let writer = self.write_part(py, &arrays.part(table, tags)?, how(asked))?;
        self.ticket(py, writer)
    }

    /// Writes Arrow data and waits.
    fn write_arrow(
        &self,
        py: Python<'_>,
        table: &str,
        tags: Tags,
        data: &Bound<'_, PyAny>,
        columns: (String, Vec<String>, Option<Vec<String>>),
        asked: HowTuple,
    ) -> PyResult<DoneTuple> {
        let mut writer = Writer::new(how(asked), self.shared.batch_bytes_max);
        let columns = (columns.0.as_str(), &*columns.1, columns.2.as_deref());
        let outcome = self.read_arrow(py, data, table, &tags, columns, &mut writer);
        told(py, outcome, &writer)?;
        Ok(done(py.detach(|| writer.wait())?))
    }

    /// Writes one event and waits.
    fn write_event(
        &self,
        py: Python<'_>,
        table: String,
        tags: Tags,
        time: i64,
        values: &Bound<'_, PyDict>,
        asked: HowTuple,
    ) -> PyResult<DoneTuple> {
        let mut entry = StreamRows::new(StreamName::new(table, tags));
        entry.times.push(time);
        for (name, object) in values {
            let name: String = name.extract()?;
            let column = ask::column_of(value(&name, &object)?);
            entry.fields.push((name, column));
        }
        let mut writer = Writer::new(how(asked), self.shared.batch_bytes_max);
        let result = py.detach(|| -> Outcome<Done> {
            writer.take_entry(entry);
            writer.flush(&self.shared)?;
            writer.wait()
        })?;
        Ok(done(result))
    }

    /// A question about rows.
    #[expect(clippy::too_many_arguments, reason = "the Python side names them")]
    fn query(
        &self,
        py: Python<'_>,
        table: String,
        tags: Tags,
        range: (i64, i64),
        fields: Option<Vec<String>>,
        conditions: Vec<Condition<'_>>,
        with_tags: Option<bool>,
    ) -> PyResult<Query> {
        let mut filters = Vec::with_capacity(conditions.len());
        for (field, operator, object) in conditions {
            filters.push(Filter {
                value: value(&field, &object)?,
                comparison: comparison(&operator)?,
                field,
            });
        }
        let asked = Asked {
            table,
            tags,
            with_tags,
            spec: ScanSpec {
                range: ClosedRange::nanos(range.0, range.1),
                fields,
                filters,
            },
        };
        Ok(py.detach(|| Query::new(&self.shared, asked))?)
    }

    /// Aggregates of a field; `every` is a width and an origin in nanoseconds.
    #[expect(clippy::too_many_arguments, reason = "the Python side names them")]
    fn aggregate(
        &self,
        py: Python<'_>,
        table: &str,
        tags: Tags,
        field: &str,
        range: (i64, i64),
        every: Option<(i64, i64)>,
        level: Option<i32>,
        first_last: bool,
        with_tags: Option<bool>,
    ) -> PyResult<Frame> {
        let bins = match (every, level) {
            (None, None) => Bins::Whole,
            (Some((width_ns, origin_ns)), None) => Bins::Every {
                width_ns,
                origin_ns,
            },
            (None, Some(level)) => Bins::Level(Level::new(level).ok_or_else(|| {
                Problem::invalid(format!("level: expected -20 to 40, found {level}"))
            })?),
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("every and level exclude each other").into());
            }
        };
        let spec = AggregateSpec {
            range: ClosedRange::nanos(range.0, range.1),
            bins,
            first_last,
        };
        Ok(ask::aggregate(
            py,
            &self.shared,
            table,
            &tags,
            field,
            &spec,
            with_tags,
        )?)
    }

    /// The filled buckets of a tile.
    fn tile(
        &self,
        py: Python<'_>,
        table: String,
        tags: Tags,
        field: &str,
        level: i32,
        offset: i64,
    ) -> PyResult<Frame> {
        let stream = StreamName::new(table, tags);
        Ok(py.detach(|| ask::tile(&self.shared, &stream, field, level, offset))?)
    }

    /// The newest value of each field of a stream.
    fn last<'py>(
        &self,
        py: Python<'py>,
        table: String,
        tags: Tags,
    ) -> PyResult<Vec<(String, i64, Bound<'py, PyAny>)>> {
        ask::last(py, &self.shared, &StreamName::new(table, tags))
    }

    /// The tags of the streams of a table that have these.
    fn streams(&self, py: Python<'_>, table: &str, tags: Tags) -> PyResult<Vec<Tags>> {
        let streams = py.detach(|| {
            self.shared
                .with(|opened| Ok(opened.snapshot()?.streams(table, &tags)?))
        })?;
        Ok(streams.into_iter().map(|s| s.tags().to_vec()).collect())
    }

    /// The tables.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        ask::tables(py, &self.shared)
    }

    /// Counters and sizes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ask::stats(py, &self.shared)
    }

    /// Declares a table.
    #[expect(clippy::too_many_arguments, reason = "the Python side names them")]
    fn create_table(
        &self,
        py: Python<'_>,
        name: String,
        fields: Vec<(String, String)>,
        tags: Vec<String>,
        duplicate: &str,
        leaf_events: Option<u32>,
        retention: Option<f64>,
        raw_for: Option<f64>,
    ) -> PyResult<()> {
        let spec = TableSpec {
            name,
            duplicates: duplicates(duplicate)?,
            leaf_events,
            fields: field_specs(fields)?,
            tags,
            retention: life("retention", retention)?,
            raw_for: life("raw_for", raw_for)?,
        };
        py.detach(|| {
            self.shared.with(|opened| {
                opened.owner()?.create_table(&spec)?;
                Ok(())
            })
        })?;
        Ok(())
    }

    /// Changes a table; a life that is given as `(None,)` becomes endless.
    #[expect(clippy::too_many_arguments, reason = "the Python side names them")]
    fn alter_table(
        &self,
        py: Python<'_>,
        name: &str,
        add_fields: Vec<(String, String)>,
        add_tags: Vec<String>,
        duplicate: Option<&str>,
        leaf_events: Option<u32>,
        retention: Option<(Option<f64>,)>,
        raw_for: Option<(Option<f64>,)>,
    ) -> PyResult<()> {
        let change = TableChange {
            leaf_events,
            duplicates: duplicate.map(duplicates).transpose()?,
            retention: retention.map(|(s,)| life("retention", s)).transpose()?,
            raw_for: raw_for.map(|(s,)| life("raw_for", s)).transpose()?,
            add_fields: field_specs(add_fields)?,
            add_tags,
        };
        py.detach(|| {
            self.shared.with(|opened| {
                opened.owner()?.alter_table(name, &change)?;
                Ok(())
            })
        })?;
        Ok(())
    }

    /// Drops a table.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        Ok(py.detach(|| {
            self.shared
                .with(|opened| Ok(opened.owner()?.drop_table(name)?))
        })?)
    }

    /// Drops streams; gives their number.
    fn drop_streams(&self, py: Python<'_>, table: &str, tags: Tags) -> PyResult<u64> {
        Ok(py.detach(|| {
            self.shared
                .with(|opened| Ok(opened.owner()?.drop_streams(table, &tags)?))
        })?)
    }

    /// Deletes a range; gives the number of streams concerned.
    fn delete(
        &self,
        py: Python<'_>,
        table: String,
        tags: Tags,
        range: (i64, i64),
    ) -> PyResult<u64> {
        let spec = DeleteSpec {
            table,
            tags,
            range: ClosedRange::nanos(range.0, range.1),
        };
        Ok(py.detach(|| {
            self.shared
                .with(|opened| Ok(opened.owner()?.delete(&spec)?))
        })?)
    }

    /// Stores what is in memory in segments.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.shared.with(|opened| Ok(opened.owner()?.flush()?)))?)
    }

    /// Rewrites what would become smaller or tidier.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.shared.with(|opened| Ok(opened.owner()?.compact()?)))?)
    }

    /// Looks again, when opened to read only.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| {
            self.shared.with(|opened| match opened {
                Opened::Reader(reader) => Ok(reader.refresh()?),
                Opened::Owner(_) => Ok(()),
            })
        })?)
    }

    /// Backs up into a folder.
    fn backup<'py>(&self, py: Python<'py>, to: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        let report = py.detach(|| {
            self.shared.with(|opened| match opened {
                Opened::Owner(db) => Ok(db.backup(&to)?),
                Opened::Reader(_) => {
                    let options = headwater::Options::new(self.shared.path.clone());
                    Ok(headwater::backup(&options, &to)?)
                }
            })
        })?;
        backup_report(py, &report)
    }

    /// What opening had to put right.
    fn recovery<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = py.detach(|| {
            self.shared
                .with(|opened| Ok(opened.owner()?.recovery().clone()))
        })?;
        let out = PyDict::new(py);
        out.set_item("log_records", found.log_records)?;
        out.set_item("events_replayed", found.events_replayed)?;
        out.set_item("torn_tail", found.torn_tail)?;
        out.set_item("files_removed", found.files_removed)?;
        out.set_item("files_truncated", found.files_truncated)?;
        Ok(out)
    }
}

enum TicketState {
    Waiting(Box<Writer>),
    Done(DoneTuple),
    Failed(&'static str, String),
}

/// A write on its way; ended by closing, which waits for it.
struct TicketCell(Mutex<TicketState>);

impl TicketCell {
    fn wait(&self) -> Outcome<DoneTuple> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = TicketState::Failed("internal", "the ticket was lost".to_owned());
        *state = match std::mem::replace(&mut *state, lost) {
            TicketState::Waiting(writer) => match writer.wait() {
                Ok(found) => TicketState::Done(done(found)),
                Err(problem) => {
                    let (code, message) = problem.parts();
                    TicketState::Failed(code, message)
                }
            },
            other => other,
        };
        match &*state {
            TicketState::Done(found) => Ok(found.clone()),
            TicketState::Failed(code, message) => Err(Problem::Own(code, message.clone())),
            TicketState::Waiting(_) => Err(Problem::Own("internal", "still waiting".to_owned())),
        }
    }
}

impl Ends for TicketCell {
    fn end(&self) {
        // What went wrong is kept for whoever waits on the ticket.
        let _ = self.wait();
    }
}

/// A write on its way: the native half of `headwater.Ticket`.
#[pyclass(frozen, module = "headwater._native")]
pub(crate) struct Ticket {
    cell: OfProcess<Arc<TicketCell>>,
}

#[pymethods]
impl Ticket {
    /// Waits for the acknowledgement.
    fn wait(&self, py: Python<'_>) -> PyResult<DoneTuple> {
        Ok(py.detach(|| self.cell.get()?.wait())?)
    }
}
