//! Windows of files, mapped to be written.
//!
//! Invariants: a window is only stored to below the length of its file, after the file was written
//! and every page was touched without an error; so no store hits a hole, a full file system or an
//! unavailable page, as long as no other process cuts the file. Windows are never read.
//! Concurrency: a window may be stored to by several threads; the code that cuts the file excludes
//! concurrent stores. Failure: files that cannot be mapped safely are reported as such, and are
//! written by calls.

#![allow(
    unsafe_code,
    reason = "a mapping is made, touched and taken away by calls of the system on addresses"
)]
#![deny(clippy::undocumented_unsafe_blocks)]

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::SeekFrom;

use super::Standing;
use super::lines::{self, Lines};

/// Bytes of a window: one large page.
pub(super) const WINDOW_BYTES: u64 = 2 << 20;
/// Zeros with which holes are written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Magic number of the file system whose pages are memory.
const TMPFS_MAGIC: i128 = 0x0102_1994;

/// A part of a file in memory.
#[derive(Debug)]
pub(super) struct Window {
    at: NonNull<u8>,
    /// Bytes from the start of the window that may be stored to.
    ready: usize,
}

// SAFETY: the window is addresses of a mapping, which belongs to the process and not to a thread;
// it is only stored to, by instructions that any thread may use.
unsafe impl Send for Window {}
// SAFETY: as above; two stores to the same bytes leave either, as `File` says of writes.
unsafe impl Sync for Window {}

impl Window {
    /// Maps the window that starts at `start`, of a file with the guarantee `standing`; it must not
    /// be stored to yet.
    pub(super) fn map(file: &fs::File, start: u64, standing: Standing) -> io::Result<Window> {
        let flags = match standing {
            Standing::Persistent => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            Standing::Memory | Standing::Calls => libc::MAP_SHARED,
        };
        let start = libc::off_t::try_from(start).map_err(io::Error::other)?;
        // SAFETY: a new mapping, at addresses that the kernel chooses, touches nothing that exists.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                window_len(),
                libc::PROT_WRITE,
                flags,
                file.as_raw_fd(),
                start,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(at.cast::<u8>()) {
            Some(at) => Ok(Window { at, ready: 0 }),
            None => Err(io::Error::other("a mapping at address 0")),
        }
    }

    /// Bytes from the start of the window that may be stored to.
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    /// Prepares the first `len` bytes of the window, which must be inside the file, for stores:
    /// writes its holes, then touches its pages.
    pub(super) fn make_ready(&mut self, file: &fs::File, start: u64, len: usize) -> io::Result<()> {
        if len <= self.ready {
            return Ok(());
        }
        let end = start.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        fill_holes(file, start, end)?;
        // SAFETY: the pages are those of this mapping; the kernel touches them and says what a
        // store would meet, without a signal.
        let touched = unsafe {
            libc::madvise(
                self.at.as_ptr().cast(),
                len.min(window_len()),
                libc::MADV_POPULATE_WRITE,
            )
        };
        if touched != 0 {
            return Err(io::Error::last_os_error());
        }
        self.ready = len.min(window_len());
        Ok(())
    }

    /// Prepares for a cut of the file at `len`: bytes after it are not stored to any more.
    pub(super) fn cut(&mut self, len: usize) {
        self.ready = self.ready.min(len);
    }

    /// Stores bytes and sends them on their way to memory; a fence is to follow.
    pub(super) fn write(&self, lines: &dyn Lines, at: usize, data: &[u8]) {
        let end = at.saturating_add(data.len());
        assert!(
            end <= self.ready,
            "a store to {end} of {} bytes",
            self.ready
        );
        // SAFETY: the bytes are in the mapping, in the part that was made ready, see above; there
        // is no reference to any of them.
        unsafe { lines::write(lines, self.at.as_ptr().add(at), data) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this window, and nobody else has its address.
        let gone = unsafe { libc::munmap(self.at.as_ptr().cast(), window_len()) };
        debug_assert_eq!(gone, 0, "a mapping can be taken away");
    }
}

/// Guarantee of stores to mappings of this file.
pub(super) fn standing_of(file: &fs::File) -> io::Result<Standing> {
    match Window::map(file, 0, Standing::Persistent) {
        Ok(_) => return Ok(Standing::Persistent),
        // Errors of kernels for file systems without support, or for unknown flags.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV | libc::EACCES)
            ) => {}
        Err(error) => return Err(error),
    }
    let kind = rustix::fs::fstatfs(file)?.f_type;
    // The type differs between processors.
    Ok(if i128::from(kind) == TMPFS_MAGIC {
        Standing::Memory
    } else {
        Standing::Calls
    })
}

/// Probes the guarantee of writes to new files in a directory, with an unnamed file.
pub(super) fn standing_in(dir: &Path) -> io::Result<Standing> {
    let probe = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(dir);
    match probe {
        Ok(file) => standing_of(&file),
        // Some file systems have no unnamed files; those for persistent memory do.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)
            ) =>
        {
            Ok(Standing::Calls)
        }
        Err(error) => Err(error),
    }
}

fn window_len() -> usize {
    usize::try_from(WINDOW_BYTES).unwrap_or(usize::MAX)
}

/// Writes zeros where the file has holes between two offsets.
fn fill_holes(file: &fs::File, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let hole = rustix::fs::seek(file, SeekFrom::Hole(at))?;
        if hole >= end {
            break;
        }
        let behind = match rustix::fs::seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(end),
            // No more data follow.
            Err(rustix::io::Errno::NXIO) => end,
            Err(errno) => return Err(errno.into()),
        };
        at = hole;
        while at < behind {
            let left = usize::try_from(behind - at).unwrap_or(usize::MAX);
            let (zeros, _) = ZEROS.split_at(left.min(ZEROS.len()));
            file.write_all_at(zeros, at)?;
            at = at.saturating_add(u64::try_from(zeros.len()).unwrap_or(u64::MAX));
        }
    }
    Ok(())
}
