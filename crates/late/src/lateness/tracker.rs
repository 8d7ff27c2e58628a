//! Follows one stream: its newest time, and the lateness of each event.
//!
//! The number of events that arrived since a time was the newest is read from *borders*: the newest
//! time at about every sixteenth arrival, closer for recent arrivals than for old ones. Events are
//! processed a few at a time. Events in order are only counted; late ascending ones, such as the
//! backlog of a device, are counted by stretches; otherwise the late ones are selected first and
//! looked up then, without unpredictable branches.
//!
//! Invariants: borders ascend in time and in arrivals, and there are as many times as counts. The
//! division of events among calls has no effect, except for the first one. Concurrency: a value.
//! Failure: none. Memory is bounded: [`BORDERS_MAX`] borders.

use super::{Lateness, OCTAVES};
use headwater_types::invariant::part_of;

/// Arrivals between two borders.
const BORDER_SPACING: u64 = 16;
/// Maximum borders of a stream; at this number the older half is thinned.
pub(super) const BORDERS_MAX: usize = 384;
/// Number of the newest borders within which most late events are.
const NEAR: usize = 16;
/// Events that are processed together.
const TOGETHER: usize = 64;
/// Minimum number of ascending late events that are counted as a stretch.
const STRETCH: usize = 12;

/// Follows one stream.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    newest: Option<i64>,
    arrivals: u64,
    /// Newest times, and the number of arrivals at each.
    border_times: Vec<i64>,
    border_arrivals: Vec<u64>,
    next_border: u64,
    block_end: u64,
    block_deepest: u64,
}

/// A late event, with the state at its arrival: the newest time, and the arrivals including itself.
#[derive(Clone, Copy, Default)]
struct Late {
    time: i64,
    newest: i64,
    arrivals: u64,
}

impl Tracker {
    /// A tracker of a stream without events.
    #[must_use]
    pub fn new() -> Tracker {
        Tracker::default()
    }

    /// Number of arrivals.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// The newest timestamp observed.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        self.newest
    }

    /// The mean distance of consecutive events, from the newest borders, in ns.
    #[must_use]
    pub fn interval_ns(&self) -> f64 {
        let from = self.border_times.len().saturating_sub(64);
        let (Some(a), Some(b)) = (self.border(from), self.newest_border()) else {
            return 1.0;
        };
        let span = b.0.wrapping_sub(a.0) as u64;
        (span as f64 / (b.1 - a.1).max(1) as f64).max(1.0)
    }

    /// Approximate bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.border_times.capacity() * size_of::<i64>()
            + self.border_arrivals.capacity() * size_of::<u64>()
    }

    /// Number of borders.
    #[cfg(test)]
    pub(super) fn borders(&self) -> usize {
        self.border_times.len()
    }

    /// Observes events in order of arrival.
    pub fn observe(&mut self, times: &[i64], seen: &mut Lateness) {
        seen.events += times.len() as f64;
        // The common case by far: all events newer than all previous ones, in order.
        if self.are_newer(times) {
            self.advance(times, seen);
            return;
        }
        let mut rest = times;
        while let Some(first) = rest.first() {
            let count = match self.newest {
                // Blocks begin at the first call.
                None => {
                    self.advance(&[*first], seen);
                    1
                }
                Some(newest) => self.observe_some(rest, newest, seen),
            };
            rest = part_of(rest, count.., "times behind those observed");
        }
    }

    /// Processes a few of the first events, at most up to the end of a block. Returns their number.
    fn observe_some(&mut self, times: &[i64], newest: i64, seen: &mut Lateness) -> usize {
        let most = self.block_end.saturating_sub(self.arrivals).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let part = times.get(..most.min(TOGETHER)).unwrap_or(times);
        if self.are_newer(part) {
            self.advance(part, seen);
            return part.len();
        }
        let rise =
            |part: &[i64]| part.is_sorted() && part.last().is_some_and(|last| *last <= newest);
        let count = if part.get(..STRETCH).is_some_and(rise) {
            let within = times.get(..most).unwrap_or(times);
            let rising = within
                .windows(2)
                .take_while(|w| matches!(w, [a, b] if a <= b && *b <= newest));
            let count = 1 + rising.count();
            self.observe_rising(part_of(within, ..count, "rising times"), newest, seen);
            count
        } else {
            self.observe_mixed(part, newest, seen);
            part.len()
        };
        self.end_blocks(seen);
        count
    }

    /// True when all are newer than all previous ones, and in order.
    fn are_newer(&self, times: &[i64]) -> bool {
        let first = times.first();
        first.is_some_and(|first| self.newest.is_none_or(|newest| *first > newest))
            && times.is_sorted_by(|a, b| a < b)
    }

    /// Processes ascending late times. Lateness decreases with the time and increases with every
    /// arrival: where both bounds of a stretch are in one bucket, the whole stretch is, and is not
    /// processed one by one.
    fn observe_rising(&mut self, times: &[i64], newest: i64, seen: &mut Lateness) {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return;
        };
        let count = times.len();
        let lateness = |time: i64, arrivals: u64| {
            self.lateness_of(&Late {
                time,
                newest,
                arrivals,
            })
        };
        let least = lateness(*last, self.arrivals + 1);
        let most = lateness(*first, self.arrivals + count as u64);
        if count == 1 || super::bucket_of(least) == super::bucket_of(most) {
            self.arrivals += count as u64;
            seen.late.add(most, count);
            self.block_deepest = self.block_deepest.max(most);
            return;
        }
        let (front, back) = times.split_at(count / 2);
        self.observe_rising(front, newest, seen);
        self.observe_rising(back, newest, seen);
    }

    /// Processes up to [`TOGETHER`] events in any order, within the current block.
    fn observe_mixed(&mut self, times: &[i64], newest: i64, seen: &mut Lateness) {
        let mut late = [Late::default(); TOGETHER];
        let mut held = 0;
        let mut newest = newest;
        for time in times {
            self.arrivals += 1;
            // Always written, and retained if late.
            if let Some(slot) = late.get_mut(held) {
                *slot = Late {
                    time: *time,
                    newest,
                    arrivals: self.arrivals,
                };
            }
            let is_late = *time <= newest;
            held += usize::from(is_late);
            newest = newest.max(*time);
            if !is_late && self.arrivals >= self.next_border {
                // Earlier arrivals are looked up by the previous borders.
                self.note(part_of(&late, ..held, "late events of a block"), seen);
                held = 0;
                self.push_border(*time, self.arrivals);
            }
        }
        self.newest = Some(newest);
        self.note(part_of(&late, ..held, "late events of a block"), seen);
    }

    fn note(&mut self, late: &[Late], seen: &mut Lateness) {
        let mut deepest = self.block_deepest;
        for event in late {
            let lateness = self.lateness_of(event);
            seen.late.add(lateness, 1);
            deepest = deepest.max(lateness);
        }
        self.block_deepest = deepest;
    }

    /// Processes events that are newer than all previous ones, and in order.
    fn advance(&mut self, times: &[i64], seen: &mut Lateness) {
        let before = self.arrivals;
        self.arrivals += times.len() as u64;
        self.newest = times.last().copied().or(self.newest);
        while self.next_border <= self.arrivals {
            let index = self.next_border.saturating_sub(before + 1) as usize;
            let at = self.next_border.max(before + 1);
            let time = times.get(index).copied().unwrap_or(i64::MAX);
            self.push_border(time, at);
        }
        self.end_blocks(seen);
    }

    fn border(&self, index: usize) -> Option<(i64, u64)> {
        let time = self.border_times.get(index)?;
        Some((*time, *self.border_arrivals.get(index)?))
    }

    fn newest_border(&self) -> Option<(i64, u64)> {
        self.border(self.border_times.len().checked_sub(1)?)
    }

    fn push_border(&mut self, time: i64, arrivals: u64) {
        if self.border_times.len() >= BORDERS_MAX {
            // Older arrivals are recorded less precisely.
            thin(&mut self.border_times);
            thin(&mut self.border_arrivals);
        }
        self.border_times.push(time);
        self.border_arrivals.push(arrivals);
        self.next_border = arrivals + BORDER_SPACING;
    }

    fn end_blocks(&mut self, seen: &mut Lateness) {
        if self.block_end == 0 {
            self.block_end = self.arrivals + seen.block_events;
        }
        while self.arrivals >= self.block_end {
            seen.blocks += 1.0;
            if self.block_deepest > 0 {
                seen.deepest.add(self.block_deepest, 1);
            }
            self.block_deepest = 0;
            self.block_end += seen.block_events;
        }
    }

    /// The number of borders at or before a time.
    #[inline]
    fn borders_upto(&self, time: i64) -> usize {
        let times = &self.border_times;
        if let Some((further, near)) = times.split_last_chunk::<NEAR>()
            && near.first().is_some_and(|first| *first <= time)
        {
            return further.len() + near.partition_point(|at| *at <= time);
        }
        times.partition_point(|at| *at <= time)
    }

    /// Arrivals since the newest time passed the time of a late event, including the event: at
    /// least 1.
    #[inline]
    fn lateness_of(&self, event: &Late) -> u64 {
        let right = self.borders_upto(event.time);
        let Some(a) = right.checked_sub(1).and_then(|i| self.border(i)) else {
            return self.lateness_before(event);
        };
        let b = self.border(right).unwrap_or((event.newest, event.arrivals));
        // Times ascend from a to this one to b, so their distances fit into unsigned 64 bits.
        let span = b.0.wrapping_sub(a.0) as u64;
        let into = event.time.wrapping_sub(a.0) as u64;
        let share = if span > 0 {
            into as f64 / span as f64
        } else {
            1.0
        };
        let passed = a.1 as f64 + share * (b.1 - a.1) as f64;
        ((event.arrivals as f64 - passed + 0.5) as u64).max(1)
    }

    /// Lateness like [`Tracker::lateness_of`], for a time before the oldest border: events are
    /// assumed to have arrived at the same rate before.
    #[cold]
    fn lateness_before(&self, event: &Late) -> u64 {
        let Some(first) = self.border(0) else {
            return event.arrivals.max(1);
        };
        let known = (i128::from(event.newest) - i128::from(first.0)) as f64;
        let beyond = (i128::from(first.0) - i128::from(event.time)) as f64;
        let counted = (event.arrivals - first.1) as f64;
        let more = if known > 0.0 {
            beyond / known * counted
        } else {
            0.0
        };
        ((counted + more) as u64).clamp(1, 1 << OCTAVES)
    }
}

/// Drops every other entry of the older half.
fn thin<T>(borders: &mut Vec<T>) {
    let mut index = 0;
    borders.retain(|_| {
        index += 1;
        index > BORDERS_MAX / 2 || index % 2 == 0
    });
}
