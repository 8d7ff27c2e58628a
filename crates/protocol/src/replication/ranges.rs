//! Parts of a range of bytes inside and outside of other ranges.
//!
//! Concurrency: pure.

use headwater_types::ByteRange;

/// Parts of a range that are in `others`, which are sorted and disjoint.
pub(crate) fn within(range: ByteRange, others: &[ByteRange]) -> Vec<ByteRange> {
    let first = others.partition_point(|other| other.end() <= range.start());
    let others = others.iter().skip(first);
    let others = others.take_while(|other| other.start() < range.end());
    others.map(|other| other.intersect(range)).collect()
}

/// Parts of a range that are not in `others`.
pub(crate) fn beside(range: ByteRange, others: &[ByteRange]) -> Vec<ByteRange> {
    let mut at = range.start();
    let mut out = Vec::new();
    for held in within(range, others) {
        if at < held.start() {
            out.push(ByteRange::new(at, held.start()));
        }
        at = held.end();
    }
    if at < range.end() {
        out.push(ByteRange::new(at, range.end()));
    }
    out
}

/// Bytes of ranges that do not meet.
pub(crate) fn bytes(ranges: &[ByteRange]) -> u64 {
    ranges.iter().map(|range| range.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges<const N: usize>(all: [(u64, u64); N]) -> Vec<ByteRange> {
        all.map(|(start, end)| ByteRange::new(start, end)).into()
    }

    #[test]
    fn parts_of_a_range_are_within_others_or_beside_them() {
        let others = ranges([(10, 20), (30, 40)]);
        let all = ByteRange::new(0, 50);
        assert_eq!(within(all, &others), others);
        let gaps = ranges([(0, 10), (20, 30), (40, 50)]);
        assert_eq!(beside(all, &others), gaps);
        let some = ByteRange::new(12, 35);
        assert_eq!(within(some, &others), ranges([(12, 20), (30, 35)]));
        assert_eq!(beside(some, &others), ranges([(20, 30)]));
        assert_eq!(beside(ByteRange::new(12, 18), &others), []);
        assert_eq!(bytes(&others), 20);
    }
}
