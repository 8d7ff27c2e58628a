//! Source side of replication: answers requests within its budget. A source that is a copy itself
//! reports its missing ranges when they are requested, and again when they have changed.
//!
//! Invariants: only bytes below the committed lengths of a pinned state are sent, and no data of a
//! table that the source's own rules withhold, whatever the request; the size of answers is
//! bounded. The source's device is never written on behalf of a copy. The copy's confirmations are
//! received from the copy, again after each start. Failure: an error is one of the database's own;
//! a request that cannot be granted is answered with the reason.

use crate::replication::allowance::Allowance;
use crate::replication::budget::Budget;
use crate::replication::message::{Digest, Message, REFUSED_HISTORY, SegmentRange};
use crate::replication::missing_reports::{self, MissingReports};
use crate::replication::source::Source;
use crate::replication::spent::Spent;
use crate::replication::tail::TailSender;
use headwater_engine::{ErrorKind, PinnedState, PinnedStates, Result, Rules, StateName};
use headwater_types::invariant::wide;
use headwater_types::{ByteRange, Now};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The largest range that is sent at once.
pub(crate) const PIECE_MAX: u32 = 1 << 20;
/// Approximate bytes of an answer: at this size the answer ends, and the copy requests the rest.
const ANSWER_MAX: u64 = 8 << 20;
/// The smallest part of a range that is worth a message, in bytes.
const PART_LEAST: u32 = 4096;
/// Approximate bytes of a message besides its payload.
const MESSAGE_BYTES: u64 = 40;
/// Most ranges that are read for an answer.
const PIECES_MAX: usize = 4096;
/// Default bytes a second that a source reads for others.
const READS_A_SECOND: u64 = 64 << 20;
/// Least bytes charged for a read: each is a separate location on the device.
const READ_LEAST: u64 = 4 << 10;
/// Least bytes charged for looking a state up, and for each byte of it.
const STATE_LEAST: u64 = 64 << 10;
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
struct PutOff {
    state: StateName,
    segments: Vec<(u64, u64)>,
    proofs: Vec<(u64, Digest)>,
}

/// Answers for a database.
#[derive(Debug)]
pub struct Agent {
    holds: PinnedStates,
    /// Name under which the database registers the copy.
    copy: Option<String>,
    /// Rules of the tables that may be sent.
    rules: Rules,
    budget: Budget,
    /// Allowance of reads for messages that are not charged to the budget.
    reads: Allowance,
    /// Size of the newest state sent, in bytes.
    state_bytes: u64,
    confirmed: Option<Confirmed>,
    /// Newest confirmation, until the allowance of reads suffices to process it: a copy sends the
    /// same confirmation only once.
    put_off: Option<PutOff>,
    /// No confirmation was received over this connection yet: the first is accepted even if its
    /// state is older, as of a copy that was restored.
    is_anew: bool,
    reports: MissingReports,
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
            holds: PinnedStates::new(hold_bytes),
            copy: None,
            rules: Rules::default(),
            budget,
            reads: Allowance::new(READS_A_SECOND),
            state_bytes: 0,
            confirmed: None,
            put_off: None,
            is_anew: true,
            reports: MissingReports::default(),
            tail: TailSender::default(),
        }
    }

    /// Makes a source that is a copy subscribe to its missing ranges when its own copies request
    /// them. By default it follows its own rules.
    pub fn set_gets(&mut self, gets: bool) {
        self.reports.gets = gets;
    }

    /// Starts a session with another copy, or with the same one over another connection: forgets
    /// which missing ranges were reported.
    pub fn begin_anew(&mut self) {
        self.put_off = None;
        self.is_anew = true;
        self.reports.reset();
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
    /// spending suffices. Once it is persisted, call [`Agent::has_kept`]: a restart then cannot
    /// reset a cap.
    #[must_use]
    pub fn to_keep(&self) -> Option<Spent> {
        self.budget.to_keep()
    }

    /// Records that the spending is persisted.
    pub fn has_kept(&mut self, kept: Spent) {
        self.budget.has_kept(kept);
    }

    /// Sets the tables that may be sent: of a table to which these rules do not subscribe, neither
    /// its name nor a byte of its segments is sent, whatever a copy requests. By default all tables
    /// may be sent. A copy receives a change with the next state.
    pub fn set_rules(&mut self, rules: Rules) {
        if rules != self.rules {
            self.rules = rules;
            // Pinned states were filtered by the old rules.
            self.holds.release_all();
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
    /// connection, and how many bytes of each.
    #[must_use]
    pub fn proven_now(&self) -> Vec<(u64, u64)> {
        let confirmed = self.confirmed.iter().filter(|_| !self.is_anew);
        confirmed.flat_map(Confirmed::proven_bytes).collect()
    }

    /// Releases states that are pinned too long. To be called periodically.
    pub fn keep_within(&self) {
        self.holds.keep_within();
    }

    /// The newest state, pinned.
    fn newest(&self, db: &dyn Source) -> Result<Arc<PinnedState>> {
        let mut newest = self.holds.newest();
        if newest.as_ref().is_some_and(|newest| !newest.is_there()) {
            // The copy was closed, and is another one now.
            self.holds.release_all();
            newest = None;
        }
        if let Some(newest) = &newest
            && newest.state().name().number == db.number()?
        {
            let now = db.hold(Some(newest.state()), &self.rules)?;
            // Definitions and deletes change without a new number.
            if now.state().says_the_same(newest.state()) {
                return Ok(Arc::clone(newest));
            }
            return Ok(self.holds.hold(now));
        }
        let before = newest.as_ref().map(|newest| newest.state());
        let now = db.hold(before, &self.rules)?;
        Ok(self.holds.hold(now))
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
        self.holds.keep_within();
        self.look_again(db, now)?;
        match message {
            Message::AskState { request, known } => self.state(db, now, request, known),
            Message::Fetch {
                request,
                state,
                pieces,
            } => {
                let answers = self.fetch(db, now, (request, &state), &pieces);
                self.reports.pass_on(db);
                answers
            }
            Message::Compare {
                request,
                state,
                pieces,
            } => self.compare(now, request, &state, &pieces),
            Message::Confirm {
                state,
                segments,
                proofs,
            } => {
                // A newer confirmation includes all earlier ones.
                self.put_off = Some(PutOff {
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
                known,
            } => {
                self.tail.ask(request, state, known);
                Ok(Vec::new())
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
        if self.put_off.is_none() || self.reads.take(now, STATE_LEAST).is_err() {
            return Ok(());
        }
        let Some(put_off) = self.put_off.take() else {
            return Ok(());
        };
        if !self.is_overtaken(&put_off.state) && db.was_in(&put_off.state)? {
            if let Some(copy) = &self.copy {
                db.confirm(copy, &put_off.state);
            }
            self.confirmed = Some(self.confirm(put_off));
            self.is_anew = false;
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
        !self.is_anew && self.confirmed.as_ref().is_some_and(is_newer)
    }

    /// The confirmed ranges, with the result of comparing the chains: with the named state, or with
    /// the newest, which has the same chain for a segment of the same length.
    fn confirm(&self, said: PutOff) -> Confirmed {
        let PutOff {
            state,
            segments,
            proofs,
        } = said;
        let held = self.holds.named(&state).or_else(|| self.holds.newest());
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
        if self.holds.newest().is_some_and(|held| !held.is_there()) {
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
        if let Err(time) = self.reads.take(now, reads.max(STATE_LEAST)) {
            return Ok(vec![wait(request, time)]);
        }
        let newest = self.newest(db)?;
        let state = newest.state();
        if let Some(known) = &known
            && !state.goes_on_from(known)
        {
            if newest.is_passed_on() && is_behind(&state.name(), known) {
                // The state is from another source; it can only be continued once this source has
                // received it.
                return Ok(vec![wait(request, BEHIND)]);
            }
            let text = format!(
                "state {} of incarnation {:016x} is none that this database was in: one of the two was restored, rolled back or cloned",
                known.number, known.incarnation
            );
            return Ok(refused(request, REFUSED_HISTORY, text));
        }
        let bytes = match known.and_then(|known| self.holds.named(&known)) {
            Some(base) => state.encode_after(base.state()),
            None => state.encode(),
        };
        if let Err(time) = self.budget.take(now, wide(bytes.len()) + MESSAGE_BYTES) {
            return Ok(vec![wait(request, time)]);
        }
        self.state_bytes = wide(bytes.len());
        // The copy continues from the known state, and requests no older one.
        if let Some(known) = &known {
            self.holds.release_before(known);
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
        let Some(held) = self.holds.named(state) else {
            return Ok(vec![Message::Gone { request }]);
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
                PieceLookup::Here(here, missing) => {
                    if let Some(first) = missing.first() {
                        lacking.entry(piece.segment).or_insert(first.start());
                    }
                    self.reports.wish(piece.segment, &missing);
                    here
                }
                PieceLookup::Gone => return Ok(vec![Message::Gone { request }]),
                PieceLookup::NoPiece(text) => return Ok(refused(request, REFUSED_PIECE, text)),
            };
            for piece in &here {
                let granted = self.reads.take(now, READ_LEAST).and_then(|()| {
                    let bytes = u64::from(piece.bytes) + MESSAGE_BYTES;
                    self.budget.take(now, bytes)
                });
                if let Err(time) = granted {
                    answers.push(wait(request, time));
                    return Ok(answers);
                }
                let bytes = match read(&held, piece)? {
                    PieceRead::Bytes(bytes) => bytes,
                    // The others are as good as before.
                    PieceRead::Damaged | PieceRead::Freed => continue,
                };
                sent += wide(bytes.len()) + MESSAGE_BYTES;
                answers.push(Message::Bytes {
                    request,
                    segment: piece.segment,
                    offset: piece.offset,
                    bytes,
                });
            }
        }
        for (segment, around) in lacking {
            if let Some(holes) = self.reports.tell(db, &held, (segment, around))? {
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
        let left = self.budget.left(now).saturating_sub(MESSAGE_BYTES);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        match left < piece.bytes && left >= PART_LEAST {
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
        let Some(held) = self.holds.named(state) else {
            return Ok(vec![Message::Gone { request }]);
        };
        let mut digests: Vec<Digest> = Vec::new();
        let mut looked_at = 0;
        for piece in pieces.iter().take(PIECES_MAX) {
            if looked_at >= ANSWER_MAX {
                break;
            }
            let reads = u64::from(piece.bytes).max(READ_LEAST);
            match self.reads.take(now, reads) {
                // The copy requests the others again.
                Err(_) if !digests.is_empty() => break,
                Err(time) => return Ok(vec![wait(request, time)]),
                Ok(()) => {}
            }
            match look(&held, piece)? {
                PieceLookup::Here(_, missing) if !missing.is_empty() => {
                    digests.push(MISSING_DIGEST)
                }
                PieceLookup::Here(..) => match read(&held, piece)? {
                    PieceRead::Bytes(bytes) => digests.push(digest(&bytes)),
                    PieceRead::Damaged => digests.push(NO_DIGEST),
                    PieceRead::Freed => digests.push(MISSING_DIGEST),
                },
                PieceLookup::Gone => return Ok(vec![Message::Gone { request }]),
                PieceLookup::NoPiece(text) => return Ok(refused(request, REFUSED_PIECE, text)),
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

/// The digest of a range.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// Digest of bytes that cannot be read: it never matches.
const NO_DIGEST: Digest = [0; 32];
/// Digest of bytes that are missing at the source itself.
pub(crate) const MISSING_DIGEST: Digest = [255; 32];

/// True if a state is older than another of the same database, by their numbers.
fn is_behind(state: &StateName, other: &StateName) -> bool {
    (state.identity, state.incarnation) == (other.identity, other.incarnation)
        && (state.number, state.sequence) < (other.number, other.sequence)
}

/// Parts of a range that may be read.
enum PieceLookup {
    /// Present parts, as ranges, and missing ranges.
    Here(Vec<SegmentRange>, Vec<ByteRange>),
    /// The range will not be available any more.
    Gone,
    /// Reason why a range is not granted.
    NoPiece(String),
}

fn look(held: &PinnedState, piece: &SegmentRange) -> Result<PieceLookup> {
    if piece.bytes > PIECE_MAX {
        return Ok(PieceLookup::NoPiece(format!(
            "a piece of {} bytes, at most {PIECE_MAX} are given away at once",
            piece.bytes
        )));
    }
    let missing = held.missing(piece.segment, piece.offset, u64::from(piece.bytes));
    let missing = match missing {
        Ok(missing) => missing,
        Err(error) => {
            return match error.kind() {
                ErrorKind::Invalid | ErrorKind::NotFound => {
                    Ok(PieceLookup::NoPiece(error.to_string()))
                }
                ErrorKind::Gone => Ok(PieceLookup::Gone),
                _ => Err(error),
            };
        }
    };
    let end = piece.range().end();
    let mut here = Vec::new();
    let mut at = piece.offset;
    for hole in missing.iter().copied().chain([ByteRange::new(end, end)]) {
        if at < hole.start() {
            assert!(hole.start() <= end, "a range behind the requested one");
            here.push(SegmentRange {
                segment: piece.segment,
                offset: at,
                bytes: u32::try_from(hole.start() - at).unwrap_or(piece.bytes),
            });
        }
        at = hole.end();
    }
    Ok(PieceLookup::Here(here, missing))
}

/// Result of reading a range.
enum PieceRead {
    Bytes(Vec<u8>),
    /// The device does not have the range any more.
    Damaged,
    /// The range was freed since it was looked up.
    Freed,
}

/// Reads a present range from the device.
fn read(held: &PinnedState, piece: &SegmentRange) -> Result<PieceRead> {
    match held.read(piece.segment, piece.offset, piece.bytes) {
        Err(error) => match error.kind() {
            ErrorKind::Corrupt => Ok(PieceRead::Damaged),
            ErrorKind::Elsewhere | ErrorKind::Gone => Ok(PieceRead::Freed),
            _ => Err(error),
        },
        Ok(bytes) => {
            let (read, piece) = (wide(bytes.len()), u64::from(piece.bytes));
            assert_eq!(read, piece, "another length than the piece's");
            Ok(PieceRead::Bytes(bytes))
        }
    }
}
