//! Answers of statements: a schema, batches of rows while they are computed, and the statement's
//! effect.
//!
//! Invariants: dropping an answer's rows ends their computation; the statement's limits of time and
//! rows apply until the last row is read.

use crate::error::Error;
use crate::left_out::LeftOut;
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

/// Rows that a statement wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Number of rows.
    pub rows: u64,
    /// Rows that have the time and tags of another row of the statement, and replaced its values.
    /// Rows stored by earlier statements are not counted.
    pub replaced: u64,
}

impl Stored {
    /// Stored rows without replacements.
    #[must_use]
    pub const fn of(rows: u64) -> Stored {
        Stored { rows, replaced: 0 }
    }
}

/// Effect of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A query; the rows follow.
    Select,
    /// An `EXPLAIN` of another statement; the rows follow.
    Explained,
    /// A listing of tables, columns or settings; the rows follow.
    Shown,
    /// These rows were written.
    Inserted(Stored),
    /// These rows were written and are returned by `RETURNING`: they follow.
    Returned(Stored),
    /// Number of deleted rows, counted just before the deletion.
    Deleted(u64),
    /// An object was created.
    Created(ObjectKind),
    /// A table was changed.
    Altered,
    /// An object was dropped.
    Dropped(ObjectKind),
    /// A setting of the session was changed.
    Set,
}

/// Kinds of objects that statements create and drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
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

impl Outcome {
    /// True when rows follow.
    #[must_use]
    pub fn has_rows(self) -> bool {
        matches!(
            self,
            Outcome::Select | Outcome::Explained | Outcome::Shown | Outcome::Returned(_)
        )
    }

    /// The written rows; `None` if the statement does not write rows.
    #[must_use]
    pub fn stored(self) -> Option<Stored> {
        match self {
            Outcome::Inserted(stored) | Outcome::Returned(stored) => Some(stored),
            _ => None,
        }
    }

    /// Whether the statement changed stored data.
    #[must_use]
    pub fn has_changed(self) -> bool {
        matches!(self, Outcome::Returned(_)) || !self.has_rows() && self != Outcome::Set
    }
}

/// The effect of a statement without rows, as a row: `done`, `count` if rows were counted, and
/// `replaced` if rows replaced others of the statement. `None` for statements with rows.
#[must_use]
pub fn done_row(done: Outcome) -> Option<RecordBatch> {
    let (word, count) = match done {
        Outcome::Inserted(stored) => ("inserted", Some(stored.rows)),
        Outcome::Deleted(rows) => ("deleted", Some(rows)),
        Outcome::Created(_) => ("created", None),
        Outcome::Altered => ("altered", None),
        Outcome::Dropped(_) => ("dropped", None),
        Outcome::Set => ("set", None),
        _ => return None,
    };
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("done", Arc::new(StringArray::from(vec![word]))),
        ("count", Arc::new(UInt64Array::from(vec![count]))),
    ];
    if let Some(stored) = done.stored().filter(|stored| stored.replaced > 0) {
        let replaced = UInt64Array::from(vec![stored.replaced]);
        columns.push(("replaced", Arc::new(replaced)));
    }
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).ok()
}

/// The answer to a statement.
pub struct Answer {
    /// The columns of the rows.
    pub schema: SchemaRef,
    /// The rows, while they are computed. Dropping the stream cancels the statement. Its errors
    /// become an [`Error`] by `Error::from`.
    pub rows: SendableRecordBatchStream,
    /// Effect of the statement.
    pub outcome: Outcome,
    /// Parts of the data that the statement did not read.
    pub left_out: LeftOut,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("schema", &self.schema)
            .field("done", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// An answer without rows.
    pub(crate) fn without_rows(outcome: Outcome) -> Answer {
        let schema = Arc::new(Schema::empty());
        Answer {
            rows: Box::pin(EmptyRecordBatchStream::new(Arc::clone(&schema))),
            schema,
            outcome,
            left_out: LeftOut::default(),
        }
    }

    /// Collects all rows, for small answers and for tests.
    ///
    /// # Errors
    /// The error that ends the statement.
    pub async fn collect(mut self) -> crate::Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.rows.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }
}

/// Renames the columns of rows.
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
    rows_left: Option<u64>,
    rows_max: u64,
    ended: bool,
    /// Keeps the statement's slot until all rows are read.
    _permit: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Limited {
    pub(crate) fn new(
        rows: SendableRecordBatchStream,
        deadline: Option<(tokio::time::Instant, Duration)>,
        rows_max: Option<u64>,
        permit: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> Limited {
        Limited {
            rows,
            deadline: deadline.map(|(at, limit)| (Box::pin(tokio::time::sleep_until(at)), limit)),
            rows_left: rows_max,
            rows_max: rows_max.unwrap_or(u64::MAX),
            ended: false,
            _permit: permit,
        }
    }
}

/// The statement took longer than it may.
pub(crate) fn too_slow(limit: Duration) -> Error {
    Error::time_limit(format!(
        "the statement was cancelled: it took longer than {limit:?}"
    ))
    .with_hint("read a shorter range, or raise the time limit (setting sql.timeout)")
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
        if let (Some(Ok(batch)), Some(left)) = (&next, &mut this.rows_left) {
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
