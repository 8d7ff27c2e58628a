//! Planning statements that are nested deeply, or have long chains of operators, away from the caller's stack.
//!
//! A chain of operators becomes a tree as deep as the chain is long, and the planner goes through trees by recursion; the stack of
//! a runtime's thread, 2 MiB, holds some tens of levels. Such statements are rare: they get a thread of their own, and what
//! is deeper than that one holds is refused before it is planned.

use crate::error::{Error, Result};
use crate::stop::Gone;
use tokio::runtime::Handle;

/// Bytes of the stack; they are taken from the machine only as far as they are used.
const STACK_BYTES: usize = 128 << 20;

/// Does some work with a deep stack. It goes on to its end when nobody waits for it any more.
pub(crate) async fn run<T, W>(work: W) -> Result<T>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    // It belongs to the statement of this task, though it runs elsewhere.
    let work = Gone::of_task().scope(work);
    let (done, result) = tokio::sync::oneshot::channel();
    let runtime = Handle::current();
    let spawned = std::thread::Builder::new()
        .name("hw-plan".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Nobody waits when the statement was cancelled.
            drop(done.send(runtime.block_on(work)));
        });
    spawned.map_err(|e| Error::io(format!("cannot start a thread to plan on: {e}")))?;
    result
        .await
        .map_err(|_| Error::internal("the planning of a statement ended early"))?
}
