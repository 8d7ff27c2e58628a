//! Changes the parts in the fast tier of a database, between two openings.
//!
//! Invariants: the log moves only when none of its records is needed, and its location changes with
//! one write of `DIR/tier`; files at the old location are removed after that. An interrupted change
//! has happened or not, and the next opening with the same request repeats it. Concurrency: holds
//! the locks of the database and of the tier. Failure: as an opening; kind `busy` when the log has
//! events that cannot be stored yet.

use crate::device::layout::{log_dir, meta_path};
use crate::device::tiers::{
    FastTier, Prepared, TierParts, TierRecord, absolute, is_same_folder, is_within, located,
    lock_fast, log_begun, of_another, path_in, same_set, same_time,
};
use crate::maintenance::flush::{leave_log, store_all};
use crate::metadata::owner;
use crate::metadata::tables::copy::look;
use crate::open::recover;
use crate::storage::fast_index::RepeatKind;
use crate::wal::{Access, replay};
use crate::{Error, ErrorKind, Options, Result};
use headwater_io::{Env, Files, NoThreads};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes the database in `options.dir` use a fast tier, another one, or other parts of it; `None` =
/// no tier any more. The database must not be open. Events in the log are stored before the log
/// moves. A new database gets its tier by [`Options::fast_dir`].
///
/// # Errors
/// `locked` when the database is open, `not_found` without a database, `tier` when the folder
/// belongs to another database or the present tier cannot be used, `corrupt`, `full`, `io`.
pub fn use_fast_tier(env: &Env, options: &Options, wanted: Option<&FastTier>) -> Result<()> {
    options.validate()?;
    let exists = env
        .index_files()
        .exists(&meta_path(&options.dir))
        .map_err(|e| Error::io("look for", &meta_path(&options.dir), e))?;
    if !exists {
        return Err(Error::not_found(format!(
            "{}: no database here (no meta.redb)",
            options.dir.display()
        )));
    }
    let is = is_now(env, &options.dir)?;
    let wanted = placement_of(wanted)?.named_as(&**env.fast_files(), &is)?;
    match is_so(&is, &wanted) {
        true => make_sure(env, &options.dir),
        false => change(env, options, &wanted),
    }
}

/// Accepts a database, or its fast tier, at its new location: [`Options::fast_dir`] names the tier.
/// Both must be of the same time.
///
/// # Errors
/// `tier` when the two do not belong together, or the database is a copy of one that still uses the
/// tier; `locked`, `io`.
pub fn adopt_fast_tier(env: &Env, options: &Options) -> Result<()> {
    let dir = absolute(&options.dir)?;
    let Some(fast) = &options.fast_dir else {
        return Err(Error::invalid("specify the folder of the fast tier"));
    };
    let fast = absolute(fast)?;
    let _lock = owner::take_lock(env, &options.dir)?;
    let Some(mut ours) = TierRecord::take_over(&*env.files, &options.dir)? else {
        return Err(Error::new(
            ErrorKind::Tier,
            format!("{}: this database has no fast tier", dir.display()),
        ));
    };
    let _fast_lock = lock_fast(env, &fast)?;
    let mut theirs = same_set(env, &dir, &ours, &fast)?;
    theirs.settle(&**env.fast_files(), &fast)?;
    same_time(&dir, &ours, &theirs, &fast)?;
    if !is_same_folder(&*env.files, &ours.bulk, &dir)?
        && TierRecord::read(&*env.files, &ours.bulk)?
            .is_some_and(|other| other.set == ours.set && !other.parts.is_empty())
    {
        return Err(Error::new(
            ErrorKind::Tier,
            format!(
                "{} is a copy of {}, which still exists and uses this tier: use backup and restore to create a second database",
                dir.display(),
                ours.bulk.display()
            ),
        ));
    }
    // The records of the tier last: until then the next opening reports again that an adoption is
    // needed.
    let token = env.chance.next_u64();
    (ours.token, ours.next) = (theirs.token, token);
    (ours.bulk, ours.fast) = (dir.clone(), fast.clone());
    ours.write(&*env.files, &options.dir)?;
    (theirs.token, theirs.next) = (token, token);
    (theirs.bulk, theirs.fast) = (dir, fast.clone());
    theirs.write(&*env.files, &fast)?;
    Ok(())
}

/// The parts to put in the fast tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierPlacement {
    pub(crate) fast: PathBuf,
    pub(crate) parts: TierParts,
}

impl TierPlacement {
    pub(crate) fn none() -> TierPlacement {
        TierPlacement {
            fast: PathBuf::new(),
            parts: TierParts::NONE,
        }
    }

    /// The same placement, with the already recorded name of the folder if it is the same folder:
    /// from here on names are compared.
    pub(crate) fn named_as(self, files: &dyn Files, is: &TierPlacement) -> Result<TierPlacement> {
        let has_folders = !self.parts.is_empty() && !is.fast.as_os_str().is_empty();
        if has_folders && is_same_folder(files, &is.fast, &self.fast)? {
            return Ok(TierPlacement {
                fast: is.fast.clone(),
                ..self
            });
        }
        Ok(self)
    }
}

pub(crate) fn placement_of(tier: Option<&FastTier>) -> Result<TierPlacement> {
    Ok(match tier {
        Some(tier) => TierPlacement {
            fast: absolute(&tier.folder)?,
            parts: tier.parts,
        },
        None => TierPlacement::none(),
    })
}

/// Before an opening: puts the tier settings of the options into effect.
pub(crate) fn settle(env: &Env, options: &Options) -> Result<()> {
    let Some(fast) = &options.fast_dir else {
        return Ok(());
    };
    let wanted = TierPlacement {
        fast: absolute(fast)?,
        parts: options.fast_parts,
    };
    let is = is_now(env, &options.dir)?;
    let wanted = wanted.named_as(&**env.fast_files(), &is)?;
    // The opening makes the present state durable.
    match is_so(&is, &wanted) {
        true => Ok(()),
        false => change(env, options, &wanted),
    }
}

fn is_now(env: &Env, dir: &Path) -> Result<TierPlacement> {
    let record = TierRecord::read(&*env.files, dir)?;
    Ok(
        record.map_or_else(TierPlacement::none, |record| TierPlacement {
            fast: record.fast,
            parts: record.parts,
        }),
    )
}

/// True when the records agree with the request, durably or not.
fn is_so(is: &TierPlacement, wanted: &TierPlacement) -> bool {
    is.parts == wanted.parts && (is.fast == wanted.fast || wanted.parts.is_empty())
}

/// Makes the records durable, in case the change that wrote them was interrupted.
fn make_sure(env: &Env, dir: &Path) -> Result<()> {
    let _lock = owner::take_lock(env, dir)?;
    let ours = TierRecord::take_over(&*env.files, dir)?;
    let Some(ours) = ours.filter(|record| !record.parts.is_empty()) else {
        return Ok(());
    };
    same_set(env, dir, &ours, &ours.fast)?;
    let _fast_lock = lock_fast(env, &ours.fast)?;
    TierRecord::take_over(&**env.fast_files(), &ours.fast).map(drop)
}

fn change(env: &Env, options: &Options, wanted: &TierPlacement) -> Result<()> {
    let dir = options.dir.as_path();
    let is = is_now(env, dir)?;
    let is_same_folder = is.fast == wanted.fast || wanted.parts.is_empty();
    let log_moves = is.parts.log != wanted.parts.log || is.parts.log && !is_same_folder;
    let meta = meta_path(dir);
    let exists = env
        .index_files()
        .exists(&meta)
        .map_err(|e| Error::io("look for", &meta, e))?;
    if log_moves && exists {
        // Closing leaves no needed record in the log.
        let alone = Env {
            threads: Arc::new(NoThreads),
            ..env.clone()
        };
        let as_it_is = Options {
            fast_dir: None,
            ..options.clone()
        };
        let (core, _) = recover::open(alone, as_it_is)?;
        store_all(&core)?;
        leave_log(&core)?;
    }
    env.files
        .create_dir_all(dir)
        .map_err(|e| Error::io("create", dir, e))?;
    let lock = owner::take_lock(env, dir)?;
    let meta_lock = owner::lock_meta(env, dir)?;
    let before = TierRecord::take_over(&*env.files, dir)?;
    let placed = located(env, dir)?;
    if log_moves && exists {
        require_nothing_needed(&placed, options)?;
    }
    if log_moves && is.parts.log {
        // A mirror that is not needed any more must not be at the new location of the log.
        remove_all(&**env.log_files(), &log_dir(env, dir))?;
    }
    if !wanted.parts.is_empty() {
        // `DIR/tier` last.
        let mut prepared = prepare(env, dir, before.as_ref(), wanted)?;
        prepared.ours.write(&*env.files, dir)?;
    } else if let Some(mut record) = before {
        record.parts = TierParts::NONE;
        record.next = record.token;
        record.write(&*env.files, dir)?;
    }
    // Files at the old location have no meaning from here on.
    if log_moves {
        remove_all(&**placed.log_files(), &log_dir(&placed, dir))?;
    }
    for what in RepeatKind::ALL {
        if what.is_in(is.parts) && !(what.is_in(wanted.parts) && is_same_folder) {
            what.clear(&**env.fast_files(), &is.fast)?;
        }
    }
    if !is.parts.is_empty() && is.fast != wanted.fast {
        clear(&**env.fast_files(), &is.fast)?;
    }
    drop((meta_lock, lock));
    Ok(())
}

/// Removes the contents of a tier that is not used any more: the file that names its database is
/// last.
pub(crate) fn clear(files: &dyn Files, fast: &Path) -> Result<()> {
    remove_all(files, &fast.join("log"))?;
    remove(files, &fast.join("reserve"))?;
    remove(files, &path_in(fast))?;
    files.sync_dir(fast).map_err(|e| Error::io("sync", fast, e))
}

/// Prepares the folder of the future tier, and locks it. `DIR/tier` does not name it yet.
pub(crate) fn prepare(
    env: &Env,
    dir: &Path,
    before: Option<&TierRecord>,
    wanted: &TierPlacement,
) -> Result<Prepared> {
    let files = env.fast_files();
    let fast = wanted.fast.as_path();
    let bulk = absolute(dir)?;
    let log = fast.join("log");
    // With a tier above the database, the log would be at the location of its copy.
    if is_within(&**files, &bulk, fast)? {
        return Err(Error::invalid(format!(
            "{}: the fast tier needs a folder of its own, on another device than the database",
            fast.display()
        )));
    }
    files
        .create_dir_all(&log)
        .map_err(|e| Error::io("create", &log, e))?;
    let lock = lock_fast(env, fast)?;
    let set = before.map_or_else(|| env.chance.next_u64(), |record| record.set);
    match TierRecord::read(&**files, fast)? {
        Some(found) if found.set == set => {}
        Some(found) if !is_same_folder(&*env.files, &found.bulk, &bulk)? => {
            return Err(of_another(&bulk, fast, &found));
        }
        // Not in use by a database, or by one in this folder that does not exist any more.
        _ => {
            let names = files.list(&log).map_err(|e| Error::io("list", &log, e))?;
            if let Some(name) = names.first() {
                return Err(Error::new(
                    ErrorKind::Tier,
                    format!(
                        "{} cannot become a fast tier, since it contains {name}: specify an empty folder",
                        log.display()
                    ),
                ));
            }
        }
    }
    // Files of an earlier use there are useless: `DIR/tier` records the location of the log.
    let in_use = before.filter(|record| !record.parts.is_empty() && record.fast == fast);
    if !in_use.is_some_and(|record| record.parts.log) {
        remove_all(&**files, &log)?;
    }
    let token = env.chance.next_u64();
    let mut record = TierRecord::new(set, token, wanted.parts, (&bulk, fast));
    // For a tier in use only the parts change, with one write: database and tier have its token
    // until an opening draws another one.
    if let Some(before) = in_use {
        (record.token, record.next) = (before.token, before.next);
        record.unsettled = before.unsettled;
    }
    let mut theirs = record.clone();
    if in_use.is_none() {
        theirs.write(&**files, fast)?;
    }
    Ok(Prepared {
        ours: record,
        theirs,
        lock,
    })
}

/// Fails when the log has events that are not in a segment: events of a partition that cannot be
/// read.
fn require_nothing_needed(env: &Env, options: &Options) -> Result<()> {
    let dir = options.dir.as_path();
    let log_dir = log_dir(env, dir);
    let ends = look(env, dir, |meta, _| {
        let replayed = replay(
            env.log_files(),
            &log_dir,
            options.log_file_size(),
            meta.log_needed()?.begun_up_to(log_begun(env)?),
            Access::Reader(&|| Ok(())),
            |_, _, _, _, _| Ok(()),
        )?;
        Ok(replayed.ends)
    })?;
    if ends.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Busy,
        format!(
            "{}: the log contains rows of an unreadable partition and cannot be moved: run `headwater repair` first",
            log_dir.display()
        ),
    ))
}

pub(crate) fn remove_all(files: &dyn Files, folder: &Path) -> Result<()> {
    let names = match files.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| Error::io("list", folder, e))?,
    };
    for name in &names {
        remove(files, &folder.join(name))?;
    }
    // Also when no log is left: the process that removed it may have been killed before this sync.
    files
        .sync_dir(folder)
        .map_err(|e| Error::io("sync", folder, e))
}

pub(crate) fn remove(files: &dyn Files, path: &Path) -> Result<()> {
    match files.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}
