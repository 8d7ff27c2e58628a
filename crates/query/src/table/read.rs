//! Reads rows of streams into Arrow batches, forwards or from the end.
//!
//! Invariants: the rows of a range are sorted by time, ascending or descending; rows that a
//! condition excludes are never passed on. Concurrency: runs on a thread for blocking work, and
//! ends at the next leaf when its receiver was dropped. Failure: an error of the engine ends the
//! statement; rows are never skipped silently.

use super::ranges::shared;
use super::request::{Direction, FieldConditions, StreamRange};
use super::skipping::Skipping;
use crate::columns;
use crate::error::{Error, external};
use crate::view::{Pages, Role, Streams, TableView, View};
use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{SortOptions, concat_batches, sort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use headwater::{ClosedRange, Column, OutermostSpec, ReadStats, ScanChunk, ScanSpec, StreamName};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Metrics of a partition for `EXPLAIN ANALYZE`.
pub(crate) struct ReadMetrics {
    pub(crate) output_rows: Count,
    leaves: Count,
    pages: Count,
    buckets: Count,
    bytes: Count,
    candidates: Count,
    ranges: Count,
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
            candidates: counter("index_candidates"),
            ranges: counter("ranges"),
            elapsed: MetricBuilder::new(set).elapsed_compute(partition),
        }
    }

    /// Counts the reads of this thread, and their time.
    pub(crate) fn measure<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = ReadStats::by_this_thread();
        let timer = self.elapsed.timer();
        let result = read();
        drop(timer);
        let touched = ReadStats::by_this_thread() - before;
        let add = |count: &Count, n: u64| count.add(usize::try_from(n).unwrap_or(usize::MAX));
        add(&self.leaves, touched.leaves);
        add(&self.pages, touched.pages);
        add(&self.buckets, touched.buckets);
        add(&self.bytes, touched.bytes);
        add(&self.candidates, touched.candidates);
        result
    }
}

/// Reads the stream ranges of a partition.
pub(super) struct Reader {
    pub(super) view: Arc<View>,
    pub(super) table: Arc<TableView>,
    /// The streams of the ranges.
    pub(super) streams: Arc<Streams>,
    pub(super) schema: SchemaRef,
    /// Role of each column of the batches.
    pub(super) roles: Vec<Role>,
    pub(super) conditions: FieldConditions,
    /// Skips rows that a match cannot reach.
    pub(super) skipping: Option<Arc<Skipping>>,
    /// Rows that may still be returned.
    pub(super) rows_left: usize,
    /// True: from the newest row to the oldest.
    pub(super) backwards: bool,
    pub(super) metrics: ReadMetrics,
}

/// Target number of rows of a step backwards.
const STEP_ROWS: u64 = 2_048;

/// Approximate rows of a batch: operators and threads have a constant cost per batch.
const BATCH_ROWS: usize = 8_192;
/// A batch with more bytes than this is not made larger.
const BATCH_BYTES: usize = 1 << 20;

/// Rows that have been read and not passed on.
#[derive(Default)]
struct Gathered {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    /// True if a batch was passed on before.
    has_sent: bool,
}

impl Gathered {
    fn is_enough(&self, left: usize) -> bool {
        // A waiting client gets the first rows soon.
        !self.has_sent || self.rows >= BATCH_ROWS.min(left) || self.bytes >= BATCH_BYTES
    }

    fn take(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let mut batches = std::mem::take(&mut self.batches);
        *self = Gathered {
            has_sent: true,
            ..Gathered::default()
        };
        Ok(match batches.len() {
            0 | 1 => batches.pop(),
            _ => Some(concat_batches(schema, &batches)?),
        })
    }
}

impl Reader {
    pub(super) fn run(
        mut self,
        pieces: &[StreamRange],
        out: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        if self.rows_left == 0 {
            return Ok(());
        }
        let mut gathered = Gathered::default();
        for piece in pieces {
            for range in self.ranges(*piece)? {
                let piece = StreamRange { range, ..*piece };
                let more = if self.backwards {
                    self.read_backwards(piece, &mut |reader, batch| Ok(reader.send(batch, out)))?
                } else {
                    self.read(piece, &mut gathered, out)?
                };
                if !more {
                    return Ok(());
                }
            }
        }
        self.hand_on(&mut gathered, out)?;
        Ok(())
    }

    /// The ranges to read of a stream range, in order.
    fn ranges(&self, piece: StreamRange) -> Result<Vec<ClosedRange>> {
        let Some(skipping) = &self.skipping else {
            return Ok(vec![piece.range]);
        };
        let of_stream = || skipping.of_stream(&self.view, piece.stream);
        let found = self.metrics.measure(of_stream)?;
        let mut ranges = match found {
            None => vec![piece.range],
            Some(found) => shared(&found.read, &[piece.range]),
        };
        self.metrics.ranges.add(ranges.len());
        if self.backwards {
            ranges.reverse();
        }
        Ok(ranges)
    }

    /// Reads one page of streams after another.
    pub(super) fn run_pages(
        mut self,
        pages: &Pages,
        range: ClosedRange,
        out: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let mut gathered = Gathered::default();
        while self.rows_left > 0
            && !out.is_closed()
            && let Some((streams, places)) = pages.next()?
        {
            self.streams = Arc::new(streams);
            for stream in places {
                if !self.read(StreamRange { stream, range }, &mut gathered, out)? {
                    return Ok(());
                }
            }
            // Another page has other dictionaries of tags.
            if !self.hand_on(&mut gathered, out)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads the first rows by time, or the last, of all streams of the table.
    pub(super) fn run_first(
        mut self,
        range: ClosedRange,
        direction: Direction,
        rows: usize,
        out: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let backwards = direction == Direction::Backwards;
        let spec = OutermostSpec {
            range,
            newest: backwards,
            limit: rows,
        };
        let view = Arc::clone(&self.view);
        let names = self.metrics.measure(|| {
            let mut accepts = |name: &StreamName| Ok(view.may_read(name));
            let accepts: Option<&mut dyn FnMut(&StreamName) -> _> = match view.reads_all() {
                true => None,
                false => Some(&mut accepts),
            };
            let table = &self.table.name;
            let goes_on = &mut || !out.is_closed();
            view.snapshot()
                .outermost_streams(table, &spec, accepts, goes_on)
        });
        let streams = view.sorted_streams(&self.table, names.map_err(external)?);
        let all = (0u32..).take(streams.len());
        self.streams = Arc::new(streams);
        let mut batches = Vec::new();
        for stream in all {
            let mut found = 0;
            let mut take = |batch: RecordBatch| {
                found += batch.num_rows();
                batches.push(batch);
                found < rows
            };
            let piece = StreamRange { stream, range };
            if backwards {
                self.read_backwards(piece, &mut |_, batch| Ok(take(batch)))?;
            } else if let Some(mut scan) = self.scan(stream, range)? {
                while let Some(chunk) = self.metrics.measure(|| scan.next()) {
                    if !take(self.batch(chunk.map_err(external)?, stream)?) {
                        break;
                    }
                }
            }
        }
        let batch = concat_batches(&self.schema, &batches)?;
        let Some(times) = batch.column_by_name(columns::TIME) else {
            return Err(Error::internal("rows by time without their times").into());
        };
        let options = SortOptions {
            descending: backwards,
            nulls_first: false,
        };
        let order = sort_to_indices(times, Some(options), Some(rows))?;
        let first = take_record_batch(&batch, &order)?;
        if first.num_rows() > 0 {
            self.send(first, out);
        }
        Ok(())
    }

    /// Passes on the gathered rows; false when no more are needed.
    fn hand_on(
        &mut self,
        gathered: &mut Gathered,
        out: &Sender<Result<RecordBatch>>,
    ) -> Result<bool> {
        let batch = self.metrics.measure(|| gathered.take(&self.schema))?;
        Ok(match batch {
            Some(batch) => self.send(batch, out),
            None => true,
        })
    }

    /// Passes on a batch; false when no more are needed.
    fn send(&mut self, batch: RecordBatch, out: &Sender<Result<RecordBatch>>) -> bool {
        let batch = if batch.num_rows() > self.rows_left {
            batch.slice(0, self.rows_left)
        } else {
            batch
        };
        self.rows_left -= batch.num_rows();
        self.metrics.output_rows.add(batch.num_rows());
        out.blocking_send(Ok(batch)).is_ok() && self.rows_left > 0
    }

    /// Reads a range. False when no more rows are needed; otherwise the rest in `gathered` is
    /// passed on with later rows.
    fn read(
        &mut self,
        piece: StreamRange,
        gathered: &mut Gathered,
        out: &Sender<Result<RecordBatch>>,
    ) -> Result<bool> {
        let scan = self
            .metrics
            .measure(|| self.scan(piece.stream, piece.range));
        let Some(mut scan) = scan? else {
            return Ok(true);
        };
        while let Some(chunk) = self.metrics.measure(|| scan.next()) {
            let chunk = chunk.map_err(external)?;
            gathered.rows += chunk.times.len();
            gathered.bytes += chunk.columns.iter().map(Column::heap_bytes).sum::<usize>();
            let batch = self.metrics.measure(|| self.batch(chunk, piece.stream))?;
            gathered.batches.push(batch);
            if gathered.is_enough(self.rows_left) {
                if !self.hand_on(gathered, out)? {
                    return Ok(false);
                }
            } else if out.is_closed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a range from its end, in steps of some rows each. False when no more rows are needed.
    fn read_backwards(
        &mut self,
        piece: StreamRange,
        give: &mut dyn FnMut(&mut Reader, RecordBatch) -> Result<bool>,
    ) -> Result<bool> {
        let Some(name) = self.streams.name(piece.stream) else {
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
            // Both are instants within `inside`.
            let batches = self.step(piece.stream, ClosedRange::nanos(from as i64, end as i64))?;
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            for batch in batches.iter().rev() {
                let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
                let turned = UInt32Array::from_iter_values((0..rows).rev());
                if !give(self, take_record_batch(batch, &turned)?)? {
                    return Ok(false);
                }
            }
            // If rows are rare, or conditions select few, steps grow, so that a gap costs little;
            // they are bounded, since a step is in memory as a whole.
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

    /// A scan of a range; `None` when the stream is no longer in the snapshot.
    fn scan(&self, stream: u32, range: ClosedRange) -> Result<Option<headwater::Scan>> {
        let Some(handle) = self.streams.handle(stream, self.view.snapshot())? else {
            return Ok(None);
        };
        let wanted = self.roles.iter().filter_map(|role| match role {
            Role::Field(at) => self.table.fields.get(*at).map(|(name, _)| name.clone()),
            _ => None,
        });
        let spec = ScanSpec {
            range,
            fields: Some(wanted.collect()),
            filters: self.conditions.filters.clone(),
            any_of: self.conditions.any_of.clone(),
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
                Role::Tag(key) => self.streams.tag_column(*key, stream, rows)?,
                Role::Field(_) => {
                    let column = fields
                        .next()
                        .ok_or_else(|| Error::internal("a scan without a column"))?;
                    columns::one_nan(columns::to_array(column)?)
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|e| Error::internal(e.to_string()))
    }
}
