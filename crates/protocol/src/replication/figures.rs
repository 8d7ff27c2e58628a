//! What a planner has done, in numbers, and where what it asked for last came from.

use crate::replication::message::Piece;
use crate::replication::shares::{ForEach, Share};
use headwater_engine::Tally;
use headwater_types::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Pieces that are remembered with the share they came out of.
const RECENT_MAX: usize = 256;

/// Figures of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareFigures {
    /// The share.
    pub share: Share,
    /// Bytes that arrived in it since the planner was made, some of them more than once where
    /// answers were cut short.
    pub arrived: u64,
    /// Bytes that it wants, and are here.
    pub present: u64,
    /// Bytes that it wants, and are not here, as far as is known.
    pub missing: u64,
}

/// Figures of a planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerFigures {
    /// By share. What is wanted of rows is counted in the backlog, whatever a score brings forward.
    pub shares: Vec<ShareFigures>,
    /// Requests since the planner was made.
    pub requests: u64,
    /// Those that brought nothing, were refused, or not answered in time.
    pub failures: u64,
    /// Such in a row, until now.
    pub failures_in_a_row: u32,
    /// When something that was asked for came last, by the wall clock.
    pub last_success: Option<Timestamp>,
    /// Nothing is asked before this, by the monotonic clock: since a request failed, or the source
    /// said so. `None` = nothing keeps it from asking.
    pub waiting_until: Option<Duration>,
}

/// A piece that was asked for, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asking {
    /// The piece.
    pub piece: Piece,
    /// The share whose turn it was.
    pub share: Share,
    /// By what it went before others of its share, where that is looked at.
    pub score: Option<f64>,
    /// A reader asked for it.
    pub(crate) is_asked_for: bool,
    /// It has come.
    pub(crate) has_come: bool,
}

/// What is counted.
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

    /// The newest pieces that were asked for, the oldest of them first.
    pub(crate) fn recent(&self) -> impl DoubleEndedIterator<Item = &Asking> {
        self.recent.iter()
    }

    pub(crate) fn shares(&self, tallies: &[Tally]) -> Vec<ShareFigures> {
        let of = |share: Share| {
            let tallies = tallies.iter().filter(|t| Share::of(t.reason) == share);
            let (wanted, missing) = tallies.fold((0, 0), |(wanted, missing), t| {
                (wanted + t.wanted, missing + t.missing)
            });
            ShareFigures {
                share,
                arrived: self.arrived.get(share),
                present: u64::saturating_sub(wanted, missing),
                missing,
            }
        };
        Share::ALL.into_iter().map(of).collect()
    }
}
