//! Ranges of a segment, each from its first byte to the first one behind.
//!
//! Concurrency: pure.

/// A range.
pub(crate) type Range = (u64, u64);

/// The parts of a range that others hold, which rise and do not meet.
pub(crate) fn within(range: Range, others: &[Range]) -> Vec<Range> {
    let (at, end) = range;
    let first = others.partition_point(|(_, until)| *until <= at);
    let others = others.iter().skip(first);
    let others = others.take_while(|(from, _)| *from < end);
    others
        .map(|(from, until)| ((*from).max(at), (*until).min(end)))
        .collect()
}

/// The parts of a range that others do not hold.
pub(crate) fn beside(range: Range, others: &[Range]) -> Vec<Range> {
    let (mut at, end) = range;
    let mut out = Vec::new();
    for (from, until) in within(range, others) {
        if at < from {
            out.push((at, from));
        }
        at = until;
    }
    if at < end {
        out.push((at, end));
    }
    out
}

/// Bytes of ranges that do not meet.
pub(crate) fn bytes(ranges: &[Range]) -> u64 {
    ranges.iter().map(|(from, until)| until - from).sum()
}

/// Ranges that may meet, as ones that are apart and rise.
pub(crate) fn apart(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut out: Vec<Range> = Vec::new();
    for (from, until) in ranges {
        match out.last_mut() {
            Some((_, end)) if *end >= from => *end = until.max(*end),
            _ => out.push((from, until)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_range_are_within_others_or_beside_them() {
        let others = [(10, 20), (30, 40)];
        assert_eq!(within((0, 50), &others), others);
        assert_eq!(beside((0, 50), &others), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(within((12, 35), &others), [(12, 20), (30, 35)]);
        assert_eq!(beside((12, 35), &others), [(20, 30)]);
        assert_eq!(beside((12, 18), &others), []);
        assert_eq!(bytes(&others), 20);
    }

    #[test]
    fn ranges_that_meet_become_one() {
        let ranges = vec![(30, 40), (0, 10), (5, 7), (10, 12)];
        assert_eq!(apart(ranges), [(0, 12), (30, 40)]);
    }
}
