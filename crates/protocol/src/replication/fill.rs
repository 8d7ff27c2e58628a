//! Fills a request from the shares in turn.

use crate::replication::agent::PIECE_MAX;
use crate::replication::message::SegmentRange;
use crate::replication::policy::Policy;
use crate::replication::shares::{Share, Turns};
use crate::replication::source_missing::Open;
use crate::replication::stats::Asking;
use headwater_engine::{LeafFacts, Missing, Reason, RemoteCopy, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The next request.
pub(crate) enum Plan {
    Nothing,
    State,
    Pieces(Vec<Asking>),
}

/// Splits a range into ranges of at most [`PIECE_MAX`] bytes.
pub(crate) fn pieces(segment: u64, offset: u64, bytes: u64) -> impl Iterator<Item = SegmentRange> {
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
    pub(crate) wants_state: bool,
    pub(crate) policy: Policy,
}

/// Fills one request.
pub(crate) struct Filling {
    limits: Limits,
    /// Missing ranges of each share.
    queues: BTreeMap<Share, VecDeque<Missing>>,
}

/// Starts of ranges in flight: segment and offset, with the end of each.
type Places = BTreeMap<(u64, u64), u64>;

/// True when a part of a missing range is in flight.
fn is_met(places: &Places, missing: &Missing) -> bool {
    let (segment, range) = (missing.segment, &missing.range);
    let end = range.offset.saturating_add(range.bytes);
    let before = places.range((segment, 0)..(segment, end));
    before
        .last()
        .is_some_and(|(_, behind)| *behind > range.offset)
}

impl Filling {
    /// Missing ranges that are open and not requested yet: `in_flight` are requested ranges that
    /// have not arrived.
    pub(crate) fn of(
        copy: &RemoteCopy,
        score: &dyn Fn(&LeafFacts) -> f64,
        open: &Open,
        in_flight: &[SegmentRange],
        limits: Limits,
    ) -> Result<Filling> {
        let places = in_flight.iter();
        let places: Places = places
            .map(|piece| {
                let end = piece.offset.saturating_add(u64::from(piece.bytes));
                ((piece.segment, piece.offset), end)
            })
            .collect();
        let asked = in_flight.iter().map(|p| u64::from(p.bytes));
        let most = limits.most.saturating_add(asked.sum());
        // All available ranges may be set aside, so ranges after them have to be looked at.
        let looked_at = if open.is_everything() { most } else { u64::MAX };
        let of = |missing| match open.is_everything() {
            true => missing,
            false => open.of(missing, most),
        };
        let lacks_summaries = !copy.missing_for(Reason::Summaries, 1).is_empty();
        let lets = |share| limits.policy.lets(share, lacks_summaries);
        let mut queues: BTreeMap<Share, VecDeque<Missing>> = BTreeMap::new();
        for reason in [
            Reason::Asked,
            Reason::Summaries,
            Reason::Pinned,
            Reason::Rows,
        ] {
            let share = Share::of(reason);
            if !lets(share) {
                continue;
            }
            let queue = queues.entry(share).or_default();
            let missing = of(copy.missing_for(reason, looked_at)).into_iter();
            queue.extend(missing.filter(|missing| !is_met(&places, missing)));
        }
        if !lets(Share::Proactive) {
            return Ok(Filling { limits, queues });
        }
        let can_be_had = |missing: &Missing| !open.parts(missing).is_empty();
        let rows = copy.missing_by_score_among(score, &can_be_had, looked_at)?;
        let rows = of(rows).into_iter();
        let rows = rows.filter(|missing| !is_met(&places, missing));
        queues.insert(Share::Proactive, rows.collect());
        Ok(Filling { limits, queues })
    }

    /// True if no share has a range to request.
    pub(crate) fn is_nothing(&self) -> bool {
        self.queues.values().all(VecDeque::is_empty)
    }

    /// Takes ranges from the shares in turn, until it is the turn of a state.
    pub(crate) fn fill(self, turns: &mut Turns) -> Plan {
        let Limits {
            most, wants_state, ..
        } = self.limits;
        let mut queues = self.queues;
        let mut taken: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut asking: Vec<Asking> = Vec::new();
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
                Share::States => wants_state,
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
            let pieces = pieces(missing.segment, range.offset, range.bytes);
            for piece in pieces {
                turns.charge(share, u64::from(piece.bytes));
                asking.push(Asking {
                    piece,
                    share,
                    score: missing.why.score.filter(|_| share == Share::Proactive),
                    is_asked_for: missing.why.reason == Reason::Asked,
                    has_come: false,
                });
            }
        }
        match asking.is_empty() {
            false => Plan::Pieces(asking),
            true if wants_state => Plan::State,
            true => Plan::Nothing,
        }
    }
}
