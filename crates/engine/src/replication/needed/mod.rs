//! The bytes of a segment that readers of tiles at a level and above read, for all streams and
//! times: the data that a copy needs to answer all of these requests.
//!
//! These are: header, footers and checkpoints; of each stream's pyramid the largest stored level at
//! or below this one, and all levels above it; below them the blocks that a walk descends to, where
//! levels are stale or not closed yet; all leaves of late runs; and where these, or deletes that
//! are not carried out, make buckets of the base level dirty, the blocks on the way there and the
//! leaves of these buckets. Where a pyramid begins above this level, or is missing, all leaves.
//! Expired values are not considered: a read that meets them needs rows.
//!
//! Rules subscribe to each stream from a level on, or to all of its rows; pins to the rows of a
//! stretch of time.
//!
//! Invariants: a reader of tiles at this level or above reads no other bytes
//! (tests/it/remote/needed.rs). A complete answer requires the footers and the leaves of late runs;
//! where a copy does not have these yet, they are listed, and the answer says that more will be
//! needed. Concurrency: as for reads.

pub(crate) mod descent;

use crate::common::ids::StreamId;
use crate::common::ranges::{overlapping, swallows, union};
use crate::replication::state::{State, StatePartition};
use crate::replication::subscriptions::{Outcome, StreamShare, Subscription};
use crate::storage::segment::{LeafEntry, Partition, SegmentFile, Store, StreamState};
use crate::storage::tombstone::Tombstone;
use crate::{Error, ErrorKind, Result};
use descent::{below, left_to_below, no_wider, stale_buckets};
use headwater_types::{ByteRange, ClosedRange, Level, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Purpose of a range of a segment; coarse before fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededFor {
    /// The segment's contents: header, footers and checkpoints.
    Frame,
    /// Buckets of this level.
    Buckets(Level),
    /// Late rows.
    LateRows,
    /// Rows of the main run.
    Rows,
}

impl NeededFor {
    /// Rank of fetching: smaller ranks are fetched earlier.
    #[must_use]
    pub fn rank(self) -> u8 {
        match self {
            NeededFor::Frame => 0,
            NeededFor::Buckets(level) => {
                u8::try_from(1 + Level::MAX.get() - level.get()).unwrap_or(u8::MAX - 2)
            }
            NeededFor::LateRows => u8::MAX - 1,
            NeededFor::Rows => u8::MAX,
        }
    }
}

/// Reason for which a range is fetched; of several reasons the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A reader requested it.
    Requested,
    /// Tiles at the subscribed level, and above, need it.
    Summaries,
    /// A pin contains it.
    Pinned,
    /// All rows of its stream are subscribed.
    Rows,
    /// Rows that may be fetched before a reader needs them.
    Ahead,
}

impl Reason {
    /// All reasons, in their order.
    pub const ALL: [Reason; 5] = [
        Reason::Requested,
        Reason::Summaries,
        Reason::Pinned,
        Reason::Rows,
        Reason::Ahead,
    ];
}

/// Explanation of a subscribed or present range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeReason {
    /// The reason.
    pub reason: Reason,
    /// The priority of the rule.
    pub priority: u8,
    /// The number of the pin.
    pub pin: Option<u64>,
    /// The score that orders it among others, where scores are used.
    pub score: Option<f64>,
}

/// A range of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededRange {
    /// Offset of its start.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The purpose.
    pub needed_for: NeededFor,
}

impl NeededRange {
    /// Its bytes.
    #[must_use]
    pub fn byte_range(&self) -> ByteRange {
        ByteRange::at(self.offset, self.bytes)
    }

    /// Narrows it to a part of its bytes.
    #[must_use]
    pub fn narrowed(&self, part: ByteRange) -> NeededRange {
        NeededRange {
            offset: part.start(),
            bytes: part.len(),
            needed_for: self.needed_for,
        }
    }
}

/// A subscribed range: every part of it has the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscribedRange {
    pub(crate) range: NeededRange,
    pub(crate) reason: Reason,
    pub(crate) priority: u8,
    pub(crate) pin: Option<u64>,
    /// For leaves: one of the streams with rows in them, and the time of these rows.
    pub(crate) rows: Option<(StreamId, ClosedRange)>,
}

impl SubscribedRange {
    /// Rank among ranges of the same reason: the smallest is worth most.
    pub(crate) fn rank(&self) -> (u8, u8) {
        (u8::MAX - self.priority, self.range.needed_for.rank())
    }
}

/// The ranges needed of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// By offset; disjoint.
    pub(crate) ranges: Vec<SubscribedRange>,
    /// False where the contents of these ranges must be present first, to determine the rest.
    pub(crate) is_complete: bool,
}

/// Leaves and blocks, by offset.
#[derive(Default)]
struct RangeCollector {
    parts: BTreeMap<u64, SubscribedRange>,
    is_partial: bool,
}

impl RangeCollector {
    fn put(&mut self, part: SubscribedRange) {
        let known = self.parts.entry(part.range.offset).or_insert(part);
        // A leaf may be shared, as a late one and as one of a main run, and by several streams.
        let priority = known.priority.max(part.priority);
        let order = |part: &SubscribedRange| (part.reason, part.range.needed_for.rank());
        if order(&part) < order(known) {
            *known = part;
        }
        known.priority = priority;
    }

    fn frame(&mut self, range: ByteRange, priority: u8) {
        self.put(SubscribedRange {
            range: NeededRange {
                offset: range.start(),
                bytes: range.len(),
                needed_for: NeededFor::Frame,
            },
            reason: Reason::Summaries,
            priority,
            pin: None,
            rows: None,
        });
    }

    fn finish(self) -> Needed {
        Needed {
            ranges: self.parts.into_values().collect(),
            is_complete: !self.is_partial,
        }
    }
}

/// The subscribed ranges of a partition's segment. `file` is the file in `store`.
pub(crate) fn needed(
    store: &Store,
    state: &State,
    partition: &StatePartition,
    file: &Arc<SegmentFile>,
    subscription: &Subscription,
) -> Result<Needed> {
    let mut found = RangeCollector::default();
    let record = &partition.record;
    let of_table = subscription.of_table(record.table);
    if of_table.want == StreamShare::Nothing {
        return Ok(found.finish());
    }
    for range in partition.frame() {
        found.frame(range, of_table.priority);
    }
    let table = state.table(record.table);
    let table = table.ok_or_else(|| Error::internal("a partition refers to an unknown table"))?;
    if table.lifetime.dropped {
        return Ok(found.finish());
    }
    let opened = Partition::new(record.clone(), Arc::clone(file));
    let segment = match store.state(&opened) {
        Err(error) if error.kind() == ErrorKind::Elsewhere => {
            found.is_partial = true;
            return Ok(found.finish());
        }
        other => other?,
    };
    let span = record.span();
    let cut = subscription.cutoff(&table.lifetime).last_before();
    let before_cut = cut.map(|last| ClosedRange::new(Timestamp::MIN, last).intersect(&span));
    let tombstones: Vec<Tombstone> = state
        .tombstones()
        .into_iter()
        .filter(|t| t.sequence > record.sequence)
        .collect();
    for page in segment.pages() {
        let each = store.each_stream(&segment, page, &mut |stream, held| {
            let mut partly = PartOfStream {
                store,
                opened: &opened,
                state: held,
                span,
                hidden: hidden(&tombstones, (table.id, stream), &span, before_cut),
                stream,
                outcome: subscription.of_stream(table.id, stream),
                found: &mut found,
            };
            partly.find()?;
            partly.pinned(&subscription.pins(table.id, stream));
            if subscription.looks_ahead {
                partly.rows(&ClosedRange::ALL, Reason::Ahead);
            }
            Ok(())
        });
        match each {
            // Pages of a checkpoint that belong to earlier groups.
            Err(error) if error.kind() == ErrorKind::Elsewhere => found.is_partial = true,
            other => other?,
        }
    }
    Ok(found.finish())
}

/// The ranges of a partition's segment that a reader of one stream reads in addition to the frame,
/// each with the first instant of its contents.
pub(crate) struct NeededOfStream {
    pub(crate) ranges: Vec<(NeededRange, Timestamp)>,
    /// False where late rows must be present first, to determine the rest.
    pub(crate) is_complete: bool,
}

/// The ranges like [`needed`], for one stream in a range, without the ranges in `hidden`: for tiles
/// at a level and above, or without a level for rows.
pub(crate) fn needed_of_stream(
    store: &Store,
    opened: &Partition,
    (stream, state): (StreamId, &StreamState),
    (range, hidden): (ClosedRange, Vec<ClosedRange>),
    level: Option<Level>,
) -> Result<NeededOfStream> {
    let mut found = RangeCollector::default();
    let mut partly = PartOfStream {
        store,
        opened,
        state,
        span: opened.span().intersect(&range),
        hidden,
        stream,
        outcome: Outcome {
            want: level.map_or(StreamShare::Full, StreamShare::Summaries),
            priority: 0,
        },
        found: &mut found,
    };
    match level {
        Some(_) => partly.find()?,
        None => {
            let span = partly.span;
            for leaf in state.late.iter().flatten() {
                if leaf.range().overlaps(&span) {
                    partly.leaf(leaf, NeededFor::LateRows, Reason::Rows, None);
                }
            }
            partly.rows(&span, Reason::Rows);
        }
    }
    let blocks = state.blocks.iter();
    let blocks: BTreeMap<u64, Timestamp> = blocks
        .map(|b| (b.offset, b.level.bucket_span(b.first_bucket).first))
        .collect();
    let found = found.finish();
    let ranges = found.ranges.iter().map(|part| {
        let of_rows = part.rows.map(|(_, rows)| rows.first);
        let first = of_rows.or_else(|| blocks.get(&part.range.offset).copied());
        (part.range, first.unwrap_or(Timestamp::MIN))
    });
    Ok(NeededOfStream {
        ranges: ranges.collect(),
        is_complete: found.is_complete,
    })
}

/// Ranges whose stored rows of a stream do not count any more.
fn hidden(
    tombstones: &[Tombstone],
    (table, stream): (crate::common::ids::TableId, StreamId),
    span: &ClosedRange,
    before_cut: Option<ClosedRange>,
) -> Vec<ClosedRange> {
    let concerned = tombstones.iter().filter(|t| t.concerns(table, stream));
    let deleted = concerned.map(|t| t.range.intersect(span));
    union(deleted.chain(before_cut).collect())
}

/// The contents of a partition for a stream.
struct PartOfStream<'a, 'b> {
    store: &'a Store,
    opened: &'a Partition,
    state: &'b StreamState,
    span: ClosedRange,
    hidden: Vec<ClosedRange>,
    stream: StreamId,
    outcome: Outcome,
    found: &'a mut RangeCollector,
}

impl<'b> PartOfStream<'_, 'b> {
    fn find(&mut self) -> Result<()> {
        for leaf in self.state.late.iter().flatten() {
            self.leaf(leaf, NeededFor::LateRows, Reason::Summaries, None);
        }
        let span = self.span;
        let Some(base) = self.state.base.filter(|b| *b != Level::MAX) else {
            self.rows(&span, Reason::Summaries);
            return Ok(());
        };
        let level = match self.outcome.want {
            // Only for whole tables, which were left out.
            StreamShare::Nothing => return Ok(()),
            StreamShare::Full => Level::MIN,
            StreamShare::Summaries(level) => level,
        };
        match self.outcome.want {
            _ if self.state.is_aged() => {}
            StreamShare::Full => self.rows(&span, Reason::Rows),
            // Tiles finer than the base are computed from rows.
            _ if level < base => self.rows(&span, Reason::Summaries),
            _ => {}
        }
        let top = self.state.blocks.last().map_or(base, |b| b.level);
        let first = no_wider(top, base, level.bucket_start_wide(1));
        let mut from = top;
        loop {
            self.level(from, base, span);
            if from <= first {
                break;
            }
            from = below(from, base);
        }
        for time in self.edges() {
            self.down_to(time, first, base, false);
        }
        for time in self.late_times(base)? {
            self.down_to(time, first, base, true);
        }
        Ok(())
    }

    /// Leaves in pinned stretches.
    fn pinned(&mut self, pins: &[(u64, ClosedRange)]) {
        for (number, range) in pins {
            for leaf in self.leaves(range) {
                self.leaf(leaf, NeededFor::Rows, Reason::Pinned, Some(*number));
            }
        }
    }

    fn leaf(&mut self, leaf: &LeafEntry, needed_for: NeededFor, reason: Reason, pin: Option<u64>) {
        self.found.put(SubscribedRange {
            range: NeededRange {
                offset: leaf.offset,
                bytes: u64::from(leaf.bytes),
                needed_for,
            },
            reason,
            priority: self.outcome.priority,
            pin,
            rows: Some((self.stream, leaf.range())),
        });
    }

    /// Leaves of the main run that overlap a range.
    fn leaves(&self, range: &ClosedRange) -> Vec<&'b LeafEntry> {
        let from = self.state.main.partition_point(|l| l.last < range.first);
        let behind = self.state.main.iter().skip(from);
        behind.take_while(|l| l.first <= range.last).collect()
    }

    /// Adds the leaves of the main run that overlap a range.
    fn rows(&mut self, range: &ClosedRange, reason: Reason) {
        for leaf in self.leaves(range) {
            self.leaf(leaf, NeededFor::Rows, reason, None);
        }
    }

    /// Blocks of a level in a range.
    fn blocks(&mut self, level: Level, range: &ClosedRange) {
        let (first, last) = (level.bucket_of(range.first), level.bucket_of(range.last));
        let blocks = self.state.blocks_of(level);
        let from = blocks.partition_point(|b| b.last_bucket < first);
        let behind = blocks.iter().skip(from);
        for block in behind.take_while(|b| b.first_bucket <= last) {
            self.found.put(SubscribedRange {
                range: NeededRange {
                    offset: block.offset,
                    bytes: u64::from(block.bytes),
                    needed_for: NeededFor::Buckets(block.level),
                },
                reason: Reason::Summaries,
                priority: self.outcome.priority,
                pin: None,
                rows: None,
            });
        }
    }

    /// Adds the ranges that a walk over a range reads from a level on, in clean buckets.
    fn level(&mut self, level: Level, base: Level, range: ClosedRange) {
        if range.is_empty() {
            return;
        }
        self.blocks(level, &range);
        if level == base {
            return;
        }
        let (first, last) = (level.bucket_of(range.first), level.bucket_of(range.last));
        let stale = stale_buckets(&self.state.stale, base, level, first, last);
        let newest = self.state.blocks_of(level).last().map(|b| b.last_bucket);
        for left in left_to_below(level, newest, &range, &stale) {
            self.level(below(level, base), base, left);
        }
    }

    /// Adds the ranges that a walk reads from a level on down to the bucket of an instant: if
    /// `is_dirty`, or where the bucket is partly hidden.
    fn down_to(&mut self, time: Timestamp, from: Level, base: Level, is_dirty: bool) {
        let mut level = from;
        loop {
            let bucket = level
                .bucket_span(level.bucket_of(time))
                .intersect(&self.span);
            let is_partly_hidden =
                !overlapping(&self.hidden, &bucket).is_empty() && !swallows(&self.hidden, &bucket);
            let looks_in = is_dirty || is_partly_hidden;
            if level == base {
                if looks_in {
                    self.rows(&bucket, Reason::Summaries);
                }
                return;
            }
            let next = below(level, base);
            if looks_in {
                self.level(next, base, bucket);
            }
            level = next;
        }
    }

    /// Start and end instants of hidden ranges.
    fn edges(&self) -> Vec<Timestamp> {
        let hidden = self.hidden.iter();
        hidden.flat_map(|range| [range.first, range.last]).collect()
    }

    /// An instant of each bucket of the base level that contains a late row.
    fn late_times(&mut self, base: Level) -> Result<Vec<Timestamp>> {
        let mut dirty: BTreeSet<i64> = BTreeSet::new();
        for leaf in self.state.late.iter().flatten() {
            let rows = 0..usize::try_from(leaf.count).unwrap_or(usize::MAX);
            match self.store.leaf_columns(self.opened.id(), leaf, rows, &[]) {
                Err(error) if error.kind() == ErrorKind::Elsewhere => self.found.is_partial = true,
                found => {
                    let times = found?;
                    let times = times.times().iter().map(|t| Timestamp::from_nanos(*t));
                    dirty.extend(times.map(|t| base.bucket_of(t)));
                }
            }
        }
        let spans = dirty.into_iter().map(|bucket| base.bucket_span(bucket));
        Ok(spans.map(|span| span.first.max(self.span.first)).collect())
    }
}
