//! Determines the tier for an opening of a database, and checks that the database was closed with
//! it.

use super::owned::{BulkLog, OwnedTier, Records};
use super::record::{TierRecord, path_in};
use super::{FastTier, absolute, is_same_folder, is_within};
use crate::device::guard::{Guard, GuardedFiles};
use crate::{Error, ErrorKind, Result};
use headwater_io::{Env, Files, Lock, LockError};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Attempts of a reader to read two files that an owner may be writing.
const LOOKS: usize = 5;

/// The environment that resolves the locations of the parts of the database in `dir`. For readers
/// that change nothing, and for the owner of the locks.
pub(crate) fn located(env: &Env, dir: &Path) -> Result<Env> {
    let mut looks = 0;
    loop {
        looks += 1;
        let Some(ours) = in_use(env, dir)? else {
            return Ok(env.clone());
        };
        match its_own(env, dir, &ours) {
            // The owner may just have opened the database between the two reads.
            Err(error) if error.kind() == ErrorKind::Tier && looks < LOOKS => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(with_tier(env, &ours, Arc::clone(env.fast_files()))),
        }
    }
}

/// The environment with all parts of a tier in bulk. An owner's environment is that of its opening:
/// the log may have moved since.
pub(crate) fn without_tier(env: &Env) -> Env {
    let mut plain = env.clone();
    if plain.media.log_root.take().is_some() {
        plain.media.log = None;
    }
    if plain.media.pins_root.take().is_some() {
        plain.media.pins = None;
    }
    plain
}

/// For the owner, which has the lock of `dir`: takes the lock of its fast tier too, and sets a new
/// token in both. `fast_files` are the files of the tier's folder, without the guard.
pub(crate) fn take(
    env: &mut Env,
    dir: &Path,
    fast_files: &Arc<dyn Files>,
    guard: &Arc<Guard>,
) -> Result<Option<OwnedTier>> {
    // Also when the record names no tier: another process may just have left one.
    let ours = TierRecord::take_over(&*env.files, dir)?;
    let Some(mut ours) = ours.filter(|record| !record.parts.is_empty()) else {
        return Ok(None);
    };
    let folder = ours.fast.clone();
    same_set(env, dir, &ours, &folder)?;
    let lock = lock_fast(env, &folder)?;
    its_own(env, dir, &ours)?;
    let Some(mut theirs) = TierRecord::take_over(&**fast_files, &folder)? else {
        return Err(not_there(dir, &ours, &folder));
    };
    let written = Arc::default();
    let files: Arc<dyn Files> = Arc::new(GuardedFiles::new(fast_files, guard, &written));
    let bulk_log = BulkLog::of(env, dir);
    if is_within(&**fast_files, dir, &folder)? {
        return Err(Error::internal(format!(
            "{}: the copy of a fast tier's log must not be in the folder of the log itself",
            bulk_log.dir.display()
        )));
    }
    ours.token = theirs.token;
    // From now on acknowledged rows may be in the tier alone.
    ours.unsettled |= ours.parts.log;
    ours.next = env.chance.next_u64();
    ours.write(&*env.files, dir)?;
    (theirs.token, theirs.next, theirs.parts) = (ours.next, ours.next, ours.parts);
    theirs.write(&*files, &folder)?;
    ours.token = ours.next;
    ours.write(&*env.files, dir)?;
    *env = with_tier(env, &ours, files);
    let tier = FastTier {
        folder,
        parts: ours.parts,
    };
    Ok(Some(OwnedTier {
        tier,
        bulk_log,
        written,
        set: ours.set,
        files: Arc::clone(fast_files),
        dir: dir.to_owned(),
        records: Arc::new(Mutex::new(Records { ours, theirs })),
        _lock: Arc::new(lock),
    }))
}

fn in_use(env: &Env, dir: &Path) -> Result<Option<TierRecord>> {
    let record = TierRecord::read(&*env.files, dir)?;
    Ok(record.filter(|record| !record.parts.is_empty()))
}

fn with_tier(env: &Env, record: &TierRecord, files: Arc<dyn Files>) -> Env {
    let mut env = env.clone();
    if record.parts.log {
        env.media.log = Some(Arc::clone(&files));
        env.media.log_root = Some(record.fast.clone());
    }
    if record.parts.pins {
        env.media.pins = Some(files);
        env.media.pins_root = Some(record.fast.clone());
    }
    env
}

/// The record of the tier that `ours` names, if the database was closed with it.
fn its_own(env: &Env, dir: &Path, ours: &TierRecord) -> Result<TierRecord> {
    let folder = ours.fast.as_path();
    let theirs = same_set(env, dir, ours, folder)?;
    let here = absolute(dir)?;
    let is_here = |folder: &Path| is_same_folder(&*env.files, folder, &here);
    let is_theirs_here = is_here(&theirs.bulk)?;
    let is_ours = is_theirs_here
        && is_here(&ours.bulk)?
        && is_same_folder(&**env.fast_files(), &theirs.fast, &ours.fast)?;
    if !is_ours {
        let was = if is_theirs_here {
            &ours.bulk
        } else {
            &theirs.bulk
        };
        return Err(Error::new(
            ErrorKind::Tier,
            format!(
                "the fast tier {} belongs to a database in {}, and this one is in {}: if it was moved, run `headwater tier adopt`; to copy a database, use backup and restore",
                folder.display(),
                was.display(),
                here.display()
            ),
        ));
    }
    same_time(&here, ours, &theirs, folder)?;
    Ok(theirs)
}

/// The record of the tier in `folder`, if it belongs to the database.
pub(crate) fn same_set(
    env: &Env,
    dir: &Path,
    ours: &TierRecord,
    folder: &Path,
) -> Result<TierRecord> {
    let Some(theirs) = TierRecord::read(&**env.fast_files(), folder)? else {
        return Err(not_there(dir, ours, folder));
    };
    if theirs.set != ours.set {
        return Err(of_another(dir, folder, &theirs));
    }
    Ok(theirs)
}

fn not_there(dir: &Path, ours: &TierRecord, folder: &Path) -> Error {
    let holds = match ours.parts.log {
        true => "it contains acknowledged rows",
        false => "it contains no rows that the database lacks",
    };
    Error::new(
        ErrorKind::Tier,
        format!(
            "the fast tier of {} is missing (no {}), and {holds}: reconnect its device; if it is in another folder now, run `headwater tier adopt`; if it is lost for good, `headwater repair --fast-tier-lost` reports what is lost with it",
            dir.display(),
            path_in(folder).display()
        ),
    )
}

pub(crate) fn of_another(dir: &Path, folder: &Path, theirs: &TierRecord) -> Error {
    Error::new(
        ErrorKind::Tier,
        format!(
            "the fast tier {} belongs to the database in {}, not to {}: specify another folder",
            folder.display(),
            theirs.bulk.display(),
            dir.display()
        ),
    )
}

/// Fails when one of the two was restored from another time.
pub(crate) fn same_time(
    dir: &Path,
    ours: &TierRecord,
    theirs: &TierRecord,
    folder: &Path,
) -> Result<()> {
    if theirs.token == ours.token || theirs.token == ours.next {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Tier,
        format!(
            "the fast tier {} and the database in {} do not match: one of them was copied or restored without the other; restore the matching other one, or restore the database from a backup",
            folder.display(),
            dir.display()
        ),
    ))
}

/// Locks the folder of a fast tier.
pub(crate) fn lock_fast(env: &Env, folder: &Path) -> Result<Box<dyn Lock>> {
    let path = folder.join("lock");
    let owner = format!("pid {}", std::process::id());
    env.fast_files()
        .lock(&path, &owner)
        .map_err(|error| match error {
            LockError::Io(error) => Error::io("lock", &path, error),
            held => Error::new(
                ErrorKind::Locked,
                format!(
                    "the fast tier {} is in use ({held}): stop the process that uses it first",
                    folder.display()
                ),
            ),
        })
}
