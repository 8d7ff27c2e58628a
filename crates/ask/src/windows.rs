//! Intervals of equal width on the clock of a time zone.
//!
//! Invariants: every instant of the range is in exactly one clock segment, within which the zone
//! has a constant offset from UTC, and so in one interval; intervals follow
//! [`headwater_wire::clocks`], and their numbers increase with their beginnings. Where a clock is
//! set back, two segments share an interval that is wider than an hour.

use headwater::{Bins, ClosedRange, Timestamp};
use headwater_wire::clocks::{Intervals, Width};
use headwater_wire::zone::Zone;

/// Maximum number of clock segments of a range: two per year for all years.
const STRETCHES_MAX: usize = 2_000;

/// A clock segment: a span of time with a constant offset of the zone from UTC.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    range: ClosedRange,
    ahead_ns: i64,
    /// Added to the number of widths that have passed on the clock, so that numbers are consecutive
    /// across segments.
    adds: i128,
}

/// Division of a range into intervals.
#[derive(Clone, Debug)]
pub struct Windows {
    /// The whole range.
    pub(crate) range: ClosedRange,
    /// Width and offset; `None` = one interval.
    every: Option<(i64, i64)>,
    stretches: Vec<Stretch>,
    /// Intervals on the clock of a zone other than UTC.
    clock: Option<Intervals>,
    /// The engine's own bins: requested unchanged, with the same numbers.
    own: Option<Bins>,
}

impl Windows {
    /// A range in bins of the engine, with the same numbers.
    #[must_use]
    pub fn of_bins(range: ClosedRange, bins: Bins) -> Windows {
        Windows {
            own: Some(bins),
            ..Windows::whole(range)
        }
    }

    /// The whole range as one interval.
    #[must_use]
    pub fn whole(range: ClosedRange) -> Windows {
        Windows {
            range,
            every: None,
            stretches: vec![Stretch::even(range)],
            clock: None,
            own: None,
        }
    }

    /// Intervals of `width_ns`, which must be positive.
    #[must_use]
    pub fn every(range: ClosedRange, width_ns: i64, offset_ns: i64, zone: Option<Zone>) -> Windows {
        let zone = zone.filter(|zone| !zone.is_utc());
        let clock = zone.and_then(|zone| {
            let width = Width::Fixed(width_ns);
            Intervals::new(zone, width, offset_ns)
        });
        let every = (width_ns, offset_ns);
        let stretches = match &clock {
            Some(clock) if !range.is_empty() => stretches(range, clock, every),
            _ => vec![Stretch::even(range)],
        };
        Windows {
            range,
            every: Some(every),
            stretches,
            clock,
            own: None,
        }
    }

    /// Whether the range is divided into intervals.
    pub(crate) fn is_divided(&self) -> bool {
        self.every.is_some()
    }

    /// The same intervals over a part of the range.
    pub(crate) fn within(&self, range: ClosedRange) -> Windows {
        let range = self.range.intersect(&range);
        let cut = |stretch: &Stretch| Stretch {
            range: stretch.range.intersect(&range),
            ..*stretch
        };
        Windows {
            range,
            every: self.every,
            stretches: self
                .stretches
                .iter()
                .map(cut)
                .filter(|p| !p.range.is_empty())
                .collect(),
            clock: self.clock.clone(),
            own: self.own,
        }
    }

    /// The reads of the engine: ranges of time, and their bins.
    pub(crate) fn bins(&self) -> impl Iterator<Item = (ClosedRange, Bins)> + '_ {
        self.stretches.iter().map(|stretch| {
            let bins = match self.every {
                None => self.own.unwrap_or(Bins::Whole),
                Some((width_ns, offset_ns)) => Bins::Every {
                    width_ns,
                    // Any bin may be the origin; the one nearest to 1970 cannot be out of range.
                    origin_ns: narrow(
                        (i128::from(offset_ns) - i128::from(stretch.ahead_ns))
                            .rem_euclid(i128::from(width_ns)),
                    ),
                },
            };
            (stretch.range, bins)
        })
    }

    /// The number of the interval that contains an instant.
    pub(crate) fn number(&self, at: i64) -> i64 {
        let Some(every) = self.every else {
            return 0;
        };
        let stretch = self
            .stretches
            .partition_point(|p| p.range.last.as_nanos() < at);
        let stretch = self.stretches.get(stretch).or(self.stretches.last());
        narrow(stretch.map_or(0, |stretch| stretch.number(at, every)))
    }

    /// The number of the interval of an engine's bin, given the bin's beginning.
    pub(crate) fn number_of(&self, bin: i128, begins: Timestamp) -> i128 {
        match self.own {
            Some(_) => bin,
            None => self.number(begins.as_nanos()).into(),
        }
    }

    /// The beginning of an interval.
    pub(crate) fn start(&self, number: i64) -> i64 {
        let Some((width, offset)) = self.every else {
            return self.range.first.as_nanos();
        };
        let later = self.stretches.partition_point(|p| {
            p.number(p.range.first.as_nanos(), (width, offset)) <= i128::from(number)
        });
        let stretch = self.stretches.get(later.saturating_sub(1));
        let (adds, ahead) = stretch.map_or((0, 0), |p| (p.adds, p.ahead_ns));
        let passed = i128::from(number) - adds;
        let local = passed * i128::from(width) + i128::from(offset);
        match &self.clock {
            Some(clock) if !clock.last_as_long_as_wide() => {
                let shown = i64::try_from(local).ok();
                let first = shown.and_then(|shown| clock.zone().first_showing_ns(shown));
                first.unwrap_or(narrow(local))
            }
            _ => narrow(local - i128::from(ahead)),
        }
    }

    /// The number of intervals of the range, including empty ones.
    pub(crate) fn intervals(&self) -> i128 {
        let (first, last) = (self.range.first.as_nanos(), self.range.last.as_nanos());
        i128::from(self.number(last)) - i128::from(self.number(first)) + 1
    }

    /// The same intervals, beginning `widths` widths earlier.
    pub(crate) fn beginning_earlier(&self, widths: u32) -> Windows {
        let first = self.range.first.as_nanos();
        self.over(ClosedRange::nanos(
            narrow(i128::from(first) - self.widths(widths)),
            self.range.last.as_nanos(),
        ))
    }

    /// The same intervals, ending `widths` widths later.
    pub(crate) fn ending_later(&self, widths: u32) -> Windows {
        let last = self.range.last.as_nanos();
        self.over(ClosedRange::nanos(
            self.range.first.as_nanos(),
            narrow(i128::from(last) + self.widths(widths)),
        ))
    }

    fn widths(&self, count: u32) -> i128 {
        let (width, _) = self.every.unwrap_or_default();
        i128::from(width) * i128::from(count)
    }

    /// The same intervals with the same numbers over a longer range.
    fn over(&self, range: ClosedRange) -> Windows {
        let Some((width_ns, offset_ns)) = self.every else {
            return Windows::whole(range);
        };
        let zone = self.clock.as_ref().map(|clock| clock.zone().clone());
        let mut longer = Windows::every(range, width_ns, offset_ns, zone);
        let at = self.range.first.as_nanos();
        let moved = i128::from(self.number(at)) - i128::from(longer.number(at));
        for stretch in &mut longer.stretches {
            stretch.adds += moved;
        }
        longer
    }

    /// The numbers of the first and the last interval between two instants of the range.
    pub(crate) fn numbers(&self, first: i64, last: i64) -> (i64, i64) {
        (self.number(first), self.number(last))
    }
}

pub(crate) fn narrow(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl Stretch {
    /// A single segment, for a clock with a constant offset.
    fn even(range: ClosedRange) -> Stretch {
        Stretch {
            range,
            ahead_ns: 0,
            adds: 0,
        }
    }

    /// The number of widths that have passed on the clock.
    fn passed(&self, at: i64, (width, offset): (i64, i64)) -> i128 {
        let local = i128::from(at) + i128::from(self.ahead_ns) - i128::from(offset);
        local.div_euclid(i128::from(width))
    }

    fn number(&self, at: i64, every: (i64, i64)) -> i128 {
        self.passed(at, every) + self.adds
    }

    /// The next segment, in which the clock is ahead by another offset.
    fn followed_by(
        &self,
        range: ClosedRange,
        ahead_ns: i64,
        every: (i64, i64),
        of: &Intervals,
    ) -> Stretch {
        let mut next = Stretch {
            range,
            ahead_ns,
            adds: 0,
        };
        let (last, first) = (self.range.last.as_nanos(), range.first.as_nanos());
        let (before, behind) = (self.passed(last, every), next.passed(first, every));
        let further = match of.last_as_long_as_wide() {
            // An interval continues if both clocks place its beginning at the same instant.
            true => i128::from(of.begin(last) != of.begin(first)),
            false => (behind - before).min(1),
        };
        next.adds = before + self.adds + further - behind;
        next
    }
}

/// Splits a range where the clock of the zone is changed.
fn stretches(range: ClosedRange, of: &Intervals, every: (i64, i64)) -> Vec<Stretch> {
    let zone = of.zone();
    let ahead_ns = |at: i64| i64::from(zone.offset_seconds(at.into())) * 1_000_000_000;
    let (mut first, last) = (range.first.as_nanos(), range.last.as_nanos());
    let mut out: Vec<Stretch> = Vec::new();
    loop {
        let change = zone.change_after(first).filter(|change| *change <= last);
        let change = change.filter(|_| out.len() < STRETCHES_MAX);
        let stretch = ClosedRange::nanos(first, change.map_or(last, |change| change - 1));
        out.push(match out.last() {
            Some(before) => before.followed_by(stretch, ahead_ns(first), every, of),
            None => Stretch {
                ahead_ns: ahead_ns(first),
                ..Stretch::even(stretch)
            },
        });
        match change {
            Some(change) => first = change,
            None => return out,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;
    const DAY: i64 = 24 * HOUR;

    fn at(text: &str) -> i64 {
        let instant: jiff::Timestamp = text.parse().unwrap();
        instant.as_nanosecond() as i64
    }

    #[test]
    fn intervals_begin_at_multiples_of_their_width() {
        let windows = Windows::every(ClosedRange::nanos(-5, 25), 10, 3, None);
        assert_eq!(windows.number(-8), -2);
        assert_eq!(windows.number(2), -1);
        assert_eq!(windows.number(3), 0);
        assert_eq!(windows.start(-1), -7);
        assert_eq!(windows.numbers(-5, 25), (-1, 2));
        let (range, bins) = windows.bins().next().unwrap();
        assert_eq!(range, ClosedRange::nanos(-5, 25));
        assert_eq!(
            bins,
            Bins::Every {
                width_ns: 10,
                origin_ns: 3
            }
        );
        assert_eq!(Windows::whole(ClosedRange::nanos(5, 9)).start(0), 5);
    }

    #[test]
    fn days_follow_the_clock_of_a_place() {
        let zone = Zone::read("Europe/Berlin").unwrap();
        let range = ClosedRange::nanos(at("2024-03-29T00:00:00Z"), at("2024-04-02T00:00:00Z"));
        let windows = Windows::every(range, DAY, 0, Some(zone.clone()));
        let (first, last) = windows.numbers(range.first.as_nanos(), range.last.as_nanos());
        let starts: Vec<i64> = (first..=last).map(|n| windows.start(n)).collect();
        let expected = [
            "2024-03-28T23:00:00Z",
            "2024-03-29T23:00:00Z",
            "2024-03-30T23:00:00Z",
            // The clock was set forward on the 31st, which is an hour shorter.
            "2024-03-31T22:00:00Z",
            "2024-04-01T22:00:00Z",
        ];
        assert_eq!(starts, expected.map(at));
        // Each instant is in the last interval that begins before it.
        for hour in 0..96 {
            let time = range.first.as_nanos() + hour * HOUR;
            let number = windows.number(time);
            assert!(windows.start(number) <= time && time < windows.start(number + 1));
        }
        // The segments before and after share one day.
        let bins: Vec<_> = windows.bins().collect();
        assert_eq!(bins.len(), 2);
        assert_eq!(
            windows.number(bins[0].0.last.as_nanos()),
            windows.number(bins[1].0.first.as_nanos())
        );
        let part = windows.within(ClosedRange::nanos(bins[1].0.first.as_nanos(), i64::MAX));
        assert_eq!(part.bins().count(), 1);
        assert_eq!(part.number(range.last.as_nanos()), last);
    }

    #[test]
    fn a_quarter_that_the_clock_shows_twice_is_two_intervals() {
        let zone = Zone::read("Europe/Paris").unwrap();
        let range = ClosedRange::nanos(at("2025-10-25T22:00:00Z"), at("2025-10-26T04:00:00Z") - 1);
        let width = HOUR / 4;
        let windows = Windows::every(range, width, 0, Some(zone));
        let (first, last) = windows.numbers(range.first.as_nanos(), range.last.as_nanos());
        assert_eq!(last - first, 23);
        let earlier = windows.beginning_earlier(4);
        for (number, place) in (first..=last).zip(0..) {
            let begin = range.first.as_nanos() + place * width;
            assert_eq!(windows.start(number), begin);
            assert_eq!(windows.number(begin + width - 1), number);
            assert_eq!(earlier.number(begin), number);
        }
        assert_eq!(earlier.start(first - 4), range.first.as_nanos() - HOUR);
    }

    #[test]
    fn intervals_are_those_of_the_clock_whatever_it_does() {
        let set = [
            // A shift of half an hour, a skipped day, and an hour at a minute past midnight.
            ("Australia/Lord_Howe", "2024-04-06T15:00:00Z"),
            ("Australia/Lord_Howe", "2024-10-05T15:30:00Z"),
            ("Pacific/Apia", "2011-12-30T10:00:00Z"),
            ("America/St_Johns", "2000-10-29T02:31:00Z"),
            ("America/Havana", "2024-11-03T05:00:00Z"),
            ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
        ];
        for (name, change) in set {
            let zone = Zone::read(name).unwrap();
            for width in [HOUR / 4, HOUR, 2 * HOUR, 6 * HOUR, DAY] {
                let range = ClosedRange::nanos(at(change) - 3 * DAY, at(change) + 3 * DAY);
                let windows = Windows::every(range, width, 0, Some(zone.clone()));
                let clock = Intervals::new(zone.clone(), Width::Fixed(width), 0).unwrap();
                let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
                for time in (first..=last).step_by(60_000_000_000 * 5) {
                    let start = windows.start(windows.number(time));
                    assert_eq!(Some(start), clock.begin(time), "{name} {width} {time}");
                }
                let (first, last) = windows.numbers(first, last);
                let starts: Vec<i64> = (first..=last).map(|n| windows.start(n)).collect();
                assert!(starts.is_sorted_by(|a, b| a < b), "{name} {width}");
            }
        }
    }
}
