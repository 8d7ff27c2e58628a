//! What a source that is a copy itself has said that it lacks: it is set aside here, so that
//! requests ask for what can be had.
//!
//! A source either may never get what it lacks, then all of its holes are set aside; or it gets what
//! it is asked for, then what was asked for once is set aside, and as much is asked for ahead as is
//! worth while.
//!
//! Invariants: what is set aside is asked for again when the source says that it has it, or after a
//! while, in case it said so and that was lost. A source that lacks nothing sets nothing aside.
//! Concurrency: plain data.

use crate::message::Piece;
use headwater_engine::{Missing, NeededRange, State};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes that a source is to get for us at once, about.
const WISHED_MAX: u64 = 4 << 20;

/// What is lacking of a segment: ranges from a first byte to the first one behind, which rise and
/// are apart.
#[derive(Debug, Default)]
struct Lacks {
    holes: Vec<(u64, u64)>,
    /// Those parts of holes that the source was asked for.
    asked: Vec<(u64, u64)>,
    on_request: bool,
    /// When it is asked for all the same.
    again: Duration,
}

/// What the source lacks, by segment.
#[derive(Debug, Default)]
pub(crate) struct Lacking {
    segments: BTreeMap<u64, Lacks>,
}

/// The parts of a range that others hold, or do not hold.
fn parts(range: (u64, u64), others: &[(u64, u64)], held: bool) -> Vec<(u64, u64)> {
    let (mut at, end) = range;
    let mut out = Vec::new();
    let first = others.partition_point(|(_, until)| *until <= at);
    let others = others.get(first..).unwrap_or_default();
    for (from, until) in others.iter().take_while(|(from, _)| *from < end) {
        let (from, until) = ((*from).max(at), (*until).min(end));
        if !held && at < from {
            out.push((at, from));
        }
        if held {
            out.push((from, until));
        }
        at = until;
    }
    if !held && at < end {
        out.push((at, end));
    }
    out
}

fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(from, until)| until - from).sum()
}

impl Lacking {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The source has told what it lacks of a stretch of a segment.
    pub(crate) fn take(
        &mut self,
        segment: u64,
        (from, until): (u64, u64),
        new: Vec<(u64, u64)>,
        (on_request, again): (bool, Duration),
    ) {
        let lacks = self.segments.entry(segment).or_default();
        let mut holes = parts((0, from), &lacks.holes, true);
        holes.extend(new);
        holes.extend(parts((until, u64::MAX), &lacks.holes, true));
        let asked = lacks.asked.iter();
        let asked = asked.flat_map(|asked| parts(*asked, &holes, true));
        lacks.asked = asked.collect();
        (lacks.holes, lacks.on_request, lacks.again) = (holes, on_request, again);
        if lacks.holes.is_empty() {
            self.segments.remove(&segment);
        }
    }

    /// Forgets what is not named any more, and what is to be asked for again.
    pub(crate) fn keep(&mut self, now: Duration, state: &State) {
        if self.segments.is_empty() {
            return;
        }
        let named: Vec<u64> = state.segments().map(|s| s.id).collect();
        let is_named = |id: &u64| named.binary_search(id).is_ok();
        self.segments
            .retain(|id, lacks| lacks.again > now && is_named(id));
    }

    /// Bytes that the source is to get for us.
    fn wished(&self) -> u64 {
        self.segments.values().map(|l| bytes(&l.asked)).sum()
    }

    /// What there is to ask for.
    pub(crate) fn open(&self) -> Open<'_> {
        Open {
            lacking: self,
            is_full: self.wished() >= WISHED_MAX,
        }
    }

    /// These were asked for.
    pub(crate) fn asked(&mut self, pieces: impl Iterator<Item = Piece>) {
        for piece in pieces {
            let lacks = self.segments.get_mut(&piece.segment);
            let Some(lacks) = lacks.filter(|lacks| lacks.on_request) else {
                continue;
            };
            let range = (
                piece.offset,
                piece.offset.saturating_add(u64::from(piece.bytes)),
            );
            let new = parts(range, &lacks.holes, true).into_iter();
            let new: Vec<_> = new.flat_map(|r| parts(r, &lacks.asked, false)).collect();
            lacks.asked.extend(new);
            lacks.asked.sort_unstable();
        }
    }

    /// True when the source lacks a part of a piece.
    pub(crate) fn lacks(&self, piece: &Piece) -> bool {
        let end = piece.offset.saturating_add(u64::from(piece.bytes));
        let lacks = self.segments.get(&piece.segment);
        lacks.is_some_and(|lacks| !parts((piece.offset, end), &lacks.holes, true).is_empty())
    }

    /// True when the source does not get what it lacks of a segment.
    pub(crate) fn is_for_good(&self, segment: u64) -> bool {
        let lacks = self.segments.get(&segment);
        lacks.is_some_and(|lacks| !lacks.on_request)
    }
}

/// What may be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open<'a> {
    lacking: &'a Lacking,
    /// The source is to get enough for us.
    is_full: bool,
}

impl Open<'_> {
    /// True when nothing is set aside.
    pub(crate) fn is_everything(&self) -> bool {
        self.lacking.is_empty()
    }

    /// The parts of what is missing that may be asked for.
    pub(crate) fn parts(&self, missing: &Missing) -> Vec<Missing> {
        let Some(lacks) = self.lacking.segments.get(&missing.segment) else {
            return vec![*missing];
        };
        let aside = match lacks.on_request && !self.is_full {
            true => &lacks.asked,
            false => &lacks.holes,
        };
        let range = &missing.range;
        let range = (range.offset, range.offset.saturating_add(range.bytes));
        let open = parts(range, aside, false).into_iter();
        let open = open.map(|(from, until)| Missing {
            range: NeededRange {
                offset: from,
                bytes: until - from,
                ..missing.range
            },
            ..*missing
        });
        open.collect()
    }

    /// What of these may be asked for, of so many bytes about.
    pub(crate) fn of(&self, missing: Vec<Missing>, bytes_max: u64) -> Vec<Missing> {
        let mut taken = 0u64;
        let mut out = Vec::new();
        for part in missing.iter().flat_map(|missing| self.parts(missing)) {
            if taken >= bytes_max {
                break;
            }
            taken = taken.saturating_add(part.range.bytes);
            out.push(part);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(300);

    fn piece(offset: u64, bytes: u32) -> Piece {
        Piece {
            segment: 7,
            offset,
            bytes,
        }
    }

    #[test]
    fn parts_of_a_range_are_within_others_or_beside_them() {
        let others = [(10, 20), (30, 40)];
        assert_eq!(parts((0, 50), &others, true), others);
        assert_eq!(
            parts((0, 50), &others, false),
            [(0, 10), (20, 30), (40, 50)]
        );
        assert_eq!(parts((12, 35), &others, true), [(12, 20), (30, 35)]);
        assert_eq!(parts((12, 35), &others, false), [(20, 30)]);
        assert_eq!(parts((12, 18), &others, false), []);
    }

    #[test]
    fn what_is_told_of_a_stretch_leaves_what_was_told_of_the_rest() {
        let mut lacking = Lacking::default();
        lacking.take(7, (0, 100), vec![(0, 10), (50, 100)], (false, LATER));
        lacking.take(7, (60, 80), vec![], (false, LATER));
        assert!(lacking.lacks(&piece(55, 5)) && !lacking.lacks(&piece(60, 20)));
        assert!(lacking.lacks(&piece(0, 1)) && lacking.lacks(&piece(70, 11)));
        lacking.take(7, (0, 100), vec![], (false, LATER));
        assert!(lacking.is_empty());
    }

    #[test]
    fn of_a_source_that_gets_what_it_lacks_only_that_is_set_aside_which_was_asked_for() {
        let mut lacking = Lacking::default();
        let hole = (0, 3 * WISHED_MAX);
        lacking.take(7, hole, vec![hole], (true, LATER));
        assert!(!lacking.is_for_good(7));
        lacking.asked([piece(0, 1000), piece(500, 1000)].into_iter());
        assert_eq!(lacking.wished(), 1500);
        assert!(!lacking.open().is_full);
        // As soon as it has that, there is room for more.
        let most = u32::try_from(WISHED_MAX).unwrap_or(u32::MAX);
        lacking.asked([piece(2000, most)].into_iter());
        assert!(lacking.open().is_full);
        let left = (2000 + WISHED_MAX, hole.1);
        lacking.take(7, hole, vec![left], (true, LATER));
        assert_eq!(lacking.wished(), 0);
        assert!(!lacking.open().is_full);
    }
}
