//! The side of the copy: it asks for what the copy lacks, coarse before fine, one request at a
//! time, and confirms what is on its medium.
//!
//! Invariants: an answer counts only for the request that is on its way; a request that is not
//! answered in time is given up, and asked again later and later until something comes. What is
//! confirmed was synced by the copy before. A source of another history is refused for good.
//! Failure: an error is one of the copy's own medium; then the planner is made anew with the copy
//! opened again.

use crate::agent::{PIECE_MAX, digest};
use crate::message::{Digest, Message, Piece, REFUSED_HISTORY};
use crate::now::Now;
use headwater_engine::{ErrorKind, RemoteCopy, Result, State, StateName};
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

/// What a comparison with the source found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Bytes that are the same on both media.
    pub equal: u64,
    /// Bytes of pieces that are not, or cannot be read on one side.
    pub different: u64,
    /// Bytes that are wanted and not here.
    pub missing: u64,
}

/// A comparison on its way.
#[derive(Debug)]
struct Verifying {
    state: StateName,
    /// Pieces that are not compared yet, the last ones first.
    left: Vec<Piece>,
    found: Verified,
}

#[derive(Debug)]
enum Asked {
    State,
    Pieces,
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
    confirmed: Option<(StateName, usize)>,
    refused: Option<String>,
    verifying: Option<Verifying>,
    verified: Option<Verified>,
    /// Pieces that the newest comparison found to differ.
    different: Vec<Piece>,
}

/// More states than this in one answer's time are too many to tell apart: the newest is asked for.
const HEARD_MAX: usize = 16;

/// A range as pieces.
fn pieces(segment: u64, offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
    let size = u64::from(PIECE_MAX);
    (0..bytes.div_ceil(size)).map(move |n| Piece {
        segment,
        offset: offset + n * size,
        bytes: u32::try_from((bytes - n * size).min(size)).unwrap_or(PIECE_MAX),
    })
}

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
            confirmed: None,
            refused: None,
            verifying: None,
            verified: None,
            different: Vec::new(),
        }
    }

    /// The copy.
    #[must_use]
    pub fn copy(&self) -> &RemoteCopy {
        &self.copy
    }

    /// Why nothing is asked any more: the source is of another history than the copy.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Begins to compare what is here with the source, both read from their media.
    pub fn verify(&mut self) {
        let present = self.copy.present();
        let left = present
            .iter()
            .flat_map(|(id, at, len)| pieces(*id, *at, *len));
        self.verified = None;
        self.different.clear();
        self.verifying = Some(Verifying {
            state: self.copy.state().name(),
            left: left.collect(),
            found: Verified::default(),
        });
    }

    /// What the comparison that was begun last found, when it is through.
    #[must_use]
    pub fn verified(&self) -> Option<Verified> {
        self.verified
    }

    /// Pieces that the comparison found to differ. Which side is right it does not say.
    #[must_use]
    pub fn different(&self) -> &[Piece] {
        &self.different
    }

    /// Forgets what differs, so that it is fetched again: for when the source is known to be right.
    ///
    /// # Errors
    /// The copy's own.
    pub fn fetch_again(&mut self) -> Result<()> {
        for piece in std::mem::take(&mut self.different) {
            let bytes = u64::from(piece.bytes);
            self.copy.forget(piece.segment, piece.offset, bytes)?;
        }
        Ok(())
    }

    /// True when nothing is to be asked, until the source says that it has changed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.on_its_way.is_none()
            && !self.wants_state
            && self.verifying.is_none()
            && self.copy.progress().missing_bytes == 0
    }

    fn has_failed(&mut self, now: Now) {
        let doubled = self
            .limits
            .wait_first
            .saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.monotonic + doubled.min(self.limits.wait_most);
    }

    fn ask(&mut self, now: Now, asked: Asked) -> u64 {
        let request = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
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
        if self.refused.is_some() {
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
        if let Some(confirmation) = self.confirmation() {
            return Some(confirmation);
        }
        let state = self.copy.state().name();
        if self.wants_state {
            let request = self.ask(now, Asked::State);
            self.heard.clear();
            let known = (!self.wants_whole).then_some(state);
            return Some(Message::AskState { request, known });
        }
        if let Some(comparison) = self.comparison(now, &state) {
            return Some(comparison);
        }
        let missing = self.copy.missing(self.limits.request_bytes);
        let all = missing
            .iter()
            .flat_map(|m| pieces(m.segment, m.range.offset, m.range.bytes));
        let all: Vec<Piece> = all.collect();
        if all.is_empty() {
            return None;
        }
        let request = self.ask(now, Asked::Pieces);
        Some(Message::Fetch {
            request,
            state,
            pieces: all,
        })
    }

    /// What is on the medium and was not confirmed yet.
    fn confirmation(&mut self) -> Option<Message> {
        let progress = self.copy.progress();
        let now = (progress.state, progress.complete.len());
        if self.confirmed == Some(now) {
            return None;
        }
        self.confirmed = Some(now);
        let state = self.copy.state();
        let mut segments = state.segments();
        let complete = progress.complete.iter().filter_map(|id| {
            let found = segments.find(|s| s.id == *id)?;
            Some((found.id, found.bytes))
        });
        Some(Message::Confirm {
            state: progress.state,
            segments: complete.collect(),
        })
    }

    /// What to compare next.
    fn comparison(&mut self, now: Now, state: &StateName) -> Option<Message> {
        let verifying = self.verifying.as_mut()?;
        if verifying.state != *state {
            // Segments that are gone are not compared; the others are, from the beginning.
            self.verify();
            return self.comparison_of(now);
        }
        self.comparison_of(now)
    }

    fn comparison_of(&mut self, now: Now) -> Option<Message> {
        let most = usize::try_from(self.limits.request_bytes >> 12)
            .unwrap_or(1)
            .clamp(1, 256);
        let verifying = self.verifying.as_mut()?;
        if verifying.left.is_empty() {
            let missing = self.copy.progress().missing_bytes;
            self.verified = Some(Verified {
                missing,
                ..verifying.found
            });
            self.verifying = None;
            return None;
        }
        let from = verifying.left.len().saturating_sub(most);
        let these = verifying.left.split_off(from);
        let state = verifying.state;
        let request = self.ask(now, Asked::Digests(these.clone()));
        Some(Message::Compare {
            request,
            state,
            pieces: these,
        })
    }

    /// Takes a message of the source.
    ///
    /// # Errors
    /// The copy's own: it is to be opened again.
    pub fn take(&mut self, now: Now, message: Message) -> Result<()> {
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
            } if self.is_answer(request) => match self.copy.put(segment, offset, &bytes) {
                // It was not asked for.
                Err(error) if error.kind() == ErrorKind::Invalid => {}
                other => {
                    other?;
                    self.has_brought();
                }
            },
            Message::Digests { request, digests } if self.is_answer(request) => {
                self.take_digests(&digests);
            }
            Message::Done { request } if self.is_answer(request) => {
                let answered = self.on_its_way.take();
                self.copy.commit()?;
                match answered.is_some_and(|a| a.has_brought) {
                    true => self.failures = 0,
                    false => self.has_failed(now),
                }
            }
            Message::Wait { request, millis } if self.is_answer(request) => {
                self.put_back();
                self.copy.commit()?;
                self.failures = 0;
                let wait = Duration::from_millis(millis).min(self.limits.wait_most);
                self.not_before = now.monotonic + wait;
            }
            Message::Gone { request } if self.is_answer(request) => {
                self.put_back();
                self.copy.commit()?;
                self.wants_state = true;
            }
            Message::Refused {
                request,
                code,
                text,
            } if self.is_answer(request) => {
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

    fn is_answer(&self, request: u64) -> bool {
        let on_its_way = self.on_its_way.as_ref();
        on_its_way.is_some_and(|on_its_way| on_its_way.request == request)
    }

    fn has_brought(&mut self) {
        if let Some(on_its_way) = &mut self.on_its_way {
            on_its_way.has_brought = true;
        }
    }

    /// Ends a request that was not answered: what was to be compared still is.
    fn put_back(&mut self) {
        let ended = self.on_its_way.take();
        if let Some(OnItsWay {
            asked: Asked::Digests(these),
            ..
        }) = ended
            && let Some(verifying) = &mut self.verifying
        {
            verifying.left.extend(these);
        }
    }

    fn take_state(&mut self, now: Now, bytes: &[u8]) -> Result<()> {
        let known = self.copy.state();
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
        match self.copy.take_state(state) {
            Err(error) if error.kind() == ErrorKind::Invalid => {
                self.refused = Some(error.to_string());
                self.on_its_way = None;
                return Ok(());
            }
            other => other?,
        }
        self.has_brought();
        Ok(())
    }

    /// Compares pieces with what the source has.
    fn take_digests(&mut self, digests: &[Digest]) {
        let asked = self.on_its_way.as_mut().map(|o| &mut o.asked);
        let Some(Asked::Digests(these)) = asked else {
            return;
        };
        let these = std::mem::take(these);
        for (at, piece) in these.iter().enumerate() {
            let Some(theirs) = digests.get(at) else {
                // An answer is no larger than the source likes.
                if let Some(verifying) = &mut self.verifying {
                    verifying.left.push(*piece);
                }
                continue;
            };
            let bytes = u64::from(piece.bytes);
            let ours = match self.copy.read(piece.segment, piece.offset, piece.bytes) {
                Ok(bytes) => Some(digest(&bytes)),
                // It was replaced meanwhile.
                Err(error) if error.kind() == ErrorKind::Elsewhere => continue,
                Err(_) => None,
            };
            let is_equal = ours.is_some_and(|ours| ours == *theirs);
            if !is_equal {
                self.different.push(*piece);
            }
            if let Some(verifying) = &mut self.verifying {
                match is_equal {
                    true => verifying.found.equal += bytes,
                    false => verifying.found.different += bytes,
                }
            }
        }
        if !digests.is_empty() {
            self.has_brought();
        }
    }
}
