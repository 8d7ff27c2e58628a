//! Missing ranges reported by a source that is a copy itself: they are set aside, so that only
//! ranges that the source can send are requested.
//!
//! Ranges that the source does not subscribe to, and ranges that it fetches by itself, are set
//! aside as a whole. Ranges that it fetches on request are set aside after they were requested, and
//! a useful number of them is requested ahead.
//!
//! Invariants: a range that is set aside is requested again when the source reports that it is
//! present, or after a while, in case that report was lost. For a source without missing ranges no
//! range is set aside. Concurrency: plain data.

use crate::replication::message::SegmentRange;
use crate::replication::missing_ranges::{MissingRange, Outlook};
use crate::replication::ranges::{beside, bytes, within};
use headwater_engine::{Missing, State};
use headwater_types::ByteRange;
use headwater_types::byte_range::joined;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes that a source is to get for us at once, about.
const WISHED_MAX: u64 = 4 << 20;

/// Most doublings of the time after which a range is requested again.
const FRUITLESS_DOUBLINGS_MAX: u32 = 6;

/// Missing ranges of a segment.
#[derive(Debug, Default)]
struct SegmentMissing {
    /// Missing ranges, sorted and disjoint.
    missing: Vec<MissingRange>,
    /// Requested ranges, of the ranges that the source fetches on request.
    requested: Vec<ByteRange>,
    /// When the ranges are requested regardless.
    retry_at: Duration,
    /// The time `retry_at` has passed.
    is_due: bool,
    /// Number of requests that brought no new range.
    fruitless_requests: u32,
}

impl SegmentMissing {
    fn ranges(&self, is_meant: impl Fn(Outlook) -> bool) -> Vec<ByteRange> {
        let meant = self.missing.iter().filter(|hole| is_meant(hole.outlook));
        joined(meant.map(|hole| hole.range).collect())
    }

    /// Parts of missing ranges before or after a range.
    fn beside(&self, range: ByteRange) -> impl Iterator<Item = MissingRange> + '_ {
        let before = ByteRange::new(0, range.start());
        let behind = ByteRange::new(range.end(), u64::MAX);
        self.missing.iter().flat_map(move |hole| {
            let parts = [before, behind].map(|side| MissingRange {
                range: hole.range.intersect(side),
                ..*hole
            });
            parts.into_iter().filter(|part| !part.range.is_empty())
        })
    }
}

/// Missing ranges of the source, by segment.
#[derive(Debug, Default)]
pub(crate) struct SourceMissing {
    segments: BTreeMap<u64, SegmentMissing>,
}

impl SourceMissing {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Applies the source's report of missing ranges in a range of a segment.
    pub(crate) fn apply_report(
        &mut self,
        segment: u64,
        stretch: ByteRange,
        new: Vec<MissingRange>,
        (now, after): (Duration, Duration),
    ) {
        let lacks = self.segments.entry(segment).or_default();
        let mut holes: Vec<MissingRange> = lacks.beside(stretch).chain(new).collect();
        holes.sort_unstable_by_key(|hole| hole.range.start());
        lacks.fruitless_requests = match lacks.missing == holes {
            true => lacks
                .fruitless_requests
                .saturating_add(u32::from(lacks.is_due)),
            false => 0,
        };
        lacks.is_due = false;
        lacks.retry_at =
            now + after.saturating_mul(1 << lacks.fruitless_requests.min(FRUITLESS_DOUBLINGS_MAX));
        lacks.missing = holes;
        let on_request = lacks.ranges(|outlook| outlook == Outlook::OnRequest);
        let asked = lacks.requested.iter();
        let asked = asked.flat_map(|asked| within(*asked, &on_request));
        lacks.requested = asked.collect();
        if lacks.missing.is_empty() {
            self.segments.remove(&segment);
        }
    }

    /// Ranges of a segment that may never be available.
    pub(crate) fn never(&self, segment: u64) -> Vec<ByteRange> {
        let lacks = self.segments.get(&segment);
        lacks.map_or_else(Vec::new, |l| l.ranges(|outlook| outlook == Outlook::Never))
    }

    /// Drops segments that the state does not contain; ranges that are due again are not set aside
    /// any more.
    pub(crate) fn retain_segments(&mut self, now: Duration, state: &State) {
        if self.segments.is_empty() {
            return;
        }
        let named: Vec<u64> = state.segments().map(|s| s.id).collect();
        let is_named = |id: &u64| named.binary_search(id).is_ok();
        self.segments.retain(|id, _| is_named(id));
        self.due(now);
    }

    fn due(&mut self, now: Duration) {
        for lacks in self.segments.values_mut() {
            lacks.is_due |= lacks.retry_at <= now;
        }
    }

    /// Bytes that the source is to get for us.
    fn wished(&self) -> u64 {
        self.segments.values().map(|l| bytes(&l.requested)).sum()
    }

    /// Ranges that may be requested.
    pub(crate) fn open(&self) -> Open {
        let is_full = self.wished() >= WISHED_MAX;
        let segments = self.segments.iter().filter(|(_, lacks)| !lacks.is_due);
        let aside = segments.map(|(segment, lacks)| {
            let aside = match is_full {
                true => lacks.ranges(|_| true),
                false => {
                    let mut aside = lacks.ranges(|outlook| outlook != Outlook::OnRequest);
                    aside.extend(&lacks.requested);
                    joined(aside)
                }
            };
            (*segment, aside)
        });
        Open {
            aside: aside.collect(),
        }
    }

    /// Records that these were requested.
    pub(crate) fn record_requested(&mut self, pieces: impl Iterator<Item = SegmentRange>) {
        for piece in pieces {
            if let Some(lacks) = self.segments.get_mut(&piece.segment) {
                let on_request = lacks.ranges(|outlook| outlook == Outlook::OnRequest);
                lacks.requested.extend(within(piece.range(), &on_request));
                lacks.requested = joined(std::mem::take(&mut lacks.requested));
            }
        }
    }

    /// True if a part of a range is missing at the source.
    pub(crate) fn is_missing(&self, piece: &SegmentRange) -> bool {
        let lacks = self.segments.get(&piece.segment);
        lacks.is_some_and(|lacks| !within(piece.range(), &lacks.ranges(|_| true)).is_empty())
    }

    /// True when a part of a range may never be available.
    pub(crate) fn may_never_come(&self, piece: &SegmentRange) -> bool {
        !within(piece.range(), &self.never(piece.segment)).is_empty()
    }
}

/// Ranges that may be requested.
#[derive(Debug)]
pub(crate) struct Open {
    /// Ranges that are set aside, by segment.
    aside: BTreeMap<u64, Vec<ByteRange>>,
}

impl Open {
    /// True if no range is set aside.
    pub(crate) fn is_everything(&self) -> bool {
        self.aside.is_empty()
    }

    /// The parts of a missing range that may be requested.
    pub(crate) fn requestable(&self, missing: &Missing) -> Vec<Missing> {
        let Some(aside) = self.aside.get(&missing.segment) else {
            return vec![*missing];
        };
        let open = beside(missing.range.byte_range(), aside).into_iter();
        let open = open.map(|part| Missing {
            range: missing.range.narrowed(part),
            ..*missing
        });
        open.collect()
    }

    /// Parts of `missing` that may be requested, of about `bytes_max` bytes.
    pub(crate) fn of(&self, missing: Vec<Missing>, bytes_max: u64) -> Vec<Missing> {
        let mut taken = 0u64;
        let mut out = Vec::new();
        for part in missing.iter().flat_map(|missing| self.requestable(missing)) {
            if taken >= bytes_max {
                break;
            }
            taken = taken.saturating_add(part.range.bytes);
            out.push(part);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(300));

    fn segment_range(offset: u64, bytes: u32) -> SegmentRange {
        SegmentRange {
            segment: 7,
            offset,
            bytes,
        }
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end)
    }

    fn hole(range: ByteRange, outlook: Outlook) -> MissingRange {
        MissingRange { range, outlook }
    }

    #[test]
    fn what_is_told_of_a_stretch_leaves_what_was_told_of_the_rest() {
        let mut lacking = SourceMissing::default();
        let holes = [range(0, 10), range(50, 100)].map(|r| hole(r, Outlook::Never));
        lacking.apply_report(7, range(0, 100), holes.into(), LATER);
        let comes = hole(range(62, 65), Outlook::Subscribed);
        lacking.apply_report(7, range(60, 80), vec![comes], LATER);
        assert!(
            lacking.is_missing(&segment_range(55, 5))
                && !lacking.is_missing(&segment_range(65, 15))
        );
        assert!(
            lacking.is_missing(&segment_range(0, 1)) && lacking.is_missing(&segment_range(70, 11))
        );
        assert!(
            lacking.is_missing(&segment_range(64, 9))
                && !lacking.may_never_come(&segment_range(64, 9))
        );
        let never = [range(0, 10), range(50, 60), range(80, 100)];
        assert_eq!(lacking.never(7), never);
        lacking.apply_report(7, range(0, 100), vec![], LATER);
        assert!(lacking.is_empty());
    }

    #[test]
    fn what_is_lacking_is_asked_for_again_later_and_later() {
        let mut lacking = SourceMissing::default();
        let all = range(0, 10);
        let hole = hole(all, Outlook::Never);
        let (mut now, after) = (Duration::ZERO, Duration::from_secs(1));
        let mut waited = Vec::new();
        for _ in 0..9 {
            lacking.apply_report(7, all, vec![hole], (now, after));
            // Repeated before that time, the report adds no information.
            lacking.apply_report(7, all, vec![hole], (now, after));
            let begun = now;
            while !lacking.open().is_everything() {
                now += Duration::from_millis(500);
                lacking.due(now);
            }
            waited.push((now - begun).as_secs());
        }
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn of_what_a_source_gets_only_that_is_set_aside_which_was_asked_for() {
        let mut lacking = SourceMissing::default();
        let all = range(0, 3 * WISHED_MAX);
        lacking.apply_report(7, all, vec![hole(all, Outlook::OnRequest)], LATER);
        assert!(!lacking.may_never_come(&segment_range(5, 5)));
        lacking.record_requested([segment_range(0, 1000), segment_range(500, 1000)].into_iter());
        assert_eq!(lacking.wished(), 1500);
        assert_eq!(lacking.open().aside[&7], [range(0, 1500)]);
        // Once the source has these ranges, it accepts more.
        let most = u32::try_from(WISHED_MAX).unwrap_or(u32::MAX);
        lacking.record_requested([segment_range(2000, most)].into_iter());
        assert_eq!(lacking.open().aside[&7], [all]);
        let left = range(2000 + WISHED_MAX, all.end());
        lacking.apply_report(7, all, vec![hole(left, Outlook::OnRequest)], LATER);
        assert_eq!(lacking.wished(), 0);
        assert_eq!(lacking.open().aside[&7], []);
    }
}
