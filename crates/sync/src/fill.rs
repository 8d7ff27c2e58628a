//! Fills a request from the shares in turn.

use crate::agent::PIECE_MAX;
use crate::figures::Asking;
use crate::message::Piece;
use crate::shares::{Share, Turns};
use headwater_engine::{LeafFacts, Missing, Reason, RemoteCopy, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What to ask for next.
pub(crate) enum Plan {
    Nothing,
    State,
    Pieces(Vec<Asking>),
}

/// A range as pieces.
pub(crate) fn pieces(segment: u64, offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
    let size = u64::from(PIECE_MAX);
    (0..bytes.div_ceil(size)).map(move |n| Piece {
        segment,
        offset: offset + n * size,
        bytes: u32::try_from((bytes - n * size).min(size)).unwrap_or(PIECE_MAX),
    })
}

/// Fills one request.
pub(crate) struct Filling<'a> {
    pub(crate) copy: &'a RemoteCopy,
    pub(crate) score: &'a dyn Fn(&LeafFacts) -> f64,
    /// Bytes of it, about.
    pub(crate) most: u64,
    pub(crate) wants_state: bool,
    /// Pieces that were asked for and have not come: they are not asked for again.
    pub(crate) on_their_way: Vec<Piece>,
}

/// Where pieces begin and end, by segment.
type Places = BTreeMap<(u64, u64), u64>;

/// True when a part of what is missing is on its way.
fn is_met(places: &Places, missing: &Missing) -> bool {
    let (segment, range) = (missing.segment, &missing.range);
    let end = range.offset.saturating_add(range.bytes);
    let before = places.range((segment, 0)..(segment, end));
    before
        .last()
        .is_some_and(|(_, behind)| *behind > range.offset)
}

impl Filling<'_> {
    /// What each share has to ask for.
    fn queues(&self) -> Result<BTreeMap<Share, VecDeque<Missing>>> {
        let places = self.on_their_way.iter();
        let places: Places = places
            .map(|piece| {
                let end = piece.offset.saturating_add(u64::from(piece.bytes));
                ((piece.segment, piece.offset), end)
            })
            .collect();
        let on_their_way = self.on_their_way.iter().map(|p| u64::from(p.bytes));
        let most = self.most.saturating_add(on_their_way.sum());
        let mut queues: BTreeMap<Share, VecDeque<Missing>> = BTreeMap::new();
        for reason in [
            Reason::Asked,
            Reason::Summaries,
            Reason::Pinned,
            Reason::Rows,
        ] {
            let queue = queues.entry(Share::of(reason)).or_default();
            let missing = self.copy.missing_for(reason, most).into_iter();
            queue.extend(missing.filter(|missing| !is_met(&places, missing)));
        }
        let rows = self.copy.missing_by_score(self.score, most)?.into_iter();
        let rows = rows.filter(|missing| !is_met(&places, missing));
        queues.insert(Share::Proactive, rows.collect());
        Ok(queues)
    }

    /// What the shares ask for in turn, until it is the turn of a state.
    pub(crate) fn fill(&self, turns: &mut Turns) -> Result<Plan> {
        let mut queues = self.queues()?;
        let mut taken: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut asking: Vec<Asking> = Vec::new();
        let mut bytes = 0;
        while bytes < self.most {
            for queue in queues.values_mut() {
                // Rows are in two of them.
                let is_taken = |m: &Missing| taken.contains(&(m.segment, m.range.offset));
                while queue.front().is_some_and(is_taken) {
                    queue.pop_front();
                }
            }
            let next = turns.next(|share| match share {
                Share::States => self.wants_state,
                share => queues.get(&share).is_some_and(|queue| !queue.is_empty()),
            });
            let queue = next.and_then(|share| Some((share, queues.get_mut(&share)?)));
            let missing = queue.and_then(|(share, queue)| Some((share, queue.pop_front()?)));
            let Some((share, missing)) = missing else {
                break;
            };
            let range = &missing.range;
            taken.insert((missing.segment, range.offset));
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
        Ok(match asking.is_empty() {
            false => Plan::Pieces(asking),
            true if self.wants_state => Plan::State,
            true => Plan::Nothing,
        })
    }
}
