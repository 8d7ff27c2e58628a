//! Computes a grouped query from the pyramid.
//!
//! Invariants: the streams of a group are brought together whichever part of the work met them; the
//! snapshot is that of the statement that runs; what is held is reserved from the statement's
//! memory before it grows beyond a stream's bins.
//! Concurrency: the streams are divided among threads for blocking work; they stop at their next
//! stream when the answer is dropped.

use super::finish::{beginnings, column};
use super::members::{Members, Source, SourcePage};
use super::plan::{Grouped, Key, Of};
use crate::columns::TIME;
use crate::error::{Error, external};
use crate::leaf_plan::leaf_plan;
use crate::table::{ReadMetrics, view_of};
use crate::view::{Chosen, View};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::ExecutionProps;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures_util::StreamExt;
use headwater::{Bins, ClosedRange};
use headwater_ask::{Bucket, Buckets, CancelGuard, CancelToken, Fold, Meter, Windows};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;

/// The plan's node.
#[derive(Debug)]
pub(crate) struct PyramidExec {
    grouped: Arc<Grouped>,
    projection: Vec<usize>,
    range: ClosedRange,
    members: Members,
    parallel: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PyramidExec {
    pub(super) fn new(
        grouped: Arc<Grouped>,
        projection: Vec<usize>,
        range: ClosedRange,
        chosen: Chosen,
        parallel: usize,
        props: &ExecutionProps,
    ) -> Result<PyramidExec> {
        let members = Members::new(&grouped, chosen, props)?;
        let schema = Arc::new(grouped.schema.project(&projection)?);
        let mut equivalence = EquivalenceProperties::new(Arc::clone(&schema));
        let bin = grouped.keys.iter().position(|k| *k == Key::Bin);
        let shown = bin.and_then(|bin| projection.iter().position(|p| *p == bin));
        if let (true, Some(at)) = (members.has_one_group(), shown) {
            let name = schema.field(at).name().clone();
            let column = datafusion::physical_expr::expressions::Column::new(&name, at);
            equivalence.add_ordering([datafusion::physical_expr::PhysicalSortExpr::new_default(
                Arc::new(column),
            )
            .nulls_last()]);
        }
        let properties = PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(PyramidExec {
            grouped,
            projection,
            range,
            members,
            parallel: parallel.max(1),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for PyramidExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grouped = &self.grouped;
        write!(f, "PyramidExec: table={}, ", grouped.table.name)?;
        match &self.members {
            Members::Held(groups) => {
                write!(f, "streams={}", groups.of.len())?;
                if let Some(all) = &grouped.table.streams {
                    write!(f, " of {}", all.len())?;
                }
                write!(f, ", groups={}", groups.count)?;
            }
            Members::Many(_) => write!(f, "streams by pages")?,
        }
        if let Bins::Every { width_ns, .. } = grouped.bins {
            let width = std::time::Duration::from_nanos(width_ns.unsigned_abs());
            write!(f, ", bins={width:?}")?;
        }
        if self.range != ClosedRange::ALL {
            write!(f, ", time={}", crate::text::range(&self.range))?;
        }
        if !grouped.fields.is_empty() {
            write!(f, ", fields=[{}]", grouped.fields.join(", "))?;
        }
        if !grouped.ends.is_empty() {
            let ends = grouped.ends.iter().map(|end| {
                let which = if end.last { "last" } else { "first" };
                match end.of {
                    Of::Time => format!("{which} {TIME}"),
                    Of::Field(at) => {
                        let field = grouped.table.fields.get(at);
                        format!("{which} {}", field.map_or("", |(name, _)| name))
                    }
                }
            });
            let ends: Vec<String> = ends.collect();
            write!(f, ", ends=[{}]", ends.join(", "))?;
        }
        Ok(())
    }
}

impl ExecutionPlan for PyramidExec {
    fn name(&self) -> &'static str {
        "PyramidExec"
    }

    leaf_plan!();

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(PyramidExec {
            grouped: Arc::clone(&self.grouped),
            projection: self.projection.clone(),
            range: self.range,
            members: self.members.clone(),
            parallel: self.parallel,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let view = view_of(context.session_config())?;
        let stop = CancelGuard::default();
        let fold = Arc::new(self.grouped.fold());
        let room = || Room {
            reserved: MemoryConsumer::new("pyramid").register(context.memory_pool()),
            bucket_bytes: fold.bucket_bytes(),
            cancel: stop.token(),
        };
        let source = Arc::new(self.members.source(&view, &self.grouped, room()));
        let mut parts = Vec::new();
        for part in 0..source.parts(self.parallel, &self.grouped) {
            parts.push(Part {
                view: Arc::clone(&view),
                grouped: Arc::clone(&self.grouped),
                fold: Arc::clone(&fold),
                source: Arc::clone(&source),
                range: self.range,
                windows: Windows::of_bins(self.range, self.grouped.bins),
                part,
                parts: source.parts(self.parallel, &self.grouped),
                metrics: ReadMetrics::new(&self.metrics, part),
                room: room(),
            });
        }
        let output = Output {
            grouped: Arc::clone(&self.grouped),
            fold: Arc::clone(&fold),
            source,
            projection: self.projection.clone(),
            schema: Arc::clone(&schema),
            metrics: ReadMetrics::new(&self.metrics, 0),
        };
        let rows = futures_util::stream::once(run(parts, output, stop)).flat_map(|batches| {
            let batches = match batches {
                Ok(batches) => batches.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            futures_util::stream::iter(batches)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Bins of groups, by group.
type ByGroup = HashMap<u32, Buckets>;

async fn run(parts: Vec<Part>, output: Output, stop: CancelGuard) -> Result<Vec<RecordBatch>> {
    let mut tasks = Vec::new();
    for part in parts {
        tasks.push(tokio::task::spawn_blocking(move || part.run()));
    }
    let mut all = ByGroup::new();
    // The memory stays reserved until the batches are made.
    let mut reserved = Vec::new();
    for task in tasks {
        let (groups, memory) = task
            .await
            .map_err(|e| Error::internal(format!("a part of a query ended: {e}")))??;
        reserved.push(memory);
        for (group, bins) in groups {
            all.entry(group).or_default().merge(bins, &output.fold.ends);
        }
    }
    let batches = output.batches(all);
    drop(stop);
    batches
}

/// The memory of a part, and whether anybody waits for it.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) reserved: MemoryReservation,
    bucket_bytes: usize,
    cancel: CancelToken,
}

impl Meter for Room {
    type Error = DataFusionError;

    fn goes_on(&self) -> Result<bool> {
        Ok(!self.cancel.is_cancelled())
    }

    fn reserve(&self, buckets: usize) -> Result<()> {
        self.reserved.try_grow(buckets * self.bucket_bytes)
    }

    fn settle(&self, reserved: usize, kept: usize) -> Result<()> {
        self.reserved.shrink((reserved - kept) * self.bucket_bytes);
        Ok(())
    }

    fn refused(error: headwater::Error) -> DataFusionError {
        external(error)
    }
}

/// Some of the streams.
struct Part {
    view: Arc<View>,
    grouped: Arc<Grouped>,
    fold: Arc<Fold>,
    source: Arc<Source>,
    range: ClosedRange,
    windows: Windows,
    part: usize,
    parts: usize,
    metrics: ReadMetrics,
    room: Room,
}

impl Part {
    fn run(self) -> Result<(ByGroup, MemoryReservation)> {
        let mut all = ByGroup::new();
        if let Source::Many(many) = &*self.source
            && many.counts_all(&self.view, &self.grouped)
        {
            self.count(&mut all)?;
            return Ok((all, self.room.reserved));
        }
        while let Some(page) = self.source.next(self.part, self.parts)? {
            for (stream, group) in page.members() {
                if !self.add(&page, *stream, all.entry(*group).or_default())? {
                    return Ok((all, self.room.reserved));
                }
            }
        }
        Ok((all, self.room.reserved))
    }

    /// Adds a stream; false when nobody waits any more.
    fn add(&self, page: &SourcePage<'_>, stream: u32, into: &mut Buckets) -> Result<bool> {
        let snapshot = self.view.snapshot();
        self.metrics
            .measure(|| match page.streams.handle(stream, snapshot)? {
                Some(handle) => self
                    .fold
                    .add(snapshot, handle, &self.windows, &self.room, into),
                None => self.room.goes_on(),
            })
    }

    /// Counts all rows of the table without looking at its streams.
    fn count(&self, all: &mut ByGroup) -> Result<()> {
        let table = &self.grouped.table.name;
        let goes_on = &mut || !self.room.cancel.is_cancelled();
        let rows = self.metrics.measure(|| {
            let snapshot = self.view.snapshot();
            snapshot.row_count(table, self.range, goes_on)
        });
        if let Some(rows) = rows.map_err(external)?.filter(|rows| *rows > 0) {
            let bucket = Bucket {
                rows,
                ..self.fold.nothing()
            };
            all.insert(0, Buckets::one(0, bucket));
        }
        Ok(())
    }
}

/// Makes batches of the bins.
struct Output {
    grouped: Arc<Grouped>,
    fold: Arc<Fold>,
    source: Arc<Source>,
    projection: Vec<usize>,
    schema: SchemaRef,
    metrics: ReadMetrics,
}

impl Output {
    fn batches(&self, all: ByGroup) -> Result<Vec<RecordBatch>> {
        let values = self.source.values()?;
        let mut groups: Vec<(u32, Buckets)> = all.into_iter().collect();
        groups.sort_unstable_by_key(|(group, _)| *group);
        let mut out = Vec::new();
        let mut numbers: Vec<u32> = Vec::new();
        let mut bins: Vec<(i128, Bucket)> = Vec::new();
        for (group, more) in groups {
            for bin in more {
                numbers.push(group);
                bins.push(bin);
                if bins.len() == BATCH_ROWS {
                    out.push(self.batch(&values, &numbers, &bins)?);
                    numbers.clear();
                    bins.clear();
                }
            }
        }
        if self.grouped.keys.is_empty() && bins.is_empty() && out.is_empty() {
            // Without groups there is one row, whatever there is.
            numbers.push(0);
            bins.push((0, self.fold.nothing()));
        }
        if !bins.is_empty() {
            out.push(self.batch(&values, &numbers, &bins)?);
        }
        Ok(out)
    }

    fn batch(
        &self,
        values: &[Option<ArrayRef>],
        groups: &[u32],
        bins: &[(i128, Bucket)],
    ) -> Result<RecordBatch> {
        let keys = self.grouped.keys.len();
        let groups = UInt32Array::from(groups.to_vec());
        let mut arrays = Vec::with_capacity(self.projection.len());
        for (at, field) in self.projection.iter().zip(self.schema.fields()) {
            let array = match at.checked_sub(keys) {
                Some(at) => match self.grouped.computed.get(at) {
                    Some(computed) => column(*computed, field.data_type(), bins)?,
                    None => return Err(Error::internal("a column that nobody computes").into()),
                },
                None => match (self.grouped.keys.get(*at), values.get(*at)) {
                    (Some(Key::Tags(_)), Some(Some(values))) => take(values, &groups, None)?,
                    _ => beginnings(&self.grouped.bins, bins)?,
                },
            };
            arrays.push(if array.data_type() == field.data_type() {
                array
            } else {
                cast(&array, field.data_type())?
            });
        }
        self.metrics.output_rows.add(bins.len());
        let options = RecordBatchOptions::new().with_row_count(Some(bins.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            arrays,
            &options,
        )?)
    }
}
