//! The missing ranges of a copy, by segment and by reason.
//!
//! Invariants: a segment is complete when no subscribed range is missing; prefetchable ranges, and
//! ranges that readers have requested, do not count for that. The requests of readers are bounded,
//! and dropped when they were served or refused, or when the state does not name them any more.
//! Concurrency: as for the copy.

use super::pack::Pack;
use super::score::{Facts, LeafFacts};
use super::{Missing, Tally};
use crate::common::ids::SegmentId;
use crate::replication::needed::{
    Needed, NeededFor, NeededRange, RangeReason, Reason, SubscribedRange,
};
use headwater_types::ByteRange;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Maximum of pending ranges requested by readers, and of their bytes.
const REQUESTED_MAX: usize = 256;
const REQUESTED_BYTES_MAX: u64 = 16 << 20;

/// Bytes by reason.
#[derive(Clone, Copy, Debug, Default)]
struct Sums([u64; Reason::ALL.len()]);

impl Sums {
    fn add(&mut self, reason: Reason, bytes: u64) {
        let all = Reason::ALL.iter().zip(&mut self.0);
        for (_, sum) in all.filter(|(of, _)| **of == reason) {
            *sum += bytes;
        }
    }
}

/// The missing ranges of a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentMissing {
    missing: Vec<SubscribedRange>,
    ahead: Vec<SubscribedRange>,
    subscribed: Sums,
    is_damaged: bool,
    /// True when the present bytes determine all subscribed ranges.
    is_determined: bool,
}

impl SegmentMissing {
    /// No more bytes are fetched of a damaged segment, and it is not complete.
    pub(super) const DAMAGED: SegmentMissing = SegmentMissing {
        missing: Vec::new(),
        ahead: Vec::new(),
        subscribed: Sums([0; Reason::ALL.len()]),
        is_damaged: true,
        is_determined: true,
    };

    pub(super) fn of(needed: &Needed, pack: &Pack) -> SegmentMissing {
        let mut out = SegmentMissing {
            is_determined: needed.is_complete,
            ..SegmentMissing::default()
        };
        for one in &needed.ranges {
            out.subscribed.add(one.reason, one.range.bytes);
            let missing = pack.missing(one.range.byte_range());
            let parts = missing.into_iter().map(|part| SubscribedRange {
                range: one.range.narrowed(part),
                ..*one
            });
            match one.reason {
                Reason::Ahead => out.ahead.extend(parts),
                _ => out.missing.extend(parts),
            }
        }
        out
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty() && !self.is_damaged
    }

    /// True when all missing ranges are within these ranges.
    fn is_complete_but_for(&self, ranges: &[ByteRange]) -> bool {
        let is_within = |wanted: &SubscribedRange| {
            let wanted = wanted.range.byte_range();
            let at = ranges.partition_point(|r| r.end() <= wanted.start());
            let around = ranges.get(at);
            around.is_some_and(|r| r.start() <= wanted.start() && wanted.end() <= r.end())
        };
        !self.is_damaged && self.missing.iter().all(is_within)
    }
}

/// A range that readers requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RangeRequest {
    segment: SegmentId,
    range: ByteRange,
}

impl RangeRequest {
    fn meets(&self, segment: SegmentId, range: ByteRange) -> bool {
        self.segment == segment
            && self.range.start() < range.end()
            && range.start() < self.range.end()
    }
}

#[derive(Debug, Default)]
pub(super) struct MissingRanges {
    segments: BTreeMap<SegmentId, SegmentMissing>,
    requested: VecDeque<RangeRequest>,
    pub(super) facts: Facts,
}

/// The order of missing rows that can be fetched, and the limit of bytes to prefetch.
pub(super) struct ByScore<'a> {
    pub(super) score: &'a dyn Fn(&LeafFacts) -> f64,
    pub(super) can_be_had: &'a dyn Fn(&Missing) -> bool,
    pub(super) ahead_bytes: u64,
}

fn bytes_of(ranges: &[SubscribedRange]) -> u64 {
    ranges.iter().map(|r| r.range.bytes).sum()
}

fn missing_of(segment: SegmentId, wanted: &SubscribedRange, score: Option<f64>) -> Missing {
    Missing {
        segment: segment.0,
        range: wanted.range,
        why: RangeReason {
            reason: wanted.reason,
            priority: wanted.priority,
            pin: wanted.pin,
            score,
        },
    }
}

/// The first of these ranges, about `bytes_max` bytes in total.
fn cut(mut all: Vec<Missing>, bytes_max: u64) -> Vec<Missing> {
    let mut bytes = 0u64;
    let taken = all.iter().take_while(|m| {
        let has_room = bytes < bytes_max;
        bytes = bytes.saturating_add(m.range.bytes);
        has_room
    });
    let taken = taken.count();
    all.truncate(taken);
    all
}

impl MissingRanges {
    /// Drops segments that are not named any more, and the facts about leaves of changed segments.
    pub(super) fn keep(
        &mut self,
        is_named: &dyn Fn(SegmentId) -> bool,
        changed: &BTreeSet<SegmentId>,
    ) {
        self.segments.retain(|id, _| is_named(*id));
        self.requested.retain(|one| is_named(one.segment));
        self.facts
            .keep(&|id| is_named(id) && !changed.contains(&id));
    }

    pub(super) fn put(&mut self, id: SegmentId, missing: SegmentMissing) {
        self.segments.insert(id, missing);
    }

    pub(super) fn is_complete(&self, id: SegmentId) -> bool {
        let segment = self.segments.get(&id);
        segment.is_none_or(SegmentMissing::is_complete)
    }

    /// True when all missing ranges of a segment are within these ranges.
    pub(super) fn is_complete_but_for(&self, id: SegmentId, ranges: &[ByteRange]) -> bool {
        let segment = self.segments.get(&id);
        segment.is_none_or(|segment| segment.is_complete_but_for(ranges))
    }

    /// The missing ranges of a segment that are subscribed or requested, ascending; `None` when the
    /// subscribed ranges are not known yet.
    pub(super) fn missing_of(&self, id: SegmentId) -> Option<Vec<ByteRange>> {
        let Some(segment) = self.segments.get(&id) else {
            return Some(Vec::new());
        };
        let missing = segment.missing.iter();
        let missing = missing.map(|wanted| wanted.range.byte_range());
        let requested = self.requested.iter().filter(|one| one.segment == id);
        let requested = requested.map(|one| one.range);
        let mut all: Vec<ByteRange> = missing.chain(requested).collect();
        all.sort_unstable();
        segment.is_determined.then_some(all)
    }

    /// True for a segment whose present bytes are damaged.
    pub(super) fn is_damaged(&self, id: SegmentId) -> bool {
        self.segments.get(&id).is_some_and(|s| s.is_damaged)
    }

    pub(super) fn damaged(&self) -> Vec<u64> {
        let damaged = self.segments.iter().filter(|(_, s)| s.is_damaged);
        damaged.map(|(id, _)| id.0).collect()
    }

    /// True when a range of a segment is subscribed.
    pub(super) fn is_subscribed(&self, id: SegmentId) -> bool {
        let segment = self.segments.get(&id);
        segment.is_some_and(|s| s.subscribed.0.iter().any(|bytes| *bytes > 0))
    }

    /// Bytes of subscribed missing ranges, without requested or prefetched ones.
    pub(super) fn missing_bytes(&self) -> u64 {
        let segments = self.segments.values();
        segments.map(|s| bytes_of(&s.missing)).sum()
    }

    /// Subscribed and missing bytes for each reason.
    pub(super) fn tallies(&self) -> Vec<Tally> {
        let mut missing = Sums::default();
        let mut wanted = Sums::default();
        for one in &self.requested {
            missing.add(Reason::Requested, one.range.len());
            wanted.add(Reason::Requested, one.range.len());
        }
        for segment in self.segments.values() {
            for (sum, bytes) in wanted.0.iter_mut().zip(segment.subscribed.0) {
                *sum += bytes;
            }
            for range in segment.missing.iter().chain(&segment.ahead) {
                missing.add(range.reason, range.range.bytes);
            }
        }
        let both = Reason::ALL.iter().zip(wanted.0).zip(missing.0);
        both.map(|((reason, subscribed_bytes), missing)| Tally {
            reason: *reason,
            subscribed_bytes,
            missing,
        })
        .collect()
    }

    /// Bytes that may still be prefetched.
    fn prefetch_budget(&self, ahead_bytes: u64) -> u64 {
        let here = self.tallies().into_iter();
        let here = here.filter(|t| t.reason == Reason::Ahead);
        let here: u64 = here
            .map(|t| t.subscribed_bytes.saturating_sub(t.missing))
            .sum();
        ahead_bytes.saturating_sub(here)
    }

    /// The missing ranges, in the order of reasons, priorities and purposes.
    pub(super) fn missing(&self, bytes_max: u64) -> Vec<Missing> {
        let mut all = self.requested();
        all.extend(self.sorted(&|_| true));
        cut(all, bytes_max)
    }

    /// The missing ranges of a reason, those worth most first.
    pub(super) fn missing_for(&self, reason: Reason, bytes_max: u64) -> Vec<Missing> {
        match reason {
            Reason::Requested => cut(self.requested(), bytes_max),
            reason => cut(self.sorted(&|r| r.reason == reason), bytes_max),
        }
    }

    fn sorted(&self, is_meant: &dyn Fn(&SubscribedRange) -> bool) -> Vec<Missing> {
        let all = self.segments.iter().flat_map(|(id, segment)| {
            let missing = segment.missing.iter().filter(|r| is_meant(r));
            missing.map(|range| (range, *id))
        });
        let mut all: Vec<(&SubscribedRange, SegmentId)> = all.collect();
        all.sort_by_key(|(r, id)| (r.reason, r.rank(), *id, r.range.offset));
        all.into_iter()
            .map(|(range, id)| missing_of(id, range, None))
            .collect()
    }

    /// Missing rows in the order of their scores: subscribed rows, and prefetchable rows up to the
    /// limit. Only of segments with known facts.
    pub(super) fn missing_by_score(&self, by: &ByScore<'_>, bytes_max: u64) -> Vec<Missing> {
        let mut ahead_left = self.prefetch_budget(by.ahead_bytes);
        let mut all: Vec<Missing> = Vec::new();
        for (id, segment) in &self.segments {
            let rows = segment.missing.iter().filter(|r| r.reason == Reason::Rows);
            let found = rows.chain(&segment.ahead).filter_map(|range| {
                let facts = self.facts.of(*id, range.range.offset)?;
                let score = Some((by.score)(&facts)).filter(|s| s.is_finite());
                let found = missing_of(*id, range, Some(score.unwrap_or(0.0)));
                Some(found).filter(by.can_be_had)
            });
            all.extend(found);
        }
        let score_of = |m: &Missing| m.why.score.unwrap_or(0.0);
        all.sort_by(|a, b| match score_of(b).total_cmp(&score_of(a)) {
            Ordering::Equal => (a.segment, a.range.offset).cmp(&(b.segment, b.range.offset)),
            order => order,
        });
        all.retain(|m| {
            let is_ahead = m.why.reason == Reason::Ahead;
            let fits = !is_ahead || m.range.bytes <= ahead_left;
            if is_ahead && fits {
                ahead_left -= m.range.bytes;
            }
            fits
        });
        cut(all, bytes_max)
    }

    /// Segments with only rows missing, and without known facts.
    pub(super) fn without_facts(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let are_rows = |s: &SegmentMissing| {
            let has_rows = s.missing.iter().any(|r| r.reason == Reason::Rows);
            let has_others = s.missing.iter().any(|r| r.reason == Reason::Summaries);
            (has_rows || !s.ahead.is_empty()) && !has_others
        };
        let segments = self.segments.iter();
        let segments = segments.filter(move |(id, s)| are_rows(s) && !self.facts.is_known(**id));
        segments.map(|(id, _)| *id)
    }

    fn requested(&self) -> Vec<Missing> {
        let requested = self.requested.iter().map(|one| Missing {
            segment: one.segment.0,
            range: NeededRange {
                offset: one.range.start(),
                bytes: one.range.len(),
                needed_for: NeededFor::Rows,
            },
            why: RangeReason {
                reason: Reason::Requested,
                priority: 0,
                pin: None,
                score: None,
            },
        });
        requested.collect()
    }

    /// Requests the missing parts of a range that the state names, for a reader; false where too
    /// many ranges are already requested.
    pub(super) fn request_range(&mut self, segment: SegmentId, missing: &[ByteRange]) -> bool {
        self.facts.missed(segment);
        for range in missing {
            let one = RangeRequest {
                segment,
                range: *range,
            };
            let requested: u64 = self.requested.iter().map(|one| one.range.len()).sum();
            let is_known = self.requested.contains(&one);
            let has_room = self.requested.len() < REQUESTED_MAX
                && requested.saturating_add(range.len()) <= REQUESTED_BYTES_MAX;
            if !is_known && !has_room {
                return false;
            }
            if !is_known {
                self.requested.push_back(one);
            }
        }
        true
    }

    /// Bytes of missing ranges that no reader has requested.
    pub(super) fn bytes_to_request(&self, segment: SegmentId, missing: &[ByteRange]) -> u64 {
        let is_new = |range: &&ByteRange| {
            let range = **range;
            !self.requested.contains(&RangeRequest { segment, range })
        };
        missing.iter().filter(is_new).map(|range| range.len()).sum()
    }

    /// True when readers have requested a part of a range.
    pub(super) fn is_requested(&self, segment: SegmentId, range: ByteRange) -> bool {
        self.requested.iter().any(|one| one.meets(segment, range))
    }

    /// Drops the requests of readers for a range.
    pub(super) fn cancel_request(&mut self, segment: SegmentId, range: ByteRange) {
        self.requested.retain(|one| !one.meets(segment, range));
    }

    /// Drops the requests whose ranges have been received, in part or as a whole.
    pub(super) fn forget_served(&mut self, packs: &BTreeMap<SegmentId, Arc<Pack>>) {
        let requested = std::mem::take(&mut self.requested);
        for one in requested {
            let missing = match packs.get(&one.segment) {
                Some(pack) => pack.missing(one.range),
                None => vec![one.range],
            };
            let left = missing.into_iter();
            self.requested
                .extend(left.map(|range| RangeRequest { range, ..one }));
        }
    }
}
