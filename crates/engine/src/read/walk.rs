//! Walks the pyramid of a stream in a partition from the coarsest level down.
//!
//! Invariants: every row of the main run in the range is either in a bucket that the visitor
//! accepted or skipped, or in a base bucket that is returned for reading. Buckets with rows of late
//! runs or memory, and buckets only partly in the range, are always returned; levels above the base
//! are not used where they are stale. Where the rows have been aged away, base buckets are shown
//! unchanged, also buckets only partly in the range. Failure: a damaged block is replaced by
//! reading its rows; where these were removed it is an error of the read.

use super::bins::Bins;
use super::merge::{Hidden, Merge};
use super::view::{StreamView, late_sources};
use crate::memory::expiry::{expiry_of, first_expiry};
use crate::replication::needed::descent::{below, left_to_below, no_wider, stale_buckets};
use crate::storage::read_stats;
use crate::storage::segment::pyramid::in_table_type;
use crate::storage::segment::{BlockEntry, BlockPart, Partition, StreamContents};
use crate::{ErrorKind, Result};
use headwater_codec::block::BucketBlock;
use headwater_types::invariant::part_of;
use headwater_types::{Aggregate, ClosedRange, FieldId, Level, Timestamp};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Number of blocks that are looked up at a time: a tile at a stored level has 8 or 9.
const BLOCKS_AHEAD: usize = 16;

/// Decision about a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Visit {
    /// The bucket is done.
    Done,
    /// Visit its children.
    Descend,
}

/// A bucket shown to the visitor.
pub(crate) struct VisitedBucket<'a> {
    pub(crate) span: ClosedRange,
    /// True when its rows do not exist any more: the visitor must decide now.
    pub(crate) is_final: bool,
    range: &'a ClosedRange,
    block: &'a BucketBlock,
    index: usize,
    number: i64,
    view: &'a StreamView,
}

impl VisitedBucket<'_> {
    /// True when a value of the field in the bucket has expired.
    pub(crate) fn has_expired(&self, field: FieldId) -> bool {
        self.view.now.is_some_and(|now| {
            let expiries = self.aggregate(expiry_of(field));
            expiries
                .and_then(|a| first_expiry(a.extremes))
                .is_some_and(|first| first <= now)
        })
    }

    /// The bin that contains the whole bucket, if there is one.
    pub(crate) fn bin(&self, bins: &Bins) -> Option<i128> {
        if let Bins::Level(level) = bins
            && *level >= self.block.level
        {
            return Some(self.block.level.parent_bucket(self.number, *level).into());
        }
        let bin = bins.of(self.span.first);
        (self.span.last <= bins.end(bin)).then_some(bin)
    }

    /// True when an aged bucket, whose values have this mean time, is in the range and exists. The
    /// bucket counts as a whole before or after the retention cutoff; a delete removes it only if
    /// it covers the whole bucket, and such a bucket is not shown.
    pub(crate) fn counts_at(&self, time: Timestamp) -> bool {
        self.range.contains(time) && !self.view.table.lifetime.retention_cutoff.ends(time)
    }

    /// Number of rows of the bucket, including rows without a value of some field.
    pub(crate) fn rows(&self) -> u64 {
        self.block.rows.get(self.index).copied().unwrap_or(0)
    }

    /// Mean time of the values of its first field.
    pub(crate) fn mean_time(&self) -> Option<Timestamp> {
        let fields = self.block.fields.iter();
        let mut times = fields.filter_map(|(_, _, aggregates)| {
            let aggregate = aggregates.get(self.index).filter(|a| a.count > 0)?;
            aggregate.mean_time().map(Timestamp::from_nanos)
        });
        times.next()
    }

    /// The aggregate of a field, in the current type of the table.
    pub(crate) fn aggregate(&self, field: FieldId) -> Option<Aggregate> {
        let at = self
            .block
            .fields
            .binary_search_by_key(&field, |(f, ..)| *f)
            .ok()?;
        let (_, field_type, aggregates) = self.block.fields.get(at)?;
        let aggregate = aggregates.get(self.index).filter(|a| a.count > 0)?;
        Some(in_table_type(&self.view.table, field, *field_type, aggregate).1)
    }
}

/// The block decoded last at its level, by its offset: many consecutive buckets that are descended
/// into are in one block.
struct DecodedBlock {
    level: Level,
    offset: u64,
    /// `None` = only a part was decoded.
    complete: Option<Arc<BucketBlock>>,
}

/// Number of levels above the base from which on decoded blocks are cached: one of them covers a
/// few hundred base blocks.
const COARSE: i32 = 8;

/// A block, or the requested part of it.
struct LoadedBlock {
    block: Arc<BucketBlock>,
    is_whole: bool,
}

/// A block is decoded in part when at most one in this number of its buckets is requested, unless
/// it is read again.
const PART: u64 = 4;

pub(crate) struct Walk<'a> {
    view: &'a StreamView,
    partition: &'a Partition,
    state: &'a StreamContents,
    base: Level,
    aged: bool,
    /// The level where the walk begins.
    top: Level,
    /// The fields that the visitor reads; `None` = any.
    fields: Option<&'a [FieldId]>,
    range: ClosedRange,
    /// Base buckets with rows of late runs or memory.
    dirty: BTreeSet<i64>,
    /// Stretches whose stored events are deleted or expired.
    hidden: Hidden,
    /// Base buckets whose rows must be read.
    to_read: BTreeSet<i64>,
    /// Ranges to read whole, where a block is damaged.
    damaged: Vec<ClosedRange>,
    /// The block decoded last at each level.
    decoded: Vec<DecodedBlock>,
}

impl<'a> Walk<'a> {
    /// `None` when the stream has no pyramid in the partition. `memory_times` are the times of
    /// events in memory, sorted.
    pub(crate) fn new(
        view: &'a StreamView,
        partition: &'a Partition,
        state: &'a StreamContents,
        range: ClosedRange,
        memory_times: &[i64],
    ) -> Result<Option<Walk<'a>>> {
        let Some(mut walk) = Walk::of_main_run(view, partition, state, range) else {
            return Ok(None);
        };
        let (base, range) = (walk.base, walk.range);
        mark(&mut walk.dirty, base, memory_times, &range);
        for times in late_times(view, partition, state, &range)? {
            mark(&mut walk.dirty, base, &times, &range);
        }
        Ok(Some(walk))
    }

    /// As [`Walk::new`], ignoring late runs and memory.
    pub(crate) fn of_main_run(
        view: &'a StreamView,
        partition: &'a Partition,
        state: &'a StreamContents,
        range: ClosedRange,
    ) -> Option<Walk<'a>> {
        let base = state.base().filter(|b| *b != Level::MAX)?;
        Some(Walk {
            view,
            partition,
            state,
            base,
            aged: state.is_aged(),
            top: state.top().unwrap_or(base),
            fields: None,
            range: range.intersect(&partition.span()),
            dirty: BTreeSet::new(),
            hidden: view.hidden(partition),
            to_read: BTreeSet::new(),
            damaged: Vec::new(),
            decoded: Vec::new(),
        })
    }

    pub(crate) fn base(&self) -> Level {
        self.base
    }

    /// True when the rows were aged away and only their buckets remain.
    pub(crate) fn is_aged(&self) -> bool {
        self.aged
    }

    /// Begins at the coarsest level with buckets no wider than this, for a visitor that would only
    /// descend into wider ones.
    pub(crate) fn no_wider_than(mut self, width_ns: i128) -> Walk<'a> {
        self.top = no_wider(self.top, self.base, width_ns);
        self
    }

    /// Decodes only the aggregates of these fields, for a visitor that reads no others.
    pub(crate) fn only(mut self, fields: &'a [FieldId]) -> Walk<'a> {
        // Buckets of aged rows get their time from their first field.
        self.fields = (!self.aged).then_some(fields);
        self
    }

    /// Shows buckets to the visitor and returns the ranges whose rows must be read, by time,
    /// disjoint.
    pub(crate) fn run(
        mut self,
        visit: &mut impl FnMut(&VisitedBucket<'_>) -> Visit,
    ) -> Result<Vec<ClosedRange>> {
        let (top, range) = (self.top, self.range);
        self.level(top, range, visit)?;
        let mut spans: Vec<ClosedRange> = self.damaged.clone();
        for number in self.to_read.union(&self.dirty) {
            let span = self.base.bucket_span(*number).intersect(&self.range);
            if !span.is_empty() {
                spans.push(span);
            }
        }
        spans.sort_by_key(|s| s.first);
        let mut out: Vec<ClosedRange> = Vec::new();
        for span in spans {
            match out.last_mut() {
                Some(last) if span.first.as_nanos() <= last.last.as_nanos().saturating_add(1) => {
                    last.last = last.last.max(span.last);
                }
                _ => out.push(span),
            }
        }
        Ok(out)
    }

    /// Visits the buckets of `level` in `range`; the part that this level does not have yet is
    /// visited at the level below.
    fn level(
        &mut self,
        level: Level,
        range: ClosedRange,
        visit: &mut impl FnMut(&VisitedBucket<'_>) -> Visit,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let first = level.bucket_of(range.first);
        let last = level.bucket_of(range.last);
        let state = self.state;
        let stale = stale_buckets(state.stale(), self.base, level, first, last);
        let store = &self.view.core.store;
        let blocks = state.blocks_in(store, level, (first, last))?;
        let mut blocks_here = &*blocks;
        if let Some((entry, others)) = blocks_here.split_first()
            && let Some(block) = self.decoded_last(level, entry)
        {
            self.block(level, &block, &range, &stale, visit)?;
            blocks_here = others;
        }
        for entries in blocks_here.chunks(BLOCKS_AHEAD) {
            let found = self.blocks(level, entries, (first, last));
            for (entry, found) in entries.iter().zip(found) {
                match found {
                    Ok(LoadedBlock { block, is_whole }) => {
                        self.remember(level, entry, is_whole.then(|| Arc::clone(&block)));
                        self.block(level, &block, &range, &stale, visit)?;
                    }
                    // Where the rows were removed, the content of this block exists nowhere else.
                    Err(error)
                        if error.kind() == ErrorKind::Corrupt
                            && !(self.aged && level == self.base) =>
                    {
                        self.without(level, entry, range, visit)?
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if level > self.base {
            let newest = state.last_bucket(level);
            for left in left_to_below(level, newest, &range, &stale) {
                self.level(self.below(level), left, visit)?;
            }
        }
        Ok(())
    }

    /// Blocks of a level, as far as they are requested.
    fn blocks(
        &self,
        level: Level,
        entries: &[BlockEntry],
        (first, last): (i64, i64),
    ) -> Vec<Result<LoadedBlock>> {
        let (store, id) = (&self.view.core.store, self.partition.id());
        if let Some([field]) = self.fields
            && level.get() >= self.base.get() + COARSE
        {
            let whole = |block| LoadedBlock {
                block,
                is_whole: true,
            };
            let found = entries.iter();
            return found
                .map(|entry| store.coarse_block(id, entry, *field).map(whole))
                .collect();
        }
        let raw = store.raw_blocks(id, entries);
        let found = entries.iter().zip(raw).map(|(entry, raw)| {
            let (buckets, is_whole) = self.part(level, entry, first, last);
            let part = BlockPart {
                fields: self.fields,
                buckets,
            };
            let block = Arc::new(store.decode_block(id, entry, raw, &part)?);
            Ok(LoadedBlock { block, is_whole })
        });
        found.collect()
    }

    fn decoded_last(&self, level: Level, entry: &BlockEntry) -> Option<Arc<BucketBlock>> {
        let known = self.decoded.iter().find(|d| d.level == level)?;
        known
            .complete
            .clone()
            .filter(|_| known.offset == entry.offset)
    }

    /// The buckets of a block to decode when `first` to `last` are requested, and true if these are
    /// all.
    fn part(
        &self,
        level: Level,
        entry: &BlockEntry,
        first: i64,
        last: i64,
    ) -> (RangeInclusive<i64>, bool) {
        let all = entry.first_bucket..=entry.last_bucket;
        let wanted = first.max(*all.start())..=last.min(*all.end());
        let width = |r: &RangeInclusive<i64>| r.end().abs_diff(*r.start()).saturating_add(1);
        let is_known =
            |d: &DecodedBlock| d.level == level && d.offset == entry.offset && d.complete.is_none();
        if width(&wanted) > width(&all) / PART || self.decoded.iter().any(is_known) {
            return (i64::MIN..=i64::MAX, true);
        }
        (wanted, false)
    }

    fn remember(&mut self, level: Level, entry: &BlockEntry, complete: Option<Arc<BucketBlock>>) {
        let newest = DecodedBlock {
            level,
            offset: entry.offset,
            complete,
        };
        match self.decoded.iter_mut().find(|d| d.level == level) {
            Some(known) => *known = newest,
            None => self.decoded.push(newest),
        }
    }

    fn below(&self, level: Level) -> Level {
        below(level, self.base)
    }

    fn without(
        &mut self,
        level: Level,
        entry: &BlockEntry,
        range: ClosedRange,
        visit: &mut impl FnMut(&VisitedBucket<'_>) -> Visit,
    ) -> Result<()> {
        let span = level
            .span(entry.first_bucket, entry.last_bucket)
            .intersect(&range);
        if level > self.base {
            return self.level(self.below(level), span, visit);
        }
        self.damaged.push(span);
        Ok(())
    }

    fn block(
        &mut self,
        level: Level,
        block: &BucketBlock,
        range: &ClosedRange,
        stale: &[(i64, i64)],
        visit: &mut impl FnMut(&VisitedBucket<'_>) -> Visit,
    ) -> Result<()> {
        let first = block
            .buckets
            .partition_point(|b| level.bucket_span(*b).last < range.first);
        let mut looked_at = 0;
        for (index, number) in block.buckets.iter().enumerate().skip(first) {
            let span = level.bucket_span(*number);
            if span.first > range.last {
                break;
            }
            if stale
                .iter()
                .any(|(from, to)| from <= number && number <= to)
            {
                continue;
            }
            if self.hidden.swallows(&span) {
                // Rows in memory or late runs there are read as dirty buckets.
                continue;
            }
            looked_at += 1;
            let whole = self.range.first <= span.first && span.last <= self.range.last;
            let known = whole && !self.is_dirty(&span) && !self.hidden.touches(&span);
            let is_final = self.aged && level == self.base;
            let seen = VisitedBucket {
                span,
                is_final,
                range: &self.range,
                block,
                index,
                number: *number,
                view: self.view,
            };
            if is_final {
                visit(&seen);
                continue;
            }
            if known && visit(&seen) == Visit::Done {
                continue;
            }
            if level == self.base {
                self.to_read.insert(*number);
            } else {
                self.level(self.below(level), span.intersect(range), visit)?;
            }
        }
        read_stats::buckets(looked_at);
        Ok(())
    }

    fn is_dirty(&self, span: &ClosedRange) -> bool {
        if self.dirty.is_empty() {
            return false;
        }
        let first = self.base.bucket_of(span.first);
        let last = self.base.bucket_of(span.last);
        self.dirty.range(first..=last).next().is_some()
    }
}

fn mark(dirty: &mut BTreeSet<i64>, level: Level, times: &[i64], range: &ClosedRange) {
    let mut at = times.partition_point(|t| *t < range.first.as_nanos());
    while let Some(time) = times.get(at).filter(|t| **t <= range.last.as_nanos()) {
        let number = level.bucket_of(Timestamp::from_nanos(*time));
        dirty.insert(number);
        let last = level.bucket_span(number).last.as_nanos();
        at += part_of(times, at.., "times of a bucket").partition_point(|t| *t <= last);
    }
}

/// Times of the events in late runs within a range.
fn late_times(
    view: &StreamView,
    partition: &Partition,
    state: &StreamContents,
    range: &ClosedRange,
) -> Result<Vec<Vec<i64>>> {
    let mut out = Vec::new();
    let sources = late_sources(view, partition, state, range);
    if sources.is_empty() {
        return Ok(out);
    }
    let mut merge = Merge::new(&view.core.store, &view.table, *range, Some(&[]), sources);
    while let Some(rows) = merge.next_rows()? {
        out.push(rows.times);
    }
    Ok(out)
}
