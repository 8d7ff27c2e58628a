//! Computes a grouped query from the pyramid.
//!
//! Invariants: the streams of a group are merged, whichever thread read them; the snapshot belongs
//! to the statement that runs; buckets are reserved from the statement's memory before they exceed
//! a stream's bins. Concurrency: the streams are divided among threads for blocking work; they stop
//! at their next stream when the answer is dropped.

use super::finish::{beginnings, column};
use super::members::{Groups, Members, Source, SourcePage};
use super::meter::PartMeter;
use super::plan::{Grouped, Key, Of};
use super::slices;
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
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
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
use headwater_ask::{Bucket, Buckets, CancelGuard, CancelToken, Fold, Meter as _, Windows};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;

/// The physical operator.
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
            Members::Loaded(groups) => {
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
                let field = |at: usize| {
                    let field = grouped.table.fields.get(at);
                    field.map_or("", |(name, _)| name.as_str())
                };
                match end.of {
                    Of::Time => format!("{which} {TIME}"),
                    Of::Field(at) => format!("{which} {}", field(at)),
                    Of::InRow(at) => format!("{} of the {which} row", field(at)),
                    Of::Tag(at) => {
                        let key = grouped.table.keys.get(at);
                        format!("{} of the {which} row", key.map_or("", String::as_str))
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
        let view = view_of(context.session_config())?.of(&self.grouped.table)?;
        // A query of a whole row must identify the row.
        let keeps = match self.grouped.ends.is_empty() {
            true => false,
            false => {
                let info = view.snapshot().table_info(&self.grouped.table.name);
                info.map_err(external)?.duplicates == headwater::Duplicates::Keep
            }
        };
        let fold = Arc::new(self.grouped.fold(keeps));
        let work = Work {
            view,
            output: Output {
                grouped: Arc::clone(&self.grouped),
                fold,
                projection: self.projection.clone(),
                schema: Arc::clone(&schema),
                metrics: ReadMetrics::new(&self.metrics, 0),
            },
            members: self.members.clone(),
            stop: CancelGuard::default(),
            parallel: self.parallel,
            pool: Arc::clone(context.memory_pool()),
            measured: self.metrics.clone(),
            waiting: vec![self.range],
            is_cut: false,
        };
        let batches = futures_util::stream::try_unfold(work, Work::next);
        let rows = batches.flat_map(|batches| {
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

/// The answer while it is computed: in one step, or, if its bins may exceed the memory, one part of
/// the range after another.
struct Work {
    view: Arc<View>,
    output: Output,
    members: Members,
    stop: CancelGuard,
    parallel: usize,
    pool: Arc<dyn MemoryPool>,
    measured: ExecutionPlanMetricsSet,
    /// Remaining ranges, the earliest last.
    waiting: Vec<ClosedRange>,
    /// True if the number of bins was estimated.
    is_cut: bool,
}

impl Work {
    /// The rows of the next non-empty part of the range.
    async fn next(mut self) -> Result<Option<(Vec<RecordBatch>, Work)>> {
        loop {
            let Some(range) = self.waiting.pop() else {
                return Ok(None);
            };
            let bins = self.output.grouped.bins;
            let looks = match &self.members {
                Members::Loaded(groups) => groups.of.len() <= LOOKED_AT,
                Members::Many(_) => false,
            };
            if looks && !self.is_cut && slices::may_be_many(&range, &bins) {
                self.cut(range).await?;
                continue;
            }
            match self.part(range).await {
                Ok(batches) => return Ok(Some((batches, self))),
                Err(error) => {
                    let is_memory =
                        matches!(error.find_root(), DataFusionError::ResourcesExhausted(_));
                    match slices::halves(&range, &bins) {
                        Some(_) if is_memory && !self.is_cut => self.cut(range).await?,
                        Some((first, last)) if is_memory => self.waiting.extend([last, first]),
                        _ => return Err(error),
                    }
                }
            }
        }
    }

    /// Splits a range, within the extent of the streams' rows, into parts whose bins fit into
    /// memory.
    async fn cut(&mut self, range: ClosedRange) -> Result<()> {
        self.is_cut = true;
        let Members::Loaded(groups) = &self.members else {
            // Very many streams are not inspected beforehand: the range is halved until the bins
            // fit.
            let halves = slices::halves(&range, &self.output.grouped.bins);
            self.waiting
                .extend(halves.map_or(vec![range], |(first, last)| vec![last, first]));
            return Ok(());
        };
        let groups = Arc::clone(groups);
        let count = i128::try_from(groups.count).unwrap_or(i128::MAX);
        let (view, cancel) = (Arc::clone(&self.view), self.stop.token());
        let looked = tokio::task::spawn_blocking(move || extent(&groups, &view, &cancel));
        let (extent, rows) = looked
            .await
            .map_err(|e| Error::internal(format!("a part of a query ended: {e}")))??;
        let (grouped, range) = (&self.output.grouped, range.intersect(&extent));
        let within = slices::bins_in(&range, &grouped.bins);
        // A quarter of the memory: each thread has bins, besides the merged ones.
        let memory = match self.pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / 4,
            _ => BINS_BYTES,
        };
        let room = i128::try_from(memory / self.output.fold.bucket_bytes()).unwrap_or(i128::MAX);
        // A group has at most as many bins as rows; deleted rows are not counted.
        let wanted = within.saturating_mul(count).min(i128::from(rows));
        let most = match wanted > room {
            false => within,
            true => (within / wanted.div_euclid(room.max(1)).saturating_add(1)).max(1),
        };
        self.waiting
            .extend(slices::parts(range, &grouped.bins, most));
        Ok(())
    }

    /// The rows of one part of the range.
    async fn part(&self, range: ClosedRange) -> Result<Vec<RecordBatch>> {
        let output = &self.output;
        let meter = || PartMeter {
            reserved: MemoryConsumer::new("pyramid").register(&self.pool),
            bucket_bytes: output.fold.bucket_bytes(),
            cancel: self.stop.token(),
        };
        let source = self.members.source(&self.view, &output.grouped, meter());
        let source = Arc::new(source);
        let parts = source.parts(self.parallel, &output.grouped);
        let mut tasks = Vec::new();
        for part in 0..parts {
            let part = StreamsPart {
                view: Arc::clone(&self.view),
                grouped: Arc::clone(&output.grouped),
                fold: Arc::clone(&output.fold),
                source: Arc::clone(&source),
                range,
                windows: Windows::of_bins(range, output.grouped.bins),
                part,
                parts,
                metrics: ReadMetrics::new(&self.measured, part),
                meter: meter(),
            };
            tasks.push(tokio::task::spawn_blocking(move || part.run()));
        }
        let mut all = ByGroup::new();
        // The memory stays reserved until the batches are made.
        let mut reserved = Vec::new();
        let mut failed = None;
        for task in tasks {
            let ran = task
                .await
                .map_err(|e| Error::internal(format!("a part of a query ended: {e}")))?;
            match ran {
                Ok((groups, memory)) => {
                    reserved.push(memory);
                    for (group, bins) in groups {
                        all.entry(group).or_default().merge(bins, &output.fold.ends);
                    }
                }
                // All parts end before a smaller range is tried.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => output.batches(&source, all),
        }
    }
}

/// Number of streams up to which the extent of their rows is determined beforehand.
const LOOKED_AT: usize = 10_000;
/// Memory of bins without a known limit.
const BINS_BYTES: usize = 64 << 20;

/// The range of instants in which the streams have or had rows, and the number of rows.
fn extent(groups: &Groups, view: &View, cancel: &CancelToken) -> Result<(ClosedRange, u64)> {
    let (mut extent, mut rows) = (ClosedRange::EMPTY, 0u64);
    for (stream, _) in &groups.of {
        if cancel.is_cancelled() {
            break;
        }
        // A dropped stream does not have rows.
        let handle = groups.streams.handle(*stream, view.snapshot())?;
        let info = match handle.map(|handle| view.snapshot().stream_info(handle.name())) {
            None => continue,
            Some(Err(error)) if error.kind() == headwater::ErrorKind::NotFound => continue,
            Some(other) => other.map_err(external)?,
        };
        if let (Some(first), Some(last)) = (info.first, info.last) {
            extent = match extent.is_empty() {
                true => ClosedRange::new(first, last),
                false => ClosedRange::new(extent.first.min(first), extent.last.max(last)),
            };
        }
        rows = rows.saturating_add(info.rows);
    }
    Ok((extent, rows))
}

/// Some of the streams.
struct StreamsPart {
    view: Arc<View>,
    grouped: Arc<Grouped>,
    fold: Arc<Fold>,
    source: Arc<Source>,
    range: ClosedRange,
    windows: Windows,
    part: usize,
    parts: usize,
    metrics: ReadMetrics,
    meter: PartMeter,
}

impl StreamsPart {
    fn run(self) -> Result<(ByGroup, MemoryReservation)> {
        let mut all = ByGroup::new();
        if let Source::Many(many) = &*self.source
            && many.counts_all(&self.view, &self.grouped)
        {
            self.count(&mut all)?;
            return Ok((all, self.meter.reserved));
        }
        while let Some(page) = self.source.next(self.part, self.parts)? {
            for (stream, group) in page.members() {
                if !self.add(&page, *stream, all.entry(*group).or_default())? {
                    return Ok((all, self.meter.reserved));
                }
            }
        }
        Ok((all, self.meter.reserved))
    }

    /// Adds a stream; false when the answer was dropped.
    fn add(&self, page: &SourcePage<'_>, stream: u32, into: &mut Buckets) -> Result<bool> {
        let snapshot = self.view.snapshot();
        self.metrics
            .measure(|| match page.streams.handle(stream, snapshot)? {
                Some(handle) => self
                    .fold
                    .add(snapshot, handle, &self.windows, &self.meter, into),
                None => self.meter.goes_on(),
            })
    }

    /// Counts all rows of the table without visiting its streams.
    fn count(&self, all: &mut ByGroup) -> Result<()> {
        let table = &self.grouped.table.name;
        let goes_on = &mut || !self.meter.cancel.is_cancelled();
        let rows = self.metrics.measure(|| {
            let snapshot = self.view.snapshot();
            snapshot.row_count(table, self.range, goes_on)
        });
        if let Some(rows) = rows.map_err(external)?.filter(|rows| *rows > 0) {
            let bucket = Bucket {
                rows,
                ..self.fold.empty_bucket()
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
    projection: Vec<usize>,
    schema: SchemaRef,
    metrics: ReadMetrics,
}

impl Output {
    fn batches(&self, source: &Source, all: ByGroup) -> Result<Vec<RecordBatch>> {
        let values = source.values()?;
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
            // Without groups there is exactly one row.
            numbers.push(0);
            bins.push((0, self.fold.empty_bucket()));
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
