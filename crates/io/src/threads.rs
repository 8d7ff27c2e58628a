//! Threads as a part that can be replaced, or be absent.
//!
//! Invariants: a body is run exactly once, or never if [`Threads::spawn`] returned `Ok(None)` or an
//! error. Concurrency: bodies run in parallel to the caller; only [`Joiner::join`] waits. Failure:
//! a panic of a body ends its thread only and is reported as `false` by [`Joiner::join`].

use std::fmt;
use std::io;
use std::thread;

/// Starts threads.
pub trait Threads: Send + Sync + fmt::Debug {
    /// Starts `body` on a thread called `name`.
    ///
    /// `Ok(None)` means that this runtime has no threads: `body` is dropped without being run, and
    /// the caller does the work inline when it is due.
    ///
    /// # Errors
    /// When the thread cannot be started (limits of the system, a NUL byte in `name`); `body` was
    /// not run.
    fn spawn(
        &self,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Option<Box<dyn Joiner>>>;

    /// Number of the calling process. A fork changes it under a running program: then the threads
    /// that were started do not exist any more.
    fn process(&self) -> u32 {
        std::process::id()
    }
}

/// A started thread. Dropping it detaches the thread.
pub trait Joiner: Send + fmt::Debug {
    /// Waits for the end of the thread; `false` when it panicked.
    fn join(self: Box<Self>) -> bool;
}

/// Threads of the operating system.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemThreads;

#[derive(Debug)]
struct SystemJoiner(thread::JoinHandle<()>);

impl Threads for SystemThreads {
    fn spawn(
        &self,
        name: &str,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Option<Box<dyn Joiner>>> {
        if name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a thread name cannot contain a NUL byte",
            ));
        }
        let handle = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Some(Box::new(SystemJoiner(handle))))
    }
}

impl Joiner for SystemJoiner {
    fn join(self: Box<Self>) -> bool {
        self.0.join().is_ok()
    }
}

/// A runtime without threads: every spawn returns `Ok(None)`.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoThreads;

impl Threads for NoThreads {
    fn spawn(
        &self,
        _name: &str,
        _body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Option<Box<dyn Joiner>>> {
        Ok(None)
    }
}
