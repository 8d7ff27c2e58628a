//! Stats of a planner, and the shares of its last requests.

use crate::replication::message::SegmentRange;
use crate::replication::shares::{ForEach, Share};
use headwater_engine::Tally;
use headwater_types::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Requested pieces that are remembered with their share.
const RECENT_MAX: usize = 256;

/// Stats of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareStats {
    /// The share.
    pub share: Share,
    /// Bytes that arrived in it since the planner was made, some of them more than once where
    /// answers were cut short.
    pub arrived: u64,
    /// Subscribed bytes that are present.
    pub present: u64,
    /// Subscribed bytes that are missing, as far as is known.
    pub missing: u64,
}

/// Stats of a planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerStats {
    /// Stats by share. Subscribed rows are counted in the backlog, whatever a score brings forward.
    pub shares: Vec<ShareStats>,
    /// Requests since the planner was made.
    pub requests: u64,
    /// Requests that brought nothing, were refused, or not answered in time.
    pub failures: u64,
    /// Such in a row, until now.
    pub failures_in_a_row: u32,
    /// When a requested range last arrived, by the wall clock.
    pub last_success: Option<Timestamp>,
    /// No request is sent before this, by the monotonic clock: after a failed request, or as the
    /// source said. `None` = no wait.
    pub waiting_until: Option<Duration>,
}

/// A requested piece, and its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asking {
    /// The piece.
    pub piece: SegmentRange,
    /// The share whose turn it was.
    pub share: Share,
    /// By what it went before others of its share, where that is looked at.
    pub score: Option<f64>,
    /// A reader requested it.
    pub(crate) is_asked_for: bool,
    /// The piece has arrived.
    pub(crate) has_come: bool,
}

/// The counters of a planner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    arrived: ForEach<u64>,
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) last_success: Option<Timestamp>,
    recent: VecDeque<Asking>,
}

impl Counted {
    pub(crate) fn arrived(&mut self, share: Share, bytes: u64) {
        self.arrived
            .change(share, |sum| *sum = sum.saturating_add(bytes));
    }

    pub(crate) fn asked(&mut self, pieces: &[Asking]) {
        self.recent.extend(pieces);
        let behind = self.recent.len().saturating_sub(RECENT_MAX);
        self.recent.drain(..behind);
    }

    /// The newest requested pieces, newest last.
    pub(crate) fn recent(&self) -> impl DoubleEndedIterator<Item = &Asking> {
        self.recent.iter()
    }

    pub(crate) fn shares(&self, tallies: &[Tally]) -> Vec<ShareStats> {
        let of = |share: Share| {
            let tallies = tallies.iter().filter(|t| Share::of(t.reason) == share);
            let (wanted, missing) = tallies.fold((0, 0), |(wanted, missing), t| {
                (wanted + t.wanted, missing + t.missing)
            });
            ShareStats {
                share,
                arrived: self.arrived.get(share),
                present: u64::saturating_sub(wanted, missing),
                missing,
            }
        };
        Share::ALL.into_iter().map(of).collect()
    }
}
