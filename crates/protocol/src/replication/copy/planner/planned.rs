//! Ranges that are planned for the next requests, and those that have arrived and are not
//! committed: the order of all missing ranges is found once for several requests, of which each has
//! what may be on its way, and several are committed at once.
//!
//! Invariants: planned ranges are charged to their shares, and refunded when the plan is dropped.
//! Ranges that are not committed are not requested again. Concurrency: plain data.

use super::Planner;
use crate::replication::copy::request_order::fill::{Filling, Limits, Plan};
use crate::replication::copy::request_order::score::score;
use crate::replication::copy::request_order::shares::{TrafficShare, Turns};
use crate::replication::copy::request_order::stats::RequestedRange;
use crate::replication::copy::window::{InFlight, RequestKind};
use crate::replication::message::SegmentRange;
use headwater_engine::{Reason, Result};
use headwater_types::Now;
use std::collections::VecDeque;
use std::time::Duration;

/// Age from which on a plan is made again, since the order may have changed.
const VALID: Duration = Duration::from_secs(2);
/// Smallest range that is cut off another, in bytes; of a smaller request, as much as it has.
const PIECE_MIN: u64 = 4 << 10;
const REQUEST_MIN: u64 = 512;

/// Time after which received ranges are committed.
const COMMIT_WITHIN: Duration = Duration::from_secs(1);

/// The plan.
#[derive(Debug, Default)]
pub(super) struct Planned {
    ranges: VecDeque<RequestedRange>,
    since: Duration,
}

impl Planned {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if it is too old.
    pub(super) fn is_old(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= VALID
    }

    pub(super) fn set(&mut self, now: Duration, ranges: Vec<RequestedRange>) {
        self.ranges.extend(ranges);
        self.since = now;
    }

    /// True if a part of it is for a reader.
    pub(super) fn is_for_reader(&self) -> bool {
        self.ranges.iter().any(|range| range.is_for_reader)
    }

    /// Takes ranges of about `bytes`, in pieces of at most `piece_max`.
    pub(super) fn take(&mut self, bytes: u64, piece_max: u64) -> Vec<RequestedRange> {
        let mut out = Vec::new();
        let least = PIECE_MIN.min(bytes.max(REQUEST_MIN));
        let mut left = bytes.max(1);
        while left > 0
            && let Some(first) = self.ranges.front_mut()
        {
            let length = u64::from(first.range.bytes);
            let piece = left.min(piece_max).max(least);
            // The rest of a range is not worth a piece of its own.
            let piece = if piece + least > length {
                length
            } else {
                piece
            };
            let mut part = *first;
            part.range.bytes = u32::try_from(piece).unwrap_or(first.range.bytes);
            if piece < length {
                first.range.offset += piece;
                first.range.bytes -= part.range.bytes;
            } else {
                self.ranges.pop_front();
            }
            out.push(part);
            left = left.saturating_sub(piece);
        }
        out
    }

    /// Drops it: its ranges were not requested.
    pub(super) fn clear(&mut self, turns: &mut Turns) {
        for planned in self.ranges.drain(..) {
            turns.refund(planned.share, u64::from(planned.range.bytes));
        }
    }
}

impl Planner {
    /// Missing ranges to request.
    pub(super) fn filling(&self) -> Result<Filling> {
        let by = self.score;
        let in_flight = self.in_flight.iter().flat_map(InFlight::ranges);
        let in_flight = in_flight.map(|asking| asking.range);
        let coming: Vec<SegmentRange> = in_flight.chain(self.uncommitted.iter().copied()).collect();
        Filling::of(
            &self.copy,
            &|facts| score(by, facts),
            &self.source_missing.open(),
            &coming,
            Limits {
                most: self.limits.request_bytes.max(1),
                needs_state: self.is_outdated && !self.state_comes(),
                policy: self.policy,
            },
        )
    }

    fn state_comes(&self) -> bool {
        let asks_for_state = |o: &InFlight| matches!(o.kind, RequestKind::State);
        self.in_flight.iter().any(asks_for_state)
    }

    /// Bytes of answers that have not arrived.
    pub(super) fn on_their_way(&self) -> u64 {
        let all = self.in_flight.iter();
        all.map(|asked| asked.left(self.state_bytes)).sum()
    }

    /// Plans the next request.
    pub(super) fn plan(&mut self, now: Now) -> Result<Plan> {
        // No range can be fetched of a state that is not pinned any more.
        let plan = match (self.needs_state, self.state_comes()) {
            (true, true) => Plan::Idle,
            (true, false) => Plan::State,
            (false, _) => self.plan_ranges(now)?,
        };
        if matches!(plan, Plan::State) {
            self.turns.charge(TrafficShare::States, self.state_bytes);
        }
        Ok(plan)
    }

    fn plan_ranges(&mut self, now: Now) -> Result<Plan> {
        let needs_state = self.is_outdated && !self.state_comes();
        let reader_waits = || !self.copy.missing_for(Reason::Requested, 1).is_empty();
        let is_valid = !self.planned.is_empty()
            && !self.planned.is_old(now.monotonic)
            && !needs_state
            && (self.planned.is_for_reader() || !reader_waits());
        if !is_valid {
            self.drop_plan();
            let mut plan = self.filling()?.fill(&mut self.turns);
            if matches!(plan, Plan::Idle) && !self.uncommitted.is_empty() {
                // What has arrived may say what else is needed.
                self.commit_received()?;
                plan = self.filling()?.fill(&mut self.turns);
            }
            match plan {
                Plan::Ranges(ranges) => self.planned.set(now.monotonic, ranges),
                other => return Ok(other),
            }
        }
        let room = self.window.room(self.on_their_way());
        let bytes = room.min(self.limits.request_bytes);
        let piece_max = self.window.bytes() / 4;
        Ok(Plan::Ranges(self.planned.take(bytes, piece_max)))
    }

    /// Drops the plan: its order or its state are not valid any more.
    pub(super) fn drop_plan(&mut self) {
        self.planned.clear(&mut self.turns);
    }

    /// Notes the ranges of a request that have arrived.
    pub(super) fn note_received(&mut self, asked: &[RequestedRange]) {
        let arrived = asked.iter().filter(|asked| asked.left() == 0);
        self.uncommitted.extend(arrived.map(|asked| asked.range));
    }

    /// Commits received ranges where enough have arrived, or enough time has passed.
    pub(super) fn commit_if_due(&mut self, now: Now) -> Result<()> {
        if self.uncommitted.is_empty() {
            self.committed_at = now.monotonic;
            return Ok(());
        }
        let received = self.uncommitted.iter().map(|range| u64::from(range.bytes));
        let is_due = self.in_flight.is_empty()
            || received.sum::<u64>() >= self.limits.request_bytes
            || now.monotonic.saturating_sub(self.committed_at) >= COMMIT_WITHIN;
        match is_due {
            true => {
                self.committed_at = now.monotonic;
                self.commit_received()
            }
            false => Ok(()),
        }
    }

    /// Commits received ranges.
    pub(super) fn commit_received(&mut self) -> Result<()> {
        self.uncommitted.clear();
        self.copy.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::message::SegmentRange;

    fn range(offset: u64, bytes: u32) -> RequestedRange {
        RequestedRange {
            range: SegmentRange {
                segment: 3,
                offset,
                bytes,
            },
            share: TrafficShare::Backlog,
            score: None,
            is_for_reader: false,
            arrived: 0,
        }
    }

    fn places(found: &[RequestedRange]) -> Vec<(u64, u32)> {
        let place = |r: &RequestedRange| (r.range.offset, r.range.bytes);
        found.iter().map(place).collect()
    }

    #[test]
    fn a_plan_is_taken_in_pieces_of_which_none_is_tiny() {
        let mut plan = Planned::default();
        plan.set(
            Duration::ZERO,
            vec![range(0, 100), range(1_000, 50_000), range(90_000, 9_000)],
        );
        assert_eq!(
            places(&plan.take(30_000, 20_000)),
            [(0, 100), (1_000, 20_000), (21_000, 9_900)]
        );
        assert_eq!(places(&plan.take(13_000, 20_000)), [(30_900, 13_000)]);
        // What is left of the range is smaller than two pieces.
        assert_eq!(places(&plan.take(4_096, 20_000)), [(43_900, 7_100)]);
        assert!(!plan.is_empty());
        plan.clear(&mut Turns::default());
        assert!(plan.is_empty() && plan.take(9, 9).is_empty());
    }
}
