//! The stretches of time of a stream that several parts have, each with the parts that have rows in
//! it.
//!
//! A stretch is found by counts of the buckets of the pyramid, from coarse levels to finer ones, so
//! that only the buckets in which several parts have rows are read row by row. The work is bounded:
//! what is not examined any further counts as a stretch of all of its parts.
//!
//! Invariants: stretches are sorted, disjoint, and cover all rows; a part that is not named for a
//! stretch has no row in it. The stretches of a snapshot do not depend on the range that is read.
//! Concurrency: pure. Failure: a bucket that cannot be counted, since it is missing or damaged, is
//! a stretch of all parts that may have rows in it, and the reader of its rows gets the error.

use super::owners::outside;
use crate::common::ranges::union;
use crate::{ErrorKind, Result};
use headwater_types::{ClosedRange, Level, Timestamp};
use std::collections::BTreeMap;

/// Number of buckets that are counted first.
const BUCKETS: i128 = 512;
/// The largest number of buckets that are counted at once.
const BUCKETS_MAX: i64 = 1 << 14;
/// Difference of the levels that are counted one after the other.
const FINER: i32 = 4;
/// A stretch of so few rows is not divided.
const ROWS_FEW: u64 = 512;
/// The largest number of counts for a stream.
const COUNTS_MAX: usize = 1 << 10;

/// A stretch of time, and the parts that have rows in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartsRange {
    pub(super) range: ClosedRange,
    /// By number.
    pub(super) parts: Vec<u32>,
    /// True where rows of several parts meet of which some were aged away.
    pub(super) is_aged: bool,
}

/// The stretches of a stream.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// The spans that contain all rows of the parts, by number.
    pub(super) extents: Vec<(u32, ClosedRange)>,
    pub(super) ranges: Vec<PartsRange>,
}

/// Access to the rows of the parts.
pub(super) trait Counted {
    /// The buckets of a level with rows of a part in a range, by number, with their rows.
    fn counts(&self, part: u32, range: ClosedRange, level: Level) -> Result<Vec<(i64, u64)>>;

    /// The spans in which rows of a part were aged away, as far as they meet a range.
    fn aged(&self, part: u32, range: ClosedRange) -> Result<Vec<ClosedRange>>;
}

impl Overlaps {
    /// Determines the stretches of a stream whose parts have these extents.
    pub(super) fn find(
        extents: Vec<(u32, ClosedRange)>,
        counted: &dyn Counted,
    ) -> Result<Overlaps> {
        let several = common(&extents);
        let level = level_for(&several);
        let whole = several.iter().map(|range| whole_buckets(range, level));
        let several = union(whole.collect());
        let mut search = Search {
            counted,
            ranges: Vec::new(),
            left: COUNTS_MAX,
        };
        for range in &several {
            search.region(&extents, *range, level)?;
        }
        let mut ranges = search.ranges;
        for (part, extent) in &extents {
            let alone = outside(extent, &several).into_iter();
            ranges.extend(alone.map(|range| PartsRange {
                range,
                parts: vec![*part],
                is_aged: false,
            }));
        }
        ranges.sort_by_key(|one| one.range.first);
        Ok(Overlaps {
            extents,
            ranges: covering(ranges),
        })
    }
}

/// The ranges that are in several of the extents.
fn common(extents: &[(u32, ClosedRange)]) -> Vec<ClosedRange> {
    let mut ends: Vec<(i128, i32)> = Vec::with_capacity(extents.len() * 2);
    for (_, extent) in extents {
        ends.push((i128::from(extent.first.as_nanos()), 1));
        ends.push((i128::from(extent.last.as_nanos()) + 1, -1));
    }
    // An extent that begins where another one ends does not meet it.
    ends.sort_unstable();
    let (mut open, mut from, mut out) = (0, None, Vec::new());
    for (at, change) in ends {
        let before = open;
        open += change;
        if before < 2 && open >= 2 {
            from = i64::try_from(at).ok();
        } else if before >= 2
            && open < 2
            && let (Some(first), Ok(last)) = (from.take(), i64::try_from(at - 1))
        {
            out.push(ClosedRange::nanos(first, last));
        }
    }
    out
}

/// The level of the buckets that are counted first.
fn level_for(ranges: &[ClosedRange]) -> Level {
    let first = ranges.first().map_or(0, |r| r.first.as_nanos());
    let last = ranges.last().map_or(0, |r| r.last.as_nanos());
    let width = i128::from(last) - i128::from(first);
    let levels = (Level::MIN.get()..=Level::MAX.get()).map(Level::clamped);
    let mut wide = levels.filter(|level| level.bucket_start_wide(1) * BUCKETS >= width);
    wide.next().unwrap_or(Level::MAX)
}

fn whole_buckets(range: &ClosedRange, level: Level) -> ClosedRange {
    level.span(level.bucket_of(range.first), level.bucket_of(range.last))
}

struct Search<'a> {
    counted: &'a dyn Counted,
    ranges: Vec<PartsRange>,
    /// Number of counts that may still be made.
    left: usize,
}

impl Search<'_> {
    /// Divides a region that several parts meet.
    fn region(
        &mut self,
        extents: &[(u32, ClosedRange)],
        range: ClosedRange,
        level: Level,
    ) -> Result<()> {
        let meeting = extents.iter().filter(|(_, extent)| extent.overlaps(&range));
        let parts: Vec<u32> = meeting.map(|(part, _)| *part).collect();
        let mut aged = Vec::new();
        for part in &parts {
            match self.counted.aged(*part, range) {
                Ok(spans) => aged.extend(spans.iter().map(|span| span.intersect(&range))),
                Err(error) if is_local(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        let aged = union(aged);
        for span in &aged {
            self.put(*span, &parts, true);
        }
        for rest in outside(&range, &aged) {
            self.divide(rest, level, &parts, true)?;
        }
        Ok(())
    }

    fn put(&mut self, range: ClosedRange, parts: &[u32], is_aged: bool) {
        self.ranges.push(PartsRange {
            range,
            parts: parts.to_vec(),
            is_aged: is_aged && parts.len() > 1,
        });
    }

    /// Divides a range by the buckets of a level. `is_new`: its parts may not all have rows.
    fn divide(
        &mut self,
        range: ClosedRange,
        level: Level,
        parts: &[u32],
        is_new: bool,
    ) -> Result<()> {
        let (first, last) = (level.bucket_of(range.first), level.bucket_of(range.last));
        if self.left < parts.len() || last.saturating_sub(first) >= BUCKETS_MAX {
            self.put(range, parts, false);
            return Ok(());
        }
        self.left -= parts.len();
        let Some(buckets) = self.buckets(range, level, parts)? else {
            if first == last {
                self.put(range, parts, false);
                return Ok(());
            }
            let half = first + last.saturating_sub(first) / 2;
            let until = level.bucket_span(half).last;
            let behind = level.bucket_span(half.saturating_add(1)).first;
            let before = ClosedRange::new(range.first, until);
            self.divide(before, level, parts, is_new)?;
            return self.divide(ClosedRange::new(behind, range.last), level, parts, is_new);
        };
        for run in runs(&buckets) {
            let inside = level
                .span(run.first_bucket, run.last_bucket)
                .intersect(&range);
            let is_divided = is_new || inside != range;
            if run.parts.len() > 1 && run.rows > ROWS_FEW && level > Level::MIN && is_divided {
                let finer = Level::clamped(level.get().saturating_sub(FINER));
                self.divide(inside, finer, &run.parts, false)?;
            } else {
                self.put(inside, &run.parts, false);
            }
        }
        Ok(())
    }

    /// The parts with rows in each bucket, and the number of the rows; `None` where the buckets
    /// cannot be read.
    fn buckets(
        &self,
        range: ClosedRange,
        level: Level,
        parts: &[u32],
    ) -> Result<Option<BTreeMap<i64, Bucket>>> {
        let mut buckets: BTreeMap<i64, Bucket> = BTreeMap::new();
        for part in parts {
            let counts = match self.counted.counts(*part, range, level) {
                Err(error) if is_local(error.kind()) => return Ok(None),
                counts => counts?,
            };
            for (bucket, rows) in counts.into_iter().filter(|(_, rows)| *rows > 0) {
                let known = buckets.entry(bucket).or_default();
                known.parts.push(*part);
                known.rows = known.rows.saturating_add(rows);
            }
        }
        Ok(Some(buckets))
    }
}

/// True for errors that concern the range that was read only.
fn is_local(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Elsewhere | ErrorKind::Corrupt | ErrorKind::Io
    )
}

#[derive(Default)]
struct Bucket {
    parts: Vec<u32>,
    rows: u64,
}

/// Buckets one after the other, either of one part or each of several parts.
struct Run {
    first_bucket: i64,
    last_bucket: i64,
    parts: Vec<u32>,
    rows: u64,
}

fn runs(buckets: &BTreeMap<i64, Bucket>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, bucket) in buckets {
        if let Some(run) = runs.last_mut() {
            let is_next = run.last_bucket.checked_add(1) == Some(*number);
            let is_alone = run.parts == bucket.parts;
            let are_several = run.parts.len() > 1 && bucket.parts.len() > 1;
            // Between two buckets of one part no part has rows.
            if (is_alone && !are_several) || (are_several && is_next) {
                run.last_bucket = *number;
                run.rows = run.rows.saturating_add(bucket.rows);
                run.parts.extend(&bucket.parts);
                run.parts.sort_unstable();
                run.parts.dedup();
                continue;
            }
        }
        runs.push(Run {
            first_bucket: *number,
            last_bucket: *number,
            parts: bucket.parts.clone(),
            rows: bucket.rows,
        });
    }
    runs
}

/// Extends sorted stretches, so that they cover all time: where no part has rows, they meet at the
/// start of a bucket of the coarsest level that there is.
fn covering(ranges: Vec<PartsRange>) -> Vec<PartsRange> {
    let mut out: Vec<PartsRange> = Vec::with_capacity(ranges.len());
    for mut next in ranges {
        match out.last_mut() {
            None => next.range.first = Timestamp::MIN,
            Some(last) if last.parts == next.parts && last.is_aged == next.is_aged => {
                last.range.last = next.range.last;
                continue;
            }
            Some(last) => {
                let cut = coarsest_start(last.range.last, next.range.first);
                last.range.last = cut.previous().unwrap_or(last.range.last);
                next.range.first = cut;
            }
        }
        out.push(next);
    }
    if let Some(last) = out.last_mut() {
        last.range.last = Timestamp::MAX;
    }
    out
}

/// The start of a bucket of the coarsest level after `after`, and not after `to`; `to` if there is
/// none.
fn coarsest_start(after: Timestamp, to: Timestamp) -> Timestamp {
    let levels = (Level::MIN.get()..=Level::MAX.get()).rev();
    let starts = levels.map(Level::clamped).filter_map(|level| {
        let start = level.bucket_start_wide(level.bucket_of(to));
        i64::try_from(start).ok().map(Timestamp::from_nanos)
    });
    let mut inside = starts.filter(|start| *start > after);
    inside.next().unwrap_or(to)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Error;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Instants of the rows of each part, and a range that cannot be counted.
    struct Parts {
        rows: Vec<BTreeSet<i64>>,
        missing: ClosedRange,
    }

    impl Counted for Parts {
        fn counts(&self, part: u32, range: ClosedRange, level: Level) -> Result<Vec<(i64, u64)>> {
            if part == 1 && range.overlaps(&self.missing) {
                return Err(Error::new(ErrorKind::Elsewhere, "missing"));
            }
            let mut out: BTreeMap<i64, u64> = BTreeMap::new();
            let rows = self.rows.get(usize::try_from(part).unwrap()).unwrap();
            for at in rows.range(range.first.as_nanos()..=range.last.as_nanos()) {
                let bucket = level.bucket_of(Timestamp::from_nanos(*at));
                *out.entry(bucket).or_default() += 1;
            }
            Ok(out.into_iter().collect())
        }

        fn aged(&self, _: u32, _: ClosedRange) -> Result<Vec<ClosedRange>> {
            Ok(Vec::new())
        }
    }

    fn instant() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => 0i64..5_000,
            2 => (0i64..40_000).prop_map(|n| n * 1_000_000),
            1 => any::<i64>(),
            1 => Just(i64::MIN),
            1 => Just(i64::MAX),
        ]
    }

    proptest! {
        #[test]
        fn stretches_cover_all_time_and_name_all_parts_with_rows(
            rows in prop::collection::vec(
                prop_oneof![
                    prop::collection::btree_set(instant(), 0..40),
                    (0i64..4_000, 0i64..3_000).prop_map(|(from, rows)| (from..from + rows).collect()),
                ],
                2..5,
            ),
            missing in prop_oneof![Just(ClosedRange::EMPTY), Just(ClosedRange::nanos(10, 4_000))],
        ) {
            let parts = Parts { rows, missing };
            let extents: Vec<(u32, ClosedRange)> = (0u32..).zip(&parts.rows).filter_map(|(n, rows)| {
                Some((n, ClosedRange::nanos(*rows.first()?, *rows.last()?)))
            }).collect();
            let is_empty = extents.is_empty();
            let found = Overlaps::find(extents, &parts).unwrap().ranges;
            let mut next = Some(Timestamp::MIN);
            for one in &found {
                prop_assert_eq!(Some(one.range.first), next);
                prop_assert!(!one.range.is_empty() && !one.parts.is_empty());
                prop_assert!(one.parts.is_sorted_by(|a, b| a < b));
                next = one.range.last.next();
                for (n, rows) in (0u32..).zip(&parts.rows) {
                    let mut inside = rows.range(one.range.first.as_nanos()..=one.range.last.as_nanos());
                    prop_assert!(inside.next().is_none() || one.parts.contains(&n));
                }
            }
            prop_assert_eq!(next.is_none(), !is_empty);
        }
    }

    #[test]
    fn a_part_that_goes_on_after_another_shares_no_stretch_with_it() {
        let rows = vec![(0..=999).collect(), (1_500..=3_000).collect()];
        let parts = Parts {
            rows,
            missing: ClosedRange::ALL,
        };
        let extents = vec![
            (0, ClosedRange::nanos(0, 999)),
            (1, ClosedRange::nanos(1_500, 3_000)),
        ];
        let found = Overlaps::find(extents, &parts).unwrap().ranges;
        let parts: Vec<&[u32]> = found.iter().map(|one| &*one.parts).collect();
        assert_eq!(parts, [&[0], &[1]]);
    }

    #[test]
    fn only_the_buckets_with_rows_of_both_are_shared() {
        let second = 1_000_000_000;
        let a: BTreeSet<i64> = (0..100_000).map(|n| n * second).collect();
        let b: BTreeSet<i64> = [5 * second + 1, 70_000 * second].into();
        let parts = Parts {
            rows: vec![a, b],
            missing: ClosedRange::EMPTY,
        };
        let extents = vec![
            (0, ClosedRange::nanos(0, 99_999 * second)),
            (1, ClosedRange::nanos(5 * second + 1, 70_000 * second)),
        ];
        let found = Overlaps::find(extents, &parts).unwrap().ranges;
        let shared = found.iter().filter(|one| one.parts.len() > 1);
        let rows = ClosedRange::nanos(0, 99_999 * second);
        let width = |one: &PartsRange| {
            let inside = one.range.intersect(&rows);
            inside.last.as_nanos() - inside.first.as_nanos()
        };
        let widths: Vec<i64> = shared.map(width).collect();
        assert_eq!(widths.len(), 2, "{found:?}");
        assert!(
            widths.iter().all(|width| *width < 600 * second),
            "{widths:?}"
        );
    }
}
