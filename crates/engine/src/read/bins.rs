//! Bins of time, and the rows of each.
//!
//! Invariants: bins do not overlap and cover all time; their numbers ascend with time.

use crate::memory::search;
use crate::{Error, Result};
use headwater_types::{ClosedRange, Level, Timestamp};
use std::ops::Range;

/// The division of a range into bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bins {
    /// No division: one bin.
    Whole,
    /// Bins of equal width; one begins at `origin_ns`.
    Every {
        /// Width, above 0.
        width_ns: i64,
        /// An instant at which a bin begins.
        origin_ns: i64,
    },
    /// Buckets of a level of the pyramid.
    Level(Level),
}

impl Bins {
    /// The number of the bin; narrow bins far from their origin need more than 64 bits.
    pub(super) fn of(&self, time: Timestamp) -> i128 {
        let time = time.as_nanos();
        match self {
            Bins::Whole => 0,
            Bins::Every {
                width_ns,
                origin_ns,
            } => match time.checked_sub(*origin_ns) {
                // A division of 128 bits costs several times as much.
                Some(distance) => i128::from(distance.div_euclid(*width_ns)),
                None => {
                    let distance = i128::from(time) - i128::from(*origin_ns);
                    distance.div_euclid(i128::from(*width_ns))
                }
            },
            Bins::Level(level) => i128::from(level.bucket_of(Timestamp::from_nanos(time))),
        }
    }

    /// The first instant of a bin within the range.
    pub(super) fn start(&self, bin: i128, range: &ClosedRange) -> Timestamp {
        let start = match self {
            Bins::Whole => i128::from(range.first.as_nanos()),
            Bins::Every {
                width_ns,
                origin_ns,
            } => bin * i128::from(*width_ns) + i128::from(*origin_ns),
            Bins::Level(level) => level.bucket_start_wide(bin as i64),
        };
        let least = i128::from(range.first.as_nanos());
        Timestamp::from_nanos(start.max(least) as i64)
    }

    /// The last instant of a bin.
    pub(super) fn end(&self, bin: i128) -> Timestamp {
        let end = match self {
            Bins::Whole => i128::from(i64::MAX),
            Bins::Every {
                width_ns,
                origin_ns,
            } => (bin + 1) * i128::from(*width_ns) + i128::from(*origin_ns) - 1,
            Bins::Level(level) => level.bucket_start_wide(bin as i64 + 1) - 1,
        };
        let beyond = if end < 0 { i64::MIN } else { i64::MAX };
        Timestamp::from_nanos(i64::try_from(end).unwrap_or(beyond))
    }

    /// The width of a bin.
    pub(super) fn width_ns(&self) -> i128 {
        match self {
            Bins::Whole => i128::MAX,
            Bins::Every { width_ns, .. } => i128::from(*width_ns),
            Bins::Level(level) => level.bucket_start_wide(1),
        }
    }

    /// Returns `invalid` for a width that is not positive.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Bins::Every { width_ns, .. } if *width_ns <= 0 => Err(Error::invalid(format!(
                "a bin must be wider than 0 ns, found {width_ns}"
            ))),
            _ => Ok(()),
        }
    }

    /// Start of bin `number`; may be before the first representable instant.
    #[must_use]
    pub fn begin(&self, number: i128) -> i128 {
        match self {
            Bins::Whole => i128::from(Timestamp::MIN.as_nanos()),
            Bins::Every {
                width_ns,
                origin_ns,
            } => number * i128::from(*width_ns) + i128::from(*origin_ns),
            Bins::Level(level) => level.bucket_start_wide(number as i64),
        }
    }

    /// The bins that sorted times fall into, ascending, each with the positions of its times.
    pub(super) fn stretches<'a>(&self, times: &'a [i64]) -> Stretches<'a> {
        Stretches {
            bins: *self,
            times,
            rows: 0..0,
            bin: None,
        }
    }
}

/// See [`Bins::stretches`].
pub(super) struct Stretches<'a> {
    bins: Bins,
    times: &'a [i64],
    /// The rows returned last.
    rows: Range<usize>,
    /// Their bin and its last instant.
    bin: Option<(i128, i64)>,
}

impl Stretches<'_> {
    /// The bin of a time after the rows returned last, and the bin's last instant: mostly the next
    /// bin, which takes no division to find.
    fn bin_of(&self, time: i64) -> (i128, i64) {
        if let (Bins::Every { width_ns, .. }, Some((bin, last))) = (self.bins, self.bin)
            && let Some(next) = last.checked_add(width_ns)
            && time <= next
        {
            return (bin + 1, next);
        }
        let bin = self.bins.of(Timestamp::from_nanos(time));
        (bin, self.bins.end(bin).as_nanos())
    }
}

impl Iterator for Stretches<'_> {
    type Item = (i128, Range<usize>);

    fn next(&mut self) -> Option<(i128, Range<usize>)> {
        let start = self.rows.end;
        let (bin, last) = self.bin_of(*self.times.get(start)?);
        // The guess: as many rows as in the previous bin.
        let guess = start + self.rows.len().max(1);
        let ends = |at: usize| self.times.get(at).is_none_or(|time| *time > last);
        let holds = guess.checked_sub(1).is_some_and(|at| !ends(at));
        let end = match holds && ends(guess) {
            true => guess,
            false => search(self.times, guess, |time| time <= last),
        };
        self.rows = start..end;
        self.bin = Some((bin, last));
        Some((bin, start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one_by_one(bins: &Bins, times: &[i64]) -> Vec<(i128, Range<usize>)> {
        let mut out: Vec<(i128, Range<usize>)> = Vec::new();
        for (row, time) in times.iter().enumerate() {
            let bin = bins.of(Timestamp::from_nanos(*time));
            match out.last_mut() {
                Some((known, rows)) if *known == bin => rows.end = row + 1,
                _ => out.push((bin, row..row + 1)),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn stretches_are_what_each_time_by_itself_gives(
            mut times in prop::collection::vec(prop_oneof![
                4 => -300i64..300,
                1 => any::<i64>(),
                1 => Just(i64::MAX),
                1 => Just(i64::MIN),
            ], 0..200),
            width_ns in prop_oneof![1i64..50, any::<i64>().prop_map(|w| w.max(1))],
            origin_ns in prop_oneof![-50i64..50, any::<i64>()],
            level in -20i32..40,
        ) {
            times.sort_unstable();
            for bins in [Bins::Whole, Bins::Every { width_ns, origin_ns }, Bins::Level(Level::clamped(level))] {
                let found: Vec<_> = bins.stretches(&times).collect();
                prop_assert_eq!(found, one_by_one(&bins, &times));
            }
        }

        #[test]
        fn regular_times_are_found_by_the_length_before(step in 1i64..9, width_ns in 1i64..200, origin_ns in -200i64..200) {
            let times: Vec<i64> = (0..500).map(|i| i * step).collect();
            let bins = Bins::Every { width_ns, origin_ns };
            let found: Vec<_> = bins.stretches(&times).collect();
            prop_assert_eq!(found, one_by_one(&bins, &times));
        }
    }
}
