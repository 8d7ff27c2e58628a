//! Loads the state that the metadata save: definitions, counters, the clock, statistics of shards,
//! and the effects of records that the log perhaps no longer has.

use super::files::Named;
use super::plan::{Hashers, Opening};
use super::retained_deletes::{load_ends, settle_keepers};
use super::segments::OpenedSegments;
use crate::Result;
use crate::common::counters::{COMPACTION_DAY, COMPACTION_DAY_BYTES, Counters};
use crate::core::policy_choice::{first_analyzer, persisted_analyzer};
use crate::core::shard::Shard;
use crate::core::{Ends, NewestDeletes, WrittenOnDay};
use crate::device::tiers::log_begun;
use crate::metadata::catalog::Catalog;
use crate::metadata::clock::{ClockGuard, ClockReading};
use crate::metadata::producers::Producers;
use crate::metadata::removed_rows::Removed;
use crate::metadata::tables::{PartitionRecord, RetainedFor};
use crate::storage::named_snapshots::NamedSnapshots;
use crate::storage::partitions::PartitionSet;
use crate::wal::Needed;

/// Definitions, counters and the clock.
pub(super) struct SavedState {
    pub(super) catalog: Catalog,
    pub(super) counters: Counters,
    pub(super) clock_guard: ClockGuard,
    pub(super) compacted: WrittenOnDay,
}

impl SavedState {
    /// Loads the saved state; `moment` is its time, if that never changes.
    pub(super) fn load(
        opening: &Opening,
        partitions: &Named,
        hashers: Option<Hashers>,
        moment: Option<ClockReading>,
    ) -> Result<SavedState> {
        let Opening { options, meta, .. } = opening;
        let catalog = Catalog::hashing(hashers);
        catalog.load(meta.definitions()?);
        let counters = Counters::default();
        let saved = meta.counters()?;
        counters.load(&saved);
        let remembered = |name: &str| saved.get(name).copied();
        let records: Vec<&PartitionRecord> = partitions.iter().map(|(_, r)| r).collect();
        let (jump_max, settle) = (options.clock_jump_max, options.clock_settle);
        let clock_guard = ClockGuard::new(jump_max, settle, &saved, &records).at(moment);
        let compacted = WrittenOnDay {
            day: remembered(COMPACTION_DAY).unwrap_or(0),
            bytes: remembered(COMPACTION_DAY_BYTES).unwrap_or(0),
        };
        Ok(SavedState {
            catalog,
            counters,
            clock_guard,
            compacted,
        })
    }
}

/// Makes the shards of these partitions, each with its statistics of late events.
pub(super) fn shards(opening: &Opening, sets: Vec<PartitionSet>) -> Result<Vec<Shard>> {
    let options = &opening.options;
    let kept = opening.meta.analyzers()?;
    let shards = (0u16..).zip(sets).map(|(index, set)| {
        let analyzer = match kept.get(&index) {
            Some(bytes) => persisted_analyzer(options, bytes, opening.role.is_owner()),
            None => first_analyzer(options),
        };
        Shard::new(set, analyzer)
    });
    Ok(shards.collect())
}

/// Effects of records up to the commit of the metadata, to which a replay adds.
pub(super) struct LoggedState {
    /// The part of the log that the metadata need.
    pub(super) needed: Needed,
    pub(super) producers: Producers,
    pub(super) newest_deletes: NewestDeletes,
    pub(super) removed: Removed,
    pub(super) ends: Ends,
    pub(super) named: NamedSnapshots,
    pub(super) named_ends: Ends,
}

impl LoggedState {
    /// Loads the logged state.
    pub(super) fn load(opening: &Opening, segments: &OpenedSegments) -> Result<LoggedState> {
        let Opening { env, meta, .. } = opening;
        let needed = meta.log_needed()?.begun_up_to(log_begun(env)?);
        let producers = Producers::default();
        producers.load(meta.producers()?);
        let newest_deletes = NewestDeletes::default();
        newest_deletes.load(meta.newest_deletes()?);
        let removed = Removed::of(meta.removed()?);
        let ends = load_ends(meta, &newest_deletes, RetainedFor::Copies)?;
        let named = NamedSnapshots::load(meta, &segments.store, &segments.files)?;
        let named_ends = load_ends(meta, &newest_deletes, RetainedFor::Snapshots)?;
        settle_keepers(&named, &named_ends);
        Ok(LoggedState {
            needed,
            producers,
            newest_deletes,
            removed,
            ends,
            named,
            named_ends,
        })
    }
}
