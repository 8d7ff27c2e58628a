//! Updates the pyramid of a stream while groups are written. The only writer of blocks.
//!
//! The base level has every row of the main run; its newest bucket is preliminary. A level above
//! has only closed buckets: it is extended when a block of the level below is complete, so that at
//! most a block per level is not folded yet. Where no more rows are expected, all levels are closed
//! with their last buckets unchanged; rows that are appended nevertheless make these levels stale.
//! After a merge only base blocks are rewritten; the levels above are stale in these ranges and
//! folded on read.

use super::bucket::{Bucket, Buckets, add_rows, from_block, to_blocks};
use crate::common::ids::SegmentId;
use crate::metadata::catalog::Table;
use crate::storage::segment::format::{BlockEntry, StreamDelta};
use crate::storage::segment::group::GroupWriter;
use crate::storage::segment::state::StreamState;
use crate::storage::segment::store::Store;
use crate::{ErrorKind, Result};
use headwater_codec::block::BLOCK_BUCKETS;
use headwater_types::{ClosedRange, Level, Rows, Timestamp};

/// Levels between stored levels are folded on read.
const LEVEL_STEP: i32 = 2;
/// Maximum number of stale ranges; more are joined with their neighbours.
const STALE_RANGES_MAX: usize = 32;

/// The segment that the builder writes to.
pub(crate) struct PyramidTarget<'a> {
    pub(crate) store: &'a Store,
    pub(crate) segment: SegmentId,
    pub(crate) table: &'a Table,
    /// Level of the partition: no bucket is larger.
    pub(crate) top: Level,
    /// Approximate number of events of a base bucket.
    pub(crate) bucket_events: u32,
}

impl PyramidTarget<'_> {
    /// Minimum number of rows for a pyramid: with fewer, reading the rows is as fast.
    pub(crate) fn rows_min(&self) -> u64 {
        rows_min(self.bucket_events)
    }
}

/// Minimum number of rows of a stream in a partition for a pyramid.
pub(crate) fn rows_min(bucket_events: u32) -> u64 {
    u64::from(bucket_events) * 2
}

/// The base level for rows sorted by time: buckets have about `bucket_events` rows, typical ones at
/// most twice as many.
pub(crate) fn choose_base(times: &[i64], top: Level, bucket_events: u32) -> Level {
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return top;
    };
    let seconds = (i128::from(*last) - i128::from(*first)) as f64 / 1e9;
    let width = seconds * f64::from(bucket_events) / times.len() as f64;
    let guess = if width > 0.0 {
        width.log2().round().clamp(-20.0, 40.0) as i32
    } else {
        0
    };
    let mut level = Level::clamped(guess.min(top.get()));
    loop {
        let filled = 1 + times
            .windows(2)
            .filter(|w| match w {
                [a, b] => {
                    a != b
                        && level.bucket_of(Timestamp::from_nanos(*a))
                            != level.bucket_of(Timestamp::from_nanos(*b))
                }
                _ => false,
            })
            .count();
        if times.len() / filled <= 2 * bucket_events as usize || level == Level::MIN {
            return level;
        }
        level = Level::clamped(level.get() - 1);
    }
}

/// Builds the pyramid of rows that are a stream's complete main run in the segment.
pub(crate) fn build(
    target: &PyramidTarget<'_>,
    group: &mut GroupWriter,
    rows: &Rows,
    closes: bool,
    delta: &mut StreamDelta,
) -> Result<()> {
    let base = choose_base(&rows.times, target.top, target.bucket_events);
    let mut writer = PyramidWriter::new(base, target.top).closing(closes);
    writer.push_rows(rows, group, delta)?;
    writer.finish(group, delta)
}

/// Writes the pyramid of a main run from its rows, in order, in bounded memory.
pub(crate) struct PyramidWriter {
    base: Level,
    top: Level,
    /// True when no more rows are expected.
    closes: bool,
    /// Buckets at the end of the rows so far; the last one may get more rows.
    open: Buckets,
    levels: Vec<LevelWriter>,
}

struct LevelWriter {
    level: Level,
    /// Buckets of the block that is being filled, at most 64.
    block: Buckets,
    /// Buckets of the next level from complete blocks; the last one may get more rows.
    folded: Buckets,
}

impl PyramidWriter {
    pub(crate) fn new(base: Level, top: Level) -> PyramidWriter {
        PyramidWriter {
            base,
            top,
            closes: false,
            open: Buckets::new(),
            levels: Vec::new(),
        }
    }

    /// Sets whether all levels are closed at the end.
    pub(crate) fn closing(self, closes: bool) -> PyramidWriter {
        PyramidWriter { closes, ..self }
    }

    /// Adds the next rows, sorted by time and not before the rows added so far.
    pub(crate) fn push_rows(
        &mut self,
        rows: &Rows,
        group: &mut GroupWriter,
        delta: &mut StreamDelta,
    ) -> Result<()> {
        add_rows(&mut self.open, self.base, rows);
        while self.open.len() > 1 {
            let Some((number, bucket)) = self.open.pop_first() else {
                break;
            };
            self.push(0, number, bucket, group, delta)?;
        }
        Ok(())
    }

    /// Adds whole buckets of the base level, before anything else.
    pub(crate) fn push_buckets(
        &mut self,
        buckets: Buckets,
        group: &mut GroupWriter,
        delta: &mut StreamDelta,
    ) -> Result<()> {
        for (number, bucket) in buckets {
            self.push(0, number, bucket, group, delta)?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        index: usize,
        number: i64,
        bucket: Bucket,
        group: &mut GroupWriter,
        delta: &mut StreamDelta,
    ) -> Result<()> {
        let level = Level::clamped(
            self.base.get() + LEVEL_STEP * i32::try_from(index).unwrap_or(i32::MAX / 4),
        );
        if index == self.levels.len() {
            self.levels.push(LevelWriter {
                level,
                block: Buckets::new(),
                folded: Buckets::new(),
            });
        }
        let next = level.get() + LEVEL_STEP;
        let folds = next <= self.top.get();
        let next = Level::clamped(next);
        let mut closed = Vec::new();
        if let Some(writer) = self.levels.get_mut(index) {
            if writer.block.len() >= BLOCK_BUCKETS {
                let block = std::mem::take(&mut writer.block);
                for encoded in to_blocks(level, &block, false) {
                    delta
                        .added_blocks
                        .push(group.put_block(&encoded, self.base)?);
                }
                if folds {
                    fold_into(&mut writer.folded, &block, level, next, &|_| true);
                    let limit = level.parent_bucket(number, next);
                    while let Some((parent, _)) = writer.folded.first_key_value()
                        && *parent < limit
                    {
                        closed.extend(writer.folded.pop_first());
                    }
                }
            }
            writer.block.insert(number, bucket);
        }
        for (parent, bucket) in closed {
            self.push(index + 1, parent, bucket, group, delta)?;
        }
        Ok(())
    }

    /// Writes the remaining buckets.
    pub(crate) fn finish(mut self, group: &mut GroupWriter, delta: &mut StreamDelta) -> Result<()> {
        while let Some((number, bucket)) = self.open.pop_first() {
            self.push(0, number, bucket, group, delta)?;
        }
        let mut index = 0;
        while let Some(writer) = self.levels.get_mut(index) {
            let rest = std::mem::take(&mut writer.block);
            let (level, mut folded) = (writer.level, std::mem::take(&mut writer.folded));
            for block in to_blocks(level, &rest, false) {
                delta.added_blocks.push(group.put_block(&block, self.base)?);
            }
            index += 1;
            let next = level.get() + LEVEL_STEP;
            // A level is needed only above more than one block.
            let has_next = index < self.levels.len() || !folded.is_empty();
            if self.closes && has_next && next <= self.top.get() {
                fold_into(&mut folded, &rest, level, Level::clamped(next), &|_| true);
                for (number, bucket) in folded {
                    self.push(index, number, bucket, group, delta)?;
                }
            }
        }
        delta.base = Some(self.base);
        Ok(())
    }
}

/// Adds rows after the main run to its pyramid. `closes` = no more rows are expected after them.
pub(crate) fn append(
    target: &PyramidTarget<'_>,
    group: &mut GroupWriter,
    (state, rows): (&StreamState, &Rows),
    closes: bool,
    delta: &mut StreamDelta,
) -> Result<()> {
    let Some(base) = state.base else {
        return Ok(());
    };
    if base == Level::MAX {
        return Ok(());
    }
    let mut buckets = Buckets::new();
    add_rows(&mut buckets, base, rows);
    mark_closed(target, state, base, &buckets, delta);
    let result = append_level(target, group, state, (base, buckets), closes, delta);
    match result {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            give_up(state, delta);
            Ok(())
        }
        other => other,
    }
}

/// Marks closed levels as stale where rows are appended nevertheless.
fn mark_closed(
    target: &PyramidTarget<'_>,
    state: &StreamState,
    base: Level,
    new: &Buckets,
    delta: &mut StreamDelta,
) {
    let mut closed = None;
    let mut level = base.get() + LEVEL_STEP;
    while level <= target.top.get() {
        let of_level = Level::clamped(level);
        let last = state.blocks_of(of_level).last();
        closed = closed.max(last.map(|b| of_level.bucket_span(b.last_bucket).last));
        level += LEVEL_STEP;
    }
    if let (Some((first, _)), Some(closed)) = (new.first_key_value(), closed) {
        let untrue = ClosedRange::new(base.bucket_span(*first).first, closed);
        if !untrue.is_empty() {
            let mut stale = delta.stale.take().unwrap_or_else(|| state.stale.clone());
            stale.push(untrue);
            delta.stale = Some(joined(stale));
        }
    }
}

/// Gives up the pyramid, since a needed block is damaged: from now on this stream's rows in the
/// segment are read instead.
pub(crate) fn give_up(state: &StreamState, delta: &mut StreamDelta) {
    delta.base = Some(Level::MAX);
    delta.removed_blocks = state.blocks.iter().map(|b| b.offset).collect();
    delta
        .removed_blocks
        .extend(delta.added_blocks.drain(..).map(|b| b.offset));
    delta.stale = Some(Vec::new());
}

fn append_level(
    target: &PyramidTarget<'_>,
    group: &mut GroupWriter,
    state: &StreamState,
    (base, new): (Level, Buckets),
    closes: bool,
    delta: &mut StreamDelta,
) -> Result<()> {
    delta.base = Some(base);
    let mut level = base;
    let mut added = new;
    loop {
        let old = state.blocks_of(level);
        // The trailing block is written again with new buckets, unless it is full and complete.
        let mut kept = old;
        if let Some((trailing, before)) = old.split_last() {
            let touches = added
                .first_key_value()
                .is_some_and(|(n, _)| *n <= trailing.last_bucket);
            if (trailing.count as usize) < BLOCK_BUCKETS || touches {
                let block = target.store.block(target.segment, trailing)?;
                let mut buckets = from_block(&block, target.table);
                for (number, bucket) in added {
                    buckets.entry(number).or_default().merge(&bucket);
                }
                added = buckets;
                delta.removed_blocks.push(trailing.offset);
                kept = before;
            }
        }
        let blocks = to_blocks(level, &added, false);
        let mut open = None;
        for block in &blocks {
            open = block.buckets.first().copied();
            delta.added_blocks.push(group.put_block(block, base)?);
        }
        let next = Level::clamped(level.get() + LEVEL_STEP);
        let Some(open) = open else { return Ok(()) };
        if next > target.top || kept.len() + blocks.len() < 2 {
            return Ok(());
        }
        let limit = match closes {
            true => i64::MAX,
            false => level.parent_bucket(open, next),
        };
        let from = state.blocks_of(next).last().map(|b| b.last_bucket + 1);
        if from.is_some_and(|from| from >= limit) {
            return Ok(());
        }
        let inside = |parent: i64| parent < limit && from.is_none_or(|from| parent >= from);
        let mut folded = Buckets::new();
        for entry in kept.iter().rev() {
            if !inside(level.parent_bucket(entry.last_bucket, next))
                && level.parent_bucket(entry.last_bucket, next) < limit
            {
                break;
            }
            let block = target.store.block(target.segment, entry)?;
            fold_into(
                &mut folded,
                &from_block(&block, target.table),
                level,
                next,
                &inside,
            );
        }
        fold_into(&mut folded, &added, level, next, &inside);
        if folded.is_empty() {
            return Ok(());
        }
        added = folded;
        level = next;
    }
}

fn fold_into(
    folded: &mut Buckets,
    buckets: &Buckets,
    level: Level,
    next: Level,
    inside: &impl Fn(i64) -> bool,
) {
    for (number, bucket) in buckets {
        let parent = level.parent_bucket(*number, next);
        if inside(parent) {
            folded.entry(parent).or_default().merge(bucket);
        }
    }
}

/// Replaces base buckets by recomputed ones after a merge, and marks the levels above as stale
/// there.
pub(crate) fn replace(
    target: &PyramidTarget<'_>,
    group: &mut GroupWriter,
    state: &StreamState,
    buckets: &Buckets,
    delta: &mut StreamDelta,
) -> Result<()> {
    let Some(base) = state.base.filter(|b| *b != Level::MAX) else {
        return Ok(());
    };
    delta.base = Some(base);
    let result = replace_blocks(target, group, state, base, buckets, delta);
    match result {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            give_up(state, delta);
            Ok(())
        }
        other => other,
    }
}

fn replace_blocks(
    target: &PyramidTarget<'_>,
    group: &mut GroupWriter,
    state: &StreamState,
    base: Level,
    buckets: &Buckets,
    delta: &mut StreamDelta,
) -> Result<()> {
    let blocks = state.blocks_of(base);
    // Block i receives the numbers from its first up to the next block's first; the first block
    // also receives smaller ones.
    let mut by_block: std::collections::BTreeMap<usize, Buckets> =
        std::collections::BTreeMap::new();
    for (number, bucket) in buckets {
        let at = blocks
            .partition_point(|b| b.first_bucket <= *number)
            .saturating_sub(1);
        by_block
            .entry(at)
            .or_default()
            .insert(*number, bucket.clone());
    }
    for (at, replaced) in by_block {
        let mut merged = match blocks.get(at) {
            Some(entry) => {
                delta.removed_blocks.push(entry.offset);
                let block = target.store.block(target.segment, entry)?;
                from_block(&block, target.table)
            }
            None => Buckets::new(),
        };
        merged.extend(replaced);
        for block in to_blocks(base, &merged, true) {
            delta.added_blocks.push(group.put_block(&block, base)?);
        }
    }
    if state.blocks.iter().any(|b: &BlockEntry| b.level > base) {
        let mut stale = delta.stale.take().unwrap_or_else(|| state.stale.clone());
        stale.extend(buckets.keys().map(|n| base.bucket_span(*n)));
        delta.stale = Some(joined(stale));
    }
    Ok(())
}

/// Sorts ranges and joins adjacent ones; beyond a maximum number, also the ones with the smallest
/// gaps.
pub(super) fn joined(mut ranges: Vec<ClosedRange>) -> Vec<ClosedRange> {
    ranges.sort_by_key(|r| r.first);
    let join = |ranges: Vec<ClosedRange>, gap: i128| {
        let mut out: Vec<ClosedRange> = Vec::new();
        for range in ranges {
            match out.last_mut() {
                Some(last)
                    if i128::from(range.first.as_nanos()) - i128::from(last.last.as_nanos())
                        <= 1 + gap =>
                {
                    last.last = last.last.max(range.last);
                }
                _ => out.push(range),
            }
        }
        out
    };
    ranges = join(ranges, 0);
    if ranges.len() > STALE_RANGES_MAX {
        let mut gaps: Vec<i128> = ranges
            .windows(2)
            .map(|w| match w {
                [a, b] => i128::from(b.first.as_nanos()) - i128::from(a.last.as_nanos()),
                _ => 0,
            })
            .collect();
        gaps.sort_unstable();
        let gap = gaps
            .get(ranges.len() - STALE_RANGES_MAX / 2)
            .copied()
            .unwrap_or(i128::MAX / 2);
        ranges = join(ranges, gap);
    }
    ranges
}
