//! Memory-mapped regions of files, for writing.
//!
//! Invariants: stores go only below the length of the file, to pages that were written in the file
//! and populated without an error; so no store hits a hole, a full file system or an unavailable
//! page, as long as no other process truncates the file. Regions are never read. Concurrency:
//! several threads may store to a region; the code that truncates the file excludes concurrent
//! stores. Failure: files that cannot be mapped safely are reported as such, and are written by
//! calls.

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

/// Bytes of a region: one large page.
pub(super) const REGION_BYTES: u64 = 2 << 20;
/// Zeros with which holes are written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Magic number of the file system whose pages are memory.
const TMPFS_MAGIC: i128 = 0x0102_1994;

/// Memory-mapped region of a file.
#[derive(Debug)]
pub(super) struct MappedRegion {
    at: NonNull<u8>,
    /// Bytes from the start of the region that may be stored to.
    populated: usize,
}

// SAFETY: the region is addresses of a mapping, which belongs to the process and not to a thread;
// it is only stored to, by instructions that any thread may use.
unsafe impl Send for MappedRegion {}
// SAFETY: as above; two stores to the same bytes leave either, as `File` says of writes.
unsafe impl Sync for MappedRegion {}

impl MappedRegion {
    /// Maps the region that starts at `start`, of a file with the guarantee `standing`; no store is
    /// allowed before it is populated.
    pub(super) fn map(file: &fs::File, start: u64, standing: Standing) -> io::Result<MappedRegion> {
        let flags = match standing {
            Standing::Persistent => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            Standing::Memory | Standing::Calls => libc::MAP_SHARED,
        };
        let start = libc::off_t::try_from(start).map_err(io::Error::other)?;
        // SAFETY: a new mapping, at addresses that the kernel chooses, touches nothing that exists.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                region_len(),
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
            Some(at) => Ok(MappedRegion { at, populated: 0 }),
            None => Err(io::Error::other("a mapping at address 0")),
        }
    }

    /// Bytes from the start of the region that may be stored to.
    pub(super) fn populated(&self) -> usize {
        self.populated
    }

    /// Prepares the first `len` bytes of the region, which must be inside the file, for stores:
    /// writes its holes, then touches its pages.
    pub(super) fn populate(&mut self, file: &fs::File, start: u64, len: usize) -> io::Result<()> {
        if len <= self.populated {
            return Ok(());
        }
        let end = start.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        fill_holes(file, start, end)?;
        // SAFETY: the pages are those of this mapping; the kernel touches them and says what a
        // store would meet, without a signal.
        let touched = unsafe {
            libc::madvise(
                self.at.as_ptr().cast(),
                len.min(region_len()),
                libc::MADV_POPULATE_WRITE,
            )
        };
        if touched != 0 {
            return Err(io::Error::last_os_error());
        }
        self.populated = len.min(region_len());
        Ok(())
    }

    /// Prepares for a truncation of the file to `len`: bytes after it are not stored to any more.
    pub(super) fn truncate(&mut self, len: usize) {
        self.populated = self.populated.min(len);
    }

    /// Stores bytes and sends them on their way to memory; a fence is to follow.
    pub(super) fn write(&self, lines: &dyn Lines, at: usize, data: &[u8]) {
        let end = at.saturating_add(data.len());
        assert!(
            end <= self.populated,
            "a store to {end} of {} bytes",
            self.populated
        );
        // SAFETY: the bytes are in the mapping, in the populated part, see above; there
        // is no reference to any of them.
        unsafe { lines::write(lines, self.at.as_ptr().add(at), data) }
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this region, and nobody else has its address.
        let gone = unsafe { libc::munmap(self.at.as_ptr().cast(), region_len()) };
        debug_assert_eq!(gone, 0, "a mapping can be taken away");
    }
}

/// Guarantee of stores to mappings of this file.
pub(super) fn standing_of(file: &fs::File) -> io::Result<Standing> {
    match MappedRegion::map(file, 0, Standing::Persistent) {
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

fn region_len() -> usize {
    usize::try_from(REGION_BYTES).unwrap_or(usize::MAX)
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
