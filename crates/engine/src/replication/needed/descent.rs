//! Descent through a pyramid: the level at which a walk begins, and the ranges that a level leaves
//! to the level below.
//!
//! Invariants: the reader's walk and the list of the bytes it will read follow the same rules.

use headwater_types::{ClosedRange, Level, Timestamp};

/// The stored level below one.
pub(crate) fn below(level: Level, base: Level) -> Level {
    Level::clamped(level.get() - 2).max(base)
}

/// The coarsest stored level, from `top` down, whose buckets are at most this wide; else the base.
pub(crate) fn no_wider(mut top: Level, base: Level, width_ns: i128) -> Level {
    while top > base && top.bucket_start_wide(1) > width_ns {
        top = below(top, base);
    }
    top
}

/// Stretches of stale buckets of a level, by number and disjoint; empty at the base level.
pub(crate) fn stale_buckets(
    stale: &[ClosedRange],
    base: Level,
    level: Level,
    first: i64,
    last: i64,
) -> Vec<(i64, i64)> {
    let mut out: Vec<(i64, i64)> = Vec::new();
    if level == base {
        return out;
    }
    for range in stale {
        let from = level.bucket_of(range.first).max(first);
        let to = level.bucket_of(range.last).min(last);
        match out.last_mut() {
            _ if from > to => {}
            Some(before) if from <= before.1.saturating_add(1) => before.1 = before.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

/// The parts of a range that a level above the base leaves to the level below: where it is stale,
/// since it may miss buckets there too, and after its newest closed bucket, `last_bucket`.
pub(crate) fn left_to_below(
    level: Level,
    last_bucket: Option<i64>,
    range: &ClosedRange,
    stale: &[(i64, i64)],
) -> Vec<ClosedRange> {
    let Some(last_bucket) = last_bucket else {
        return vec![*range];
    };
    let closed = level.bucket_span(last_bucket).last;
    let before = ClosedRange::new(Timestamp::MIN, closed);
    let mut left: Vec<ClosedRange> = stale
        .iter()
        .map(|(from, to)| level.span(*from, *to).intersect(range).intersect(&before))
        .collect();
    if closed < range.last {
        let next = Timestamp::from_nanos(closed.as_nanos().saturating_add(1));
        left.push(ClosedRange::new(range.first.max(next), range.last));
    }
    left
}
