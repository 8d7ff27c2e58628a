//! Stats of a planner, and the shares of its last requests.

use crate::replication::copy::request_order::shares::{ForEach, TrafficShare};
use crate::replication::message::SegmentRange;
use headwater_engine::Tally;
use headwater_types::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Requested ranges that are remembered with their share.
const RECENT_MAX: usize = 256;

/// Stats of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareStats {
    /// The share.
    pub share: TrafficShare,
    /// Bytes that arrived in it since the planner was made, some of them more than once where
    /// answers were cut short.
    pub arrived: u64,
    /// Subscribed bytes that are present.
    pub present: u64,
    /// Subscribed bytes that are known to be missing.
    pub missing: u64,
}

/// Stats of a planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerStats {
    /// Stats by share. Subscribed rows are counted in the backlog, even if a score prioritises
    /// them.
    pub shares: Vec<ShareStats>,
    /// Requests since the planner was made.
    pub requests: u64,
    /// Number of requests that brought no data, were refused, or timed out.
    pub failures: u64,
    /// Number of consecutive failures.
    pub failures_in_a_row: u32,
    /// When a requested range last arrived, by the wall clock.
    pub last_success: Option<Timestamp>,
    /// Time, by the monotonic clock, before which no request is sent: after a failed request, or at
    /// the source's request. `None` = no wait.
    pub waiting_until: Option<Duration>,
}

/// A requested range, and its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestedRange {
    /// The range.
    pub range: SegmentRange,
    /// The share that was charged.
    pub share: TrafficShare,
    /// Score by which it was prioritised in its share, if scores are used.
    pub score: Option<f64>,
    /// A reader requested it.
    pub(crate) is_for_reader: bool,
    /// Bytes of it that have arrived.
    pub(crate) arrived: u32,
}

impl RequestedRange {
    /// Bytes of it that have not arrived.
    pub(crate) fn left(&self) -> u64 {
        u64::from(self.range.bytes.saturating_sub(self.arrived))
    }
}

/// The counters of a planner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    arrived: ForEach<u64>,
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) last_success: Option<Timestamp>,
    recent: VecDeque<RequestedRange>,
}

impl Counted {
    pub(crate) fn arrived(&mut self, share: TrafficShare, bytes: u64) {
        self.arrived
            .change(share, |sum| *sum = sum.saturating_add(bytes));
    }

    /// Bytes that arrived in all shares.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        let shares = TrafficShare::ALL.into_iter();
        shares.fold(0, |sum, share| sum.saturating_add(self.arrived.get(share)))
    }

    pub(crate) fn requested(&mut self, pieces: &[RequestedRange]) {
        self.recent.extend(pieces);
        let behind = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..behind);
    }

    /// The newest requested ranges, newest last.
    pub(crate) fn recent(&self) -> impl DoubleEndedIterator<Item = &RequestedRange> {
        self.recent.iter()
    }

    pub(crate) fn shares(&self, tallies: &[Tally]) -> Vec<ShareStats> {
        let of = |share: TrafficShare| {
            let tallies = tallies
                .iter()
                .filter(|t| TrafficShare::of(t.reason) == share);
            let (wanted, missing) = tallies.fold((0, 0), |(wanted, missing), t| {
                (wanted + t.subscribed_bytes, missing + t.missing)
            });
            ShareStats {
                share,
                arrived: self.arrived.get(share),
                present: u64::saturating_sub(wanted, missing),
                missing,
            }
        };
        TrafficShare::ALL.into_iter().map(of).collect()
    }
}
