//! Budget of a source: a rate, caps for a day and a month, hours of quiet. The budget belongs to
//! the source, which pays, and persists over restarts.
//!
//! Granted bytes are estimates. A program that counts the bytes of its sockets
//! (`cluster/socket_bytes`) replaces them with [`Budget::settle`] (`cluster/uplink`); a part of
//! each cap is then kept for what is not granted: handshakes, frames, requests, signs of life.
//!
//! Invariants: grants never exceed a cap in its day or month of the wall clock, and never exceed
//! one second's rate, or one range, at once. A clock that is corrected starts another day or month,
//! once. The persisted spending counts some bytes as sent in advance, and is written again when
//! more than these are sent: so no restart resets a cap, and each byte written for it accounts for
//! hundreds of bytes sent. Concurrency: plain data.

use crate::replication::source::spent::Spent;
use headwater_types::{Now, Timestamp};
use std::time::Duration;

const NANOS_A_SECOND: i64 = 1_000_000_000;
const SECONDS_A_DAY: i64 = 86_400;
const MINUTES_A_DAY: u32 = 1440;
/// Wait where only another day or month will help.
const LONG_WAIT: Duration = Duration::from_secs(900);

/// Fraction of a cap that the persisted spending counts ahead, at least so many bytes; and the
/// bytes without a cap.
const AHEAD_PART: u64 = 64;
const AHEAD_MIN: u64 = 64 << 10;
const AHEAD_WITHOUT_CAP: u64 = 4 << 20;

/// Part of a cap that is not granted where sockets are counted, and its greatest size in bytes.
const UNGRANTED_PART: u64 = 32;
const UNGRANTED_MAX: u64 = 64 << 10;
/// Least rest of a cap with which sending goes on, in bytes.
const USEFUL_MIN: u64 = 4 << 10;

/// A span of each day (UTC) in which no bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    /// Minutes after midnight.
    pub from: u32,
    /// Minutes after midnight, not included; before `from` = of the next day.
    pub to: u32,
}

/// Limits of sending; `None` = unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Bytes a second.
    pub bytes_per_second: Option<u64>,
    /// Bytes a day (UTC).
    pub bytes_per_day: Option<u64>,
    /// Bytes a month (UTC).
    pub bytes_per_month: Option<u64>,
    /// Hours in which no bytes are sent.
    pub quiet: Vec<QuietHours>,
}

/// Reason for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseCause {
    /// Hours of quiet.
    Quiet,
    /// The cap of a day is spent.
    DayCap,
    /// The cap of a month is spent.
    MonthCap,
}

/// A time in which no bytes are sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// End, by the wall clock.
    pub until: Timestamp,
    /// Reason for the pause.
    pub cause: PauseCause,
}

/// Grants bytes to send within limits.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: BudgetLimits,
    spent: Spent,
    /// The persisted spending.
    persisted: Spent,
    /// Time before which no bytes are sent, which enforces the rate.
    free_from: Duration,
    /// Granted bytes of this day that are counted as spent by their estimate.
    estimated: u64,
    /// Bytes of sockets are counted.
    is_measured: bool,
}

/// Days since 1970 of an instant.
fn day_of(now: Now) -> i64 {
    now.wall
        .as_nanos()
        .div_euclid(NANOS_A_SECOND * SECONDS_A_DAY)
}

/// Month of a day since 1970, computed in years that start in March: 400 such years have 146,097
/// days, and five consecutive months have 153.
fn month_of(day: i64) -> i64 {
    let from_march = day + 719_468;
    let era = from_march.div_euclid(146_097);
    let of_era = from_march.rem_euclid(146_097);
    let leap_days = of_era / 1460 - of_era / 36_524 + of_era / 146_096;
    let year = (of_era - leap_days) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    // Month 0 is March of the year, which is month 2 of the calendar's.
    (era * 400 + year - 1970) * 12 + month + 2
}

/// Minutes after midnight.
fn minute_of(now: Now) -> u32 {
    let of_day = now
        .wall
        .as_nanos()
        .rem_euclid(NANOS_A_SECOND * SECONDS_A_DAY);
    u32::try_from(of_day / (60 * NANOS_A_SECOND)).unwrap_or(0)
}

/// Time that bytes take at a rate.
fn takes(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl QuietHours {
    /// Minutes until the end of the quiet hours; `None` outside of them.
    fn minutes_left(&self, minute: u32) -> Option<u32> {
        let (from, to) = (self.from % MINUTES_A_DAY, self.to % MINUTES_A_DAY);
        let since = (minute + MINUTES_A_DAY - from) % MINUTES_A_DAY;
        let length = (to + MINUTES_A_DAY - from) % MINUTES_A_DAY;
        (since < length).then(|| length - since)
    }
}

impl Budget {
    /// Creates a budget from the persisted spending.
    #[must_use]
    pub fn new(limits: BudgetLimits, spent: Spent) -> Budget {
        Budget {
            limits,
            spent,
            persisted: spent,
            free_from: Duration::ZERO,
            estimated: 0,
            is_measured: false,
        }
    }

    /// The exact spending.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Spending that must be persisted before granted bytes are sent; `None` = the persisted
    /// spending suffices. The result counts more than was spent, so that writes are rare.
    #[must_use]
    pub fn to_keep(&self) -> Option<Spent> {
        if self.spent.is_within(&self.persisted) {
            return None;
        }
        let caps = [self.limits.bytes_per_day, self.limits.bytes_per_month];
        let ahead = |cap: u64| (cap / AHEAD_PART).max(AHEAD_MIN);
        let ahead = caps.iter().flatten().map(|cap| ahead(*cap)).min();
        let ahead = ahead.unwrap_or(AHEAD_WITHOUT_CAP);
        // More than a cap is never granted.
        let counted = |bytes: u64, cap: Option<u64>| {
            let most = cap.unwrap_or(u64::MAX).max(bytes);
            bytes.saturating_add(ahead).min(most)
        };
        let ahead = Spent {
            day_bytes: counted(self.spent.day_bytes, self.limits.bytes_per_day),
            month_bytes: counted(self.spent.month_bytes, self.limits.bytes_per_month),
            ..self.spent
        };
        assert!(self.spent.is_within(&ahead), "less persisted than sent");
        Some(ahead)
    }

    /// Records that the spending is persisted.
    pub fn set_persisted(&mut self, kept: Spent) {
        self.persisted = kept;
    }

    fn begin_periods(&mut self, now: Now) {
        let day = day_of(now);
        if day != self.spent.day {
            // Estimates stay with the day in which they were granted.
            self.estimated = 0;
        }
        self.spent.begin(day, month_of(day));
    }

    /// Keeps a part of each cap for bytes that are counted without being granted.
    pub fn set_measured(&mut self) {
        self.is_measured = true;
    }

    /// A cap without the part for what is not granted.
    fn grantable(&self, cap: u64) -> u64 {
        match self.is_measured {
            true => cap - (cap / UNGRANTED_PART).min(UNGRANTED_MAX),
            false => cap,
        }
    }

    /// Replaces the estimates of granted bytes that were sent by `bytes` of the sockets in both
    /// directions; `unsent` = estimates of granted bytes that still wait to be sent.
    pub fn settle(&mut self, now: Now, bytes: u64, unsent: u64) {
        self.begin_periods(now);
        let unsent = unsent.min(self.estimated);
        let estimated = std::mem::replace(&mut self.estimated, unsent) - unsent;
        let settled = |spent: u64| spent.saturating_sub(estimated).saturating_add(bytes);
        self.spent.day_bytes = settled(self.spent.day_bytes);
        self.spent.month_bytes = settled(self.spent.month_bytes);
        let Some(rate) = self.limits.bytes_per_second else {
            return;
        };
        self.free_from = match bytes.checked_sub(estimated) {
            Some(more) => self
                .free_from
                .max(now.monotonic)
                .saturating_add(takes(more, rate)),
            None => self
                .free_from
                .saturating_sub(takes(estimated - bytes, rate)),
        };
    }

    /// The pause in which nothing is to be sent or received: hours of quiet that have begun, or
    /// begin within `ahead`, and a day or month of which too little is left. `None` = no pause.
    pub fn pause(&mut self, now: Now, ahead: Duration) -> Option<Pause> {
        self.begin_periods(now);
        let soon = i64::try_from(ahead.as_nanos()).unwrap_or(i64::MAX);
        let soon = Now {
            wall: Timestamp::from_nanos(now.wall.as_nanos().saturating_add(soon)),
            ..now
        };
        // Hours that end within `ahead` still count.
        let quiet = [now, soon].map(|at| {
            let hours = self.limits.quiet.iter();
            let left = hours.filter_map(|q| q.minutes_left(minute_of(at))).max()?;
            let begun = at.wall.as_nanos().div_euclid(60 * NANOS_A_SECOND);
            Some(begun.saturating_add(i64::from(left)))
        });
        let quiet = quiet.into_iter().flatten().max();
        let cap = |cap: Option<u64>, spent: u64| {
            cap.is_some_and(|cap| {
                self.grantable(cap).saturating_sub(spent) < USEFUL_MIN.min(cap / 2)
            })
        };
        let day = day_of(now);
        let begins = |day: i64| day.saturating_mul(SECONDS_A_DAY * NANOS_A_SECOND);
        let (until, cause) = if cap(self.limits.bytes_per_month, self.spent.month_bytes) {
            let mut next = day + 1;
            while month_of(next) == month_of(day) {
                next += 1;
            }
            (begins(next), PauseCause::MonthCap)
        } else if cap(self.limits.bytes_per_day, self.spent.day_bytes) {
            (begins(day + 1), PauseCause::DayCap)
        } else {
            let until = quiet?.saturating_mul(60 * NANOS_A_SECOND);
            (until, PauseCause::Quiet)
        };
        let until = Timestamp::from_nanos(until);
        Some(Pause { until, cause })
    }

    /// Bytes that the caps leave of this day and month.
    pub(crate) fn bytes_left(&mut self, now: Now) -> u64 {
        self.begin_periods(now);
        let left = |most: Option<u64>, spent| {
            most.map_or(u64::MAX, |n| self.grantable(n).saturating_sub(spent))
        };
        let day = left(self.limits.bytes_per_day, self.spent.day_bytes);
        day.min(left(self.limits.bytes_per_month, self.spent.month_bytes))
    }

    /// Grants `bytes`, which are counted as sent.
    ///
    /// # Errors
    /// The time to wait before the next request.
    pub fn take(&mut self, now: Now, bytes: u64) -> Result<(), Duration> {
        self.begin_periods(now);
        let minute = minute_of(now);
        let quiet = self
            .limits
            .quiet
            .iter()
            .filter_map(|q| q.minutes_left(minute));
        if let Some(minutes) = quiet.max() {
            return Err(Duration::from_secs(60 * u64::from(minutes)));
        }
        let day = self.spent.day_bytes.saturating_add(bytes);
        let month = self.spent.month_bytes.saturating_add(bytes);
        let is_over = |sum: u64, cap: Option<u64>| cap.is_some_and(|cap| sum > self.grantable(cap));
        if is_over(day, self.limits.bytes_per_day) || is_over(month, self.limits.bytes_per_month) {
            return Err(LONG_WAIT);
        }
        if let Some(rate) = self.limits.bytes_per_second {
            if let Some(wait) = self.free_from.checked_sub(now.monotonic)
                && !wait.is_zero()
            {
                return Err(wait);
            }
            let begins = self.free_from.max(now.monotonic);
            self.free_from = begins.saturating_add(takes(bytes, rate));
        }
        self.estimated = self.estimated.saturating_add(bytes);
        (self.spent.day_bytes, self.spent.month_bytes) = (day, month);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_types::Timestamp;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Now {
        Now {
            monotonic: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            wall: Timestamp::from_nanos(seconds * NANOS_A_SECOND),
        }
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        // 1970-01-01, 1970-02-01, 2000-02-29, 2000-03-01, 2023-12-31, 2024-01-01, 1969-12-31.
        let days = [0, 31, 11_016, 11_017, 19_722, 19_723, -1];
        let months = [0, 1, 361, 362, 647, 648, -1];
        assert_eq!(days.map(month_of), months);
    }

    #[test]
    fn a_cap_holds_for_its_day_and_month_and_over_restarts() {
        let limits = BudgetLimits {
            bytes_per_day: Some(100),
            bytes_per_month: Some(250),
            ..BudgetLimits::default()
        };
        let mut budget = Budget::new(limits.clone(), Spent::default());
        let day = |n| at(n * SECONDS_A_DAY + 5);
        budget.take(day(0), 60).unwrap();
        assert_eq!(budget.take(day(0), 41), Err(LONG_WAIT));
        budget.take(day(0), 40).unwrap();
        let mut budget = Budget::new(limits, budget.spent());
        assert!(budget.take(day(0), 1).is_err());
        budget.take(day(1), 100).unwrap();
        assert!(budget.take(day(2), 51).is_err());
        budget.take(day(2), 50).unwrap();
        assert!(budget.take(day(3), 1).is_err());
        budget.take(day(31), 100).unwrap();
    }

    #[test]
    fn quiet_hours_may_go_over_midnight() {
        let limits = BudgetLimits {
            quiet: vec![QuietHours {
                from: 22 * 60,
                to: 6 * 60,
            }],
            ..BudgetLimits::default()
        };
        let mut budget = Budget::new(limits, Spent::default());
        let hour = |h: i64| at(h * 3600);
        assert_eq!(budget.take(hour(23), 1), Err(Duration::from_secs(7 * 3600)));
        assert_eq!(budget.take(hour(5), 1), Err(Duration::from_secs(3600)));
        assert!(budget.take(hour(6), 1).is_ok() && budget.take(hour(21), 1).is_ok());
    }

    #[test]
    fn bytes_of_sockets_replace_what_was_granted() {
        let limits = BudgetLimits {
            bytes_per_second: Some(1_000),
            bytes_per_day: Some(64_000),
            bytes_per_month: Some(100_000),
            ..BudgetLimits::default()
        };
        let mut budget = Budget::new(limits, Spent::default());
        budget.set_measured();
        budget.take(at(0), 10_000).unwrap();
        assert_eq!(budget.spent().day_bytes, 10_000);
        // A third of it, packed, and some bytes that nobody granted.
        budget.settle(at(1), 3_000, 0);
        budget.settle(at(1), 500, 0);
        let spent = budget.spent();
        assert_eq!((spent.day_bytes, spent.month_bytes), (3_500, 3_500));
        assert_eq!(budget.take(at(3), 1), Err(Duration::from_millis(500)));
        // A thirty-second of the cap is kept for what is not granted.
        assert_eq!(budget.bytes_left(at(4)), 62_000 - 3_500);
        assert!(budget.take(at(4), 58_501).is_err());
        assert_eq!(budget.pause(at(4), Duration::ZERO), None);
        budget.take(at(4), 58_000).unwrap();
        // First the larger part of it is sent.
        budget.settle(at(4), 41_000, 17_000);
        assert_eq!(budget.spent().day_bytes, 61_500);
        budget.settle(at(4), 17_000, 0);
        let pause = budget.pause(at(5), Duration::ZERO).unwrap();
        assert_eq!(pause.cause, PauseCause::DayCap);
        assert_eq!(pause.until, at(SECONDS_A_DAY).wall);
        assert_eq!(budget.pause(at(SECONDS_A_DAY), Duration::ZERO), None);
        // A grant of the day before is not taken off this day.
        budget.take(at(SECONDS_A_DAY - 1), 100).unwrap();
        budget.settle(at(SECONDS_A_DAY), 40_000, 100);
        assert_eq!(budget.spent().day_bytes, 40_000);
        let pause = budget.pause(at(SECONDS_A_DAY), Duration::ZERO).unwrap();
        assert_eq!(pause.cause, PauseCause::MonthCap);
        assert_eq!(pause.until, at(31 * SECONDS_A_DAY).wall);
        let kept = budget.to_keep().unwrap();
        assert!(budget.spent().is_within(&kept));
    }

    #[test]
    fn a_pause_is_known_shortly_before_quiet_hours() {
        let quiet = QuietHours {
            from: 22 * 60,
            to: 6 * 60,
        };
        let limits = BudgetLimits {
            quiet: vec![quiet],
            ..BudgetLimits::default()
        };
        let mut budget = Budget::new(limits, Spent::default());
        let ahead = Duration::from_secs(5);
        assert_eq!(budget.pause(at(22 * 3600 - 6), ahead), None);
        for seconds in [22 * 3600 - 4, 22 * 3600 + 90, 29 * 3600, 30 * 3600 - 1] {
            let pause = budget.pause(at(seconds), ahead).unwrap();
            assert_eq!(pause.cause, PauseCause::Quiet);
            assert_eq!(pause.until, at(30 * 3600).wall);
        }
        assert_eq!(budget.pause(at(30 * 3600), ahead), None);
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_gets_more_than_its_rate_and_one_piece(
            asks in prop::collection::vec((0u64..3000, 1u64..5000), 1..80),
        ) {
            let rate = 1000;
            let limits = BudgetLimits { bytes_per_second: Some(rate), ..BudgetLimits::default() };
            let mut budget = Budget::new(limits, Spent::default());
            let mut millis = 0;
            let mut granted: Vec<(u64, u64)> = Vec::new();
            for (pause, bytes) in asks {
                millis += pause;
                let now = Now { monotonic: Duration::from_millis(millis), wall: Timestamp::from_nanos(0) };
                if budget.take(now, bytes).is_ok() {
                    granted.push((millis, bytes));
                }
            }
            for first in 0..granted.len() {
                for last in first..granted.len() {
                    // Without the last range, which starts a span of its own.
                    let sum: u64 = granted[first..last].iter().map(|(_, b)| b).sum();
                    let passed = granted[last].0 - granted[first].0;
                    prop_assert!(sum * 1000 <= passed * rate);
                }
            }
        }
    }
}
