//! Repair: makes a damaged database sound again, with all data that can still be read.
//!
//! 1 read everything and plan, in memory; 2 check the planned database as if it existed; 3 only
//! then, and only on request, write it to the medium. Damaged files are copied to `DIR/quarantine`
//! first and stay there.
//!
//! Invariants: data that could be read before is not lost; sequences stay the same; one commit of
//! the metadata makes the repair (if they are rebuilt: the writing of the file). Concurrency: needs
//! the lock of the owner. Failure: before that commit the database is unchanged; after it, it is
//! repaired. An interrupted repair must be run again; the next owner of the database first makes
//! its output durable ([`crate::metadata::pending_repairs`]), since it may look intact and vanish.

mod dangling;
mod freed;
mod indexes;
mod log;
mod mend;
mod metadata;
mod named_segments;
mod overlay;
mod plan;
mod rebuild;
mod save_log;
mod scan;
mod snapshots;
mod unfinished;

use crate::admin::check::{CheckReport, check};
use crate::common::error::Damage;
use crate::device::layout::{files_of, log_dir, meta_path, segment_dir};
use crate::device::tiers::{fast_tier, forget_fast_tier, is_unsettled, located, lock_fast};
use crate::metadata::owner;
use crate::metadata::pending_repairs::{self, Changed};
use crate::metadata::tables::copy::look;
use crate::metadata::tables::{Meta, SnapshotChange};
use crate::storage::fast_index::RepeatKind;
use crate::storage::segment::stub_name;
use crate::wal::FILE_HEADER_BYTES;
use crate::{Database, Error, Options, Result};
use headwater_io::{Env, File, Files, NoThreads, OpenMode};
use headwater_types::invariant::first_mut;
use plan::{PlannedMeta, RepairPlan};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Mode of [`repair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairMode {
    /// Reports the plan, without changes.
    DryRun,
    /// Carries out the plan.
    Act,
}

/// Damage, and the action for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairFinding {
    /// The damage.
    pub damage: Damage,
    /// The action of the repair.
    pub action: String,
}

impl fmt::Display for RepairFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.damage, self.action)
    }
}

/// Findings and actions of a repair, done or planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The damage. Empty = the database is sound.
    pub findings: Vec<RepairFinding>,
    /// Data that cannot be saved: rows and streams, as far as they are known.
    pub lost: Vec<String>,
    /// Files that are (or would be) saved in `DIR/quarantine`.
    pub quarantined: Vec<PathBuf>,
    /// The check of the database after the repair; for a dry run, of the planned database.
    pub after: CheckReport,
}

/// Repairs the database in `options.dir`, which must not be open. Handles damaged leaves and
/// footers, torn or missing log records, missing files and missing or damaged metadata; all
/// readable data stays. Damaged files are copied to `DIR/quarantine` before any change.
///
/// # Errors
/// `not_found` when there is no part of a database, `locked` when it is open, `invalid` when it was
/// written by another version, `full`, `io`.
pub fn repair(env: &Env, options: &Options, mode: RepairMode) -> Result<RepairReport> {
    options.validate()?;
    let env = &located(env, &options.dir)?;
    repair_placed(env, options, mode, false)
}

/// Repairs like [`repair`], a database whose fast tier is lost for good: from then on all of it is
/// in bulk, with the copy of the log that was made there ([`Options::log_mirror`]). The report
/// lists the losses with the tier.
///
/// # Errors
/// As [`repair`]; `invalid` when the database has no fast tier, or the tier exists.
pub fn repair_without_fast_tier(
    env: &Env,
    options: &Options,
    mode: RepairMode,
) -> Result<RepairReport> {
    options.validate()?;
    let dir = options.dir.as_path();
    let Some(tier) = fast_tier(env, dir)? else {
        return Err(Error::invalid(format!(
            "{}: this database has no fast tier",
            dir.display()
        )));
    };
    let is_unsettled = is_unsettled(env, dir)?;
    if located(env, dir).is_ok() {
        return Err(Error::invalid(format!(
            "the fast tier {} is present: use `headwater tier leave` to remove it without data loss",
            tier.folder.display()
        )));
    }
    if mode == RepairMode::Act {
        let lock = owner::take_lock(env, dir)?;
        forget_fast_tier(env, dir)?;
        drop(lock);
    }
    // The repair reports other damage of the metadata.
    let first = look(env, dir, |meta, _| meta.log_first_generation()).unwrap_or(0);
    let mirrored = log::newest_record(&**env.log_files(), &log_dir(env, dir), first)?;
    let is_log_lost = tier.parts.log && is_unsettled;
    let mut report = repair_placed(env, options, mode, is_log_lost)?;
    if tier.parts.log && (is_unsettled || !report.findings.is_empty()) {
        let since = match mirrored {
            Some(sequence) => format!(
                "after log record {}, the end of its copy on the bulk device (tier.log_mirror)",
                sequence.0
            ),
            None => "since the last flush".into(),
        };
        report.lost.insert(
            0,
            format!(
                "acknowledged data that was only in the log of the fast tier {}: rows, deletes and definitions {since}",
                tier.folder.display()
            ),
        );
    }
    Ok(report)
}

/// With `is_log_lost` there is a loss even if no record is missing: record numbers are reused, so
/// that for its copies the database becomes another one.
fn repair_placed(
    env: &Env,
    options: &Options,
    mode: RepairMode,
    is_log_lost: bool,
) -> Result<RepairReport> {
    let dir = options.dir.as_path();
    require_database(env, dir)?;
    let lock = owner::take_lock(env, dir)?;
    let meta_lock = owner::lock_meta(env, dir)?;
    let tier_lock = env.media.log_root.as_deref();
    let tier_lock = tier_lock.map(|folder| lock_fast(env, folder)).transpose()?;
    if mode == RepairMode::Act {
        pending_repairs::settle(env, dir)?;
    }
    let mut plan = RepairPlan::make(env, options)?;
    let mut report = std::mem::take(&mut plan.report);
    indexes::find(&mut report);
    let is_to_act = is_log_lost || !report.findings.is_empty();
    if !is_to_act || mode == RepairMode::DryRun {
        return Ok(report);
    }
    if let Some(tier) = fast_tier(env, dir)? {
        // The tier has copies of the segments before the repair.
        for what in RepeatKind::ALL {
            what.clear(&**env.fast_files(), &tier.folder)?;
        }
    }
    act(env, options, &plan, &report.quarantined)?;
    drop((tier_lock, meta_lock, lock));
    // Opening removes unnamed files, and closing leaves nothing to replay.
    let alone = Env {
        threads: Arc::new(NoThreads),
        ..env.clone()
    };
    Database::open_in(alone, options.clone())?.close()?;
    report.after = check(env.clone(), options.clone())?;
    Ok(report)
}

fn require_database(env: &Env, dir: &Path) -> Result<()> {
    let parts = [
        (env.index_files(), meta_path(dir)),
        (env.segment_files(), segment_dir(dir)),
        (env.log_files(), log_dir(env, dir)),
    ];
    for (files, path) in parts {
        if files
            .exists(&path)
            .map_err(|e| Error::io("look for", &path, e))?
        {
            return Ok(());
        }
    }
    Err(Error::not_found(format!(
        "{}: no database here (no meta.redb, log or segment)",
        dir.display()
    )))
}

/// The files that a plan changes or creates.
fn changed(plan: &RepairPlan) -> Vec<Changed> {
    let mut files = vec![Changed::Metadata];
    let log = plan.log.iter();
    files.extend(log.map(|(number, _)| Changed::Log(format!("{number}.log"))));
    files.extend(plan.patches.iter().map(|(id, patch)| {
        Changed::Segment(match patch.is_of_stub {
            true => stub_name(*id),
            false => format!("{}.seg", id.0),
        })
    }));
    files
}

/// Writes a plan to the medium.
fn act(env: &Env, options: &Options, plan: &RepairPlan, quarantined: &[PathBuf]) -> Result<()> {
    let dir = options.dir.as_path();
    let (log_dir, segment_dir) = (log_dir(env, dir), segment_dir(dir));
    let quarantine = dir.join("quarantine");
    let folders = [
        (&env.files, &quarantine),
        (env.log_files(), &log_dir),
        (env.segment_files(), &segment_dir),
    ];
    for (files, folder) in folders {
        files
            .create_dir_all(folder)
            .map_err(|e| Error::io("create", folder, e))?;
    }
    for path in quarantined {
        keep(&**files_of(env, dir, path), path, &*env.files, &quarantine)?;
    }
    sync_dir(&*env.files, &quarantine)?;
    pending_repairs::begin(env, dir, &changed(plan))?;
    put(env, options, plan)?;
    pending_repairs::end(env, dir)
}

/// Changes the files.
fn put(env: &Env, options: &Options, plan: &RepairPlan) -> Result<()> {
    let dir = options.dir.as_path();
    let (log_dir, segment_dir) = (log_dir(env, dir), segment_dir(dir));
    if matches!(plan.meta, PlannedMeta::Changed(_)) {
        // Before any segment is changed.
        indexes::forget_runs(&opened_meta(env, dir)?, &plan.dangling)?;
    }
    let files = &**env.segment_files();
    for (id, patch) in &plan.patches {
        let path = segment_dir.join(match patch.is_of_stub {
            true => stub_name(*id),
            false => format!("{}.seg", id.0),
        });
        let io = |e| Error::io("write", &path, e);
        let file = match patch.copy_of {
            None => files.open(&path, OpenMode::Write).map_err(io)?,
            Some(old) => {
                let old = segment_dir.join(format!("{}.seg", old.0));
                fresh_copy((files, &old), (files, &path))?
            }
        };
        if let Some(header) = &patch.header {
            file.write_all_at(0, header).map_err(io)?;
        }
        if let Some((at, tail)) = &patch.tail {
            file.set_len(*at).map_err(io)?;
            file.write_all_at(*at, tail).map_err(io)?;
        }
        file.sync_data().map_err(io)?;
    }
    sync_dir(files, &segment_dir)?;
    if let Some((number, content)) = &plan.log {
        let files = &**env.log_files();
        let path = log_dir.join(format!("{number}.log"));
        let io = |e| Error::io("write", &path, e);
        let file = files.open(&path, OpenMode::CreateNew).map_err(io)?;
        // The header last: it declares that the records after it replace the older files, and that
        // the name stays.
        let (header, records) = content
            .split_at_checked(FILE_HEADER_BYTES as usize)
            .ok_or_else(|| Error::internal("repair: a log file without a header"))?;
        file.write_all_at(FILE_HEADER_BYTES, records).map_err(io)?;
        file.sync_data().map_err(io)?;
        sync_dir(files, &log_dir)?;
        file.write_all_at(0, header).map_err(io)?;
        file.sync_data().map_err(io)?;
    }
    let files = &**env.index_files();
    let path = meta_path(dir);
    match &plan.meta {
        PlannedMeta::Changed(change) => {
            let meta = opened_meta(env, dir)?;
            if !plan.snapshots.is_empty() {
                meta.change_snapshots(&SnapshotChange {
                    forgotten: plan.snapshots.clone(),
                    ..SnapshotChange::default()
                })?;
            }
            meta.renewing(&env.chance).commit(change)
        }
        PlannedMeta::New(memory) => {
            remove_if_there(files, &path)?;
            let made = files
                .open(&path, OpenMode::CreateNew)
                .map_err(|e| Error::io("create", &path, e))
                .and_then(|file| {
                    // The name first: a file with contents has a durable name.
                    sync_dir(files, dir)?;
                    copy(&**memory, &path, &*file, &path)
                });
            // After a failed sync files look complete until the power fails: an opening must not
            // rely on them.
            made.map_err(|error| match remove_if_there(files, &path) {
                Ok(()) => error,
                Err(left) => Error::new(
                    error.kind(),
                    format!(
                        "{error}; remove the incomplete result, which could not be removed: {left}"
                    ),
                ),
            })
        }
    }
}

/// Opens the metadata for a change.
fn opened_meta(env: &Env, dir: &Path) -> Result<Meta> {
    let path = meta_path(dir);
    let files = env.index_files();
    let file = files
        .open(&path, OpenMode::Write)
        .map_err(|e| Error::io("open", &path, e))?;
    Meta::open(&path, file)?
        .ok_or_else(|| Error::internal("repair: the metadata changed during the repair"))
}

fn sync_dir(files: &dyn Files, dir: &Path) -> Result<()> {
    files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

fn remove_if_there(files: &dyn Files, path: &Path) -> Result<()> {
    match files.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

fn fresh_copy(
    (from_files, from): (&dyn Files, &Path),
    (to_files, to): (&dyn Files, &Path),
) -> Result<Arc<dyn File>> {
    // A leftover of an interrupted repair.
    remove_if_there(to_files, to)?;
    let source = from_files
        .open(from, OpenMode::Read)
        .map_err(|e| Error::io("open", from, e))?;
    let target = to_files
        .open(to, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", to, e))?;
    // The name first: a file with contents has a durable name.
    if let Some(folder) = to.parent() {
        sync_dir(to_files, folder)?;
    }
    copy(&*source, from, &*target, to)?;
    Ok(target)
}

fn copy(source: &dyn File, from: &Path, target: &dyn File, to: &Path) -> Result<()> {
    let len = source.len().map_err(|e| Error::io("read", from, e))?;
    let mut buffer = vec![0u8; 1 << 20];
    let mut offset = 0;
    while offset < len {
        let count = usize::try_from(len - offset)
            .unwrap_or(buffer.len())
            .min(buffer.len());
        let part = first_mut(&mut buffer, count, "bytes to copy");
        source
            .read_exact_at(offset, part)
            .map_err(|e| Error::io("read", from, e))?;
        target
            .write_all_at(offset, part)
            .map_err(|e| Error::io("write", to, e))?;
        offset += count as u64;
    }
    target.sync_data().map_err(|e| Error::io("sync", to, e))
}

/// Copies a file into quarantine under an unused name.
fn keep(
    files: &dyn Files,
    path: &Path,
    quarantine_files: &dyn Files,
    quarantine: &Path,
) -> Result<()> {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else {
        return Ok(());
    };
    let mut to = quarantine.join(name);
    let mut number = 1;
    while quarantine_files
        .exists(&to)
        .map_err(|e| Error::io("look for", &to, e))?
    {
        number += 1;
        to = quarantine.join(format!("{name}.{number}"));
    }
    fresh_copy((files, path), (quarantine_files, &to)).map(drop)
}
