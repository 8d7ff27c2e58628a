//! Kinds of openers of a database, and their effect on its opening.

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
use crate::storage::segment::{Here, ShownStretch};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::Access;
use headwater_io::{Env, Files};
use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::path::Path;
use std::sync::Arc;

/// Kind of opener of a database.
pub(crate) enum OpenedBy<'a> {
    /// The owner, which has its lock and reserve, and repairs files.
    Owner(Ownership),
    /// A reader, perhaps beside an owner, which changes no file; see [`Access::Reader`].
    Reader(&'a dyn Fn() -> Result<()>),
    /// A reader of a copy of another database, whose files have missing ranges, or of a past state:
    /// there is no log.
    Copy(CopyParts),
}

/// Resources of an owner.
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

/// Data of a copy besides its metadata.
#[derive(Debug, Default)]
pub(crate) struct CopyParts {
    /// Partitions of which nothing can be read here.
    pub(crate) elsewhere: HashMap<SegmentId, Error>,
    /// Which bytes are here.
    pub(crate) here: Option<Arc<dyn Here>>,
    /// Hashers for versions of its data, the same for all openings of the copy.
    pub(crate) hashers: Option<(RandomState, RandomState)>,
    /// The parts that are shown of partitions that are not shown as a whole.
    pub(crate) pieces: HashMap<SegmentId, Vec<ShownStretch>>,
    /// Deletes that are not carried out in every partition, by sequence.
    pub(crate) deletes: Vec<(Sequence, DeleteRecord)>,
    /// Records of the log behind the state, by sequence.
    pub(crate) tail: Vec<TailRecord>,
    /// Horizons of data that the source no longer stores, by table, where it is shown here.
    pub(crate) cuts: HashMap<TableId, Horizon>,
    /// Partitions of which not all rows are here.
    pub(crate) lacking: HashSet<SegmentId>,
    /// Set of a state of the past, whose files are all here.
    pub(crate) past: Option<PastParts>,
}

/// Data of a past state.
#[derive(Debug)]
pub(crate) struct PastParts {
    /// The time in it, which never changes.
    pub(crate) moment: Moment,
    /// Its files stay open, since the owner may remove them.
    pub(crate) holds_open: bool,
}

/// Needs of an opening that depend on the opener.
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
