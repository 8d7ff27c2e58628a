//! Instants on the time line of the data.
//!
//! Invariants: a [`Timestamp`] is any `i64` count of nanoseconds since 1970-01-01T00:00:00Z,
//! negative before it; a [`ClosedRange`] has `first <= last` unless it is [`ClosedRange::EMPTY`].
//! Wall clock only: spans of time are [`std::time::Duration`] or plain nanoseconds named so.

use std::fmt;

/// An instant, in nanoseconds since 1970-01-01T00:00:00Z. The whole `i64` range is valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The smallest instant (in the year 1677).
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// The largest instant (in the year 2262).
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// An instant from nanoseconds since 1970 UTC.
    ///
    /// ```
    /// assert_eq!(headwater_types::Timestamp::from_nanos(5).as_nanos(), 5);
    /// ```
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Timestamp(nanos)
    }

    /// Nanoseconds since 1970 UTC.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The instant one nanosecond later; `None` after the largest.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Option<Timestamp> {
        match self.0.checked_add(1) {
            Some(nanos) => Some(Timestamp(nanos)),
            None => None,
        }
    }

    /// The instant one nanosecond earlier; `None` before the smallest.
    ///
    /// ```
    /// # use headwater_types::Timestamp;
    /// assert_eq!(Timestamp::MAX.next(), None);
    /// assert_eq!(Timestamp::MIN.next().and_then(Timestamp::previous), Some(Timestamp::MIN));
    /// ```
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Option<Timestamp> {
        match self.0.checked_sub(1) {
            Some(nanos) => Some(Timestamp(nanos)),
            None => None,
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A range of instants with **both ends included**, so that the whole `i64` range can be named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedRange {
    /// First instant inside.
    pub first: Timestamp,
    /// Last instant inside.
    pub last: Timestamp,
}

impl ClosedRange {
    /// Every instant.
    pub const ALL: ClosedRange = ClosedRange {
        first: Timestamp::MIN,
        last: Timestamp::MAX,
    };
    /// No instant.
    pub const EMPTY: ClosedRange = ClosedRange {
        first: Timestamp::MAX,
        last: Timestamp::MIN,
    };

    /// The range from `first` to `last`, both included.
    #[must_use]
    pub const fn new(first: Timestamp, last: Timestamp) -> Self {
        ClosedRange { first, last }
    }

    /// Range of nanoseconds, both ends included.
    #[must_use]
    pub const fn nanos(first: i64, last: i64) -> Self {
        ClosedRange {
            first: Timestamp(first),
            last: Timestamp(last),
        }
    }

    /// The half-open range `[from, to)`; empty when `to <= from`.
    #[must_use]
    pub fn half_open(from: Timestamp, to: Timestamp) -> Self {
        if to <= from {
            return Self::EMPTY;
        }
        ClosedRange {
            first: from,
            last: Timestamp(to.0 - 1),
        }
    }

    /// True when no instant is inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// True when `at` is inside.
    #[inline]
    #[must_use]
    pub fn contains(&self, at: Timestamp) -> bool {
        self.first <= at && at <= self.last
    }

    /// True when the two ranges share an instant.
    #[must_use]
    pub fn overlaps(&self, other: &ClosedRange) -> bool {
        !self.is_empty()
            && !other.is_empty()
            && self.first <= other.last
            && other.first <= self.last
    }

    /// The instants in both.
    #[must_use]
    pub fn intersect(&self, other: &ClosedRange) -> ClosedRange {
        let first = self.first.max(other.first);
        let last = self.last.min(other.last);
        if first > last {
            Self::EMPTY
        } else {
            ClosedRange { first, last }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_ranges_meet_at_their_ends() {
        let (a, b) = (ClosedRange::nanos(1, 5), ClosedRange::nanos(5, 9));
        assert!(a.overlaps(&b) && a.contains(Timestamp::from_nanos(5)));
        assert_eq!(a.intersect(&b), ClosedRange::nanos(5, 5));
        assert!(a.intersect(&ClosedRange::nanos(6, 7)).is_empty());
        assert!(
            !a.overlaps(&ClosedRange::EMPTY) && !ClosedRange::EMPTY.overlaps(&ClosedRange::ALL)
        );
    }

    #[test]
    fn half_open_ranges_leave_their_end_out() {
        let at = Timestamp::from_nanos;
        assert_eq!(
            ClosedRange::half_open(at(1), at(3)),
            ClosedRange::nanos(1, 2)
        );
        assert!(ClosedRange::half_open(at(3), at(3)).is_empty());
        assert!(ClosedRange::half_open(Timestamp::MIN, Timestamp::MIN).is_empty());
        assert!(
            ClosedRange::ALL.contains(Timestamp::MAX) && ClosedRange::ALL.contains(Timestamp::MIN)
        );
    }
}
