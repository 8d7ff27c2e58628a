//! Reads rows of streams into Arrow batches.
//!
//! Invariants: every partition of the plan reads its pieces one after the other, so that its rows are ordered as
//! [`Work::ordering`] says; the snapshot is that of the statement that runs, which need not be the one it was planned for.
//! Concurrency: a partition reads on a thread for blocking work and hands its batches on through a short queue; it stops at the
//! next batch when nobody takes them any more.
//! Failure: what the engine reports ends the statement; nothing is left out silently.

use super::view_of;
use crate::columns;
use crate::error::{Error, external};
use crate::view::{Role, TableView, View};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use headwater::{ClosedRange, Filter, ScanChunk, ScanSpec, Timestamp, Touched};
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Batches that wait to be taken, per partition.
const QUEUE: usize = 2;
/// A stream with fewer rows than this in its range is read in one piece.
const SPLIT_ROWS: u64 = 100_000;

/// A stretch of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    stream: u32,
    range: ClosedRange,
}

/// What each partition reads.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    parts: Vec<Vec<Piece>>,
    /// All streams that are read, rising.
    streams: Vec<u32>,
}

impl Work {
    /// Divides the reading of streams into about `parallel` parts of equal size.
    pub(crate) fn divide(
        view: &View,
        table: &TableView,
        streams: Vec<u32>,
        range: ClosedRange,
        parallel: usize,
    ) -> Result<Work> {
        let parallel = parallel.max(1);
        let parts = match &*streams {
            [] => Vec::new(),
            [one] => split(view, table, *one, range, parallel)?,
            several => {
                let parts = parallel.min(several.len());
                let piece = |stream: &u32| Piece {
                    stream: *stream,
                    range,
                };
                (0..parts)
                    .map(|part| {
                        let of = |part: usize| several.len() * part / parts;
                        let own = several.get(of(part)..of(part + 1)).unwrap_or_default();
                        own.iter().map(piece).collect()
                    })
                    .collect()
            }
        };
        Ok(Work { parts, streams })
    }

    /// The columns by which the rows of every partition are ordered, and those that have one value.
    fn ordering(&self, table: &TableView, schema: &SchemaRef) -> EquivalenceProperties {
        let mut properties = EquivalenceProperties::new(Arc::clone(schema));
        let column = |name: &str| -> Option<Arc<dyn PhysicalExpr>> {
            Some(Arc::new(Column::new(name, schema.index_of(name).ok()?)))
        };
        let sorted = |expr| {
            PhysicalSortExpr::new(
                expr,
                SortOptions {
                    descending: false,
                    nulls_first: false,
                },
            )
        };
        let mut ordering = Vec::new();
        let mut whole = true;
        for (field, role) in table.schema.fields().iter().zip(&table.roles) {
            let Role::Tag(key) = role else { continue };
            if self.has_one_value(table, *key) {
                continue;
            }
            match column(field.name()) {
                Some(expr) => ordering.push(sorted(expr)),
                None => {
                    whole = false;
                    break;
                }
            }
        }
        if whole && let Some(time) = column(columns::TIME) {
            ordering.push(sorted(time));
        }
        if !ordering.is_empty() {
            properties.add_ordering(ordering);
        }
        properties
    }

    fn has_one_value(&self, table: &TableView, key: usize) -> bool {
        let Some(tag) = table.streams.tag(key) else {
            return true;
        };
        let mut values = self.streams.iter().map(|s| tag.key(*s as usize));
        let first = values.next();
        values.all(|v| Some(v) == first)
    }
}

/// Stretches of one stream with about as many rows each.
fn split(
    view: &View,
    table: &TableView,
    stream: u32,
    range: ClosedRange,
    parallel: usize,
) -> Result<Vec<Vec<Piece>>> {
    let whole = vec![vec![Piece { stream, range }]];
    let Some(name) = table.streams.name(stream) else {
        return Ok(whole);
    };
    if parallel < 2 {
        return Ok(whole);
    }
    let info = match view.snapshot().stream_info(name) {
        Err(error) if error.kind() == headwater::ErrorKind::NotFound => return Ok(whole),
        other => other.map_err(external)?,
    };
    let (Some(first), Some(last)) = (info.first, info.last) else {
        return Ok(whole);
    };
    let inside = ClosedRange::new(first, last).intersect(&range);
    let width =
        |r: &ClosedRange| i128::from(r.last.as_nanos()) - i128::from(r.first.as_nanos()) + 1;
    if inside.is_empty() {
        return Ok(whole);
    }
    let share = width(&inside) as f64 / width(&ClosedRange::new(first, last)) as f64;
    if (info.rows as f64 * share) < SPLIT_ROWS as f64 || width(&inside) < parallel as i128 {
        return Ok(whole);
    }
    let mut parts = Vec::with_capacity(parallel);
    let mut from = range.first;
    for part in 1..=parallel {
        // The last instant of a part; the ends of the range belong to the outer ones.
        let to = if part == parallel {
            range.last
        } else {
            let at = i128::from(inside.first.as_nanos())
                + width(&inside) * part as i128 / parallel as i128
                - 1;
            Timestamp::from_nanos(i64::try_from(at).unwrap_or(i64::MAX))
        };
        parts.push(vec![Piece {
            stream,
            range: ClosedRange::new(from, to),
        }]);
        from = Timestamp::from_nanos(to.as_nanos().saturating_add(1));
    }
    Ok(parts)
}

/// Reads rows.
#[derive(Debug)]
pub(crate) struct ScanExec {
    table: Arc<TableView>,
    projection: Vec<usize>,
    filters: Vec<Filter>,
    range: ClosedRange,
    work: Work,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    pub(crate) fn new(
        table: Arc<TableView>,
        projection: Vec<usize>,
        filters: Vec<Filter>,
        range: ClosedRange,
        work: Work,
        limit: Option<usize>,
    ) -> Result<ScanExec> {
        let schema = Arc::new(table.schema.project(&projection)?);
        let properties = PlanProperties::new(
            work.ordering(&table, &schema),
            Partitioning::UnknownPartitioning(work.parts.len().max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(ScanExec {
            table,
            projection,
            filters,
            range,
            work,
            limit,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.properties.equivalence_properties().schema().fields();
        let columns: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        write!(
            f,
            "ScanExec: table={}, streams={} of {}, columns=[{}]",
            self.table.name,
            self.work.streams.len(),
            self.table.streams.len(),
            columns.join(", ")
        )?;
        if self.range != ClosedRange::ALL {
            write!(f, ", time={}", crate::text::range(&self.range))?;
        }
        for filter in &self.filters {
            write!(f, ", {}", crate::text::filter(filter))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "ScanExec"
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
        Ok(Arc::new(ScanExec {
            table: Arc::clone(&self.table),
            projection: self.projection.clone(),
            filters: self.filters.clone(),
            range: self.range,
            work: self.work.clone(),
            limit: self.limit,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let mut queue = RecordBatchReceiverStream::builder(Arc::clone(&schema), QUEUE);
        let reader = Reader {
            view: view_of(context.session_config())?,
            table: Arc::clone(&self.table),
            schema,
            roles: self
                .projection
                .iter()
                .filter_map(|at| self.table.roles.get(*at).copied())
                .collect(),
            filters: self.filters.clone(),
            left: self.limit.unwrap_or(usize::MAX),
            metrics: ReadMetrics::new(&self.metrics, partition),
        };
        let pieces = self.work.parts.get(partition).cloned().unwrap_or_default();
        let out = queue.tx();
        queue.spawn_blocking(move || reader.run(&pieces, &out));
        Ok(queue.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What a partition counts for `EXPLAIN ANALYZE`.
pub(crate) struct ReadMetrics {
    pub(crate) output_rows: Count,
    leaves: Count,
    pages: Count,
    buckets: Count,
    bytes: Count,
    elapsed: Time,
}

impl ReadMetrics {
    pub(crate) fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> ReadMetrics {
        let counter = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        ReadMetrics {
            output_rows: MetricBuilder::new(set).output_rows(partition),
            leaves: counter("leaves"),
            pages: counter("pages"),
            buckets: counter("buckets"),
            bytes: counter("bytes_read"),
            elapsed: MetricBuilder::new(set).elapsed_compute(partition),
        }
    }

    /// Counts what a read of this thread touches, and its time.
    pub(crate) fn measure<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = Touched::by_this_thread();
        let timer = self.elapsed.timer();
        let result = read();
        drop(timer);
        let touched = Touched::by_this_thread() - before;
        let add = |count: &Count, n: u64| count.add(usize::try_from(n).unwrap_or(usize::MAX));
        add(&self.leaves, touched.leaves);
        add(&self.pages, touched.pages);
        add(&self.buckets, touched.buckets);
        add(&self.bytes, touched.bytes);
        result
    }
}

struct Reader {
    view: Arc<View>,
    table: Arc<TableView>,
    schema: SchemaRef,
    roles: Vec<Role>,
    filters: Vec<Filter>,
    /// Rows that may still be handed out.
    left: usize,
    metrics: ReadMetrics,
}

impl Reader {
    fn run(mut self, pieces: &[Piece], out: &Sender<Result<RecordBatch>>) -> Result<()> {
        for piece in pieces {
            if !self.read(*piece, out)? {
                break;
            }
        }
        Ok(())
    }

    /// False when no more is wanted.
    fn read(&mut self, piece: Piece, out: &Sender<Result<RecordBatch>>) -> Result<bool> {
        let Some(handle) = self
            .table
            .streams
            .handle(piece.stream, self.view.snapshot())?
        else {
            return Ok(true);
        };
        let wanted = self.roles.iter().filter_map(|role| match role {
            Role::Field(at) => self.table.fields.get(*at).map(|(name, _)| name.clone()),
            _ => None,
        });
        let spec = ScanSpec {
            range: piece.range,
            fields: Some(wanted.collect()),
            filters: self.filters.clone(),
        };
        let scan = self
            .metrics
            .measure(|| handle.scan(self.view.snapshot(), &spec));
        let mut scan = match scan {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => return Ok(true),
            other => other.map_err(external)?,
        };
        while self.left > 0 {
            let batch = self.metrics.measure(|| {
                let chunk = scan.next()?;
                Some(
                    chunk
                        .map_err(external)
                        .and_then(|chunk| self.batch(chunk, piece.stream).map_err(Into::into)),
                )
            });
            let Some(batch) = batch else {
                return Ok(true);
            };
            let mut batch = batch?;
            if batch.num_rows() > self.left {
                batch = batch.slice(0, self.left);
            }
            self.left -= batch.num_rows();
            self.metrics.output_rows.add(batch.num_rows());
            if out.blocking_send(Ok(batch)).is_err() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn batch(&self, chunk: ScanChunk, stream: u32) -> crate::Result<RecordBatch> {
        let rows = chunk.times.len();
        let mut times = Some(chunk.times);
        let mut fields = chunk.columns.into_iter();
        let mut arrays = Vec::with_capacity(self.roles.len());
        for role in &self.roles {
            arrays.push(match role {
                Role::Time => columns::times(times.take().unwrap_or_default()),
                Role::Tag(key) => self.table.streams.tag_column(*key, stream, rows)?,
                Role::Field(_) => {
                    let column = fields
                        .next()
                        .ok_or_else(|| Error::internal("a scan without a column"))?;
                    columns::to_array(column)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|e| Error::internal(e.to_string()))
    }
}
