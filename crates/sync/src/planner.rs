//! The side of the copy: it asks for what the copy lacks, one request at a time, filled from shares
//! by weight ([`crate::shares`]), and confirms what is on its medium.
//!
//! Invariants: no share starves, states among them; an answer counts only for the request that is
//! on its way; a request that is not answered in time is given up, and asked again later and later
//! until something comes. What is confirmed was synced by the copy before. A source of another
//! history is refused for good.
//! Failure: an error is one of the copy's own medium; then the planner is made anew with the copy
//! opened again.

use crate::figures::{Asking, Counted, PlannerFigures};
use crate::fill::{Filling, Plan};
use crate::message::{Digest, Message, Piece, REFUSED_HISTORY};
use crate::now::Now;
use crate::proof::Found;
use crate::score::{ScoreBy, score};
use crate::shares::{Share, Turns, Weights};
use crate::verify::{ProvenFigures, Verified, Verifier};
use crate::wide::wide;
use headwater_engine::{
    Error, ErrorKind, Explained, Missing, Reason, RemoteCopy, Result, State, StateName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How patient a planner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannerLimits {
    /// Bytes of a request, about.
    pub request_bytes: u64,
    /// A request that is not answered for so long is given up.
    pub answer_within: Duration,
    /// How long to wait after a failure, at first; twice as long after each further one.
    pub wait_first: Duration,
    /// How long to wait at most.
    pub wait_most: Duration,
}

impl Default for PlannerLimits {
    fn default() -> PlannerLimits {
        PlannerLimits {
            request_bytes: 1 << 20,
            answer_within: Duration::from_secs(60),
            wait_first: Duration::from_secs(1),
            wait_most: Duration::from_secs(300),
        }
    }
}

/// What is confirmed: a state, segments with bytes that count, and chains of those that are proven.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Confirmation {
    state: StateName,
    segments: Vec<(u64, u64)>,
    proofs: Vec<(u64, Digest)>,
}

#[derive(Debug)]
enum Asked {
    State,
    Pieces(Vec<Asking>),
    Digests(Vec<Piece>),
}

#[derive(Debug)]
struct OnItsWay {
    request: u64,
    until: Duration,
    asked: Asked,
    /// Something that was asked for came.
    has_brought: bool,
}

/// Plans what a copy asks for.
#[derive(Debug)]
pub struct Planner {
    copy: RemoteCopy,
    limits: PlannerLimits,
    next_request: u64,
    on_its_way: Option<OnItsWay>,
    /// Nothing is asked before.
    not_before: Duration,
    /// Failures in a row.
    failures: u32,
    wants_state: bool,
    /// In which states the source has said to be since its state was asked for, in the order in
    /// which that came: not that in which it was said.
    heard: Vec<StateName>,
    /// The next state is to come whole.
    wants_whole: bool,
    /// Nothing can be fetched of the state that is known.
    needs_state: bool,
    /// What a state takes, as far as is known.
    state_bytes: u64,
    turns: Turns,
    score: ScoreBy,
    counted: Counted,
    /// How often what readers asked for did not come with the answer.
    in_vain: BTreeMap<(u64, u64), u32>,
    /// What the copy's medium refused.
    failed: Option<Error>,
    confirmed: Option<Confirmation>,
    verifier: Verifier,
    refused: Option<String>,
    /// It is the turn of a comparison, if there is one.
    compares: bool,
}

/// What readers asked for, and did not come with so many answers, cannot be had.
const IN_VAIN_MAX: u32 = 3;
/// What a state takes, before one has come.
const STATE_BYTES: u64 = 4 << 10;
/// More states than this in one answer's time are too many to tell apart: the newest is asked for.
const HEARD_MAX: usize = 16;

impl Planner {
    /// A planner for a copy. Requests are numbered from `first_request` on, which should be a
    /// number by chance: what comes late for one before is told by it.
    #[must_use]
    pub fn new(copy: RemoteCopy, limits: PlannerLimits, first_request: u64) -> Planner {
        Planner {
            copy,
            limits,
            next_request: first_request,
            on_its_way: None,
            not_before: Duration::ZERO,
            failures: 0,
            wants_state: true,
            heard: Vec::new(),
            wants_whole: false,
            needs_state: false,
            state_bytes: STATE_BYTES,
            turns: Turns::default(),
            score: ScoreBy::default(),
            counted: Counted::default(),
            in_vain: BTreeMap::new(),
            failed: None,
            confirmed: None,
            verifier: Verifier::default(),
            refused: None,
            compares: true,
        }
    }

    /// The copy.
    #[must_use]
    pub fn copy(&self) -> &RemoteCopy {
        &self.copy
    }

    /// How much of what travels each share gets.
    pub fn set_weights(&mut self, weights: Weights) {
        self.turns.set_weights(weights);
    }

    /// By what rows go before others.
    pub fn set_score(&mut self, score: ScoreBy) {
        self.score = score;
    }

    /// What it has done, and what is left to do.
    #[must_use]
    pub fn figures(&self, now: Now) -> PlannerFigures {
        PlannerFigures {
            shares: self.counted.shares(&self.copy.tallies()),
            requests: self.counted.requests,
            failures: self.counted.failures,
            failures_in_a_row: self.failures,
            last_success: self.counted.last_success,
            waiting_until: Some(self.not_before).filter(|at| *at > now.monotonic),
        }
    }

    /// Pieces that were asked for last, each with the share whose turn it was, oldest first.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &Asking> {
        self.counted.recent()
    }

    /// Why a byte of a segment is here, or is wanted, and as what it travels: by the share whose
    /// turn it was, if it was asked for lately, else by the reason. `None` when nothing wants it
    /// any more.
    ///
    /// # Errors
    /// The copy's own.
    pub fn explain(&self, segment: u64, offset: u64) -> Result<Option<(Explained, Share)>> {
        let by = self.score;
        let found = self
            .copy
            .explain(segment, offset, &|facts| score(by, facts))?;
        let holds = |asking: &&Asking| {
            let piece = &asking.piece;
            let end = piece.offset.saturating_add(u64::from(piece.bytes));
            piece.segment == segment && (piece.offset..end).contains(&offset)
        };
        let asked = self.counted.recent().rev().find(holds);
        Ok(found.map(|found| {
            let by_reason = Share::of(found.why.reason);
            (found, asked.map_or(by_reason, |asked| asked.share))
        }))
    }

    /// What the medium of the copy refused: the planner is to be made anew, with the copy opened
    /// again. [`Planner::take`] fails with it, too.
    #[must_use]
    pub fn failed(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Why nothing is asked any more: the source is of another history than the copy.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Begins to compare what is here with the source, both read from their media; and to prove
    /// anew, by what is on the medium here, what can be proven.
    pub fn verify(&mut self) {
        self.verifier.begin(&self.copy);
    }

    /// What the comparison that was begun last found, when it is through.
    #[must_use]
    pub fn verified(&self) -> Option<Verified> {
        self.verifier.verified()
    }

    /// Pieces that the comparison found to differ. Which side is right says
    /// [`Planner::proven`], of segments that can be proven.
    #[must_use]
    pub fn different(&self) -> &[Piece] {
        self.verifier.different()
    }

    /// What the ledger says of the segments that are here, as far as they were looked at: the
    /// source reads nothing for that. A piece that differs, of a segment that is proven, is wrong
    /// at the source.
    #[must_use]
    pub fn proven(&self) -> ProvenFigures {
        self.verifier.proven(&self.copy.state())
    }

    /// Forgets what differs, so that it is fetched again: for when the source is known to be right.
    /// What is proven to be right here stays.
    ///
    /// # Errors
    /// The copy's own.
    pub fn fetch_again(&mut self) -> Result<()> {
        self.verifier.fetch_again(&self.copy)
    }

    /// True when nothing is to be asked, until the source says that it has changed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.on_its_way.is_none()
            && !self.wants_state
            && !self.verifier.is_busy()
            && self.copy.progress().missing_bytes == 0
            && self.copy.missing_for(Reason::Asked, 1).is_empty()
            && self.by_score(1).is_ok_and(|rows| rows.is_empty())
    }

    fn by_score(&self, bytes_max: u64) -> Result<Vec<Missing>> {
        let by = self.score;
        self.copy
            .missing_by_score(&|facts| score(by, facts), bytes_max)
    }

    fn has_failed(&mut self, now: Now) {
        let doubled = self
            .limits
            .wait_first
            .saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.counted.failures += 1;
        self.not_before = now.monotonic + doubled.min(self.limits.wait_most);
    }

    fn ask(&mut self, now: Now, asked: Asked) -> u64 {
        let request = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        self.counted.requests += 1;
        self.on_its_way = Some(OnItsWay {
            request,
            until: now.monotonic + self.limits.answer_within,
            asked,
            has_brought: false,
        });
        request
    }

    /// What to say now, if anything.
    pub fn next(&mut self, now: Now) -> Option<Message> {
        if self.refused.is_some() || self.failed.is_some() {
            return None;
        }
        if let Some(on_its_way) = &self.on_its_way {
            if now.monotonic < on_its_way.until {
                return None;
            }
            self.put_back();
            self.has_failed(now);
        }
        if now.monotonic < self.not_before {
            return None;
        }
        match self.say(now) {
            Ok(said) => said,
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn say(&mut self, now: Now) -> Result<Option<Message>> {
        self.copy.end_pins(now.wall)?;
        self.verifier.work(&self.copy)?;
        if let Some(confirmation) = self.confirmation() {
            return Ok(Some(confirmation));
        }
        let state = self.copy.state().name();
        // Comparisons and the rest take turns.
        if std::mem::take(&mut self.compares)
            && !self.needs_state
            && let Some(comparison) = self.comparison(now)
        {
            return Ok(Some(comparison));
        }
        let plan = self.plan()?;
        self.compares = true;
        Ok(match plan {
            Plan::Nothing if self.needs_state => None,
            Plan::Nothing => self.comparison(now),
            Plan::State => {
                let request = self.ask(now, Asked::State);
                self.heard.clear();
                let known = (!self.wants_whole).then_some(state);
                Some(Message::AskState { request, known })
            }
            Plan::Pieces(asking) => {
                let pieces = asking.iter().map(|a| a.piece).collect();
                self.counted.asked(&asking);
                let request = self.ask(now, Asked::Pieces(asking));
                Some(Message::Fetch {
                    request,
                    state,
                    pieces,
                })
            }
        })
    }

    /// What to ask for next.
    fn plan(&mut self) -> Result<Plan> {
        let by = self.score;
        let filling = Filling {
            copy: &self.copy,
            score: &|facts| score(by, facts),
            most: self.limits.request_bytes.max(1),
            wants_state: self.wants_state,
        };
        // Nothing can be fetched of a state that is not held any more.
        let plan = match self.needs_state {
            true => Plan::State,
            false => filling.fill(&mut self.turns)?,
        };
        if matches!(plan, Plan::State) {
            self.turns.charge(Share::States, self.state_bytes);
        }
        Ok(plan)
    }

    /// What is on the medium and was not confirmed yet.
    fn confirmation(&mut self) -> Option<Message> {
        let progress = self.copy.progress();
        let state = self.copy.state();
        let mut segments = state.segments();
        let complete = progress.complete.iter().filter_map(|id| {
            let found = segments.find(|s| s.id == *id)?;
            Some((found.id, found.bytes))
        });
        let segments: Vec<(u64, u64)> = complete.collect();
        let proofs = segments.iter().filter_map(|(id, _)| {
            let found = self.verifier.found(&state, *id);
            match found {
                Some(Found::Proven(_, head)) => Some((*id, head)),
                Some(Found::Disproved(..)) | None => None,
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

    /// What to compare next.
    fn comparison(&mut self, now: Now) -> Option<Message> {
        let (state, pieces) = self.verifier.next(&self.copy, self.limits.request_bytes)?;
        let request = self.ask(now, Asked::Digests(pieces.clone()));
        Some(Message::Compare {
            request,
            state,
            pieces,
        })
    }

    /// Takes a message of the source.
    ///
    /// # Errors
    /// The copy's own: it is to be opened again.
    pub fn take(&mut self, now: Now, message: Message) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match message {
            Message::Hello(name) => {
                self.wants_state |= name != self.copy.state().name();
                if self.heard.len() < HEARD_MAX && !self.heard.contains(&name) {
                    self.heard.push(name);
                }
                // It may have been started anew, and learns again what is here.
                self.confirmed = None;
            }
            Message::State { request, bytes } if self.is_answer(request) => {
                self.take_state(now, &bytes)?;
            }
            Message::Bytes {
                request,
                segment,
                offset,
                bytes,
            } if self.is_answer(request) => self.take_bytes(now, (segment, offset), &bytes)?,
            Message::Digests { request, digests } if self.is_answer(request) => {
                self.take_digests(now, &digests);
            }
            Message::Done { request } if self.is_answer(request) => {
                self.take_done(now)?;
            }
            Message::Wait { request, millis } if self.is_answer(request) => {
                self.refund();
                self.put_back();
                self.copy.commit()?;
                self.failures = 0;
                let wait = Duration::from_millis(millis).min(self.limits.wait_most);
                self.not_before = now.monotonic + wait;
            }
            Message::Gone { request } if self.is_answer(request) => {
                self.refund();
                self.put_back();
                self.copy.commit()?;
                self.wants_state = true;
                self.needs_state = true;
            }
            Message::Refused {
                request,
                code,
                text,
            } if self.is_answer(request) => {
                self.forget_asked();
                self.put_back();
                match code == REFUSED_HISTORY {
                    true => self.refused = Some(text),
                    false => self.has_failed(now),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_bytes(&mut self, now: Now, (segment, offset): (u64, u64), bytes: &[u8]) -> Result<()> {
        match self.copy.put(segment, offset, bytes) {
            // It was not asked for.
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            other => {
                other?;
                self.count_arrived(segment, offset, wide(bytes.len()));
                self.has_brought(now);
            }
        }
        Ok(())
    }

    fn take_done(&mut self, now: Now) -> Result<()> {
        let answered = self.on_its_way.take();
        self.copy.commit()?;
        self.verifier.look_again();
        if let Some(answered) = &answered {
            self.look_for_asked(&answered.asked);
        }
        match answered.is_some_and(|a| a.has_brought) {
            true => self.failures = 0,
            false => self.has_failed(now),
        }
        Ok(())
    }

    fn is_answer(&self, request: u64) -> bool {
        let on_its_way = self.on_its_way.as_ref();
        on_its_way.is_some_and(|on_its_way| on_its_way.request == request)
    }

    fn has_brought(&mut self, now: Now) {
        self.counted.last_success = Some(now.wall);
        if let Some(on_its_way) = &mut self.on_its_way {
            on_its_way.has_brought = true;
        }
    }

    /// Counts what arrived in the share out of which it was asked for.
    fn count_arrived(&mut self, segment: u64, offset: u64, bytes: u64) {
        let asked = self.on_its_way.as_mut().map(|o| &mut o.asked);
        if let Some(Asked::Pieces(asking)) = asked {
            let is_it = |a: &&mut Asking| (a.piece.segment, a.piece.offset) == (segment, offset);
            if let Some(asking) = asking.iter_mut().find(is_it) {
                asking.has_come = true;
                self.counted.arrived(asking.share, bytes);
            }
        }
    }

    /// What was not granted is not counted against its share: else the shares whose turn it would
    /// have been would come off badly whenever an answer is cut short.
    fn refund(&mut self) {
        let asked = self.on_its_way.as_ref().map(|o| &o.asked);
        if let Some(Asked::Pieces(asking)) = asked {
            for asking in asking.iter().filter(|a| !a.has_come) {
                let bytes = u64::from(asking.piece.bytes);
                self.turns.refund(asking.share, bytes);
            }
        }
    }

    /// What readers asked for is forgotten when it does not come, again and again.
    fn look_for_asked(&mut self, asked: &Asked) {
        let Asked::Pieces(asking) = asked else {
            return;
        };
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

    /// The source refuses what was asked for: readers do not ask for it any more.
    fn forget_asked(&mut self) {
        let asked = self.on_its_way.as_ref().map(|o| &o.asked);
        if let Some(Asked::Pieces(asking)) = asked {
            for Asking { piece, .. } in asking.iter().filter(|a| a.is_asked_for) {
                let bytes = u64::from(piece.bytes);
                self.copy.forget_asked(piece.segment, piece.offset, bytes);
            }
        }
    }

    /// Ends a request that was not answered: what was to be compared still is.
    fn put_back(&mut self) {
        let ended = self.on_its_way.take();
        if let Some(OnItsWay {
            asked: Asked::Digests(these),
            ..
        }) = ended
        {
            self.verifier.put_back(these);
        }
    }

    fn take_state(&mut self, now: Now, bytes: &[u8]) -> Result<()> {
        let known = self.copy.state();
        let more = wide(bytes.len()).saturating_sub(self.state_bytes);
        if more > 0 {
            self.turns.charge(Share::States, more);
        }
        self.state_bytes = wide(bytes.len()).max(1);
        self.counted.arrived(Share::States, self.state_bytes);
        let Ok(state) = State::decode(bytes, Some(&known)) else {
            // What differs from a state that is not known, or no state at all.
            self.wants_whole = true;
            self.on_its_way = None;
            self.has_failed(now);
            return Ok(());
        };
        // One of the same age may be of another view: tables may leave that might not, or not any
        // more.
        let view = state.name().view;
        let is_older = |heard: &StateName| !state.goes_on_from(heard) || heard.view != view;
        self.wants_state = self.heard.len() >= HEARD_MAX || self.heard.iter().any(is_older);
        self.wants_whole = false;
        self.needs_state = false;
        self.verifier.look_again();
        match self.copy.take_state(state) {
            Err(error) if error.kind() == ErrorKind::Invalid => {
                self.refused = Some(error.to_string());
                self.on_its_way = None;
                return Ok(());
            }
            other => other?,
        }
        self.has_brought(now);
        Ok(())
    }

    /// Compares pieces with what the source has.
    fn take_digests(&mut self, now: Now, digests: &[Digest]) {
        let asked = self.on_its_way.as_mut().map(|o| &mut o.asked);
        let Some(Asked::Digests(these)) = asked else {
            return;
        };
        let these = std::mem::take(these);
        self.verifier.take_digests(&self.copy, these, digests);
        if !digests.is_empty() {
            self.has_brought(now);
        }
    }
}
