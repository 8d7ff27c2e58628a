//! What a statement gives: a schema, batches of rows as they are computed, and what was done.
//!
//! Invariants: dropping an answer's rows stops what computes them; the statement's limits of time
//! and rows hold until the last row is taken.

use crate::error::Error;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, UInt64Array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures_util::{Stream, StreamExt};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// What a statement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It reads: the rows follow.
    Select,
    /// It explains how another one is, or was, run: the rows follow.
    Explained,
    /// It shows tables, columns or settings: the rows follow.
    Shown,
    /// So many rows were written.
    Inserted(u64),
    /// So many rows were written, and are given back: they follow.
    Returned(u64),
    /// So many rows were deleted, counted just before.
    Deleted(u64),
    /// Something was made.
    Created(Made),
    /// A table was changed.
    Altered,
    /// Something was dropped.
    Dropped(Made),
    /// A setting of the session was changed.
    Set,
}

/// What can be made and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// A table.
    Table,
    /// A view.
    View,
    /// An index.
    Index,
    /// A named snapshot.
    Snapshot,
    /// A watch.
    Watch,
}

impl Done {
    /// True when rows follow.
    #[must_use]
    pub fn has_rows(self) -> bool {
        matches!(
            self,
            Done::Select | Done::Explained | Done::Shown | Done::Returned(_)
        )
    }

    /// Whether it changed what is stored.
    #[must_use]
    pub fn has_changed(self) -> bool {
        matches!(self, Done::Returned(_)) || !self.has_rows() && self != Done::Set
    }
}

/// What was done by a statement without rows, as a row: `done` and, where something was counted,
/// `count`. `None` for those with rows.
#[must_use]
pub fn done_row(done: Done) -> Option<RecordBatch> {
    let (word, count) = match done {
        Done::Inserted(rows) => ("inserted", Some(rows)),
        Done::Deleted(rows) => ("deleted", Some(rows)),
        Done::Created(_) => ("created", None),
        Done::Altered => ("altered", None),
        Done::Dropped(_) => ("dropped", None),
        Done::Set => ("set", None),
        _ => return None,
    };
    let columns: [(&str, ArrayRef); 2] = [
        ("done", Arc::new(StringArray::from(vec![word]))),
        ("count", Arc::new(UInt64Array::from(vec![count]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).ok()
}

/// The answer to a statement.
pub struct Answer {
    /// The columns of the rows.
    pub schema: SchemaRef,
    /// The rows, as they are computed. Dropping this cancels the statement. Its errors become an
    /// [`Error`] by `Error::from`.
    pub rows: SendableRecordBatchStream,
    /// What was done.
    pub done: Done,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("schema", &self.schema)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Without rows.
    pub(crate) fn done(done: Done) -> Answer {
        let schema = Arc::new(Schema::empty());
        Answer {
            rows: Box::pin(EmptyRecordBatchStream::new(Arc::clone(&schema))),
            schema,
            done,
        }
    }

    /// All rows at once, for small answers and for tests.
    ///
    /// # Errors
    /// What ends the statement.
    pub async fn collect(mut self) -> crate::Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.rows.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }
}

/// Rows whose columns have other names.
pub(crate) fn with_names(
    rows: SendableRecordBatchStream,
    schema: SchemaRef,
) -> SendableRecordBatchStream {
    let own = Arc::clone(&schema);
    let rows = rows.map(move |batch| {
        let batch = batch?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&own),
            columns,
            &options,
        )?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// Rows under the limits of their statement.
pub(crate) struct Limited {
    rows: SendableRecordBatchStream,
    deadline: Option<(Pin<Box<Sleep>>, Duration)>,
    left: Option<u64>,
    rows_max: u64,
    ended: bool,
    /// Kept as long as rows are read: the place among the statements that run.
    _place: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Limited {
    pub(crate) fn new(
        rows: SendableRecordBatchStream,
        deadline: Option<(tokio::time::Instant, Duration)>,
        rows_max: Option<u64>,
        place: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> Limited {
        Limited {
            rows,
            deadline: deadline.map(|(at, limit)| (Box::pin(tokio::time::sleep_until(at)), limit)),
            left: rows_max,
            rows_max: rows_max.unwrap_or(u64::MAX),
            ended: false,
            _place: place,
        }
    }
}

/// The statement took longer than it may.
pub(crate) fn too_slow(limit: Duration) -> Error {
    Error::time_limit(format!(
        "the statement was ended: it took longer than {limit:?}"
    ))
    .with_hint("read a shorter range or raise the limit of time")
}

impl Stream for Limited {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some((sleep, limit)) = &mut this.deadline
            && sleep.as_mut().poll(context).is_ready()
        {
            this.ended = true;
            return Poll::Ready(Some(Err(too_slow(*limit).into())));
        }
        let next = std::task::ready!(this.rows.poll_next_unpin(context));
        this.ended = !matches!(next, Some(Ok(_)));
        if let (Some(Ok(batch)), Some(left)) = (&next, &mut this.left) {
            match left.checked_sub(batch.num_rows() as u64) {
                Some(rest) => *left = rest,
                None => {
                    this.ended = true;
                    let message = format!("the answer has more than {} rows", this.rows_max);
                    let error = Error::too_many_rows(message)
                        .with_hint("add LIMIT or a narrower condition");
                    return Poll::Ready(Some(Err(error.into())));
                }
            }
        }
        Poll::Ready(next)
    }
}

impl RecordBatchStream for Limited {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
