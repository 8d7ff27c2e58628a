//! Signs of life and reports of an edge about itself, as many as its budget allows.
//!
//! A ping goes out when the cloud was not heard for [`PING_IDLE`], or for [`PING_ACTIVE`] after
//! something was sent. A report goes out when it says something new. Both have a longer interval
//! where [`PING_IDLE`] would be more than half a hundredth of the day's cap.
//!
//! Invariants: reports cost at most one every [`PING_IDLE`], one for a hundred times their size of
//! other traffic, and [`BURST`] at once. A connection whose cloud does not answer a ping within
//! [`SILENT_MAX`] is dead. Concurrency: plain data; times are of the monotonic clock.

use crate::frame::About;
use crate::session::SILENT_MAX;
use headwater_protocol::replication::BudgetLimits;
use std::time::Duration;

/// Interval of signs of life of an idle connection.
const PING_IDLE: Duration = Duration::from_secs(600);
/// The same after something was sent.
const PING_ACTIVE: Duration = Duration::from_secs(60);
/// The same with a cloud of an earlier version, which ends connections that are silent for longer.
const PING_EARLIER: Duration = Duration::from_secs(30);
/// Longest interval.
const PING_MAX: Duration = Duration::from_secs(6 * 3600);
/// Interval of reports that say nothing new.
const ABOUT_IDLE: Duration = Duration::from_secs(3600);
/// Shortest interval of reports.
const ABOUT_MIN: Duration = Duration::from_secs(10);
/// Bytes of a ping and its answer, and of a report, at the socket.
const PING_BYTES: u64 = 64;
const ABOUT_BYTES: u64 = 512;
/// Reports at once.
const BURST: u64 = 8;
/// Traffic that is worth a report.
const TRAFFIC_PER_ABOUT: u64 = 100 * ABOUT_BYTES;
/// Growth of counters that is worth a report, in bytes.
const GROWTH_MIN: u64 = 64 << 10;
const SECONDS_A_DAY: u64 = 86_400;

/// Interval at which messages of a size cost at most a two-hundredth of the day's cap.
fn interval(limits: &BudgetLimits, bytes: u64) -> Duration {
    let days = [limits.bytes_per_day, limits.bytes_per_month.map(|m| m / 30)];
    let cap = days.into_iter().flatten().min().unwrap_or(u64::MAX);
    let seconds = (SECONDS_A_DAY * bytes * 200).div_ceil(cap.max(1));
    Duration::from_secs(seconds).clamp(PING_IDLE, PING_MAX)
}

/// Signs of life of one connection.
#[derive(Debug)]
pub(super) struct Heartbeat {
    idle: Duration,
    about_every: Duration,
    is_earlier: bool,
    heard: Duration,
    /// Time of a ping that is not answered.
    unanswered: Option<Duration>,
    /// Something was sent since the cloud was heard.
    has_sent: bool,
    told: Option<(About, Duration)>,
    /// Reports that may be sent, and when the last was added.
    allowed: u64,
    added: Duration,
    /// Socket bytes when a report was last added for traffic.
    traffic: u64,
}

impl Heartbeat {
    pub(super) fn new(limits: &BudgetLimits, now: Duration) -> Heartbeat {
        let about_every = interval(limits, ABOUT_BYTES);
        let is_capped = about_every > PING_IDLE;
        Heartbeat {
            idle: interval(limits, PING_BYTES),
            about_every,
            is_earlier: true,
            heard: now,
            unanswered: None,
            has_sent: false,
            told: None,
            allowed: if is_capped { 1 } else { BURST },
            added: now,
            traffic: 0,
        }
    }

    /// The cloud waits for as long as it is told.
    pub(super) fn set_patient(&mut self) {
        self.is_earlier = false;
    }

    /// Interval of signs of life in seconds, as told to the cloud.
    pub(super) fn idle_seconds(&self) -> u64 {
        self.idle.as_secs()
    }

    pub(super) fn heard(&mut self, now: Duration) {
        (self.heard, self.unanswered, self.has_sent) = (now, None, false);
    }

    pub(super) fn sent(&mut self) {
        self.has_sent = true;
    }

    pub(super) fn is_dead(&self, now: Duration) -> bool {
        self.unanswered
            .is_some_and(|since| now.saturating_sub(since) > SILENT_MAX)
    }

    /// True if a ping is to be sent now.
    pub(super) fn is_ping_due(&mut self, now: Duration) -> bool {
        let every = match (self.is_earlier, self.has_sent) {
            (true, _) => PING_EARLIER,
            (false, true) => PING_ACTIVE,
            (false, false) => self.idle,
        };
        let is_due = self.unanswered.is_none() && now.saturating_sub(self.heard) >= every;
        if is_due {
            self.unanswered = Some(now);
        }
        is_due
    }

    /// True if this report is to be sent now, with so many bytes at the socket since the start.
    pub(super) fn is_about_due(&mut self, about: &About, traffic: u64, now: Duration) -> bool {
        let most = BURST.max(self.allowed);
        if now.saturating_sub(self.added) >= self.about_every {
            (self.added, self.allowed) = (now, (self.allowed + 1).min(most));
        }
        let worth = traffic.saturating_sub(self.traffic) / TRAFFIC_PER_ABOUT;
        if worth > 0 {
            self.traffic = traffic;
            self.allowed = self.allowed.saturating_add(worth).min(most);
        }
        let is_due = match &self.told {
            None => true,
            Some((told, at)) => {
                let since = now.saturating_sub(*at);
                let says_news = is_news(told, about) && self.allowed > 0;
                since >= ABOUT_IDLE.max(self.about_every) || (since >= ABOUT_MIN && says_news)
            }
        };
        if is_due {
            self.allowed = self.allowed.saturating_sub(1);
            self.told = Some((about.clone(), now));
        }
        is_due
    }
}

/// True if a report differs by more than its clock and slow counters.
fn is_news(told: &About, about: &About) -> bool {
    let grew = |told: u64, now: u64| now.saturating_sub(told) >= GROWTH_MIN || now < told;
    let same = About {
        now_ns: told.now_ns,
        sent_today: told.sent_today,
        sent_this_month: told.sent_this_month,
        written_bytes: told.written_bytes,
        ..about.clone()
    };
    same != *told
        || grew(told.sent_this_month, about.sent_this_month)
        || grew(told.written_bytes, about.written_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn about(disk_bytes: u64) -> About {
        About {
            disk_bytes,
            ..About::default()
        }
    }

    /// Pings and reports of a day that are sent, with a look each second.
    fn day(limits: &BudgetLimits, changes: bool) -> (u64, u64) {
        let mut beat = Heartbeat::new(limits, Duration::ZERO);
        beat.set_patient();
        let (mut pings, mut abouts) = (0, 0);
        for second in 0..SECONDS_A_DAY {
            let now = seconds(second);
            if beat.is_about_due(&about(u64::from(changes) * second), 0, now) {
                (abouts, beat.has_sent) = (abouts + 1, true);
            }
            if beat.is_ping_due(now) {
                pings += 1;
                beat.heard(now);
            }
            assert!(!beat.is_dead(now));
        }
        (pings, abouts)
    }

    #[test]
    fn an_idle_day_is_a_small_part_of_100_kilobytes() {
        let (pings, abouts) = day(&BudgetLimits::default(), false);
        assert!(
            (100..=170).contains(&pings) && abouts == 24,
            "{pings} {abouts}"
        );
        let bytes = pings * PING_BYTES + abouts * ABOUT_BYTES;
        assert!(bytes < 30_000, "{bytes}");
        // Reports that always say something new are bounded, too.
        let (pings, abouts) = day(&BudgetLimits::default(), true);
        let bytes = pings * PING_BYTES + abouts * ABOUT_BYTES;
        assert!(bytes < 100_000, "{bytes}");
    }

    #[test]
    fn a_cap_gives_a_hundredth_to_signs_of_life() {
        for cap in [200_000, 1_000_000, 20_000_000] {
            for limits in [
                BudgetLimits {
                    bytes_per_day: Some(cap),
                    ..BudgetLimits::default()
                },
                BudgetLimits {
                    bytes_per_month: Some(cap * 30),
                    ..BudgetLimits::default()
                },
            ] {
                let (pings, abouts) = day(&limits, true);
                // The first report of a connection is not among them.
                let bytes = pings * PING_BYTES + (abouts - 1) * ABOUT_BYTES;
                assert!(bytes <= cap / 100 + 2 * ABOUT_BYTES, "{cap}: {bytes}");
            }
        }
    }

    #[test]
    fn a_cloud_that_does_not_answer_is_dead() {
        let mut beat = Heartbeat::new(&BudgetLimits::default(), Duration::ZERO);
        beat.set_patient();
        beat.sent();
        assert!(!beat.is_ping_due(seconds(59)) && beat.is_ping_due(seconds(60)));
        assert!(!beat.is_ping_due(seconds(61)), "one is under way");
        assert!(!beat.is_dead(seconds(150)) && beat.is_dead(seconds(151)));
        beat.heard(seconds(151));
        assert!(!beat.is_dead(seconds(9_000)));
        assert!(!beat.is_ping_due(seconds(750)) && beat.is_ping_due(seconds(751)));
    }

    #[test]
    fn traffic_is_worth_reports() {
        let mut beat = Heartbeat::new(&BudgetLimits::default(), Duration::ZERO);
        for at in 0..BURST {
            assert!(beat.is_about_due(&about(at), 0, seconds(at * 10)));
        }
        assert!(!beat.is_about_due(&about(99), 0, seconds(90)));
        assert!(!beat.is_about_due(&about(99), TRAFFIC_PER_ABOUT - 1, seconds(90)));
        assert!(beat.is_about_due(&about(99), TRAFFIC_PER_ABOUT, seconds(90)));
        assert!(!beat.is_about_due(&about(99), 90 * TRAFFIC_PER_ABOUT, seconds(100)));
        assert!(beat.is_about_due(&about(100), 90 * TRAFFIC_PER_ABOUT, seconds(100)));
    }
}
