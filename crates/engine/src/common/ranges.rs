//! Lists of closed ranges of time, sorted and disjoint.
//!
//! Invariants: the result of [`union`] is sorted, and its ranges neither overlap nor touch; the
//! lookups rely on that. Failure: none.

use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Timestamp};

/// Sorts ranges and joins those that overlap or touch.
pub(crate) fn union(mut ranges: Vec<ClosedRange>) -> Vec<ClosedRange> {
    ranges.retain(|r| !r.is_empty());
    ranges.sort_by_key(|r| r.first);
    let mut out: Vec<ClosedRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.first.as_nanos() <= last.last.as_nanos().saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => out.push(range),
        }
    }
    out
}

/// Intersection of two lists of ranges, each sorted and disjoint.
pub(crate) fn intersection(a: &[ClosedRange], b: &[ClosedRange]) -> Vec<ClosedRange> {
    let mut out = Vec::new();
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
        let shared = left.intersect(right);
        if !shared.is_empty() {
            out.push(shared);
        }
        match left.last < right.last {
            true => drop(a.next()),
            false => drop(b.next()),
        }
    }
    out
}

/// Difference of two lists of ranges; both sorted and disjoint.
pub(crate) fn without(ranges: &[ClosedRange], others: &[ClosedRange]) -> Vec<ClosedRange> {
    let mut out = Vec::new();
    for range in ranges {
        let mut rest = *range;
        for other in overlapping(others, range) {
            if let Some(last) = other.first.previous().filter(|last| rest.first <= *last) {
                out.push(ClosedRange::new(rest.first, last));
            }
            rest = match other.last.next() {
                Some(first) => ClosedRange::new(first, rest.last),
                None => ClosedRange::EMPTY,
            };
        }
        if rest.first <= rest.last {
            out.push(rest);
        }
    }
    out
}

/// True when one of the disjoint ranges contains all of `inner`.
pub(crate) fn swallows(ranges: &[ClosedRange], inner: &ClosedRange) -> bool {
    overlapping(ranges, inner)
        .iter()
        .any(|r| r.first <= inner.first && inner.last <= r.last)
}

/// The ranges of a sorted, disjoint list that share an instant with `other`.
pub(crate) fn overlapping<'a>(ranges: &'a [ClosedRange], other: &ClosedRange) -> &'a [ClosedRange] {
    let from = ranges.partition_point(|r| r.last < other.first);
    let to = ranges.partition_point(|r| r.first <= other.last);
    part_of(ranges, from..to, "ranges that overlap another")
}

/// True when one of the sorted, disjoint ranges contains the instant.
pub(crate) fn contains_instant(ranges: &[ClosedRange], time: Timestamp) -> bool {
    let at = ranges.partition_point(|r| r.last < time);
    ranges.get(at).is_some_and(|r| r.first <= time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_looked_up() {
        let r = ClosedRange::nanos;
        let all = union(vec![
            r(10, 20),
            r(0, 3),
            r(4, 5),
            ClosedRange::EMPTY,
            r(15, 30),
        ]);
        assert_eq!(all, [r(0, 5), r(10, 30)]);
        assert!(swallows(&all, &r(1, 5)) && !swallows(&all, &r(4, 10)));
        let at = |ns| contains_instant(&all, Timestamp::from_nanos(ns));
        assert!(at(30) && !at(31) && !at(7));
        assert_eq!(overlapping(&all, &r(5, 9)), [r(0, 5)]);
        assert!(overlapping(&all, &r(6, 9)).is_empty());
        assert_eq!(
            intersection(&all, &[r(3, 4), r(7, 8), r(9, 12), r(30, 40)]),
            [r(3, 4), r(10, 12), r(30, 30)]
        );
        assert!(intersection(&all, &[]).is_empty());
        let left = without(&all, &[r(-5, 0), r(2, 3), r(5, 12), r(30, 31)]);
        assert_eq!(left, [r(1, 1), r(4, 4), r(13, 29)]);
        assert!(without(&all, &[ClosedRange::ALL]).is_empty());
        assert_eq!(without(&all, &[]), all);
    }
}
