//! State of the simulated disk: the visible state, the durable state, and the changes pending
//! between them.
//!
//! Invariants: `durable` plus all of `pending` in order is `live`, for the bytes of a file and for
//! the names, as long as no sync has failed; a failed sync empties `pending` without changing
//! `durable`, as on Linux. Operations are numbered from 0 without gaps; after the cut no operation
//! changes the disk. Concurrency: a [`Disk`] is guarded as a whole by its owner; the lock of a
//! [`Node`] is acquired after the disk's. Failure: every error is a requested fault, or a caller
//! mistake with the error kind of a Unix kernel.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::dice::Dice;
use super::{FaultKind, SECTOR_BYTES};
use crate::memfs;
use crate::tree::Tree;

/// A file, shared by its names and its handles.
pub(super) type NodeRef = Arc<Mutex<Node>>;

/// The bytes of one file.
#[derive(Default, Debug)]
pub(super) struct Node {
    /// Content as reads see it.
    pub(super) live: Vec<u8>,
    /// Content that surely survives a power cut.
    pub(super) durable: Vec<u8>,
    /// Changes since the last sync, oldest first, each with its number among the disk's changes.
    pub(super) pending: Vec<(u64, Change)>,
    /// The text of the lock's owner while the file is locked.
    pub(super) owner: Option<String>,
}

/// An unsynced change of one file.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, data: Box<[u8]> },
    SetLen(u64),
}

impl Change {
    /// Does the change completely.
    pub(super) fn apply(&self, content: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Change::Write { offset, data } => memfs::write(content, *offset, data),
            Change::SetLen(len) => memfs::set_len(content, *len),
        }
    }
}

impl Node {
    /// A file whose bytes are all durable.
    pub(super) fn at_rest(content: Vec<u8>) -> NodeRef {
        Arc::new(Mutex::new(Node {
            live: content.clone(),
            durable: content,
            ..Node::default()
        }))
    }

    pub(super) fn change(&mut self, number: u64, change: Change) -> io::Result<()> {
        change.apply(&mut self.live)?;
        self.pending.push((number, change));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        for (_, change) in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable)?;
        }
        Ok(())
    }
}

/// An unsynced change of one name, with the file it refers to afterwards.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) path: PathBuf,
    pub(super) to: Option<NodeRef>,
}

/// A fault that waits for its operation.
#[derive(Debug)]
struct Armed {
    kind: FaultKind,
    after_ops: u64,
}

/// Fate of an operation: it runs, or the power fails at it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Cut,
}

/// The whole simulated disk.
#[derive(Debug)]
pub(super) struct Disk {
    /// The names that programs see. Directories in it are durable, but for `dir_in_doubt`.
    pub(super) live: Tree<NodeRef>,
    /// The file names that surely survive.
    pub(super) durable: BTreeMap<PathBuf, NodeRef>,
    /// Changes of names since the last sync of their directory, oldest first.
    pub(super) pending: Vec<NameChange>,
    /// The directory whose creation was interrupted.
    pub(super) dir_in_doubt: Option<PathBuf>,
    pub(super) operations: u64,
    /// Changes of content so far.
    changes: u64,
    /// Unit of a write that survives a power cut wholly or not at all; a write is cut at multiples
    /// of it from the start of the file.
    pub(super) unit_bytes: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    /// Description of the operation that the power cut interrupted.
    pub(super) interrupted: Option<String>,
    pub(super) capacity: Option<u64>,
    pub(super) short_reads: bool,
    pub(super) read_only: bool,
    faults: Vec<Armed>,
    dice: Dice,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Disk {
            live: Tree::default(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            dir_in_doubt: None,
            operations: 0,
            changes: 0,
            unit_bytes: SECTOR_BYTES,
            crash_at: None,
            crashed: false,
            interrupted: None,
            capacity: None,
            short_reads: false,
            read_only: false,
            faults: Vec::new(),
            dice: Dice::new(seed),
        }
    }

    pub(super) fn arm(&mut self, kind: FaultKind, after_ops: u64) {
        self.faults.push(Armed { kind, after_ops });
    }

    pub(super) fn disarm(&mut self) -> usize {
        std::mem::take(&mut self.faults).len()
    }

    /// The number of the next change of content.
    pub(super) fn next_change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// `Ok` while there is power.
    pub(super) fn require_power(&self) -> io::Result<()> {
        if self.crashed {
            Err(power_cut())
        } else {
            Ok(())
        }
    }

    pub(super) fn require_writable(&self) -> io::Result<()> {
        if self.read_only {
            Err(Errno::ROFS.into())
        } else {
            Ok(())
        }
    }

    pub(super) fn write(
        &mut self,
        path: &Path,
        node: &NodeRef,
        offset: u64,
        data: &[u8],
    ) -> io::Result<()> {
        self.operation("write", path, |disk, _| {
            disk.require_writable()?;
            memfs::checked_len(memfs::end_of(offset, data)?)?;
            let mut written = data;
            let mut result = Ok(());
            if disk.due(&[FaultKind::WriteError]).is_some() {
                // The caller does not know which prefix of a failed write was stored, so any may
                // have been.
                written = front(data, disk.dice.below(data.len() as u64 + 1));
                result = Err(Errno::IO.into());
            }
            let room = disk.room();
            let number = disk.next_change();
            let mut node = node.lock();
            let end_max = (node.live.len() as u64).saturating_add(room);
            if offset.saturating_add(written.len() as u64) > end_max {
                // A full disk accepts the bytes that fit, as a short write, and refuses the rest.
                written = front(written, end_max.saturating_sub(offset));
                result = Err(Errno::NOSPC.into());
            }
            if !written.is_empty() {
                let data = written.into();
                node.change(number, Change::Write { offset, data })?;
            }
            result
        })
    }

    pub(super) fn set_len(&mut self, path: &Path, node: &NodeRef, len: u64) -> io::Result<()> {
        self.operation("set_len", path, |disk, _| {
            disk.require_writable()?;
            memfs::checked_len(len)?;
            if disk.due(&[FaultKind::WriteError]).is_some() {
                return Err(Errno::IO.into());
            }
            let room = disk.room();
            let number = disk.next_change();
            let mut node = node.lock();
            if len.saturating_sub(node.live.len() as u64) > room {
                return Err(Errno::NOSPC.into());
            }
            node.change(number, Change::SetLen(len))
        })
    }

    pub(super) fn sync_data(&mut self, path: &Path, node: &NodeRef) -> io::Result<()> {
        self.operation("sync_data", path, |disk, power| {
            if power == Power::Cut {
                // Without a promise, the crash decides for each pending change.
                return Ok(());
            }
            let mut node = node.lock();
            match disk.due(&SYNC_ERRORS) {
                None => node.sync(),
                Some(kind) => {
                    node.pending.clear();
                    if kind == FaultKind::SyncErrorReverting {
                        node.live = node.durable.clone();
                    }
                    Err(errno_of(kind).into())
                }
            }
        })
    }

    pub(super) fn read(
        &mut self,
        node: &NodeRef,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        self.require_power()?;
        if self.due(&[FaultKind::ReadError]).is_some() {
            return Err(Errno::IO.into());
        }
        let mut wanted = buf.len();
        if self.short_reads && wanted > 1 {
            let some = self.dice.between(1, wanted as u64);
            wanted = usize::try_from(some).map_or(wanted, |some| some.min(wanted));
        }
        let (buf, _) = buf.split_at_mut(wanted);
        Ok(memfs::read(&node.lock().live, offset, buf))
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<NodeRef> {
        self.operation("create", path, |disk, _| {
            disk.live.require_free(path)?;
            disk.require_writable()?;
            disk.fail_if_due(&CREATE_ERRORS)?;
            Ok(disk.insert_unsynced(path))
        })
    }

    /// A new name that is not durable yet.
    pub(super) fn insert_unsynced(&mut self, path: &Path) -> NodeRef {
        let node = NodeRef::default();
        self.live.files.insert(path.to_owned(), Arc::clone(&node));
        self.pending.push(NameChange {
            path: path.to_owned(),
            to: Some(Arc::clone(&node)),
        });
        node
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.operation("remove", path, |disk, _| {
            disk.live.find(path)?;
            disk.require_writable()?;
            disk.fail_if_due(&[FaultKind::RemoveError])?;
            disk.live.files.remove(path);
            disk.pending.push(NameChange {
                path: path.to_owned(),
                to: None,
            });
            Ok(())
        })
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.operation("sync_dir", dir, |disk, power| {
            disk.live.require_dir(dir)?;
            if power == Power::Cut {
                return Ok(());
            }
            let all = std::mem::take(&mut disk.pending);
            let (here, elsewhere): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|change| change.path.parent() == Some(dir));
            disk.pending = elsewhere;
            disk.fail_if_due(&SYNC_ERRORS)?;
            for NameChange { path, to } in here {
                match to {
                    Some(node) => disk.durable.insert(path, node),
                    None => disk.durable.remove(&path),
                };
            }
            Ok(())
        })
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        self.require_power()?;
        for missing in self.live.missing_dirs(dir)? {
            self.operation("create_dir", &missing, |disk, power| {
                disk.require_writable()?;
                disk.fail_if_due(&CREATE_ERRORS)?;
                match power {
                    Power::On => disk.live.dirs.insert(missing.clone()),
                    Power::Cut => disk.dir_in_doubt.replace(missing.clone()).is_none(),
                };
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Counts an operation and executes it. For the operation at which the power is cut, the
    /// changes are only possible, since none is made durable then, and the caller receives the
    /// power cut only.
    fn operation<T>(
        &mut self,
        what: &str,
        path: &Path,
        body: impl FnOnce(&mut Disk, Power) -> io::Result<T>,
    ) -> io::Result<T> {
        self.require_power()?;
        let number = self.operations;
        self.operations += 1;
        if self.crash_at.is_none_or(|at| number < at) {
            return body(self, Power::On);
        }
        let unheard = body(self, Power::Cut);
        drop(unheard);
        self.crashed = true;
        self.interrupted = Some(format!("{what} {}", path.display()));
        Err(power_cut())
    }

    /// The fault to happen at this operation, if one of `kinds` is due.
    fn due(&mut self, kinds: &[FaultKind]) -> Option<FaultKind> {
        let mut fired = None;
        let mut waiting = Vec::with_capacity(self.faults.len());
        for mut armed in self.faults.drain(..) {
            if !kinds.contains(&armed.kind) {
                waiting.push(armed);
            } else if armed.after_ops > 0 {
                armed.after_ops -= 1;
                waiting.push(armed);
            } else if fired.is_none() {
                fired = Some(armed.kind);
            } else {
                // Two faults for the same operation: the second one hits the next operation.
                waiting.push(armed);
            }
        }
        self.faults = waiting;
        fired
    }

    /// Fails if a fault of one of these kinds is due, as the kind does.
    pub(super) fn fail_if_due(&mut self, kinds: &[FaultKind]) -> io::Result<()> {
        match self.due(kinds) {
            Some(kind) => Err(errno_of(kind).into()),
            None => Ok(()),
        }
    }

    /// Bytes by which all files together may still grow.
    fn room(&self) -> u64 {
        let Some(capacity) = self.capacity else {
            return u64::MAX;
        };
        let used: u64 = self
            .live
            .files
            .values()
            .map(|node| node.lock().live.len() as u64)
            .sum();
        capacity.saturating_sub(used)
    }
}

/// The kinds that a sync can meet.
const SYNC_ERRORS: [FaultKind; 3] = [
    FaultKind::SyncError,
    FaultKind::SyncErrorReverting,
    FaultKind::SyncFull,
];

/// The kinds that making a name can meet.
const CREATE_ERRORS: [FaultKind; 2] = [FaultKind::CreateError, FaultKind::CreateFull];

fn errno_of(kind: FaultKind) -> Errno {
    match kind {
        FaultKind::CreateFull | FaultKind::SyncFull => Errno::NOSPC,
        _ => Errno::IO,
    }
}

/// The answer of every call once the power is cut.
pub(super) fn power_cut() -> io::Error {
    io::Error::other("simulated power cut")
}

/// The first `len` bytes, or all.
fn front(data: &[u8], len: u64) -> &[u8] {
    usize::try_from(len)
        .ok()
        .and_then(|len| data.get(..len))
        .unwrap_or(data)
}
