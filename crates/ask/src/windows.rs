//! Intervals of equal width on the clock of a place.
//!
//! Invariants: every instant of the range lies in one piece, within which the place's clock runs
//! evenly, and so in one interval; interval `n` begins when that clock shows `n · width + offset`,
//! counted from 1970 on that clock. Where a clock is set back, two stretches of time share an
//! interval's number, and they are one interval.

use crate::error::Error;
use headwater::{Bins, ClosedRange, Timestamp};
use jiff::tz::TimeZone;

/// Intervals of one series.
pub(crate) const WINDOWS_MAX: i128 = 200_000;
/// Pieces of a range: twice a year for all years there are.
const PIECES_MAX: usize = 2_000;

/// A stretch of time within which the clock of the place is a fixed time ahead of UTC.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: ClosedRange,
    ahead_ns: i64,
}

/// How a range is divided.
#[derive(Clone, Debug)]
pub struct Windows {
    /// The whole of it.
    pub(crate) range: ClosedRange,
    /// Width and offset; `None` = one interval.
    every: Option<(i64, i64)>,
    pieces: Vec<Piece>,
    zone: Option<TimeZone>,
    /// The engine's own bins: they are asked for as they are, and keep their numbers.
    own: Option<Bins>,
}

impl Windows {
    /// A range in bins of the engine, under its numbers.
    #[must_use]
    pub fn of_bins(range: ClosedRange, bins: Bins) -> Windows {
        Windows {
            own: Some(bins),
            ..Windows::whole(range)
        }
    }

    /// The whole range at once.
    #[must_use]
    pub fn whole(range: ClosedRange) -> Windows {
        Windows {
            range,
            every: None,
            pieces: vec![Piece { range, ahead_ns: 0 }],
            zone: None,
            own: None,
        }
    }

    /// Intervals of `width_ns`, above 0.
    #[must_use]
    pub fn every(
        range: ClosedRange,
        width_ns: i64,
        offset_ns: i64,
        zone: Option<TimeZone>,
    ) -> Windows {
        let pieces = match &zone {
            Some(zone) if !range.is_empty() => pieces(range, zone),
            _ => vec![Piece { range, ahead_ns: 0 }],
        };
        Windows {
            range,
            every: Some((width_ns, offset_ns)),
            pieces,
            zone,
            own: None,
        }
    }

    /// Whether there are intervals at all.
    pub(crate) fn is_divided(&self) -> bool {
        self.every.is_some()
    }

    /// The same intervals over a part of the range.
    pub(crate) fn within(&self, range: ClosedRange) -> Windows {
        let range = self.range.intersect(&range);
        let cut = |piece: &Piece| Piece {
            range: piece.range.intersect(&range),
            ahead_ns: piece.ahead_ns,
        };
        Windows {
            range,
            every: self.every,
            pieces: self
                .pieces
                .iter()
                .map(cut)
                .filter(|p| !p.range.is_empty())
                .collect(),
            zone: self.zone.clone(),
            own: self.own,
        }
    }

    /// What the engine is to be asked: stretches of time, and how each is divided.
    pub(crate) fn bins(&self) -> impl Iterator<Item = (ClosedRange, Bins)> + '_ {
        self.pieces.iter().map(|piece| {
            let bins = match self.every {
                None => self.own.unwrap_or(Bins::Whole),
                Some((width_ns, offset_ns)) => Bins::Every {
                    width_ns,
                    // Any beginning will do, so the one nearest to 1970 cannot be out of range.
                    origin_ns: narrow(
                        (i128::from(offset_ns) - i128::from(piece.ahead_ns))
                            .rem_euclid(i128::from(width_ns)),
                    ),
                },
            };
            (piece.range, bins)
        })
    }

    /// The number of the interval that an instant lies in.
    pub(crate) fn number(&self, at: i64) -> i64 {
        let Some((width, offset)) = self.every else {
            return 0;
        };
        let piece = self
            .pieces
            .partition_point(|p| p.range.last.as_nanos() < at);
        let ahead = self
            .pieces
            .get(piece)
            .or(self.pieces.last())
            .map_or(0, |p| p.ahead_ns);
        let local = i128::from(at) + i128::from(ahead) - i128::from(offset);
        narrow(local.div_euclid(i128::from(width)))
    }

    /// The number of a bin that the engine found, and that begins at an instant.
    pub(crate) fn number_of(&self, bin: i128, begins: Timestamp) -> i128 {
        match self.own {
            Some(_) => bin,
            None => self.number(begins.as_nanos()).into(),
        }
    }

    /// When an interval begins.
    pub(crate) fn start(&self, number: i64) -> i64 {
        let Some((width, offset)) = self.every else {
            return self.range.first.as_nanos();
        };
        let local = i128::from(number) * i128::from(width) + i128::from(offset);
        let Some(zone) = &self.zone else {
            return narrow(local);
        };
        // What the clock shows, taken for UTC first.
        let shown = jiff::Timestamp::from_nanosecond(local).ok();
        let instant = shown.and_then(|shown| {
            let shown = TimeZone::UTC.to_datetime(shown);
            zone.to_timestamp(shown).ok()
        });
        narrow(instant.map_or(local, |instant| instant.as_nanosecond()))
    }

    /// How many intervals the range has, whether something lies in them or not.
    pub(crate) fn intervals(&self) -> i128 {
        let (first, last) = (self.range.first.as_nanos(), self.range.last.as_nanos());
        i128::from(self.number(last)) - i128::from(self.number(first)) + 1
    }

    /// The same intervals, beginning so many of their widths earlier.
    pub(crate) fn beginning_earlier(&self, widths: u32) -> Windows {
        let first = self.range.first.as_nanos();
        self.over(ClosedRange::nanos(
            narrow(i128::from(first) - self.widths(widths)),
            self.range.last.as_nanos(),
        ))
    }

    /// The same intervals, ending so many of their widths later.
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

    fn over(&self, range: ClosedRange) -> Windows {
        match self.every {
            Some((width_ns, offset_ns)) => {
                Windows::every(range, width_ns, offset_ns, self.zone.clone())
            }
            None => Windows::whole(range),
        }
    }

    /// The numbers of the first and the last interval between two instants of the range.
    ///
    /// # Errors
    /// When there are more than [`WINDOWS_MAX`].
    pub(crate) fn numbers(&self, first: i64, last: i64) -> Result<(i64, i64), Error> {
        let (first, last) = (self.number(first), self.number(last));
        let count = i128::from(last) - i128::from(first) + 1;
        if count > WINDOWS_MAX {
            return Err(Error::limit(format!(
                "the range has {count} intervals, at most {WINDOWS_MAX} are answered: use wider intervals or a shorter range"
            )));
        }
        Ok((first, last))
    }
}

pub(crate) fn narrow(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Cuts a range where the clock of the zone is set.
fn pieces(range: ClosedRange, zone: &TimeZone) -> Vec<Piece> {
    let instant = |at: Timestamp| {
        jiff::Timestamp::from_nanosecond(i128::from(at.as_nanos())).unwrap_or_default()
    };
    let ahead_ns = |at| i64::from(zone.to_offset(at).seconds()) * 1_000_000_000;
    let mut out = Vec::new();
    let mut first = range.first;
    let transitions = zone
        .following(instant(range.first))
        .take(PIECES_MAX)
        .map(|t| Timestamp::from_nanos(narrow(t.timestamp().as_nanosecond())));
    for next in transitions.take_while(|next| *next <= range.last) {
        if next <= first {
            continue;
        }
        out.push(Piece {
            range: ClosedRange::half_open(first, next),
            ahead_ns: ahead_ns(instant(first)),
        });
        first = next;
    }
    out.push(Piece {
        range: ClosedRange::new(first, range.last),
        ahead_ns: ahead_ns(instant(first)),
    });
    out
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
        assert_eq!(windows.numbers(-5, 25).unwrap(), (-1, 2));
        let (range, bins) = windows.bins().next().unwrap();
        assert_eq!(range, ClosedRange::nanos(-5, 25));
        assert_eq!(
            bins,
            Bins::Every {
                width_ns: 10,
                origin_ns: 3
            }
        );
        let wide = Windows::every(ClosedRange::ALL, 1, 0, None);
        assert!(wide.numbers(0, i64::MAX).is_err());
        assert_eq!(Windows::whole(ClosedRange::nanos(5, 9)).start(0), 5);
    }

    #[test]
    fn days_follow_the_clock_of_a_place() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let range = ClosedRange::nanos(at("2024-03-29T00:00:00Z"), at("2024-04-02T00:00:00Z"));
        let windows = Windows::every(range, DAY, 0, Some(zone.clone()));
        let (first, last) = windows
            .numbers(range.first.as_nanos(), range.last.as_nanos())
            .unwrap();
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
        // Each instant lies in the interval that begins last before it.
        for hour in 0..96 {
            let time = range.first.as_nanos() + hour * HOUR;
            let number = windows.number(time);
            assert!(windows.start(number) <= time && time < windows.start(number + 1));
        }
        // The stretches before and after share one day.
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
}
