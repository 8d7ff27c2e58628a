//! Handling of the answers to a planner's requests.
//!
//! Invariants, concurrency and failure: as in the planner.

use super::Planner;
use crate::replication::message::{Digest, Message, REFUSED_HISTORY};
use crate::replication::shares::Share;
use crate::replication::stats::Asking;
use crate::replication::window::{InFlight, RequestKind};
use headwater_engine::{ErrorKind, Missing, Reason, Result, State, StateName};
use headwater_types::Now;
use headwater_types::invariant::wide;
use std::collections::BTreeSet;
use std::time::Duration;

/// Answers without a range that readers requested, after which it counts as unavailable.
const IN_VAIN_MAX: u32 = 3;
/// Maximum number of states announced during one request; if exceeded, the newest state is
/// requested.
pub(super) const HEARD_MAX: usize = 16;

impl Planner {
    /// Processes an answer to the request at position `at` of the requests in flight.
    pub(super) fn take_answer(&mut self, now: Now, at: usize, message: Message) -> Result<()> {
        match message {
            Message::State { bytes, .. } => self.take_state(now, at, &bytes)?,
            Message::Bytes {
                segment,
                offset,
                bytes,
                ..
            } => self.take_bytes(now, at, (segment, offset), &bytes)?,
            Message::Digests { digests, .. } => self.take_digests(now, at, &digests),
            Message::Done { .. } => self.take_done(now, at)?,
            Message::Wait { millis, .. } => {
                self.take_back(at)?;
                self.failures = 0;
                self.window.reset();
                let wait = Duration::from_millis(millis).min(self.limits.wait_most);
                self.not_before = self.not_before.max(now.monotonic + wait);
            }
            Message::Gone { .. } => {
                self.take_back(at)?;
                self.wants_state = true;
                self.needs_state = true;
            }
            Message::Refused { code, text, .. } => {
                self.forget_asked(at);
                self.put_back(at);
                match code == REFUSED_HISTORY {
                    true => {
                        self.copy.drop_tail();
                        self.refused = Some(text);
                    }
                    false => self.has_failed(now),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Processes missing ranges reported by the source. Requests for these ranges are answered.
    pub(super) fn take_holes(&mut self, now: Now, message: Message) -> Result<()> {
        let Message::Holes {
            segment,
            stretch,
            holes,
        } = message
        else {
            return Ok(());
        };
        let again = (now.monotonic, self.limits.wait_most);
        self.source_missing.take(segment, stretch, holes, again);
        let source_missing = &self.source_missing;
        for in_flight in &mut self.in_flight {
            let mut pieces = in_flight.pieces().iter().map(|asking| &asking.piece);
            in_flight.was_told |= pieces.any(|p| p.segment == segment && source_missing.lacks(p));
        }
        self.copy
            .do_without(segment, self.source_missing.never(segment))
    }

    fn take_bytes(
        &mut self,
        now: Now,
        at: usize,
        (segment, offset): (u64, u64),
        bytes: &[u8],
    ) -> Result<()> {
        match self.copy.put(segment, offset, bytes) {
            // The range was not requested.
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            other => {
                other?;
                self.count_arrived(now, at, (segment, offset), wide(bytes.len()));
                self.has_brought(now, at);
            }
        }
        Ok(())
    }

    fn take_done(&mut self, now: Now, at: usize) -> Result<()> {
        let answered = self.in_flight.remove(at);
        self.copy.commit()?;
        self.verifier.look_again();
        self.forget_unavailable(answered.pieces());
        self.look_for_asked(answered.pieces());
        match answered.has_brought {
            // The source is alive, and reports its missing ranges.
            false if answered.was_told => self.failures = 0,
            true => {
                self.failures = 0;
                let was_full = self.in_flight.len() + 1 >= self.window.size();
                let took = now.monotonic.saturating_sub(answered.since);
                self.window.answered(took, was_full);
            }
            false => self.has_failed(now),
        }
        Ok(())
    }

    /// Ends a request for which no more ranges are granted.
    fn take_back(&mut self, at: usize) -> Result<()> {
        self.refund(at);
        self.put_back(at);
        self.copy.commit()?;
        Ok(())
    }

    /// Position of a request in the list of requests in flight.
    pub(super) fn find(&self, request: u64) -> Option<usize> {
        let mut all = self.in_flight.iter();
        all.position(|in_flight| in_flight.request == request)
    }

    fn has_brought(&mut self, now: Now, at: usize) {
        self.counted.last_success = Some(now.wall);
        if let Some(in_flight) = self.in_flight.get_mut(at) {
            in_flight.has_brought = true;
        }
    }

    /// Counts received bytes in the share of their request. As long as something arrives, the other
    /// requests wait: the first request is answered first.
    fn count_arrived(&mut self, now: Now, at: usize, place: (u64, u64), bytes: u64) {
        let asked = self.in_flight.get_mut(at).map(|o| &mut o.asked);
        if let Some(RequestKind::Pieces(asking)) = asked {
            // A source with missing ranges may send a part of a range.
            let is_it = |a: &&mut Asking| {
                let (segment, offset) = place;
                a.piece.segment == segment && a.piece.range().contains(offset)
            };
            if let Some(asking) = asking.iter_mut().find(is_it) {
                let is_first = !std::mem::replace(&mut asking.has_come, true);
                self.counted.arrived(asking.share, bytes);
                let until = now.monotonic + self.limits.answer_within;
                for other in self.in_flight.iter_mut().filter(|_| is_first) {
                    other.until = other.until.max(until);
                }
            }
        }
    }

    /// Credits bytes that were not granted to their shares: otherwise a share would lose its turn
    /// whenever an answer is cut short.
    fn refund(&mut self, at: usize) {
        let asked = self.in_flight.get(at).into_iter();
        for asking in asked.flat_map(InFlight::pieces).filter(|a| !a.has_come) {
            let bytes = u64::from(asking.piece.bytes);
            self.turns.refund(asking.share, bytes);
        }
    }

    /// Forgets ranges that readers requested, and that the source never gets.
    fn forget_unavailable(&mut self, asking: &[Asking]) {
        for Asking { piece, .. } in asking.iter().filter(|a| a.is_asked_for) {
            if self.source_missing.lacks_for_good(piece) {
                let bytes = u64::from(piece.bytes);
                self.copy.forget_asked(piece.segment, piece.offset, bytes);
            }
        }
    }

    /// Forgets ranges that readers requested, and that were missing from several answers.
    fn look_for_asked(&mut self, asking: &[Asking]) {
        let missing = self.copy.missing_for(Reason::Asked, u64::MAX);
        let place = |m: &Missing| (m.segment, m.range.offset);
        let missing: BTreeSet<(u64, u64)> = missing.iter().map(place).collect();
        self.in_vain.retain(|place, _| missing.contains(place));
        for Asking { piece, .. } in asking.iter().filter(|a| a.is_asked_for) {
            let place = (piece.segment, piece.offset);
            if missing.contains(&place) {
                let times = self.in_vain.entry(place).or_default();
                *times += 1;
                if *times >= IN_VAIN_MAX {
                    let bytes = u64::from(piece.bytes);
                    self.copy.forget_asked(piece.segment, piece.offset, bytes);
                }
            }
        }
    }

    /// Forgets the ranges that readers requested and the source refuses.
    fn forget_asked(&mut self, at: usize) {
        let asked = self.in_flight.get(at).into_iter();
        let asking = asked.flat_map(InFlight::pieces);
        for Asking { piece, .. } in asking.filter(|a| a.is_asked_for) {
            let bytes = u64::from(piece.bytes);
            self.copy.forget_asked(piece.segment, piece.offset, bytes);
        }
    }

    /// Ends a request that was not answered: its ranges are still to be compared.
    pub(super) fn put_back(&mut self, at: usize) {
        let ended = self.in_flight.remove(at);
        if let RequestKind::Digests(these) = ended.asked {
            self.verifier.put_back(these);
        }
    }

    fn take_state(&mut self, now: Now, at: usize, bytes: &[u8]) -> Result<()> {
        if self.in_flight.get(at).is_some_and(|o| o.has_brought) {
            // A request that arrived twice was answered twice, perhaps with an earlier state last.
            return Ok(());
        }
        let known = self.copy.state();
        let more = wide(bytes.len()).saturating_sub(self.state_bytes);
        if more > 0 {
            self.turns.charge(Share::States, more);
        }
        self.state_bytes = wide(bytes.len()).max(1);
        self.counted.arrived(Share::States, self.state_bytes);
        let Ok(state) = State::decode(bytes, Some(&known)) else {
            // A difference from an unknown state, or invalid bytes.
            self.wants_whole = true;
            self.in_flight.remove(at);
            self.has_failed(now);
            return Ok(());
        };
        // A state of the same number may be of another view: the rules of tables may have changed.
        let view = state.name().view;
        let is_older = |heard: &StateName| !state.goes_on_from(heard) || heard.view != view;
        self.wants_state = self.heard.len() >= HEARD_MAX || self.heard.iter().any(is_older);
        self.wants_whole = false;
        self.needs_state = false;
        self.verifier.look_again();
        match self.copy.take_state(state) {
            Err(error) if error.kind() == ErrorKind::Invalid => {
                self.refused = Some(error.to_string());
                self.in_flight.clear();
                return Ok(());
            }
            other => other?,
        }
        self.has_brought(now, at);
        Ok(())
    }

    /// Compares ranges with the digests of the source.
    fn take_digests(&mut self, now: Now, at: usize, digests: &[Digest]) {
        let asked = self.in_flight.get_mut(at).map(|o| &mut o.asked);
        let Some(RequestKind::Digests(these)) = asked else {
            return;
        };
        let these = std::mem::take(these);
        self.verifier.take_digests(&self.copy, these, digests);
        if !digests.is_empty() {
            self.has_brought(now, at);
        }
    }
}
