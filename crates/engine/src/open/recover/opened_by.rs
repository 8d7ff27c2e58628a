//! Who opens a database, and what that means for its opening.

use crate::Result;
use crate::common::error::Error;
use crate::common::ids::{SegmentId, Sequence, TableId};
use crate::device::reserve::Reserve;
use crate::device::stall::Watch;
use crate::device::tiers::OwnedTier;
use crate::memory::pins::PinFiles;
use crate::metadata::catalog::Horizon;
use crate::metadata::clock::Moment;
use crate::metadata::owner::Owner;
use crate::replication::tail::TailRecord;
use crate::storage::segment::{Here, Piece};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::Access;
use headwater_io::{Env, Files};
use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::path::Path;
use std::sync::Arc;

/// Who opens a database.
pub(crate) enum OpenedBy<'a> {
    /// Who holds its lock and reserve, and puts files right.
    Owner(Ownership),
    /// Who only reads, perhaps beside an owner, and changes no file; see [`Access::Reader`].
    Reader(&'a dyn Fn() -> Result<()>),
    /// Who only reads a copy of another database, whose files have holes, or a state of the past:
    /// there is no log.
    Copy(CopyParts),
}

/// What an owner has.
pub(crate) struct Ownership {
    pub(super) owner: Owner,
    pub(super) tier: Option<Arc<OwnedTier>>,
    pub(super) bulk: Option<Arc<Watch>>,
    pub(super) reserves: Vec<Arc<Reserve>>,
    pub(super) fast_files: Arc<dyn Files>,
    pub(super) pin_files: PinFiles,
    /// Where runs of indexes are written: without the space that is reserved.
    pub(super) run_files: Arc<dyn Files>,
}

/// What is known of a copy besides its metadata.
#[derive(Debug, Default)]
pub(crate) struct CopyParts {
    /// Partitions of which nothing can be read here.
    pub(crate) elsewhere: HashMap<SegmentId, Error>,
    /// Which bytes are here.
    pub(crate) here: Option<Arc<dyn Here>>,
    /// Makes versions of its data, which are those of all openings of the copy.
    pub(crate) hashers: Option<(RandomState, RandomState)>,
    /// What is shown of those partitions that are not shown as a whole.
    pub(crate) pieces: HashMap<SegmentId, Vec<Piece>>,
    /// Deletes that are not carried out in every partition, by sequence.
    pub(crate) deletes: Vec<(Sequence, DeleteRecord)>,
    /// What is known of the log behind the state, by sequence.
    pub(crate) tail: Vec<TailRecord>,
    /// What the source does not store any more, by table, where it is shown here.
    pub(crate) cuts: HashMap<TableId, Horizon>,
    /// Partitions of which not all rows are here.
    pub(crate) lacking: HashSet<SegmentId>,
    /// Set of a state of the past, whose files are all here.
    pub(crate) past: Option<PastParts>,
}

/// What is known of a state of the past.
#[derive(Debug)]
pub(crate) struct PastParts {
    /// What time it is in it, for ever.
    pub(crate) moment: Moment,
    /// Its files are held open, since somebody else may remove them.
    pub(crate) holds_open: bool,
}

/// What opening needs of who opens.
pub(super) struct Opener<'a> {
    pub(super) owner: Option<Owner>,
    pub(super) tier: Option<Arc<OwnedTier>>,
    pub(super) bulk: Option<Arc<Watch>>,
    pub(super) reserves: Vec<Arc<Reserve>>,
    pub(super) fast_files: Arc<dyn Files>,
    pub(super) pin_files: PinFiles,
    pub(super) run_files: Arc<dyn Files>,
    pub(super) access: Access<'a>,
    pub(super) copy: Option<CopyParts>,
}

impl<'a> OpenedBy<'a> {
    pub(super) fn opener(self, env: &Env, dir: &Path) -> Opener<'a> {
        let (access, copy) = match self {
            OpenedBy::Owner(owned) => {
                return Opener {
                    owner: Some(owned.owner),
                    tier: owned.tier,
                    bulk: owned.bulk,
                    reserves: owned.reserves,
                    fast_files: owned.fast_files,
                    pin_files: owned.pin_files,
                    run_files: owned.run_files,
                    access: Access::Owner,
                    copy: None,
                };
            }
            OpenedBy::Reader(nothing_freed) => (Access::Reader(nothing_freed), None),
            OpenedBy::Copy(parts) => (Access::Reader(&|| Ok(())), Some(parts)),
        };
        let root = env.media.buffers_root(dir);
        Opener {
            owner: None,
            tier: None,
            bulk: None,
            reserves: Vec::new(),
            fast_files: Arc::clone(env.fast_files()),
            pin_files: PinFiles::new(Arc::clone(env.buffer_files()), root),
            run_files: Arc::clone(env.segment_files()),
            access,
            copy,
        }
    }
}
