//! Plan of the opening of a state that a named snapshot keeps.
//!
//! Invariants: data, tables and streams that users deleted since are not in it; the time in it
//! never changes.

use super::files::PastFiles;
use crate::common::ids::{Sequence, StreamId, TableId};
use crate::core::Core;
use crate::device::layout::{meta_path, segment_dir};
use crate::metadata::catalog::{Table, TableLifetime};
use crate::metadata::tables::{FixedContents, Meta};
use crate::open::recover::{
    CarriedRecords, Devices, LogPlan, Opening, OpeningPlan, Role, SegmentAccess, SegmentPlan,
};
use crate::replication::state::State;
use crate::storage::named_snapshots::NamedSnapshot;
use crate::storage::tombstone::DeleteRecord;
use crate::{Options, Result};
use headwater_io::{Env, Media};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Share (1/n) of the memory budget that the caches of one state may use.
const BUDGET_PART: usize = 8;

/// Data to leave out of a state.
#[derive(Default)]
pub(super) struct Since {
    pub(super) deletes: Deletes,
    pub(super) dropped: Vec<TableId>,
}

/// Plans the opening of a state, without some data.
pub(super) fn plan(
    core: &Core,
    snapshot: &NamedSnapshot,
    state: State,
    since: &Since,
) -> Result<OpeningPlan<'static>> {
    let newest = since.deletes.last().map_or(0, |(sequence, _)| sequence.0);
    let at = Sequence(state.name.sequence.max(newest));
    let carried = CarriedRecords {
        deletes: deletes(&state, &since.deletes),
        ..CarriedRecords::default()
    };
    let contents = metadata(state, at, since);
    let meta = Meta::fixed(&meta_path(&core.options.dir), contents);
    let env = Env {
        files: Arc::new(files(core, snapshot)),
        media: Media::default(),
        ..core.env.clone()
    };
    let budget = core.options.memory_budget_bytes / BUDGET_PART;
    let options = Options {
        memory_budget_bytes: budget.max(1 << 20),
        ..core.options.clone()
    };
    // Beside an owner files can be removed at any time.
    let access = match core.is_reader() {
        true => SegmentAccess::StayOpen,
        false => SegmentAccess::OpenedOnRead,
    };
    Ok(OpeningPlan {
        opening: Opening {
            meta: Arc::new(meta),
            devices: Devices::not_owned(&env, &options.dir),
            role: Role::Reader,
            env,
            options,
        },
        segments: SegmentPlan::full(access),
        log: LogPlan::Carried(carried),
        hashers: None,
        moment: Some(snapshot.record.moment.clone()),
    })
}

fn files(core: &Core, snapshot: &NamedSnapshot) -> PastFiles {
    PastFiles {
        files: Arc::clone(core.store.files()),
        segment_dir: segment_dir(&core.options.dir),
        open_files: Arc::clone(&snapshot.files),
    }
}

type Deletes = Vec<(Sequence, DeleteRecord)>;

/// Deletes that were pending when the state was taken, and later ones. Streams that were dropped
/// since are not in the metadata.
fn deletes(state: &State, since: &Deletes) -> Deletes {
    let all = state.deletes.iter().chain(since).cloned();
    let deletes = all.map(|(sequence, record)| {
        let record = DeleteRecord {
            drops_streams: false,
            ..record
        };
        (sequence, record)
    });
    deletes.collect()
}

/// The metadata of the state, without tables and streams that were dropped since.
fn metadata(state: State, at: Sequence, since: &Since) -> FixedContents {
    let gone: BTreeSet<StreamId> = since
        .deletes
        .iter()
        .filter(|(_, record)| record.drops_streams)
        .flat_map(|(_, record)| record.streams.iter().flat_map(|ids| ids.iter().copied()))
        .collect();
    let is_there = |table: TableId| !since.dropped.contains(&table);
    let tables = state
        .tables
        .into_iter()
        .map(|table| match is_there(table.id) {
            true => table,
            false => {
                let lifetime = TableLifetime {
                    dropped: true,
                    ..table.lifetime
                };
                let table = Table::clone(&table);
                Arc::new(Table { lifetime, ..table })
            }
        });
    let streams = state.streams.iter();
    let partitions = state.partitions.into_iter();
    FixedContents {
        identity: state.name.identity,
        shards: state.shards,
        at,
        tables: tables.collect(),
        streams: streams
            .filter(|s| is_there(s.table) && !gone.contains(&s.id))
            .cloned()
            .collect(),
        partitions: partitions
            .filter(|p| is_there(p.record.table))
            .map(|p| (p.id, p.record))
            .collect(),
    }
}
