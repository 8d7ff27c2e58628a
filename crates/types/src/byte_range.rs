//! Ranges of bytes: of a segment, of a file.
//!
//! Invariant: a [`ByteRange`] starts no later than it ends. Untrusted numbers are converted by
//! [`ByteRange::checked`], which refuses invalid ones.

/// Range of bytes from a start offset to an exclusive end offset; empty if the two are equal.
/// Ordered by start, then by end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The half-open range `[start, end)`.
    ///
    /// ```
    /// # use headwater_types::ByteRange;
    /// assert_eq!(ByteRange::new(10, 15).len(), 5);
    /// ```
    ///
    /// # Panics
    /// If it would start after its end.
    #[inline]
    #[must_use]
    pub const fn new(start: u64, end: u64) -> ByteRange {
        assert!(start <= end, "a range of bytes starts behind its end");
        ByteRange { start, end }
    }

    /// As [`ByteRange::new`]; `None` if the numbers are not a range.
    #[inline]
    #[must_use]
    pub const fn checked(start: u64, end: u64) -> Option<ByteRange> {
        match start <= end {
            true => Some(ByteRange { start, end }),
            false => None,
        }
    }

    /// The range of `len` bytes from an offset on, cut at `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn at(offset: u64, len: u64) -> ByteRange {
        ByteRange {
            start: offset,
            end: offset.saturating_add(len),
        }
    }

    /// The first byte.
    #[inline]
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// First offset after the range.
    #[inline]
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// True when no byte is inside.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// True when the byte at an offset is inside.
    #[inline]
    #[must_use]
    pub const fn contains(self, offset: u64) -> bool {
        self.start <= offset && offset < self.end
    }

    /// Intersection of two ranges; an empty range if they are disjoint.
    #[inline]
    #[must_use]
    pub fn intersect(self, other: ByteRange) -> ByteRange {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end).max(start);
        ByteRange { start, end }
    }
}

/// Joins ranges that overlap or touch: the result is sorted and disjoint.
#[must_use]
pub fn joined(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable();
    let mut out: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_start_and_not_its_end() {
        let range = ByteRange::new(10, 15);
        assert_eq!((range.start(), range.end(), range.len()), (10, 15, 5));
        assert!(range.contains(10) && range.contains(14));
        assert!(!range.contains(9) && !range.contains(15) && !range.is_empty());
        let empty = ByteRange::new(10, 10);
        assert!(empty.is_empty() && !empty.contains(10));
        assert_eq!(empty.len(), 0);
    }

    #[test]
    fn numbers_are_checked_before_they_are_a_range() {
        assert_eq!(ByteRange::checked(5, 5), Some(ByteRange::new(5, 5)));
        assert_eq!(ByteRange::checked(6, 5), None);
    }

    #[test]
    #[should_panic(expected = "a range of bytes starts behind its end")]
    fn a_range_that_starts_behind_its_end_is_none() {
        let _ = ByteRange::new(6, 5);
    }

    #[test]
    fn a_range_by_its_length_ends_no_later_than_all_bytes() {
        assert_eq!(ByteRange::at(3, 4), ByteRange::new(3, 7));
        assert_eq!(
            ByteRange::at(u64::MAX, 2),
            ByteRange::new(u64::MAX, u64::MAX)
        );
    }

    #[test]
    fn what_two_ranges_share_is_in_both() {
        let range = ByteRange::new(10, 20);
        assert_eq!(
            range.intersect(ByteRange::new(15, 30)),
            ByteRange::new(15, 20)
        );
        assert_eq!(
            range.intersect(ByteRange::new(12, 13)),
            ByteRange::new(12, 13)
        );
        assert!(range.intersect(ByteRange::new(20, 30)).is_empty());
        assert!(range.intersect(ByteRange::new(40, 50)).is_empty());
        assert!(ByteRange::new(40, 50).intersect(range).is_empty());
    }

    #[test]
    fn ranges_are_ordered_by_their_starts_first() {
        assert!(ByteRange::new(1, 9) < ByteRange::new(2, 3));
        assert!(ByteRange::new(1, 2) < ByteRange::new(1, 9));
    }

    #[test]
    fn ranges_that_meet_become_one() {
        let ranges = [(30, 40), (0, 10), (5, 7), (10, 12), (30, 40)];
        let ranges = ranges.map(|(start, end)| ByteRange::new(start, end));
        let whole = [ByteRange::new(0, 12), ByteRange::new(30, 40)];
        assert_eq!(joined(ranges.into()), whole);
        assert_eq!(joined(Vec::new()), []);
    }
}
