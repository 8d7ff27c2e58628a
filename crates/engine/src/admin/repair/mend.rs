//! Plans how to make one segment readable again: without the damaged parts, and with all others.
//!
//! Leaves and blocks are not rewritten: one more footer removes damaged ones, the same way as a job
//! would.

use super::scan::{ReadablePrefix, Rescue};
use crate::common::ids::{SegmentId, StreamId};
use crate::common::ranges::union;
use crate::metadata::catalog::Table;
use crate::metadata::tables::PartitionRecord;
use crate::storage::segment::pyramid::give_up;
use crate::storage::segment::{
    CheckpointNote, Fold, Footer, LeafEntry, SegmentHeader, Store, StreamDelta, StreamState,
};
use crate::{ErrorKind, Result};

/// Parts that a footer removes.
#[derive(Default)]
pub(super) struct RemovedParts {
    pub(super) footer: Option<Vec<u8>>,
    pub(super) record: Option<PartitionRecord>,
    /// Damaged leaves: stream and entry.
    pub(super) lost: Vec<(StreamId, LeafEntry)>,
    /// Streams whose stored aggregates are discarded, with true if rows are left to compute them
    /// from.
    pub(super) without_pyramid: Vec<(StreamId, bool)>,
    /// Locations of the damage, in the reader's words.
    pub(super) damages: Vec<crate::Damage>,
}

/// True when everything that the newest group added can be read.
pub(super) fn newest_is_readable(
    store: &Store,
    id: SegmentId,
    whole: &ReadablePrefix,
) -> Result<bool> {
    let (Some(footer), Some(table)) = (whole.newest(), &whole.state.table) else {
        return Ok(true);
    };
    let good = |result: Result<()>| match result {
        Ok(()) => Ok(true),
        // Freed rows are still elsewhere.
        Err(error) if error.kind() == ErrorKind::Elsewhere => Ok(true),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(false),
        Err(error) => Err(error),
    };
    for delta in &footer.streams {
        for entry in delta.added.iter().chain(delta.late_runs.iter().flatten()) {
            let rows = 0..entry.count as usize;
            if !good(store.leaf_rows(id, entry, rows, table).map(drop))? {
                return Ok(false);
            }
        }
        for entry in &delta.added_blocks {
            if !good(store.block(id, entry).map(drop))? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Reads everything in a segment, of the streams that are `known`; with `distrusted` its stored
/// aggregates are not used at all.
pub(super) fn mend(
    store: &Store,
    id: SegmentId,
    header: &SegmentHeader,
    whole: &ReadablePrefix,
    table: &Table,
    distrusted: bool,
    known: &dyn Fn(StreamId) -> Result<bool>,
) -> Result<RemovedParts> {
    let mut mended = RemovedParts::default();
    let mut deltas: Vec<StreamDelta> = Vec::new();
    for (stream, state) in &whole.state.streams {
        let delta = if known(*stream)? {
            mend_stream(store, id, *stream, state, table, distrusted, &mut mended)?
        } else {
            forget_stream(*stream, state)
        };
        deltas.extend(delta);
    }
    if let Some(rescue) = &whole.rescue {
        return replacement_footer(header, whole, rescue, deltas, table, mended);
    }
    let checkpoint = match store.verify_checkpoint(id, (whole.offset, whole.bytes)) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            mended.damages.extend(error.damaged().cloned());
            CheckpointNote::Revoked
        }
        verified => {
            verified?;
            CheckpointNote::Nothing
        }
    };
    if deltas.is_empty() && checkpoint == CheckpointNote::Nothing {
        return Ok(mended);
    }
    let newest = whole.footers.iter().map(|f| f.sequence).max();
    let footer = Footer {
        previous: Some((whole.offset, whole.bytes)),
        group_offset: whole.end(),
        sequence: newest.unwrap_or_default(),
        table: None,
        checkpoint,
        streams: deltas,
    };
    let bytes = footer.encode();
    let len = u32::try_from(bytes.len())
        .map_err(|_| crate::Error::internal("repair: a footer of 4 GiB"))?;
    let mut footers = whole.footers.clone();
    let mut state = whole.state.clone();
    state.apply(&footer, u64::from(len));
    footers.push(footer);
    let after = ReadablePrefix {
        offset: whole.end(),
        bytes: len,
        footers,
        state,
        rescue: None,
    };
    mended.record = Some(after.record(header));
    mended.footer = Some(bytes);
    Ok(mended)
}

/// One footer lists everything that is left, replacing the footers, some of which cannot be read.
fn replacement_footer(
    header: &SegmentHeader,
    whole: &ReadablePrefix,
    rescue: &Rescue,
    changes: Vec<StreamDelta>,
    table: &Table,
    mut mended: RemovedParts,
) -> Result<RemovedParts> {
    let mut footer = Footer {
        previous: None,
        group_offset: whole.end(),
        sequence: whole.newest().map(|f| f.sequence).unwrap_or_default(),
        table: Some(table.clone()),
        checkpoint: CheckpointNote::Nothing,
        streams: changes,
    };
    let mut left = whole.state.clone();
    left.apply(&footer, 0);
    footer.streams = rescue.all_of(&left);
    let bytes = footer.encode();
    let len = u32::try_from(bytes.len())
        .map_err(|_| crate::Error::internal("repair: a footer of 4 GiB"))?;
    let mut state = Fold::default();
    state.apply(&footer, u64::from(len));
    let after = ReadablePrefix {
        offset: whole.end(),
        bytes: len,
        footers: vec![footer],
        state,
        rescue: None,
    };
    mended.record = Some(after.record(header));
    mended.footer = Some(bytes);
    Ok(mended)
}

/// Removes a dropped stream: an older state of the segment still had it.
fn forget_stream(stream: StreamId, state: &StreamState) -> Option<StreamDelta> {
    let mut delta = StreamDelta {
        stream,
        removed: state.main.iter().map(|l| (l.offset, l.row_start)).collect(),
        clear_late: !state.late.is_empty(),
        last_row: state.last_row.is_some().then(Box::default),
        ..StreamDelta::default()
    };
    if !state.blocks.is_empty() {
        give_up(state, &mut delta);
    }
    let changes = !delta.removed.is_empty() || delta.clear_late || delta.base.is_some();
    changes.then_some(delta)
}

fn mend_stream(
    store: &Store,
    id: SegmentId,
    stream: StreamId,
    state: &StreamState,
    table: &Table,
    distrusted: bool,
    mended: &mut RemovedParts,
) -> Result<Option<StreamDelta>> {
    let mut is_good = |entry: &LeafEntry| -> Result<bool> {
        let rows = store.leaf_rows(id, entry, 0..entry.count as usize, table);
        let good = match rows {
            Ok(rows) => {
                rows.len() == entry.count as usize
                    && rows.times.first() == Some(&entry.first.as_nanos())
                    && rows.times.last() == Some(&entry.last.as_nanos())
            }
            Err(error) if error.kind() == ErrorKind::Elsewhere => true,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                mended.damages.extend(error.damaged().cloned());
                false
            }
            Err(error) => return Err(error),
        };
        if !good {
            mended.lost.push((stream, *entry));
        }
        Ok(good)
    };
    let mut delta = StreamDelta {
        stream,
        ..StreamDelta::default()
    };
    for entry in &state.main {
        if !is_good(entry)? {
            delta.removed.push((entry.offset, entry.row_start));
        }
    }
    let mut late_runs: Vec<Vec<LeafEntry>> = Vec::new();
    let mut late_lost = false;
    for run in &state.late {
        let mut kept = Vec::new();
        for entry in run {
            if is_good(entry)? {
                kept.push(*entry);
            } else {
                late_lost = true;
            }
        }
        if !kept.is_empty() {
            late_runs.push(kept);
        }
    }
    if late_lost {
        delta.clear_late = true;
        delta.late_runs = late_runs;
    }
    let mut bad = Vec::new();
    for entry in &state.blocks {
        match store.block(id, entry) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                mended.damages.extend(error.damaged().cloned());
                bad.push(entry);
            }
            Err(error) => return Err(error),
        }
    }
    let blocks_bad = !bad.is_empty() || (distrusted && !state.blocks.is_empty());
    // The aggregates count the lost rows. Where rows were aged, the other blocks are their only
    // remains.
    if state.is_aged() {
        if !bad.is_empty() {
            delta.base = state.base;
            delta.removed_blocks = bad.iter().map(|b| b.offset).collect();
            let spans = bad
                .iter()
                .map(|b| b.level.span(b.first_bucket, b.last_bucket));
            let mut stale = state.stale.clone();
            stale.extend(spans);
            delta.stale = Some(union(stale));
            mended.without_pyramid.push((stream, false));
        }
    } else if !state.blocks.is_empty() && (blocks_bad || !delta.removed.is_empty()) {
        give_up(state, &mut delta);
        let has_rows = !state.main.is_empty() || !state.late.is_empty();
        mended.without_pyramid.push((stream, has_rows));
    }
    if !delta.removed.is_empty() {
        delta.last_row = Some(Box::default());
    }
    let changes = !delta.removed.is_empty() || delta.clear_late || delta.base.is_some();
    Ok(changes.then_some(delta))
}
