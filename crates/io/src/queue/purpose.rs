//! What the calls of a thread are for, where nothing else says it.
//!
//! Purpose: a file has no parameter for what a read is for; whoever works on something says it for
//! as long as he does.
//! Invariants: a thread that said nothing works for a caller who waits. What was said before holds
//! again when what was said later is over.
//! Concurrency: each thread speaks for itself.
//! Failure: none.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::queue::request::Purpose;

thread_local! {
    static PURPOSE: Cell<Purpose> = const { Cell::new(Purpose::Caller) };
}

/// Until this is dropped, the thread works for something.
#[derive(Debug)]
#[must_use = "what was said is over when it is dropped"]
pub struct Working {
    before: Purpose,
    /// It is the word of one thread.
    _here: PhantomData<*const ()>,
}

impl Purpose {
    /// What this thread works for.
    #[must_use]
    pub fn of_this_thread() -> Purpose {
        PURPOSE.get()
    }

    /// From now on this thread works for it.
    pub fn begin(self) -> Working {
        Working {
            before: PURPOSE.replace(self),
            _here: PhantomData,
        }
    }
}

impl Drop for Working {
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
