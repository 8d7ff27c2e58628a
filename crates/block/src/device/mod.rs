//! The device: a directory with a superblock and a file for each set, and commands over all of it.
//!
//! Invariants: a lock ensures that one process opens a device. A command is answered exactly once,
//! when all affected sets are done; a flush affects every set, so it covers all commands answered
//! before it was submitted, to any client. Concurrency: commands are submitted from any thread; a
//! set carries out one at a time. Of commands that overlap in time and place either may be last,
//! block by block. Failure: opening fails with a [`BlockError`]; commands with the error of the
//! medium, and after a failed sync the affected sets refuse writes.

mod command;
mod joint;
mod making;

pub use command::{Answer, Command, Extent};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_io::queue::{Order, SetOptions, Sets};
use headwater_io::{Completion, Env, Lock, LockError};
use parking_lot::Mutex;

use self::joint::{Answered, CommandPart, Joint};
use self::making::{checked, make, read_superblock, set_path, superblock_path};
use crate::error::{BlockError, BlockErrorKind};
use crate::format::Superblock;
use crate::numbers::index;
use crate::store::{SetLayout, SetStore};

/// Options for opening a device, and for creating a missing one.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Directory of its files.
    pub dir: PathBuf,
    /// Size of the device in bytes, a multiple of 4096. Required for creation; otherwise it must
    /// match or be absent.
    pub size: Option<u64>,
    /// Number of sets, 1 to 64; `None` = as created, 4 for a new one.
    pub sets: Option<u32>,
    /// Contiguous bytes in a set; for a new device only. A multiple of 4096.
    pub stripe_bytes: u32,
    /// Most blocks that become durable together, 4 to 480; for a new device only.
    pub redo_blocks: u32,
    /// Order in which waiting requests of a set are started.
    pub order: Order,
    /// Most other requests that may pass a waiting one.
    pub passes_max: u64,
}

impl DeviceOptions {
    /// The device in a directory, as it was made.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> DeviceOptions {
        let of_sets = SetOptions::default();
        DeviceOptions {
            dir: dir.into(),
            size: None,
            sets: None,
            stripe_bytes: 256 << 10,
            redo_blocks: 256,
            order: of_sets.order,
            passes_max: of_sets.passes_max,
        }
    }
}

/// An open device.
#[derive(Debug)]
pub struct Device {
    superblock: Superblock,
    stores: Vec<Arc<Mutex<SetStore>>>,
    sets: Sets<CommandPart>,
    dir: PathBuf,
    _locks: [Box<dyn Lock>; 2],
}

impl Device {
    /// Opens the device in a directory, or creates it.
    ///
    /// # Errors
    /// Kind `invalid` if the options are invalid or do not match the existing device; `locked`,
    /// `corrupt`, `full` and `io` as named.
    pub fn open(env: &Env, options: &DeviceOptions) -> Result<Device, BlockError> {
        let (files, dir) = (&*env.files, options.dir.as_path());
        let made = files.create_dir_all(dir);
        made.map_err(|error| BlockError::io("make", dir, error))?;
        let lock_path = dir.join("block.lock");
        let lock = files.lock(&lock_path, &format!("pid {}", std::process::id()));
        let lock = lock.map_err(|error| not_locked(dir, &lock_path, error))?;
        let superblock = match read_superblock(files, dir)? {
            Some(found) => checked(found, options)?,
            None => make(env, options)?,
        };
        // A lock of a file that is unlikely to be removed by mistake, besides the one that names
        // its owner.
        let second = files.lock_file(&superblock_path(dir));
        let second = second.map_err(|error| not_locked(dir, &lock_path, error))?;
        let layout = superblock.layout;
        let mut stores = Vec::new();
        for set in 0..layout.sets {
            let layout = SetLayout::of(&superblock, set);
            let store = SetStore::open(files, &set_path(dir, set), layout)?;
            stores.push(Arc::new(Mutex::new(store)));
        }
        let set_options = SetOptions {
            sets: stores.len(),
            order: options.order,
            passes_max: options.passes_max,
            ..SetOptions::default()
        };
        let sets = Sets::start(&set_options, &*env.threads);
        Ok(Device {
            superblock,
            stores,
            sets: sets.map_err(|error| BlockError::io("start threads for", dir, error))?,
            dir: dir.to_owned(),
            _locks: [lock, second],
        })
    }

    /// Size of the device in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.superblock.layout.size
    }

    /// Number of sets.
    #[must_use]
    pub fn sets(&self) -> u32 {
        self.superblock.layout.sets
    }

    /// Drawn when it was made: no two devices have the same, but for copies.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.superblock.identity
    }

    /// Starts a command of a client, identified by number. `answered` is called once, perhaps
    /// before this returns. May wait for space in a set.
    pub fn submit(&self, client: u64, command: Command, answered: Answered) {
        let (offset, length) = command.range();
        let layout = self.superblock.layout;
        if !layout.contains(offset, length) {
            return answered(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "bytes {offset} to {} are out of range: the device ends at {}",
                    offset.saturating_add(length),
                    layout.size
                ),
            )));
        }
        let touched = match &command {
            Command::Flush => self.unclean(),
            _ => layout.sets_of(offset, length),
        };
        let request = command.request(client, touched.len());
        let joint = Arc::new(Joint::new(layout, command, touched.len(), answered));
        if touched.is_empty() {
            joint.answer();
        }
        for set in touched {
            if let Some(store) = self.stores.get(index(u64::from(set))) {
                let part = CommandPart {
                    store: Arc::clone(store),
                    set,
                    joint: Some(Arc::clone(&joint)),
                };
                self.sets.submit_to(index(u64::from(set)), &request, part);
            }
        }
    }

    /// Carries a command out.
    ///
    /// # Errors
    /// Errors of the medium; kind `InvalidInput` for a range beyond the end.
    pub fn call(&self, command: Command) -> io::Result<Answer> {
        let (answer, completer) = Completion::pending();
        self.submit(0, command, Box::new(|told| completer.complete(told)));
        answer.wait()
    }

    /// Sets that may have writes that are not durable, including sets in use.
    fn unclean(&self) -> Vec<u32> {
        let sets = (0..).zip(&self.stores);
        sets.filter(|(_, store)| store.try_lock().is_none_or(|store| !store.is_clean()))
            .map(|(set, _)| set)
            .collect()
    }

    /// Closes the device: carries out all submitted commands, and makes them durable.
    ///
    /// # Errors
    /// When that fails for a set; the others are ended all the same.
    pub fn close(&self) -> Result<(), BlockError> {
        let ended_well = self.sets.shut_down();
        let mut first = None;
        for (set, store) in (0..).zip(&self.stores) {
            if let Err(error) = store.lock().close() {
                let path = set_path(&self.dir, set);
                first = first.or(Some(BlockError::io("flush", &path, error)));
            }
        }
        match first {
            Some(error) => Err(error),
            None if !ended_well => Err(BlockError::new(
                BlockErrorKind::Io,
                format!("a thread of {} panicked", self.dir.display()),
            )),
            None => Ok(()),
        }
    }
}

fn not_locked(dir: &Path, path: &Path, error: LockError) -> BlockError {
    match error {
        LockError::Io(error) => BlockError::io("lock", path, error),
        LockError::HeldHere { .. } => BlockError::new(
            BlockErrorKind::Locked,
            format!("the device in {} is open in this process", dir.display()),
        ),
        other => BlockError::new(
            BlockErrorKind::Locked,
            format!(
                "the device in {} is in use: {other}; stop that process first",
                dir.display()
            ),
        ),
    }
}
