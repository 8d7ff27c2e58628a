//! Lists of ranges of time, sorted and disjoint.
//!
//! Failure: the functions do not fail.

use headwater::{ClosedRange, Timestamp};

/// Sorts ranges and joins those that overlap, touch, or have a gap of at most `apart` nanoseconds.
pub(super) fn joined(mut ranges: Vec<ClosedRange>, apart: i64) -> Vec<ClosedRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.first);
    let mut out: Vec<ClosedRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.first <= later(last.last, apart.max(1)) => {
                last.last = last.last.max(range.last);
            }
            _ => out.push(range),
        }
    }
    out
}

/// Intersection of two lists.
pub(super) fn shared(a: &[ClosedRange], b: &[ClosedRange]) -> Vec<ClosedRange> {
    let mut out = Vec::new();
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
        let both = left.intersect(right);
        if !both.is_empty() {
            out.push(both);
        }
        match left.last < right.last {
            true => drop(a.next()),
            false => drop(b.next()),
        }
    }
    out
}

pub(super) fn later(at: Timestamp, by_ns: i64) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().saturating_add(by_ns))
}

pub(super) fn earlier(at: Timestamp, by_ns: i64) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().saturating_sub(by_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_shared() {
        let r = ClosedRange::nanos;
        let all = joined(vec![r(10, 20), r(0, 3), r(4, 5), ClosedRange::EMPTY], 0);
        assert_eq!(all, [r(0, 5), r(10, 20)]);
        assert_eq!(joined(all.clone(), 5), [r(0, 20)]);
        assert_eq!(joined(all.clone(), 4), all);
        let ends = [r(i64::MIN, i64::MIN), r(i64::MAX, i64::MAX)];
        assert_eq!(joined(ends.to_vec(), i64::MAX), ends);
        assert_eq!(
            shared(&all, &[r(3, 4), r(7, 8), r(9, 12)]),
            [r(3, 4), r(10, 12)]
        );
        assert!(shared(&all, &[]).is_empty());
    }
}
