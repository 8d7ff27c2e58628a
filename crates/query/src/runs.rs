//! Runs of a sorted input: rows that are equal in the leading sort columns, which are a device's
//! rows sorted by time.
//!
//! Invariants: a run is returned once, whole or part by part, its rows in order; its memory is
//! reserved from the statement's memory first. Failure: `memory_limit` when a run, or the requested
//! part of it, exceeds the statement's memory.

use arrow::array::{Array, RecordBatch};
use arrow::compute::{concat_batches, partition};
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures_util::StreamExt;

/// The runs of an input.
pub(crate) struct Runs {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    keys: Vec<usize>,
    converter: RowConverter,
    /// The rest of the last batch, not in a run yet.
    rest: Option<RecordBatch>,
    buffered: Vec<RecordBatch>,
    buffered_rows: usize,
    /// True if a part of the run was returned, and the last part was not.
    is_continued: bool,
    key: Option<OwnedRow>,
    reserved: MemoryReservation,
}

/// Rows of a run.
pub(crate) struct RunRows {
    pub(crate) rows: RecordBatch,
    /// True if the run ends with these rows.
    pub(crate) ends: bool,
}

/// Bytes of a batch's own rows.
pub(crate) fn bytes(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    let sizes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    sizes.sum()
}

impl Runs {
    pub(crate) fn new(
        name: &str,
        input: SendableRecordBatchStream,
        keys: Vec<usize>,
        context: &TaskContext,
    ) -> Result<Runs> {
        let schema = input.schema();
        let fields = keys.iter().filter_map(|key| schema.fields().get(*key));
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(Runs {
            converter: RowConverter::new(fields.collect())?,
            reserved: MemoryConsumer::new(name).register(context.memory_pool()),
            input,
            schema,
            keys,
            rest: None,
            buffered: Vec::new(),
            buffered_rows: 0,
            is_continued: false,
            key: None,
        })
    }

    /// The next run; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let part = self.next_part(usize::MAX).await?;
        Ok(part.map(|part| part.rows))
    }

    /// The next rows of a run: `least` or somewhat more, or its remaining rows, possibly none.
    /// `None` after the last run.
    pub(crate) async fn next_part(&mut self, least: usize) -> Result<Option<RunRows>> {
        self.reserved.free();
        loop {
            if self.buffered_rows >= least {
                return self.flush(false).map(Some);
            }
            let batch = match self.rest.take() {
                Some(rest) => rest,
                None => match self.input.next().await {
                    Some(batch) => batch?,
                    None if self.buffered.is_empty() && !self.is_continued => return Ok(None),
                    None => return self.flush(true).map(Some),
                },
            };
            if batch.num_rows() > 0 && self.push(batch)? {
                return self.flush(true).map(Some);
            }
        }
    }

    /// Adds the rows that continue the run; true when rows of another run follow, which are
    /// retained.
    fn push(&mut self, batch: RecordBatch) -> Result<bool> {
        let rows = batch.num_rows();
        let (own, next) = if self.keys.is_empty() {
            (rows, None)
        } else {
            let keys = self
                .keys
                .iter()
                .filter_map(|key| batch.columns().get(*key))
                .cloned();
            let keys: Vec<_> = keys.collect();
            let ranges = partition(&keys)?.ranges();
            let first: Vec<_> = keys.iter().map(|key| key.slice(0, 1)).collect();
            let key = self.converter.convert_columns(&first)?.row(0).owned();
            let known = self.key.as_ref().is_none_or(|known| *known == key);
            let own = match known {
                true => ranges.first().map_or(rows, |range| range.end),
                false => 0,
            };
            self.key = known.then_some(key);
            (own, (own < rows).then(|| batch.slice(own, rows - own)))
        };
        if own > 0 {
            let own = batch.slice(0, own);
            // Concatenation briefly needs twice the memory.
            self.reserved.try_grow(bytes(&own).saturating_mul(2))?;
            self.buffered_rows += own.num_rows();
            self.buffered.push(own);
        }
        self.rest = next;
        Ok(self.rest.is_some())
    }

    /// The rows gathered so far.
    fn flush(&mut self, ends: bool) -> Result<RunRows> {
        if ends {
            self.key = None;
        }
        self.is_continued = !ends;
        let rows = concat_batches(&self.schema, &self.buffered)?;
        self.buffered.clear();
        self.buffered_rows = 0;
        Ok(RunRows { rows, ends })
    }
}
