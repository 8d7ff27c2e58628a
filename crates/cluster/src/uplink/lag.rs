//! Lag of a cloud after an edge, in time: records have no wall time, so the time at which a state
//! was first observed is noted.
//!
//! Invariants: the reported lag is at most the true lag, and lower by at most a sixteenth of it and
//! two check intervals; it is zero while the cloud has all data. Memory is bounded. Concurrency:
//! plain data.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of states whose times are stored; beyond it, intermediate states are dropped.
const NOTED_MAX: usize = 64;
/// First distance of the noted states.
const APART_FIRST: Duration = Duration::from_secs(2);

/// Times at which states were first observed.
#[derive(Debug, Default)]
pub(super) struct Lag {
    /// Number, and moment of the monotonic clock; both ascending.
    noted: VecDeque<(u64, Duration)>,
    /// Minimum distance between times, except for the newest.
    apart: Duration,
}

impl Lag {
    /// The database is in this state.
    pub(super) fn note(&mut self, number: u64, now: Duration) {
        if self
            .noted
            .back()
            .is_some_and(|(newest, _)| *newest >= number)
        {
            return;
        }
        if self.noted.len() >= NOTED_MAX {
            self.thin();
        }
        let mut newest = self.noted.iter().rev().map(|(_, since)| *since);
        if let (Some(last), Some(before)) = (newest.next(), newest.next())
            && last.saturating_sub(before) < self.apart
        {
            self.noted.pop_back();
        }
        self.noted.push_back((number, now));
        assert!(self.noted.len() <= NOTED_MAX, "too many states noted");
    }

    /// Drops every second entry; the oldest is retained, since it shows how long no state was
    /// confirmed.
    fn thin(&mut self) {
        let mut is_kept = false;
        self.noted.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
        self.apart = (self.apart * 2).max(APART_FIRST);
    }

    /// Time for which the database has been in a state newer than `confirmed`, the latest that the
    /// cloud has; `None` = unknown.
    pub(super) fn behind(&mut self, confirmed: Option<u64>, now: Duration) -> Option<Duration> {
        let confirmed = confirmed?;
        // Confirmed states are not needed any more.
        while self
            .noted
            .front()
            .is_some_and(|(number, _)| *number <= confirmed)
        {
            self.noted.pop_front();
        }
        if self.noted.is_empty() {
            self.apart = Duration::ZERO;
        }
        let since = self.noted.front().map(|(_, since)| *since);
        Some(since.map_or(Duration::ZERO, |since| now.saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_lag_is_that_of_the_first_state_that_is_not_confirmed() {
        let mut lag = Lag::default();
        assert_eq!(lag.behind(None, seconds(5)), None);
        assert_eq!(lag.behind(Some(0), seconds(5)), Some(Duration::ZERO));
        for number in 1..=4 {
            lag.note(number, seconds(10 * number));
            lag.note(number, seconds(10 * number + 5));
        }
        assert_eq!(lag.behind(Some(0), seconds(50)), Some(seconds(40)));
        assert_eq!(lag.behind(Some(2), seconds(50)), Some(seconds(20)));
        assert_eq!(lag.behind(Some(4), seconds(50)), Some(Duration::ZERO));
        lag.note(9, seconds(60));
        assert_eq!(lag.behind(Some(4), seconds(61)), Some(seconds(1)));
    }

    #[test]
    fn of_very_many_states_the_oldest_and_the_newest_are_known() {
        let mut lag = Lag::default();
        for number in 1..=10_000 {
            lag.note(number, seconds(number));
            assert!(lag.noted.len() <= NOTED_MAX);
        }
        assert_eq!(lag.noted.back(), Some(&(10_000, seconds(10_000))));
        assert_eq!(lag.behind(Some(0), seconds(10_000)), Some(seconds(9_999)));
        // In between the reported lag is too low, by at most the distance of the dropped entries.
        let behind = lag.behind(Some(5_000), seconds(10_000));
        assert!(
            behind.is_some_and(|b| b <= seconds(5_000) && b >= seconds(4_400)),
            "{behind:?}"
        );
    }
}
