//! Fills a request from the shares in turn.

use crate::replication::copy::request_order::policy::Policy;
use crate::replication::copy::request_order::shares::{TrafficShare, Turns};
use crate::replication::copy::request_order::stats::RequestedRange;
use crate::replication::copy::source_missing::Open;
use crate::replication::message::{PIECE_MAX, SegmentRange};
use crate::replication::ranges::beside;
use headwater_engine::{LeafFacts, Missing, Reason, RemoteCopy, Result};
use headwater_types::ByteRange;
use headwater_types::byte_range::joined;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The next request.
pub(crate) enum Plan {
    Idle,
    State,
    Ranges(Vec<RequestedRange>),
}

/// Splits a range into ranges of at most [`PIECE_MAX`] bytes.
pub(crate) fn split(segment: u64, offset: u64, bytes: u64) -> impl Iterator<Item = SegmentRange> {
    let size = u64::from(PIECE_MAX);
    (0..bytes.div_ceil(size)).map(move |n| SegmentRange {
        segment,
        offset: offset + n * size,
        bytes: u32::try_from((bytes - n * size).min(size)).unwrap_or(PIECE_MAX),
    })
}

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of it, about.
    pub(crate) most: u64,
    pub(crate) needs_state: bool,
    pub(crate) policy: Policy,
}

/// Fills one request.
pub(crate) struct Filling {
    limits: Limits,
    /// Missing ranges of each share.
    queues: BTreeMap<TrafficShare, VecDeque<Missing>>,
}

/// Ranges in flight, by segment, sorted and disjoint.
type InFlightRanges = BTreeMap<u64, Vec<ByteRange>>;

fn by_segment(in_flight: &[SegmentRange]) -> InFlightRanges {
    let mut out = InFlightRanges::new();
    for piece in in_flight {
        out.entry(piece.segment).or_default().push(piece.range());
    }
    for ranges in out.values_mut() {
        *ranges = joined(std::mem::take(ranges));
    }
    out
}

/// The parts of missing ranges that are not in flight.
fn not_in_flight(places: &InFlightRanges, missing: Vec<Missing>) -> VecDeque<Missing> {
    let parts = missing.into_iter().flat_map(|missing| {
        let range = missing.range.byte_range();
        let parts = match places.get(&missing.segment) {
            None => vec![range],
            Some(in_flight) => beside(range, in_flight),
        };
        parts.into_iter().map(move |part| Missing {
            range: missing.range.narrowed(part),
            ..missing
        })
    });
    parts.collect()
}

impl Filling {
    /// Missing ranges that are open and not requested yet: `in_flight` are requested ranges that
    /// have not arrived, or that have arrived and are not committed.
    pub(crate) fn of(
        copy: &RemoteCopy,
        score: &dyn Fn(&LeafFacts) -> f64,
        open: &Open,
        in_flight: &[SegmentRange],
        limits: Limits,
    ) -> Result<Filling> {
        let places = by_segment(in_flight);
        let asked = in_flight.iter().map(|p| u64::from(p.bytes));
        let most = limits.most.saturating_add(asked.sum());
        // All available ranges may be set aside, so ranges after them have to be looked at.
        let looked_at = if open.is_everything() { most } else { u64::MAX };
        let of = |missing| match open.is_everything() {
            true => missing,
            false => open.of(missing, most),
        };
        let lacks_summaries = !copy.missing_for(Reason::Summaries, 1).is_empty();
        let lets = |share| limits.policy.allows(share, lacks_summaries);
        let mut queues: BTreeMap<TrafficShare, VecDeque<Missing>> = BTreeMap::new();
        for reason in [
            Reason::Requested,
            Reason::Summaries,
            Reason::Pinned,
            Reason::Rows,
        ] {
            let share = TrafficShare::of(reason);
            if !lets(share) {
                continue;
            }
            let queue = queues.entry(share).or_default();
            let missing = of(copy.missing_for(reason, looked_at));
            queue.extend(not_in_flight(&places, missing));
        }
        if !lets(TrafficShare::Proactive) {
            return Ok(Filling { limits, queues });
        }
        let can_be_had = |missing: &Missing| !open.requestable(missing).is_empty();
        let rows = copy.missing_by_score_among(score, &can_be_had, looked_at)?;
        queues.insert(TrafficShare::Proactive, not_in_flight(&places, of(rows)));
        Ok(Filling { limits, queues })
    }

    /// True if no share has a range to request.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.values().all(VecDeque::is_empty)
    }

    /// Takes ranges from the shares in turn, until it is the turn of a state.
    pub(crate) fn fill(self, turns: &mut Turns) -> Plan {
        let Limits {
            most, needs_state, ..
        } = self.limits;
        let mut queues = self.queues;
        let mut taken: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut asking: Vec<RequestedRange> = Vec::new();
        let mut bytes = 0;
        while bytes < most {
            for queue in queues.values_mut() {
                // Rows are in two of them.
                let is_taken = |m: &Missing| taken.contains(&(m.segment, m.range.offset));
                while queue.front().is_some_and(is_taken) {
                    queue.pop_front();
                }
            }
            let next = turns.next(|share| match share {
                TrafficShare::States => needs_state,
                share => queues.get(&share).is_some_and(|queue| !queue.is_empty()),
            });
            let queue = next.and_then(|share| Some((share, queues.get_mut(&share)?)));
            let missing = queue.and_then(|(share, queue)| Some((share, queue.pop_front()?)));
            let Some((share, missing)) = missing else {
                break;
            };
            let range = &missing.range;
            let is_new = taken.insert((missing.segment, range.offset));
            assert!(is_new, "a range is requested twice");
            bytes += range.bytes;
            let pieces = split(missing.segment, range.offset, range.bytes);
            for piece in pieces {
                turns.charge(share, u64::from(piece.bytes));
                asking.push(RequestedRange {
                    range: piece,
                    share,
                    score: missing
                        .why
                        .score
                        .filter(|_| share == TrafficShare::Proactive),
                    is_for_reader: missing.why.reason == Reason::Requested,
                    arrived: 0,
                });
            }
        }
        match asking.is_empty() {
            false => Plan::Ranges(asking),
            true if needs_state => Plan::State,
            true => Plan::Idle,
        }
    }
}
