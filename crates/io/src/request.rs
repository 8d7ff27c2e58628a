//! Requests to a medium that goes on while they are carried out, and their completions.
//!
//! Invariants: every request is answered exactly once: one whose [`Completer`] is dropped fails. A
//! buffer belongs to the request until it is answered, and comes back with the answer.
//! Concurrency: any thread may complete a request, and any one wait for it.
//! Failure: what the medium reports.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// A request on its way, from [`crate::File::submit_read`] and the like. Dropping it does not take
/// the request back.
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
#[derive(Debug)]
#[must_use = "a request is done when it has been waited for"]
pub struct Completion<T>(State<T>);

#[derive(Debug)]
enum State<T> {
    Done(io::Result<T>),
    Pending(Arc<Shared<T>>),
}

#[derive(Debug)]
struct Shared<T> {
    answer: Mutex<Option<io::Result<T>>>,
    answered: Condvar,
}

/// Answers one request; for media.
#[derive(Debug)]
pub struct Completer<T> {
    /// `None` = it is answered.
    shared: Option<Arc<Shared<T>>>,
}

impl<T> Completion<T> {
    /// A request that was carried out at once.
    pub fn done(answer: io::Result<T>) -> Completion<T> {
        Completion(State::Done(answer))
    }

    /// A request that is to be answered later.
    pub fn pending() -> (Completion<T>, Completer<T>) {
        let shared = Arc::new(Shared {
            answer: Mutex::new(None),
            answered: Condvar::new(),
        });
        let completer = Completer {
            shared: Some(Arc::clone(&shared)),
        };
        (Completion(State::Pending(shared)), completer)
    }

    /// True when waiting would not take time.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Done(_) => true,
            State::Pending(shared) => shared.answer.lock().is_some(),
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// What the call without `submit_` reports.
    pub fn wait(self) -> io::Result<T> {
        let shared = match self.0 {
            State::Done(answer) => return answer,
            State::Pending(shared) => shared,
        };
        let mut answer = shared.answer.lock();
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            shared.answered.wait(&mut answer);
        }
    }
}

impl<T> Completer<T> {
    /// Answers the request.
    pub fn complete(mut self, answer: io::Result<T>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: io::Result<T>) {
        if let Some(shared) = self.shared.take() {
            *shared.answer.lock() = Some(answer);
            shared.answered.notify_all();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.answer(Err(io::Error::other(
            "the medium gave a request up without an answer",
        )));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_request_is_done_when_it_is_answered_and_fails_when_it_is_given_up() {
        let (request, medium) = Completion::pending();
        assert!(!request.is_done());
        medium.complete(Ok(7));
        assert!(request.is_done());
        assert_eq!(request.wait().unwrap(), 7);
        let (request, medium) = Completion::<()>::pending();
        drop(medium);
        assert!(request.wait().is_err());
    }
}
