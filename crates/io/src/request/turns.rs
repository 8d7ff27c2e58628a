//! Turns: of those who wait for the requests of one medium, one works at a time.
//!
//! Purpose: a medium without a thread of its own. Whoever waits for an answer asks the medium for
//! all answers there are; those who wait meanwhile sleep until theirs is among them, or until it is
//! their turn to ask.
//! Invariants: at most one [`Turn`] of some [`Turns`] exists. Whoever gives a turn back wakes
//! somebody who is not answered yet, if there is one; so while nobody has the turn, nobody sleeps
//! who has not been woken.
//! Concurrency: the lock of the line is taken before that of a request, never after it.
//! Failure: none of its own.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// A medium whose requests are answered by those who wait for them.
pub(crate) trait Driven: Send + Sync + fmt::Debug {
    /// Who may ask the medium for answers.
    fn turns(&self) -> &Turns;

    /// Whether its requests can still be answered in this process.
    fn usable(&self) -> io::Result<()>;

    /// Answers every request whose answer is there; if there is none, waits for one if asked to.
    /// Whoever asks it to wait has a request on its way that is not answered.
    fn answer(&self, turn: &Turn<'_>, wait: bool) -> io::Result<()>;
}

/// A request that somebody waits for.
pub(crate) trait Waiting: Send + Sync + fmt::Debug {
    /// Wakes who waits for it, so that they take the turn; false when it is answered already.
    fn wake(&self) -> bool;
}

/// The turn of one medium, and the line of those who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    is_taken: bool,
    /// Who sleeps, longest first; requests that were answered meanwhile among them.
    waiting: VecDeque<Arc<dyn Waiting>>,
}

/// The right to ask a medium for answers; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// The turn, if nobody has it.
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
