//! The device: a directory with a superblock and a file for each set, and commands over all of it.
//!
//! Invariants: one process has a device open, by a lock. A command is answered exactly once, when
//! all sets that it touches are done; a flush touches every set, so that it covers whatever was
//! answered before it came, to whomever.
//! Concurrency: commands are submitted from any thread; a set carries out one at a time. Commands
//! that overlap in time and place leave either order, block by block.
//! Failure: opening fails with a [`BlockError`]; commands with the error of the medium, and after a
//! failed sync the sets concerned take no writes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_io::{Completion, Env, Files, Lock, LockError, OpenMode};
use headwater_queue::{Direction, Order, Purpose, Request, SetOptions, Sets, Work};
use parking_lot::Mutex;

use crate::BLOCK_BYTES;
use crate::error::{BlockError, BlockErrorKind};
use crate::format::{HEADER_BYTES, REDO_BLOCKS_MAX, Superblock};
use crate::layout::Layout;
use crate::numbers::{index, long};
use crate::store::{SetPlace, SetStore, create, is_unwritten};

/// The greatest size of a device: what lies in files of that size is still addressed by `i64`.
const SIZE_MAX: u64 = 1 << 46;
const SETS_MAX: u32 = 64;
const STRIPE_BYTES_MAX: u32 = 1 << 30;

/// How a device is opened, and made when there is none.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Where its files are.
    pub dir: PathBuf,
    /// Its size in bytes, a multiple of 4096. Must be given to make one; otherwise it must be right
    /// or absent.
    pub size: Option<u64>,
    /// How many sets, 1 to 64; `None` = as it was made, 4 for a new one.
    pub sets: Option<u32>,
    /// How many bytes lie together in a set; for a new device only. A multiple of 4096.
    pub stripe_bytes: u32,
    /// How many blocks become durable together at most, 4 to 480; for a new device only.
    pub redo_blocks: u32,
    /// Which waiting request of a set goes first.
    pub order: Order,
    /// By how many others it may be passed meanwhile.
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

/// What is asked of a device. Offsets and lengths are in bytes, and need not be aligned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Bytes, please.
    Read {
        /// From where on.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// These bytes go there.
    Write {
        /// From where on.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// It is answered when it is durable.
        fua: bool,
    },
    /// The range reads as zeros from now on.
    Zero {
        /// From where on.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The range shall keep its space, so that later writes find some.
        keeps_space: bool,
        /// It is answered when it is durable.
        fua: bool,
    },
    /// Nobody needs the range any more: whole blocks in it read as zeros, the others stay.
    Trim {
        /// From where on.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// It is answered when it is durable.
        fua: bool,
    },
    /// Everything that was answered before is to be durable.
    Flush,
    /// Which parts of a range were written?
    Status {
        /// From where on.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

/// A part of a range that was written, or was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// False = it reads as zeros, and takes no space.
    pub is_written: bool,
}

/// What a command gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It was done.
    Done,
    /// What was read.
    Data(Vec<u8>),
    /// The parts of the range, in its order.
    Extents(Vec<Extent>),
}

/// Called once with the answer, on whatever thread the last set was done.
type Answered = Box<dyn FnOnce(io::Result<Answer>) + Send>;

/// An open device.
#[derive(Debug)]
pub struct Device {
    superblock: Superblock,
    stores: Vec<Arc<Mutex<SetStore>>>,
    sets: Sets<Part>,
    dir: PathBuf,
    _locks: [Box<dyn Lock>; 2],
}

impl Device {
    /// Opens the device in a directory, or makes it.
    ///
    /// # Errors
    /// Kind `invalid` when the options do not fit, or not to the device that is there; `locked`,
    /// `corrupt`, `full` and `io` as they say.
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
        // A lock of what nobody removes by mistake, beside the one that names its owner.
        let second = files.lock_file(&superblock_path(dir));
        let second = second.map_err(|error| not_locked(dir, &lock_path, error))?;
        let layout = superblock.layout;
        let mut stores = Vec::new();
        for set in 0..layout.sets {
            let place = SetPlace::of(&superblock, set);
            let store = SetStore::open(files, &set_path(dir, set), place)?;
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

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.superblock.layout.size
    }

    /// How many sets it has.
    #[must_use]
    pub fn sets(&self) -> u32 {
        self.superblock.layout.sets
    }

    /// Drawn when it was made: no two devices have the same, but for copies.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.superblock.identity
    }

    /// Begins a command for a client, who has a number. `answered` is called once, perhaps before
    /// this returns. May wait for room in a set.
    pub fn submit(&self, client: u64, command: Command, answered: Answered) {
        let (offset, length) = command.range();
        let layout = self.superblock.layout;
        if !layout.holds(offset, length) {
            return answered(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "bytes {offset} to {} are asked for, the device ends at {}",
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
                let part = Part {
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
    /// Those of the medium; kind `InvalidInput` for a range beyond the end.
    pub fn call(&self, command: Command) -> io::Result<Answer> {
        let (answer, completer) = Completion::pending();
        self.submit(0, command, Box::new(|told| completer.complete(told)));
        answer.wait()
    }

    /// Sets that may have writes that are not durable. A set that is at work is one.
    fn unclean(&self) -> Vec<u32> {
        let sets = (0..).zip(&self.stores);
        sets.filter(|(_, store)| store.try_lock().is_none_or(|store| !store.is_clean()))
            .map(|(set, _)| set)
            .collect()
    }

    /// Ends it: what was submitted is carried out, and all of it made durable.
    ///
    /// # Errors
    /// When that fails for a set; the others are ended all the same.
    pub fn close(&self) -> Result<(), BlockError> {
        let ended_well = self.sets.shut_down();
        let mut first = None;
        for (set, store) in (0..).zip(&self.stores) {
            if let Err(error) = store.lock().close() {
                let path = set_path(&self.dir, set);
                first = first.or(Some(BlockError::io("store what is left in", &path, error)));
            }
        }
        match first {
            Some(error) => Err(error),
            None if !ended_well => Err(BlockError::new(
                BlockErrorKind::Io,
                format!("a thread of {} ended by a panic", self.dir.display()),
            )),
            None => Ok(()),
        }
    }
}

impl Command {
    /// Offset and length of what it touches.
    fn range(&self) -> (u64, u64) {
        match self {
            Command::Read { offset, length }
            | Command::Zero { offset, length, .. }
            | Command::Trim { offset, length, .. }
            | Command::Status { offset, length } => (*offset, *length),
            Command::Write { offset, data, .. } => (*offset, long(data.len())),
            Command::Flush => (0, 0),
        }
    }

    /// True when it has to be durable before it is answered.
    fn is_durable(&self) -> bool {
        match self {
            Command::Write { fua, .. } | Command::Zero { fua, .. } | Command::Trim { fua, .. } => {
                *fua
            }
            Command::Flush => true,
            Command::Read { .. } | Command::Status { .. } => false,
        }
    }

    /// How queue sets see it. Parts for several sets go to their owners, so that they are carried
    /// out side by side.
    fn request(&self, client: u64, sets: usize) -> Request {
        let (place, length) = self.range();
        let direction = match self {
            Command::Read { .. } | Command::Status { .. } => Direction::Read,
            _ => Direction::Write,
        };
        let is_short = sets <= 1 && !self.is_durable();
        Request {
            length: is_short.then_some(length),
            purpose: match self {
                Command::Flush => Purpose::Log,
                _ => Purpose::Caller,
            },
            ..Request::of_caller(client, place, length, direction)
        }
    }
}

/// What the parts of a command have in common.
struct Joint {
    layout: Layout,
    command: Command,
    state: Mutex<JointState>,
}

struct JointState {
    remaining: usize,
    error: Option<io::Error>,
    data: Vec<u8>,
    /// Runs by their distance from the start of the range.
    runs: Vec<(u64, Extent)>,
    answered: Option<Answered>,
}

impl Joint {
    fn new(layout: Layout, command: Command, parts: usize, answered: Answered) -> Joint {
        let data = match &command {
            Command::Read { length, .. } => vec![0; index(*length)],
            _ => Vec::new(),
        };
        Joint {
            layout,
            command,
            state: Mutex::new(JointState {
                remaining: parts,
                error: None,
                data,
                runs: Vec::new(),
                answered: Some(answered),
            }),
        }
    }

    /// A part is done; the last one answers.
    fn done(&self, result: io::Result<()>) {
        let mut state = self.state.lock();
        assert!(state.remaining > 0, "every part is done once");
        state.remaining -= 1;
        if let Err(error) = result {
            state.error.get_or_insert(error);
        }
        let is_last = state.remaining == 0;
        drop(state);
        if is_last {
            self.answer();
        }
    }

    fn answer(&self) {
        let mut state = self.state.lock();
        let answered = state.answered.take();
        let answer = match state.error.take() {
            Some(error) => Err(error),
            None => Ok(match self.command {
                Command::Read { .. } => Answer::Data(std::mem::take(&mut state.data)),
                Command::Status { .. } => Answer::Extents(merged(std::mem::take(&mut state.runs))),
                _ => Answer::Done,
            }),
        };
        drop(state);
        if let Some(answered) = answered {
            answered(answer);
        }
    }

    /// Carries the command out for one set.
    fn carry_out(&self, store: &Mutex<SetStore>, set: u32) -> io::Result<()> {
        let (offset, length) = self.command.range();
        let mut store = store.lock();
        let pieces = self.layout.pieces(offset, length);
        for piece in pieces.filter(|piece| piece.set == set) {
            let within = index(piece.within)..index(piece.within.saturating_add(piece.length));
            match &self.command {
                Command::Read { .. } if piece.length == length => {
                    let mut data = std::mem::take(&mut self.state.lock().data);
                    let read = store.read(piece.place, &mut data);
                    self.state.lock().data = data;
                    read?;
                }
                Command::Read { .. } => {
                    let mut data = vec![0; index(piece.length)];
                    store.read(piece.place, &mut data)?;
                    if let Some(to) = self.state.lock().data.get_mut(within) {
                        to.copy_from_slice(&data);
                    }
                }
                Command::Write { data, .. } => {
                    store.write(piece.place, data.get(within).unwrap_or(&[]))?;
                }
                Command::Zero { keeps_space, .. } => {
                    store.zero(piece.place, piece.length, *keeps_space)?;
                }
                Command::Trim { .. } => store.trim(piece.place, piece.length)?,
                Command::Status { .. } => {
                    let mut within = piece.within;
                    let runs = store.status(piece.place, piece.length);
                    let mut state = self.state.lock();
                    for (length, is_written) in runs {
                        state.runs.push((within, Extent { length, is_written }));
                        within += length;
                    }
                }
                Command::Flush => {}
            }
        }
        if self.command.is_durable() {
            store.commit()?;
        }
        Ok(())
    }
}

/// Runs in their order, neighbours that are alike put together.
fn merged(mut runs: Vec<(u64, Extent)>) -> Vec<Extent> {
    runs.sort_unstable_by_key(|(within, _)| *within);
    let mut out: Vec<Extent> = Vec::new();
    for (_, run) in runs {
        match out.last_mut() {
            Some(last) if last.is_written == run.is_written => last.length += run.length,
            _ => out.push(run),
        }
    }
    out
}

/// What a command does in one set.
struct Part {
    store: Arc<Mutex<SetStore>>,
    set: u32,
    /// `None` = this part is done.
    joint: Option<Arc<Joint>>,
}

impl Work for Part {
    fn carry_out(mut self) {
        // Taken out only afterwards: should this panic, dropping it answers.
        if let Some(joint) = self.joint.clone() {
            let result = joint.carry_out(&self.store, self.set);
            self.joint = None;
            joint.done(result);
        }
    }

    fn refuse(mut self, why: io::Error) {
        if let Some(joint) = self.joint.take() {
            joint.done(Err(why));
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(joint) = self.joint.take() {
            joint.done(Err(io::Error::other("a request was given up")));
        }
    }
}

fn superblock_path(dir: &Path) -> PathBuf {
    dir.join("block.super")
}

fn set_path(dir: &Path, set: u32) -> PathBuf {
    dir.join(format!("block.set.{set}"))
}

/// The superblock, if there is one that can be read.
fn read_superblock(files: &dyn Files, dir: &Path) -> Result<Option<Superblock>, BlockError> {
    let path = superblock_path(dir);
    let read = files.open(&path, OpenMode::Read).and_then(|file| {
        let mut buf = vec![0; HEADER_BYTES];
        file.read_exact_at(0, &mut buf).map(|()| buf)
    });
    match read {
        Ok(bytes) => Ok(Superblock::decode(&bytes).filter(|found| check(found).is_ok())),
        // Not there, or not wholly.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(BlockError::io("read", &path, error)),
    }
}

/// What was found, if it is what was asked for.
fn checked(found: Superblock, options: &DeviceOptions) -> Result<Superblock, BlockError> {
    let mismatch = |what: &str, is: u64, asked: u64| {
        Err(BlockError::invalid(format!(
            "the device in {} has {what} {is}, {asked} was asked for: leave it out to open it as it is; it cannot be changed",
            options.dir.display()
        )))
    };
    match (options.size, options.sets) {
        (Some(size), _) if size != found.layout.size => mismatch("size", found.layout.size, size),
        (_, Some(sets)) if sets != found.layout.sets => {
            mismatch("sets", u64::from(found.layout.sets), u64::from(sets))
        }
        _ => Ok(found),
    }
}

/// What a superblock may say.
fn check(superblock: &Superblock) -> Result<(), String> {
    let block_bytes = long(BLOCK_BYTES);
    let Layout {
        size,
        sets,
        stripe_bytes,
    } = superblock.layout;
    if size == 0 || !size.is_multiple_of(block_bytes) || size > SIZE_MAX {
        return Err(format!(
            "a size of {size}: expected a multiple of {block_bytes} from {block_bytes} to {SIZE_MAX} bytes"
        ));
    }
    if sets == 0 || sets > SETS_MAX {
        return Err(format!("{sets} sets: expected 1 to {SETS_MAX}"));
    }
    let whole = u64::from(stripe_bytes).is_multiple_of(block_bytes);
    if stripe_bytes == 0 || !whole || stripe_bytes > STRIPE_BYTES_MAX {
        return Err(format!(
            "stripes of {stripe_bytes}: expected a multiple of {block_bytes} up to {STRIPE_BYTES_MAX} bytes"
        ));
    }
    // A block and its page of the map must fit in, and neighbours should.
    if !(4..=REDO_BLOCKS_MAX).contains(&superblock.redo_blocks) {
        return Err(format!(
            "{} blocks in a redo slot: expected 4 to {REDO_BLOCKS_MAX}",
            superblock.redo_blocks
        ));
    }
    Ok(())
}

/// Makes a device. A superblock stands for a device whose sets are durable, names and all. Sets
/// without one that can be read are what an attempt that failed left, if nothing was ever written
/// to them; otherwise they are somebody's data.
fn make(env: &Env, options: &DeviceOptions) -> Result<Superblock, BlockError> {
    let (files, dir) = (&*env.files, options.dir.as_path());
    require_unwritten(files, dir)?;
    let Some(size) = options.size else {
        return Err(BlockError::invalid(format!(
            "{} has no block device: give its size to make one",
            dir.display()
        )));
    };
    let mut identity = [0; 16];
    for part in identity.chunks_exact_mut(8) {
        part.copy_from_slice(&env.chance.next_u64().to_le_bytes());
    }
    let superblock = Superblock {
        identity,
        layout: Layout {
            size,
            sets: options.sets.unwrap_or(4),
            stripe_bytes: options.stripe_bytes,
        },
        redo_blocks: options.redo_blocks,
    };
    check(&superblock).map_err(BlockError::invalid)?;
    remove_half_made(files, dir)?;
    for set in 0..superblock.layout.sets {
        create(files, &set_path(dir, set), SetPlace::of(&superblock, set))?;
    }
    let sync_dir = || {
        let synced = files.sync_dir(dir);
        synced.map_err(|error| BlockError::io("sync", dir, error))
    };
    sync_dir()?;
    let path = superblock_path(dir);
    let written = files.open(&path, OpenMode::CreateNew).and_then(|file| {
        file.write_all_at(0, &superblock.encode())?;
        file.sync_data()
    });
    let written = written.map_err(|error| BlockError::io("make", &path, error));
    if let Err(error) = written.and_then(|()| sync_dir()) {
        // It may show and not be on the medium; no later sync would tell.
        if let Err(error) = files.remove(&path) {
            tracing::warn!(%error, file = %path.display(), "a superblock in doubt was not removed");
        }
        return Err(error);
    }
    Ok(superblock)
}

/// Files of a device in a directory, without its lock.
fn own_files(files: &dyn Files, dir: &Path) -> Result<Vec<PathBuf>, BlockError> {
    let names = files.list(dir);
    let mut names = names.map_err(|error| BlockError::io("list", dir, error))?;
    names.retain(|name| name.starts_with("block.set.") || name == "block.super");
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn require_unwritten(files: &dyn Files, dir: &Path) -> Result<(), BlockError> {
    for path in own_files(files, dir)? {
        // A superblock is shorter than what is passed over.
        let is_unwritten = is_unwritten(files, &path);
        if !is_unwritten.map_err(|error| BlockError::io("read", &path, error))? {
            let expected = format!(
                "the superblock of a device, version 1, whose checksum fits, beside {}, which was written to",
                path.display()
            );
            return Err(BlockError::corrupt(&superblock_path(dir), 0, &expected));
        }
    }
    Ok(())
}

fn remove_half_made(files: &dyn Files, dir: &Path) -> Result<(), BlockError> {
    for path in own_files(files, dir)? {
        let removed = files.remove(&path);
        removed.map_err(|error| BlockError::io("remove", &path, error))?;
    }
    Ok(())
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
