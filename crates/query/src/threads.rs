//! Threads that compute statements, separate from the threads that serve connections.
//!
//! A join or a sort may occupy a thread for long between two points at which it could yield. On the
//! threads that serve connections, signals and timers, this would delay all clients.
//!
//! Invariants: the rows of an answer are computed at most [`BATCHES_WAITING`] batches ahead of the
//! client; dropping the rows, or the future that waits for them, ends the statement at the next
//! point at which it yields.
//! Failure: a statement that panics ends its answer with the error `internal`.

use crate::answer::Answer;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::RecordBatchStream;
use futures_util::{Stream, StreamExt};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Bytes of a thread's stack; physical memory is used only as needed: operators and expressions are
/// nested as deeply as the complexity check allows.
const STACK_BYTES: usize = 16 << 20;
/// Maximum threads for work that blocks.
const BLOCKING_MAX: usize = 64;
/// Number of batches that wait for the client.
const BATCHES_WAITING: usize = 2;

/// Threads that compute statements. After a drop they end by themselves.
#[derive(Debug)]
pub struct Threads {
    /// Taken on drop.
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// When the system cannot start them.
    pub fn new(count: usize) -> io::Result<Threads> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(count.max(1))
            .max_blocking_threads(BLOCKING_MAX)
            .thread_stack_size(STACK_BYTES)
            .thread_name("sql")
            .enable_all()
            .build()?;
        Ok(Threads {
            runtime: Some(runtime),
        })
    }

    /// Runs other work on these threads: the evaluation of a watch.
    ///
    /// # Errors
    /// `internal` when it panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::closed(
                "the server is shutting down: no more statements are run",
            ));
        };
        let ran = runtime.spawn(work).await;
        ran.map_err(|why| Error::internal(format!("the statement was aborted: {why}")))
    }

    /// Lets a statement run on these threads: `run` is [`Session::run`](crate::Session::run) or
    /// [`Prepared::run`](crate::Prepared::run). The rows of the answer are computed there as well.
    ///
    /// # Errors
    /// The errors of the statement.
    pub async fn answer(
        &self,
        run: impl Future<Output = Result<Answer>> + Send + 'static,
    ) -> Result<Answer> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::closed(
                "the server is shutting down: no more statements are run",
            ));
        };
        let (begun, beginning) = oneshot::channel();
        let (sender, receiver) = mpsc::channel(BATCHES_WAITING);
        let cancel = CancelToken::default();
        let work = async move {
            let Answer {
                schema,
                mut rows,
                outcome,
                left_out,
            } = match run.await {
                Ok(answer) => answer,
                Err(error) => {
                    // The receiver fails only if the client has disconnected, here and below.
                    let _ = begun.send(Err(error));
                    return;
                }
            };
            if begun.send(Ok((schema, outcome, left_out))).is_err() {
                return;
            }
            while let Some(batch) = rows.next().await {
                if sender.send(Some(batch)).await.is_err() {
                    return;
                }
            }
            let _ = sender.send(None).await;
        };
        let task = Task {
            handle: runtime.spawn(cancel.clone().scope(work)),
            cancel,
        };
        let (schema, outcome, left_out) = beginning.await.map_err(|_| panicked())??;
        let rows = Rows {
            schema: SchemaRef::clone(&schema),
            receiver,
            ended: false,
            _task: task,
        };
        Ok(Answer {
            schema,
            rows: Box::pin(rows),
            outcome,
            left_out,
        })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn panicked() -> Error {
    Error::internal("the statement panicked; the log says more")
}

/// A statement that is cancelled when its client disconnects.
#[derive(Debug)]
struct Task {
    handle: JoinHandle<()>,
    cancel: CancelToken,
}

impl Drop for Task {
    fn drop(&mut self) {
        // If it cannot be ended as a task yet.
        self.cancel.set();
        self.handle.abort();
    }
}

type Batch = std::result::Result<RecordBatch, DataFusionError>;

/// Rows that arrive from other threads.
struct Rows {
    schema: SchemaRef,
    /// `None` marks the end: if it is missing, the statement has panicked.
    receiver: mpsc::Receiver<Option<Batch>>,
    ended: bool,
    _task: Task,
}

impl Stream for Rows {
    type Item = Batch;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Batch>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = std::task::ready!(self.receiver.poll_recv(context));
        Poll::Ready(match next {
            Some(Some(batch)) => Some(batch),
            Some(None) => {
                self.ended = true;
                None
            }
            None => {
                self.ended = true;
                Some(Err(panicked().into()))
            }
        })
    }
}

impl RecordBatchStream for Rows {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

    use super::*;
    use crate::Outcome;
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn batch(n: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![n]));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    /// An answer that counts its polled batches; number `panics` panics.
    fn counted(made: Arc<AtomicUsize>, panics: i64) -> Answer {
        let schema = batch(0).schema();
        let rows = futures_util::stream::iter(0..100).map(move |n| {
            made.fetch_add(1, Ordering::SeqCst);
            assert_ne!(n, panics, "as it is meant to");
            Ok(batch(n))
        });
        Answer {
            rows: Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows)),
            schema,
            outcome: Outcome::Select,
            left_out: crate::LeftOut::default(),
        }
    }

    #[test]
    fn rows_come_in_order_and_not_far_ahead_and_end_with_their_taker() {
        let threads = Threads::new(1).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let made = Arc::new(AtomicUsize::new(0));
            let whole = counted(Arc::clone(&made), -1);
            let all = threads.answer(async { Ok(whole) }).await.unwrap();
            assert_eq!(all.collect().await.unwrap().len(), 100);

            let made = Arc::new(AtomicUsize::new(0));
            let part = counted(Arc::clone(&made), -1);
            let mut part = threads.answer(async { Ok(part) }).await.unwrap();
            assert_eq!(part.rows.next().await.unwrap().unwrap(), batch(0));
            // One taken, the queued ones, and one that waits to be sent.
            assert!(made.load(Ordering::SeqCst) <= BATCHES_WAITING + 2);
            drop(part);
            // The only thread is free for the next one.
            let next = counted(Arc::default(), -1);
            let next = threads.answer(async { Ok(next) }).await.unwrap();
            assert_eq!(next.collect().await.unwrap().len(), 100);
            assert!(made.load(Ordering::SeqCst) <= BATCHES_WAITING + 2);
        });
    }

    #[test]
    fn errors_and_panics_are_errors_of_the_answer() {
        let threads = Threads::new(1).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let failed = threads.answer(async { Err(Error::busy("so it is")) }).await;
            assert_eq!(failed.unwrap_err().code, "busy");
            let failed = threads.answer(async { panic!("as it is meant to") }).await;
            assert_eq!(failed.unwrap_err().code, "internal");
            let breaks = counted(Arc::default(), 5);
            let breaks = threads.answer(async { Ok(breaks) }).await.unwrap();
            assert_eq!(breaks.collect().await.unwrap_err().code, "internal");
        });
    }
}
