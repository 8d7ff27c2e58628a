//! Default purpose of the calls of a thread.
//!
//! Purpose: a file has no parameter for the purpose of a read; a thread declares it for the
//! duration of its work. Invariants: a thread without a declaration works for a waiting caller.
//! When a declaration ends, the previous one is in force again. Concurrency: each thread declares
//! its own. Failure: none.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::queue::request::Purpose;

thread_local! {
    static PURPOSE: Cell<Purpose> = const { Cell::new(Purpose::Caller) };
}

/// Until this is dropped, the thread works for something.
#[derive(Debug)]
#[must_use = "what was said is over when it is dropped"]
pub struct PurposeGuard {
    before: Purpose,
    /// Ties the declaration to its thread.
    _here: PhantomData<*const ()>,
}

impl Purpose {
    /// The purpose that this thread declared.
    #[must_use]
    pub fn of_this_thread() -> Purpose {
        PURPOSE.get()
    }

    /// Declares the purpose of this thread's work from now on.
    pub fn begin(self) -> PurposeGuard {
        PurposeGuard {
            before: PURPOSE.replace(self),
            _here: PhantomData,
        }
    }
}

impl Drop for PurposeGuard {
    fn drop(&mut self) {
        PURPOSE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_works_for_callers_unless_it_says_otherwise_and_only_it_does() {
        assert_eq!(Purpose::of_this_thread(), Purpose::Caller);
        let compaction = Purpose::Compaction.begin();
        let flush = Purpose::Flush.begin();
        assert_eq!(Purpose::of_this_thread(), Purpose::Flush);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(Purpose::of_this_thread(), Purpose::Caller));
        });
        drop(flush);
        assert_eq!(Purpose::of_this_thread(), Purpose::Compaction);
        drop(compaction);
        assert_eq!(Purpose::of_this_thread(), Purpose::Caller);
    }
}
