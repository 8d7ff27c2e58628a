//! Tiers: a small fast medium beside the large one of a database, and the parts on it.
//!
//! A database knows its fast tier by `DIR/tier`, the tier knows its database by the file of that
//! name in its own folder ([`record`]). Both have the same number of the set, and a token that is
//! drawn again at each opening: it reveals a copy of one of them, or one that was restored from an
//! older time. Both name both folders, so that neither is used from a clone by mistake; folders are
//! compared independently of the path used to reach them.
//!
//! Invariants: `DIR/tier` decides; it is written last when a tier is taken into use, and first when
//! it is left. The log changes its location only when none of its records is needed. The metadata
//! and the segments stay in bulk. Concurrency: a change of the layout (`relocate`) and an opening
//! of the database take the locks of both folders. Failure: kind `tier` when the fast tier is
//! missing, of another database, or of another time; the database is not opened then, since
//! acknowledged rows may be in the tier.

mod opening;
mod owned;
mod record;

pub use record::TierParts;
#[cfg(fuzzing)]
pub(crate) use record::fuzz_record;

pub(crate) use opening::{located, lock_fast, of_another, same_set, same_time, take, without_tier};
pub(crate) use owned::{BulkLog, OwnedTier, Prepared, log_begun};
pub(crate) use record::{TierRecord, path_in};

use crate::{Error, Result};
use headwater_io::{Env, Files};
use std::path::{Path, PathBuf};

/// A fast tier as a database uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastTier {
    /// Its folder.
    pub folder: PathBuf,
    /// The parts in the fast tier.
    pub parts: TierParts,
}

/// Returns the fast tier that a database uses, if it has one, even if its folder is missing.
///
/// # Errors
/// `invalid` for a record of another version, `io`.
pub fn fast_tier(env: &Env, dir: &Path) -> Result<Option<FastTier>> {
    let record = TierRecord::read(&*env.files, dir)?;
    Ok(record.filter(|r| !r.parts.is_empty()).map(|r| FastTier {
        folder: r.fast,
        parts: r.parts,
    }))
}

/// True when the log of a database in the fast tier may have records that bulk does not: since its
/// last opening it was not closed, or not with all events stored.
pub(crate) fn is_unsettled(env: &Env, dir: &Path) -> Result<bool> {
    let record = TierRecord::read(&*env.files, dir)?;
    Ok(record.is_some_and(|record| record.parts.log && record.unsettled))
}

/// Abandons a lost fast tier: from now on all of the database is in bulk. Data that only the tier
/// had is lost; a repair reports it.
pub(crate) fn forget_fast_tier(env: &Env, dir: &Path) -> Result<()> {
    let Some(mut record) = TierRecord::read(&*env.files, dir)? else {
        return Ok(());
    };
    // If the tier reappears, it belongs to another database, and does not change.
    record.set = env.chance.next_u64();
    record.parts = TierParts::NONE;
    record.write(&*env.files, dir)
}

/// True when two paths lead to the same folder.
pub(crate) fn is_same_folder(files: &dyn Files, a: &Path, b: &Path) -> Result<bool> {
    files
        .is_same_dir(a, b)
        .map_err(|e| Error::io("look for", a, e))
}

/// Maximum depth of a path: a system accepts names of 4,096 bytes.
const DEPTH_MAX: usize = 2048;

/// True when a folder is another one, or is inside it.
pub(crate) fn is_within(files: &dyn Files, folder: &Path, above: &Path) -> Result<bool> {
    let mut at = folder.to_owned();
    for _ in 0..DEPTH_MAX {
        if is_same_folder(files, &at, above)? {
            return Ok(true);
        }
        let next = at.join("..");
        if is_same_folder(files, &next, &at)? {
            // The root.
            return Ok(false);
        }
        at = next;
    }
    Ok(false)
}

/// A folder by a name that does not depend on the working directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io("name", path, e))
}
