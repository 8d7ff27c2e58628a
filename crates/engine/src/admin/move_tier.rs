//! Changes the parts in the fast tier of a database while it is open.
//!
//! Copies of segments in the tier are made in the background, or removed. Rows that snapshots keep
//! go to the new location from then on; rows stored earlier are not moved until those snapshots
//! end. The log moves when none of its records is needed: its rows are stored while writers go on,
//! then batches wait until the remaining rows are stored, the new location is named, and the next
//! record goes there.
//!
//! Invariants: the layout changes with one write of `DIR/tier`, at which the log has no needed
//! record in either location; so after a crash all rows are in segments, whichever location is
//! used. Files at the old location are removed after that. Concurrency: one change at a time.
//! Batches wait while the last rows are stored, all others no longer than for a group of the log.
//! Failure: before `DIR/tier` is written the layout does not change, and the error is returned; if
//! that write fails it is unknown which layout a later opening finds, and the log latches. Files
//! that cannot be removed afterwards are reported in the log.

use crate::core::{Core, Placed};
use crate::device::guard::GuardedFiles;
use crate::device::layout::{bulk_log_dir, log_dir};
use crate::device::reserve::{Reserve, ReservedFiles};
use crate::device::tiers::{BulkLog, FastTier, OwnedTier, TierParts, TierRecord, without_tier};
use crate::maintenance::flush::{store_all, store_all_alone};
use crate::maintenance::jobs;
use crate::maintenance::relocate::{
    TierPlacement, clear, placement_of, prepare, remove, remove_all,
};
use crate::open::recover::{announcer, fast_index_config};
use crate::storage::fast_index::{FastIndex, RepeatKind};
use crate::storage::segment::named;
use crate::wal::mirror::Mirror;
use crate::wal::{Moved, StartRecorder};
use crate::{Database, Error, ErrorKind, Result};
use headwater_io::{Env, Files, Media};
use parking_lot::{MutexGuard, RwLockWriteGuard};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum attempts to store the remaining rows before `busy` is reported.
const ROUNDS: usize = 16;

impl Database {
    /// Makes the open database use a fast tier, another one, or other parts of it; `None` = no tier
    /// any more. Reads go on. Writes go on while the log to move is stored, and wait while its last
    /// rows are. When this returns every later opening finds the new layout; after an earlier
    /// crash, one of the two. Copies of segments in the tier are made in the background.
    ///
    /// ```
    /// use headwater_engine::{Database, FastTier, Options};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let tier = FastTier { folder: dir.path().join("fast"), parts: "log,newest".parse()? };
    /// db.move_tier(Some(&tier))?;
    /// assert_eq!(db.fast_tier(), Some(tier));
    /// db.move_tier(None)?;
    /// assert_eq!(db.fast_tier(), None);
    /// db.close()?;
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `tier` when the folder belongs to another database or is not empty, `locked` when another
    /// process uses it, `full` without space for the log there, `invalid` for a folder that cannot
    /// be a tier, `busy` when the log has events that cannot be stored, `closed`, `io`. The layout
    /// does not change then; after an error of `DIR/tier` itself the database refuses writes, and
    /// the next opening finds which of the two layouts is in force.
    pub fn move_tier(&self, wanted: Option<&FastTier>) -> Result<()> {
        move_tier(self.own_core()?, wanted)
    }
}

fn move_tier(core: &Core, wanted: Option<&FastTier>) -> Result<()> {
    let _alone = core.placing.begin_change();
    core.log.check()?;
    let wanted = placement_of(wanted.filter(|tier| !tier.parts.is_empty()))?;
    let before = core.placing.now();
    let current = before
        .tier
        .as_ref()
        .map_or_else(TierPlacement::none, |owned| TierPlacement {
            fast: owned.tier.folder.clone(),
            parts: owned.tier.parts,
        });
    let target = wanted.named_as(&**core.placing.fast_files(), &current)?;
    let is_same_folder = current.fast == target.fast || target.parts.is_empty();
    if current.parts == target.parts && is_same_folder {
        return Ok(());
    }
    let media = &core.env.media;
    if media.log.is_some() && media.log_root.is_none()
        || media.pins.is_some() && media.pins_root.is_none()
    {
        return Err(Error::invalid(
            "the environment already places the log or the pins on separate devices: a fast tier cannot be added while the database is open",
        ));
    }
    let change = Change {
        core,
        before: &before,
        current,
        target,
        is_same_folder,
    };
    change.make()
}

/// A change of the layout.
struct Change<'a> {
    core: &'a Core,
    before: &'a Placed,
    current: TierPlacement,
    target: TierPlacement,
    is_same_folder: bool,
}

/// The future tier.
struct NewTier {
    tier: Option<Arc<OwnedTier>>,
    /// The new content of `DIR/tier`.
    record: Option<TierRecord>,
    placed: Placed,
    /// The copies of segments that the tier will have, and did not have.
    repeats: Vec<(RepeatKind, Arc<FastIndex>)>,
}

impl Change<'_> {
    fn log_moves(&self) -> bool {
        self.current.parts.log != self.target.parts.log
            || self.current.parts.log && !self.is_same_folder
    }

    fn pins_move(&self) -> bool {
        let (is, wanted) = (self.current.parts.pins, self.target.parts.pins);
        is != wanted || is && !self.is_same_folder
    }

    /// True when copies of segments of a kind do not change.
    fn stays(&self, what: RepeatKind) -> bool {
        self.is_same_folder && what.is_in(self.current.parts) && what.is_in(self.target.parts)
    }

    fn make(&self) -> Result<()> {
        let new = self.prepare()?;
        let named = match self.log_moves() {
            true => self.move_log(&new),
            false => self
                .name(&new)
                .map(|()| self.core.placing.set(new.placed.clone())),
        };
        if let Err(error) = named {
            if self.core.log.check_failure().is_ok() {
                self.give_up()?;
            }
            return Err(error);
        }
        // From here on the change has happened.
        if self.pins_move() {
            let env = &new.placed.env;
            let root = env.media.pins_root(&self.core.options.dir);
            let mut pins = self.core.pin_files.lock();
            let tier = new.tier.clone().filter(|_| self.target.parts.pins);
            *pins = pins.moved(env.pins_files(), root, tier);
        }
        for what in RepeatKind::ALL {
            if !self.stays(what)
                && let Some(old) = self.core.store.repeats().set(what, None)
            {
                old.retire();
            }
        }
        for (what, repeated) in &new.repeats {
            self.take_up(*what, repeated)?;
        }
        if let Err(error) = self.leave() {
            tracing::warn!(%error, "cannot remove the old files after a change of the fast tier");
        }
        self.core.signals.wake_workers();
        tracing::info!(
            parts = %self.target.parts,
            folder = %self.target.fast.display(),
            "changed the fast tier"
        );
        Ok(())
    }

    /// Prepares everything for the new layout, without changing the present one.
    fn prepare(&self) -> Result<NewTier> {
        let plain = without_tier(&self.core.env);
        let mut reserves = self.before.reserves.clone();
        let old = self.before.tier.as_deref();
        if let Some(old) = old {
            let stays = self.is_same_folder && self.target.parts.log;
            reserves.retain(|reserve| stays || !reserve.is_in(&old.tier.folder));
        }
        if self.target.parts.is_empty() {
            let record = old.map(|owned| TierRecord {
                parts: TierParts::NONE,
                unsettled: false,
                ..owned.ours()
            });
            let placed = Placed {
                env: plain,
                tier: None,
                reserves,
                mirror: None,
            };
            return Ok(NewTier {
                tier: None,
                record,
                placed,
                repeats: Vec::new(),
            });
        }
        let tier = Arc::new(self.tier(&plain, old)?);
        self.with_tier(&plain, tier, reserves)
            .inspect_err(|_| self.undo())
    }

    /// The requested tier, whose folder belongs to this database from now on.
    fn tier(&self, plain: &Env, old: Option<&OwnedTier>) -> Result<OwnedTier> {
        let dir = self.core.options.dir.as_path();
        let raw = self.core.placing.fast_files();
        Ok(match old.filter(|_| self.is_same_folder) {
            Some(owned) => owned.with_parts(self.target.parts),
            None => {
                let env = Env {
                    media: Media {
                        fast: Some(Arc::clone(raw)),
                        ..plain.media.clone()
                    },
                    ..plain.clone()
                };
                let before = TierRecord::read(&*plain.files, dir)?;
                let prepared = prepare(&env, dir, before.as_ref(), &self.target)?;
                let bulk_log = BulkLog {
                    files: Arc::clone(&plain.files),
                    dir: bulk_log_dir(dir),
                };
                OwnedTier::begun(raw, prepared, dir, bulk_log)
            }
        })
    }

    /// The layout with the tier.
    fn with_tier(
        &self,
        plain: &Env,
        tier: Arc<OwnedTier>,
        mut reserves: Vec<Arc<Reserve>>,
    ) -> Result<NewTier> {
        let core = self.core;
        let mut record = tier.ours();
        // From then on acknowledged rows may be in the tier alone.
        record.unsettled = self.target.parts.log;
        let env = self.relocated_env(plain, &tier, &mut reserves)?;
        let mut repeats = Vec::new();
        for what in RepeatKind::ALL
            .into_iter()
            .filter(|what| !self.stays(*what))
        {
            let place = fast_index_config(what, (&env, &core.options), &tier, &core.guard);
            if let Some(place) = place {
                let none = std::iter::empty();
                repeats.push((what, Arc::new(FastIndex::open(place, none)?)));
            }
        }
        let placed = Placed {
            env,
            tier: Some(Arc::clone(&tier)),
            reserves,
            mirror: self.before.mirror.clone().filter(|_| !self.log_moves()),
        };
        Ok(NewTier {
            tier: Some(tier),
            record: Some(record),
            placed,
            repeats,
        })
    }

    /// The environment with the log and pins at their new locations.
    fn relocated_env(
        &self,
        plain: &Env,
        tier: &OwnedTier,
        reserves: &mut Vec<Arc<Reserve>>,
    ) -> Result<Env> {
        let core = self.core;
        let parts = self.target.parts;
        let folder = &tier.tier.folder;
        let mut env = plain.clone();
        let guarded: Arc<dyn Files> =
            Arc::new(GuardedFiles::new(&tier.files, &core.guard, &tier.written));
        let mut log_files = Arc::clone(&guarded);
        if parts.log && !self.log_moves() {
            log_files = Arc::clone(self.before.env.log_files());
        } else if parts.log {
            let reserve = space_for_log(core, &guarded, folder)?;
            if let Some(reserve) = reserve {
                log_files = Arc::new(ReservedFiles {
                    files: guarded,
                    reserve: Arc::clone(&reserve),
                });
                reserves.push(reserve);
            }
        }
        if parts.log {
            env.media.log = Some(Arc::clone(&log_files));
            env.media.log_root = Some(folder.clone());
        }
        if parts.pins {
            // Files of snapshots must not use reserved space.
            env.media.pins = Some(Arc::new(GuardedFiles::new(
                &tier.files,
                &core.guard,
                &tier.written,
            )));
            env.media.pins_root = Some(folder.clone());
        }
        Ok(env)
    }

    /// Puts the layout of the new record into force, for every opening from now on.
    fn name(&self, new: &NewTier) -> Result<()> {
        let core = self.core;
        let Some(mut record) = new.record.clone() else {
            return Ok(());
        };
        record
            .write(&*core.env.files, &core.options.dir)
            .inspect_err(|error| core.log.latch(error.clone()))?;
        if let Some(tier) = &new.tier {
            tier.note_named(record);
        }
        Ok(())
    }

    fn move_log(&self, new: &NewTier) -> Result<()> {
        let core = self.core;
        let (old, now) = (&self.before.env, &new.placed.env);
        let dir = core.options.dir.as_path();
        let to = log_dir(now, dir);
        let files = now.log_files();
        if !self.target.parts.log {
            make_folder(&**files, &to, dir)?;
        }
        // Most rows while writers go on.
        store_all(core)?;
        core.log.leave_file()?;
        jobs::commit_log_cut(core)?;
        let (_no_compaction, _held_back) = writers_wait(core);
        for _ in 0..ROUNDS {
            store_all_alone(core)?;
            core.log.leave_file()?;
            jobs::commit_log_cut(core)?;
            let make_known: StartRecorder = announcer(now, &core.meta, new.tier.as_ref());
            let moved = core.log.move_to((files, &to), make_known, || {
                // A copy that is not needed any more must not be at the new location of the log.
                if let Some(mirror) = &self.before.mirror {
                    mirror.end();
                }
                remove_all(&**files, &to)?;
                self.name(new)?;
                core.placing.set(new.placed.clone());
                Ok(())
            })?;
            if moved == Moved::Yes {
                if let Some(watch) = &core.bulk {
                    watch.set_on(self.target.parts.log);
                }
                if let Err(error) = remove_all(&**old.log_files(), &log_dir(old, dir)) {
                    tracing::warn!(%error, "cannot remove unneeded log files");
                }
                self.mirror(new);
                return Ok(());
            }
        }
        Err(Error::new(
            ErrorKind::Busy,
            "the log contains rows that cannot be flushed now, such as those of an unreadable partition: the log is not moved",
        ))
    }

    /// Starts the copy of the log, if configured. The log may have moved before.
    fn mirror(&self, new: &NewTier) {
        let placed = &new.placed;
        match self.begun_mirror(placed) {
            Ok(mirror) => self.core.placing.set(Placed {
                mirror,
                ..placed.clone()
            }),
            // No copy is configured.
            Err(error) => {
                tracing::warn!(%error, "cannot remove an older copy of the log");
            }
        }
    }

    fn begun_mirror(&self, placed: &Placed) -> Result<Option<Arc<Mirror>>> {
        let core = self.core;
        let first_needed = core.commits.log_generation();
        let mirror = Mirror::of(placed.tier.as_deref(), &placed.env, &core.options)?;
        if let Some(mirror) = &mirror {
            mirror.begin(&core.log, first_needed)?;
        }
        Ok(mirror.map(Arc::new))
    }

    /// Adds copies to the tier: now by name, the bytes in the background.
    fn take_up(&self, what: RepeatKind, repeated: &Arc<FastIndex>) -> Result<()> {
        let core = self.core;
        core.store.repeats().set(what, Some(Arc::clone(repeated)));
        for index in core.shards.indices() {
            let shard = core.shards.get(index)?;
            // No job names or removes a segment meanwhile.
            let _stepping = shard.stepping.lock();
            let partitions = Arc::clone(&shard.state.lock().partitions);
            for partition in partitions.all() {
                repeated.named(partition.id(), &named(&partition.record));
            }
        }
        Ok(())
    }

    /// Removes the remains of a tier that is not used any more.
    fn leave(&self) -> Result<()> {
        if self.current.parts.is_empty() || self.current.fast == self.target.fast {
            return Ok(());
        }
        clear(&**self.core.placing.fast_files(), &self.current.fast)
    }

    /// Keeps the layout: removes prepared files, and continues the copy of the log.
    fn give_up(&self) -> Result<()> {
        self.undo();
        if let Some(mirror) = &self.before.mirror {
            mirror.end();
            let before = self.before.clone();
            let mirror = self.begun_mirror(&before)?;
            self.core.placing.set(Placed { mirror, ..before });
        }
        Ok(())
    }

    /// Removes prepared files in the tier.
    fn undo(&self) {
        let files = &**self.core.placing.fast_files();
        let fast = &self.target.fast;
        let undone = match (self.is_same_folder, self.target.parts.is_empty()) {
            (_, true) => Ok(()),
            (false, false) => clear(files, fast),
            (true, false) if self.log_moves() => remove(files, &fast.join("reserve")),
            (true, false) => Ok(()),
        };
        if let Err(error) = undone {
            tracing::warn!(%error, "cannot remove the files prepared for a fast tier");
        }
    }
}

/// Blocks batches while no partition is being rewritten: rows left in memory must not wait for
/// that.
pub(crate) fn writers_wait(core: &Core) -> (MutexGuard<'_, ()>, RwLockWriteGuard<'_, ()>) {
    for _ in 0..ROUNDS {
        drop(core.compaction.begin());
        let held_back = core.placing.hold_back();
        if let Some(alone) = core.compaction.try_begin_for(Duration::ZERO) {
            return (alone, held_back);
        }
    }
    let held_back = core.placing.hold_back();
    (core.compaction.begin(), held_back)
}

/// Ensures that there is space for the log in a folder, and reserves space there, if configured.
fn space_for_log(
    core: &Core,
    files: &Arc<dyn Files>,
    folder: &Path,
) -> Result<Option<Arc<Reserve>>> {
    let options = &core.options;
    let is_kept = options.reserve_bytes > 0;
    let bytes = match is_kept {
        true => options.reserve_bytes,
        false => options.log_file_size(),
    };
    // Not by the guard: a failure here is no reason to refuse all other writes.
    let raw = core.placing.fast_files();
    let made = Reserve::open(raw, &core.env.clock, folder, bytes)?;
    if made.is_given_up_in(folder) {
        return Err(Error::new(
            ErrorKind::Full,
            format!(
                "{}: no space for the log: {bytes} bytes could not be written",
                folder.display()
            ),
        ));
    }
    if !is_kept {
        remove(&**raw, &folder.join("reserve"))?;
        return Ok(None);
    }
    // It exists and is complete.
    Reserve::open(files, &core.env.clock, folder, bytes).map(Some)
}

fn make_folder(files: &dyn Files, folder: &Path, above: &Path) -> Result<()> {
    let made: io::Result<()> = files
        .create_dir_all(folder)
        .and_then(|()| files.sync_dir(above))
        .and_then(|()| files.sync_dir(folder));
    made.map_err(|e| Error::io("create", folder, e))
}
