//! Queries with small answers: aggregates, tiles, newest values, tables and streams.

use crate::columns::{
    ColumnBuilder, data_type, internal, optional, required, tag_array, tag_type, time_array,
    time_type,
};
use crate::errors::{Outcome, Problem};
use crate::frame::Frame;
use crate::scan::{TagColumns, column_names};
use crate::shared::{Opened, Shared};
use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::Schema;
use headwater::{
    Aggregate, AggregateSpec, Bin, Column, Duplicates, FieldType, Level, STATS, Snapshot,
    StatValue, StreamName, Sum, Timestamp, Value,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

/// A value of the engine as a Python object.
pub(crate) fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::F64(v) => v.into_pyobject(py)?.into_any(),
        Value::I64(v) => v.into_pyobject(py)?.into_any(),
        Value::U64(v) => v.into_pyobject(py)?.into_any(),
        Value::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
        Value::String(v) => v.into_pyobject(py)?.into_any(),
        Value::Bytes(v) => PyBytes::new(py, v).into_any(),
    })
}

/// Gathers aggregates as columns.
struct Table {
    field_type: FieldType,
    times: Vec<i64>,
    codes: Vec<Vec<i32>>,
    counts: Vec<u64>,
    mean: ColumnBuilder,
    min: ColumnBuilder,
    max: ColumnBuilder,
    stddev: ColumnBuilder,
    sum: ColumnBuilder,
    mean_times: Vec<i64>,
}

/// The type of the extremes of a field.
fn extreme_type(field_type: FieldType) -> FieldType {
    match field_type {
        FieldType::I64 | FieldType::Bool => FieldType::I64,
        FieldType::U64 => FieldType::U64,
        _ => FieldType::F64,
    }
}

impl Table {
    fn new(field_type: FieldType, tags: usize) -> Table {
        let float = || ColumnBuilder::new(FieldType::F64);
        let extreme = || ColumnBuilder::new(extreme_type(field_type));
        Table {
            field_type,
            times: Vec::new(),
            codes: vec![Vec::new(); tags],
            counts: Vec::new(),
            mean: float(),
            min: extreme(),
            max: extreme(),
            stddev: float(),
            sum: float(),
            mean_times: Vec::new(),
        }
    }

    fn push(&mut self, start: i64, codes: &[i32], aggregate: &Aggregate) -> Outcome<()> {
        let (low, high) = (aggregate.extremes.min(), aggregate.extremes.max());
        let (mean, sum) = (aggregate.mean(), aggregate.sum().map(Sum::as_f64));
        self.times.push(start);
        for (column, code) in self.codes.iter_mut().zip(codes) {
            column.push(*code);
        }
        self.counts.push(aggregate.count);
        self.mean.push(mean.map(Value::F64).as_ref())?;
        self.min.push(low.as_ref())?;
        self.max.push(high.as_ref())?;
        self.stddev
            .push(aggregate.stddev().map(Value::F64).as_ref())?;
        self.sum.push(sum.map(Value::F64).as_ref())?;
        self.mean_times.push(aggregate.mean_time().unwrap_or(start));
        Ok(())
    }

    /// The columns as a frame, followed by `more`.
    fn finish(
        self,
        tags: &TagColumns,
        more: Vec<(&str, arrow_schema::DataType, ArrayRef)>,
    ) -> Outcome<Frame> {
        let extreme = data_type(extreme_type(self.field_type));
        let float = data_type(FieldType::F64);
        let mut columns: Vec<ArrayRef> = vec![time_array(self.times)];
        let mut schema = vec![required("time", time_type())];
        let mut names: Vec<String> = ["count", "mean", "min", "max", "stddev", "sum", "mean_time"]
            .map(str::to_owned)
            .to_vec();
        names.extend(more.iter().map(|(name, ..)| (*name).to_owned()));
        let tag_names = column_names(&["time"], &tags.keys, &names);
        for ((codes, dictionary), name) in self
            .codes
            .into_iter()
            .zip(&tags.dictionaries)
            .zip(tag_names.iter().skip(1))
        {
            columns.push(tag_array(codes, Arc::clone(dictionary))?);
            schema.push(optional(name, tag_type()));
        }
        columns.push(Arc::new(UInt64Array::from(self.counts)));
        schema.push(required("count", data_type(FieldType::U64)));
        for (name, builder, data_type) in [
            ("mean", self.mean, &float),
            ("min", self.min, &extreme),
            ("max", self.max, &extreme),
            ("stddev", self.stddev, &float),
            ("sum", self.sum, &float),
        ] {
            columns.push(builder.finish());
            schema.push(optional(name, data_type.clone()));
        }
        columns.push(time_array(self.mean_times));
        schema.push(required("mean_time", time_type()));
        for (name, data_type, array) in more {
            columns.push(array);
            schema.push(optional(name, data_type));
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(schema)), columns);
        Ok(Frame::of(batch.map_err(internal)?))
    }
}

/// The type of a field.
fn field_type(snapshot: &Snapshot, table: &str, field: &str) -> Outcome<FieldType> {
    let fields = snapshot.fields(table)?;
    let found = fields.iter().find(|(name, _)| name == field);
    found.map(|(_, t)| *t).ok_or_else(|| {
        let names: Vec<&str> = fields.iter().map(|(n, _)| n.as_str()).take(20).collect();
        Problem::not_found(format!(
            "table `{table}` has no field `{field}`; it has: {}",
            names.join(", ")
        ))
    })
}

/// First and last values of bins.
struct Ends {
    times: [ColumnBuilder; 2],
    values: [ColumnBuilder; 2],
}

impl Ends {
    fn new(field_type: FieldType) -> Ends {
        let of = |t| [ColumnBuilder::new(t), ColumnBuilder::new(t)];
        Ends {
            times: of(FieldType::I64),
            values: of(field_type),
        }
    }

    fn push(&mut self, bin: &Bin) -> Outcome<()> {
        let ends = [&bin.first, &bin.last];
        for ((end, times), values) in ends.into_iter().zip(&mut self.times).zip(&mut self.values) {
            let time = end.as_ref().map(|(t, _)| Value::I64(t.as_nanos()));
            times.push(time.as_ref())?;
            values.push(end.as_ref().map(|(_, v)| v))?;
        }
        Ok(())
    }

    fn finish(
        self,
        field_type: FieldType,
    ) -> Outcome<Vec<(&'static str, arrow_schema::DataType, ArrayRef)>> {
        let mut out = Vec::new();
        let names = [("first_time", "first"), ("last_time", "last")];
        for ((names, times), values) in names.into_iter().zip(self.times).zip(self.values) {
            let times = times.finish().to_data().into_builder();
            let times = times.data_type(time_type()).build().map_err(internal)?;
            out.push((names.0, time_type(), arrow_array::make_array(times)));
            out.push((names.1, data_type(field_type), values.finish()));
        }
        Ok(out)
    }
}

/// A field of the streams of a table with these tags.
pub(crate) struct FieldOf<'a> {
    pub(crate) table: &'a str,
    pub(crate) tags: &'a [(String, String)],
    pub(crate) field: &'a str,
    /// The named snapshot; `None` = the current state.
    pub(crate) named: Option<&'a str>,
}

/// Aggregates of a field of streams.
pub(crate) fn aggregate(
    py: Python<'_>,
    shared: &Shared,
    of: &FieldOf<'_>,
    spec: &AggregateSpec,
    with_tags: Option<bool>,
) -> Outcome<Frame> {
    let FieldOf {
        table,
        tags,
        field,
        named,
    } = *of;
    let (snapshot, streams, columns, field_type) = py.detach(|| {
        shared.with(|opened| {
            let snapshot = opened.snapshot(named)?;
            let field_type = field_type(&snapshot, table, field)?;
            let streams = snapshot.streams(table, tags)?;
            let columns = match with_tags {
                Some(false) => TagColumns::default(),
                with => {
                    let known = snapshot.table_info(table)?.tags;
                    TagColumns::new(&streams, tags, &known, with == Some(true))
                }
            };
            Ok((shared.slot(snapshot)?, streams, columns, field_type))
        })
    })?;
    let mut out = Table::new(field_type, columns.keys.len());
    let mut ends = spec.first_last.then(|| Ends::new(field_type));
    for (at, stream) in streams.iter().enumerate() {
        let codes = columns.codes.get(at).map(Vec::as_slice).unwrap_or_default();
        py.detach(|| {
            let snapshot = snapshot.lock();
            let snapshot = snapshot.as_ref().ok_or_else(Problem::closed)?;
            for bin in snapshot.aggregate(stream, field, spec)? {
                out.push(bin.start.as_nanos(), codes, &bin.aggregate)?;
                if let Some(ends) = &mut ends {
                    ends.push(&bin)?;
                }
            }
            Ok::<(), Problem>(())
        })?;
        py.check_signals()?;
    }
    py.detach(|| {
        drop(snapshot.lock().take());
        let more = ends.map(|e| e.finish(field_type)).transpose()?;
        out.finish(&columns, more.unwrap_or_default())
    })
}

/// The filled buckets of a tile.
pub(crate) fn tile(
    shared: &Shared,
    stream: &StreamName,
    field: &str,
    level: i32,
    offset: i64,
    named: Option<&str>,
) -> Outcome<Frame> {
    let level = Level::new(level)
        .ok_or_else(|| Problem::invalid(format!("level: expected -20 to 40, found {level}")))?;
    let (field_type, buckets) = shared.with(|opened| {
        let snapshot = opened.snapshot(named)?;
        let field_type = field_type(&snapshot, stream.table(), field)?;
        Ok((field_type, snapshot.tile(stream, field, level, offset)?))
    })?;
    let mut out = Table::new(field_type, 0);
    let mut numbers = ColumnBuilder::new(FieldType::I64);
    for (bucket, aggregate) in &buckets {
        let start = level.bucket_span(*bucket).first.as_nanos();
        out.push(start, &[], aggregate)?;
        numbers.push(Some(&Value::I64(*bucket)))?;
    }
    let bucket = ("bucket", data_type(FieldType::I64), numbers.finish());
    out.finish(&TagColumns::default(), vec![bucket])
}

/// The newest value of each field of a stream: `(field, time_ns, value)`.
pub(crate) fn last<'py>(
    py: Python<'py>,
    shared: &Shared,
    stream: &StreamName,
    named: Option<&str>,
) -> PyResult<Vec<(String, i64, Bound<'py, PyAny>)>> {
    let last = py.detach(|| shared.with(|opened| Ok(opened.snapshot(named)?.last(stream)?)))?;
    last.into_iter()
        .map(|l| Ok((l.field, l.time.as_nanos(), object(py, &l.value)?)))
        .collect()
}

/// The tables, as keyword arguments of `headwater.Table`.
pub(crate) fn tables<'py>(py: Python<'py>, shared: &Shared) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let tables = py.detach(|| shared.with(|opened| Ok(opened.tables())))?;
    let mut out = Vec::with_capacity(tables.len());
    for table in tables {
        let one = PyDict::new(py);
        let fields: Vec<(String, &str)> = table
            .fields
            .iter()
            .map(|f| (f.name.clone(), f.field_type.name()))
            .collect();
        let seconds = |d: Option<std::time::Duration>| d.map(|d| d.as_secs_f64());
        one.set_item("name", &table.name)?;
        one.set_item("tags", &table.tags)?;
        one.set_item("fields", fields)?;
        one.set_item("streams", table.streams)?;
        let keeps = table.duplicates == Duplicates::Keep;
        one.set_item("duplicates", if keeps { "keep" } else { "last" })?;
        one.set_item("leaf_events", table.leaf_events)?;
        one.set_item("retention", seconds(table.retention))?;
        one.set_item("raw_for", seconds(table.raw_for))?;
        one.set_item("cut", table.cut.map(Timestamp::as_nanos))?;
        one.set_item("aged_to", table.aged_to.map(Timestamp::as_nanos))?;
        out.push(one);
    }
    Ok(out)
}

/// Counters and sizes, by name.
pub(crate) fn stats<'py>(py: Python<'py>, shared: &Shared) -> PyResult<Bound<'py, PyDict>> {
    let stats = py.detach(|| {
        shared.with(|opened| {
            Ok(match opened {
                Opened::Owner(db) => db.stats()?,
                Opened::Reader(reader) => reader.stats()?,
            })
        })
    })?;
    let out = PyDict::new(py);
    for stat in &STATS {
        match (stat.value)(&stats) {
            StatValue::Count(count) => out.set_item(stat.name, count)?,
            StatValue::Ratio(ratio) => out.set_item(stat.name, ratio)?,
            StatValue::Duration(duration) => {
                out.set_item(format!("{}_seconds", stat.name), duration.as_secs_f64())?;
            }
        }
    }
    // Their names before there was the table.
    out.set_item("write_amplification_events", stats.wa_events())?;
    out.set_item("write_amplification_bytes", stats.wa_bytes())?;
    Ok(out)
}

/// One value as a column of one row, for single events.
pub(crate) fn column_of(value: Value) -> Column {
    let mut column = Column::new(value.as_ref().field_type());
    column.push(value.as_ref());
    column
}
