//! Reads rows of streams into Arrow batches, forwards or from the end.
//!
//! Invariants: the rows of a stretch come by time, or backwards; what a condition leaves out is never handed on.
//! Concurrency: it runs on a thread for blocking work, and ends at the next batch when nobody takes them any more.
//! Failure: what the engine reports ends the statement; nothing is left out silently.

use super::scan::Piece;
use crate::columns;
use crate::error::{Error, external};
use crate::view::{Role, TableView, View};
use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use headwater::{ClosedRange, Filter, ScanChunk, ScanSpec, Touched};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

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

/// Reads the pieces of a partition.
pub(super) struct Reader {
    pub(super) view: Arc<View>,
    pub(super) table: Arc<TableView>,
    pub(super) schema: SchemaRef,
    /// What each column of the batches is.
    pub(super) roles: Vec<Role>,
    pub(super) filters: Vec<Filter>,
    /// Rows that may still be handed out.
    pub(super) left: usize,
    /// From the newest row to the oldest.
    pub(super) backwards: bool,
    pub(super) metrics: ReadMetrics,
}

/// Rows that a step backwards should find.
const STEP_ROWS: u64 = 2_048;

impl Reader {
    pub(super) fn run(mut self, pieces: &[Piece], out: &Sender<Result<RecordBatch>>) -> Result<()> {
        for piece in pieces {
            let more = if self.backwards {
                self.read_backwards(*piece, out)?
            } else {
                self.read(*piece, out)?
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Hands a batch on; false when no more is wanted.
    fn give(&mut self, batch: RecordBatch, out: &Sender<Result<RecordBatch>>) -> bool {
        let batch = if batch.num_rows() > self.left {
            batch.slice(0, self.left)
        } else {
            batch
        };
        self.left -= batch.num_rows();
        self.metrics.output_rows.add(batch.num_rows());
        out.blocking_send(Ok(batch)).is_ok() && self.left > 0
    }

    /// False when no more is wanted.
    fn read(&mut self, piece: Piece, out: &Sender<Result<RecordBatch>>) -> Result<bool> {
        let scan = self
            .metrics
            .measure(|| self.scan(piece.stream, piece.range));
        let Some(mut scan) = scan? else {
            return Ok(true);
        };
        while self.left > 0 {
            let batch = self.metrics.measure(|| {
                let chunk = scan.next()?;
                Some(chunk.map_err(external).and_then(|chunk| {
                    self.batch(chunk, piece.stream)
                        .map_err(DataFusionError::from)
                }))
            });
            let Some(batch) = batch else {
                return Ok(true);
            };
            if !self.give(batch?, out) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Reads a stretch from its end, in steps of some rows each. False when no more is wanted.
    fn read_backwards(&mut self, piece: Piece, out: &Sender<Result<RecordBatch>>) -> Result<bool> {
        let Some(name) = self.table.streams.name(piece.stream) else {
            return Ok(true);
        };
        let info = match self.view.snapshot().stream_info(name) {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => return Ok(true),
            other => other.map_err(external)?,
        };
        let (Some(first), Some(last)) = (info.first, info.last) else {
            return Ok(true);
        };
        let inside = ClosedRange::new(first, last).intersect(&piece.range);
        let span = i128::from(last.as_nanos()) - i128::from(first.as_nanos()) + 1;
        let least = (span * i128::from(STEP_ROWS) / i128::from(info.rows.max(1))).max(1);
        let begin = i128::from(inside.first.as_nanos());
        let mut end = i128::from(inside.last.as_nanos());
        let mut step = least;
        while begin <= end {
            let from = (end - step + 1).max(begin);
            // Both are instants: they lie within `inside`.
            let batches = self.step(piece.stream, ClosedRange::nanos(from as i64, end as i64))?;
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            for batch in batches.iter().rev() {
                let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
                let turned = UInt32Array::from_iter_values((0..rows).rev());
                if !self.give(take_record_batch(batch, &turned)?, out) {
                    return Ok(false);
                }
            }
            // Where rows are rarer, or conditions leave few, steps grow, so that a gap costs little; not without end, since a
            // step is held in memory.
            if (rows as u64) < STEP_ROWS / 2 {
                step = (step * 2).min(least * 64);
            } else if rows as u64 > STEP_ROWS * 4 {
                step = (step / 2).max(1);
            }
            end = from - 1;
        }
        Ok(true)
    }

    fn step(&self, stream: u32, range: ClosedRange) -> Result<Vec<RecordBatch>> {
        self.metrics.measure(|| {
            let mut batches = Vec::new();
            if let Some(scan) = self.scan(stream, range)? {
                for chunk in scan {
                    batches.push(self.batch(chunk.map_err(external)?, stream)?);
                }
            }
            Ok(batches)
        })
    }

    /// A scan of a stretch; `None` when the snapshot has the stream no more.
    fn scan(&self, stream: u32, range: ClosedRange) -> Result<Option<headwater::Scan>> {
        let Some(handle) = self.table.streams.handle(stream, self.view.snapshot())? else {
            return Ok(None);
        };
        let wanted = self.roles.iter().filter_map(|role| match role {
            Role::Field(at) => self.table.fields.get(*at).map(|(name, _)| name.clone()),
            _ => None,
        });
        let spec = ScanSpec {
            range,
            fields: Some(wanted.collect()),
            filters: self.filters.clone(),
        };
        match handle.scan(self.view.snapshot(), &spec) {
            Err(error) if error.kind() == headwater::ErrorKind::NotFound => Ok(None),
            other => Ok(Some(other.map_err(external)?)),
        }
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
