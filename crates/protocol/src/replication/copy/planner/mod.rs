//! Requests of a copy for its missing ranges, and confirmations of the ranges on its device. Which
//! ranges come first is decided in [`super::request_order`].
//!
//! Several requests are in flight, as many as are answered quickly, with as many bytes as the link
//! carries soon ([`super::window`]). Received ranges are committed together, after a second at the
//! latest, and at once where a reader waits for them. Missing ranges of a source that is a copy
//! itself are set aside until it has them ([`super::source_missing`]).
//!
//! Invariants: no share starves, states included; an answer counts only for a request in flight,
//! and no range is in flight twice; a request that is not answered in time is abandoned, and
//! repeated at growing intervals until an answer arrives. Confirmed ranges were synced by the copy
//! before. A source of another history is refused permanently. Failure: an error is one of the
//! copy's own device; then the copy is to be opened again, and the planner created again.

mod answers;
mod planned;

use crate::replication::copy::challenge::ChallengeResponder;
use crate::replication::copy::proof::ProofOutcome;
use crate::replication::copy::request_order::fill::Plan;
use crate::replication::copy::request_order::policy::Policy;
use crate::replication::copy::request_order::score::{ScoreBy, score};
use crate::replication::copy::request_order::shares::{TrafficShare, Turns, Weights};
use crate::replication::copy::request_order::stats::{Counted, PlannerStats, RequestedRange};
use crate::replication::copy::source_missing::SourceMissing;
use crate::replication::copy::tail_requester::TailRequester;
use crate::replication::copy::verify::{ProvenStats, Verified, Verifier};
use crate::replication::copy::window::{InFlight, RequestKind, Window};
use crate::replication::message::{Digest, Message, SegmentRange};
use answers::ANNOUNCED_MAX;
use headwater_engine::{
    Error, LeafFacts, Missing, RangeExplanation, Reason, RemoteCopy, Result, StateName,
};
use headwater_types::{ClosedRange, Now, StreamName};
use planned::Planned;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::time::Duration;

/// Limits of a planner's requests and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannerLimits {
    /// Most bytes of a request, about; fewer where the link carries fewer soon.
    pub request_bytes: u64,
    /// Most requests in flight; 0 counts as 1.
    pub requests: usize,
    /// Timeout of a request without any answer.
    pub answer_within: Duration,
    /// Wait after the first failure; doubled after each further one.
    pub wait_first: Duration,
    /// Longest wait.
    pub wait_most: Duration,
}

impl Default for PlannerLimits {
    fn default() -> PlannerLimits {
        PlannerLimits {
            request_bytes: 1 << 20,
            requests: 8,
            answer_within: Duration::from_secs(60),
            wait_first: Duration::from_secs(1),
            wait_most: Duration::from_secs(300),
        }
    }
}

/// A confirmation: a state, segments with bytes that count, and chains of the proven ones.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Confirmation {
    state: StateName,
    segments: Vec<(u64, u64)>,
    proofs: Vec<(u64, Digest)>,
}

/// Plans the requests of a copy.
#[derive(Debug)]
pub struct Planner {
    copy: RemoteCopy,
    limits: PlannerLimits,
    next_request: u64,
    in_flight: Vec<InFlight>,
    window: Window,
    /// Ranges for the next requests.
    planned: Planned,
    /// Ranges that have arrived and are not committed.
    uncommitted: Vec<SegmentRange>,
    committed_at: Duration,
    /// No request is sent before this.
    not_before: Duration,
    /// Failures in a row.
    failures: u32,
    is_outdated: bool,
    /// States that the source has announced since its state was requested, in the order of arrival,
    /// which may differ from the order of sending.
    announced: Vec<StateName>,
    /// The next state is requested whole, not as a difference.
    needs_whole_state: bool,
    /// No range of the known state can be fetched.
    needs_state: bool,
    /// Size of a state in bytes: the newest received, or an estimate.
    state_bytes: u64,
    turns: Turns,
    weights: Weights,
    policy: Policy,
    score: ScoreBy,
    counted: Counted,
    /// Number of answers that lacked a range which readers requested.
    fruitless_answers: BTreeMap<(u64, u64), u32>,
    /// The error of the copy's device.
    failed: Option<Error>,
    confirmed: Option<Confirmation>,
    /// The copy's change counter at the last search for ranges to confirm.
    looked_at: Option<u64>,
    verifier: Verifier,
    refused: Option<String>,
    /// The next request is a comparison, if there is one to make.
    compares: bool,
    /// Missing ranges of the source.
    source_missing: SourceMissing,
    /// Received ranges are proven as soon as possible, and dropped if that fails.
    distrusts: bool,
    /// Segments that were fetched again since their content differed.
    fetched_again: BTreeSet<u64>,
    /// Requests newest events, independently of all other requests.
    tail: TailRequester,
    /// Answers challenges of the source, independently of all requests.
    challenges: ChallengeResponder,
}

/// Assumed bytes of a state, before one has arrived.
const STATE_BYTES: u64 = 4 << 10;

/// Segment, and its explained range with the share of the subscription, if it has subscribed rows.
pub type ExplainedSegment = (u64, Option<(RangeExplanation, TrafficShare)>);

impl Planner {
    /// Creates a planner for a copy. Requests are numbered from `first_request` on, which should be
    /// a random number: late answers to an earlier planner are recognised by it.
    #[must_use]
    pub fn new(copy: RemoteCopy, limits: PlannerLimits, first_request: u64) -> Planner {
        // Ranges marked unavailable were reported by an earlier source.
        copy.do_without_nothing();
        Planner {
            copy,
            window: Window::new(limits.requests, limits.request_bytes),
            planned: Planned::default(),
            uncommitted: Vec::new(),
            committed_at: Duration::ZERO,
            limits,
            next_request: first_request,
            in_flight: Vec::new(),
            not_before: Duration::ZERO,
            failures: 0,
            is_outdated: true,
            announced: Vec::new(),
            needs_whole_state: false,
            needs_state: false,
            state_bytes: STATE_BYTES,
            turns: Turns::default(),
            weights: Weights::default(),
            policy: Policy::default(),
            score: ScoreBy::default(),
            counted: Counted::default(),
            fruitless_answers: BTreeMap::new(),
            failed: None,
            confirmed: None,
            looked_at: None,
            verifier: Verifier::default(),
            refused: None,
            compares: true,
            source_missing: SourceMissing::default(),
            distrusts: false,
            fetched_again: BTreeSet::new(),
            tail: TailRequester::default(),
            challenges: ChallengeResponder::default(),
        }
    }

    /// Declares that the source passes on data of another node: a segment whose content does not
    /// match the hashes of that node is dropped and fetched again, and the second time the source
    /// is refused. A source that has written a segment itself is trusted; [`Planner::proven`]
    /// reports mismatches.
    pub fn distrust(&mut self) {
        self.distrusts = true;
    }

    /// The source sends its newest events along, or does not.
    pub fn set_live(&mut self, is_live: bool) {
        // Numbers differ from the numbers of the other requests; at most one tail request is in
        // flight.
        self.tail
            .set_enabled(is_live, self.next_request ^ (1 << 63));
    }

    /// The copy.
    #[must_use]
    pub fn copy(&self) -> &RemoteCopy {
        &self.copy
    }

    /// Sets the weight of each share under [`Policy::Shares`].
    pub fn set_weights(&mut self, weights: Weights) {
        self.weights = weights;
        self.turns.set_weights(self.policy.weights(weights));
    }

    /// Sets the prefetch policy.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.turns.set_weights(policy.weights(self.weights));
    }

    /// Sets the score by which rows are prioritised.
    pub fn set_score(&mut self, score: ScoreBy) {
        self.score = score;
    }

    /// Stats of work done and left.
    #[must_use]
    pub fn stats(&self, now: Now) -> PlannerStats {
        PlannerStats {
            shares: self.counted.shares(&self.copy.tallies()),
            requests: self.counted.requests,
            failures: self.counted.failures,
            failures_in_a_row: self.failures,
            last_success: self.counted.last_success,
            waiting_until: Some(self.not_before).filter(|at| *at > now.monotonic),
        }
    }

    /// Last requested ranges, each with the share it was charged to, oldest first.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &RequestedRange> {
        self.counted.recent()
    }

    /// Reason why a byte of a segment is present or subscribed to, and its share: the share it was
    /// charged to if it was requested recently, otherwise the share of the reason. `None` if no
    /// rule subscribes to it any more.
    ///
    /// # Errors
    /// The copy's own.
    pub fn explain(
        &self,
        segment: u64,
        offset: u64,
    ) -> Result<Option<(RangeExplanation, TrafficShare)>> {
        let by = self.score;
        let found = self
            .copy
            .explain(segment, offset, &|facts| score(by, facts))?;
        Ok(found.map(|found| {
            let share = self.share_of(segment, offset, &found);
            (found, share)
        }))
    }

    /// The share that a range was charged to recently, otherwise that of its reason.
    fn share_of(&self, segment: u64, offset: u64, found: &RangeExplanation) -> TrafficShare {
        let holds = |asking: &&RequestedRange| {
            let piece = &asking.range;
            piece.segment == segment && piece.range().contains(offset)
        };
        let asked = self.counted.recent().rev().find(holds);
        asked.map_or(TrafficShare::of(found.why.reason), |asked| asked.share)
    }

    /// Explains each subscribed range of rows of a stream that overlaps a span of time, by segment,
    /// like [`Planner::explain`]; a segment without subscribed rows of it is listed without a
    /// range.
    ///
    /// # Errors
    /// The copy's own.
    pub fn explain_stream(
        &self,
        stream: &StreamName,
        span: ClosedRange,
        ranges_max: usize,
    ) -> Result<Vec<ExplainedSegment>> {
        let by = self.score;
        let score = |facts: &LeafFacts| score(by, facts);
        let found = self.copy.explain_stream(stream, span, &score, ranges_max)?;
        let with_share = |(segment, found): (u64, Option<RangeExplanation>)| {
            let found = found.map(|found| {
                let share = self.share_of(segment, found.range.offset, &found);
                (found, share)
            });
            (segment, found)
        };
        Ok(found.into_iter().map(with_share).collect())
    }

    /// True while a byte of a segment is requested and not answered.
    #[must_use]
    pub fn is_requested(&self, segment: u64, offset: u64) -> bool {
        let mut asked = self.in_flight.iter().flat_map(InFlight::ranges);
        asked.any(|asked| asked.range.segment == segment && asked.range.range().contains(offset))
    }

    /// Bytes that arrived since the planner was made.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.counted.arrived_bytes()
    }

    /// Number of consecutive requests that have failed.
    #[must_use]
    pub fn failures_in_a_row(&self) -> u32 {
        self.failures
    }

    /// True while no request is sent because the source has said so, or requests have failed.
    #[must_use]
    pub fn is_held_back(&self, now: Now) -> bool {
        self.not_before > now.monotonic
    }

    /// Error of the copy's device: the copy is to be opened again, and the planner created again.
    /// [`Planner::receive`] fails with the same error.
    #[must_use]
    pub fn failed(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Reason why no requests are sent any more: the source has another history than the copy.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Starts a comparison of present ranges with the source, both read from their devices, and
    /// proves all segments again, from the device here, as far as they can be proven.
    pub fn verify(&mut self) {
        self.verifier.begin(&self.copy);
    }

    /// Result of the last comparison, when it is complete.
    #[must_use]
    pub fn verified(&self) -> Option<Verified> {
        self.verifier.verified()
    }

    /// Ranges that differ by the comparison. For segments that can be proven, [`Planner::proven`]
    /// reports which node is right.
    #[must_use]
    pub fn different(&self) -> &[SegmentRange] {
        self.verifier.different()
    }

    /// Stats of checking present segments against the ledger, as far as checked; the source reads
    /// no data for that. A differing range of a proven segment is wrong at the source.
    #[must_use]
    pub fn proven(&self) -> ProvenStats {
        self.verifier.proven(&self.copy.state())
    }

    /// True while segments are being proven.
    #[must_use]
    pub fn is_proving(&self) -> bool {
        self.verifier.is_proving()
    }

    /// Drops ranges that differ, so that they are fetched again: for use when the source is right.
    /// Ranges that are proven here are not dropped.
    ///
    /// # Errors
    /// The copy's own.
    pub fn fetch_again(&mut self) -> Result<()> {
        self.commit_received()?;
        self.verifier.fetch_again(&self.copy)
    }

    /// True if there is no range to request until the source announces a change.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
            && self.uncommitted.is_empty()
            && !self.is_outdated
            && !self.challenges.is_pending()
            && !self.verifier.is_busy()
            && match self.source_missing.is_empty() && self.policy == Policy::Shares {
                true => {
                    self.copy.missing_bytes() == 0
                        && self.copy.missing_for(Reason::Requested, 1).is_empty()
                        && self.by_score(1).is_ok_and(|rows| rows.is_empty())
                }
                false => self.filling().is_ok_and(|filling| filling.is_empty()),
            }
    }

    /// True if a subscribed range is missing at the source itself.
    #[must_use]
    pub fn is_ahead_of_its_source(&self) -> bool {
        !self.source_missing.is_empty()
    }

    fn by_score(&self, bytes_max: u64) -> Result<Vec<Missing>> {
        let by = self.score;
        self.copy
            .missing_by_score(&|facts| score(by, facts), bytes_max)
    }

    fn record_failure(&mut self, now: Now) {
        let doubled = self
            .limits
            .wait_first
            .saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.window.reset();
        self.window.pace.reset();
        self.counted.failures += 1;
        self.not_before = now.monotonic + doubled.min(self.limits.wait_most);
    }

    fn add_request(&mut self, now: Now, kind: RequestKind) -> u64 {
        let request = self.next_request;
        let (in_flight, window) = (self.in_flight.len(), self.window.size());
        assert!(in_flight < window, "{in_flight} requests of {window}");
        assert!(self.find(request).is_none(), "{request} is in flight");
        let is_other = |o: &InFlight| discriminant(&o.kind) != discriminant(&kind);
        let is_one_of_many = matches!(kind, RequestKind::Ranges(_));
        assert!(
            is_one_of_many || self.in_flight.iter().all(is_other),
            "a state or comparison is requested twice"
        );
        self.next_request = self.next_request.wrapping_add(1);
        self.counted.requests += 1;
        let on_their_way = self.on_their_way();
        self.window.pace.requested(now.monotonic, on_their_way);
        self.in_flight.push(InFlight {
            request,
            since: now.monotonic,
            until: now.monotonic + self.limits.answer_within,
            kind,
            has_progressed: false,
            is_missing_reported: false,
        });
        request
    }

    /// The next message to send, if any.
    pub fn next(&mut self, now: Now) -> Option<Message> {
        if self.refused.is_some() || self.failed.is_some() {
            return None;
        }
        if let Some(asked) = self.tail.next(now, &self.copy) {
            return Some(asked);
        }
        if let Some(answer) = self.challenges.next(now, &self.copy) {
            return Some(answer);
        }
        let mut is_overdue = false;
        while let Some(at) = (self.in_flight.iter()).position(|o| o.until <= now.monotonic) {
            self.put_back(at);
            is_overdue = true;
        }
        if is_overdue {
            self.record_failure(now);
        }
        let has_room =
            self.in_flight.len() < self.window.size() && self.window.room(self.on_their_way()) > 0;
        let said = match has_room && now.monotonic >= self.not_before {
            true => self.next_message(now),
            false => self.commit_if_due(now).map(|()| None),
        };
        match said {
            Ok(said) => said,
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn next_message(&mut self, now: Now) -> Result<Option<Message>> {
        self.commit_if_due(now)?;
        self.copy.end_pins(now.wall)?;
        if self.verifier.is_proving() {
            self.verifier.work(&self.copy)?;
            self.looked_at = None;
            if self.distrusts && self.drop_disproved()? {
                return Ok(None);
            }
        }
        self.source_missing
            .retain_segments(now.monotonic, &self.copy.state());
        if let Some(confirmation) = self.confirmation() {
            return Ok(Some(confirmation));
        }
        let state = self.copy.state().name();
        // Comparisons and other requests alternate.
        if std::mem::take(&mut self.compares)
            && !self.needs_state
            && let Some(comparison) = self.comparison(now)
        {
            return Ok(Some(comparison));
        }
        let plan = self.plan(now)?;
        self.compares = true;
        Ok(match plan {
            Plan::Idle if self.needs_state => None,
            Plan::Idle => self.comparison(now),
            Plan::State => {
                let request = self.add_request(now, RequestKind::State);
                self.announced.clear();
                let known_state = (!self.needs_whole_state).then_some(state);
                Some(Message::AskState {
                    request,
                    known_state,
                })
            }
            Plan::Ranges(asking) => {
                let ranges = asking.iter().map(|a| a.range).collect();
                self.source_missing
                    .record_requested(asking.iter().map(|a| a.range));
                self.counted.requested(&asking);
                let request = self.add_request(now, RequestKind::Ranges(asking));
                Some(Message::Fetch {
                    request,
                    state,
                    ranges,
                })
            }
        })
    }

    /// Drops segments that do not match the hashes computed where they were written, so that they
    /// are fetched again; true if a segment mismatched a second time.
    fn drop_disproved(&mut self) -> Result<bool> {
        let state = self.copy.state();
        let disproved = self.verifier.proven(&state).disproved;
        let wrong: Vec<u64> = disproved.into_iter().chain(self.copy.damaged()).collect();
        if !wrong.is_empty() {
            // What is not committed may be wrong, too.
            self.commit_received()?;
        }
        for segment in wrong {
            if !self.fetched_again.insert(segment) {
                self.copy.drop_tail();
                self.refused = Some(format!(
                    "segment {segment} does not match the hashes of its source, and was received so twice"
                ));
                self.in_flight.clear();
            }
            self.verifier.forget(segment);
            self.copy.forget(segment, 0, u64::MAX)?;
        }
        Ok(self.refused.is_some())
    }

    /// The unconfirmed ranges that are on the device.
    fn confirmation(&mut self) -> Option<Message> {
        let changes = self.copy.changes();
        if self.looked_at.replace(changes) == Some(changes) {
            return None;
        }
        let progress = self.copy.progress();
        let state = self.copy.state();
        let mut segments = state.segments();
        let complete = progress.complete.iter().filter_map(|id| {
            let found = segments.find(|s| s.id == *id)?;
            Some((found.id, found.bytes))
        });
        let segments: Vec<(u64, u64)> = complete.collect();
        let proofs = segments.iter().filter_map(|(id, _)| {
            let found = self.verifier.proof_outcome(&state, *id);
            match found {
                Some(ProofOutcome::Proven(_, head)) => Some((*id, head)),
                Some(ProofOutcome::Disproved(..)) | None => None,
            }
        });
        let now = Confirmation {
            state: progress.state,
            proofs: proofs.collect(),
            segments,
        };
        if self.confirmed.as_ref() == Some(&now) {
            return None;
        }
        self.confirmed = Some(now.clone());
        Some(Message::Confirm {
            state: now.state,
            segments: now.segments,
            proofs: now.proofs,
        })
    }

    /// The next comparison.
    fn comparison(&mut self, now: Now) -> Option<Message> {
        // One at a time: each comparison costs the source reads of its device.
        let compares = |o: &InFlight| matches!(o.kind, RequestKind::Digests(_));
        if self.in_flight.iter().any(compares) {
            return None;
        }
        let (state, ranges) = self.verifier.next(&self.copy, self.limits.request_bytes)?;
        let request = self.add_request(now, RequestKind::Digests(ranges.clone()));
        Some(Message::Compare {
            request,
            state,
            ranges,
        })
    }

    /// Processes a message of the source.
    ///
    /// # Errors
    /// The copy's own: it is to be opened again.
    pub fn receive(&mut self, now: Now, message: Message) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let request = match &message {
            Message::Hello(name) => {
                self.take_hello(*name);
                return Ok(());
            }
            Message::MissingRanges { .. } => {
                return self.take_holes(now, message);
            }
            Message::Tail { request, bytes } => {
                self.tail.receive(*request, bytes, &self.copy);
                return Ok(());
            }
            Message::Challenge {
                request,
                nonce,
                ranges,
            } => {
                self.challenges.take(*request, *nonce, ranges.clone());
                return Ok(());
            }
            Message::State { request, .. }
            | Message::Bytes { request, .. }
            | Message::Digests { request, .. }
            | Message::Done { request }
            | Message::Wait { request, .. }
            | Message::Unavailable { request }
            | Message::Refused { request, .. } => *request,
            // Messages of a copy are never sent to a copy.
            _ => return Ok(()),
        };
        match self.find(request) {
            Some(at) => self.take_answer(now, at, message),
            None => Ok(()),
        }
    }

    fn take_hello(&mut self, name: StateName) {
        self.is_outdated |= name != self.copy.state().name();
        if self.announced.len() < ANNOUNCED_MAX && !self.announced.contains(&name) {
            self.announced.push(name);
        }
        // The source may have restarted, and has to receive the confirmation again.
        self.confirmed = None;
        self.looked_at = None;
    }
}
