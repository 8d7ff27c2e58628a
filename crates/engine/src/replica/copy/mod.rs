//! Copies of other databases with missing ranges: states, and the fetched ranges of the segments
//! they name. Present ranges are read as at their source, and missing ones are *elsewhere*: a
//! separate kind of error, never "no data".
//!
//! A copy is a directory: `copy.redb` lists its contents, `pack/ID.pack` contains bytes of segment
//! ID. A closed copy has no open file and uses no memory. To a reader it looks like a database: its
//! metadata are made from the state in memory, and its segments are files with missing ranges.
//!
//! Invariants: every answer equals the source's answer from its stored data, at the version of each
//! partition that is shown, or says that the data is elsewhere. The visible content does not go
//! backwards while its source sends newest events: an answer that was complete stays complete.
//! Confirmed ranges survive a power cut. A state that does not continue the current one is refused
//! without any change. Concurrency: a copy is shared freely; it receives one input at a time, and
//! readers go on. Failure: see [`receive`]. Format: docs/format/copy.md.

mod carried;
mod index;
mod keeping;
mod missed;
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
pub use missed::reading_for;
pub(crate) use passing::WeakCopy;
pub use score::LeafFacts;
pub use tail::TailProgress;

use crate::common::ids::SegmentId;
use crate::replication::needed::{NeededRange, RangeReason, Reason};
use crate::replication::state::{State, StateName};
use crate::replication::subscriptions::ReplicationRules;
use crate::storage::segment::{MissedRange, ReadCache};
use crate::{Error, ErrorKind, Options, Reader, Result};
use headwater_io::{Env, OpenMode};
use headwater_types::{ByteRange, StreamName};
use index::{Index, index_path};
use missed::MissedRanges;
use pack::{PackFiles, pack_dir};
use parking_lot::Mutex;
use receive::{ROOT, Receiving};
use std::hash::RandomState;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A copy of another database that is open for receiving. Cheap to clone.
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
    /// Hashers of the versions of its data, as long as it is open.
    hashers: (RandomState, RandomState),
}

/// A missing range that a copy subscribes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Missing {
    /// The segment.
    pub segment: u64,
    /// The range of the segment.
    pub range: NeededRange,
    /// The reason, and the rule or pin.
    pub why: RangeReason,
}

/// The reason why a range is present or missing.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeExplanation {
    /// The range that contains the requested one.
    pub range: NeededRange,
    /// True when all of it is present.
    pub is_here: bool,
    /// The reason, by the present rules and pins.
    pub why: RangeReason,
    /// One of the streams with rows in the range, where it contains rows.
    pub stream: Option<StreamName>,
}

/// Subscribed bytes of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The reason.
    pub reason: Reason,
    /// Subscribed bytes, present or missing, as far as is known: late rows may add more.
    pub subscribed_bytes: u64,
    /// Bytes of these that are missing.
    pub missing: u64,
}

/// Progress of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The newest state of the copy.
    pub state: StateName,
    /// Segments of the state whose subscribed ranges are all present, on the disk.
    pub complete: Vec<u64>,
    /// Subscribed bytes that are missing, as far as is known: late rows may add more.
    pub missing_bytes: u64,
    /// Bytes that are present, including earlier versions.
    pub bytes: u64,
    /// Partitions shown in the version that the state names.
    pub shown: usize,
    /// Partitions shown in an earlier version, or left out.
    pub shown_older: usize,
    /// Partitions left out: nothing was shown before in their spans, and the newest events go on
    /// there.
    pub left_out: usize,
    /// Partitions shown, in any version, of which enough is present to read some data.
    pub readable: usize,
    /// Partitions with retained data that the source has removed ([`ReplicationRules::keeping`]).
    pub retained: usize,
    /// Progress of the newest events, which are not in a state yet.
    pub tail: TailProgress,
}

impl RemoteCopy {
    /// Begins a copy with a whole state of its source, or opens the existing one and passes the
    /// state to it. The rules are its subscription; a [`Level`](headwater_types::Level) means the
    /// ranges of all streams that tiles at and above it need, and the lowest level means all rows.
    ///
    /// # Errors
    /// `invalid` when there is a copy that the state does not continue, `full`, `io`.
    pub fn begin(
        env: Env,
        dir: &Path,
        state: &State,
        rules: impl Into<ReplicationRules>,
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
                // Its creation was interrupted: it never had any contents.
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
    /// `not_found` when there is no copy, `corrupt`, `io`.
    pub fn open(env: Env, dir: &Path, rules: impl Into<ReplicationRules>) -> Result<RemoteCopy> {
        let index = Index::open(&env, dir)?;
        let index = index.ok_or_else(|| {
            Error::not_found(format!("{}: no copy here (no copy.redb)", dir.display()))
        })?;
        RemoteCopy::with(env, dir, index, rules.into())
    }

    fn with(env: Env, dir: &Path, index: Index, rules: ReplicationRules) -> Result<RemoteCopy> {
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

    /// True when others have this copy too: clones of it, or readers.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Directory of the copy.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// The newest state of the copy.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.inner.receiving.lock().state)
    }

    /// Accepts a newer state: definitions and deletes are in force at once, partitions as soon as
    /// their subscribed ranges are present.
    ///
    /// # Errors
    /// `invalid` for a state that does not continue the current one, `full`, `io`.
    pub fn take_state(&self, state: State) -> Result<()> {
        self.inner.receiving.lock().take_state(state)
    }

    /// The missing ranges, those worth most first, about `bytes_max` bytes in total.
    #[must_use]
    pub fn missing(&self, bytes_max: u64) -> Vec<Missing> {
        self.inner.receiving.lock().missing.missing(bytes_max)
    }

    /// Accepts bytes of a segment. The bytes count from the next [`RemoteCopy::commit`] on; bytes
    /// that are already present are left out.
    ///
    /// # Errors
    /// `invalid` for bytes that the state does not name, `full`, `io`.
    pub fn put(&self, segment: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut receiving = self.inner.receiving.lock();
        receiving.put(SegmentId(segment), offset, bytes)
    }

    /// Makes the bytes put so far durable, and shows all partitions that are complete now.
    ///
    /// # Errors
    /// `full`, `io`: the copy refuses further input then, until it is opened again.
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

    /// The number of changes of its [progress](RemoteCopy::progress) since it was opened: while the
    /// number is the same, so is the progress.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner.receiving.lock().changes
    }

    /// Subscribed bytes that are missing, as far as is known.
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
    /// `elsewhere` when some of them are missing, `io`.
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

    /// Takes the missing ranges that reads have met which were not on behalf of a reader
    /// ([`crate::reading_for`]), in that order, so that these can be fetched and read again. A
    /// read ends at the first missing range;
    /// [`crate::Snapshot::coverage`] lists all ranges that it would need. Beyond a limit later ones
    /// are dropped.
    #[must_use]
    pub fn take_missed(&self) -> Vec<MissedRange> {
        self.inner.missed.take(0)
    }

    /// Takes the same of reads on behalf of a reader.
    #[must_use]
    pub fn take_missed_of(&self, reader: u64) -> Vec<MissedRange> {
        self.inner.missed.take(reader)
    }

    /// Reads the copy as a database. A read that needs a missing range fails with
    /// [`ErrorKind::Elsewhere`]; ranges fetched later are used, and [`Reader::refresh`] shows the
    /// copy's present contents. Only the options for memory and open files matter.
    ///
    /// # Errors
    /// `invalid` for bad settings, `io`.
    pub fn reader(&self, options: Options) -> Result<Reader> {
        let bytes = options.memory_budget_bytes / 4;
        let cache = ReadCache::new(bytes, options.open_files_max);
        self.reader_sharing(options, &cache)
    }

    /// As [`RemoteCopy::reader`], with a cache that readers of other copies use, too: the copies of
    /// a node take no more memory and open files than one.
    ///
    /// # Errors
    /// As [`RemoteCopy::reader`].
    pub fn reader_sharing(&self, options: Options, cache: &ReadCache) -> Result<Reader> {
        options.validate()?;
        let (copy, cache) = (self.clone(), cache.store());
        let open = move || open::open(&copy.inner, &options, &cache.of_later_state());
        Reader::looking(Box::new(open))
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
    let readable = receiving.shown.iter().filter(is_known).count();
    CopyProgress {
        state: state.name,
        complete: receiving.complete(),
        missing_bytes: receiving.missing.missing_bytes(),
        bytes: receiving.packs.values().map(|pack| pack.bytes()).sum(),
        shown,
        shown_older: receiving.shown.len() - shown + receiving.left_out.len(),
        left_out: receiving.left_out.len(),
        readable,
        retained: receiving.retained.len(),
        tail: TailProgress::of(&receiving.tail),
    }
}

/// Error of a partition without any readable data in this copy.
fn elsewhere(id: SegmentId) -> Error {
    Error::new(
        ErrorKind::Elsewhere,
        format!(
            "the contents of segment {} are not yet known in this copy: query the source, or wait until they are fetched",
            id.0
        ),
    )
}
