//! Threads that parse and plan statements, and the budget for each statement.
//!
//! The parser and the planner traverse trees recursively, as deep as a statement is nested or its
//! chains of operators are long, and neither checks a clock. So they run on threads of their own,
//! whose stacks fit every statement that passes the complexity check. Every rule of the planner,
//! and every step of the parser, checks whether the statement was cancelled, and how large the plan
//! has become.
//!
//! Invariants: statements are never parsed or planned on a thread that serves connections; work
//! over its budget continues no longer than one rule takes on a plan of bounded size. A thread ends
//! after deep work, so that its stack is freed. Concurrency: a queue under a lock, and at most
//! [`THREADS_MAX`] threads; at most [`LARGE_AT_ONCE`] large statements are in work at one time,
//! since each of them may take some hundred MiB while it is planned. Failure: a panic of the parser
//! or the planner is the error `internal` of its own statement only.

mod budget;
mod inlined;
mod rules;
mod simple;

pub(crate) use budget::{check, clear_steps, expressions_of_plan, limit_expressions, step};
pub(crate) use rules::{analyzer_rules, optimizer_rules, physical_rules};
pub(crate) use simple::Simple;

use crate::answer::too_slow;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use budget::{Budget, PlanningStopped};
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

/// Bytes of a thread's stack; physical memory is used only as needed.
pub(crate) const STACK_BYTES: usize = 64 << 20;
/// Maximum number of threads; further work waits.
const THREADS_MAX: usize = 16;
/// Maximum number of large statements that are parsed or planned at one time.
const LARGE_AT_ONCE: usize = 2;
/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Whether this thread is a planning thread.
    static PLANS: Cell<bool> = const { Cell::new(false) };
}

struct Job {
    work: Work,
    large: bool,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

struct Pool {
    state: Mutex<State>,
    more: Condvar,
}

/// The threads of one [`Query`](crate::Query). Dropping this ends them.
pub(crate) struct Planners {
    pool: Arc<Pool>,
    large: Semaphore,
}

impl fmt::Debug for Planners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planners")
            .field("threads", &self.pool.state.lock().threads)
            .finish_non_exhaustive()
    }
}

/// Ends the work when the caller drops its future.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Planners {
    pub(crate) fn new() -> Planners {
        Planners {
            pool: Arc::new(Pool {
                state: Mutex::default(),
                more: Condvar::new(),
            }),
            large: Semaphore::new(LARGE_AT_ONCE),
        }
    }

    /// Parses or plans. The work must end within `limit`, and ends soon after the caller drops the
    /// future. `large` = it may need much stack or memory.
    pub(crate) async fn run<T, W>(&self, limit: Option<Duration>, large: bool, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let deadline = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
        let whole = async {
            let _place = match large {
                true => Some(self.large.acquire().await),
                false => None,
            };
            self.begin(deadline, large, work)?.await
        };
        match deadline {
            None => whole.await,
            Some((at, limit)) => tokio::time::timeout_at(at, whole)
                .await
                .map_err(|_| too_slow(limit))?,
        }
    }

    /// Plans synchronously for a waiting thread: on a planning thread, or directly if this is one
    /// already. The work must not wait for anything itself.
    pub(crate) fn at_once<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let cancel = CancelToken::of_task();
        let job = move || {
            let budget = Budget::new(Arc::default(), cancel, None);
            let ran = budget.scope(|| catch_unwind(AssertUnwindSafe(work)));
            ran.unwrap_or_else(|why| Err(unwound(&*why)))
        };
        if PLANS.get() {
            return job();
        }
        let (done, result) = std::sync::mpsc::sync_channel(1);
        self.submit(Job {
            // The caller may have dropped the receiver.
            work: Box::new(move || drop(done.send(job()))),
            large: false,
        })?;
        result
            .recv()
            .map_err(|_| Error::internal("the planning of a view ended early"))?
    }

    /// Sends work to a thread; the caller waits for the result.
    fn begin<T, W>(
        &self,
        deadline: Option<(Instant, Duration)>,
        large: bool,
        work: W,
    ) -> Result<impl Future<Output = Result<T>> + use<T, W>>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        // The work belongs to the statement of this task, though it runs elsewhere.
        let cancel = CancelToken::of_task();
        let work = cancel.clone().scope(work);
        let waiting = Waiting(Arc::default());
        let left = Arc::clone(&waiting.0);
        let (done, result) = oneshot::channel();
        let runtime = Handle::current();
        let span = tracing::Span::current();
        let job = move || {
            if left.load(Ordering::Relaxed) {
                return;
            }
            let budget = Budget::new(left, cancel, deadline);
            let ran = span.in_scope(|| {
                budget.scope(|| catch_unwind(AssertUnwindSafe(|| runtime.block_on(work))))
            });
            // The receiver is dropped when the statement was cancelled.
            drop(done.send(ran.unwrap_or_else(|why| Err(unwound(&*why)))));
        };
        self.submit(Job {
            work: Box::new(job),
            large,
        })?;
        Ok(async move {
            let _waiting = waiting;
            result
                .await
                .map_err(|_| Error::internal("the planning of a statement ended early"))?
        })
    }

    fn submit(&self, job: Job) -> Result<()> {
        let mut state = self.pool.state.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle || state.threads >= THREADS_MAX {
            self.pool.more.notify_one();
            return Ok(());
        }
        match spawn(&self.pool) {
            Ok(()) => state.threads += 1,
            // An existing thread will take the job.
            Err(_) if state.threads > 0 => {
                self.pool.more.notify_one();
            }
            Err(error) => {
                state.jobs.pop_back();
                return Err(Error::io(format!(
                    "cannot start a thread to plan on: {error}"
                )));
            }
        }
        Ok(())
    }
}

impl Drop for Planners {
    fn drop(&mut self) {
        self.pool.state.lock().closed = true;
        self.pool.more.notify_all();
    }
}

fn spawn(pool: &Arc<Pool>) -> std::io::Result<()> {
    let pool = Arc::clone(pool);
    std::thread::Builder::new()
        .name("sql-plan".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || serve(&pool))
        .map(drop)
}

fn serve(pool: &Arc<Pool>) {
    PLANS.set(true);
    let mut state = pool.state.lock();
    loop {
        let Some(job) = state.jobs.pop_front() else {
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = pool.more.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                break;
            }
            continue;
        };
        drop(state);
        let large = job.large;
        (job.work)();
        state = pool.state.lock();
        if large {
            // The thread's stack may have become large.
            if !state.jobs.is_empty() && spawn(pool).is_ok() {
                state.threads += 1;
                break;
            }
            if state.jobs.is_empty() {
                break;
            }
        }
    }
    state.threads -= 1;
}

/// Error for work that ended without a result.
fn unwound(why: &(dyn Any + Send)) -> Error {
    match why.downcast_ref::<PlanningStopped>() {
        Some(PlanningStopped(error)) => error.clone(),
        // The panic message was logged when it happened.
        None => Error::internal("the planning of the statement panicked; the log says more"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        runtime.unwrap().block_on(work)
    }

    #[test]
    fn a_panic_is_an_error_and_the_next_work_is_done() {
        block_on(async {
            let planners = Planners::new();
            let broken = planners.run(None, false, async { panic!("as it is meant to") });
            assert_eq!(broken.await.map(|_: u8| ()).unwrap_err().code, "internal");
            for large in [true, false, true, true] {
                assert_eq!(planners.run(None, large, async { Ok(7) }).await, Ok(7));
            }
        });
    }

    #[test]
    fn work_that_nobody_waits_for_or_that_is_late_is_told_so() {
        block_on(async {
            let planners = Planners::new();
            let (told, hears) = std::sync::mpsc::channel();
            let looks = move || {
                loop {
                    if let Err(error) = check() {
                        told.send(error.code).unwrap();
                        return Err::<(), _>(error);
                    }
                    std::thread::yield_now();
                }
            };
            let late = looks.clone();
            let limit = Some(Duration::from_millis(20));
            let ended = planners.run(limit, false, async move { late() }).await;
            assert_eq!(ended.unwrap_err().code, "time_limit");
            assert_eq!(hears.recv(), Ok("time_limit"));
            let left = planners.run(None, false, async move { looks() });
            drop(tokio::time::timeout(Duration::from_millis(20), left).await);
            assert_eq!(hears.recv(), Ok("time_limit"));
        });
    }
}
