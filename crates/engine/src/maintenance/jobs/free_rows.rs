//! Frees the rows of a partition that a copy is known to have: its aggregates stay, and its rows
//! are *elsewhere* from then on.
//!
//! Protocol: 1 claim the partition, while no delete is in progress; 2 write the remaining parts to
//! a separate file; 3 sync the file, and its name; 4 one transaction records that the rows were
//! freed; 5 new readers get the new file, and the old one is removed with its last reader.
//! Invariants: the segment keeps its number, its offsets and its committed length, so that a copy
//! sees no change. The remaining parts are enough for every aggregate at and above the stored
//! buckets, for the newest row, and for streams that are too small for buckets. A freed partition
//! accepts late events as late runs, is not rewritten, and loses rows only to deletes of whole
//! streams: [`refuse_parts_of_freed`] refuses all others. Concurrency: as a rewriting; the
//! partition is busy meanwhile. Failure: before the transaction nothing has changed, and the new
//! file is removed. After a failed transaction the database latches, since the transaction may be
//! on the medium nevertheless.

use super::compact::{is_to_be_erased, needs_compaction};
use super::erase::is_touched;
use crate::common::ids::{SegmentId, ShardIndex, StreamId};
use crate::common::ranges::swallows;
use crate::core::Core;
use crate::core::shard::Shard;
use crate::metadata::LostRows;
use crate::metadata::catalog::Table;
use crate::storage::segment::{HEADER_BYTES, LeafEntry, Partition, StreamState, StubHead};
use crate::{Error, ErrorKind, Result};
use headwater_io::{File, OpenMode};
use headwater_types::invariant::{first_mut, wide};
use headwater_types::{ByteRange, ClosedRange, Level, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Minimum bytes for which a stub is written.
const WORTH_BYTES: u64 = 1024;
/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// A segment whose rows a copy has: all rows in this many bytes from the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedSegment {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: u64,
}

/// Frees the rows of a partition if all of it is elsewhere and before an instant. Returns the
/// number of freed bytes: 0 when there was nothing to free or it is not possible now, such as while
/// a partition is rewritten.
pub(crate) fn free_partition(
    core: &Core,
    index: ShardIndex,
    held: CopiedSegment,
    before: Timestamp,
) -> Result<u64> {
    Ok(free(core, index, held, before, Reason::Copied)?.bytes)
}

/// True if [`free_partition`] would free rows of a partition now. Reads the partition's index, and
/// claims nothing: the answer may be another one a moment later.
pub(crate) fn is_freeable(
    core: &Core,
    index: ShardIndex,
    held: CopiedSegment,
    before: Timestamp,
) -> Result<bool> {
    let shard = core.shards.get(index)?;
    let Some(partition) = partition_of(shard, held).filter(|p| is_closed(core, p, held, before))
    else {
        return Ok(false);
    };
    if is_to_be_erased(shard, &partition) {
        return Ok(false);
    }
    let is_in_use = {
        let state = shard.state.lock();
        let comes = state.has_rows_in(partition.record.table, &partition.record.span());
        comes || state.busy.contains(&held.segment)
    };
    Ok(!is_in_use && stub_head(core, &partition)?.is_some())
}

fn partition_of(shard: &Shard, held: CopiedSegment) -> Option<Arc<Partition>> {
    let state = shard.state.lock();
    let mut all = state.partitions.all();
    all.find(|p| p.id() == held.segment).cloned()
}

/// Frees the rows of a partition though nobody is known to have them, and records the loss. Returns
/// the loss: nothing when it is not possible now.
pub(crate) fn lose_partition(
    core: &Core,
    index: ShardIndex,
    held: CopiedSegment,
) -> Result<LostRows> {
    free(core, index, held, Timestamp::MAX, Reason::NoRoom)
}

/// Reason for freeing rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A copy has them.
    Copied,
    /// There is no room for newer ones.
    NoRoom,
}

/// Frees the rows of a partition. Returns counts of the freed rows.
fn free(
    core: &Core,
    index: ShardIndex,
    held: CopiedSegment,
    before: Timestamp,
    reason: Reason,
) -> Result<LostRows> {
    let _latch = core.log.latch_on_panic("freed the rows of a partition");
    let Some(_alone) = core.compaction.try_begin_for(Duration::ZERO) else {
        return Ok(LostRows::default());
    };
    let shard = core.shards.get(index)?;
    let Some(partition) = claim(core, shard, held, before)? else {
        return Ok(LostRows::default());
    };
    let id = partition.id();
    let freed = write_stub(core, &partition).and_then(|head| match head {
        Some(head) => replace(core, shard, &partition, &head, reason),
        None => Ok(LostRows::default()),
    });
    if !core.store.stubs().is_freed(id) {
        core.store.stubs().unclaim(id);
    }
    shard.state.lock().busy.remove(&id);
    drop(partition);
    remove_unread(core);
    freed
}

/// Checks whether the rows may be freed, and prevents new dependencies on them.
fn claim(
    core: &Core,
    shard: &Shard,
    held: CopiedSegment,
    before: Timestamp,
) -> Result<Option<Arc<Partition>>> {
    let _step = shard.stepping.lock();
    core.log.check()?;
    let found = partition_of(shard, held);
    let Some(partition) = found.filter(|p| is_closed(core, p, held, before)) else {
        return Ok(None);
    };
    // No delete may be between its check for freed rows and its effect on the shards.
    let _barrier = core.write_barrier.close();
    if is_to_be_erased(shard, &partition) {
        return Ok(None);
    }
    let mut state = shard.state.lock();
    let comes = state.has_rows_in(partition.record.table, &partition.record.span());
    if comes || !state.busy.insert(held.segment) {
        return Ok(None);
    }
    core.store.stubs().claim(held.segment);
    Ok(Some(partition))
}

/// True when no work remains to be done on the rows of a partition.
fn is_closed(core: &Core, partition: &Partition, held: CopiedSegment, before: Timestamp) -> bool {
    let record = &partition.record;
    let span = record.span();
    let Some(table) = core.catalog.table(record.table) else {
        return false;
    };
    let is_whole = record.committed_bytes == held.bytes
        && record.chain.is_some()
        && partition.unreadable.is_none();
    // Buckets do not record which of their values have expired or are before a retention cutoff.
    let is_all_there =
        record.expires_first.is_none() && !table.lifetime.retention_cutoff.ends(span.first);
    is_whole
        && is_all_there
        && span.last < before
        && record.late_runs == 0
        && record.events > 0
        && !record.aged
        && !core.mode.is_exact()
        && !core.store.stubs().is_claimed(partition.id())
        && !partition.file.is_retained()
        && !needs_compaction(core, partition, false)
}

/// The ranges of a partition's segment that remain.
fn remaining_ranges(core: &Core, partition: &Partition) -> Result<Vec<ByteRange>> {
    let footers = core.store.indexes(partition)?;
    let mut ranges = vec![ByteRange::new(0, HEADER_BYTES)];
    let footers = footers.iter();
    ranges.extend(footers.map(|(at, bytes)| ByteRange::at(*at, u64::from(*bytes))));
    let state = core.store.state(partition)?;
    for page in state.pages() {
        core.store.each_stream(&state, page, &mut |_, held| {
            stays_of_stream(held, &mut ranges);
            Ok(())
        })?;
    }
    Ok(ranges)
}

fn stays_of_stream(held: &StreamState, ranges: &mut Vec<ByteRange>) {
    let blocks = held.blocks.iter();
    ranges.extend(blocks.map(|block| ByteRange::at(block.offset, u64::from(block.bytes))));
    let place = |leaf: &LeafEntry| ByteRange::at(leaf.offset, u64::from(leaf.bytes));
    ranges.extend(held.late.iter().flatten().map(place));
    let has_buckets = held.base.is_some_and(|base| base != Level::MAX);
    match (has_buckets, &held.last_row) {
        (false, _) => ranges.extend(held.main.iter().map(place)),
        // The newest row is looked up in its leaf.
        (true, None) => ranges.extend(held.main.last().map(place)),
        (true, Some(row)) if row.is_empty() => ranges.extend(held.main.last().map(place)),
        (true, Some(_)) => {}
    }
}

/// Head of the remaining parts of a partition; `None` where freeing the others is not worthwhile.
fn stub_head(core: &Core, partition: &Partition) -> Result<Option<StubHead>> {
    let base = partition.record.committed_bytes;
    let head = StubHead::new(partition.id(), base, remaining_ranges(core, partition)?);
    let freed = base.saturating_sub(head.remaining_bytes());
    Ok((freed >= WORTH_BYTES).then_some(head))
}

/// Writes the remaining parts of a partition, and makes them durable; `None` where that is not
/// worthwhile.
fn write_stub(core: &Core, partition: &Partition) -> Result<Option<StubHead>> {
    let id = partition.id();
    let Some(head) = stub_head(core, partition)? else {
        return Ok(None);
    };
    let stubs = core.store.stubs();
    let path = stubs.stub_path(id);
    let written = write_file(core, &head, &path);
    if written.is_err() {
        remove_stub(core, &path);
    }
    written.map(|()| Some(head))
}

fn write_file(core: &Core, head: &StubHead, path: &Path) -> Result<()> {
    let stubs = core.store.stubs();
    let io = |what: &'static str| move |e| Error::io(what, path, e);
    let source = core.store.cached_file(head.id)?;
    let file = match stubs.bare().open(path, OpenMode::CreateNew) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // A leftover of an attempt that failed, whose file could not be removed.
            stubs.bare().remove(path).map_err(io("remove"))?;
            stubs.bare().open(path, OpenMode::CreateNew)
        }
        other => other,
    };
    let file = file.map_err(io("create"))?;
    let bytes = head.encode();
    file.write_all_at(0, &bytes).map_err(io("write"))?;
    let mut place = wide(bytes.len());
    let mut buffer = vec![0; usize::try_from(COPY_BYTES).unwrap_or(usize::MAX)];
    for range in &head.ranges {
        copy_range(
            core,
            &*source,
            (head.id, *range),
            (&*file, path, place),
            &mut buffer,
        )?;
        place = place.saturating_add(range.len());
    }
    core.counters.bytes(0, 0, place, 0);
    file.sync_data().map_err(io("sync"))?;
    let dir = core.store.dir();
    let synced = stubs.bare().sync_dir(dir);
    synced.map_err(|e| Error::io("sync", dir, e))
}

/// Copies a range of a segment to a location in another file.
fn copy_range(
    core: &Core,
    source: &dyn File,
    (id, range): (SegmentId, ByteRange),
    (file, path, place): (&dyn File, &Path, u64),
    buffer: &mut [u8],
) -> Result<()> {
    let mut done = 0;
    while done < range.len() {
        let count = (range.len() - done).min(COPY_BYTES);
        let len = usize::try_from(count).unwrap_or(usize::MAX);
        let part = first_mut(buffer, len, "bytes to copy");
        source
            .read_exact_at(range.start() + done, part)
            .map_err(|e| Error::io("read", &core.store.path(id), e))?;
        file.write_all_at(place + done, part)
            .map_err(|e| Error::io("write", path, e))?;
        done += count;
    }
    Ok(())
}

fn remove_stub(core: &Core, path: &Path) {
    if let Err(error) = core.store.stubs().bare().remove(path) {
        // The next opening removes it: no commit names it.
        tracing::debug!(path = %path.display(), %error, "cannot remove an unfinished segment");
    }
}

/// Commits that the rows were freed, and has new readers read the remaining parts.
fn replace(
    core: &Core,
    shard: &Shard,
    partition: &Arc<Partition>,
    head: &StubHead,
    reason: Reason,
) -> Result<LostRows> {
    let id = partition.id();
    let freed = freed_rows(partition, head);
    let _step = shard.stepping.lock();
    {
        let _alone = core.commits.begin();
        if partition.file.is_retained() {
            // A named snapshot that is just being made has the rows.
            remove_stub(core, &core.store.stubs().stub_path(id));
            return Ok(LostRows::default());
        }
        let lost = match reason {
            Reason::Copied => None,
            Reason::NoRoom => Some(core.meta.lost_rows()?.and(freed)),
        };
        let segments = [(id, head.base)];
        let changed = core.meta.change_freed(&segments, &[], lost.as_ref());
        changed.inspect_err(|error| core.log.latch(error.clone()))?;
    }
    core.store.stubs().set_freed(std::iter::once(id));
    core.store.reopen(id);
    let now = Arc::new(Partition::new(
        partition.record.clone(),
        Arc::clone(&partition.file),
    ));
    {
        let mut state = shard.state.lock();
        let mut partitions = (*state.partitions).clone();
        partitions.put(now);
        state.version += 1;
        state.partitions = Arc::new(partitions);
    }
    core.freed.wait_for(Arc::clone(partition));
    match reason {
        Reason::Copied => tracing::info!(
            segment = id.0,
            bytes = freed.bytes,
            "freed the rows of a partition, which the cloud has"
        ),
        Reason::NoRoom => tracing::error!(
            segment = id.0,
            bytes = freed.bytes,
            rows = freed.rows,
            span = ?partition.span(),
            "lost the rows of a partition, to make room for new ones: the disk is full"
        ),
    }
    Ok(freed)
}

/// Counts of the rows of a partition that are freed.
fn freed_rows(partition: &Partition, head: &StubHead) -> LostRows {
    LostRows {
        partitions: 1,
        rows: partition.record.events,
        bytes: head.base.saturating_sub(head.remaining_bytes()),
        span: Some(partition.span()),
    }
}

/// Removes the files of freed rows without readers. Call it from time to time.
pub(crate) fn remove_unread(core: &Core) {
    for id in core.freed.unread() {
        if let Err(error) = core.store.stubs().remove_rows(id) {
            // The next opening removes it.
            tracing::warn!(segment = id.0, %error, "cannot remove the freed rows of a segment");
        }
        core.store.reopen(id);
    }
}

/// Refuses a delete that a partition with freed rows could not apply: of a stream all or nothing
/// can be deleted there, since it is unknown here which rows are before an instant. Returns a
/// number that shows, while no partition is claimed, that the check is still valid.
pub(crate) fn refuse_parts_of_freed(
    core: &Core,
    table: &Table,
    streams: Option<&[StreamId]>,
    range: ClosedRange,
) -> Result<u64> {
    let stubs = core.store.stubs();
    let claims = stubs.claims();
    for shard in &core.shards {
        let partitions = Arc::clone(&shard.state.lock().partitions);
        let met = partitions.of(table.id).iter().filter(|p| {
            stubs.is_claimed(p.id()) && p.unreadable.is_none() && p.span().overlaps(&range)
        });
        for partition in met {
            refuse_part(core, partition, streams, range)?;
        }
    }
    Ok(claims)
}

fn refuse_part(
    core: &Core,
    partition: &Partition,
    streams: Option<&[StreamId]>,
    range: ClosedRange,
) -> Result<()> {
    let ranges = [range];
    let state = core.store.state(partition)?;
    for page in state.pages() {
        core.store.each_stream(&state, page, &mut |stream, held| {
            let is_meant = streams.is_none_or(|ids| ids.binary_search(&stream).is_ok());
            if !is_meant || !is_touched(held, &ranges) {
                return Ok(());
            }
            let mut leaves = held.main.iter().chain(held.late.iter().flatten());
            match leaves.all(|leaf| swallows(&ranges, &leaf.range())) {
                true => Ok(()),
                false => Err(part_of_freed(partition)),
            }
        })?;
    }
    Ok(())
}

fn part_of_freed(partition: &Partition) -> Error {
    let span = partition.record.span();
    Error::new(
        ErrorKind::Elsewhere,
        format!(
            "the rows from {} to {} were freed on this node (sync.free) and exist only on the cloud: a delete must cover all of a stream's rows there or none; extend its range over them, or exclude them",
            span.first, span.last
        ),
    )
}
