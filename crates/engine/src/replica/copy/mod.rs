//! Copies of other databases with missing ranges: states, and those ranges of the segments they
//! name that have been fetched. Ranges that are here are read as at their source, and missing ones
//! are *elsewhere*: an error of its own kind, never "no data".
//!
//! A copy is a directory: `copy.redb` lists what is there, `pack/ID.pack` contains bytes of segment
//! ID. One that is not open has no file open and takes no memory. To a reader it looks like a
//! database: its metadata are made of the state in memory, and its segments are files with missing
//! ranges.
//!
//! Invariants: every answer is what the source answers from what it has stored, at the version of
//! each partition that is shown, or says that it is elsewhere. Confirmed ranges survive a power
//! cut. A state that does not continue the current one is refused, and changes nothing.
//! Concurrency: a copy is shared freely; it takes in one thing at a time, and readers go on.
//! Failure: see [`receive`]. Format: docs/format/copy.md.

mod carried;
mod index;
mod keeping;
mod missing;
mod open;
mod pack;
mod passing;
mod plan;
mod receive;
mod retained;
mod score;
mod shown;
mod subscription;
mod tail;
mod without;

pub use carried::{CarriedCopy, CopyRestoration, description_decodes};
pub(crate) use passing::WeakCopy;
pub use score::LeafFacts;
pub use tail::TailProgress;

use crate::common::ids::SegmentId;
use crate::replication::needed::{NeededRange, Reason, Why};
use crate::replication::state::{State, StateName};
use crate::replication::subscriptions::Rules;
use crate::storage::segment::MissedRange;
use crate::{Error, ErrorKind, Options, Reader, Result};
use headwater_io::{Env, OpenMode};
use headwater_types::{ByteRange, StreamName};
use index::{Index, index_path};
use pack::{MissedRanges, PackFiles, pack_dir};
use parking_lot::Mutex;
use receive::{ROOT, Receiving};
use std::hash::RandomState;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A copy of another database that is open to take in more of it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RemoteCopy {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    env: Env,
    dir: PathBuf,
    receiving: Mutex<Receiving>,
    missed: Arc<MissedRanges>,
    /// Of the versions of its data, as long as it is open.
    hashers: (RandomState, RandomState),
}

/// A missing range that a copy subscribes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Missing {
    /// The segment.
    pub segment: u64,
    /// The range of it.
    pub range: NeededRange,
    /// The reason, and the rule or pin.
    pub why: Why,
}

/// Why a range is here, or is missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The range, of which the one asked about is a part.
    pub range: NeededRange,
    /// All of it is here.
    pub is_here: bool,
    /// The reason, as rules and pins stand now.
    pub why: Why,
    /// One of the streams with rows in the range, where it contains rows.
    pub stream: Option<StreamName>,
}

/// Subscribed bytes of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The reason.
    pub reason: Reason,
    /// Subscribed bytes, here or not, as far as is known: late rows may add more.
    pub wanted: u64,
    /// Bytes of these that are not here.
    pub missing: u64,
}

/// Progress of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The newest state it has.
    pub state: StateName,
    /// Segments of the state with subscribed ranges, all of which are here, on the disk.
    pub complete: Vec<u64>,
    /// Subscribed bytes that are not here, as far as is known: late rows may add more.
    pub missing_bytes: u64,
    /// Bytes that are here, also of versions before.
    pub bytes: u64,
    /// Partitions shown in the version that the state names.
    pub shown: usize,
    /// Partitions shown in a version before.
    pub shown_older: usize,
    /// Partitions shown, in whichever version, of which so much is here that something can be read.
    pub known: usize,
    /// Partitions with retained data that the source has removed ([`Rules::keeping`]).
    pub kept: usize,
    /// Progress of the newest events, which are in no state yet.
    pub tail: TailProgress,
}

impl RemoteCopy {
    /// Begins a copy with a whole state of its source, or opens the one that is there and passes
    /// the state to it. The rules are its subscription; a [`Level`](headwater_types::Level) stands
    /// for the ranges of all streams that tiles at it and above need, and the least level for all
    /// rows.
    ///
    /// # Errors
    /// `invalid` when there is a copy that the state does not continue, `full`, `io`.
    pub fn begin(
        env: Env,
        dir: &Path,
        state: &State,
        rules: impl Into<Rules>,
    ) -> Result<RemoteCopy> {
        let rules = rules.into();
        for folder in [dir, &pack_dir(dir)] {
            let made = env.files.create_dir_all(folder);
            made.map_err(|e| Error::io("create", folder, e))?;
        }
        match Index::open(&env, dir)? {
            Some(index) => {
                let copy = RemoteCopy::with(env, dir, index, rules)?;
                copy.inner.receiving.lock().take_state(state.clone())?;
                Ok(copy)
            }
            None => {
                let path = index_path(dir);
                // Its creation was interrupted: it never contained anything.
                match env.files.remove(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(Error::io("remove", &path, error));
                    }
                    _ => {}
                }
                let index = Index::create(&env, dir, state)?;
                RemoteCopy::with(env, dir, index, rules)
            }
        }
    }

    /// Opens a copy; the rules are its subscription from now on.
    ///
    /// # Errors
    /// `not_found` when there is none, `corrupt`, `io`.
    pub fn open(env: Env, dir: &Path, rules: impl Into<Rules>) -> Result<RemoteCopy> {
        let index = Index::open(&env, dir)?;
        let index = index.ok_or_else(|| {
            Error::not_found(format!("{}: no copy here (no copy.redb)", dir.display()))
        })?;
        RemoteCopy::with(env, dir, index, rules.into())
    }

    fn with(env: Env, dir: &Path, index: Index, rules: Rules) -> Result<RemoteCopy> {
        let receiving = Receiving::open(env.clone(), dir, index, rules)?;
        Ok(RemoteCopy {
            inner: Arc::new(Inner {
                env,
                dir: dir.to_owned(),
                receiving: Mutex::new(receiving),
                missed: Arc::default(),
                hashers: (RandomState::new(), RandomState::new()),
            }),
        })
    }

    /// Others have this copy too: clones of it, or readers.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// The newest state it has.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.inner.receiving.lock().state)
    }

    /// Takes a newer state: definitions and deletes are in force at once, partitions as soon as
    /// their subscribed ranges are here.
    ///
    /// # Errors
    /// `invalid` for a state that does not continue the current one, `full`, `io`.
    pub fn take_state(&self, state: State) -> Result<()> {
        self.inner.receiving.lock().take_state(state)
    }

    /// The missing ranges, those worth most first, of so many bytes about.
    #[must_use]
    pub fn missing(&self, bytes_max: u64) -> Vec<Missing> {
        self.inner.receiving.lock().missing.missing(bytes_max)
    }

    /// Takes bytes of a segment. The bytes count from the next [`RemoteCopy::commit`] on; those
    /// that are here already are left out.
    ///
    /// # Errors
    /// `invalid` for bytes that the state does not name, `full`, `io`.
    pub fn put(&self, segment: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut receiving = self.inner.receiving.lock();
        receiving.put(SegmentId(segment), offset, bytes)
    }

    /// Makes the bytes put so far durable, and shows what can be shown now.
    ///
    /// # Errors
    /// `full`, `io`: the copy takes nothing more then, until it is opened again.
    pub fn commit(&self) -> Result<CopyProgress> {
        let mut receiving = self.inner.receiving.lock();
        receiving.commit()?;
        Ok(progress(&receiving))
    }

    /// The progress of the copy.
    #[must_use]
    pub fn progress(&self) -> CopyProgress {
        progress(&self.inner.receiving.lock())
    }

    /// The number of changes of its [progress](RemoteCopy::progress) since it was opened: as long
    /// as this is the same, so is that.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner.receiving.lock().changes
    }

    /// Subscribed bytes that are not here, as far as is known.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.inner.receiving.lock().missing.missing_bytes()
    }

    /// The present ranges of the segments that the state names, by id and offset.
    #[must_use]
    pub fn present(&self) -> Vec<(u64, ByteRange)> {
        let receiving = self.inner.receiving.lock();
        let partitions = receiving.state.partitions.iter();
        let packs = partitions.filter_map(|p| Some((p.id.0, receiving.packs.get(&p.id)?)));
        packs
            .flat_map(|(id, pack)| {
                let ranges = pack.present().into_iter();
                ranges.map(move |range| (id, range))
            })
            .collect()
    }

    /// Forgets the present bytes of a range, so that it is missing: a comparison has shown that
    /// they differ.
    ///
    /// # Errors
    /// `io`.
    pub fn forget(&self, segment: u64, offset: u64, bytes: u64) -> Result<()> {
        let mut receiving = self.inner.receiving.lock();
        receiving.forget(SegmentId(segment), ByteRange::at(offset, bytes))
    }

    /// Bytes of a segment, from the disk.
    ///
    /// # Errors
    /// `elsewhere` when not all of them are here, `io`.
    pub fn read(&self, segment: u64, offset: u64, bytes: u32) -> Result<Vec<u8>> {
        let id = SegmentId(segment);
        let pack = self.inner.receiving.lock().pack(id);
        let path = pack.path().to_owned();
        let files = PackFiles::new(Path::new(ROOT), [(id, pack, u64::MAX)].into_iter());
        let name =
            crate::device::layout::segment_dir(Path::new(ROOT)).join(format!("{segment}.seg"));
        let mut out = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        headwater_io::Files::open(&files, &name, OpenMode::Read)
            .and_then(|file| file.read_exact_at(offset, &mut out))
            .map_err(|e| Error::io("read", &path, e))?;
        Ok(out)
    }

    /// Takes the missing ranges that readers of the copy have met, in the order in which they did,
    /// so that these can be fetched and read again. A read ends at the first range that it misses;
    /// [`crate::Snapshot::coverage`] lists all that it would need. Beyond a limit later ones are
    /// dropped.
    #[must_use]
    pub fn take_missed(&self) -> Vec<MissedRange> {
        self.inner.missed.take()
    }

    /// Reads the copy as a database. A read that needs a missing range fails with
    /// [`ErrorKind::Elsewhere`]; ranges fetched later are used, and [`Reader::refresh`] shows what
    /// the copy shows by then. Only the options for memory and open files count.
    ///
    /// # Errors
    /// `invalid` for bad settings, `io`.
    pub fn reader(&self, options: Options) -> Result<Reader> {
        options.validate()?;
        let copy = self.clone();
        Reader::looking(Box::new(move || open::open(&copy.inner, &options)))
    }
}

fn progress(receiving: &Receiving) -> CopyProgress {
    let state = &receiving.state;
    let is_newest = |p: &&crate::replication::state::StatePartition| {
        state.partition(p.id).is_some_and(|now| now.is_same(p))
    };
    let shown = receiving.shown.iter().filter(is_newest).count();
    let is_known = |p: &&crate::replication::state::StatePartition| {
        let pack = receiving.pack(p.id);
        p.frame().all(|range| pack.has(range))
    };
    let known = receiving.shown.iter().filter(is_known).count();
    CopyProgress {
        state: state.name,
        complete: receiving.complete(),
        missing_bytes: receiving.missing.missing_bytes(),
        bytes: receiving.packs.values().map(|pack| pack.bytes()).sum(),
        shown,
        shown_older: receiving.shown.len() - shown,
        known,
        kept: receiving.retained.len(),
        tail: TailProgress::of(&receiving.tail),
    }
}

/// Why nothing of a partition can be read here.
fn elsewhere(id: SegmentId) -> Error {
    Error::new(
        ErrorKind::Elsewhere,
        format!(
            "what segment {} holds is not known in this copy yet; ask where it was written, or wait until it has been fetched",
            id.0
        ),
    )
}
