//! A file system in memory that models a disk faithfully: unsynced changes may be lost, and the
//! power can fail.
//!
//! Purpose: the crash tests of the product. A first run counts the operations; later runs cut the
//! power at each of them, generate possible states of the disk ([`FaultyFiles::after_crash`]),
//! reopen, and check the guarantees.
//!
//! # The model
//! - **Content.** Each file has durable bytes and a list of changes (writes, changes of length)
//!   since the last `sync_data`. Reads see the newest state. `sync_data` makes bytes and length
//!   durable, never the name.
//! - **Names.** Creations and removals are durable only after `sync_dir` of their directory.
//!   Directories are durable when `create_dir_all` returns; that makes no file name durable.
//! - **Operations.** `write_all_at`, `set_len`, `sync_data`, creating and removing a file,
//!   `sync_dir`, and each new directory of `create_dir_all` are operations, numbered from 0 in the
//!   order of the calls, failed calls included. Opening, reading, listing and locking are not.
//! - **Power cut.** The configured operation ([`FaultyFiles::crash_at`]) and every later call fail
//!   with [`io::ErrorKind::Other`], "simulated power cut". The changes of the interrupted operation
//!   may survive fully, partly or not at all.
//! - **After it**, for each file independently: any subset of its unsynced changes, writes split at
//!   sectors of [`SECTOR_BYTES`], one sector perhaps torn; any length between the old and the new
//!   one, grown parts without data reading as zeros; and for each name any of the states since the
//!   last `sync_dir`. A removed file that reappears has its durable bytes and any subset of its
//!   unsynced changes.
//!
//! # Persistent memory
//! After [`FaultyFiles::persistent_memory`] the unit is a word of 8 bytes, which the processor
//! stores atomically: between two syncs (a flush of the stored lines, and a fence) words reach
//! memory in any order, also within a line. No word is torn. Words covered by one checksum may be
//! treated as one unit, so that all states of a few lines can be tested
//! ([`FaultyFiles::survivals`]): no unit, all units, each prefix, all but one unit, one unit alone.
//!
//! # Assumptions of the model
//! Synced bytes are unchanged by writes to other bytes, even within one sector; a sync that
//! returned `Ok` was carried out; no bytes decay, except through [`FaultyFiles::flip_bit`] and
//! [`FaultyFiles::truncate_file`].
//!
//! Invariants: the same seed and the same sequence of calls have the same results, crashes
//! included. Concurrency: one lock over the whole disk; with several threads the sequence is the
//! order of their calls. Failure: only faults requested through this type, and caller mistakes.
//! Tests: `tests/it/crash.rs`, `tests/it/faults.rs`.

mod crash;
mod dice;
mod disk;
mod units;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use self::disk::{Change, Disk, Node, NodeRef};
use crate::files::{File, Files, OpenMode};
use crate::lock::{Lock, LockError};
use crate::memfs;

/// The unit in which unsynced writes survive a power cut.
pub const SECTOR_BYTES: u64 = 512;

/// Bytes that a processor stores to persistent memory wholly or not at all.
pub const WORD_BYTES: u64 = 8;

/// Selects the unsynced changes that survive a power cut. Units are numbered from 0, in the order
/// in which they were written; a change of a length is one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survival {
    /// No unsynced changes.
    Nothing,
    /// All of it.
    Everything,
    /// This many of the oldest units, and every name.
    Front(usize),
    /// Every unit but this one, and every name.
    Without(usize),
    /// This unit alone, and every name.
    Alone(usize),
    /// A part of the changes, for each file independently, as in [`FaultyFiles::after_crash`].
    Seed(u64),
}

/// Errors of the medium that [`FaultyFiles::fail_next`] can cause; `EIO` unless stated otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// A `write_all_at` or `set_len` fails. Any prefix of the data may have been written; a length
    /// is unchanged.
    WriteError,
    /// A `sync_data` or `sync_dir` fails, as on Linux with ext4 or XFS: all unsynced changes are
    /// marked clean without having been written. Reads still return them, the next sync returns
    /// `Ok`, and a power cut loses them.
    SyncError,
    /// As `SyncError`, but `sync_data` also throws the unsynced bytes away at once, as on btrfs:
    /// reads see the durable state again. (For `sync_dir` the same as `SyncError`.)
    SyncErrorReverting,
    /// A `sync_data` or `sync_dir` fails with `ENOSPC`, as on file systems that allocate space when
    /// data are written back; unsynced changes are lost as in `SyncError`.
    SyncFull,
    /// A `read_at` fails.
    ReadError,
    /// A file or directory cannot be created, and does not exist then.
    CreateError,
    /// As `CreateError`, with `ENOSPC`: no space for a name.
    CreateFull,
    /// A `remove` fails: the name is not removed.
    RemoveError,
    /// An existing file cannot be opened, or looked for.
    OpenError,
    /// A `list` fails.
    ListError,
    /// A `len` fails.
    LenError,
}

/// A simulated disk; clones share it.
///
/// ```
/// use std::path::Path;
/// use headwater_io::{FaultyFiles, Files, OpenMode};
///
/// let disk = FaultyFiles::new(7);
/// disk.create_dir_all(Path::new("/db")).unwrap();
/// let file = disk.open(Path::new("/db/a"), OpenMode::CreateNew).unwrap();
/// file.write_all_at(0, b"kept").unwrap();
/// file.sync_data().unwrap();
/// disk.sync_dir(Path::new("/db")).unwrap();
/// file.write_all_at(4, b" lost").unwrap();
/// disk.crash_now();
/// assert!(file.len().is_err());
/// // Seed 0: nothing that was not synced survives. Seed 1: all of it does.
/// assert_eq!(disk.after_crash(0).read_file("/db/a").unwrap(), b"kept");
/// assert_eq!(disk.after_crash(1).read_file("/db/a").unwrap(), b"kept lost");
/// ```
#[derive(Clone)]
pub struct FaultyFiles {
    disk: Arc<Mutex<Disk>>,
}

impl fmt::Debug for FaultyFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.disk.lock();
        f.debug_struct("FaultyFiles")
            .field("files", &disk.live.files.len())
            .field("operations", &disk.operations)
            .field("crashed", &disk.crashed)
            .field("interrupted", &disk.interrupted)
            .finish()
    }
}

impl FaultyFiles {
    /// An empty disk. The seed determines short reads and the stored prefix of failed writes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        FaultyFiles::from(Disk::new(seed))
    }

    fn from(disk: Disk) -> Self {
        FaultyFiles {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    /// Number of operations started so far; also the number of the next one, since they are
    /// numbered from 0. A crash sweep is `for n in 0..operations`.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.disk.lock().operations
    }

    /// Cuts the power at the operation with this number, or at the next one if that is past
    /// already.
    pub fn crash_at(&self, op_number: u64) {
        self.disk.lock().crash_at = Some(op_number);
    }

    /// Cuts the power now, between two operations.
    pub fn crash_now(&self) {
        self.disk.lock().crashed = true;
    }

    /// True when the power was cut.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.disk.lock().crashed
    }

    /// The operation that the power cut interrupted, as text, such as `write /db/log/1.log`.
    #[must_use]
    pub fn interrupted(&self) -> Option<String> {
        self.disk.lock().interrupted.clone()
    }

    /// A new disk in a possible state after the power returns; `self` is unchanged, so that other
    /// seeds can be tried.
    ///
    /// Seed 0 returns the disk without any unsynced change, seed 1 the one with all of them, any
    /// other seed a mixture. Locks, faults, limits and numbers of the old disk are dropped. Before
    /// a power cut the result is a state after a cut at this moment.
    #[must_use]
    pub fn after_crash(&self, seed: u64) -> FaultyFiles {
        self.after_crash_with(Survival::Seed(seed))
    }

    /// A new disk on which the selected unsynced changes have survived; see
    /// [`FaultyFiles::after_crash`].
    #[must_use]
    pub fn after_crash_with(&self, survival: Survival) -> FaultyFiles {
        FaultyFiles::from(crash::after_crash(&self.disk.lock(), survival))
    }

    /// Number of unsynced units, over all files that have a name or had one at the last sync.
    #[must_use]
    pub fn unsynced_units(&self) -> usize {
        crash::units(&self.disk.lock()).count()
    }

    /// Every non-random way to survive: three for each unit, and one. For few units, since each is
    /// a disk of its own.
    #[must_use]
    pub fn survivals(&self) -> Vec<Survival> {
        let count = self.unsynced_units();
        let mut all = vec![Survival::Nothing, Survival::Everything];
        all.extend((1..count).map(Survival::Front));
        all.extend((0..count).map(Survival::Without));
        all.extend((0..count).map(Survival::Alone));
        all
    }

    /// Makes this persistent memory, written in units of `unit_bytes`: [`WORD_BYTES`], or a
    /// multiple of it if a checksum covers all words of a unit.
    ///
    /// ```
    /// use headwater_io::{FaultyFiles, Files, OpenMode, Survival, WORD_BYTES};
    /// let memory = FaultyFiles::new(0);
    /// memory.persistent_memory(WORD_BYTES);
    /// memory.write_file("/log", [0; 64]).unwrap();
    /// let log = memory.open("/log".as_ref(), OpenMode::Write).unwrap();
    /// log.write_all_at(0, &[1; 24]).unwrap();
    /// memory.crash_now();
    /// let found = memory.after_crash_with(Survival::Without(1)).read_file("/log").unwrap();
    /// assert_eq!(found[..24], [[1; 8], [0; 8], [1; 8]].concat());
    /// ```
    ///
    /// # Panics
    /// For other units.
    pub fn persistent_memory(&self, unit_bytes: u64) {
        assert!(
            unit_bytes > 0 && unit_bytes.is_multiple_of(WORD_BYTES),
            "a unit of {unit_bytes} bytes is not of whole words of {WORD_BYTES}"
        );
        self.disk.lock().unit_bytes = unit_bytes;
    }

    /// Makes one operation fail: after `after_ops` further operations to which `kind` applies.
    /// Calls add up.
    pub fn fail_next(&self, kind: FaultKind, after_ops: u64) {
        self.disk.lock().arm(kind, after_ops);
    }

    /// Removes the faults that have not occurred yet. Returns their number.
    pub fn heal(&self) -> usize {
        self.disk.lock().disarm()
    }

    /// Limits the total length of all files to `bytes`: writes store the bytes that fit and then
    /// fail with [`io::ErrorKind::StorageFull`], and so does growing with `set_len`. `u64::MAX`
    /// removes the limit.
    pub fn capacity(&self, bytes: u64) {
        self.disk.lock().capacity = (bytes < u64::MAX).then_some(bytes);
    }

    /// From now on `read_at` often returns fewer bytes than requested, but at least one before the
    /// end.
    pub fn short_reads(&self) {
        self.disk.lock().short_reads = true;
    }

    /// From now on every change of a file or a name, locks included, fails with
    /// [`io::ErrorKind::ReadOnlyFilesystem`].
    pub fn read_only(&self) {
        self.disk.lock().read_only = true;
    }

    /// Turns over one bit (0 to 7) of a file, durably, as decay of the medium does.
    ///
    /// # Errors
    /// When the file or the byte does not exist, or for a bit above 7.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u8) -> io::Result<()> {
        let mask = 1_u8
            .checked_shl(u32::from(bit))
            .ok_or(io::ErrorKind::InvalidInput)?;
        let node = self.node(path.as_ref())?;
        let mut node = node.lock();
        let index = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        *node
            .live
            .get_mut(index)
            .ok_or(io::ErrorKind::InvalidInput)? ^= mask;
        if let Some(byte) = node.durable.get_mut(index) {
            *byte ^= mask;
        }
        Ok(())
    }

    /// Replaces bytes, durably and without changing the length, as decay of the medium does: by
    /// zeros, or any bytes. Bytes after the end of the file are ignored.
    ///
    /// # Errors
    /// When the file does not exist.
    pub fn decay(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let node = self.node(path.as_ref())?;
        let mut node = node.lock();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let Node { live, durable, .. } = &mut *node;
        for content in [live, durable] {
            let held = content.get_mut(start..).unwrap_or_default();
            held.iter_mut()
                .zip(bytes)
                .for_each(|(old, new)| *old = *new);
        }
        Ok(())
    }

    /// Removes the name of a file, durably, as a damaged file system or a user mistake does. Does
    /// not count as an operation.
    ///
    /// # Errors
    /// When the file does not exist.
    pub fn vanish(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = memfs::normal(path.as_ref());
        let mut disk = self.disk.lock();
        disk.live.find(&path)?;
        disk.live.files.remove(&path);
        disk.durable.remove(&path);
        disk.pending.retain(|change| change.path != path);
        Ok(())
    }

    /// Cuts a file to `len` bytes, durably, as a damaged file system does. Shorter files are
    /// unchanged. Intended for files without unsynced changes: pending changes remain and may grow
    /// the file again.
    ///
    /// # Errors
    /// When the file does not exist.
    pub fn truncate_file(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        let node = self.node(path.as_ref())?;
        let mut node = node.lock();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        node.live.truncate(len);
        node.durable.truncate(len);
        Ok(())
    }

    /// The bytes of a file as programs see them, also when the power is cut.
    ///
    /// # Errors
    /// When the file does not exist.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        Ok(self.node(path.as_ref())?.lock().live.clone())
    }

    /// Makes `bytes` the durable content of the file at `path`, creating it and its directories
    /// durably if missing. Does not count as an operation.
    ///
    /// # Errors
    /// When a directory is at `path`, or a file is where a directory is needed.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let path = memfs::normal(path.as_ref());
        let bytes = bytes.as_ref();
        let mut disk = self.disk.lock();
        if disk.live.is_dir(&path) {
            return Err(Errno::ISDIR.into());
        }
        if let Some(parent) = path.parent() {
            for dir in disk.live.missing_dirs(parent)? {
                disk.live.dirs.insert(dir);
            }
        }
        let node = match disk.live.files.get(&path) {
            Some(node) => {
                let mut content = node.lock();
                content.live = bytes.to_vec();
                content.durable = bytes.to_vec();
                content.pending.clear();
                Arc::clone(node)
            }
            None => Node::at_rest(bytes.to_vec()),
        };
        disk.pending.retain(|change| change.path != path);
        disk.live.files.insert(path.clone(), Arc::clone(&node));
        disk.durable.insert(path, node);
        Ok(())
    }

    /// All files that programs see, with their lengths, sorted by path; also when the power is cut.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let disk = self.disk.lock();
        disk.live
            .files
            .iter()
            .map(|(path, node)| (path.clone(), node.lock().live.len() as u64))
            .collect()
    }

    fn lock_of(&self, path: PathBuf, node: NodeRef) -> FaultyLock {
        FaultyLock {
            disk: Arc::clone(&self.disk),
            path,
            node,
        }
    }

    fn node(&self, path: &Path) -> io::Result<NodeRef> {
        self.disk
            .lock()
            .live
            .find(&memfs::normal(path))
            .map(Arc::clone)
    }
}

impl Files for FaultyFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let path = memfs::normal(path);
        let mut disk = self.disk.lock();
        let node = match mode {
            OpenMode::CreateNew => disk.create(&path)?,
            OpenMode::Read | OpenMode::Write => {
                disk.require_power()?;
                disk.fail_if_due(&[FaultKind::OpenError])?;
                let node = Arc::clone(disk.live.find(&path)?);
                if mode == OpenMode::Write {
                    disk.require_writable()?;
                }
                node
            }
        };
        drop(disk);
        Ok(Arc::new(FaultyFile {
            disk: Arc::clone(&self.disk),
            path,
            node,
            writable: mode != OpenMode::Read,
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().remove(&memfs::normal(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = memfs::normal(dir);
        let mut disk = self.disk.lock();
        disk.require_power()?;
        disk.fail_if_due(&[FaultKind::ListError])?;
        disk.live.require_dir(&dir)?;
        Ok(disk.live.names_in(&dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.lock().create_dir_all(&memfs::normal(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.lock().sync_dir(&memfs::normal(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut disk = self.disk.lock();
        disk.require_power()?;
        disk.fail_if_due(&[FaultKind::OpenError])?;
        Ok(disk.live.contains(&memfs::normal(path)))
    }

    fn lock(&self, path: &Path, owner_text: &str) -> Result<Box<dyn Lock>, LockError> {
        let path = memfs::normal(path);
        let mut disk = self.disk.lock();
        disk.require_power()?;
        disk.require_writable()?;
        let node = match disk.live.find(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk.live.require_free(&path)?;
                disk.insert_unsynced(&path)
            }
            other => Arc::clone(other?),
        };
        let (cut, written) = (disk.next_change(), disk.next_change());
        let mut content = node.lock();
        own(&mut content, owner_text)?;
        content.change(cut, Change::SetLen(0))?;
        let data = owner_text.as_bytes().into();
        content.change(written, Change::Write { offset: 0, data })?;
        drop(content);
        Ok(Box::new(self.lock_of(path, node)))
    }

    fn lock_file(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        let path = memfs::normal(path);
        let disk = self.disk.lock();
        disk.require_power()?;
        let node = Arc::clone(disk.live.find(&path)?);
        disk.require_writable()?;
        own(&mut node.lock(), "")?;
        Ok(Box::new(self.lock_of(path, node)))
    }
}

/// Sets the owner of a file's lock.
fn own(node: &mut Node, owner_text: &str) -> Result<(), LockError> {
    if let Some(owner) = &node.owner {
        return Err(LockError::HeldHere {
            owner_text: owner.clone(),
        });
    }
    node.owner = Some(owner_text.to_owned());
    Ok(())
}

struct FaultyFile {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    node: NodeRef,
    writable: bool,
}

impl FaultyFile {
    fn require_writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(Errno::BADF.into())
        }
    }
}

impl fmt::Debug for FaultyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyFile")
            .field("path", &self.path)
            .field("writable", &self.writable)
            .finish()
    }
}

impl File for FaultyFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.disk.lock().read(&self.node, offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.require_writable()?;
        self.disk.lock().write(&self.path, &self.node, offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.lock().sync_data(&self.path, &self.node)
    }

    fn len(&self) -> io::Result<u64> {
        let mut disk = self.disk.lock();
        disk.require_power()?;
        disk.fail_if_due(&[FaultKind::LenError])?;
        drop(disk);
        Ok(self.node.lock().live.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.require_writable()?;
        self.disk.lock().set_len(&self.path, &self.node, len)
    }
}

struct FaultyLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    node: NodeRef,
}

impl fmt::Debug for FaultyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyLock")
            .field("path", &self.path)
            .finish()
    }
}

impl Lock for FaultyLock {
    fn is_current(&self) -> io::Result<bool> {
        let disk = self.disk.lock();
        disk.require_power()?;
        Ok(disk
            .live
            .files
            .get(&self.path)
            .is_some_and(|named| Arc::ptr_eq(named, &self.node)))
    }
}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        self.node.lock().owner = None;
    }
}
