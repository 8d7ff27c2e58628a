//! Handling of the answers to a planner's requests.
//!
//! Invariants, concurrency and failure: as in the planner.

use super::Planner;
use crate::replication::copy::request_order::shares::TrafficShare;
use crate::replication::copy::request_order::stats::RequestedRange;
use crate::replication::copy::window::{InFlight, RequestKind};
use crate::replication::message::{Digest, Message, REFUSED_HISTORY};
use headwater_engine::{ErrorKind, Missing, Reason, Result, State, StateName};
use headwater_types::Now;
use headwater_types::invariant::wide;
use std::collections::BTreeSet;
use std::time::Duration;

/// Answers without a range that readers requested, after which it counts as unavailable.
const FRUITLESS_ANSWERS_MAX: u32 = 3;
/// Maximum number of states announced during one request; if exceeded, the newest state is
/// requested.
pub(super) const ANNOUNCED_MAX: usize = 16;

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
            Message::Unavailable { .. } => {
                self.take_back(at)?;
                self.is_outdated = true;
                self.needs_state = true;
                self.drop_plan();
            }
            Message::Refused { code, text, .. } => {
                self.forget_requested(at);
                self.put_back(at);
                match code == REFUSED_HISTORY {
                    true => {
                        self.copy.drop_tail();
                        self.refused = Some(text);
                    }
                    false => self.record_failure(now),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Processes missing ranges reported by the source. Requests for these ranges are answered.
    pub(super) fn take_holes(&mut self, now: Now, message: Message) -> Result<()> {
        let Message::MissingRanges {
            segment,
            stretch,
            missing,
        } = message
        else {
            return Ok(());
        };
        self.drop_plan();
        let again = (now.monotonic, self.limits.wait_most);
        self.source_missing
            .apply_report(segment, stretch, missing, again);
        let source_missing = &self.source_missing;
        for in_flight in &mut self.in_flight {
            let mut pieces = in_flight.ranges().iter().map(|asking| &asking.range);
            in_flight.is_missing_reported |=
                pieces.any(|p| p.segment == segment && source_missing.is_missing(p));
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
        self.note_received(answered.ranges());
        if self.in_flight.is_empty() {
            self.window.pace.ended();
        }
        // A part of a range is not noted as received, but for a request that is over.
        let is_part = |asked: &RequestedRange| asked.arrived > 0 && asked.left() > 0;
        let is_for_reader = |asked: &RequestedRange| asked.is_for_reader;
        match answered
            .ranges()
            .iter()
            .any(|asked| is_part(asked) || is_for_reader(asked))
        {
            true => self.commit_received()?,
            false => self.commit_if_due(now)?,
        }
        self.verifier.look_again();
        self.forget_unavailable(answered.ranges());
        self.forget_unanswered(answered.ranges());
        match answered.has_progressed {
            // The source is alive, and reports its missing ranges.
            false if answered.is_missing_reported => self.failures = 0,
            true => {
                self.failures = 0;
                let was_full = self.in_flight.len() + 1 >= self.window.size();
                let took = now.monotonic.saturating_sub(answered.since);
                self.window.answered(took, was_full);
            }
            false => self.record_failure(now),
        }
        Ok(())
    }

    /// Ends a request for which no more ranges are granted.
    fn take_back(&mut self, at: usize) -> Result<()> {
        self.refund(at);
        self.put_back(at);
        if self.in_flight.is_empty() {
            self.window.pace.ended();
        }
        self.commit_received()
    }

    /// Position of a request in the list of requests in flight.
    pub(super) fn find(&self, request: u64) -> Option<usize> {
        let mut all = self.in_flight.iter();
        all.position(|in_flight| in_flight.request == request)
    }

    fn has_brought(&mut self, now: Now, at: usize) {
        self.counted.last_success = Some(now.wall);
        if let Some(in_flight) = self.in_flight.get_mut(at) {
            in_flight.has_progressed = true;
        }
    }

    /// Counts received bytes in the share of their request. As long as something arrives, all
    /// requests wait: the first request is answered first.
    fn count_arrived(&mut self, now: Now, at: usize, place: (u64, u64), bytes: u64) {
        let asked = self.in_flight.get_mut(at).map(|o| &mut o.kind);
        if let Some(RequestKind::Ranges(asking)) = asked {
            // A source with missing ranges may send a part of a range.
            let is_it = |a: &&mut RequestedRange| {
                let (segment, offset) = place;
                a.range.segment == segment && a.range.range().contains(offset)
            };
            if let Some(asking) = asking.iter_mut().find(is_it) {
                let is_new = asking.left() > 0;
                let more = u32::try_from(bytes).unwrap_or(u32::MAX);
                asking.arrived = asking.arrived.saturating_add(more);
                self.counted.arrived(asking.share, bytes);
                let until = now.monotonic + self.limits.answer_within;
                for other in self.in_flight.iter_mut().filter(|_| is_new) {
                    other.until = other.until.max(until);
                }
            }
        }
        self.note_pace(now, bytes);
    }

    fn note_pace(&mut self, now: Now, bytes: u64) {
        let left = self.on_their_way();
        self.window.pace.arrived(now.monotonic, bytes, left);
    }

    /// Credits bytes that were not granted to their shares: otherwise a share would lose its turn
    /// whenever an answer is cut short.
    fn refund(&mut self, at: usize) {
        let asked = self.in_flight.get(at).into_iter();
        for asking in asked.flat_map(InFlight::ranges) {
            self.turns.refund(asking.share, asking.left());
        }
    }

    /// Forgets ranges that readers requested, and that the source never gets.
    fn forget_unavailable(&mut self, asking: &[RequestedRange]) {
        for RequestedRange { range, .. } in asking.iter().filter(|a| a.is_for_reader) {
            if self.source_missing.may_never_come(range) {
                let bytes = u64::from(range.bytes);
                self.copy.cancel_request(range.segment, range.offset, bytes);
            }
        }
    }

    /// Forgets ranges that readers requested, and that were missing from several answers.
    fn forget_unanswered(&mut self, asking: &[RequestedRange]) {
        let missing = self.copy.missing_for(Reason::Requested, u64::MAX);
        let place = |m: &Missing| (m.segment, m.range.offset);
        let missing: BTreeSet<(u64, u64)> = missing.iter().map(place).collect();
        self.fruitless_answers
            .retain(|place, _| missing.contains(place));
        for RequestedRange { range, .. } in asking.iter().filter(|a| a.is_for_reader) {
            let place = (range.segment, range.offset);
            if missing.contains(&place) {
                let times = self.fruitless_answers.entry(place).or_default();
                *times += 1;
                if *times >= FRUITLESS_ANSWERS_MAX {
                    let bytes = u64::from(range.bytes);
                    self.copy.cancel_request(range.segment, range.offset, bytes);
                }
            }
        }
    }

    /// Forgets the ranges that readers requested and the source refuses.
    fn forget_requested(&mut self, at: usize) {
        let asked = self.in_flight.get(at).into_iter();
        let asking = asked.flat_map(InFlight::ranges);
        for RequestedRange { range, .. } in asking.filter(|a| a.is_for_reader) {
            let bytes = u64::from(range.bytes);
            self.copy.cancel_request(range.segment, range.offset, bytes);
        }
    }

    /// Ends a request that was not answered: its ranges are still to be compared.
    pub(super) fn put_back(&mut self, at: usize) {
        let ended = self.in_flight.remove(at);
        self.note_received(ended.ranges());
        if let RequestKind::Digests(these) = ended.kind {
            self.verifier.put_back(these);
        }
    }

    fn take_state(&mut self, now: Now, at: usize, bytes: &[u8]) -> Result<()> {
        if self.in_flight.get(at).is_some_and(|o| o.has_progressed) {
            // A request that arrived twice was answered twice, perhaps with an earlier state last.
            return Ok(());
        }
        if let Some(asked) = self.in_flight.get_mut(at) {
            asked.has_progressed = true;
        }
        self.note_pace(now, wide(bytes.len()));
        // Planned ranges are of the state before.
        self.drop_plan();
        let known = self.copy.state();
        let more = wide(bytes.len()).saturating_sub(self.state_bytes);
        if more > 0 {
            self.turns.charge(TrafficShare::States, more);
        }
        self.state_bytes = wide(bytes.len()).max(1);
        self.counted.arrived(TrafficShare::States, self.state_bytes);
        let Ok(state) = State::decode(bytes, Some(&known)) else {
            // A difference from an unknown state, or invalid bytes.
            self.needs_whole_state = true;
            self.in_flight.remove(at);
            self.record_failure(now);
            return Ok(());
        };
        // A state of the same number may be of another view: the rules of tables may have changed.
        let view = state.name().view;
        let is_older = |heard: &StateName| !state.descends_from(heard) || heard.view != view;
        self.is_outdated =
            self.announced.len() >= ANNOUNCED_MAX || self.announced.iter().any(is_older);
        self.needs_whole_state = false;
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
        let asked = self.in_flight.get_mut(at).map(|o| &mut o.kind);
        let Some(RequestKind::Digests(these)) = asked else {
            return;
        };
        let these = std::mem::take(these);
        self.verifier.take_digests(&self.copy, these, digests);
        self.note_pace(now, wide(size_of_val(digests)));
        if !digests.is_empty() {
            self.has_brought(now, at);
        }
    }
}
