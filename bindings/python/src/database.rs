//! The database as Python's `headwater.Database` uses it.

use crate::arrays::{Arrays, FieldArray, TagArray, value};
use crate::arrow_batches::Roles;
use crate::arrow_columns;
use crate::ask;
use crate::care::backup_report;
use crate::errors::{Outcome, Problem};
use crate::frame::Frame;
use crate::input::TableRows;
use crate::input::Tags;
use crate::named;
use crate::options::{options, seconds};
use crate::scan::{Query, ScanRequest};
use crate::shared::{Opened, Shared};
use crate::ticket::{DoneTuple, Ticket, done};
use crate::write::{Done, WriteOptions, Writer};
use arrow_array::RecordBatchReader;
use headwater::{
    AggregateSpec, Bins, ClosedRange, Comparison, DeleteSpec, Duplicates, FieldSpec, FieldType,
    Filter, Level, Reader, ScanSpec, StreamName, StreamRows, TableChange, TableSpec,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A condition: field, operator, value.
type Condition<'py> = (String, String, Bound<'py, PyAny>);
/// Options of a write: expiry of the values, the producer and its number, all or nothing.
type WriteOptionsTuple = (Option<i64>, Option<(String, u64)>, bool);

fn write_options((expires_at, producer, require_all): WriteOptionsTuple) -> WriteOptions {
    WriteOptions {
        expires_at,
        producer,
        require_all,
    }
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

/// An open database: the native half of `headwater.Database`.
#[pyclass(frozen, module = "headwater._native")]
pub(crate) struct Database {
    shared: Arc<Shared>,
}

impl Database {
    /// Adds a part, split if necessary.
    fn take(
        &self,
        py: Python<'_>,
        writer: &mut Writer,
        part: &TableRows<'_>,
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

    fn write_part(
        &self,
        py: Python<'_>,
        part: &TableRows<'_>,
        options: WriteOptions,
    ) -> PyResult<Writer> {
        let mut writer = Writer::new(options, self.shared.batch_bytes_max);
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
        let mut reader = arrow_columns::reader(data)?;
        let roles = Roles::new(&reader.schema(), columns.0, columns.1, columns.2)?;
        let mut first_row = 0;
        while let Some(batch) = py.detach(|| reader.next()) {
            let batch = batch.map_err(|e| arrow_columns::arrow(&e))?;
            let part = py.detach(|| roles.part(&batch, table, fixed))?;
            self.take(py, writer, &part, first_row)?;
            first_row += batch.num_rows();
        }
        py.detach(|| writer.flush(&self.shared))
    }
}

/// The outcome; an exception states how many rows were stored before.
fn told(py: Python<'_>, outcome: Outcome<()>, writer: &Writer) -> PyResult<()> {
    outcome.map_err(|problem| {
        let error = PyErr::from(problem);
        if writer.accepted() > 0 {
            let note = format!(
                "{} rows of this write were stored before the error; more may have been",
                writer.accepted()
            );
            // If the note cannot be added, the error is unchanged.
            let _ = error.value(py).call_method1("add_note", (note,));
        }
        error
    })
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

    /// Flushes memory and closes.
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
        asked: WriteOptionsTuple,
    ) -> PyResult<DoneTuple> {
        let arrays = Arrays::new(times, fields, tag_columns)?;
        let writer = self.write_part(py, &arrays.part(table, tags)?, write_options(asked))?;
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
        asked: WriteOptionsTuple,
    ) -> PyResult<Ticket> {
        let arrays = Arrays::new(times, fields, tag_columns)?;
        let writer = self.write_part(py, &arrays.part(table, tags)?, write_options(asked))?;
        Ticket::new(py, &self.shared, writer)
    }

    /// Writes Arrow data and waits.
    fn write_arrow(
        &self,
        py: Python<'_>,
        table: &str,
        tags: Tags,
        data: &Bound<'_, PyAny>,
        columns: (String, Vec<String>, Option<Vec<String>>),
        asked: WriteOptionsTuple,
    ) -> PyResult<DoneTuple> {
        let mut writer = Writer::new(write_options(asked), self.shared.batch_bytes_max);
        let columns = (columns.0.as_str(), &*columns.1, columns.2.as_deref());
        let outcome = self.read_arrow(py, data, table, &tags, columns, &mut writer);
        told(py, outcome, &writer)?;
        Ok(done(py.detach(|| writer.wait())?))
    }

    /// Writes one event and waits. An event without a time gets a unique instant.
    fn write_event(
        &self,
        py: Python<'_>,
        table: String,
        tags: Tags,
        time: (i64, bool),
        values: &Bound<'_, PyDict>,
        asked: WriteOptionsTuple,
    ) -> PyResult<DoneTuple> {
        let mut entry = StreamRows::new(StreamName::new(table, tags));
        let (time, is_now) = time;
        entry.times.push(match is_now {
            true => self.shared.with(|opened| {
                let instants = opened.owner()?.instants();
                let now = headwater::Timestamp::from_nanos(time);
                Ok(instants.next(now).as_nanos())
            })?,
            false => time,
        });
        for (name, object) in values {
            let name: String = name.extract()?;
            let column = ask::column_of(value(&name, &object)?);
            entry.fields.push((name, column));
        }
        let mut writer = Writer::new(write_options(asked), self.shared.batch_bytes_max);
        let result = py.detach(|| -> Outcome<Done> {
            writer.take_entry(entry);
            writer.flush(&self.shared)?;
            writer.wait()
        })?;
        Ok(done(result))
    }

    /// A query about rows.
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
        by_time: bool,
        snapshot: Option<String>,
    ) -> PyResult<Query> {
        let mut filters = Vec::with_capacity(conditions.len());
        for (field, operator, object) in conditions {
            filters.push(Filter {
                value: value(&field, &object)?,
                comparison: comparison(&operator)?,
                field,
            });
        }
        let request = ScanRequest {
            table,
            tags,
            with_tags,
            by_time,
            snapshot,
            spec: ScanSpec {
                range: ClosedRange::nanos(range.0, range.1),
                fields,
                filters,
                any_of: Vec::new(),
            },
        };
        Ok(py.detach(|| Query::new(&self.shared, request))?)
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
        snapshot: Option<&str>,
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
        let of = ask::FieldOf {
            table,
            tags: &tags,
            field,
            named: snapshot,
        };
        Ok(ask::aggregate(py, &self.shared, &of, &spec, with_tags)?)
    }

    /// The filled buckets of a tile.
    #[expect(clippy::too_many_arguments, reason = "the Python side names them")]
    fn tile(
        &self,
        py: Python<'_>,
        table: String,
        tags: Tags,
        field: &str,
        level: i32,
        offset: i64,
        snapshot: Option<&str>,
    ) -> PyResult<Frame> {
        let stream = StreamName::new(table, tags);
        Ok(py.detach(|| ask::tile(&self.shared, &stream, field, level, offset, snapshot))?)
    }

    /// The newest value of each field of a stream.
    fn last<'py>(
        &self,
        py: Python<'py>,
        table: String,
        tags: Tags,
        snapshot: Option<&str>,
    ) -> PyResult<Vec<(String, i64, Bound<'py, PyAny>)>> {
        ask::last(py, &self.shared, &StreamName::new(table, tags), snapshot)
    }

    /// The tags of the streams of a table that have these.
    fn streams(
        &self,
        py: Python<'_>,
        table: &str,
        tags: Tags,
        snapshot: Option<&str>,
    ) -> PyResult<Vec<Tags>> {
        let streams = py.detach(|| {
            self.shared
                .with(|opened| Ok(opened.snapshot(snapshot)?.streams(table, &tags)?))
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

    /// Changes a table; a lifetime of `(None,)` becomes unlimited.
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

    /// Drops streams; returns their number.
    fn drop_streams(&self, py: Python<'_>, table: &str, tags: Tags) -> PyResult<u64> {
        Ok(py.detach(|| {
            self.shared
                .with(|opened| Ok(opened.owner()?.drop_streams(table, &tags)?))
        })?)
    }

    /// Deletes a range; returns the number of affected streams.
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

    /// Flushes memory to segments.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.shared.with(|opened| Ok(opened.owner()?.flush()?)))?)
    }

    /// Rewrites segments that compaction makes smaller or better ordered.
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

    /// Creates a named snapshot of the current state.
    fn create_snapshot<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        named::create(py, &self.shared, name)
    }

    /// Drops a named snapshot.
    fn drop_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        Ok(py.detach(|| named::end(&self.shared, name))?)
    }

    /// The named snapshots.
    fn snapshots<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        named::list(py, &self.shared)
    }

    /// The named snapshots that ended by themselves.
    fn ended_snapshots(&self, py: Python<'_>) -> PyResult<Vec<(String, i64, i64, &'static str)>> {
        named::ended(py, &self.shared)
    }

    /// Repairs that opening made.
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
