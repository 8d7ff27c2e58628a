//! Days in UTC, by which tables are divided.
//!
//! Invariant: a day is counted from 1970-01-01, as Iceberg's transform `day` does; every instant is
//! in exactly one day. The first and the last representable day are shorter than others.

use headwater::{ClosedRange, Timestamp};
use headwater_wire::instant::{format_instant, parse_instant};
use std::fmt;

/// Nanoseconds of a day.
pub(crate) const DAY_NS: i64 = 86_400_000_000_000;

/// A day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i32);

impl Day {
    /// The day of an instant.
    #[must_use]
    pub fn of(at: Timestamp) -> Day {
        let number = at.as_nanos().div_euclid(DAY_NS);
        // Instants of 64 bits are within 106,752 days of 1970.
        Day(i32::try_from(number).unwrap_or(i32::MAX))
    }

    /// The day with this number, counted from 1970-01-01.
    #[must_use]
    pub fn from_number(number: i32) -> Day {
        Day(number)
    }

    /// Days since 1970-01-01.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    /// The day that follows.
    #[must_use]
    pub fn next(self) -> Day {
        Day(self.0.saturating_add(1))
    }

    /// Instants of the day.
    ///
    /// ```
    /// use headwater::{ClosedRange, Timestamp};
    /// use headwater_lake::Day;
    /// let day = Day::of(Timestamp::from_nanos(-1));
    /// assert_eq!(day.range(), ClosedRange::nanos(-86_400_000_000_000, -1));
    /// assert_eq!(day.to_string(), "1969-12-31");
    /// assert_eq!(Day::parse("1969-12-31"), Some(day));
    /// ```
    #[must_use]
    pub fn range(self) -> ClosedRange {
        let first = i64::from(self.0).saturating_mul(DAY_NS);
        let end = i64::from(self.next().0).saturating_mul(DAY_NS);
        // The last day there is ends with the last instant.
        let last = if end == i64::MAX { end } else { end - 1 };
        ClosedRange::nanos(first, last)
    }

    /// The day in a text such as `2026-11-20`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Day> {
        let at = parse_instant(&format!("{text}T12:00:00Z")).ok()?;
        Some(Day::of(at))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = self.range();
        // The first representable day does not start at midnight.
        let text = format_instant(range.last);
        f.write_str(text.split('T').next().unwrap_or(&text))
    }
}

/// Days one after the other, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Days {
    pub(crate) first: Day,
    pub(crate) last: Day,
}

impl Days {
    /// The days that a range meets.
    pub(crate) fn of(range: &ClosedRange) -> Days {
        Days {
            first: Day::of(range.first),
            last: Day::of(range.last),
        }
    }

    /// All instants of these days.
    pub(crate) fn range(self) -> ClosedRange {
        ClosedRange::new(self.first.range().first, self.last.range().last)
    }

    /// Union of days, joined if they touch or overlap.
    pub(crate) fn union(mut all: Vec<Days>) -> Vec<Days> {
        all.sort_by_key(|days| (days.first, days.last));
        let mut out: Vec<Days> = Vec::new();
        for days in all {
            match out.last_mut() {
                Some(before) if days.first <= before.last.next() => {
                    before.last = before.last.max(days.last);
                }
                _ => out.push(days),
            }
        }
        out
    }

    /// Subtracts days from others; the subtracted days are sorted.
    pub(crate) fn without(all: Vec<Days>, taken: impl Iterator<Item = Day>) -> Vec<Days> {
        let mut left = all;
        for day in taken {
            let at = left.partition_point(|days| days.last < day);
            if let Some(days) = left.get(at).copied().filter(|days| days.first <= day) {
                let before = (days.first < day).then(|| Days {
                    first: days.first,
                    last: Day(day.0 - 1),
                });
                let behind = (day < days.last).then(|| Days {
                    first: day.next(),
                    last: days.last,
                });
                left.splice(at..=at, before.into_iter().chain(behind));
            }
        }
        left
    }

    /// The single days, in order.
    pub(crate) fn each(self) -> impl Iterator<Item = Day> {
        (self.first.0..=self.last.0).map(Day)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn days(first: i32, last: i32) -> Days {
        Days {
            first: Day(first),
            last: Day(last),
        }
    }

    #[test]
    fn every_instant_lies_in_its_day() {
        for at in [i64::MIN, -DAY_NS - 1, -1, 0, 1, DAY_NS, i64::MAX] {
            let at = Timestamp::from_nanos(at);
            let day = Day::of(at);
            assert!(day.range().contains(at), "{at}");
            assert_eq!(Day::parse(&day.to_string()), Some(day), "{day}");
        }
    }

    #[test]
    fn days_are_put_together_and_taken_out() {
        let all = Days::union(vec![days(5, 6), days(1, 2), days(3, 3), days(9, 9)]);
        assert_eq!(all, [days(1, 3), days(5, 6), days(9, 9)]);
        let left = Days::without(all, [2, 4, 5, 9].into_iter().map(Day));
        assert_eq!(left, [days(1, 1), days(3, 3), days(6, 6)]);
    }
}
