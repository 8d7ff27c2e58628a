//! The physical operator that reads rows of streams.
//!
//! Invariants: every partition of the plan reads its ranges one after another, so that its rows are
//! ordered as [`Work::ordering`] says; the snapshot belongs to the statement that runs, which need
//! not be the one for which it was planned. Concurrency: a partition reads on a thread for blocking
//! work and passes its batches on through a short queue; it stops at the next batch when the
//! receiver was dropped. Failure: an error of the engine ends the statement; rows are never skipped
//! silently.

use super::read::{ReadMetrics, Reader};
use super::request::{Direction, FieldConditions, StreamRange};
use super::skipping::{Bounds, Skipping};
use super::view_of;
use crate::columns;
use crate::error::external;
use crate::leaf_plan::leaf_plan;
use crate::view::{Choice, Chosen, Pages, Role, Streams, TableView, View};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    SortOrderPushdownResult,
};
use headwater::{ClosedRange, Timestamp};
use std::fmt;
use std::sync::Arc;

/// Capacity of the queue of batches, per partition.
const QUEUE: usize = 2;
/// A stream with fewer rows than this in its range is not split.
const SPLIT_ROWS: u64 = 100_000;

/// Order of the rows of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// By tags and time.
    Tags,
    /// By time: a partition reads one stream.
    Time { descending: bool },
}

/// Maximum streams that are read at once, each by its own partition, to return their rows by time.
const BY_TIME_MAX: usize = 32;

/// Maximum rows to search at one end of time, over many streams.
const FIRST_MAX: usize = 256;

/// Ranges and streams that each partition reads.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Loaded(LoadedWork),
    Many(ManyWork),
}

/// Streams in memory, divided among partitions.
#[derive(Clone, Debug)]
pub(crate) struct LoadedWork {
    streams: Arc<Streams>,
    parts: Vec<Vec<StreamRange>>,
    /// All streams to read, sorted ascending.
    streams_to_read: Vec<u32>,
    order: Order,
}

/// More streams than fit into memory: one partition, for which several threads read one page of
/// streams after another. Its rows are unordered.
#[derive(Clone, Debug)]
pub(crate) struct ManyWork {
    choice: Arc<Choice>,
    threads: usize,
    /// Preferred direction of the rows by time, if the plan above has one.
    by_time: Option<Direction>,
    /// Limit of rows, the first by time.
    first: Option<usize>,
}

impl Work {
    /// Divides the reading of streams into about `parallel` parts of equal size.
    pub(crate) fn divide(
        view: &View,
        chosen: Chosen,
        range: ClosedRange,
        parallel: usize,
    ) -> Result<Work> {
        let parallel = parallel.max(1);
        let (streams, streams_to_read) = match chosen {
            Chosen::Loaded(streams, places) => (streams, places),
            Chosen::Many(choice) => {
                return Ok(Work::Many(ManyWork {
                    choice,
                    threads: parallel,
                    by_time: None,
                    first: None,
                }));
            }
        };
        let parts = match &*streams_to_read {
            [] => Vec::new(),
            [one] => split(view, &streams, *one, range, parallel)?,
            several => {
                let parts = parallel.min(several.len());
                let piece = |stream: &u32| StreamRange {
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
        Ok(Work::Loaded(LoadedWork {
            streams,
            parts,
            streams_to_read,
            order: Order::Tags,
        }))
    }

    fn partitions(&self) -> usize {
        match self {
            Work::Loaded(work) => work.parts.len().max(1),
            Work::Many(_) => 1,
        }
    }

    fn is_backwards(&self) -> bool {
        matches!(self, Work::Loaded(work) if work.order == Order::Time { descending: true })
    }

    /// The columns by which the rows of every partition are ordered, and the constant columns.
    fn ordering(&self, table: &TableView, schema: &SchemaRef) -> Result<EquivalenceProperties> {
        match self {
            Work::Loaded(work) => work.ordering(table, schema),
            Work::Many(_) => Ok(EquivalenceProperties::new(Arc::clone(schema))),
        }
    }
}

impl LoadedWork {
    /// The same work with the rows of every partition ordered by time; `None` when there are too
    /// many streams, or when rows that the plan above now gets from one partition would be in
    /// several.
    fn by_time(&self, range: ClosedRange, descending: bool) -> Option<LoadedWork> {
        let mut parts = self.parts.clone();
        if parts.iter().any(|part| part.len() > 1) {
            if parts.len() < 2 || self.streams_to_read.len() > BY_TIME_MAX {
                return None;
            }
            let piece = |stream: &u32| StreamRange {
                stream: *stream,
                range,
            };
            parts = self
                .streams_to_read
                .iter()
                .map(|s| vec![piece(s)])
                .collect();
        }
        Some(LoadedWork {
            streams: Arc::clone(&self.streams),
            parts,
            streams_to_read: self.streams_to_read.clone(),
            order: Order::Time { descending },
        })
    }

    fn ordering(&self, table: &TableView, schema: &SchemaRef) -> Result<EquivalenceProperties> {
        let mut properties = EquivalenceProperties::new(Arc::clone(schema));
        let column = |name: &str| -> Option<Arc<dyn PhysicalExpr>> {
            Some(Arc::new(Column::new(name, schema.index_of(name).ok()?)))
        };
        let sorted = |expr| {
            let options = SortOptions {
                descending: self.order == Order::Time { descending: true },
                nulls_first: false,
            };
            PhysicalSortExpr::new(expr, options)
        };
        let mut ordering = Vec::new();
        let mut whole = true;
        if let (Order::Time { .. }, Some(time)) = (self.order, column(columns::TIME)) {
            properties.add_ordering([sorted(time)]);
            return Ok(properties);
        }
        for (field, role) in table.schema.fields().iter().zip(&table.roles) {
            let Role::Tag(key) = role else { continue };
            if self.has_one_value(*key)? {
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
        Ok(properties)
    }

    fn has_one_value(&self, key: usize) -> Result<bool> {
        let Some(tag) = self.streams.tag(key)? else {
            return Ok(true);
        };
        let mut values = self.streams_to_read.iter().map(|s| tag.key(*s as usize));
        let first = values.next();
        Ok(values.all(|v| Some(v) == first))
    }
}

/// Ranges of one stream with about as many rows each.
fn split(
    view: &View,
    streams: &Streams,
    stream: u32,
    range: ClosedRange,
    parallel: usize,
) -> Result<Vec<Vec<StreamRange>>> {
    let whole = vec![vec![StreamRange { stream, range }]];
    let Some(name) = streams.name(stream) else {
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
        // The last instant of a part; the ends of the range belong to the outer parts.
        let to = if part == parallel {
            range.last
        } else {
            let at = i128::from(inside.first.as_nanos())
                + width(&inside) * part as i128 / parallel as i128
                - 1;
            Timestamp::from_nanos(i64::try_from(at).unwrap_or(i64::MAX))
        };
        parts.push(vec![StreamRange {
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
    conditions: FieldConditions,
    range: ClosedRange,
    work: Work,
    limit: Option<usize>,
    /// Indexes that can answer the conditions, at the time of planning.
    indexes: Arc<[String]>,
    /// Possible locations of matches of the pattern for which the rows are searched.
    skipping: Option<Arc<Skipping>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    pub(crate) fn new(
        table: Arc<TableView>,
        projection: Vec<usize>,
        conditions: FieldConditions,
        range: ClosedRange,
        work: Work,
        limit: Option<usize>,
    ) -> Result<ScanExec> {
        let schema = Arc::new(table.schema.project(&projection)?);
        let properties = PlanProperties::new(
            work.ordering(&table, &schema)?,
            Partitioning::UnknownPartitioning(work.partitions()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(ScanExec {
            table,
            projection,
            conditions,
            range,
            work,
            limit,
            indexes: Arc::default(),
            skipping: None,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl ScanExec {
    /// The same scan with another division of work, and empty metrics.
    fn with(&self, work: Work, limit: Option<usize>) -> Result<ScanExec> {
        let scan = ScanExec::new(
            Arc::clone(&self.table),
            self.projection.clone(),
            self.conditions.clone(),
            self.range,
            work,
            limit,
        )?;
        Ok(ScanExec {
            skipping: self.skipping.clone(),
            ..scan.with_indexes(Arc::clone(&self.indexes))
        })
    }

    /// The same scan, which shows these indexes in `EXPLAIN`.
    pub(super) fn with_indexes(self, indexes: Arc<[String]>) -> ScanExec {
        ScanExec { indexes, ..self }
    }
}

impl ScanExec {
    pub(crate) fn table(&self) -> &TableView {
        &self.table
    }

    /// Role of a column of its rows.
    pub(crate) fn role(&self, column: usize) -> Option<Role> {
        let place = self.projection.get(column)?;
        self.table.roles.get(*place).copied()
    }

    /// The same scan, restricted to the rows that a search for a pattern needs, per partition of
    /// the pattern, by tags; `None` when all rows are needed. `is_filtered` = the pattern does not
    /// use every row that is read.
    pub(crate) fn skipping(
        &self,
        bounds: Bounds,
        by: &[usize],
        is_filtered: bool,
    ) -> Result<Option<(ScanExec, Arc<Skipping>)>> {
        let Work::Loaded(work) = &self.work else {
            return Ok(None);
        };
        if self.limit.is_some() {
            return Ok(None);
        }
        let of = (&*self.table, &work.streams, &*work.streams_to_read);
        let rows = (self.range, &self.conditions, is_filtered);
        let Some(skipping) = Skipping::new(bounds, of, by, rows).map(Arc::new) else {
            return Ok(None);
        };
        let scan = ScanExec {
            skipping: Some(Arc::clone(&skipping)),
            ..self.with(self.work.clone(), None)?
        };
        Ok(Some((scan, skipping)))
    }

    /// The view of the statement that runs.
    pub(crate) fn view(&self, context: &TaskContext) -> Result<Arc<View>> {
        Ok(view_of(context.session_config())?.of(&self.table)?)
    }

    /// The same scan, limited to the first `rows` rows by time: if the plan above needs only these,
    /// and pages of streams would be read for it.
    pub(super) fn first_by_time(&self, rows: usize) -> Option<ScanExec> {
        let Work::Many(work) = &self.work else {
            return None;
        };
        if work.by_time.is_none()
            || rows > FIRST_MAX
            || !work.choice.conditions.is_empty()
            || !self.conditions.is_empty()
            || self.limit.is_some()
        {
            return None;
        }
        let work = Work::Many(ManyWork {
            first: Some(rows),
            ..work.clone()
        });
        self.with(work, None).ok()
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.properties.equivalence_properties().schema().fields();
        let columns: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        write!(f, "ScanExec: table={}, ", self.table.name)?;
        match &self.work {
            Work::Loaded(work) => {
                write!(f, "streams={}", work.streams_to_read.len())?;
                if let Some(all) = &self.table.streams {
                    write!(f, " of {}", all.len())?;
                }
            }
            Work::Many(_) => write!(f, "streams by pages")?,
        }
        write!(f, ", columns=[{}]", columns.join(", "))?;
        if self.range != ClosedRange::ALL {
            write!(f, ", time={}", crate::text::range(&self.range))?;
        }
        for condition in self.conditions.texts() {
            write!(f, ", {condition}")?;
        }
        if let Some(skipping) = &self.skipping {
            write!(f, ", {skipping}")?;
        }
        if !self.indexes.is_empty() {
            write!(f, ", indexes=[{}]", self.indexes.join(", "))?;
        }
        if self.work.is_backwards() {
            write!(f, ", newest first")?;
        }
        if let Work::Many(ManyWork {
            first: Some(rows),
            by_time: Some(direction),
            ..
        }) = &self.work
        {
            let which = match direction {
                Direction::Forwards => "oldest",
                Direction::Backwards => "newest",
            };
            write!(f, ", the {which} {rows} rows")?;
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

    leaf_plan!();

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with(self.work.clone(), self.limit)?))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let limit = match (self.limit, limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Some(Arc::new(self.with(self.work.clone(), limit).ok()?))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    /// Sorts by time alone, forwards or backwards: the newest rows are found without reading the
    /// others.
    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let [by] = order else {
            return Ok(SortOrderPushdownResult::Unsupported);
        };
        let column = by.expr.downcast_ref::<Column>();
        // An existing limit applies to the existing order.
        if self.limit.is_some() || column.is_none_or(|c| c.name() != columns::TIME) {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        match &self.work {
            Work::Loaded(work) => match work.by_time(self.range, by.options.descending) {
                None => Ok(SortOrderPushdownResult::Unsupported),
                Some(work) => Ok(SortOrderPushdownResult::Exact {
                    inner: Arc::new(self.with(Work::Loaded(work), None)?),
                }),
            },
            // The limit is set later, by [`ScanExec::first_by_time`].
            Work::Many(work) => Ok(SortOrderPushdownResult::Inexact {
                inner: Arc::new(self.with(
                    Work::Many(ManyWork {
                        by_time: Some(match by.options.descending {
                            true => Direction::Backwards,
                            false => Direction::Forwards,
                        }),
                        ..work.clone()
                    }),
                    None,
                )?),
            }),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let mut queue = RecordBatchReceiverStream::builder(Arc::clone(&schema), QUEUE);
        let view = self.view(&context)?;
        let reader = |streams: Arc<Streams>| Reader {
            view: Arc::clone(&view),
            table: Arc::clone(&self.table),
            streams,
            schema: Arc::clone(&schema),
            roles: self
                .projection
                .iter()
                .filter_map(|at| self.table.roles.get(*at).copied())
                .collect(),
            conditions: self.conditions.clone(),
            skipping: self.skipping.clone(),
            rows_left: self.limit.unwrap_or(usize::MAX),
            backwards: self.work.is_backwards(),
            metrics: ReadMetrics::new(&self.metrics, partition),
        };
        match &self.work {
            Work::Loaded(work) => {
                let reader = reader(Arc::clone(&work.streams));
                let pieces = work.parts.get(partition).cloned().unwrap_or_default();
                let out = queue.tx();
                queue.spawn_blocking(move || reader.run(&pieces, &out));
            }
            Work::Many(work) => {
                let none = Arc::new(view.sorted_streams(&self.table, Vec::new()));
                if let (Some(rows), Some(direction)) = (work.first, work.by_time) {
                    let (reader, out, range) = (reader(none), queue.tx(), self.range);
                    queue.spawn_blocking(move || reader.run_first(range, direction, rows, &out));
                    return Ok(queue.build());
                }
                // For a few rows the first page usually suffices.
                let threads = if self.limit.is_some() {
                    1
                } else {
                    work.threads
                };
                let (view, table) = (Arc::clone(&view), Arc::clone(&self.table));
                let pages = Arc::new(Pages::new(view, table, Arc::clone(&work.choice)));
                for _ in 0..threads {
                    let (reader, out, range) = (reader(Arc::clone(&none)), queue.tx(), self.range);
                    let pages = Arc::clone(&pages);
                    queue.spawn_blocking(move || reader.run_pages(&pages, range, &out));
                }
            }
        }
        Ok(queue.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
