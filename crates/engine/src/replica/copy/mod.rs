//! Copies of other databases, with holes: states, and those ranges of the segments they name that
//! have been fetched. What is there is read as it would be read where it was written, and what is
//! not there is *elsewhere*: an error of its own kind, never "no data".
//!
//! A copy is a directory: `copy.redb` says what is there, `pack/ID.pack` holds bytes of segment ID.
//! One that is not open has no file open and takes no memory. To a reader it looks like a database:
//! its metadata are made of the state in memory, and its segments are files with holes.
//!
//! Invariants: every answer is what the source answers from what it has stored, at the version of
//! each partition that is shown, or says that it is elsewhere. What was confirmed survives a power
//! cut. A state that does not go on from the one that is held is refused, and changes nothing.
//! Concurrency: a copy is shared freely; it takes in one thing at a time, and readers go on.
//! Failure: see [`receive`].
//! Format: docs/format/copy.md.

mod carried;
mod index;
mod keeping;
mod kept;
mod lacks;
mod open;
mod pack;
mod passing;
mod receive;
mod score;
mod shown;
mod tail;
mod wants;
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
use headwater_types::StreamName;
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

/// A range that a copy wants and does not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Missing {
    /// The segment.
    pub segment: u64,
    /// The range of it.
    pub range: NeededRange,
    /// Why it is wanted.
    pub why: Why,
}

/// Why a range is here, or is missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The range, of which the one asked about is a part.
    pub range: NeededRange,
    /// All of it is here.
    pub is_here: bool,
    /// Why it is wanted, as things stand now.
    pub why: Why,
    /// One of the streams whose rows it holds, where it holds rows.
    pub stream: Option<StreamName>,
}

/// How much is wanted for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The reason.
    pub reason: Reason,
    /// Bytes that are wanted, here or not, as far as is known: late rows tell of more.
    pub wanted: u64,
    /// Those of them that are not here.
    pub missing: u64,
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The newest state it has.
    pub state: StateName,
    /// Segments of the state of which something is wanted, and all of that is here, on the medium.
    pub complete: Vec<u64>,
    /// Bytes that are wanted and not here, as far as is known: late rows tell of more.
    pub missing_bytes: u64,
    /// Bytes that are here, also of versions before.
    pub bytes: u64,
    /// Partitions shown in the version that the state names.
    pub shown: usize,
    /// Partitions shown in a version before.
    pub shown_older: usize,
    /// Partitions shown, in whichever version, of which so much is here that something can be read.
    pub known: usize,
    /// Partitions of which something is kept that the source has cut away ([`Rules::keeping`]).
    pub kept: usize,
    /// What is known of the newest events, which are in no state yet.
    pub tail: TailProgress,
}

impl RemoteCopy {
    /// Begins a copy with a whole state of its source, or opens the one that is there and hands it
    /// the state. What is wanted of it say the rules; a [`Level`](headwater_types::Level) wants of
    /// all streams what tiles at it and above need, and its least one all rows.
    ///
    /// # Errors
    /// `invalid` when there is a copy that the state does not go on from, `full`, `io`.
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
                // Its making was cut short: it never held anything.
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

    /// Opens a copy; the rules say what is wanted of it from now on.
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
    /// what is wanted of them is here.
    ///
    /// # Errors
    /// `invalid` for a state that does not go on from the one that is held, `full`, `io`.
    pub fn take_state(&self, state: State) -> Result<()> {
        self.inner.receiving.lock().take_state(state)
    }

    /// What is wanted and not here, those ranges first that are worth most, of so many bytes about.
    #[must_use]
    pub fn missing(&self, bytes_max: u64) -> Vec<Missing> {
        self.inner.receiving.lock().lacks.missing(bytes_max)
    }

    /// Takes bytes of a segment. They count from the next [`RemoteCopy::commit`] on; what is here
    /// already is left out.
    ///
    /// # Errors
    /// `invalid` for bytes that the state does not name, `full`, `io`.
    pub fn put(&self, segment: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut receiving = self.inner.receiving.lock();
        receiving.put(SegmentId(segment), offset, bytes)
    }

    /// Makes durable what was put, and shows what can be shown now.
    ///
    /// # Errors
    /// `full`, `io`: the copy takes nothing more then, until it is opened again.
    pub fn commit(&self) -> Result<CopyProgress> {
        let mut receiving = self.inner.receiving.lock();
        receiving.commit()?;
        Ok(progress(&receiving))
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> CopyProgress {
        progress(&self.inner.receiving.lock())
    }

    /// How often something has changed of its [progress](RemoteCopy::progress) since it was opened:
    /// as long as this is the same, so is that.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner.receiving.lock().changes
    }

    /// Bytes that are wanted and not here, as far as is known.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.inner.receiving.lock().lacks.missing_bytes()
    }

    /// What is here of the segments that the state names: id, offset and length, by these.
    #[must_use]
    pub fn present(&self) -> Vec<(u64, u64, u64)> {
        let receiving = self.inner.receiving.lock();
        let partitions = receiving.state.partitions.iter();
        let packs = partitions.filter_map(|p| Some((p.id.0, receiving.packs.get(&p.id)?)));
        packs
            .flat_map(|(id, pack)| {
                let ranges = pack.present().into_iter();
                ranges.map(move |(offset, bytes)| (id, offset, bytes))
            })
            .collect()
    }

    /// Forgets what is here of a range, so that it is missing: a comparison has found it to be
    /// something else.
    ///
    /// # Errors
    /// `io`.
    pub fn forget(&self, segment: u64, offset: u64, bytes: u64) -> Result<()> {
        let mut receiving = self.inner.receiving.lock();
        receiving.forget(SegmentId(segment), offset, bytes)
    }

    /// Bytes of a segment, from the medium.
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

    /// Ranges that readers of the copy asked for and that are not here, in the order in which they
    /// did, and forgets them: so that they can be fetched and asked for again. A read ends at the
    /// first that it misses; all that it would need says [`crate::Snapshot::coverage`]. Of very
    /// many those that come later are not kept.
    #[must_use]
    pub fn take_missed(&self) -> Vec<MissedRange> {
        self.inner.missed.take()
    }

    /// Reads the copy as a database. A read that needs what is not here fails with
    /// [`ErrorKind::Elsewhere`]; what is fetched later is found, and [`Reader::refresh`] shows what
    /// the copy shows by then. Of the options, those count that concern memory and open files.
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
        p.frame().all(|(at, len)| pack.missing(at, len).is_empty())
    };
    let known = receiving.shown.iter().filter(is_known).count();
    CopyProgress {
        state: state.name,
        complete: receiving.complete(),
        missing_bytes: receiving.lacks.missing_bytes(),
        bytes: receiving.packs.values().map(|pack| pack.bytes()).sum(),
        shown,
        shown_older: receiving.shown.len() - shown,
        known,
        kept: receiving.kept.len(),
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
