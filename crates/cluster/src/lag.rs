//! Lag of a copy behind its edge, as the cloud knows it: since when, why, and for how much longer;
//! and the lag of newest events, which come before a flush stores them.
//!
//! Invariants: the lag in seconds is an upper bound: everything that the edge had stored before is
//! here. The lag is zero while the edge is connected and nothing of its newest state is missing.
//! The time left is what arrived in the last hour, continued. The lag of newest events is an upper
//! bound, too, without any comparison of clocks: the time that an event waited at the edge, and the
//! whole time since this node requested the events, without that for which the edge held the
//! request. Concurrency: plain data.

use crate::frame::QuietCause;
use crate::status::{EdgeState, LagCause, LagStatus};
use headwater_protocol::replication::Now;
use headwater_types::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Distance of the remembered counts of arrived bytes.
const APART: Duration = Duration::from_secs(60);
/// Number of them: an hour.
const REMEMBERED: usize = 60;

/// Bytes that arrived in the last hour.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Moment, and bytes until then, both ascending.
    counts: VecDeque<(Duration, u64)>,
    /// Bytes in all connections, and the last count of the current one.
    sum: u64,
    counted: u64,
    newest: Duration,
}

impl Arrivals {
    /// So many bytes have arrived over the current connection.
    pub(crate) fn note(&mut self, now: Duration, bytes: u64) {
        // Another connection counts from zero.
        let more = bytes.checked_sub(self.counted).unwrap_or(bytes);
        (self.counted, self.sum) = (bytes, self.sum.saturating_add(more));
        self.newest = now;
        let is_due = self.counts.back();
        if is_due.is_none_or(|(at, _)| now.saturating_sub(*at) >= APART) {
            if self.counts.len() >= REMEMBERED {
                self.counts.pop_front();
            }
            self.counts.push_back((now, self.sum));
        }
        assert!(self.counts.len() <= REMEMBERED, "too many counts");
    }

    /// Seconds in which as many bytes arrive as are missing, at the rate of the last hour; `None`
    /// where nothing arrived.
    fn seconds_for(&self, missing: u64) -> Option<u64> {
        let (since, before) = *self.counts.front()?;
        let arrived = self.sum.saturating_sub(before);
        let millis = self.newest.saturating_sub(since).as_millis();
        if arrived == 0 || millis == 0 {
            return None;
        }
        let seconds = u128::from(missing) * millis / u128::from(arrived) / 1_000;
        u64::try_from(seconds).ok()
    }
}

/// Reason why a planner does not request more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Requests go out.
    #[default]
    No,
    /// The edge has asked to wait.
    Edge,
    /// Requests have failed.
    Failures,
}

/// Lag of the newest events of an edge, when they arrived last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveLag {
    /// Longest age of an event.
    lag: Duration,
    /// Clock of the edge minus that of this node, in nanoseconds.
    clock_ns: i64,
}

/// Times of newest events, as the edge reports them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveReport {
    /// Its clock, in nanoseconds since 1970.
    pub(crate) sent_ns: i64,
    pub(crate) held_ms: u64,
    pub(crate) waited_ms: Option<u64>,
}

impl LiveLag {
    /// The lag by a report that has arrived now, of events that were requested at `asked`, by the
    /// monotonic clock.
    pub(crate) fn of(report: LiveReport, asked: Duration, now: Now) -> LiveLag {
        let held = Duration::from_millis(report.held_ms);
        let travelled = now.monotonic.saturating_sub(asked).saturating_sub(held);
        let waited = Duration::from_millis(report.waited_ms.unwrap_or(0));
        // Half of the way was that of the request.
        let half = i64::try_from((travelled / 2).as_nanos()).unwrap_or(i64::MAX);
        let sent = now.wall.as_nanos().saturating_sub(half);
        LiveLag {
            lag: travelled.saturating_add(waited),
            clock_ns: report.sent_ns.saturating_sub(sent),
        }
    }

    /// The lag in milliseconds.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.lag.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Facts of a copy that its lag is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LagFacts<'a> {
    /// Lag of newest events, if the edge sends them.
    pub(crate) live: Option<LiveLag>,
    pub(crate) waits: Waits,
    pub(crate) arrivals: &'a Arrivals,
    /// Last time at which nothing was missing.
    pub(crate) current: Option<Timestamp>,
    pub(crate) missing_bytes: u64,
}

fn cause(state: EdgeState, copy: &LagFacts<'_>, quiet: Option<QuietCause>) -> LagCause {
    let missing = copy.missing_bytes;
    match (state, copy.waits) {
        (EdgeState::Failed, _) => LagCause::Failed,
        (EdgeState::Refused, _) => LagCause::Refused,
        (EdgeState::Paused, _) => LagCause::Paused,
        (EdgeState::Quiet, _) => match quiet {
            Some(QuietCause::DayCap) => LagCause::DayCap,
            Some(QuietCause::MonthCap) => LagCause::MonthCap,
            _ => LagCause::QuietHours,
        },
        (EdgeState::Invited | EdgeState::Offline, _) => LagCause::NotConnected,
        (_, Waits::Edge) => LagCause::Rate,
        (_, Waits::Failures) => LagCause::Link,
        (_, Waits::No) if missing == 0 => LagCause::Planner,
        (_, Waits::No) => LagCause::Link,
    }
}

/// The lag of an edge in a state.
pub(crate) fn lag(
    state: EdgeState,
    copy: &LagFacts<'_>,
    quiet: Option<(Timestamp, QuietCause)>,
    now: Timestamp,
) -> LagStatus {
    let missing = copy.missing_bytes;
    let live = copy.live.filter(|_| state.is_connected());
    let of_live = LagStatus {
        live_ms: live.map(|live| live.millis()),
        clock_ms: live.map(|live| live.clock_ns / 1_000_000),
        ..LagStatus::default()
    };
    if state == EdgeState::Current {
        return LagStatus {
            seconds: Some(0),
            ..of_live
        };
    }
    let seconds = copy.current.map(|at| {
        let nanos = now.as_nanos().saturating_sub(at.as_nanos()).max(0);
        nanos.unsigned_abs() / 1_000_000_000
    });
    LagStatus {
        seconds,
        cause: Some(cause(state, copy, quiet.map(|(_, cause)| cause))),
        until_ns: quiet.map(|(until, _)| until.as_nanos()),
        seconds_left: copy.arrivals.seconds_for(missing).filter(|_| missing > 0),
        ..of_live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_time_left_is_that_of_the_last_hour() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.seconds_for(5), None);
        // 100 bytes a second, over two connections.
        for second in 0..50 {
            arrivals.note(seconds(second), second * 100);
        }
        assert_eq!(arrivals.seconds_for(1_000), Some(10));
        for second in 50..=100 {
            arrivals.note(seconds(second), (second - 49) * 100);
        }
        assert_eq!(arrivals.seconds_for(1_000), Some(10));
        // Then nothing for two hours.
        for second in 100..7_300 {
            arrivals.note(seconds(second), 5_100);
        }
        assert_eq!(arrivals.counts.len(), REMEMBERED);
        assert_eq!(arrivals.seconds_for(1_000), None);
    }

    #[test]
    fn each_reason_has_a_cause() {
        let arrivals = Arrivals::default();
        let mut live = LagFacts {
            live: None,
            waits: Waits::No,
            arrivals: &arrivals,
            current: None,
            missing_bytes: 9,
        };
        let of = |state, live: &LagFacts<'_>, missing_bytes| {
            let with = LagFacts {
                missing_bytes,
                ..*live
            };
            cause(state, &with, None)
        };
        assert_eq!(of(EdgeState::Offline, &live, 9), LagCause::NotConnected);
        assert_eq!(of(EdgeState::Paused, &live, 9), LagCause::Paused);
        assert_eq!(of(EdgeState::Refused, &live, 9), LagCause::Refused);
        assert_eq!(of(EdgeState::Catching, &live, 9), LagCause::Link);
        assert_eq!(of(EdgeState::Catching, &live, 0), LagCause::Planner);
        live.waits = Waits::Edge;
        assert_eq!(of(EdgeState::Catching, &live, 9), LagCause::Rate);
        for (quiet, expected) in [
            (QuietCause::QuietHours, LagCause::QuietHours),
            (QuietCause::DayCap, LagCause::DayCap),
            (QuietCause::MonthCap, LagCause::MonthCap),
        ] {
            let found = cause(EdgeState::Quiet, &live, Some(quiet));
            assert_eq!(found, expected);
        }
        live.current = Some(Timestamp::from_nanos(2_000_000_000));
        let now = Timestamp::from_nanos(9_500_000_000);
        let found = lag(EdgeState::Offline, &live, None, now);
        assert_eq!(found.seconds, Some(7));
        let found = lag(EdgeState::Current, &live, None, now);
        assert_eq!((found.seconds, found.cause), (Some(0), None));
        assert_eq!((found.live_ms, found.clock_ms), (None, None));
    }

    #[test]
    fn newest_events_lag_by_their_way_and_their_wait_whatever_the_clocks_are() {
        // Requested at 10 s, held for 1 s, 600 ms of way; the edge's clock is an hour ahead.
        let now = Now {
            monotonic: Duration::from_millis(11_600),
            wall: Timestamp::from_nanos(50_000_000_000),
        };
        let report = LiveReport {
            sent_ns: 49_700_000_000 + 3_600_000_000_000,
            held_ms: 1_000,
            waited_ms: Some(900),
        };
        let found = LiveLag::of(report, seconds(10), now);
        let arrivals = Arrivals::default();
        let facts = LagFacts {
            live: Some(found),
            waits: Waits::No,
            arrivals: &arrivals,
            current: None,
            missing_bytes: 9,
        };
        for state in [EdgeState::Current, EdgeState::Catching] {
            let found = lag(state, &facts, None, now.wall);
            assert_eq!(
                (found.live_ms, found.clock_ms),
                (Some(1_500), Some(3_600_000))
            );
        }
        let found = lag(EdgeState::Offline, &facts, None, now.wall);
        assert_eq!((found.live_ms, found.clock_ms), (None, None));
        // An edge that says nonsense lags by nothing.
        let report = LiveReport {
            held_ms: u64::MAX,
            waited_ms: None,
            ..report
        };
        assert_eq!(LiveLag::of(report, seconds(10), now).lag, Duration::ZERO);
    }
}
