//! Scope of a request's reads: on whose behalf copies are read, and whether copies that cannot be
//! read may be left out.
//!
//! Invariants: a read outside of a scope is on behalf of nobody, and leaves nothing out. Copies
//! that are left out are recorded in the scope before the answer begins. Concurrency: a scope
//! belongs to the task of a request, and follows it to the thread that reads for it.

use headwater::Snapshot;
use headwater_cluster::LeftOutCopy;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static OF_TASK: ReadScope;
}

thread_local! {
    static OF_THREAD: RefCell<ReadScope> = RefCell::default();
}

/// Copies that the snapshots of a request left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut(Arc<Mutex<BTreeSet<LeftOutCopy>>>);

impl LeftOut {
    /// The snapshot without the copies that cannot be read, which are recorded.
    pub(crate) fn leave_out(&self, snapshot: Snapshot) -> Snapshot {
        let unreadable = snapshot.unreadable_parts().into_iter();
        let copies = unreadable.map(|(edge, reason)| LeftOutCopy {
            edge: edge.to_string(),
            reason: reason.to_string(),
        });
        self.0.lock().extend(copies);
        snapshot.allowing_partial()
    }

    /// The recorded copies.
    pub(crate) fn copies(&self) -> Vec<LeftOutCopy> {
        self.0.lock().iter().cloned().collect()
    }
}

/// Scope of the reads of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadScope {
    /// Number of the reader for whom missing ranges may be fetched; 0 = none.
    pub(crate) reader: u64,
    /// Copies that are left out; `None` = an answer that needs them is refused.
    pub(crate) left_out: Option<LeftOut>,
}

/// Sets the scope of before when it is dropped.
struct Restore(ReadScope);

impl Drop for Restore {
    fn drop(&mut self) {
        OF_THREAD.set(std::mem::take(&mut self.0));
    }
}

impl ReadScope {
    /// Scope of the request that this task answers.
    pub(crate) fn of_task() -> ReadScope {
        OF_TASK.try_with(ReadScope::clone).unwrap_or_default()
    }

    /// Scope of the reads of this thread, or of its task.
    pub(crate) fn current() -> ReadScope {
        let of_thread = OF_THREAD.with_borrow(ReadScope::clone);
        match of_thread.reader == 0 && of_thread.left_out.is_none() {
            true => ReadScope::of_task(),
            false => of_thread,
        }
    }

    /// Answers a request in this scope.
    pub(crate) async fn answer<F: Future>(self, answer: F) -> F::Output {
        OF_TASK.scope(self, answer).await
    }

    /// Reads on this thread in this scope.
    pub(crate) fn read<T>(self, call: impl FnOnce() -> T) -> T {
        let reader = self.reader;
        let _before = Restore(OF_THREAD.replace(self));
        headwater::reading_for(reader, call)
    }

    /// A snapshot as this scope reads it.
    pub(crate) fn of_snapshot(&self, snapshot: Snapshot) -> Snapshot {
        match &self.left_out {
            Some(left_out) => left_out.leave_out(snapshot),
            None => snapshot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_scope_follows_a_request_to_the_thread_that_reads() {
        let scope = ReadScope {
            reader: 7,
            left_out: Some(LeftOut::default()),
        };
        assert_eq!(ReadScope::current().reader, 0);
        let seen = scope.answer(async {
            let scope = ReadScope::of_task();
            let read = move || scope.read(ReadScope::current);
            let inside = tokio::task::spawn_blocking(read).await;
            (inside, ReadScope::current().reader)
        });
        let (inside, of_task) = seen.await;
        let inside = inside.unwrap_or_default();
        assert_eq!((inside.reader, of_task), (7, 7));
        assert!(inside.left_out.is_some());
        let after = tokio::task::spawn_blocking(|| ReadScope::current().reader).await;
        assert_eq!(after.ok(), Some(0));
    }
}
