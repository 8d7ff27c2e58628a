//! One request in flight, and its completion.
//!
//! Invariants: the buffer belongs to the request until it is answered. Every result of the kernel
//! is answered as the blocking calls would: operations that it did not do, or did partly, are
//! completed by blocking calls here. A failed sync is not retried. Concurrency: a plain value with
//! one owner. Failure: errors of the medium.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::files::File;
use crate::request::Completer;
use crate::system::SystemFile;

/// A request with all it needs.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) file: Arc<SystemFile>,
    pub(super) work: Work,
}

/// Work of a request.
#[derive(Debug)]
pub(super) enum Work {
    Read {
        offset: u64,
        buf: Vec<u8>,
        completer: Completer<Vec<u8>>,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
        /// The file is made durable when the bytes are written.
        then_sync: bool,
        completer: Completer<Vec<u8>>,
    },
    Sync {
        completer: Completer<()>,
    },
}

/// The kernel's answer to one of its operations.
#[derive(Debug)]
pub(super) enum KernelResult {
    /// Done, for this many bytes.
    Done(usize),
    /// Not done, without an error: the submitting thread has ended, the preceding linked operation
    /// was incomplete, or the operation was interrupted.
    Undone,
    /// The request failed.
    Failed(Errno),
}

impl KernelResult {
    /// Reads the number of an answer: bytes, or an error below zero.
    pub(super) fn of(result: i32) -> KernelResult {
        match usize::try_from(result) {
            Ok(bytes) => KernelResult::Done(bytes),
            Err(_) => match Errno::from_raw_os_error(result.wrapping_neg()) {
                Errno::CANCELED | Errno::INTR | Errno::AGAIN => KernelResult::Undone,
                errno => KernelResult::Failed(errno),
            },
        }
    }
}

impl Flight {
    pub(super) fn new(file: Arc<SystemFile>, work: Work) -> Flight {
        Flight { file, work }
    }

    /// Does all of it, by calls that wait.
    pub(super) fn carry_out(self) {
        self.finish(KernelResult::Undone, KernelResult::Undone);
    }

    /// Answers, after completing the rest: `first` is the result of the read, write or sync, `then`
    /// of the sync linked to a write.
    pub(super) fn finish(self, first: KernelResult, then: KernelResult) {
        let Flight { file, work } = self;
        match work {
            Work::Read {
                offset,
                mut buf,
                completer,
            } => completer.complete(rest_read(&file, offset, &mut buf, &first).map(|()| buf)),
            Work::Write {
                offset,
                data,
                then_sync,
                completer,
            } => {
                let mut answer = rest_written(&file, offset, &data, &first);
                if then_sync && answer.is_ok() {
                    // Bytes written here are not covered by that sync.
                    let is_all = matches!(first, KernelResult::Done(bytes) if bytes >= data.len());
                    answer = synced(&file, if is_all { then } else { KernelResult::Undone });
                }
                completer.complete(answer.map(|()| data));
            }
            Work::Sync { completer } => completer.complete(synced(&file, first)),
        }
    }
}

/// Number of bytes that are done.
fn done(said: &KernelResult, len: usize) -> io::Result<usize> {
    match said {
        KernelResult::Done(bytes) => Ok(len.min(*bytes)),
        KernelResult::Undone => Ok(0),
        KernelResult::Failed(errno) => Err((*errno).into()),
    }
}

fn behind(offset: u64, done: usize) -> io::Result<u64> {
    u64::try_from(done)
        .ok()
        .and_then(|done| offset.checked_add(done))
        .ok_or_else(|| Errno::INVAL.into())
}

fn rest_read(
    file: &SystemFile,
    offset: u64,
    buf: &mut [u8],
    said: &KernelResult,
) -> io::Result<()> {
    let done = done(said, buf.len())?;
    let (_, rest) = buf.split_at_mut(done);
    file.read_exact_at(behind(offset, done)?, rest)
}

fn rest_written(
    file: &SystemFile,
    offset: u64,
    data: &[u8],
    said: &KernelResult,
) -> io::Result<()> {
    let done = done(said, data.len())?;
    let (_, rest) = data.split_at(done);
    file.write_all_at(behind(offset, done)?, rest)
}

fn synced(file: &SystemFile, said: KernelResult) -> io::Result<()> {
    match said {
        KernelResult::Done(_) => Ok(()),
        KernelResult::Undone => file.sync_data(),
        KernelResult::Failed(errno) => Err(errno.into()),
    }
}
