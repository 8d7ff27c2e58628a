//! Opens the state that a named snapshot keeps.

use super::plan::{Since, plan};
use crate::common::ids::{SegmentId, Sequence, TableId};
use crate::core::Core;
use crate::metadata::tables::{Meta, PartitionRecord};
use crate::open::recover::assemble;
use crate::replication::state::State;
use crate::storage::named_snapshots::{NamedSnapshot, SnapshotEnd, SnapshotRecord};
use crate::{Error, ErrorKind, Result};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of past states that stay open without readers.
const OPEN_MAX: usize = 2;

/// Deletes and drops since a snapshot was made: while they are unchanged, an opened state is still
/// valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EndedSince {
    newest_delete: Sequence,
    dropped: Vec<TableId>,
}

/// An open state of the past.
struct OpenState {
    since: EndedSince,
    core: Arc<Core>,
}

/// The state of the snapshot of this name.
pub(crate) fn open_named(core: &Arc<Core>, name: &str) -> Result<Arc<Core>> {
    let Some(snapshot) = core.named.find(name) else {
        return Err(missing(core, name));
    };
    let opened = opened(core, &snapshot)?;
    close_others(core, snapshot.number);
    Ok(opened)
}

fn missing(core: &Core, name: &str) -> Error {
    if let Some(SnapshotRecord {
        ended: Some((at, end)),
        ..
    }) = core.named.find_ended(name)
    {
        return Error::new(
            ErrorKind::Gone,
            format!("snapshot `{name}` ended at {at}: {}", end.reason()),
        );
    }
    let all = core.named.all();
    let known: Vec<&str> = all
        .iter()
        .map(|s| s.record.name.as_str())
        .take(10)
        .collect();
    Error::not_found(format!(
        "no snapshot `{name}`; there are: {}",
        known.join(", ")
    ))
}

/// The already opened state, if it is still valid.
fn opened(core: &Arc<Core>, snapshot: &NamedSnapshot) -> Result<Arc<Core>> {
    let mut slot = snapshot.opened.lock();
    let known = slot
        .as_ref()
        .and_then(|any| any.downcast_ref::<OpenState>());
    if let Some(known) = known
        && known.since == ended_since(core, &known.core)
    {
        return Ok(Arc::clone(&known.core));
    }
    let opened = Arc::new(open(core, snapshot)?);
    let found = Arc::clone(&opened.core);
    let any: Arc<dyn Any + Send + Sync> = opened;
    *slot = Some(any);
    Ok(found)
}

/// Closes the other states; a state that is being read stays open until its last reader finishes.
fn close_others(core: &Core, number: u64) {
    let mut others = 0;
    for snapshot in core.named.all().iter().rev() {
        if snapshot.number == number {
            continue;
        }
        if let Some(mut slot) = snapshot.opened.try_lock()
            && slot.is_some()
        {
            others += 1;
            if others >= OPEN_MAX {
                *slot = None;
            }
        }
    }
}

/// Deletes and drops in the tables of a state until now.
fn ended_since(core: &Core, past: &Core) -> EndedSince {
    let tables = (0..past.catalog.table_count()).filter_map(|id| u32::try_from(id).ok());
    let dropped = tables.map(TableId).filter(|id| is_dropped(core, *id));
    EndedSince {
        newest_delete: core.named_ends.newest_and_from().0,
        dropped: dropped.collect(),
    }
}

fn is_dropped(core: &Core, table: TableId) -> bool {
    core.catalog.table(table).is_none_or(|t| t.lifetime.dropped)
}

/// The stored state of a snapshot.
fn state_of(meta: &Meta, number: u64, name: &str) -> Result<State> {
    let bytes = meta.snapshot_state(number)?;
    let bytes = bytes
        .ok_or_else(|| Error::new(ErrorKind::Gone, format!("snapshot `{name}` has just ended")))?;
    State::decode(&bytes, None)
}

fn open(core: &Arc<Core>, snapshot: &NamedSnapshot) -> Result<OpenState> {
    let name = &snapshot.record.name;
    // Deletes first: a change in between is detected.
    let (newest_delete, from) = core.named_ends.newest_and_from();
    let state = state_of(&core.meta, snapshot.number, name)?;
    if from.0 > state.name.sequence {
        return Err(Error::new(
            ErrorKind::Gone,
            format!(
                "snapshot `{name}` cannot be read: {}",
                SnapshotEnd::Deletes.reason()
            ),
        ));
    }
    let (_, deletes) = core.named_ends.up_to(newest_delete, &|_| true);
    let sequence = state.name.sequence;
    let deletes = deletes.into_iter().filter(|(s, _)| s.0 > sequence);
    let ids = state.tables.iter().map(|table| table.id);
    let since = Since {
        deletes: deletes.collect(),
        dropped: ids.filter(|table| is_dropped(core, *table)).collect(),
    };
    let dropped = since.dropped.clone();
    Ok(OpenState {
        since: EndedSince {
            newest_delete,
            dropped,
        },
        core: Arc::new(open_state(core, snapshot, state, &since)?),
    })
}

/// The state of a snapshot, including data deleted since: for checks of its files.
pub(crate) fn open_complete(core: &Core, snapshot: &NamedSnapshot) -> Result<Core> {
    let state = state_of(&core.meta, snapshot.number, &snapshot.record.name)?;
    open_state(core, snapshot, state, &Since::default())
}

/// Opens a state, without some data.
fn open_state(core: &Core, snapshot: &NamedSnapshot, state: State, since: &Since) -> Result<Core> {
    let mut past = assemble(plan(core, snapshot, state, since)?)?.0;
    // Replays of past states count with those of the present.
    past.replays = Arc::clone(&core.replays);
    Ok(past)
}

/// The segments that named snapshots keep and that are not partitions any more, each at its
/// longest.
pub(crate) fn retained_segments(meta: &Meta) -> Result<Vec<(SegmentId, PartitionRecord)>> {
    let live: BTreeSet<SegmentId> = meta.partitions()?.into_iter().map(|(id, _)| id).collect();
    let mut kept: BTreeMap<SegmentId, PartitionRecord> = BTreeMap::new();
    for (number, bytes) in meta.snapshots()? {
        let record = SnapshotRecord::decode(&bytes);
        let record = record.map_err(|e| Error::decode(meta.path(), 0, e))?;
        if record.ended.is_some() || record.segments.iter().all(|(id, _)| live.contains(id)) {
            continue;
        }
        for partition in state_of(meta, number, &record.name)?.partitions {
            if live.contains(&partition.id) {
                continue;
            }
            let known = kept.get(&partition.id).map(|k| k.committed_bytes);
            if known.is_none_or(|known| known < partition.record.committed_bytes) {
                kept.insert(partition.id, partition.record);
            }
        }
    }
    Ok(kept.into_iter().collect())
}
