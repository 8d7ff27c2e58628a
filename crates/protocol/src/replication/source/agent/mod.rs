//! Source side of replication: answers requests within its budget. A source that is a copy itself
//! reports its missing ranges when they are requested, and again when they have changed.
//!
//! Invariants: only bytes below the committed lengths of a pinned state are sent, and no data of a
//! table that the source's own rules withhold, whatever the request; the size of answers is
//! bounded. The source's device is never written on behalf of a copy. The copy's confirmations are
//! received from the copy, again after each start. Failure: an error is one of the database's own;
//! a request that cannot be granted is answered with the reason.

mod challenging;

use crate::replication::digest::{MISSING_DIGEST, NO_DIGEST, digest};
use crate::replication::message::{Digest, Message, REFUSED_HISTORY, SegmentRange};
use crate::replication::source::Source;
use crate::replication::source::challenge::Challenges;
use crate::replication::source::missing_reports::{self, MissingReports};
use crate::replication::source::read_rate::Allowance;
use crate::replication::source::reading::{PieceRead, RangeLookup, look, read};
use crate::replication::source::send_budget::{Budget, Pause};
use crate::replication::source::sent::SentRanges;
use crate::replication::source::spent::Spent;
use crate::replication::source::tail_sender::{LiveTimes, TailSender};
use headwater_engine::{PinnedState, PinnedStates, ReplicationRules, Result, StateName};
use headwater_types::Now;
use headwater_types::invariant::wide;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Approximate bytes of an answer: at this size the answer ends, and the copy requests the rest.
const ANSWER_MAX: u64 = 8 << 20;
/// The smallest part of a range that is worth a message, in bytes.
const PART_MIN: u32 = 4096;
/// Largest part of a range that is sent in one message, so that newest events can go between.
const PART_MAX: usize = 16 << 10;
/// Approximate bytes of a message besides its payload.
const MESSAGE_BYTES: u64 = 40;
/// Most ranges that are read for an answer.
const PIECES_MAX: usize = 4096;
/// Default bytes a second that a source reads for others.
const READS_A_SECOND: u64 = 64 << 20;
/// Least bytes charged for a read: each is a separate location on the device.
const READ_MIN: u64 = 4 << 10;
/// Least bytes charged for looking a state up, and for each byte of it.
const STATE_MIN: u64 = 64 << 10;
const STATE_READS: u64 = 4;
/// Bytes hashed at once of data that was written before there were hashes.
const LEDGER_BYTES: u64 = 4 << 20;
/// Wait of a copy that is ahead of a source that passes on its ranges.
const BEHIND: Duration = Duration::from_secs(5);
/// The code of a refusal: the requested range is not committed, or too large.
const REFUSED_PIECE: &str = "piece";

/// Ranges that a copy has confirmed to have on its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The state it is of.
    pub state: StateName,
    /// Segments of which the copy has every subscribed range: id, and number of subscribed bytes.
    pub segments: Vec<(u64, u64)>,
    /// Subset of `segments` that the copy has proven complete, byte by byte as written here, by the
    /// chain of hashes computed from its device.
    pub proven: Vec<u64>,
    /// Subset of `segments` for which the copy reports a chain that differs from the one written
    /// here.
    pub differ: Vec<u64>,
}

impl Confirmed {
    /// Proven segments, and the proven bytes of each.
    fn proven_bytes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.segments.iter().copied();
        all.filter(|(id, _)| self.proven.contains(id))
    }
}

/// A confirmation to be processed later.
#[derive(Debug)]
struct DeferredConfirmation {
    state: StateName,
    segments: Vec<(u64, u64)>,
    proofs: Vec<(u64, Digest)>,
}

/// Answers for a database.
#[derive(Debug)]
pub struct Agent {
    pinned: PinnedStates,
    /// Name under which the database registers the copy.
    copy: Option<String>,
    /// Rules of the tables that may be sent.
    rules: ReplicationRules,
    budget: Budget,
    /// Allowance of reads for messages that are not charged to the budget.
    reads: Allowance,
    /// Size of the newest state sent, in bytes.
    state_bytes: u64,
    confirmed: Option<Confirmed>,
    /// Newest confirmation, until the allowance of reads suffices to process it: a copy sends the
    /// same confirmation only once.
    deferred: Option<DeferredConfirmation>,
    /// No confirmation was received over this connection yet: the first is accepted even if its
    /// state is older, as of a copy that was restored.
    is_first_confirmation: bool,
    reports: MissingReports,
    sent: SentRanges,
    challenges: Challenges,
    tail: TailSender,
}

fn refused(request: u64, code: &str, text: String) -> Vec<Message> {
    vec![Message::Refused {
        request,
        code: code.to_owned(),
        text,
    }]
}

fn wait(request: u64, wait: Duration) -> Message {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    Message::Wait {
        request,
        // Not to be requested a moment too early.
        millis: millis.saturating_add(1),
    }
}

impl Agent {
    /// Creates an agent. Replaced files may use `hold_bytes` while they are being fetched.
    #[must_use]
    pub fn new(hold_bytes: u64, budget: Budget) -> Agent {
        Agent {
            pinned: PinnedStates::new(hold_bytes),
            copy: None,
            rules: ReplicationRules::default(),
            budget,
            reads: Allowance::new(READS_A_SECOND),
            state_bytes: 0,
            confirmed: None,
            deferred: None,
            is_first_confirmation: true,
            reports: MissingReports::default(),
            sent: SentRanges::default(),
            challenges: Challenges::default(),
            tail: TailSender::default(),
        }
    }

    /// Makes a source that is a copy subscribe to its missing ranges when its own copies request
    /// them. By default it follows its own rules.
    pub fn set_gets(&mut self, gets: bool) {
        self.reports.fetches_requested = gets;
    }

    /// Starts a session with another copy, or with the same one over another connection: forgets
    /// which missing ranges were reported.
    pub fn restart(&mut self) {
        self.deferred = None;
        self.is_first_confirmation = true;
        self.reports.reset();
        self.challenges.restart();
        self.tail.reset();
    }

    /// Sends newest events before a flush stores them, at most once per `every`; `None`, the
    /// default, disables this.
    pub fn set_live(&mut self, every: Option<Duration>) {
        self.tail.set_every(every);
    }

    /// Bytes of newest events that were sent along since the start.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.tail.bytes()
    }

    /// The newest events, if the copy waits for them and they may be sent. To be called now and
    /// then.
    ///
    /// # Errors
    /// The database's own.
    pub fn live(&mut self, db: &dyn Source, now: Now) -> Result<Option<Message>> {
        self.tail.answer(db, now, &self.rules, &mut self.budget)
    }

    /// Time, by the monotonic clock, from which on [`Agent::live`] may find newest events; `None` =
    /// the copy does not wait for them.
    #[must_use]
    pub fn live_due(&self) -> Option<Duration> {
        self.tail.due()
    }

    /// Times of the newest events that were sent last.
    #[must_use]
    pub fn live_times(&self) -> Option<LiveTimes> {
        self.tail.times()
    }

    /// Records from now on what is sent: of what is written from now on, a copy is not believed to
    /// have more than that. Call this when the source is opened.
    ///
    /// # Errors
    /// The database's own.
    pub fn record_sent(&mut self, db: &dyn Source) -> Result<()> {
        let now = db.pin(None, &self.rules)?;
        self.sent.begin(now.state());
        Ok(())
    }

    /// Sets the copy's name, under which the source stores its confirmations.
    pub fn set_copy(&mut self, name: &str) {
        self.copy = Some(name.to_owned());
    }

    /// Limits the bytes a second that are read for comparisons and states, however often a copy
    /// requests them, and for ranges of 4 KiB of fetches.
    pub fn set_reads(&mut self, bytes_per_second: u64) {
        self.reads = Allowance::new(bytes_per_second);
    }

    /// Spending that must be persisted before the last answers are sent; `None` = the persisted
    /// spending suffices. Once it is persisted, call [`Agent::set_persisted`]: a restart then
    /// cannot reset a cap.
    #[must_use]
    pub fn to_keep(&self) -> Option<Spent> {
        self.budget.to_keep()
    }

    /// Records that the spending is persisted.
    pub fn set_persisted(&mut self, kept: Spent) {
        self.budget.set_persisted(kept);
    }

    /// Keeps a part of each cap for bytes of the sockets that are not granted: the program counts
    /// these, and calls [`Agent::settle`].
    pub fn set_measured(&mut self) {
        self.budget.set_measured();
    }

    /// Replaces the estimates of sent answers by `bytes` of the sockets in both directions;
    /// `unsent` = [`SendQueue::bytes`](crate::replication::SendQueue::bytes) of those that wait.
    pub fn settle(&mut self, now: Now, bytes: u64, unsent: u64) {
        self.budget.settle(now, bytes, unsent);
    }

    /// The pause in which nothing is to be sent or received, or which begins within `ahead`.
    pub fn pause(&mut self, now: Now, ahead: Duration) -> Option<Pause> {
        self.budget.pause(now, ahead)
    }

    /// Sets the tables that may be sent: of a table to which these rules do not subscribe, neither
    /// its name nor a byte of its segments is sent, whatever a copy requests. By default all tables
    /// may be sent. A copy receives a change with the next state.
    pub fn set_rules(&mut self, rules: ReplicationRules) {
        if rules != self.rules {
            self.rules = rules;
            // Pinned states were filtered by the old rules.
            self.pinned.release_all();
        }
    }

    /// The exact spending.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.budget.spent()
    }

    /// Confirmations of the copy since the start.
    #[must_use]
    pub fn confirmed(&self) -> Option<&Confirmed> {
        self.confirmed.as_ref()
    }

    /// Segments that the copy has proven to have whole, since it has been answered over this
    /// connection, and how many bytes of each; without those of which something was written since
    /// the start and never sent.
    #[must_use]
    pub fn proven_now(&self) -> Vec<(u64, u64)> {
        let confirmed = self
            .confirmed
            .iter()
            .filter(|_| !self.is_first_confirmation);
        let proven = confirmed.flat_map(Confirmed::proven_bytes);
        let proven = proven.filter(|(id, bytes)| self.sent.may_be_whole(*id, *bytes));
        proven.collect()
    }

    /// Releases states that are pinned too long. To be called periodically.
    pub fn keep_within(&self) {
        self.pinned.keep_within();
    }

    /// Forgets what was sent of segments that are gone.
    fn keep_sent(&mut self) {
        if let Some(newest) = self.pinned.newest()
            && !newest.is_passed_on()
        {
            self.sent.keep(newest.state());
        }
    }

    /// The newest state, pinned.
    fn newest(&self, db: &dyn Source) -> Result<Arc<PinnedState>> {
        let mut newest = self.pinned.newest();
        if newest.as_ref().is_some_and(|newest| !newest.is_there()) {
            // The copy was closed, and is another one now.
            self.pinned.release_all();
            newest = None;
        }
        if let Some(newest) = &newest
            && newest.state().name().number == db.number()?
        {
            let now = db.pin(Some(newest.state()), &self.rules)?;
            // Definitions and deletes change without a new number.
            if now.state().is_equivalent(newest.state()) {
                return Ok(Arc::clone(newest));
            }
            return Ok(self.pinned.hold(now));
        }
        let before = newest.as_ref().map(|newest| newest.state());
        let now = db.pin(before, &self.rules)?;
        Ok(self.pinned.hold(now))
    }

    /// The first message, sent again when the database has changed.
    ///
    /// # Errors
    /// The database's own.
    pub fn hello(&self, db: &dyn Source) -> Result<Message> {
        Ok(Message::Hello(self.newest(db)?.state().name()))
    }

    /// Answers a message.
    ///
    /// # Errors
    /// The database's own.
    pub fn answer(&mut self, db: &dyn Source, now: Now, message: Message) -> Result<Vec<Message>> {
        self.pinned.keep_within();
        self.look_again(db, now)?;
        self.keep_sent();
        match message {
            Message::AskState {
                request,
                known_state,
            } => self.state(db, now, request, known_state),
            Message::Fetch {
                request,
                state,
                ranges,
            } => {
                let answers = self.fetch(db, now, (request, &state), &ranges);
                self.reports.pass_on(db);
                answers
            }
            Message::Compare {
                request,
                state,
                ranges,
            } => self.compare(now, request, &state, &ranges),
            Message::Confirm {
                state,
                segments,
                proofs,
            } => {
                // A newer confirmation includes all earlier ones.
                self.deferred = Some(DeferredConfirmation {
                    state,
                    segments,
                    proofs,
                });
                self.look_again(db, now)?;
                Ok(Vec::new())
            }
            Message::AskTail {
                request,
                state,
                known_end,
            } => {
                self.tail.set_request(now, (request, state), known_end);
                Ok(Vec::new())
            }
            Message::ChallengeAnswer { request, digests } => {
                self.check_answer(db, now, request, &digests)?;
                Ok(self.challenge(now).into_iter().collect())
            }
            // Messages that only a source sends get no answer.
            _ => Ok(Vec::new()),
        }
    }

    /// Checks a confirmation for which no reads were left when it arrived. To be called
    /// periodically.
    ///
    /// # Errors
    /// The database's own.
    pub fn look_again(&mut self, db: &dyn Source, now: Now) -> Result<()> {
        if self.deferred.is_none() || self.reads.take(now, STATE_MIN).is_err() {
            return Ok(());
        }
        let Some(put_off) = self.deferred.take() else {
            return Ok(());
        };
        if !self.is_overtaken(&put_off.state) && db.was_in(&put_off.state)? {
            if let Some(copy) = &self.copy {
                db.confirm(copy, &put_off.state);
            }
            self.confirmed = Some(self.confirm(put_off));
            self.is_first_confirmation = false;
        }
        Ok(())
    }

    /// True for a confirmation that arrived after a newer one: it would report less than there is.
    fn is_overtaken(&self, state: &StateName) -> bool {
        let is_newer = |newer: &Confirmed| {
            newer.state.identity == state.identity
                && newer.state.incarnation == state.incarnation
                && newer.state.number > state.number
        };
        !self.is_first_confirmation && self.confirmed.as_ref().is_some_and(is_newer)
    }

    /// The confirmed ranges, with the result of comparing the chains: with the named state, or with
    /// the newest, which has the same chain for a segment of the same length.
    fn confirm(&self, said: DeferredConfirmation) -> Confirmed {
        let DeferredConfirmation {
            state,
            segments,
            proofs,
        } = said;
        let held = self.pinned.named(&state).or_else(|| self.pinned.newest());
        let ledger = |id: u64| held.as_ref().and_then(|held| held.state().ledger(id));
        let (mut proven, mut differ) = (Vec::new(), Vec::new());
        for (id, head) in proofs {
            let bytes = segments.iter().find(|(of, _)| *of == id).map(|(_, b)| *b);
            match ledger(id).filter(|ledger| Some(ledger.bytes) == bytes) {
                Some(ledger) if ledger.head == head => proven.push(id),
                Some(_) => differ.push(id),
                None => {}
            }
        }
        Confirmed {
            state,
            segments,
            proven,
            differ,
        }
    }

    /// Hashes a part of the data written before hashes were introduced; true when no such data is
    /// left. Call repeatedly until it returns true.
    ///
    /// # Errors
    /// The database's own.
    pub fn complete_ledger(&mut self, db: &dyn Source, now: Now) -> Result<bool> {
        match self.reads.take(now, LEDGER_BYTES) {
            Ok(()) => db.complete_ledger(LEDGER_BYTES),
            Err(_) => Ok(false),
        }
    }

    /// Missing ranges that have changed since they were reported. To be called periodically, for a
    /// source that is a copy.
    ///
    /// # Errors
    /// The copy's own.
    pub fn changes(&mut self, db: &dyn Source, now: Now) -> Result<Vec<Message>> {
        self.reports.pass_on(db);
        if self.pinned.newest().is_some_and(|held| !held.is_there()) {
            self.reports.look_again();
        }
        let newest = self.newest(db)?;
        let budget = &mut self.budget;
        let mut may = |message: &Message| budget.take(now, missing_reports::size(message)).is_ok();
        self.reports.changes(db, &newest, &mut may)
    }

    fn state(
        &mut self,
        db: &dyn Source,
        now: Now,
        request: u64,
        known: Option<StateName>,
    ) -> Result<Vec<Message>> {
        let reads = STATE_READS.saturating_mul(self.state_bytes);
        if let Err(time) = self.reads.take(now, reads.max(STATE_MIN)) {
            return Ok(vec![wait(request, time)]);
        }
        let newest = self.newest(db)?;
        let state = newest.state();
        if let Some(known) = &known
            && !state.descends_from(known)
        {
            if newest.is_passed_on() && is_behind(&state.name(), known) {
                // The state is from another source; it can only be continued once this source has
                // received it.
                return Ok(vec![wait(request, BEHIND)]);
            }
            let text = format!(
                "state {} of incarnation {:016x} is not in the history of this database: one of the two was restored, rolled back or cloned",
                known.number, known.incarnation
            );
            return Ok(refused(request, REFUSED_HISTORY, text));
        }
        let bytes = match known.and_then(|known| self.pinned.named(&known)) {
            Some(base) => state.encode_after(base.state()),
            None => state.encode(),
        };
        if let Err(time) = self.budget.take(now, wide(bytes.len()) + MESSAGE_BYTES) {
            return Ok(vec![wait(request, time)]);
        }
        self.state_bytes = wide(bytes.len());
        // The copy continues from the known state, and requests no older one.
        if let Some(known) = &known {
            self.pinned.release_before(known);
        }
        Ok(vec![
            Message::State { request, bytes },
            Message::Done { request },
        ])
    }

    fn fetch(
        &mut self,
        db: &dyn Source,
        now: Now,
        (request, state): (u64, &StateName),
        pieces: &[SegmentRange],
    ) -> Result<Vec<Message>> {
        let Some(held) = self.pinned.named(state) else {
            return Ok(vec![Message::Unavailable { request }]);
        };
        let mut answers = Vec::new();
        let mut sent = 0;
        // Segments with missing ranges, each with the first missing offset.
        let mut lacking: BTreeMap<u64, u64> = BTreeMap::new();
        for piece in pieces.iter().take(PIECES_MAX) {
            if sent >= ANSWER_MAX {
                break;
            }
            let piece = &self.within_caps(now, piece);
            let here = match look(&held, piece)? {
                RangeLookup::Readable(here, missing) => {
                    if let Some(first) = missing.first() {
                        lacking.entry(piece.segment).or_insert(first.start());
                    }
                    self.reports.wish(piece.segment, &missing);
                    here
                }
                RangeLookup::Unavailable => return Ok(vec![Message::Unavailable { request }]),
                RangeLookup::Refused(text) => return Ok(refused(request, REFUSED_PIECE, text)),
            };
            for piece in &here {
                let granted = self
                    .reads
                    .take(now, READ_MIN)
                    .and_then(|()| self.budget.take(now, as_sent(u64::from(piece.bytes))));
                if let Err(time) = granted {
                    answers.push(wait(request, time));
                    return Ok(answers);
                }
                let bytes = match read(&held, piece)? {
                    PieceRead::Bytes(bytes) => bytes,
                    // The others are as good as before.
                    PieceRead::Damaged | PieceRead::Freed => continue,
                };
                sent += as_sent(wide(bytes.len()));
                if !held.is_passed_on() {
                    self.sent.add(piece.segment, piece.range());
                }
                answers.extend(parts(request, piece, &bytes));
            }
        }
        for (segment, around) in lacking {
            if let Some(holes) = self.reports.report(db, &held, (segment, around))? {
                if let Err(time) = self.budget.take(now, missing_reports::size(&holes)) {
                    answers.push(wait(request, time));
                    return Ok(answers);
                }
                answers.push(holes);
            }
        }
        answers.push(Message::Done { request });
        Ok(answers)
    }

    /// A range, or the prefix of it that the caps allow: a range that exceeds the remainder would
    /// block every request, and one larger than a cap would do so forever.
    fn within_caps(&mut self, now: Now, piece: &SegmentRange) -> SegmentRange {
        let left = self.budget.bytes_left(now);
        let messages = left / wide(PART_MAX) + 1;
        let left = left.saturating_sub(messages.saturating_mul(MESSAGE_BYTES));
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        match left < piece.bytes && left >= PART_MIN {
            true => SegmentRange {
                bytes: left,
                ..*piece
            },
            false => *piece,
        }
    }

    fn compare(
        &mut self,
        now: Now,
        request: u64,
        state: &StateName,
        pieces: &[SegmentRange],
    ) -> Result<Vec<Message>> {
        let Some(held) = self.pinned.named(state) else {
            return Ok(vec![Message::Unavailable { request }]);
        };
        let mut digests: Vec<Digest> = Vec::new();
        let mut looked_at = 0;
        for piece in pieces.iter().take(PIECES_MAX) {
            if looked_at >= ANSWER_MAX {
                break;
            }
            let reads = u64::from(piece.bytes).max(READ_MIN);
            match self.reads.take(now, reads) {
                // The copy requests the others again.
                Err(_) if !digests.is_empty() => break,
                Err(time) => return Ok(vec![wait(request, time)]),
                Ok(()) => {}
            }
            match look(&held, piece)? {
                RangeLookup::Readable(_, missing) if !missing.is_empty() => {
                    digests.push(MISSING_DIGEST)
                }
                RangeLookup::Readable(..) => match read(&held, piece)? {
                    PieceRead::Bytes(bytes) => digests.push(digest(&bytes)),
                    PieceRead::Damaged => digests.push(NO_DIGEST),
                    PieceRead::Freed => digests.push(MISSING_DIGEST),
                },
                RangeLookup::Unavailable => return Ok(vec![Message::Unavailable { request }]),
                RangeLookup::Refused(text) => return Ok(refused(request, REFUSED_PIECE, text)),
            }
            looked_at += u64::from(piece.bytes);
        }
        let bytes = digests.iter().map(|d| wide(d.len())).sum::<u64>();
        if let Err(time) = self.budget.take(now, bytes + MESSAGE_BYTES) {
            return Ok(vec![wait(request, time)]);
        }
        Ok(vec![
            Message::Digests { request, digests },
            Message::Done { request },
        ])
    }
}

/// Approximate bytes of a range as it is sent.
fn as_sent(bytes: u64) -> u64 {
    bytes + MESSAGE_BYTES * bytes.div_ceil(wide(PART_MAX)).max(1)
}

/// A range in parts.
fn parts<'a>(
    request: u64,
    piece: &'a SegmentRange,
    bytes: &'a [u8],
) -> impl Iterator<Item = Message> + 'a {
    let mut offset = piece.offset;
    bytes.chunks(PART_MAX).map(move |part| {
        let begin = offset;
        offset += wide(part.len());
        Message::Bytes {
            request,
            segment: piece.segment,
            offset: begin,
            bytes: part.to_vec(),
        }
    })
}

/// True if a state is older than another of the same database, by their numbers.
fn is_behind(state: &StateName, other: &StateName) -> bool {
    (state.identity, state.incarnation) == (other.identity, other.incarnation)
        && (state.number, state.sequence) < (other.number, other.sequence)
}
