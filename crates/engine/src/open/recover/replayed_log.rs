//! Replays the records after the segments: records of the log, or records that arrived with a
//! state.

use super::Replayer;
use super::copy_tail::VisibleTail;
use super::plan::{LogPlan, Opening};
use super::saved_state::LoggedState;
use crate::Result;
use crate::common::ids::Sequence;
use crate::core::shard::{Shard, parked_bytes_max};
use crate::metadata::catalog::Catalog;
use crate::storage::segment::Store;
use crate::wal::{Needed, Replayed, replay};
use std::collections::HashMap;

/// State into which records are replayed.
#[derive(Clone, Copy)]
pub(super) struct ReplayTarget<'a> {
    pub(super) logged: &'a LoggedState,
    pub(super) catalog: &'a Catalog,
    pub(super) store: &'a Store,
    pub(super) shards: &'a [Shard],
}

/// Result of a replay, apart from its effects on the state.
pub(super) struct ReplayedLog {
    pub(super) replayed: Replayed,
    /// The newest record of any source.
    pub(super) newest: Sequence,
    /// Bytes of memory that the events use.
    pub(super) memory: usize,
    /// Events restored to memory.
    pub(super) events: u64,
}

impl LogPlan<'_> {
    /// Replays the records after the segments.
    pub(super) fn replay(self, opening: &Opening, into: ReplayTarget<'_>) -> Result<ReplayedLog> {
        let access = self.access();
        let defined = into.logged.needed.sequence;
        let mut newest = defined;
        let (needed, mut replayer) = match self {
            LogPlan::Log(_) => (into.logged.needed, Replayer::new(opening, into, None)),
            // The state names the pending deletes.
            LogPlan::Carried(mut carried) => {
                let shown = VisibleTail::of(&mut carried, into.store);
                let mut replayer = Replayer::new(opening, into, Some(shown));
                replayer.copied(&carried.deletes, &carried.tail, defined)?;
                newest = carried.tail.last().map_or(defined, |r| r.sequence);
                (Needed::default(), replayer)
            }
        };
        let replayed = replay(
            opening.env.log_files(),
            &opening.log_dir(),
            opening.options.log_file_size(),
            needed,
            access,
            |sequence, kind, payload, path, offset| {
                replayer.record(sequence, kind, payload, path, offset)
            },
        )?;
        Ok(ReplayedLog {
            newest: replayed.last.max(defined).max(newest),
            memory: replayer.memory,
            events: replayer.events,
            replayed,
        })
    }
}

impl<'a> Replayer<'a> {
    /// Begins a replay; `tail` is set for records that arrived with a state.
    fn new(
        opening: &'a Opening,
        into: ReplayTarget<'a>,
        tail: Option<VisibleTail>,
    ) -> Replayer<'a> {
        let logged = into.logged;
        Replayer {
            producers: &logged.producers,
            newest_deletes: &logged.newest_deletes,
            removed: &logged.removed,
            ends: [&logged.ends, &logged.named_ends],
            catalog: into.catalog,
            meta: &opening.meta,
            store: into.store,
            shards: into.shards,
            covers: None,
            parked_bytes_max: parked_bytes_max(&opening.options, into.shards.len()),
            streams: HashMap::new(),
            tail,
            memory: 0,
            events: 0,
        }
    }
}
