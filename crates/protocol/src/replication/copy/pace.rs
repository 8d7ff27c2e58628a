//! Bytes that may be on their way to a copy: as many as the link carries in a round trip, a third
//! of it and 0.45 s, so that it never rests, and newest events do not wait behind much else.
//!
//! The rate is that of arrivals: the highest of the last samples, each of which covers half a
//! second in which something was on its way, or all that was on its way at its beginning. The round
//! trip is that of requests before which nothing was on its way: others wait in the queues of the
//! link. While the link is not full, each sample is of a larger rate than the one before, so that
//! the bound grows until it is.
//!
//! Invariants: at least [`LEAST`] bytes, at most those of the limit. Concurrency: plain data; times
//! are of the monotonic clock.

use std::collections::VecDeque;
use std::time::Duration;

/// Smallest bound in bytes, of which a quarter is requested at once.
const LEAST: u64 = 16 << 10;
/// Bound before anything has arrived.
const FIRST: u64 = 32 << 10;
/// Time for which the link carries what is requested beyond its round trips.
const AHEAD: Duration = Duration::from_millis(450);
/// Longest round trip that counts.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(2);
/// Length of a sample.
const SAMPLE: Duration = Duration::from_millis(500);
/// Shortest time by which bytes are divided.
const INSTANT: Duration = Duration::from_millis(1);
/// Number of remembered samples.
const SAMPLES: usize = 4;
/// Number of remembered round trips.
const ROUND_TRIPS: usize = 4;

/// Arrivals since an instant.
#[derive(Clone, Copy, Debug)]
struct Sample {
    since: Duration,
    bytes: u64,
}

/// The bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    sample: Option<Sample>,
    /// Rates of the last samples, in bytes a second.
    rates: VecDeque<u64>,
    /// Time of a request before which nothing was on its way, until its answer begins.
    alone_since: Option<Duration>,
    round_trips: VecDeque<Duration>,
}

/// Bytes that a rate carries in a time.
fn carries(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Bytes a second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let nanos = time.max(INSTANT).as_nanos();
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

fn push<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    all.push_back(one);
    while all.len() > most {
        all.pop_front();
    }
}

impl Pace {
    fn round_trip(&self) -> Duration {
        self.round_trips.iter().min().copied().unwrap_or_default()
    }

    /// Bytes that may be on their way, at most `most`.
    pub(crate) fn bytes(&self, most: u64) -> u64 {
        let bytes = match self.rates.iter().max() {
            None => FIRST,
            Some(rate) => {
                // Less than four thirds of a round trip would not make the rate grow: between two
                // requests, three quarters of the bound are on their way.
                carries(*rate, self.round_trip() * 4 / 3 + AHEAD)
            }
        };
        bytes.max(LEAST).min(most.max(1))
    }

    /// A request was sent while `on_their_way` bytes were.
    pub(crate) fn requested(&mut self, now: Duration, on_their_way: u64) {
        if on_their_way == 0 {
            self.alone_since = Some(now);
            self.sample = Some(Sample {
                since: now,
                bytes: 0,
            });
        }
    }

    /// Bytes have arrived, and `on_their_way` are left.
    pub(crate) fn arrived(&mut self, now: Duration, bytes: u64, on_their_way: u64) {
        if let Some(since) = self.alone_since.take() {
            // With the time of these bytes: the first of an answer are a small part of the bound.
            let trip = now.saturating_sub(since).min(ROUND_TRIP_MAX);
            push(&mut self.round_trips, trip, ROUND_TRIPS);
        }
        // In a shorter time, answers to the requests of a round trip come together.
        let length = SAMPLE.max(self.round_trip());
        let bound = self.bytes(u64::MAX);
        let Some(sample) = &mut self.sample else {
            return;
        };
        sample.bytes = sample.bytes.saturating_add(bytes);
        let took = now.saturating_sub(sample.since);
        if on_their_way > 0 && took < length {
            return;
        }
        let found = rate(sample.bytes, took);
        // Where less was requested than may be, the link could have carried more.
        let says_all = on_their_way > 0 || sample.bytes >= bound / 2;
        if says_all || self.rates.iter().all(|rate| *rate < found) {
            push(&mut self.rates, found, SAMPLES);
        }
        self.sample = (on_their_way > 0).then_some(Sample {
            since: now,
            bytes: 0,
        });
    }

    /// Nothing is on its way any more, without an answer, or the source has stopped granting.
    pub(crate) fn ended(&mut self) {
        (self.sample, self.alone_since) = (None, None);
    }

    /// Requests were not answered: nothing is known of the link.
    pub(crate) fn reset(&mut self) {
        *self = Pace::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with a rate and a round trip, over which requests of a quarter of the bound are
    /// answered in order, in parts; returns the bounds, and the share of the last two thirds of the
    /// time in which it was busy.
    fn over(bytes_per_second: u64, trip: Duration, seconds: u64) -> (Vec<u64>, f64) {
        let mut pace = Pace::default();
        let mut queue: VecDeque<(Duration, u64)> = VecDeque::new();
        let (mut now, mut free, mut busy) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let (mut on_their_way, mut bounds) = (0, Vec::new());
        let begin = Duration::from_secs(seconds / 3);
        while now < Duration::from_secs(seconds) {
            let bound = pace.bytes(8 << 20);
            bounds.push(bound);
            if on_their_way <= bound - bound / 4 {
                pace.requested(now, on_their_way);
                let mut left = bound - on_their_way;
                on_their_way = bound;
                free = free.max(now + trip / 2);
                while left > 0 {
                    let part = left.min((bound / 4).min(16 << 10));
                    let nanos = part * 1_000_000_000 / bytes_per_second;
                    free += Duration::from_nanos(nanos);
                    if now > begin {
                        busy += Duration::from_nanos(nanos);
                    }
                    queue.push_back((free + trip / 2, part));
                    left -= part;
                }
            }
            if let Some((at, part)) = queue.pop_front() {
                now = now.max(at);
                on_their_way -= part;
                pace.arrived(now, part, on_their_way);
            }
        }
        (bounds, busy.as_secs_f64() / (free - begin).as_secs_f64())
    }

    #[test]
    fn a_link_is_kept_busy_with_what_it_carries_in_a_second() {
        for (bytes_per_second, millis) in [
            (12_500, 40),
            (125_000, 2),
            (125_000, 300),
            (125_000, 900),
            (1_250_000, 80),
            (5_000_000, 30),
        ] {
            let trip = Duration::from_millis(millis);
            let (bounds, busy) = over(bytes_per_second, trip, 60);
            assert!(busy > 0.95, "{bytes_per_second} {millis}: {busy}");
            let last: Vec<u64> = bounds.iter().rev().take(20).copied().collect();
            let most = carries(bytes_per_second, trip * 4 / 3 + AHEAD).max(LEAST) + (30 << 10);
            assert!(
                last.iter().all(|b| *b <= most),
                "{bytes_per_second} {millis}: {last:?} of {most}"
            );
        }
    }

    #[test]
    fn requests_of_less_than_may_be_do_not_lower_the_bound() {
        let mut pace = Pace::default();
        let at = Duration::from_millis;
        pace.requested(at(0), 0);
        pace.arrived(at(100), 64 << 10, 0);
        let bound = pace.bytes(8 << 20);
        for second in 1..20 {
            pace.requested(at(second * 1_000), 0);
            pace.arrived(at(second * 1_000 + 100), 500, 0);
        }
        assert_eq!(pace.bytes(8 << 20), bound);
        pace.ended();
        pace.arrived(at(30_000), 500, 0);
        assert_eq!(pace.bytes(8 << 20), bound);
        assert_eq!(pace.bytes(2_000), 2_000);
        pace.reset();
        assert_eq!(pace.bytes(8 << 20), FIRST);
    }
}
