//! Computes a grouped query from the pyramid.
//!
//! Invariants: the streams of a group are brought together whichever part of the work met them; the snapshot is that of the
//! statement that runs; what is held is reserved from the statement's memory before it grows beyond a stream's bins.
//! Concurrency: the streams are divided among threads for blocking work; they stop at their next stream when the answer is dropped.

use super::ends::{Ends, Found};
use super::finish::{Folded, beginnings, column};
use super::plan::{Computed, End, Function, Grouped, Key, Of};
use crate::columns::TIME;
use crate::error::{Error, external};
use crate::table::{ReadMetrics, view_of};
use crate::view::View;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::context::ExecutionProps;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use futures_util::StreamExt;
use headwater::{Bins, ClosedRange, Ieee, ScanSpec, SummaryBin, SummarySpec, Values};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;

/// The streams by the group they belong to.
#[derive(Debug)]
struct Groups {
    /// The group of each stream that is read, in their order.
    of: Vec<(u32, u32)>,
    /// Per key over tags its value in each group.
    values: Vec<Option<ArrayRef>>,
    count: usize,
}

impl Groups {
    fn new(grouped: &Grouped, streams: &[u32], props: &ExecutionProps) -> Result<Groups> {
        let rows = grouped.table.tag_rows()?;
        let schema = DFSchema::try_from(rows.schema())?;
        let picked = UInt32Array::from(streams.to_vec());
        let mut columns: Vec<Option<ArrayRef>> = Vec::new();
        for key in &grouped.keys {
            let Key::Tags(expr) = key else {
                columns.push(None);
                continue;
            };
            let planning = PhysicalPlanningContext::default();
            let physical = create_physical_expr(expr, &schema, props, &planning)?;
            let values = physical.evaluate(&rows)?.into_array(rows.num_rows())?;
            columns.push(Some(take(&values, &picked, None)?));
        }
        let by: Vec<ArrayRef> = columns.iter().flatten().cloned().collect();
        if by.is_empty() {
            return Ok(Groups {
                of: streams.iter().map(|stream| (*stream, 0)).collect(),
                values: columns,
                count: usize::from(!streams.is_empty()),
            });
        }
        let sorts = by.iter().map(|a| SortField::new(a.data_type().clone()));
        let converter = RowConverter::new(sorts.collect())?;
        let keys = converter.convert_columns(&by)?;
        let mut known = HashMap::new();
        let mut first: Vec<u32> = Vec::new();
        let mut of = Vec::with_capacity(streams.len());
        for (at, (stream, key)) in (0u32..).zip(streams.iter().zip(keys.iter())) {
            let next = first.len() as u32;
            let group = *known.entry(key).or_insert(next);
            if group == next {
                first.push(at);
            }
            of.push((*stream, group));
        }
        let count = first.len();
        let first = UInt32Array::from(first);
        let values = columns.into_iter().map(|column| match column {
            Some(column) => Ok(Some(take(&column, &first, None)?)),
            None => Ok(None),
        });
        Ok(Groups {
            values: values.collect::<Result<_>>()?,
            of,
            count,
        })
    }
}

/// The plan's node.
#[derive(Debug)]
pub(crate) struct PyramidExec {
    grouped: Arc<Grouped>,
    projection: Vec<usize>,
    range: ClosedRange,
    groups: Arc<Groups>,
    parallel: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PyramidExec {
    pub(super) fn new(
        grouped: Arc<Grouped>,
        projection: Vec<usize>,
        range: ClosedRange,
        streams: Vec<u32>,
        parallel: usize,
        props: &ExecutionProps,
    ) -> Result<PyramidExec> {
        let groups = Arc::new(Groups::new(&grouped, &streams, props)?);
        let schema = Arc::new(grouped.schema.project(&projection)?);
        let mut equivalence = EquivalenceProperties::new(Arc::clone(&schema));
        let bin = grouped.keys.iter().position(|k| *k == Key::Bin);
        let shown = bin.and_then(|bin| projection.iter().position(|p| *p == bin));
        if let (true, Some(at)) = (groups.count <= 1, shown) {
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
            groups,
            parallel: parallel.max(1),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for PyramidExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grouped = &self.grouped;
        write!(
            f,
            "PyramidExec: table={}, streams={} of {}, groups={}",
            grouped.table.name,
            self.groups.of.len(),
            grouped.table.streams.len(),
            self.groups.count
        )?;
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

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(PyramidExec {
            grouped: Arc::clone(&self.grouped),
            projection: self.projection.clone(),
            range: self.range,
            groups: Arc::clone(&self.groups),
            parallel: self.parallel,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let view = view_of(context.session_config())?;
        let stop = Stop(Arc::new(AtomicBool::new(false)));
        let mut parts = Vec::new();
        for part in 0..self.parallel.min(self.groups.of.len()) {
            parts.push(Part {
                view: Arc::clone(&view),
                grouped: Arc::clone(&self.grouped),
                groups: Arc::clone(&self.groups),
                range: self.range,
                part,
                parts: self.parallel.min(self.groups.of.len()),
                stop: Arc::clone(&stop.0),
                metrics: ReadMetrics::new(&self.metrics, part),
                reserved: MemoryConsumer::new("pyramid").register(context.memory_pool()),
            });
        }
        let output = Output {
            grouped: Arc::clone(&self.grouped),
            groups: Arc::clone(&self.groups),
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

/// Ends the parts when the answer is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bins of groups, by group; those of a group rise.
type ByGroup = HashMap<u32, Vec<Folded>>;

async fn run(parts: Vec<Part>, output: Output, stop: Stop) -> Result<Vec<RecordBatch>> {
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
            merge(all.entry(group).or_default(), bins, &output.grouped.ends);
        }
    }
    let batches = output.batches(all);
    drop(stop);
    batches
}

/// Brings rising bins together.
fn merge(into: &mut Vec<Folded>, more: Vec<Folded>, ends: &[End]) {
    if into.is_empty() {
        *into = more;
        return;
    }
    let mut merged: Vec<Folded> = Vec::with_capacity(into.len().max(more.len()));
    let mut theirs = more.into_iter().peekable();
    for mine in std::mem::take(into) {
        while let Some(other) = theirs.next_if(|t| t.bin.number < mine.bin.number) {
            merged.push(other);
        }
        let mut mine = mine;
        if let Some(other) = theirs.next_if(|t| t.bin.number == mine.bin.number) {
            mine.merge(other, ends);
        }
        merged.push(mine);
    }
    merged.extend(theirs);
    *into = merged;
}

/// Some of the streams.
struct Part {
    view: Arc<View>,
    grouped: Arc<Grouped>,
    groups: Arc<Groups>,
    range: ClosedRange,
    part: usize,
    parts: usize,
    stop: Arc<AtomicBool>,
    metrics: ReadMetrics,
    reserved: MemoryReservation,
}

impl Part {
    fn run(self) -> Result<(ByGroup, MemoryReservation)> {
        let mut all = ByGroup::new();
        let count = self.groups.of.len();
        let own = count * self.part / self.parts..count * (self.part + 1) / self.parts;
        let spec = SummarySpec {
            range: self.range,
            bins: self.grouped.bins,
            fields: self.grouped.fields.clone(),
        };
        let per_bin = size_of::<Folded>()
            + spec.fields.len() * size_of::<headwater::Aggregate>()
            + self.grouped.ends.len() * size_of::<Option<Found>>();
        for (stream, group) in self.groups.of.get(own).unwrap_or_default() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let bins = self.metrics.measure(|| self.stream(*stream, &spec))?;
            self.reserved.try_grow(bins.len() * per_bin)?;
            let into = all.entry(*group).or_default();
            let (before, more) = (into.len(), bins.len());
            merge(into, bins, &self.grouped.ends);
            self.reserved.shrink((before + more - into.len()) * per_bin);
        }
        Ok((all, self.reserved))
    }

    fn stream(&self, stream: u32, spec: &SummarySpec) -> Result<Vec<Folded>> {
        let snapshot = self.view.snapshot();
        let Some(handle) = self.grouped.table.streams.handle(stream, snapshot)? else {
            return Ok(Vec::new());
        };
        if !self.grouped.needs_aggregates() {
            return self.ends_alone(handle);
        }
        let bins = match handle.summary(snapshot, spec) {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(external)?,
        };
        let mut out = Vec::with_capacity(bins.len());
        for bin in bins {
            let nan = self.nan(handle, &bin)?;
            let ends = if self.grouped.ends.is_empty() {
                Vec::new()
            } else {
                self.ends(handle).find(&self.grouped.ends)?
            };
            out.push(Folded { bin, nan, ends });
        }
        Ok(out)
    }

    fn ends<'a>(&'a self, handle: &'a headwater::StreamHandle) -> Ends<'a> {
        Ends {
            table: &self.grouped.table,
            handle,
            snapshot: self.view.snapshot(),
            range: self.range,
            stop: &self.stop,
        }
    }

    /// What is found at the ends; nothing where there is no row.
    fn ends_alone(&self, handle: &headwater::StreamHandle) -> Result<Vec<Folded>> {
        let ends = self.ends(handle);
        let found = ends.find(&self.grouped.ends)?;
        if found.iter().all(Option::is_none) && !ends.has_rows()? {
            return Ok(Vec::new());
        }
        Ok(vec![Folded {
            ends: found,
            ..Folded::empty(&self.grouped)
        }])
    }

    /// The extremes of NaN values by total order, where some are asked for: an aggregate only counts them, and what sign they
    /// have decides on which side of all numbers they are.
    fn nan(
        &self,
        handle: &headwater::StreamHandle,
        bin: &SummaryBin,
    ) -> Result<Vec<(usize, f64, f64)>> {
        let mut out = Vec::new();
        for (field, aggregate) in bin.aggregates.iter().enumerate() {
            let of = |c: &Computed| matches!(c, Computed::Of(Function::Min | Function::Max, f) if *f == field);
            if aggregate.nan == 0 || !self.grouped.computed.iter().any(of) {
                continue;
            }
            let bins = &self.grouped.bins;
            let clamp = |at: i128| at.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
            let range = match bins {
                Bins::Whole => self.range,
                _ => ClosedRange::nanos(
                    clamp(bins.begin(bin.number)),
                    clamp(bins.begin(bin.number + 1) - 1),
                )
                .intersect(&self.range),
            };
            let spec = ScanSpec {
                range,
                fields: self.grouped.fields.get(field).map(|f| vec![f.clone()]),
                filters: Vec::new(),
            };
            let mut ends: Option<(f64, f64)> = None;
            for chunk in handle.scan(self.view.snapshot(), &spec).map_err(external)? {
                let chunk = chunk.map_err(external)?;
                let Some(column) = chunk.columns.first() else {
                    continue;
                };
                let Values::F64(values) = column.values() else {
                    continue;
                };
                for (row, value) in values.iter().enumerate() {
                    if value.is_nan() && column.is_present(row) {
                        let (low, high) = ends.unwrap_or((*value, *value));
                        ends = Some((Ieee::least(low, *value), Ieee::greatest(high, *value)));
                    }
                }
            }
            out.extend(ends.map(|(low, high)| (field, low, high)));
        }
        Ok(out)
    }
}

/// Makes batches of the bins.
struct Output {
    grouped: Arc<Grouped>,
    groups: Arc<Groups>,
    projection: Vec<usize>,
    schema: SchemaRef,
    metrics: ReadMetrics,
}

impl Output {
    fn batches(&self, mut all: ByGroup) -> Result<Vec<RecordBatch>> {
        if self.grouped.keys.is_empty() {
            // Without groups there is one row, whatever there is.
            let bins = all.entry(0).or_default();
            if bins.is_empty() {
                bins.push(Folded::empty(&self.grouped));
            }
        }
        let mut groups: Vec<(u32, Vec<Folded>)> = all.into_iter().collect();
        groups.sort_unstable_by_key(|(group, _)| *group);
        let mut out = Vec::new();
        let mut numbers: Vec<u32> = Vec::new();
        let mut bins: Vec<Folded> = Vec::new();
        for (group, more) in groups {
            for bin in more {
                numbers.push(group);
                bins.push(bin);
                if bins.len() == BATCH_ROWS {
                    out.push(self.batch(&numbers, &bins)?);
                    numbers.clear();
                    bins.clear();
                }
            }
        }
        if !bins.is_empty() {
            out.push(self.batch(&numbers, &bins)?);
        }
        Ok(out)
    }

    fn batch(&self, groups: &[u32], bins: &[Folded]) -> Result<RecordBatch> {
        let keys = self.grouped.keys.len();
        let groups = UInt32Array::from(groups.to_vec());
        let mut arrays = Vec::with_capacity(self.projection.len());
        for (at, field) in self.projection.iter().zip(self.schema.fields()) {
            let array = match at.checked_sub(keys) {
                Some(at) => match self.grouped.computed.get(at) {
                    Some(computed) => column(*computed, field.data_type(), bins)?,
                    None => return Err(Error::internal("a column that nobody computes").into()),
                },
                None => match (self.grouped.keys.get(*at), self.groups.values.get(*at)) {
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
