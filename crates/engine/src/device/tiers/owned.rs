//! The fast tier of an open database, and its owner's records of the log there.
//!
//! Invariants: a log file of the tier accepts records only after the tier's own file records its
//! start; this requires no write to bulk. `DIR/tier` records that the log may have records that
//! bulk does not, from before the first record until the database was closed with an empty log.
//! Concurrency: one lock, held while a record of the tier is written; no other lock is taken under
//! it. Failure: as any write; the previous record stays.

use super::record::TierRecord;
use super::{FastTier, TierParts};
use crate::Result;
use crate::device::layout::bulk_log_dir;
use headwater_io::{Env, Files, Lock};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Location of the log without the tier.
#[derive(Clone, Debug)]
pub(crate) struct BulkLog {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) dir: PathBuf,
}

/// A folder that is prepared as a fast tier: the new content of `DIR/tier`, the content of its own
/// file, and its lock.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) ours: TierRecord,
    pub(crate) theirs: TierRecord,
    pub(crate) lock: Box<dyn Lock>,
}

impl BulkLog {
    /// For the database in `dir`, also if the environment already locates its log in the tier.
    pub(super) fn of(env: &Env, dir: &Path) -> BulkLog {
        let is_placed = env.media.log_root.is_some();
        let files = if is_placed {
            &env.files
        } else {
            env.log_files()
        };
        BulkLog {
            files: Arc::clone(files),
            dir: bulk_log_dir(dir),
        }
    }
}

/// Contents of `DIR/tier` and of the tier's own file.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) ours: TierRecord,
    pub(super) theirs: TierRecord,
}

/// The fast tier of an open database.
#[derive(Debug)]
pub(crate) struct OwnedTier {
    pub(crate) tier: FastTier,
    pub(crate) bulk_log: BulkLog,
    /// Bytes written to the tier since opening.
    pub(crate) written: Arc<AtomicU64>,
    /// The number of the set.
    pub(crate) set: u64,
    /// The tier's files without a guard and without a reserve: for operations that may fail without
    /// harm.
    pub(crate) files: Arc<dyn Files>,
    pub(super) dir: PathBuf,
    pub(super) records: Arc<Mutex<Records>>,
    pub(super) _lock: Arc<Box<dyn Lock>>,
}

impl OwnedTier {
    /// Takes a tier into use for the open database in `dir`. `files` are the files of its folder,
    /// neither guarded nor with a reserve.
    pub(crate) fn begun(
        files: &Arc<dyn Files>,
        prepared: Prepared,
        dir: &Path,
        bulk_log: BulkLog,
    ) -> OwnedTier {
        let Prepared { ours, theirs, lock } = prepared;
        OwnedTier {
            tier: FastTier {
                folder: ours.fast.clone(),
                parts: ours.parts,
            },
            bulk_log,
            written: Arc::default(),
            set: ours.set,
            files: Arc::clone(files),
            dir: dir.to_owned(),
            records: Arc::new(Mutex::new(Records { ours, theirs })),
            _lock: Arc::new(lock),
        }
    }

    /// The same tier with other parts.
    pub(crate) fn with_parts(&self, parts: TierParts) -> OwnedTier {
        OwnedTier {
            tier: FastTier {
                folder: self.tier.folder.clone(),
                parts,
            },
            bulk_log: self.bulk_log.clone(),
            written: Arc::clone(&self.written),
            set: self.set,
            files: Arc::clone(&self.files),
            dir: self.dir.clone(),
            records: Arc::clone(&self.records),
            _lock: Arc::clone(&self._lock),
        }
    }

    /// The content of `DIR/tier`, present or planned, with the parts of this one.
    pub(crate) fn ours(&self) -> TierRecord {
        TierRecord {
            parts: self.tier.parts,
            ..self.records.lock().ours.clone()
        }
    }

    /// Notes the present content of `DIR/tier`.
    pub(crate) fn note_named(&self, record: TierRecord) {
        self.records.lock().ours = record;
    }

    /// Records in the tier that its log files up to this generation were started: from now on they
    /// must exist for as long as they are needed. `files` are the files of the tier.
    pub(crate) fn note_log_begun(&self, files: &dyn Files, generation: u64) -> Result<()> {
        let mut records = self.records.lock();
        if generation <= records.theirs.begun {
            return Ok(());
        }
        // Noted after success: a failed write proves nothing.
        let mut theirs = records.theirs.clone();
        theirs.begun = generation;
        theirs.write(files, &self.tier.folder)?;
        records.theirs = theirs;
        Ok(())
    }

    /// Records in bulk that all records of the log are in bulk too. `files` are the files of `DIR`.
    pub(crate) fn note_settled(&self, files: &dyn Files) -> Result<()> {
        let mut records = self.records.lock();
        if !records.ours.unsettled {
            return Ok(());
        }
        let mut ours = records.ours.clone();
        ours.unsettled = false;
        ours.write(files, &self.dir)?;
        records.ours = ours;
        Ok(())
    }
}

/// Log files up to this generation were started in the fast tier, according to the tier itself; 0
/// without one. For an environment that resolves the location of each part.
pub(crate) fn log_begun(env: &Env) -> Result<u64> {
    let Some(folder) = &env.media.log_root else {
        return Ok(0);
    };
    let record = TierRecord::read(&**env.log_files(), folder)?;
    Ok(record.map_or(0, |record| record.begun))
}
