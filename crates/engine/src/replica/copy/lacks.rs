//! What a copy lacks of what is wanted of it, by segment and by reason.
//!
//! Invariants: a segment is complete when nothing is missing that is wanted; what may be fetched
//! ahead, and what readers have asked for, keeps none from being so. What readers have asked for is
//! bounded, and forgotten when it has come, was refused, or is named by no state any more.
//! Concurrency: as for the copy.

use super::pack::Pack;
use super::score::{Facts, LeafFacts};
use super::{Missing, Tally};
use crate::common::ids::SegmentId;
use crate::replication::needed::{Needed, NeededFor, NeededRange, Reason, WantedRange, Why};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Ranges that readers may have asked for at once, and bytes of them.
const ASKED_MAX: usize = 256;
const ASKED_BYTES_MAX: u64 = 16 << 20;

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

/// What is lacking of a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentLacks {
    missing: Vec<WantedRange>,
    ahead: Vec<WantedRange>,
    wanted: Sums,
    is_damaged: bool,
    /// What is here tells all that is wanted.
    is_known: bool,
}

impl SegmentLacks {
    /// Nothing is to be asked for of a segment that is damaged, and it is not complete.
    pub(super) const DAMAGED: SegmentLacks = SegmentLacks {
        missing: Vec::new(),
        ahead: Vec::new(),
        wanted: Sums([0; Reason::ALL.len()]),
        is_damaged: true,
        is_known: true,
    };

    pub(super) fn of(needed: &Needed, pack: &Pack) -> SegmentLacks {
        let mut lacks = SegmentLacks {
            is_known: needed.is_whole,
            ..SegmentLacks::default()
        };
        for one in &needed.ranges {
            lacks.wanted.add(one.reason, one.range.bytes);
            let missing = pack.missing(one.range.offset, one.range.bytes);
            let parts = missing.into_iter().map(|(offset, bytes)| WantedRange {
                range: NeededRange {
                    offset,
                    bytes,
                    ..one.range
                },
                ..*one
            });
            match one.reason {
                Reason::Ahead => lacks.ahead.extend(parts),
                _ => lacks.missing.extend(parts),
            }
        }
        lacks
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty() && !self.is_damaged
    }

    /// True when nothing is missing but within these ranges, each from its first byte to the first
    /// one behind.
    fn is_complete_but_for(&self, ranges: &[(u64, u64)]) -> bool {
        let is_within = |wanted: &WantedRange| {
            let (from, end) = (
                wanted.range.offset,
                wanted.range.offset + wanted.range.bytes,
            );
            let at = ranges.partition_point(|(_, until)| *until <= from);
            let around = ranges.get(at);
            around.is_some_and(|(first, until)| *first <= from && end <= *until)
        };
        !self.is_damaged && self.missing.iter().all(is_within)
    }
}

/// A range that readers asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    segment: SegmentId,
    offset: u64,
    bytes: u64,
}

impl Asked {
    fn meets(&self, offset: u64, bytes: u64) -> bool {
        let end = self.offset.saturating_add(self.bytes);
        self.offset < offset.saturating_add(bytes) && offset < end
    }
}

#[derive(Debug, Default)]
pub(super) struct Lacks {
    segments: BTreeMap<SegmentId, SegmentLacks>,
    asked: VecDeque<Asked>,
    pub(super) facts: Facts,
}

/// Which rows go first, of those that can be had, and how many bytes may be fetched ahead.
pub(super) struct ByScore<'a> {
    pub(super) score: &'a dyn Fn(&LeafFacts) -> f64,
    pub(super) can_be_had: &'a dyn Fn(&Missing) -> bool,
    pub(super) ahead_bytes: u64,
}

fn bytes_of(ranges: &[WantedRange]) -> u64 {
    ranges.iter().map(|r| r.range.bytes).sum()
}

fn missing_of(segment: SegmentId, wanted: &WantedRange, score: Option<f64>) -> Missing {
    Missing {
        segment: segment.0,
        range: wanted.range,
        why: Why {
            reason: wanted.reason,
            priority: wanted.priority,
            pin: wanted.pin,
            score,
        },
    }
}

/// The first of these, of so many bytes about.
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

impl Lacks {
    /// Forgets segments that are not named any more, and what is known of leaves of those that have
    /// changed.
    pub(super) fn keep(
        &mut self,
        is_named: &dyn Fn(SegmentId) -> bool,
        changed: &BTreeSet<SegmentId>,
    ) {
        self.segments.retain(|id, _| is_named(*id));
        self.asked.retain(|asked| is_named(asked.segment));
        self.facts
            .keep(&|id| is_named(id) && !changed.contains(&id));
    }

    pub(super) fn put(&mut self, id: SegmentId, lacks: SegmentLacks) {
        self.segments.insert(id, lacks);
    }

    pub(super) fn is_complete(&self, id: SegmentId) -> bool {
        self.segments.get(&id).is_none_or(SegmentLacks::is_complete)
    }

    /// True when nothing of a segment is missing but within these ranges.
    pub(super) fn is_complete_but_for(&self, id: SegmentId, ranges: &[(u64, u64)]) -> bool {
        let segment = self.segments.get(&id);
        segment.is_none_or(|segment| segment.is_complete_but_for(ranges))
    }

    /// What is missing of a segment, and wanted or asked for: offset and length of each, which
    /// rise; `None` when it is not known yet what is wanted.
    pub(super) fn missing_of(&self, id: SegmentId) -> Option<Vec<(u64, u64)>> {
        let Some(segment) = self.segments.get(&id) else {
            return Some(Vec::new());
        };
        let missing = segment.missing.iter();
        let missing = missing.map(|wanted| (wanted.range.offset, wanted.range.bytes));
        let asked = self.asked.iter().filter(|asked| asked.segment == id);
        let asked = asked.map(|asked| (asked.offset, asked.bytes));
        let mut all: Vec<(u64, u64)> = missing.chain(asked).collect();
        all.sort_unstable();
        segment.is_known.then_some(all)
    }

    pub(super) fn damaged(&self) -> Vec<u64> {
        let damaged = self.segments.iter().filter(|(_, s)| s.is_damaged);
        damaged.map(|(id, _)| id.0).collect()
    }

    /// True when something is wanted of a segment.
    pub(super) fn is_wanted(&self, id: SegmentId) -> bool {
        let segment = self.segments.get(&id);
        segment.is_some_and(|s| s.wanted.0.iter().any(|bytes| *bytes > 0))
    }

    /// Bytes that are wanted and not here, without what is asked for, or fetched ahead.
    pub(super) fn missing_bytes(&self) -> u64 {
        let segments = self.segments.values();
        segments.map(|s| bytes_of(&s.missing)).sum()
    }

    /// How much is wanted, and missing, for each reason.
    pub(super) fn tallies(&self) -> Vec<Tally> {
        let mut missing = Sums::default();
        let mut wanted = Sums::default();
        for asked in &self.asked {
            missing.add(Reason::Asked, asked.bytes);
            wanted.add(Reason::Asked, asked.bytes);
        }
        for segment in self.segments.values() {
            for (sum, bytes) in wanted.0.iter_mut().zip(segment.wanted.0) {
                *sum += bytes;
            }
            for range in segment.missing.iter().chain(&segment.ahead) {
                missing.add(range.reason, range.range.bytes);
            }
        }
        let both = Reason::ALL.iter().zip(wanted.0).zip(missing.0);
        both.map(|((reason, wanted), missing)| Tally {
            reason: *reason,
            wanted,
            missing,
        })
        .collect()
    }

    /// Bytes that may still be fetched ahead.
    fn ahead_left(&self, ahead_bytes: u64) -> u64 {
        let here = self.tallies().into_iter();
        let here = here.filter(|t| t.reason == Reason::Ahead);
        let here: u64 = here.map(|t| t.wanted.saturating_sub(t.missing)).sum();
        ahead_bytes.saturating_sub(here)
    }

    /// What is missing, in the order of reasons, priorities and what it is needed for.
    pub(super) fn missing(&self, bytes_max: u64) -> Vec<Missing> {
        let mut all = self.asked();
        all.extend(self.sorted(&|_| true));
        cut(all, bytes_max)
    }

    /// What is missing for a reason, that first which is worth most.
    pub(super) fn missing_for(&self, reason: Reason, bytes_max: u64) -> Vec<Missing> {
        match reason {
            Reason::Asked => cut(self.asked(), bytes_max),
            reason => cut(self.sorted(&|r| r.reason == reason), bytes_max),
        }
    }

    fn sorted(&self, is_meant: &dyn Fn(&WantedRange) -> bool) -> Vec<Missing> {
        let all = self.segments.iter().flat_map(|(id, segment)| {
            let missing = segment.missing.iter().filter(|r| is_meant(r));
            missing.map(|range| (range, *id))
        });
        let mut all: Vec<(&WantedRange, SegmentId)> = all.collect();
        all.sort_by_key(|(r, id)| (r.reason, r.rank(), *id, r.range.offset));
        all.into_iter()
            .map(|(range, id)| missing_of(id, range, None))
            .collect()
    }

    /// Rows that are missing, those first that a score names: rows that are wanted, and as much of
    /// those that may be fetched ahead as there is room for. Only of segments of which facts are
    /// known.
    pub(super) fn missing_by_score(&self, by: &ByScore<'_>, bytes_max: u64) -> Vec<Missing> {
        let mut ahead_left = self.ahead_left(by.ahead_bytes);
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

    /// Segments of which rows are missing, nothing else is, and no facts are known.
    pub(super) fn without_facts(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let are_rows = |s: &SegmentLacks| {
            let has_rows = s.missing.iter().any(|r| r.reason == Reason::Rows);
            let has_others = s.missing.iter().any(|r| r.reason == Reason::Summaries);
            (has_rows || !s.ahead.is_empty()) && !has_others
        };
        let segments = self.segments.iter();
        let segments = segments.filter(move |(id, s)| are_rows(s) && !self.facts.is_known(**id));
        segments.map(|(id, _)| *id)
    }

    fn asked(&self) -> Vec<Missing> {
        let asked = self.asked.iter().map(|asked| Missing {
            segment: asked.segment.0,
            range: NeededRange {
                offset: asked.offset,
                bytes: asked.bytes,
                needed_for: NeededFor::Rows,
            },
            why: Why {
                reason: Reason::Asked,
                priority: 0,
                pin: None,
                score: None,
            },
        });
        asked.collect()
    }

    /// A reader asks for what is missing of a range, which the state names; false where too much is
    /// asked for already.
    pub(super) fn ask_for(&mut self, segment: SegmentId, missing: &[(u64, u64)]) -> bool {
        self.facts.missed(segment);
        for (offset, bytes) in missing {
            let one = Asked {
                segment,
                offset: *offset,
                bytes: *bytes,
            };
            let asked: u64 = self.asked.iter().map(|asked| asked.bytes).sum();
            let is_known = self.asked.contains(&one);
            let has_room =
                self.asked.len() < ASKED_MAX && asked.saturating_add(one.bytes) <= ASKED_BYTES_MAX;
            if !is_known && !has_room {
                return false;
            }
            if !is_known {
                self.asked.push_back(one);
            }
        }
        true
    }

    /// True when readers ask for something of a range.
    pub(super) fn asks_for(&self, segment: SegmentId, offset: u64, bytes: u64) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|asked| asked.segment == segment && asked.meets(offset, bytes))
    }

    /// Forgets what readers asked for of a range.
    pub(super) fn forget_asked(&mut self, segment: SegmentId, offset: u64, bytes: u64) {
        let is_meant = |asked: &Asked| asked.segment == segment && asked.meets(offset, bytes);
        self.asked.retain(|asked| !is_meant(asked));
    }

    /// What readers asked for, and is here in part or as a whole, is asked for no more.
    pub(super) fn forget_served(&mut self, packs: &BTreeMap<SegmentId, Arc<Pack>>) {
        let asked = std::mem::take(&mut self.asked);
        for one in asked {
            let missing = match packs.get(&one.segment) {
                Some(pack) => pack.missing(one.offset, one.bytes),
                None => vec![(one.offset, one.bytes)],
            };
            let left = missing.into_iter().map(|(offset, bytes)| Asked {
                offset,
                bytes,
                ..one
            });
            self.asked.extend(left);
        }
    }
}
