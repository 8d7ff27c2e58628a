//! Plans of openings: the database to open, and the differences between openers, as plain data.
//!
//! The owner, a reader beside it, a copy of another database and a state that a named snapshot
//! keeps each make a plan; [`super::assemble`] carries out any of them. Invariants: the steps of an
//! opening and their order are the same in all plans; a plan only names the sources of the data.

use crate::Options;
use crate::common::error::Error;
use crate::common::ids::{SegmentId, Sequence, TableId};
use crate::device::guard::Guard;
use crate::device::layout::log_dir;
use crate::device::reserve::Reserve;
use crate::device::stall::Watch;
use crate::device::tiers::OwnedTier;
use crate::memory::pins::PinnedChunkFiles;
use crate::metadata::catalog::Cutoff;
use crate::metadata::clock::ClockReading;
use crate::metadata::tables::Meta;
use crate::replication::tail::TailRecord;
use crate::storage::segment::{PresentRanges, ShownStretch, StoreCache};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::Access;
use headwater_io::{Env, Files, Lock};
use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plan of an opening.
pub(crate) struct OpeningPlan<'a> {
    pub(crate) opening: Opening,
    pub(crate) segments: SegmentPlan,
    pub(crate) log: LogPlan<'a>,
    /// Hashers for versions of its data, if several openings share them.
    pub(crate) hashers: Option<Hashers>,
    /// The time in it, if that never changes.
    pub(crate) moment: Option<ClockReading>,
}

/// Hashers for versions of data.
pub(crate) type Hashers = (RandomState, RandomState);

/// The database to open, and the role of its opener. Its lock is dropped after the metadata and the
/// fast tier.
pub(crate) struct Opening {
    pub(crate) meta: Arc<Meta>,
    pub(crate) devices: Devices,
    pub(crate) role: Role,
    pub(crate) env: Env,
    pub(crate) options: Options,
}

impl Opening {
    /// Folder of the database.
    pub(super) fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Folder of its log.
    pub(super) fn log_dir(&self) -> PathBuf {
        log_dir(&self.env, self.dir())
    }

    /// Memory for caches.
    pub(super) fn cache_bytes(&self) -> usize {
        self.options.memory_budget_bytes / 4
    }
}

/// Role of an opener.
pub(crate) enum Role {
    /// Owns the database by this lock: repairs its files after a crash, and may write.
    Owner(Box<dyn Lock>),
    /// Changes no file; perhaps another process owns the database.
    Reader,
}

impl Role {
    pub(super) fn is_owner(&self) -> bool {
        matches!(self, Role::Owner(_))
    }

    /// The lock of an owner.
    pub(super) fn into_lock(self) -> Option<Box<dyn Lock>> {
        match self {
            Role::Owner(lock) => Some(lock),
            Role::Reader => None,
        }
    }
}

/// Parts of the devices that an opener uses.
pub(crate) struct Devices {
    pub(super) guard: Arc<Guard>,
    pub(super) tier: Option<Arc<OwnedTier>>,
    pub(super) bulk: Option<Arc<Watch>>,
    pub(super) reserves: Vec<Arc<Reserve>>,
    pub(super) fast_files: Arc<dyn Files>,
    pub(super) pin_files: PinnedChunkFiles,
    /// Files for writing runs of indexes: these do not use the reserved space.
    pub(super) run_files: Arc<dyn Files>,
}

impl Devices {
    /// Devices of an opener that is not the owner: plain files without layers.
    pub(crate) fn not_owned(env: &Env, dir: &Path) -> Devices {
        let root = env.media.pins_root(dir);
        Devices {
            guard: Guard::new(&env.threads),
            tier: None,
            bulk: None,
            reserves: Vec::new(),
            fast_files: Arc::clone(env.fast_files()),
            pin_files: PinnedChunkFiles::new(Arc::clone(env.pins_files()), root),
            run_files: Arc::clone(env.segment_files()),
        }
    }
}

/// Plan for the segments that the metadata name.
pub(crate) struct SegmentPlan {
    pub(crate) access: SegmentAccess,
    pub(crate) check: SegmentCheck,
    /// Bytes available in this copy; `None` = all.
    pub(crate) here: Option<Arc<dyn PresentRanges>>,
    /// Visible parts of partitions that are not shown as a whole.
    pub(crate) pieces: HashMap<SegmentId, Vec<ShownStretch>>,
    /// The cache of earlier openings of the same files; `None` = a new one.
    pub(crate) cache: Option<StoreCache>,
}

impl SegmentPlan {
    /// Segments that are shown as a whole, with a check of every file.
    pub(crate) fn full(access: SegmentAccess) -> SegmentPlan {
        SegmentPlan {
            access,
            check: SegmentCheck::Files,
            here: None,
            pieces: HashMap::new(),
            cache: None,
        }
    }
}

/// Access to the files of segments.
#[derive(Clone, Copy)]
pub(crate) enum SegmentAccess {
    /// Through the queue sets of the device; files are opened when they are read.
    Queued,
    /// Files stay open, as far as the limit allows, since an owner may remove them.
    StayOpen,
    /// Another object keeps the files, which are opened when they are read. There are no queue
    /// sets: the process that reads already has the device's queue sets.
    OpenedOnRead,
}

/// Check of segments before they are shown.
pub(crate) enum SegmentCheck {
    /// Each file exists, has its committed length and the expected header.
    Files,
    /// Already checked: the unreadable partitions.
    Checked(HashMap<SegmentId, Error>),
}

/// Plan for the records after the segments.
pub(crate) enum LogPlan<'a> {
    /// Records of the log.
    Log(Access<'a>),
    /// Records that arrived with a state: there is no log.
    Carried(CarriedRecords),
}

impl<'a> LogPlan<'a> {
    /// Access to the log and to the files beside it.
    pub(super) fn access(&self) -> Access<'a> {
        match self {
            LogPlan::Log(access) => *access,
            LogPlan::Carried(_) => Access::Reader(&|| Ok(())),
        }
    }
}

/// Records that arrived with the state of a database, in place of its log.
#[derive(Debug, Default)]
pub(crate) struct CarriedRecords {
    /// Deletes that are not carried out in every partition, by sequence.
    pub(crate) deletes: Vec<(Sequence, DeleteRecord)>,
    /// Records of the log after the state, by sequence.
    pub(crate) tail: Vec<TailRecord>,
    /// Cutoffs of data that the source no longer stores, by table, where such data is shown here.
    pub(crate) cuts: HashMap<TableId, Cutoff>,
    /// Partitions with missing rows.
    pub(crate) incomplete: HashSet<SegmentId>,
}
