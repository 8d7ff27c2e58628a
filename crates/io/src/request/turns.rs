//! Turns: of the threads that wait for the requests of one medium, one works at a time.
//!
//! Purpose: a medium without a thread of its own. A thread that waits for an answer polls the
//! medium for all available answers; the other waiters sleep until they are answered, or until it
//! is their turn to poll. Invariants: at most one [`Turn`] of some [`Turns`] exists. Returning a
//! turn wakes an unanswered waiter, if there is one; so while no thread has the turn, every
//! sleeping waiter has been woken. Concurrency: the lock of the line is acquired before a
//! request's, never after it. Failure: none of its own.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// A medium whose requests are answered by their waiters.
pub(crate) trait Driven: Send + Sync + fmt::Debug {
    /// Turns in which waiters poll the medium for answers.
    fn turns(&self) -> &Turns;

    /// Fails when its requests cannot be answered in this process any more.
    fn usable(&self) -> io::Result<()>;

    /// Answers every request whose answer is available; if there is none, waits for one if `wait`
    /// is true. The caller has an unanswered request in flight.
    fn answer(&self, turn: &Turn<'_>, wait: bool) -> io::Result<()>;
}

/// A request that somebody waits for.
pub(crate) trait Waiting: Send + Sync + fmt::Debug {
    /// Wakes the waiter, so that it takes the turn; false if it is answered already.
    fn wake(&self) -> bool;
}

/// The turn of one medium, and the line of its waiters.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    is_taken: bool,
    /// Sleeping requests, longest first; requests that were answered meanwhile among them.
    waiting: VecDeque<Arc<dyn Waiting>>,
}

/// The right to poll a medium for answers; dropping it releases the right.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// The turn, if it is free.
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        let mut line = self.0.lock();
        self.take(&mut line)
    }

    /// The turn, or a place in the line: then `waiting` is woken when it may be its turn.
    pub(crate) fn take_or_stand_in_line(&self, waiting: &Arc<dyn Waiting>) -> Option<Turn<'_>> {
        let mut line = self.0.lock();
        let turn = self.take(&mut line);
        if turn.is_none() {
            line.waiting.push_back(Arc::clone(waiting));
        }
        turn
    }

    fn take(&self, line: &mut Line) -> Option<Turn<'_>> {
        if line.is_taken {
            return None;
        }
        line.is_taken = true;
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.0.0.lock();
        line.is_taken = false;
        while let Some(next) = line.waiting.pop_front() {
            if next.wake() {
                break;
            }
        }
    }
}
