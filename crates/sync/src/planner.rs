//! The side of the copy: it asks for what the copy lacks, in requests filled from shares by weight
//! ([`crate::shares`]), and confirms what is on its medium. Some requests are on their way at once,
//! as many as are answered soon ([`crate::window`]).
//!
//! Invariants: no share starves, states among them; an answer counts only for a request that is on
//! its way, and nothing is on its way twice; a request that is not answered in time is given up,
//! and asked again later and later until something comes. What is confirmed was synced by the copy
//! before. A source of another history is refused for good.
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
use crate::window::{Asked, OnItsWay, Window};
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
    /// Requests that are on their way at once, at the most; 0 counts as 1.
    pub requests: usize,
    /// A request of which nothing comes for so long is given up.
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
            requests: 8,
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

/// Plans what a copy asks for.
#[derive(Debug)]
pub struct Planner {
    copy: RemoteCopy,
    limits: PlannerLimits,
    next_request: u64,
    on_its_way: Vec<OnItsWay>,
    window: Window,
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
    /// When it was looked at last what there is to confirm, in changes of the copy.
    looked_at: Option<u64>,
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
            window: Window::new(limits.requests),
            limits,
            next_request: first_request,
            on_its_way: Vec::new(),
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
            looked_at: None,
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

    /// True while segments are being proven.
    #[must_use]
    pub fn is_proving(&self) -> bool {
        self.verifier.is_proving()
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
        self.on_its_way.is_empty()
            && !self.wants_state
            && !self.verifier.is_busy()
            && self.copy.missing_bytes() == 0
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
        self.window.begin_anew();
        self.counted.failures += 1;
        self.not_before = now.monotonic + doubled.min(self.limits.wait_most);
    }

    fn ask(&mut self, now: Now, asked: Asked) -> u64 {
        let request = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        self.counted.requests += 1;
        self.on_its_way.push(OnItsWay {
            request,
            since: now.monotonic,
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
        let mut is_overdue = false;
        while let Some(at) = (self.on_its_way.iter()).position(|o| o.until <= now.monotonic) {
            self.put_back(at);
            is_overdue = true;
        }
        if is_overdue {
            self.has_failed(now);
        }
        if now.monotonic < self.not_before || self.on_its_way.len() >= self.window.size() {
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
        if self.verifier.is_proving() {
            self.verifier.work(&self.copy)?;
            self.looked_at = None;
        }
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
        let asks_for_state = |o: &OnItsWay| matches!(o.asked, Asked::State);
        let state_comes = self.on_its_way.iter().any(asks_for_state);
        let on_their_way = self.on_its_way.iter().flat_map(OnItsWay::pieces);
        let filling = Filling {
            copy: &self.copy,
            score: &|facts| score(by, facts),
            most: self.limits.request_bytes.max(1),
            wants_state: self.wants_state && !state_comes,
            on_their_way: on_their_way.map(|asking| asking.piece).collect(),
        };
        // Nothing can be fetched of a state that is not held any more.
        let plan = match (self.needs_state, state_comes) {
            (true, true) => Plan::Nothing,
            (true, false) => Plan::State,
            (false, _) => filling.fill(&mut self.turns)?,
        };
        if matches!(plan, Plan::State) {
            self.turns.charge(Share::States, self.state_bytes);
        }
        Ok(plan)
    }

    /// What is on the medium and was not confirmed yet.
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
        // One at a time: it costs the source reads of its medium.
        let compares = |o: &OnItsWay| matches!(o.asked, Asked::Digests(_));
        if self.on_its_way.iter().any(compares) {
            return None;
        }
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
        let request = match &message {
            Message::Hello(name) => {
                self.take_hello(*name);
                return Ok(());
            }
            Message::State { request, .. }
            | Message::Bytes { request, .. }
            | Message::Digests { request, .. }
            | Message::Done { request }
            | Message::Wait { request, .. }
            | Message::Gone { request }
            | Message::Refused { request, .. } => *request,
            // What a copy says is said to no copy.
            _ => return Ok(()),
        };
        match self.find(request) {
            Some(at) => self.take_answer(now, at, message),
            None => Ok(()),
        }
    }

    fn take_hello(&mut self, name: StateName) {
        self.wants_state |= name != self.copy.state().name();
        if self.heard.len() < HEARD_MAX && !self.heard.contains(&name) {
            self.heard.push(name);
        }
        // It may have been started anew, and learns again what is here.
        self.confirmed = None;
        self.looked_at = None;
    }

    /// Takes what answers a request, by where it is among those on their way.
    fn take_answer(&mut self, now: Now, at: usize, message: Message) -> Result<()> {
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
                self.window.begin_anew();
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
                    true => self.refused = Some(text),
                    false => self.has_failed(now),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_bytes(
        &mut self,
        now: Now,
        at: usize,
        (segment, offset): (u64, u64),
        bytes: &[u8],
    ) -> Result<()> {
        match self.copy.put(segment, offset, bytes) {
            // It was not asked for.
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
        let answered = self.on_its_way.remove(at);
        self.copy.commit()?;
        self.verifier.look_again();
        self.look_for_asked(answered.pieces());
        match answered.has_brought {
            true => {
                self.failures = 0;
                let was_full = self.on_its_way.len() + 1 >= self.window.size();
                let took = now.monotonic.saturating_sub(answered.since);
                self.window.answered(took, was_full);
            }
            false => self.has_failed(now),
        }
        Ok(())
    }

    /// Ends a request of which nothing more is granted.
    fn take_back(&mut self, at: usize) -> Result<()> {
        self.refund(at);
        self.put_back(at);
        self.copy.commit()?;
        Ok(())
    }

    /// Where a request is among those on their way.
    fn find(&self, request: u64) -> Option<usize> {
        let mut all = self.on_its_way.iter();
        all.position(|on_its_way| on_its_way.request == request)
    }

    fn has_brought(&mut self, now: Now, at: usize) {
        self.counted.last_success = Some(now.wall);
        if let Some(on_its_way) = self.on_its_way.get_mut(at) {
            on_its_way.has_brought = true;
        }
    }

    /// Counts what arrived in the share out of which it was asked for. As long as something comes,
    /// the others wait: what was asked for first is answered first.
    fn count_arrived(&mut self, now: Now, at: usize, place: (u64, u64), bytes: u64) {
        let asked = self.on_its_way.get_mut(at).map(|o| &mut o.asked);
        if let Some(Asked::Pieces(asking)) = asked {
            let is_it = |a: &&mut Asking| (a.piece.segment, a.piece.offset) == place;
            if let Some(asking) = asking.iter_mut().find(is_it) {
                let is_first = !std::mem::replace(&mut asking.has_come, true);
                self.counted.arrived(asking.share, bytes);
                let until = now.monotonic + self.limits.answer_within;
                for other in self.on_its_way.iter_mut().filter(|_| is_first) {
                    other.until = other.until.max(until);
                }
            }
        }
    }

    /// What was not granted is not counted against its share: else the shares whose turn it would
    /// have been would come off badly whenever an answer is cut short.
    fn refund(&mut self, at: usize) {
        let asked = self.on_its_way.get(at).into_iter();
        for asking in asked.flat_map(OnItsWay::pieces).filter(|a| !a.has_come) {
            let bytes = u64::from(asking.piece.bytes);
            self.turns.refund(asking.share, bytes);
        }
    }

    /// What readers asked for is forgotten when it does not come, again and again.
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

    /// The source refuses what was asked for: readers do not ask for it any more.
    fn forget_asked(&mut self, at: usize) {
        let asked = self.on_its_way.get(at).into_iter();
        let asking = asked.flat_map(OnItsWay::pieces);
        for Asking { piece, .. } in asking.filter(|a| a.is_asked_for) {
            let bytes = u64::from(piece.bytes);
            self.copy.forget_asked(piece.segment, piece.offset, bytes);
        }
    }

    /// Ends a request that was not answered: what was to be compared still is.
    fn put_back(&mut self, at: usize) {
        let ended = self.on_its_way.remove(at);
        if let Asked::Digests(these) = ended.asked {
            self.verifier.put_back(these);
        }
    }

    fn take_state(&mut self, now: Now, at: usize, bytes: &[u8]) -> Result<()> {
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
            self.on_its_way.remove(at);
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
                self.on_its_way.clear();
                return Ok(());
            }
            other => other?,
        }
        self.has_brought(now, at);
        Ok(())
    }

    /// Compares pieces with what the source has.
    fn take_digests(&mut self, now: Now, at: usize, digests: &[Digest]) {
        let asked = self.on_its_way.get_mut(at).map(|o| &mut o.asked);
        let Some(Asked::Digests(these)) = asked else {
            return;
        };
        let these = std::mem::take(these);
        self.verifier.take_digests(&self.copy, these, digests);
        if !digests.is_empty() {
            self.has_brought(now, at);
        }
    }
}
