//! Files on persistent memory: writes go through a mapping, past the caches, without a call of the
//! system.
//!
//! Purpose: a log on a DAX file system is durable after a few stores and a fence. Without such
//! memory the same back end works and reports that it is emulated ([`Standing`]). Invariants: a
//! write that returned was flushed and fenced, or is noted for the next sync; a sync calls the
//! system only if there were writes by calls since the last one. All reads are calls, so a page
//! that cannot be read is an error, and never a signal to the process. Concurrency: all handles of
//! a file in this process share its regions (`node`), whichever [`PmemFiles`] opened them. Writes
//! run in parallel; cutting a file waits for them. Failure: a file that cannot be mapped safely is
//! written by calls, and so are bytes after the end of a file: only bytes written before are
//! mapped. No program can guard against another process that cuts a file while it is written: a
//! signal stops it, as with every mapping.

mod lines;
#[cfg(target_os = "linux")]
mod mapping;
mod node;
#[cfg(not(target_os = "linux"))]
mod unmapped;

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use self::lines::Lines;
#[cfg(target_os = "linux")]
use self::mapping as regions;
use self::node::Node;
#[cfg(not(target_os = "linux"))]
use self::unmapped as regions;
use crate::files::{File, Files, OpenMode};
use crate::system::{SystemFile, SystemFiles};

/// Guarantee of writes to files of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Standing {
    /// Persistent memory: a DAX file system accepted a mapping that guarantees to preserve flushed
    /// bytes.
    Persistent,
    /// A file system in memory (tmpfs): written as persistent memory is, and lost with the machine.
    Memory,
    /// Any other: written and synced by calls of the system, as durable as these are.
    Calls,
}

impl Standing {
    /// True for all guarantees except persistent memory, for displays.
    #[must_use]
    pub fn is_emulated(self) -> bool {
        self != Standing::Persistent
    }
}

/// Files on persistent memory, or on an emulation of it.
///
/// ```
/// use headwater_io::{Files, OpenMode, PmemFiles};
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// let files = PmemFiles::new();
/// println!("emulated: {}", files.standing(dir)?.is_emulated());
/// let file = files.open(&dir.join("file"), OpenMode::CreateNew)?;
/// file.write_and_sync(0, b"abc")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PmemFiles {
    system: SystemFiles,
    medium: Medium,
}

/// Instructions and assumptions for writing files.
#[derive(Clone, Debug)]
struct Medium {
    /// Instructions for flushes; `None` = writes by calls only, since this machine has no such
    /// instructions.
    lines: Option<Arc<dyn Lines>>,
    /// Guarantee assumed of every file; `None` = each file is probed.
    assumed: Option<Standing>,
}

impl Default for PmemFiles {
    fn default() -> Self {
        PmemFiles::new()
    }
}

impl PmemFiles {
    /// Files with the best instructions that this processor has.
    #[must_use]
    pub fn new() -> PmemFiles {
        PmemFiles::of(Medium {
            lines: lines::of_this_processor(),
            assumed: None,
        })
    }

    fn of(medium: Medium) -> PmemFiles {
        PmemFiles {
            system: SystemFiles::new(),
            medium,
        }
    }

    /// Probes the guarantee of writes to new files in a directory. The probe is an unnamed file,
    /// which is removed afterwards.
    ///
    /// # Errors
    /// If no file can be created there.
    pub fn standing(&self, dir: &Path) -> io::Result<Standing> {
        if self.medium.lines.is_none() {
            return Ok(Standing::Calls);
        }
        match self.medium.assumed {
            Some(assumed) => Ok(assumed),
            None => regions::standing_in(dir),
        }
    }
}

#[derive(Debug)]
struct PmemFile {
    /// Dropped before the file is closed: as long as there is a node, its file's number is not
    /// reused.
    node: Arc<Node>,
    file: SystemFile,
    writable: bool,
}

impl PmemFile {
    fn require_writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(Errno::BADF.into())
        }
    }
}

impl File for PmemFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.require_writable()?;
        self.node.write(&self.file, offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.node.sync(&self.file)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.require_writable()?;
        self.node.set_len(&self.file, len)
    }
}

impl Files for PmemFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = SystemFile::open(path, mode)?;
        Ok(Arc::new(PmemFile {
            node: Node::of(&file, &self.medium)?,
            file,
            writable: mode != OpenMode::Read,
        }))
    }

    crate::pass_on_files!(
        system; remove list create_dir_all sync_dir exists is_same_dir lock lock_file
    );
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
