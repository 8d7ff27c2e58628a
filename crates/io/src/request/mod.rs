//! Requests to a medium that run while the caller continues, and their completions.
//!
//! Invariants: every request is answered exactly once: one whose [`Completer`] is dropped fails. A
//! buffer belongs to the request until it is answered, and is returned with the answer.
//! Concurrency: any thread may complete a request, and any thread may wait for it. Requests of a
//! medium without a thread of its own (`turns`) are completed by the waiting threads. Failure:
//! errors of the medium.

mod turns;

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

pub(crate) use self::turns::{Driven, Turn, Turns};

/// A request in flight, from [`crate::File::submit_read`] and the other `submit_` methods. Dropping
/// it does not cancel the request.
///
/// ```
/// use headwater_io::{Env, OpenMode};
/// let file = Env::memory().files.open(std::path::Path::new("/a"), OpenMode::CreateNew)?;
/// let written = file.submit_write(0, b"abc".to_vec());
/// written.wait()?;
/// let (first, second) = (file.submit_read(0, vec![0; 1]), file.submit_read(1, vec![0; 2]));
/// assert_eq!((second.wait()?, first.wait()?), (b"bc".to_vec(), b"a".to_vec()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a request is done when it has been waited for"]
pub struct Completion<T> {
    state: State<T>,
    /// Called with the error when the request fails and is waited for.
    on_error: Option<OnError>,
}

/// Callback for a failure.
type OnError = Box<dyn FnOnce(&io::Error) + Send>;

impl<T: fmt::Debug> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completion").field(&self.state).finish()
    }
}

#[derive(Debug)]
enum State<T> {
    Done(io::Result<T>),
    Pending(Arc<Shared<T>>),
    Driven {
        shared: Arc<Shared<T>>,
        /// The same, as the line of the medium has it.
        waiting: Arc<dyn turns::Waiting>,
        medium: Arc<dyn Driven>,
    },
}

struct Shared<T> {
    answer: Mutex<Answer<T>>,
    changed: Condvar,
}

enum Answer<T> {
    /// No answer yet; true if the waiter has to poll the medium.
    Missing {
        has_turn: bool,
    },
    There(io::Result<T>),
    /// The answer was returned.
    Returned,
}

/// Answers one request; for media.
#[derive(Debug)]
pub struct Completer<T> {
    /// Shared state; `None` = already answered.
    shared: Option<Arc<Shared<T>>>,
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("is_answered", &self.is_answered())
            .finish()
    }
}

impl<T> Shared<T> {
    fn new() -> Arc<Shared<T>> {
        Arc::new(Shared {
            answer: Mutex::new(Answer::Missing { has_turn: false }),
            changed: Condvar::new(),
        })
    }

    fn is_answered(&self) -> bool {
        !matches!(*self.answer.lock(), Answer::Missing { .. })
    }

    /// The answer, if it is there.
    fn take(&self) -> Option<io::Result<T>> {
        let mut answer = self.answer.lock();
        match std::mem::replace(&mut *answer, Answer::Returned) {
            Answer::There(answer) => Some(answer),
            before => {
                *answer = before;
                None
            }
        }
    }

    /// Sleeps until the answer is present, or until the waiter has to poll the medium.
    fn sleep(&self) {
        let mut answer = self.answer.lock();
        while matches!(*answer, Answer::Missing { has_turn: false }) {
            self.changed.wait(&mut answer);
        }
        if let Answer::Missing { has_turn } = &mut *answer {
            *has_turn = false;
        }
    }
}

impl<T: Send> turns::Waiting for Shared<T> {
    fn wake(&self) -> bool {
        match &mut *self.answer.lock() {
            Answer::Missing { has_turn } => *has_turn = true,
            Answer::There(_) | Answer::Returned => return false,
        }
        self.changed.notify_all();
        true
    }
}

impl<T> Completion<T> {
    /// A request that was carried out at once.
    pub fn done(answer: io::Result<T>) -> Completion<T> {
        Completion::of(State::Done(answer))
    }

    fn of(state: State<T>) -> Completion<T> {
        Completion {
            state,
            on_error: None,
        }
    }

    /// Calls `report` with the error of a request that fails and has a waiter, before the waiter
    /// receives it, and after the callbacks that were added earlier. Without a waiter `report` is
    /// not called.
    pub fn inspect_err(self, report: impl FnOnce(&io::Error) + Send + 'static) -> Completion<T> {
        let Completion {
            state,
            on_error: first,
        } = self;
        let on_error: OnError = match first {
            None => Box::new(report),
            Some(first) => Box::new(move |error| {
                first(error);
                report(error);
            }),
        };
        Completion {
            state,
            on_error: Some(on_error),
        }
    }

    /// A request that is to be answered later.
    pub fn pending() -> (Completion<T>, Completer<T>) {
        let shared = Shared::new();
        let completer = Completer {
            shared: Some(Arc::clone(&shared)),
        };
        (Completion::of(State::Pending(shared)), completer)
    }

    /// Whether waiting would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Done(_) => true,
            State::Pending(shared) => shared.is_answered(),
            State::Driven { shared, medium, .. } => {
                if shared.is_answered() || medium.usable().is_err() {
                    return true;
                }
                if let Some(turn) = medium.turns().try_take() {
                    // If the medium cannot be polled, it reports that to the waiter.
                    let _ = medium.answer(&turn, false);
                }
                shared.is_answered()
            }
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// The errors of the call without `submit_`.
    pub fn wait(self) -> io::Result<T> {
        let Completion { state, on_error } = self;
        let answer = state.wait();
        if let (Some(on_error), Err(error)) = (on_error, &answer) {
            on_error(error);
        }
        answer
    }
}

impl<T> State<T> {
    fn wait(self) -> io::Result<T> {
        match self {
            State::Done(answer) => answer,
            State::Pending(shared) => loop {
                if let Some(answer) = shared.take() {
                    return answer;
                }
                shared.sleep();
            },
            State::Driven {
                shared,
                waiting,
                medium,
            } => loop {
                // Checked first: in a process that was forked meanwhile no lock can be relied on.
                medium.usable()?;
                if let Some(answer) = shared.take() {
                    return answer;
                }
                match medium.turns().take_or_stand_in_line(&waiting) {
                    // The request may have been answered since the check.
                    Some(_) if shared.is_answered() => {}
                    Some(turn) => medium.answer(&turn, true)?,
                    None => shared.sleep(),
                }
            },
        }
    }
}

impl<T: Send + 'static> Completion<T> {
    /// A request to a medium without a thread: its waiter polls the medium.
    pub(crate) fn driven(medium: Arc<dyn Driven>) -> (Completion<T>, Completer<T>) {
        let shared = Shared::new();
        let completer = Completer {
            shared: Some(Arc::clone(&shared)),
        };
        let waiting: Arc<dyn turns::Waiting> = shared.clone();
        let state = State::Driven {
            shared,
            waiting,
            medium,
        };
        (Completion::of(state), completer)
    }

    /// The same request, without its medium if it is answered already.
    pub(crate) fn settled(self) -> Completion<T> {
        if let State::Driven { shared, .. } = &self.state
            && let Some(answer) = shared.take()
        {
            return Completion {
                state: State::Done(answer),
                ..self
            };
        }
        self
    }
}

impl<T> Completer<T> {
    /// Answers the request.
    pub fn complete(mut self, answer: io::Result<T>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: io::Result<T>) {
        if let Some(shared) = self.shared.take() {
            *shared.answer.lock() = Answer::There(answer);
            shared.changed.notify_all();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.answer(Err(io::Error::other(
            "the device dropped a request without an answer",
        )));
    }
}

#[cfg(test)]
mod tests;
