//! Time as a part that can be replaced: the wall clock and the monotonic clock.
//!
//! Invariants: [`Clock::monotonic`] never decreases; [`Clock::now`] may jump in either direction,
//! as wall clocks do. The two are never mixed: durations are measured with `monotonic`, instants of
//! data are compared with `now`. Concurrency: all methods take `&self` from any thread. Failure:
//! none; a wall clock outside the range of [`Timestamp`] reads as its nearest end.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater_types::Timestamp;
use parking_lot::Mutex;

/// Wall clock and monotonic clock.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock, in nanoseconds since 1970 UTC. May jump, also backwards.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment; never decreases. Time while the machine sleeps may not count.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time is zero now.
    ///
    /// ```
    /// use headwater_io::{Clock, SystemClock};
    /// let clock = SystemClock::new();
    /// assert!(clock.now().as_nanos() > 0);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos)
            }
        };
        Timestamp::from_nanos(nanos)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves only when it is advanced.
#[derive(Debug)]
pub struct ManualClock {
    hands: Mutex<ManualTime>,
}

#[derive(Clone, Copy, Debug)]
struct ManualTime {
    now: Timestamp,
    monotonic: Duration,
}

impl ManualClock {
    /// A clock whose wall time is `now` and whose monotonic time is zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use headwater_types::Timestamp;
    /// use headwater_io::{Clock, ManualClock};
    /// let clock = ManualClock::new(Timestamp::from_nanos(10));
    /// clock.advance(Duration::from_nanos(5));
    /// assert_eq!(clock.now(), Timestamp::from_nanos(15));
    /// assert_eq!(clock.monotonic(), Duration::from_nanos(5));
    /// ```
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        ManualClock {
            hands: Mutex::new(ManualTime {
                now,
                monotonic: Duration::ZERO,
            }),
        }
    }

    /// Sets the wall clock, forwards or backwards; the monotonic clock is unchanged.
    pub fn set(&self, now: Timestamp) {
        self.hands.lock().now = now;
    }

    /// Moves both clocks forwards by `span`; at the end of their range they stop.
    pub fn advance(&self, span: Duration) {
        let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        let mut hands = self.hands.lock();
        hands.now = Timestamp::from_nanos(hands.now.as_nanos().saturating_add(nanos));
        hands.monotonic = hands.monotonic.saturating_add(span);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.hands.lock().now
    }

    fn monotonic(&self) -> Duration {
        self.hands.lock().monotonic
    }
}
