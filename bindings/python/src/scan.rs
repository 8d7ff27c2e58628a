//! Scans: a query about rows, and a cursor over its answer.
//!
//! Invariants: a query is answered from the snapshot taken at its creation, however often; a cursor
//! returns rows stream by stream, each sorted by time, or the rows of all streams sorted by time.
//! Closing the database ends queries and cursors.

use crate::columns::{
    RowsBuilder, data_type, dictionary, internal, optional, required, tag_type, time_type,
};
use crate::errors::{Outcome, Problem};
use crate::frame::{self, Frame};
use crate::shared::{OfProcess, Shared, Slot};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use headwater::{
    FieldType, ReplayChunk, ReplaySpec, ReplaySteps, Scan, ScanChunk, ScanSpec, Snapshot,
    StreamName,
};
use headwater_wire::free_name;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows gathered between two looks at Python's signals.
const STEP_ROWS: usize = 1 << 18;
/// Rows of a batch that an Arrow consumer gets.
const ARROW_ROWS: usize = 1 << 16;

/// The tags of many streams as columns.
#[derive(Default)]
pub(crate) struct TagColumns {
    /// Keys, sorted.
    pub(crate) keys: Vec<String>,
    /// For each key its values.
    pub(crate) dictionaries: Vec<ArrayRef>,
    /// For each stream, for each key, the number of its value; negative if absent.
    pub(crate) codes: Vec<Vec<i32>>,
}

impl TagColumns {
    /// Tags of these streams; of all keys, or of those that are not `fixed`.
    pub(crate) fn new(
        streams: &[StreamName],
        fixed: &[(String, String)],
        known: &[String],
        all: bool,
    ) -> TagColumns {
        let tags = || streams.iter().flat_map(StreamName::tags);
        let wanted = |key: &str| all || fixed.iter().all(|(k, _)| k != key);
        let mut keys: BTreeSet<&str> = known.iter().map(String::as_str).collect();
        keys.extend(tags().map(|(key, _)| key.as_str()));
        keys.retain(|key| wanted(key));
        let mut values: Vec<Vec<String>> = vec![Vec::new(); keys.len()];
        let mut numbers: Vec<BTreeMap<&str, i32>> = vec![BTreeMap::new(); keys.len()];
        let mut codes = Vec::with_capacity(streams.len());
        for stream in streams {
            let mut mine = Vec::with_capacity(keys.len());
            for (at, key) in keys.iter().enumerate() {
                let (Some(values), Some(numbers)) = (values.get_mut(at), numbers.get_mut(at))
                else {
                    continue;
                };
                mine.push(stream.tag(key).map_or(-1, |value| {
                    *numbers.entry(value).or_insert_with(|| {
                        values.push(value.to_owned());
                        i32::try_from(values.len() - 1).unwrap_or(i32::MAX)
                    })
                }));
            }
            codes.push(mine);
        }
        TagColumns {
            keys: keys.into_iter().map(str::to_owned).collect(),
            dictionaries: values.iter().map(|v| dictionary(v)).collect(),
            codes,
        }
    }
}

/// Names of columns: `time`, then the tags, then the fields. A duplicate name gets a number, as in
/// every front end.
pub(crate) fn column_names(first: &[&str], tags: &[String], fields: &[String]) -> Vec<String> {
    let mut names: Vec<String> = first.iter().map(|n| (*n).to_owned()).collect();
    for name in tags.iter().chain(fields) {
        let free = free_name(name, |other| names.iter().any(|taken| taken == other));
        names.push(free);
    }
    names
}

/// A request, resolved.
struct Plan {
    streams: Vec<StreamName>,
    tags: TagColumns,
    field_types: Vec<FieldType>,
    spec: ScanSpec,
    /// The same for rows in the order of time.
    replay: Option<ReplaySpec>,
    schema: SchemaRef,
}

/// A query about rows: the native half of `headwater.Result`.
#[pyclass(frozen, module = "headwater._native")]
pub(crate) struct Query {
    shared: Arc<Shared>,
    plan: Arc<Plan>,
    snapshot: OfProcess<Arc<Slot<Snapshot>>>,
}

/// Request of a caller.
pub(crate) struct ScanRequest {
    pub(crate) table: String,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) with_tags: Option<bool>,
    /// Rows of all streams in the order of time, instead of stream by stream.
    pub(crate) by_time: bool,
    /// The named snapshot; `None` = the current state.
    pub(crate) snapshot: Option<String>,
    pub(crate) spec: ScanSpec,
}

impl ScanRequest {
    /// The same rows in the order of time.
    fn replay(&self, fields: &[(String, FieldType)]) -> ReplaySpec {
        let tags = self.tags.iter().cloned();
        ReplaySpec {
            tags: tags.map(|(key, value)| (key, vec![value])).collect(),
            fields: Some(fields.iter().map(|(name, _)| name.clone()).collect()),
            filters: self.spec.filters.clone(),
            any_of: self.spec.any_of.clone(),
            range: self.spec.range,
            ..ReplaySpec::new(self.table.clone())
        }
    }
}

impl Query {
    pub(crate) fn new(shared: &Arc<Shared>, request: ScanRequest) -> Outcome<Query> {
        shared.with(|opened| {
            let snapshot = opened.snapshot(request.snapshot.as_deref())?;
            let table = snapshot.fields(&request.table)?;
            let fields: Vec<(String, FieldType)> = match &request.spec.fields {
                None => table,
                Some(names) => names
                    .iter()
                    .map(|name| {
                        let found = table.iter().find(|(n, _)| n == name).cloned();
                        found.ok_or_else(|| {
                            Problem::not_found(format!(
                                "table `{}` has no field `{name}`",
                                request.table
                            ))
                        })
                    })
                    .collect::<Outcome<_>>()?,
            };
            let streams = snapshot.streams(&request.table, &request.tags)?;
            let replay = request.by_time.then(|| request.replay(&fields));
            let known = snapshot.table_info(&request.table)?.tags;
            let tags = match request.with_tags {
                Some(false) => TagColumns {
                    codes: vec![Vec::new(); streams.len()],
                    ..TagColumns::default()
                },
                with => TagColumns::new(&streams, &request.tags, &known, with == Some(true)),
            };
            let (names, field_types): (Vec<String>, Vec<FieldType>) = fields.into_iter().unzip();
            let columns = column_names(&["time"], &tags.keys, &names);
            let types = [time_type()]
                .into_iter()
                .chain(tags.keys.iter().map(|_| tag_type()))
                .chain(field_types.iter().map(|t| data_type(*t)));
            let schema = columns
                .iter()
                .zip(types)
                .enumerate()
                .map(|(at, (name, data_type))| match at {
                    0 => required(name, data_type),
                    _ => optional(name, data_type),
                });
            let plan = Plan {
                replay,
                schema: Arc::new(Schema::new(schema.collect::<Vec<_>>())),
                streams,
                tags,
                field_types,
                spec: ScanSpec {
                    fields: Some(names),
                    ..request.spec
                },
            };
            Ok(Query {
                snapshot: OfProcess::new(shared.slot(snapshot)?),
                shared: Arc::clone(shared),
                plan: Arc::new(plan),
            })
        })
    }

    fn rows(&self) -> Outcome<Rows> {
        self.shared.with(|_| {
            let source = {
                let snapshot = self.snapshot.get()?.lock();
                let snapshot = snapshot.as_ref().ok_or_else(Problem::closed)?;
                self.plan.source(snapshot)?
            };
            let reading = Reading {
                snapshot: Arc::clone(self.snapshot.get()?),
                plan: Arc::clone(&self.plan),
                source,
            };
            Ok(Rows {
                slot: OfProcess::new(self.shared.slot(reading)?),
                plan: Arc::clone(&self.plan),
            })
        })
    }

    /// All rows, in as few batches as possible, looking at signals on the way.
    fn read_all(&self, py: Python<'_>) -> Outcome<Vec<RecordBatch>> {
        let rows = py.detach(|| self.rows())?;
        let plan = &self.plan;
        let mut batches = Vec::new();
        let mut builder = plan.builder();
        loop {
            let limit = builder.len() + STEP_ROWS;
            let more = py.detach(|| rows.fill(&mut builder, limit))?;
            py.check_signals()?;
            if more && !builder.is_full_of_text() {
                continue;
            }
            if builder.len() > 0 || batches.is_empty() {
                let full = std::mem::replace(&mut builder, plan.builder());
                batches.push(py.detach(|| plan.finish(full))?);
            }
            if !more {
                return Ok(batches);
            }
        }
    }
}

impl Plan {
    /// The source of rows, at its beginning.
    fn source(&self, snapshot: &Snapshot) -> Outcome<Source> {
        let Some(spec) = &self.replay else {
            return Ok(Source::Streams(Box::default()));
        };
        let steps = snapshot.replay_steps(spec, None)?;
        // Both are of one snapshot, and both in the order of names.
        if steps.stream_count() != self.streams.len() {
            return Err(internal(
                "a replay has streams that its query does not have",
            ));
        }
        Ok(Source::Times(Box::new((steps, None))))
    }

    fn builder(&self) -> RowsBuilder {
        RowsBuilder::new(self.tags.keys.len(), &self.field_types)
    }

    fn finish(&self, builder: RowsBuilder) -> Outcome<RecordBatch> {
        builder.finish(Arc::clone(&self.schema), &self.tags.dictionaries)
    }
}

#[pymethods]
impl Query {
    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.plan.schema.fields();
        fields.iter().map(|f| f.name().clone()).collect()
    }

    /// Number of streams.
    #[getter]
    fn stream_count(&self) -> usize {
        self.plan.streams.len()
    }

    /// All rows, as columns from which numpy arrays are created.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let batches = self.read_all(py)?;
        frame::to_numpy(py, &self.plan.schema, batches)
    }

    /// All rows.
    fn frame(&self, py: Python<'_>) -> PyResult<Frame> {
        Ok(Frame::new(
            Arc::clone(&self.plan.schema),
            self.read_all(py)?,
        ))
    }

    /// A cursor from the first row on.
    fn cursor(&self, py: Python<'_>) -> PyResult<Cursor> {
        let rows = py.detach(|| self.rows())?;
        Ok(Cursor { rows })
    }

    /// An Arrow stream of all rows, read as it is consumed.
    fn __arrow_c_stream__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let rows = py.detach(|| self.rows())?;
        frame::stream_capsule(py, Box::new(rows))
    }

    /// Releases the snapshot.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| -> Outcome<()> {
            drop(self.snapshot.get()?.lock().take());
            Ok(())
        })?;
        Ok(())
    }
}

/// Where a reader of a query is.
struct Reading {
    snapshot: Arc<Slot<Snapshot>>,
    plan: Arc<Plan>,
    source: Source,
}

/// Source of rows.
enum Source {
    /// One stream after another.
    Streams(Box<OneByOne>),
    /// All streams in the order of time; with a chunk that is not fully returned yet, and its next
    /// row.
    Times(Box<(ReplaySteps, Option<(ReplayChunk, usize)>)>),
}

/// Where a reader of one stream after the other is.
#[derive(Default)]
struct OneByOne {
    next_stream: usize,
    scan: Option<Scan>,
    /// A chunk that is not fully returned yet, and its next row.
    chunk: Option<(ScanChunk, usize)>,
}

impl Reading {
    /// Adds rows until there are `limit`, or the text is long. False at the end.
    fn fill(&mut self, builder: &mut RowsBuilder, limit: usize) -> Outcome<bool> {
        let Reading {
            snapshot,
            plan,
            source,
        } = self;
        match source {
            Source::Streams(streams) => streams.fill(snapshot, plan, builder, limit),
            Source::Times(times) => {
                let (steps, chunk) = times.as_mut();
                fill_by_time(steps, chunk, snapshot, plan, builder, limit)
            }
        }
    }
}

/// Adds rows in the order of time. False at the end.
fn fill_by_time(
    steps: &mut ReplaySteps,
    held: &mut Option<(ReplayChunk, usize)>,
    snapshot: &Slot<Snapshot>,
    plan: &Plan,
    builder: &mut RowsBuilder,
    limit: usize,
) -> Outcome<bool> {
    loop {
        if builder.len() >= limit || builder.is_full_of_text() {
            return Ok(true);
        }
        if let Some((chunk, from)) = held {
            let to = chunk.times.len().min(*from + (limit - builder.len()));
            let codes = &plan.tags.codes;
            builder.extend_mixed(
                &chunk.times,
                &chunk.columns,
                *from..to,
                &chunk.streams,
                codes,
            )?;
            *from = to;
            if to == chunk.times.len() {
                *held = None;
            }
            continue;
        }
        let snapshot = snapshot.lock();
        let snapshot = snapshot.as_ref().ok_or_else(Problem::closed)?;
        match steps.next_chunk(snapshot) {
            None => return Ok(false),
            Some(chunk) => *held = Some((chunk?, 0)),
        }
    }
}

impl OneByOne {
    /// Adds rows until there are `limit`, or the text is long. False at the end.
    fn fill(
        &mut self,
        snapshot: &Slot<Snapshot>,
        plan: &Plan,
        builder: &mut RowsBuilder,
        limit: usize,
    ) -> Outcome<bool> {
        loop {
            if builder.len() >= limit || builder.is_full_of_text() {
                return Ok(true);
            }
            if let Some((chunk, from)) = &mut self.chunk {
                let stream = self.next_stream.saturating_sub(1);
                let codes = plan.tags.codes.get(stream);
                let to = chunk.times.len().min(*from + (limit - builder.len()));
                let codes = codes.map(Vec::as_slice).unwrap_or_default();
                builder.extend(&chunk.times, &chunk.columns, *from..to, codes)?;
                *from = to;
                if to == chunk.times.len() {
                    self.chunk = None;
                }
                continue;
            }
            match self.scan.as_mut().map(Iterator::next) {
                Some(Some(chunk)) => {
                    self.chunk = Some((chunk?, 0));
                    continue;
                }
                Some(None) => self.scan = None,
                None => {}
            }
            let Some(stream) = plan.streams.get(self.next_stream) else {
                return Ok(false);
            };
            let snapshot = snapshot.lock();
            let snapshot = snapshot.as_ref().ok_or_else(Problem::closed)?;
            self.scan = Some(snapshot.scan(stream, &plan.spec)?);
            self.next_stream += 1;
        }
    }
}

/// The rows of a query, from the first on, until the database is closed.
pub(crate) struct Rows {
    slot: OfProcess<Arc<Slot<Reading>>>,
    plan: Arc<Plan>,
}

impl Rows {
    fn fill(&self, builder: &mut RowsBuilder, limit: usize) -> Outcome<bool> {
        let mut reading = self.slot.get()?.lock();
        reading
            .as_mut()
            .ok_or_else(Problem::closed)?
            .fill(builder, limit)
    }

    /// The next rows, at most `rows`.
    fn next(&self, rows: usize) -> Outcome<Option<RecordBatch>> {
        let mut builder = self.plan.builder();
        self.fill(&mut builder, rows)?;
        if builder.len() == 0 {
            return Ok(None);
        }
        self.plan.finish(builder).map(Some)
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Rows::next(self, ARROW_ROWS)
            .map_err(|e| ArrowError::ExternalError(Box::new(e)))
            .transpose()
    }
}

impl RecordBatchReader for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.plan.schema)
    }
}

/// Rows of a query, a batch at a time.
#[pyclass(frozen, module = "headwater._native")]
pub(crate) struct Cursor {
    rows: Rows,
}

#[pymethods]
impl Cursor {
    /// The next rows, at most `rows`; `None` at the end.
    fn next(&self, py: Python<'_>, rows: usize) -> PyResult<Option<Frame>> {
        if rows == 0 {
            return Err(Problem::invalid("a batch has at least 1 row").into());
        }
        let batch = py.detach(|| self.rows.next(rows))?;
        let schema = &self.rows.plan.schema;
        Ok(batch.map(|batch| Frame::new(Arc::clone(schema), vec![batch])))
    }
}
