//! The side of the copy: it requests the ranges that the copy lacks, filled from shares by weight
//! ([`crate::replication::shares`]), and confirms what is on its medium. Several requests are in
//! flight, as many as are answered soon ([`crate::replication::window`]). Ranges that a source lacks
//! itself, since it is a copy, are set aside until it has them ([`crate::replication::lacking`]).
//!
//! Invariants: no share starves, states among them; an answer counts only for a request that is on
//! its way, and nothing is on its way twice; a request that is not answered in time is given up,
//! and asked again later and later until something comes. What is confirmed was synced by the copy
//! before. A source of another history is refused for good.
//! Failure: an error is one of the copy's own medium; then the planner is made anew with the copy
//! opened again.

mod answers;

use crate::replication::figures::{Asking, Counted, PlannerFigures};
use crate::replication::fill::{Filling, Limits, Plan};
use crate::replication::lacking::Lacking;
use crate::replication::message::{Digest, Message, Piece};
use crate::replication::now::Now;
use crate::replication::policy::Policy;
use crate::replication::proof::Found;
use crate::replication::score::{ScoreBy, score};
use crate::replication::shares::{Share, Turns, Weights};
use crate::replication::tail::TailAsker;
use crate::replication::verify::{ProvenFigures, Verified, Verifier};
use crate::replication::window::{Asked, OnItsWay, Window};
use answers::HEARD_MAX;
use headwater_engine::{Error, Explained, Missing, Reason, RemoteCopy, Result, StateName};
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
    weights: Weights,
    policy: Policy,
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
    /// What the source has not itself.
    lacking: Lacking,
    /// What the source gives is proven as soon as it can be, and not kept if that fails.
    distrusts: bool,
    /// Segments that were fetched again since they held something else.
    fetched_again: BTreeSet<u64>,
    /// Asks for newest events, beside all else.
    tail: TailAsker,
}

/// What a state takes, before one has come.
const STATE_BYTES: u64 = 4 << 10;

impl Planner {
    /// A planner for a copy. Requests are numbered from `first_request` on, which should be a
    /// number by chance: what comes late for one before is told by it.
    #[must_use]
    pub fn new(copy: RemoteCopy, limits: PlannerLimits, first_request: u64) -> Planner {
        // What was said of what cannot be had was said by a source of before.
        copy.do_without_nothing();
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
            weights: Weights::default(),
            policy: Policy::default(),
            score: ScoreBy::default(),
            counted: Counted::default(),
            in_vain: BTreeMap::new(),
            failed: None,
            confirmed: None,
            looked_at: None,
            verifier: Verifier::default(),
            refused: None,
            compares: true,
            lacking: Lacking::default(),
            distrusts: false,
            fetched_again: BTreeSet::new(),
            tail: TailAsker::default(),
        }
    }

    /// The source passes on what another node has written: a segment that does not hold what was
    /// hashed there is forgotten and fetched again, and the second time the source is refused. A
    /// source that has written it itself is believed, and whoever looks at [`Planner::proven`] is
    /// told.
    pub fn distrust(&mut self) {
        self.distrusts = true;
    }

    /// The source sends its newest events along, or does not.
    pub fn set_live(&mut self, is_live: bool) {
        // Other numbers than those of the requests, of which no more than one is on its way.
        self.tail.set_wanted(is_live, self.next_request ^ (1 << 63));
    }

    /// The copy.
    #[must_use]
    pub fn copy(&self) -> &RemoteCopy {
        &self.copy
    }

    /// How much of what travels each share gets under [`Policy::Shares`].
    pub fn set_weights(&mut self, weights: Weights) {
        self.weights = weights;
        self.turns.set_weights(self.policy.weights(weights));
    }

    /// What is copied before somebody asks for it.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.turns.set_weights(policy.weights(self.weights));
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
            && match self.lacking.is_empty() && self.policy == Policy::Shares {
                true => {
                    self.copy.missing_bytes() == 0
                        && self.copy.missing_for(Reason::Asked, 1).is_empty()
                        && self.by_score(1).is_ok_and(|rows| rows.is_empty())
                }
                false => self.filling().is_ok_and(|filling| filling.is_nothing()),
            }
    }

    /// True when something is wanted that the source lacks itself.
    #[must_use]
    pub fn is_ahead_of_its_source(&self) -> bool {
        !self.lacking.is_empty()
    }

    fn by_score(&self, bytes_max: u64) -> Result<Vec<Missing>> {
        let by = self.score;
        self.copy
            .missing_by_score(&|facts| score(by, facts), bytes_max)
    }

    /// What there is to ask for.
    fn filling(&self) -> Result<Filling> {
        let by = self.score;
        let on_their_way = self.on_its_way.iter().flat_map(OnItsWay::pieces);
        let asks_for_state = |o: &OnItsWay| matches!(o.asked, Asked::State);
        let state_comes = self.on_its_way.iter().any(asks_for_state);
        Filling::of(
            &self.copy,
            &|facts| score(by, facts),
            &self.lacking.open(),
            &on_their_way.map(|asking| asking.piece).collect::<Vec<_>>(),
            Limits {
                most: self.limits.request_bytes.max(1),
                wants_state: self.wants_state && !state_comes,
                policy: self.policy,
            },
        )
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
            was_told: false,
        });
        request
    }

    /// What to say now, if anything.
    pub fn next(&mut self, now: Now) -> Option<Message> {
        if self.refused.is_some() || self.failed.is_some() {
            return None;
        }
        if let Some(asked) = self.tail.next(now, &self.copy) {
            return Some(asked);
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
            if self.distrusts && self.is_deceived()? {
                return Ok(None);
            }
        }
        self.lacking.keep(now.monotonic, &self.copy.state());
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
                self.lacking.asked(asking.iter().map(|a| a.piece));
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
        let asks_for_state = |o: &OnItsWay| matches!(o.asked, Asked::State);
        let state_comes = self.on_its_way.iter().any(asks_for_state);
        // Nothing can be fetched of a state that is not held any more.
        let plan = match (self.needs_state, state_comes) {
            (true, true) => Plan::Nothing,
            (true, false) => Plan::State,
            (false, _) => self.filling()?.fill(&mut self.turns),
        };
        if matches!(plan, Plan::State) {
            self.turns.charge(Share::States, self.state_bytes);
        }
        Ok(plan)
    }

    /// Forgets segments that do not hold what was hashed where they were written, so that they are
    /// fetched again; true when one has come so twice.
    fn is_deceived(&mut self) -> Result<bool> {
        let state = self.copy.state();
        let disproved = self.verifier.proven(&state).disproved;
        for segment in disproved.into_iter().chain(self.copy.damaged()) {
            if !self.fetched_again.insert(segment) {
                self.copy.drop_tail();
                self.refused = Some(format!(
                    "segment {segment} is not what was hashed where it was written, and came so twice"
                ));
                self.on_its_way.clear();
            }
            self.verifier.forget(segment);
            self.copy.forget(segment, 0, u64::MAX)?;
        }
        Ok(self.refused.is_some())
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
            Message::Holes { .. } => {
                return self.take_holes(now, message);
            }
            Message::Tail { request, bytes } => {
                self.tail.take(*request, bytes, &self.copy);
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
}
