//! Plan of an owner, which takes the locks, the fast tier and the reserves of a database.
//!
//! Failure: kind `locked` beside another owner, `not_found`, `corrupt`.

use super::Recovery;
use super::assembly::assemble;
use super::media::{reserve_space, watch_bulk};
use super::metadata::open_meta;
use super::plan::{Devices, LogPlan, Opening, OpeningPlan, Role, SegmentAccess, SegmentPlan};
use crate::core::Core;
use crate::device::layout::{folders, meta_path};
use crate::device::tiers;
use crate::memory::pins::PinnedChunkFiles;
use crate::metadata::owner::Owner;
use crate::metadata::pending_repairs;
use crate::wal::Access;
use crate::{Error, Options, Result};
use headwater_io::Env;
use std::path::Path;
use std::sync::Arc;

/// Opens the database in `options.dir`.
pub(crate) fn open(env: Env, options: Options) -> Result<(Core, Recovery)> {
    options.validate()?;
    require_database(&env, &options)?;
    create_folders(&env, &options.dir)?;
    assemble(plan(env, options)?)
}

/// Plans the opening of a database by its owner, and becomes the owner.
fn plan(mut env: Env, options: Options) -> Result<OpeningPlan<'static>> {
    let dir = options.dir.clone();
    let fast_files = Arc::clone(env.fast_files());
    let owner = Owner::of(&mut env, &dir)?;
    let tier = tiers::take(&mut env, &dir, &fast_files, &owner.guard)?;
    sync_folders(&env, &dir)?;
    pending_repairs::settle(&env, &dir)?;
    // Files of snapshots and indexes must not use the space that is reserved for acknowledged
    // writes.
    let pin_files = PinnedChunkFiles::new(Arc::clone(env.pins_files()), env.media.pins_root(&dir));
    let run_files = Arc::clone(env.segment_files());
    let reserves = reserve_space(&mut env, &options)?;
    let bulk = Some(watch_bulk(&mut env, tier.as_ref()));
    let (meta, owner) = open_meta(&env, &options, owner)?;
    let tier = tier.map(Arc::new);
    let in_tier = tier.clone().filter(|owned| owned.tier.parts.pins);
    Ok(OpeningPlan {
        opening: Opening {
            meta: Arc::new(meta),
            devices: Devices {
                guard: owner.guard,
                tier,
                bulk,
                reserves,
                fast_files,
                pin_files: pin_files.in_tier(in_tier),
                run_files,
            },
            role: Role::Owner(owner.lock),
            env,
            options,
        },
        segments: SegmentPlan::full(SegmentAccess::Queued),
        log: LogPlan::Log(Access::Owner),
        hashers: None,
        moment: None,
    })
}

/// Fails if a database is required and does not exist.
fn require_database(env: &Env, options: &Options) -> Result<()> {
    let meta_path = meta_path(&options.dir);
    let exists = env
        .index_files()
        .exists(&meta_path)
        .map_err(|e| Error::io("look for", &meta_path, e))?;
    if options.must_exist && !exists {
        return Err(Error::not_found(format!(
            "{}: no database here (no meta.redb)",
            options.dir.display()
        )));
    }
    Ok(())
}

/// Creates missing folders of a database.
fn create_folders(env: &Env, dir: &Path) -> Result<()> {
    for (files, folder) in folders(env, dir) {
        files
            .create_dir_all(&folder)
            .map_err(|e| Error::io("create", &folder, e))?;
    }
    Ok(())
}

/// Syncs the names in the folders of a database.
///
/// Names created by a killed process may not be on the medium yet; files that depend on them must
/// not vanish with them.
fn sync_folders(env: &Env, dir: &Path) -> Result<()> {
    for (files, folder) in folders(env, dir) {
        files
            .sync_dir(&folder)
            .map_err(|e| Error::io("sync", &folder, e))?;
    }
    Ok(())
}
