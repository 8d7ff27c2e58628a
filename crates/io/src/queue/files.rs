//! Files whose reads and writes pass through queue sets.
//!
//! Purpose: a read with a waiting caller is served before one without, whichever thread calls.
//! Calls are executed by their callers, in a turn of the file's set; a read ahead is executed by
//! the set's owner, or by the medium if that has a queue. Invariants: results are those of the
//! wrapped file. Bytes that the system has in memory are read without a turn, since they do not
//! load the medium. A sync has no turn: its duration depends on the medium, and readers would wait
//! for all of it. Reads and writes of one caller are executed in the order of its calls.
//! Concurrency: a turn is held for one call of the wrapped file only. In a process forked from the
//! one that created the sets, whose owners it does not have, calls are not queued. Failure: as in
//! the wrapped file. Sets that were shut down neither order nor refuse calls.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{Completion, File, Files, OpenMode, Threads, pass_on_files};

use crate::queue::request::{Direction, Purpose, Request};
use crate::queue::sets::{CallersTurn, Sets};
use crate::queue::transfer::Transfer;

/// The set of a file, by its path.
pub type SetOfFile = Arc<dyn Fn(&Path) -> usize + Send + Sync>;

/// Files before which there are queue sets.
#[derive(Clone)]
pub struct QueuedFiles {
    files: Arc<dyn Files>,
    queues: Queues,
    set_of: SetOfFile,
}

/// The sets, and the parameters for using them.
#[derive(Clone, Debug)]
struct Queues {
    sets: Arc<Sets<Transfer>>,
    threads: Arc<dyn Threads>,
    process: u32,
    /// True if the medium has a queue and executes reads ahead itself; otherwise the set's owner
    /// does.
    medium_has_queue: bool,
}

impl fmt::Debug for QueuedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedFiles")
            .field("files", &self.files)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

impl QueuedFiles {
    /// Wraps files with these sets; `set_of` selects the set of a file when it is opened.
    pub fn new(
        files: &Arc<dyn Files>,
        sets: &Arc<Sets<Transfer>>,
        threads: &Arc<dyn Threads>,
        set_of: SetOfFile,
    ) -> QueuedFiles {
        QueuedFiles {
            queues: Queues {
                sets: Arc::clone(sets),
                threads: Arc::clone(threads),
                process: threads.process(),
                medium_has_queue: files.has_queue(),
            },
            files: Arc::clone(files),
            set_of,
        }
    }
}

impl Files for QueuedFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(QueuedFile {
            file: self.files.open(path, mode)?,
            set: (self.set_of)(path),
            queues: self.queues.clone(),
        }))
    }

    fn has_queue(&self) -> bool {
        true
    }

    pass_on_files!(files; remove list create_dir_all sync_dir exists is_same_dir lock lock_file);
}

/// A file that belongs to a set.
#[derive(Debug)]
struct QueuedFile {
    file: Arc<dyn File>,
    set: usize,
    queues: Queues,
}

impl QueuedFile {
    fn request(&self, offset: u64, len: usize, direction: Direction) -> Request {
        let length = u64::try_from(len).unwrap_or(u64::MAX);
        Request {
            purpose: Purpose::of_this_thread(),
            ..Request::of_caller(0, offset, length, direction)
        }
    }

    fn is_forked(&self) -> bool {
        self.queues.threads.process() != self.queues.process
    }

    /// The turn of this call; `None` = no turn needed.
    fn turn(
        &self,
        offset: u64,
        len: usize,
        direction: Direction,
    ) -> Option<CallersTurn<'_, Transfer>> {
        // Checked first: a lock of the parent's may be held forever.
        if self.is_forked() {
            return None;
        }
        let request = self.request(offset, len, direction);
        Some(self.queues.sets.take_turn(self.set, &request))
    }
}

impl File for QueuedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if self.file.try_read_cached(offset, buf) {
            return Ok(buf.len());
        }
        let _turn = self.turn(offset, buf.len(), Direction::Read);
        self.file.read_at(offset, buf)
    }

    fn try_read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.file.try_read_cached(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let _turn = self.turn(offset, data.len(), Direction::Write);
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn submit_read(&self, offset: u64, mut buf: Vec<u8>) -> Completion<Vec<u8>> {
        if self.queues.medium_has_queue {
            return self.file.submit_read(offset, buf);
        }
        if self.file.try_read_cached(offset, &mut buf) {
            return Completion::done(Ok(buf));
        }
        if self.is_forked() {
            return Completion::done(self.file.read_exact_at(offset, &mut buf).map(|()| buf));
        }
        let request = self.request(offset, buf.len(), Direction::Read);
        self.queues
            .sets
            .read_ahead(self.set, &request, &self.file, buf)
    }

    fn submit_sync(&self) -> Completion<()> {
        self.file.submit_sync()
    }
}
