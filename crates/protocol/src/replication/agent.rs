//! The side of the source: it answers what is asked, within its budget. A source that is a copy
//! itself says what it lacks, when that is asked for and when it has changed.
//!
//! Invariants: only bytes below the committed lengths of a state that is held are given away, and
//! nothing of a table that the source's own rules withhold, whatever is asked; answers are no
//! larger than a stated size. Nothing is written for a copy to the medium of the source. What was
//! confirmed is learnt from the copy, again after each start.
//! Failure: an error is one of the database's own; what cannot be granted is an answer.

use crate::replication::allowance::Allowance;
use crate::replication::budget::Budget;
use crate::replication::message::{Digest, Message, Piece, REFUSED_HISTORY};
use crate::replication::now::Now;
use crate::replication::source::Source;
use crate::replication::spent::Spent;
use crate::replication::tail::TailSender;
use crate::replication::told::{self, Told};
use headwater_engine::{ErrorKind, HeldState, Holds, Result, Rules, StateName};
use headwater_types::invariant::wide;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The largest piece that is given away at once.
pub(crate) const PIECE_MAX: u32 = 1 << 20;
/// Bytes of an answer, about: behind it the request is answered, and asked again for the rest.
const ANSWER_MAX: u64 = 8 << 20;
/// The smallest part of a piece that is worth a message, in bytes.
const PART_LEAST: u32 = 4096;
/// What a message takes besides the bytes that it carries, about.
const MESSAGE_BYTES: u64 = 40;
/// Pieces that are looked at for an answer, at the most.
const PIECES_MAX: usize = 4096;
/// What a source reads for others in a second, where nothing else is said.
const READS_A_SECOND: u64 = 64 << 20;
/// What a read takes of that at least: a place of its own on the medium.
const READ_LEAST: u64 = 4 << 10;
/// What looking for a state takes, at least, and for each byte of it.
const STATE_LEAST: u64 = 64 << 10;
const STATE_READS: u64 = 4;
/// What is hashed at once of what was written before there were hashes.
const LEDGER_BYTES: u64 = 4 << 20;
/// How long somebody is to wait who is ahead of a source that passes on what it has.
const BEHIND: Duration = Duration::from_secs(5);
/// The code of a refusal: what was asked for is not committed, or too much.
const REFUSED_PIECE: &str = "piece";

/// What a copy has confirmed to have on its medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The state it is of.
    pub state: StateName,
    /// Segments of which everything that the copy wants is there: id, and bytes that count.
    pub segments: Vec<(u64, u64)>,
    /// Those of them that the copy has proven to have whole, byte by byte as they were written
    /// here: by the chain of their hashes, which it computed of what its medium holds.
    pub proven: Vec<u64>,
    /// Those of which it says another chain than the one that was written here.
    pub differ: Vec<u64>,
}

impl Confirmed {
    /// Those that are proven, and how many bytes of each.
    fn proven_bytes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.segments.iter().copied();
        all.filter(|(id, _)| self.proven.contains(id))
    }
}

/// A confirmation that is looked at later.
#[derive(Debug)]
struct PutOff {
    state: StateName,
    segments: Vec<(u64, u64)>,
    proofs: Vec<(u64, Digest)>,
}

/// Answers for a database.
#[derive(Debug)]
pub struct Agent {
    holds: Holds,
    /// As what the database knows the copy.
    copy: Option<String>,
    /// What may leave at all.
    rules: Rules,
    budget: Budget,
    /// What costs nothing of the budget costs reads.
    reads: Allowance,
    /// The newest state that was sent took so much.
    state_bytes: u64,
    confirmed: Option<Confirmed>,
    /// The newest confirmation, as long as there are no reads left to look at it: a copy says the
    /// same only once.
    put_off: Option<PutOff>,
    /// Nothing was confirmed over this connection: what a copy has that was set back counts.
    is_anew: bool,
    told: Told,
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
        // Not to be asked a moment too early.
        millis: millis.saturating_add(1),
    }
}

impl Agent {
    /// Files that were replaced may take `hold_bytes` for as long as they are being fetched.
    #[must_use]
    pub fn new(hold_bytes: u64, budget: Budget) -> Agent {
        Agent {
            holds: Holds::new(hold_bytes),
            copy: None,
            rules: Rules::default(),
            budget,
            reads: Allowance::new(READS_A_SECOND),
            state_bytes: 0,
            confirmed: None,
            put_off: None,
            is_anew: true,
            told: Told::default(),
            tail: TailSender::default(),
        }
    }

    /// What a copy asks for, and the source lacks itself, the source is to want too: for one that
    /// is a copy. By default it goes by its own rules.
    pub fn set_gets(&mut self, gets: bool) {
        self.told.gets = gets;
    }

    /// Somebody else is answered from now on, or the same over another connection: what was told of
    /// what is lacking was told to nobody.
    pub fn begin_anew(&mut self) {
        self.put_off = None;
        self.is_anew = true;
        self.told.begin_anew();
        self.tail.begin_anew();
    }

    /// Newest events are sent along before a flush stores them, this often at the most; `None` =
    /// they are not, which is the default.
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

    /// The source knows the copy by this name: what it confirms, it is not told again.
    pub fn set_copy(&mut self, name: &str) {
        self.copy = Some(name.to_owned());
    }

    /// So many bytes a second are read for comparisons and states, however often a copy asks for
    /// them, and pieces of 4 KiB for what is fetched.
    pub fn set_reads(&mut self, bytes_per_second: u64) {
        self.reads = Allowance::new(bytes_per_second);
    }

    /// What has to be on the medium before the last answers are sent; `None` = what is there
    /// covers them. With it there, [`Agent::has_kept`]: then no restart gives a cap back.
    #[must_use]
    pub fn to_keep(&self) -> Option<Spent> {
        self.budget.to_keep()
    }

    /// This is on the medium now.
    pub fn has_kept(&mut self, kept: Spent) {
        self.budget.has_kept(kept);
    }

    /// What may leave at all: of tables of which these rules want nothing, nothing does, neither
    /// their names nor a byte of their segments, whatever a copy asks for. By default everything
    /// may. Whoever fetches learns of a change by the next state.
    pub fn set_rules(&mut self, rules: Rules) {
        if rules != self.rules {
            self.rules = rules;
            // What was left out of them, or was not, is not so any more.
            self.holds.release_all();
        }
    }

    /// What was spent, exactly.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.budget.spent()
    }

    /// What the copy has confirmed since the start.
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

    /// Lets go of what is held too long. To be called now and then.
    pub fn keep_within(&self) {
        self.holds.keep_within();
    }

    /// The newest state, held.
    fn newest(&self, db: &dyn Source) -> Result<Arc<HeldState>> {
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
            // Definitions and deletes come without a new number.
            if now.state().says_the_same(newest.state()) {
                return Ok(Arc::clone(newest));
            }
            return Ok(self.holds.hold(now));
        }
        let before = newest.as_ref().map(|newest| newest.state());
        let now = db.hold(before, &self.rules)?;
        Ok(self.holds.hold(now))
    }

    /// What is said first, and again when the database has changed.
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
                self.told.pass_on(db);
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
                // A newer one says all that one before it says.
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
            // What a source says is said to nobody else.
            _ => Ok(Vec::new()),
        }
    }

    /// Looks at a confirmation for which there were no reads left when it came. To be called now
    /// and then.
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

    /// True for a confirmation that came later than a newer one: it would tell of less than there
    /// is.
    fn is_overtaken(&self, state: &StateName) -> bool {
        let is_newer = |newer: &Confirmed| {
            newer.state.identity == state.identity
                && newer.state.incarnation == state.incarnation
                && newer.state.number > state.number
        };
        !self.is_anew && self.confirmed.as_ref().is_some_and(is_newer)
    }

    /// What is confirmed, with what the chains say: those of the state that is named, or of the
    /// newest, which has the same for a segment of the same length.
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

    /// Hashes a part of what this database holds from before there were hashes; true when there is
    /// nothing left to hash. To be called now and then, until it says so.
    ///
    /// # Errors
    /// The database's own.
    pub fn complete_ledger(&mut self, db: &dyn Source, now: Now) -> Result<bool> {
        match self.reads.take(now, LEDGER_BYTES) {
            Ok(()) => db.complete_ledger(LEDGER_BYTES),
            Err(_) => Ok(false),
        }
    }

    /// What has changed of what the source lacks, since it was told. To be called now and then, for
    /// a source that is a copy.
    ///
    /// # Errors
    /// The copy's own.
    pub fn changes(&mut self, db: &dyn Source, now: Now) -> Result<Vec<Message>> {
        self.told.pass_on(db);
        if self.holds.newest().is_some_and(|held| !held.is_there()) {
            self.told.look_again();
        }
        let newest = self.newest(db)?;
        let budget = &mut self.budget;
        let mut may = |message: &Message| budget.take(now, told::size(message)).is_ok();
        self.told.changes(db, &newest, &mut may)
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
                // It came another way. Whether it goes on from here is known once this has come.
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
        // The copy goes on from there, and asks for nothing older.
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
        pieces: &[Piece],
    ) -> Result<Vec<Message>> {
        let Some(held) = self.holds.named(state) else {
            return Ok(vec![Message::Gone { request }]);
        };
        let mut answers = Vec::new();
        let mut sent = 0;
        // Segments of which something is lacking, each with the first place of it.
        let mut lacking: BTreeMap<u64, u64> = BTreeMap::new();
        for piece in pieces.iter().take(PIECES_MAX) {
            if sent >= ANSWER_MAX {
                break;
            }
            let piece = &self.within_caps(now, piece);
            let here = match look(&held, piece)? {
                Looked::Here(here, missing) => {
                    if let Some((first, _)) = missing.first() {
                        lacking.entry(piece.segment).or_insert(*first);
                    }
                    self.told.wish(piece.segment, &missing);
                    here
                }
                Looked::Gone => return Ok(vec![Message::Gone { request }]),
                Looked::NoPiece(text) => return Ok(refused(request, REFUSED_PIECE, text)),
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
                    Found::Bytes(bytes) => bytes,
                    // The others are as good as before.
                    Found::Damaged | Found::Lacking => continue,
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
            if let Some(holes) = self.told.tell(db, &held, (segment, around))? {
                if let Err(time) = self.budget.take(now, told::size(&holes)) {
                    answers.push(wait(request, time));
                    return Ok(answers);
                }
                answers.push(holes);
            }
        }
        answers.push(Message::Done { request });
        Ok(answers)
    }

    /// A piece, or as much of its beginning as the caps leave: one that is larger than what is left
    /// would keep everything waiting, for ever where it is larger than a cap.
    fn within_caps(&mut self, now: Now, piece: &Piece) -> Piece {
        let left = self.budget.left(now).saturating_sub(MESSAGE_BYTES);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        match left < piece.bytes && left >= PART_LEAST {
            true => Piece {
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
        pieces: &[Piece],
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
                // The others are asked for again.
                Err(_) if !digests.is_empty() => break,
                Err(time) => return Ok(vec![wait(request, time)]),
                Ok(()) => {}
            }
            match look(&held, piece)? {
                Looked::Here(_, missing) if !missing.is_empty() => digests.push(LACKING),
                Looked::Here(..) => match read(&held, piece)? {
                    Found::Bytes(bytes) => digests.push(digest(&bytes)),
                    Found::Damaged => digests.push(NO_DIGEST),
                    Found::Lacking => digests.push(LACKING),
                },
                Looked::Gone => return Ok(vec![Message::Gone { request }]),
                Looked::NoPiece(text) => return Ok(refused(request, REFUSED_PIECE, text)),
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

/// The digest of a piece.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// What stands for the digest of bytes that cannot be read: equal to none.
const NO_DIGEST: Digest = [0; 32];
/// What stands for the digest of bytes that the source lacks itself.
pub(crate) const LACKING: Digest = [255; 32];

/// True when a state is behind another of the same database, as far as their numbers tell.
fn is_behind(state: &StateName, other: &StateName) -> bool {
    (state.identity, state.incarnation) == (other.identity, other.incarnation)
        && (state.number, state.sequence) < (other.number, other.sequence)
}

/// What of a piece may be read.
enum Looked {
    /// What of it is here, as pieces, and what is missing: offset and length of each.
    Here(Vec<Piece>, Vec<(u64, u64)>),
    /// It will not come any more.
    Gone,
    /// Why it is none.
    NoPiece(String),
}

fn look(held: &HeldState, piece: &Piece) -> Result<Looked> {
    if piece.bytes > PIECE_MAX {
        return Ok(Looked::NoPiece(format!(
            "a piece of {} bytes, at most {PIECE_MAX} are given away at once",
            piece.bytes
        )));
    }
    let missing = held.missing(piece.segment, piece.offset, u64::from(piece.bytes));
    let missing = match missing {
        Ok(missing) => missing,
        Err(error) => {
            return match error.kind() {
                ErrorKind::Invalid | ErrorKind::NotFound => Ok(Looked::NoPiece(error.to_string())),
                ErrorKind::Gone => Ok(Looked::Gone),
                _ => Err(error),
            };
        }
    };
    let end = piece.offset.saturating_add(u64::from(piece.bytes));
    let mut here = Vec::new();
    let mut at = piece.offset;
    for (from, bytes) in missing.iter().copied().chain([(end, 0)]) {
        if at < from {
            here.push(Piece {
                segment: piece.segment,
                offset: at,
                bytes: u32::try_from(from - at).unwrap_or(piece.bytes),
            });
        }
        at = from.saturating_add(bytes);
    }
    Ok(Looked::Here(here, missing))
}

/// What a piece is.
enum Found {
    Bytes(Vec<u8>),
    /// The medium does not have it any more.
    Damaged,
    /// It was let go since it was looked for.
    Lacking,
}

/// A piece that is here, from the medium.
fn read(held: &HeldState, piece: &Piece) -> Result<Found> {
    match held.read(piece.segment, piece.offset, piece.bytes) {
        Err(error) => match error.kind() {
            ErrorKind::Corrupt => Ok(Found::Damaged),
            ErrorKind::Elsewhere | ErrorKind::Gone => Ok(Found::Lacking),
            _ => Err(error),
        },
        Ok(bytes) => Ok(Found::Bytes(bytes)),
    }
}
