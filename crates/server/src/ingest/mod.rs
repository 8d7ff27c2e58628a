//! Write path: a bounded queue, and threads that unpack and parse bodies and pass them to the
//! engine. Bodies of line protocol are passed to [`Ingest::submit`]; other front ends use
//! [`Ingest::call`], and parse and call [`hand_in`] themselves.
//!
//! Invariants: a write that is answered with success is in the database, with the configured
//! durability; a line is either counted as stored or as refused, with a code; no more than
//! [`Limits::bytes_max`] bytes of bodies are in memory at once, and no more than
//! [`Limits::queue_max`] requests wait.
//!
//! Concurrency: the threads make the calls that may block (the engine may wait for memory), so that
//! no thread of the runtime does. Each thread has its own parser, which caches names. The
//! acknowledgement is awaited by the request's task, not here: while the log syncs, the threads
//! process the next bodies, which all share the next sync.
//!
//! Failure: a full queue or too many bytes are refused at once (`E_BUSY`, with a time to try
//! again); an error of the engine is the answer of its request. A thread that panics fails its
//! request and is the last to use its parser.

mod apply;
mod refusals;
mod unpack;

pub(crate) use apply::{Outcome, PART_BYTES, Pending, Terms, hand_in, write_error};
pub(crate) use refusals::Refusals;
pub(crate) use unpack::{Encoding, too_large, unpack as unpacked};

use crate::access::Access;
use crate::databases::FirstWrite;
use crate::error::ApiError;
use crate::live::Hub;
use crate::settings::Settings;
use axum::http::StatusCode;
use bytes::Bytes;
use headwater::{Database, Timestamp};
use headwater_ask::Space;
use headwater_io::{Clock, Env, Joiner};
use headwater_wire::lineprotocol::{LineParser, ParserOptions, Precision};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Limits of the write path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest body, packed or not.
    pub(crate) body_max: usize,
    /// Longest line.
    pub(crate) line_max: usize,
    /// Requests that may wait for a thread.
    pub(crate) queue_max: usize,
    /// Bytes of bodies in memory at once.
    pub(crate) bytes_max: usize,
    /// Threads that parse and write.
    pub(crate) threads: usize,
}

impl Limits {
    /// Limits of the settings.
    pub(crate) fn of(settings: &Settings) -> Limits {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Limits {
            body_max: settings.body_max,
            line_max: settings.write_line_max,
            queue_max: settings.write_queue_max,
            // One body of the largest size must fit.
            bytes_max: settings.write_bytes_max.max(settings.body_max),
            threads: match settings.write_threads {
                0 => processors,
                threads => threads,
            },
        }
    }
}

/// Body, and the terms of its write.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) body: Bytes,
    pub(crate) encoding: Encoding,
    pub(crate) precision: Precision,
    /// Store the good lines although others are refused.
    pub(crate) accept_partial: bool,
    /// Producer of the batch, and its number there.
    pub(crate) producer: Option<(String, u64)>,
    /// Streams that may be written.
    pub(crate) access: Access,
    /// Tables of the measurements.
    pub(crate) space: Space,
    /// Guard of a name without data yet.
    pub(crate) first_write: Option<FirstWrite>,
}

impl WriteRequest {
    fn terms(&self) -> Terms<'_> {
        let producer = self.producer.as_ref();
        Terms {
            access: Some(&self.access),
            accept_partial: self.accept_partial,
            producer: producer.map(|(name, number)| (name.as_str(), *number)),
        }
    }
}

/// Task of a thread.
enum Job {
    Body {
        request: WriteRequest,
        reply: oneshot::Sender<Result<Outcome, ApiError>>,
        /// Released when the body has been written.
        _bytes: Option<OwnedSemaphorePermit>,
    },
    Call(Box<dyn FnOnce(&IngestContext) + Send>),
}

/// Context of handing batches to the engine.
pub(crate) struct IngestContext {
    pub(crate) db: Database,
    pub(crate) live: Arc<Hub>,
    clock: Arc<dyn Clock>,
}

/// Reason why a call did not return an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// The queue is full; the call did not start.
    Busy,
    /// The server is stopping; the call did not start.
    Stopping,
    /// The call panicked, which is logged. Rows may have been stored or not.
    Panicked,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

struct Shared {
    context: IngestContext,
    limits: Limits,
    queue: Mutex<Queue>,
    has_jobs: Condvar,
}

/// Queue and threads that write bodies of line protocol.
pub(crate) struct Ingest {
    shared: Arc<Shared>,
    bytes: Arc<Semaphore>,
    threads: Mutex<Vec<Box<dyn Joiner>>>,
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

/// Bytes per permit: a semaphore counts only up to 2^32 on small machines.
const PERMIT_BYTES: usize = 4096;

impl Ingest {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn start(
        db: Database,
        live: Arc<Hub>,
        limits: Limits,
        env: &Env,
    ) -> std::io::Result<Ingest> {
        let shared = Arc::new(Shared {
            context: IngestContext {
                db,
                live,
                clock: Arc::clone(&env.clock),
            },
            limits,
            queue: Mutex::default(),
            has_jobs: Condvar::new(),
        });
        let ingest = Ingest {
            bytes: Arc::new(Semaphore::new(limits.bytes_max / PERMIT_BYTES)),
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
        };
        for number in 0..limits.threads.max(1) {
            let shared = Arc::clone(&shared);
            let name = format!("hw-write-{number}");
            let thread = env.threads.spawn(&name, Box::new(move || shared.work()))?;
            let none = || std::io::Error::other("no thread can be started for writes");
            ingest.threads.lock().push(thread.ok_or_else(none)?);
        }
        Ok(ingest)
    }

    /// The limits in force.
    pub(crate) fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Reserves `bytes` of memory for a body.
    ///
    /// # Errors
    /// `E_BUSY` when other bodies take up the whole memory.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(permits);
        permit.map_err(|_| {
            let max = self.shared.limits.bytes_max;
            busy(
                StatusCode::TOO_MANY_REQUESTS,
                format!("the bodies of running requests use all {max} bytes (setting write.bytes_max): retry in a moment"),
            )
        })
    }

    /// Has a body written. The outcome's tickets are not awaited yet.
    ///
    /// # Errors
    /// `E_BUSY` when too many wait already; errors of the engine; `E_STOPPING` when the server is
    /// stopping.
    pub(crate) async fn submit(
        &self,
        request: WriteRequest,
        bytes: Option<OwnedSemaphorePermit>,
    ) -> Result<Outcome, ApiError> {
        let (reply, outcome) = oneshot::channel();
        let job = Job::Body {
            request,
            reply,
            _bytes: bytes,
        };
        self.enqueue(job).map_err(|why| self.refusal(why))?;
        outcome.await.unwrap_or_else(|_| Err(unknown()))
    }

    /// Runs a call on one of the threads, which may wait for the engine.
    ///
    /// # Errors
    /// When the call did not start, or panicked.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&IngestContext) -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let (reply, outcome) = oneshot::channel();
        self.enqueue(Job::Call(Box::new(move |context| {
            // A cancelled caller does not receive an answer.
            drop(reply.send(call(context)));
        })))?;
        // The sender is dropped without an answer only when the call panicked.
        outcome.await.map_err(|_| Unfinished::Panicked)
    }

    fn enqueue(&self, job: Job) -> Result<(), Unfinished> {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return Err(Unfinished::Stopping);
        }
        if queue.jobs.len() >= self.shared.limits.queue_max {
            return Err(Unfinished::Busy);
        }
        queue.jobs.push_back(job);
        if queue.idle > 0 {
            self.shared.has_jobs.notify_one();
        }
        Ok(())
    }

    /// Answer for a request that was not finished.
    pub(crate) fn refusal(&self, why: Unfinished) -> ApiError {
        match why {
            Unfinished::Busy => {
                let max = self.shared.limits.queue_max;
                busy(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!(
                        "{max} writes are waiting already (setting write.queue_max): retry in a moment"
                    ),
                )
            }
            Unfinished::Stopping => closed(),
            Unfinished::Panicked => unknown(),
        }
    }

    /// Refuses further requests, ends the waiting ones, and stops the threads.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.has_jobs.notify_all();
        for thread in self.threads.lock().drain(..) {
            if !thread.join() {
                tracing::error!("a write thread had panicked");
            }
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.close();
    }
}

fn busy(status: StatusCode, message: String) -> ApiError {
    ApiError::new(status, "E_BUSY", message).retry_after(1)
}

fn unknown() -> ApiError {
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "E_INTERNAL",
        "the write failed inside the server, and the rows may or may not be stored: see the server's log",
    )
}

fn closed() -> ApiError {
    let message = "the server is shutting down: retry when it is running again";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "E_STOPPING", message).retry_after(10)
}

impl Shared {
    /// Loop of a thread.
    fn work(&self) {
        let mut parser = self.parser();
        while let Some(job) = self.next() {
            // A panic costs this request and the names that the parser cached, not the thread.
            let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match job {
                Job::Body { request, reply, .. } => {
                    let outcome = apply::apply(&self.context, &self.limits, &mut parser, &request);
                    // A name without data that the write created is removed before the answer.
                    drop(request);
                    // A cancelled client does not receive an answer; the write continues.
                    drop(reply.send(outcome));
                }
                Job::Call(call) => call(&self.context),
            }));
            if taken.is_err() {
                tracing::error!("a write panicked");
                parser = self.parser();
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            self.has_jobs.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn parser(&self) -> LineParser {
        let now = Timestamp::from_nanos(0);
        let mut options = ParserOptions::new(now);
        options.line_bytes_max = self.limits.line_max;
        options.instants = Some(Arc::clone(self.context.db.instants()));
        LineParser::new(options)
    }
}

#[cfg(test)]
mod tests;
