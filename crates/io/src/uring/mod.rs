//! Files of a Linux machine whose requests pass through a queue of the kernel (io_uring).
//!
//! Purpose: several reads and writes in flight at once, from one thread, so that a medium with
//! depth works at its depth. Blocking calls are still plain system calls, which cost less than a
//! request and its answer. Invariants: a request that the queue does not accept, or that the kernel
//! returns undone or partly done, is carried out by blocking calls; so a request does the same as
//! the call without `submit_`, in every case. Concurrency: all files of one [`UringFiles`] share a
//! queue (`ring`). The queue has no thread of its own: a thread that waits for a request reads the
//! answers for all. In a forked process the queue is its parent's, and requests are carried out by
//! calls. Failure: if the kernel refuses a queue, [`UringFiles::new`] returns the reason, and
//! [`UringFiles::or_system`] falls back to [`SystemFiles`].

#[cfg(not(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
)))]
mod absent;
mod flight;
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]
mod ring;

use std::io;
use std::path::Path;
use std::sync::Arc;

#[cfg(not(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
)))]
use self::absent::Ring;
use self::flight::{Flight, Work};
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]
use self::ring::Ring;
use crate::files::{File, Files, OpenMode};
use crate::request::{Completer, Completion, Driven};
use crate::system::{SystemFile, SystemFiles};

/// Reason why there is no queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UringRefused {
    /// The kernel did not make one.
    #[error(
        "the kernel refuses io_uring: {0} (check the sysctl kernel.io_uring_disabled, system call filters such as those of containers, and the limit of locked memory)"
    )]
    Setup(io::Error),
    /// A feature that is needed is missing.
    #[error("the kernel's io_uring lacks {0}: expected Linux 5.6 or later")]
    TooOld(&'static str),
    /// No queue exists on machines of this kind.
    #[error("io_uring needs 64-bit Linux")]
    NotHere,
}

/// The file system of the machine, with requests through a queue of the kernel.
///
/// ```
/// use headwater_io::{OpenMode, UringFiles};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("file");
/// let (files, refused) = UringFiles::or_system();
/// if let Some(refused) = refused {
///     eprintln!("requests wait for one another: {refused}");
/// }
/// let file = files.open(&path, OpenMode::CreateNew)?;
/// file.submit_write_and_sync(0, b"abcdef".to_vec()).wait()?;
/// let (front, back) = (file.submit_read(0, vec![0; 3]), file.submit_read(3, vec![0; 3]));
/// assert_eq!((front.wait()?, back.wait()?), (b"abc".to_vec(), b"def".to_vec()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct UringFiles {
    system: SystemFiles,
    queue: Queue,
}

/// A queue, and how it is used.
#[derive(Clone, Debug)]
struct Queue {
    ring: Arc<Ring>,
    /// Reads are tried without waiting first, and go through the queue if that is not all.
    tries_reads: bool,
}

impl UringFiles {
    /// Files with a queue of their own.
    ///
    /// # Errors
    /// If the kernel does not have such a queue, or refuses it to this process.
    pub fn new() -> Result<UringFiles, UringRefused> {
        UringFiles::with(true)
    }

    fn with(tries_reads: bool) -> Result<UringFiles, UringRefused> {
        Ok(UringFiles {
            system: SystemFiles::new(),
            queue: Queue {
                ring: Arc::new(Ring::new()?),
                tries_reads,
            },
        })
    }

    /// Files with a queue, or [`SystemFiles`] and why, for one line of the caller's log.
    #[must_use]
    pub fn or_system() -> (Arc<dyn Files>, Option<UringRefused>) {
        match UringFiles::new() {
            Ok(files) => (Arc::new(files), None),
            Err(refused) => (Arc::new(SystemFiles::new()), Some(refused)),
        }
    }
}

#[derive(Debug)]
struct UringFile {
    file: Arc<SystemFile>,
    queue: Queue,
}

impl UringFile {
    fn submit<T: Send + 'static>(&self, work: impl FnOnce(Completer<T>) -> Work) -> Completion<T> {
        let medium: Arc<dyn Driven> = self.queue.ring.clone();
        let (completion, completer) = Completion::driven(medium);
        let flight = Flight::new(Arc::clone(&self.file), work(completer));
        match self.queue.ring.submit(flight) {
            Ok(()) => completion,
            Err(refused) => {
                refused.carry_out();
                completion.settled()
            }
        }
    }
}

impl File for UringFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn try_read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.queue.tries_reads && self.file.try_read_cached(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
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
        if self.queue.tries_reads && self.file.try_read_cached(offset, &mut buf) {
            return Completion::done(Ok(buf));
        }
        self.submit(|completer| Work::Read {
            offset,
            buf,
            completer,
        })
    }

    fn submit_write(&self, offset: u64, data: Vec<u8>) -> Completion<Vec<u8>> {
        self.submit(|completer| Work::Write {
            offset,
            data,
            then_sync: false,
            completer,
        })
    }

    fn submit_sync(&self) -> Completion<()> {
        self.submit(|completer| Work::Sync { completer })
    }

    fn submit_write_and_sync(&self, offset: u64, data: Vec<u8>) -> Completion<Vec<u8>> {
        self.submit(|completer| Work::Write {
            offset,
            data,
            then_sync: true,
            completer,
        })
    }
}

impl Files for UringFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(UringFile {
            file: Arc::new(SystemFile::open(path, mode)?),
            queue: self.queue.clone(),
        }))
    }

    fn has_queue(&self) -> bool {
        true
    }

    crate::pass_on_files!(
        system; remove list create_dir_all sync_dir exists is_same_dir lock lock_file
    );
}

#[cfg(test)]
mod tests;
