//! Carries out the plan of an opening: segments, the saved state, the log, repairs, the core.
//!
//! Invariants: only an owner changes files, and only after everything has been checked.

use super::Recovery;
use super::files;
use super::indexes;
use super::media::announcer;
use super::plan::{Opening, OpeningPlan, Role};
use super::replayed_log::{ReplayTarget, ReplayedLog};
use super::saved_state::{self, LoggedState, SavedState};
use super::segments::OpenedSegments;
use crate::Result;
use crate::common::ids::SegmentId;
use crate::config::mode::EngineMode;
use crate::core::shard::Shard;
use crate::core::{
    Commits, Compaction, Core, Defining, Freed, IdleDetector, LateChoice, MemoryUse, NewStreams,
    Placed, Placing, ReplayMemory, SegmentIds, Shards, Signals, TableChanges, UnreadablePartitions,
    WriteBarrier,
};
use crate::memory::pins::remove_leftovers;
use crate::read::unreadable::report_unreadable;
use crate::storage::index::Indexes;
use crate::storage::named_snapshots::NamedSnapshots;
use crate::wal::Log;
use crate::wal::mirror::Mirror;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// Opens a database by a plan.
pub(crate) fn assemble(plan: OpeningPlan<'_>) -> Result<(Core, Recovery)> {
    let OpeningPlan {
        opening,
        segments,
        log,
        hashers,
        moment,
    } = plan;
    let (segments, sets) = segments.open(&opening, log.access())?;
    let saved = SavedState::load(&opening, &segments.partitions, hashers, moment)?;
    let shards = saved_state::shards(&opening, sets)?;
    let logged = LoggedState::load(&opening, &segments)?;
    let into = ReplayTarget {
        logged: &logged,
        catalog: &saved.catalog,
        store: &segments.store,
        shards: &shards,
    };
    let replay = log.replay(&opening, into)?;
    let unreadable = files::unreadable(&shards);
    let (run_files, cache_bytes) = (&opening.devices.run_files, opening.cache_bytes() / 4);
    let indexes = indexes::load(&opening.meta, &segments.store, run_files, cache_bytes)?;
    let recovery = opening.repair(&segments, &unreadable, &indexes, &logged.named, &replay)?;
    saved.counters.accepted(replay.events, 0);
    let first_new_stream = saved.catalog.next_stream();
    let memory = replay.memory + saved.catalog.pending_bytes();
    let first_generation = logged.needed.first_generation;
    let log = opening.begin_log(&segments, replay, first_generation)?;
    let next_segment = segments.next(&opening)?;
    let mirror = opening.mirror(&log, first_generation)?;
    let assembly = Assembly {
        opening,
        segments,
        saved,
        shards,
        logged,
        indexes,
        log,
        mirror,
        memory,
        first_new_stream,
        next_segment,
        has_unreadable: !unreadable.is_empty(),
    };
    let core = assembly.into_core();
    if !core.is_reader() {
        report_unreadable(&core);
    }
    Ok((core, recovery))
}

impl Opening {
    /// Repairs the files, if the opener may, and counts and logs the actions of the recovery.
    fn repair(
        &self,
        segments: &OpenedSegments,
        unreadable: &HashSet<SegmentId>,
        indexes: &Indexes,
        named: &NamedSnapshots,
        replay: &ReplayedLog,
    ) -> Result<Recovery> {
        let mut recovery = Recovery {
            partitions_unreadable: unreadable.len() as u64,
            ..Recovery::default()
        };
        if self.role.is_owner() {
            self.settle(segments, unreadable, indexes, named, &mut recovery)?;
        }
        recovery.log_records = replay.replayed.records;
        recovery.events_replayed = replay.events;
        let is_owner = self.role.is_owner();
        files::report(self.dir(), is_owner, &replay.replayed, &mut recovery);
        Ok(recovery)
    }

    /// Removes leftover files of a crash, and truncates others to their committed lengths.
    fn settle(
        &self,
        segments: &OpenedSegments,
        unreadable: &HashSet<SegmentId>,
        indexes: &Indexes,
        named: &NamedSnapshots,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let OpenedSegments {
            partitions, store, ..
        } = segments;
        let present = files::present(store)?;
        files::settle(store, &present, partitions, unreadable, recovery, named)?;
        files::forget_freed(&self.meta, partitions, named)?;
        indexes::settle(&self.meta, store, &present, indexes, recovery)?;
        let root = self.env.media.pins_root(self.dir());
        remove_leftovers(&**self.env.pins_files(), root)
    }

    /// Continues the log after the replayed records, with new files if the opener may write.
    fn begin_log(
        &self,
        segments: &OpenedSegments,
        replay: ReplayedLog,
        first_generation: u64,
    ) -> Result<Log> {
        let is_replayed = replay.replayed.records > 0;
        let log = Log::new(
            replay.replayed,
            replay.newest,
            self.options.durability,
            announcer(&self.env, &self.meta, self.devices.tier.as_ref()),
            Arc::clone(&self.env.clock),
        );
        match self.role {
            Role::Reader => log.refuse_writes(),
            Role::Owner(_) => {
                let unneeded = log.sequence_before(first_generation);
                self.meta.forget_dropped(unneeded)?;
                if !is_replayed {
                    self.forget_streams(segments)?;
                }
            }
        }
        Ok(log)
    }

    /// Forgets the streams of dropped tables without stored data.
    fn forget_streams(&self, segments: &OpenedSegments) -> Result<()> {
        for table in self.meta.tables()?.iter().filter(|t| t.lifetime.dropped) {
            let mut stored = segments.partitions.iter();
            if !stored.any(|(_, r)| r.table == table.id) {
                self.meta.forget_streams_of(table.id)?;
            }
        }
        Ok(())
    }

    /// Starts the copy in bulk of a log in the fast tier, if configured.
    fn mirror(&self, log: &Log, first_generation: u64) -> Result<Option<Arc<Mirror>>> {
        let mirror = Mirror::of(self.devices.tier.as_deref(), &self.env, &self.options)?;
        if let Some(mirror) = &mirror {
            mirror.begin(log, first_generation)?;
        }
        Ok(mirror.map(Arc::new))
    }
}

/// Parts of a database that are ready to be its core.
struct Assembly {
    opening: Opening,
    segments: OpenedSegments,
    saved: SavedState,
    shards: Vec<Shard>,
    logged: LoggedState,
    indexes: Indexes,
    log: Log,
    mirror: Option<Arc<Mirror>>,
    memory: usize,
    first_new_stream: u32,
    next_segment: u64,
    has_unreadable: bool,
}

impl Assembly {
    /// Joins the parts.
    fn into_core(self) -> Core {
        let Opening {
            meta,
            devices,
            role,
            env,
            options,
        } = self.opening;
        let (saved, logged) = (self.saved, self.logged);
        let placed = Placed {
            mirror: self.mirror,
            env: env.clone(),
            tier: devices.tier,
            reserves: devices.reserves,
        };
        Core {
            placing: Placing::new(placed, devices.fast_files),
            producers: logged.producers,
            newest_deletes: logged.newest_deletes,
            removed: logged.removed,
            table_changes: TableChanges::default(),
            ends: logged.ends,
            named: logged.named,
            named_ends: logged.named_ends,
            catalog: saved.catalog,
            meta,
            log: self.log,
            store: self.segments.store,
            indexes: self.indexes,
            shards: Shards::new(self.shards),
            counters: saved.counters,
            memory: MemoryUse::new(&options, self.memory),
            replays: ReplayMemory::new(&options),
            signals: Signals::default(),
            rest: IdleDetector::new(options.idle_after, options.log_file_size()),
            segment_ids: SegmentIds::new(self.next_segment),
            new_streams: NewStreams::from(self.first_new_stream),
            commits: Commits::new(logged.needed.first_generation),
            late_choice: LateChoice::new(options.late_policy),
            mode: EngineMode::of(options.flush_rule),
            clock_guard: saved.clock_guard,
            instants: Arc::default(),
            compaction: Compaction::new(saved.compacted),
            freed: Freed::default(),
            write_barrier: WriteBarrier::default(),
            defining: Defining::default(),
            pin_files: Mutex::new(devices.pin_files),
            guard: devices.guard,
            unreadable: UnreadablePartitions::new(self.has_unreadable),
            bulk: devices.bulk,
            _lock: role.into_lock(),
            env,
            options,
        }
    }
}
