//! Intervals on the clocks of a zone.
//!
//! Purpose: one division of time by clocks for every front end: buckets and calendar units of SQL,
//! the gaps between them, InfluxQL's `GROUP BY time() tz()`. Invariants: every instant is in
//! exactly one interval, which is named by an instant at or before it. Intervals of an hour and
//! less last as long as they are wide: an hour that the clocks show twice is two hours. Wider ones
//! begin at the first instant at which the clocks show the beginning or a later time, and contain
//! all instants at which the clocks show a time of the interval: a day has 23 or 25 hours where the
//! clocks change. Concurrency: immutable, cheap to clone. Failure: intervals that begin beyond
//! 64-bit nanoseconds are `None`.

use crate::zone::Zone;
use headwater_types::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use std::collections::BTreeSet;

const HOUR_NS: i64 = 3_600_000_000_000;
/// Where the names of two intervals are swapped, the two are neighbours.
const NAMES_AHEAD: usize = 3;

/// Width of intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// Nanoseconds, above 0.
    Fixed(i64),
    /// Months, above 0.
    Months(i32),
}

/// Intervals of equal width on the clocks of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Intervals {
    zone: Zone,
    width: Width,
    /// A beginning, as the clocks show it. Intervals of months begin at midnight of a first day.
    origin_ns: i64,
}

impl Intervals {
    /// Intervals of a width, one of which begins when the clocks show the origin: nanoseconds since
    /// 1970 as if that were UTC. `None` = the width is zero. For months the origin is ignored.
    #[must_use]
    pub fn new(zone: Zone, width: Width, origin_ns: i64) -> Option<Intervals> {
        let is_wide = match width {
            Width::Fixed(ns) => ns > 0,
            Width::Months(months) => months > 0,
        };
        is_wide.then_some(Intervals {
            zone,
            width,
            origin_ns,
        })
    }

    /// Zone of the clocks.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// True when every interval lasts as long as its width, so that a time that the clocks show
    /// twice is in two intervals.
    #[must_use]
    pub fn last_as_long_as_wide(&self) -> bool {
        matches!(self.width, Width::Fixed(ns) if ns <= HOUR_NS)
    }

    /// Beginning of the interval that contains an instant.
    ///
    /// ```
    /// use headwater_wire::clocks::{Intervals, Width};
    /// use headwater_wire::{instant::parse_instant, zone::Zone};
    /// let paris = Zone::read("Europe/Paris")?;
    /// let quarters = Intervals::new(paris, Width::Fixed(900_000_000_000), 0).ok_or("no width")?;
    /// // A quarter past two, for the first and for the second time.
    /// for time in ["2025-10-26T00:20:00Z", "2025-10-26T01:20:00Z"] {
    ///     let at = parse_instant(time)?.as_nanos();
    ///     assert_eq!(quarters.begin(at), Some(at - 300_000_000_000));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn begin(&self, at_ns: i64) -> Option<i64> {
        if let Width::Fixed(width) = self.width
            && self.last_as_long_as_wide()
        {
            return self.zone.begin_from(at_ns, width, self.origin_ns);
        }
        let shown = i128::from(at_ns) + self.ahead_ns(at_ns);
        self.zone
            .first_showing_ns(i64::try_from(self.floor(shown)?).ok()?)
    }

    /// Beginnings of the intervals with instants from `first_ns` to before `end_ns`, sorted
    /// ascending.
    #[must_use]
    pub fn begins(&self, first_ns: i64, end_ns: i64) -> Begins {
        Begins {
            intervals: self.clone(),
            names: BTreeSet::new(),
            cursor: Some(first_ns).filter(|first| *first < end_ns),
            end_ns,
            change: self.zone.change_after(first_ns),
            from: self.begin(first_ns).map(Timestamp::from_nanos),
            last: None,
        }
    }

    fn ahead_ns(&self, at_ns: i64) -> i128 {
        i128::from(self.zone.offset_seconds(at_ns.into())) * 1_000_000_000
    }

    /// Beginning of an interval as shown by clocks, from a time shown by clocks.
    fn floor(&self, shown_ns: i128) -> Option<i128> {
        match self.width {
            Width::Fixed(width) => {
                let since = shown_ns - i128::from(self.origin_ns);
                Some(shown_ns - since.rem_euclid(width.into()))
            }
            Width::Months(width) => {
                let date = shown(shown_ns)?.date();
                let months = i32::from(date.year()) * 12 + i32::from(date.month()) - 1;
                month(months - (months - EPOCH_MONTHS).rem_euclid(width))
            }
        }
    }

    /// The clock's time at the beginning of the next interval, if the clock is not set before.
    fn next(&self, begin_ns: i128) -> Option<i128> {
        match self.width {
            Width::Fixed(width) => Some(begin_ns + i128::from(width)),
            Width::Months(width) => {
                let date = shown(begin_ns)?.date();
                let months = i32::from(date.year()) * 12 + i32::from(date.month()) - 1;
                month(months.checked_add(width)?)
            }
        }
    }

    /// An instant at which the interval of another has ended.
    fn after(&self, at_ns: i64, change: Option<i64>) -> Option<i64> {
        let ahead = self.ahead_ns(at_ns);
        let next = self.next(self.floor(i128::from(at_ns) + ahead)?)? - ahead;
        let next = i64::try_from(next).ok();
        // After a change the clocks show another time.
        match change {
            Some(change) if next.is_none_or(|next| change < next) => Some(change),
            _ => next,
        }
    }
}

/// Months since the year 0 at 1970.
const EPOCH_MONTHS: i32 = 1_970 * 12;

fn shown(ns: i128) -> Option<DateTime> {
    let at = jiff::Timestamp::from_nanosecond(ns).ok()?;
    Some(TimeZone::UTC.to_datetime(at))
}

/// The beginning of a month, counted from the year 0, as clocks show it.
fn month(months: i32) -> Option<i128> {
    let year = i16::try_from(months.div_euclid(12)).ok()?;
    let month = i8::try_from(months.rem_euclid(12) + 1).ok()?;
    let first = Date::new(year, month, 1).ok()?.to_zoned(TimeZone::UTC);
    Some(first.ok()?.timestamp().as_nanosecond())
}

/// Beginnings of intervals, sorted ascending.
#[derive(Debug, Clone)]
pub struct Begins {
    intervals: Intervals,
    /// Names that were computed, but not returned yet.
    names: BTreeSet<Timestamp>,
    /// An instant in the next interval.
    cursor: Option<i64>,
    end_ns: i64,
    /// When the clocks are set next, after the cursor.
    change: Option<i64>,
    /// The first.
    from: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Begins {
    fn enter_interval(&mut self, at: Timestamp) {
        let at_ns = at.as_nanos();
        let name = self.intervals.begin(at_ns).map(Timestamp::from_nanos);
        let wanted = name.filter(|name| self.from.is_none_or(|from| *name >= from));
        self.names
            .extend(wanted.filter(|name| self.last.is_none_or(|last| *name > last)));
        let next = self.intervals.after(at_ns, self.change);
        self.cursor = next.filter(|next| *next > at_ns && *next < self.end_ns);
        if let (Some(cursor), Some(change)) = (self.cursor, self.change)
            && change <= cursor
        {
            self.change = self.intervals.zone.change_after(cursor);
        }
    }
}

impl Iterator for Begins {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        while self.names.len() < NAMES_AHEAD
            && let Some(at_ns) = self.cursor
        {
            self.enter_interval(Timestamp::from_nanos(at_ns));
        }
        self.last = self.names.pop_first();
        self.last.map(Timestamp::as_nanos)
    }
}
