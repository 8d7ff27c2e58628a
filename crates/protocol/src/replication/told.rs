//! What a source that is a copy has told of what it lacks, so that it tells again when that has
//! changed; and what it was asked for and wants itself since.
//!
//! Invariants: what is told is as of the newest state; nothing is told of segments that nobody
//! asked for, and nothing twice. What is wanted for others is bounded.
//! Concurrency: plain data.
//! Failure: what is lost on its way is asked for again by the other side, in its time.

use crate::replication::holes::{LackingPart, Outlook};
use crate::replication::message::Message;
use crate::replication::ranges::{apart, beside, within};
use crate::replication::source::Source;
use headwater_engine::{ErrorKind, HeldState, Result};
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, VecDeque};

/// Holes of one message, at the most.
const HOLES_MAX: usize = 4096;
/// What a message of holes takes, and each of them, about.
const MESSAGE_BYTES: u64 = 40;
const HOLE_BYTES: u64 = 10;
/// Ranges that wait for being wanted here, at the most.
const WISHES_MAX: usize = 4096;

/// What was told of a segment: bytes that it is long, that it lacks, and that come.
type Sums = (u64, u64, u64);

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    segments: BTreeMap<u64, Sums>,
    /// When it was looked at last what has changed, in changes of the source.
    looked_at: Option<u64>,
    /// What others have asked for, and is not wanted here yet: segment, offset, length.
    wishes: VecDeque<(u64, u64, u64)>,
    /// What is asked for is wanted here, too.
    pub(crate) gets: bool,
}

/// What a message takes, about.
pub(crate) fn size(message: &Message) -> u64 {
    match message {
        Message::Holes { holes, .. } => MESSAGE_BYTES + HOLE_BYTES * wide(holes.len()),
        _ => MESSAGE_BYTES,
    }
}

/// What a segment lacks.
struct Lacks {
    segment: u64,
    bytes: u64,
    holes: Vec<LackingPart>,
}

impl Lacks {
    /// That of a segment; `None` when it is named no more.
    fn of(
        source: &dyn Source,
        held: &HeldState,
        segment: u64,
        otherwise: Outlook,
    ) -> Result<Option<Lacks>> {
        let mut segments = held.state().segments();
        let Some(bytes) = segments.find(|s| s.id == segment).map(|s| s.bytes) else {
            return Ok(None);
        };
        let missing = match held.missing(segment, 0, bytes) {
            Ok(missing) => missing,
            Err(error) if error.kind() == ErrorKind::Gone => return Ok(None),
            Err(error) => return Err(error),
        };
        let wants = source.wants(segment).map_or_else(
            || vec![(0, bytes)],
            |wants| apart(wants.into_iter().map(|(at, len)| (at, at + len)).collect()),
        );
        let hole = |(from, until), outlook| LackingPart {
            from,
            until,
            outlook,
        };
        let mut holes: Vec<LackingPart> = Vec::new();
        for (at, len) in missing {
            let range = (at, at.saturating_add(len));
            let comes = within(range, &wants).into_iter();
            holes.extend(comes.map(|part| hole(part, Outlook::Comes)));
            let others = beside(range, &wants).into_iter();
            holes.extend(others.map(|part| hole(part, otherwise)));
        }
        holes.sort_unstable_by_key(|hole| hole.from);
        Ok(Some(Lacks {
            segment,
            bytes,
            holes,
        }))
    }

    fn sums(&self) -> Sums {
        let sum = |is_meant: &dyn Fn(&&LackingPart) -> bool| {
            let meant = self.holes.iter().filter(is_meant);
            meant.map(|hole| hole.until - hole.from).sum()
        };
        let comes = sum(&|hole| hole.outlook == Outlook::Comes);
        (self.bytes, sum(&|_| true), comes)
    }

    /// As a message; where these are too many, of a stretch that holds a place.
    fn message(self, place: u64) -> Message {
        let Lacks {
            segment,
            bytes,
            mut holes,
        } = self;
        let (mut from, mut until) = (0, bytes);
        if holes.len() > HOLES_MAX {
            holes.retain(|hole| hole.until > place);
            from = holes.first().map_or(place, |hole| hole.from.min(place));
        }
        if holes.len() > HOLES_MAX {
            holes.truncate(HOLES_MAX);
            until = holes.last().map_or(bytes, |hole| hole.until);
        }
        Message::Holes {
            segment,
            from,
            until,
            holes,
        }
    }
}

impl Told {
    /// Forgets what was told: to somebody else.
    pub(crate) fn begin_anew(&mut self) {
        self.segments.clear();
        self.wishes.clear();
        self.looked_at = None;
    }

    /// The source counts its changes anew.
    pub(crate) fn look_again(&mut self) {
        self.looked_at = None;
    }

    fn otherwise(&self) -> Outlook {
        match self.gets {
            true => Outlook::OnRequest,
            false => Outlook::Never,
        }
    }

    /// What a segment lacks, around a place that was asked for.
    pub(crate) fn tell(
        &mut self,
        source: &dyn Source,
        held: &HeldState,
        (segment, place): (u64, u64),
    ) -> Result<Option<Message>> {
        let lacks = Lacks::of(source, held, segment, self.otherwise())?;
        Ok(lacks.map(|lacks| {
            self.segments.insert(segment, lacks.sums());
            lacks.message(place)
        }))
    }

    /// Somebody asked for what is missing here.
    pub(crate) fn wish(&mut self, segment: u64, missing: &[(u64, u64)]) {
        if !self.gets {
            return;
        }
        for (offset, bytes) in missing {
            let wish = (segment, *offset, *bytes);
            if self.wishes.len() < WISHES_MAX && !self.wishes.contains(&wish) {
                self.wishes.push_back(wish);
            }
        }
    }

    /// Has the source want what others have asked for.
    pub(crate) fn pass_on(&mut self, source: &dyn Source) {
        let wishes = std::mem::take(&mut self.wishes);
        for wish in wishes {
            let (segment, offset, bytes) = wish;
            // What is refused because too much is asked for already is wanted later.
            if !source.wish(segment, offset, bytes) {
                self.wishes.push_back(wish);
            }
        }
    }

    /// What has changed since it was told; each is told if `may` says so, or else the next time.
    pub(crate) fn changes(
        &mut self,
        source: &dyn Source,
        held: &HeldState,
        may: &mut dyn FnMut(&Message) -> bool,
    ) -> Result<Vec<Message>> {
        let mut out = Vec::new();
        let changes = source.changes();
        if self.looked_at == Some(changes) {
            return Ok(out);
        }
        let known: Vec<_> = self.segments.iter().map(|(s, told)| (*s, *told)).collect();
        for (segment, told) in known {
            let lacks = Lacks::of(source, held, segment, self.otherwise())?;
            let Some(lacks) = lacks else {
                self.segments.remove(&segment);
                self.wishes.retain(|(of, ..)| *of != segment);
                continue;
            };
            let now = lacks.sums();
            if now == told {
                continue;
            }
            let is_whole = lacks.holes.is_empty();
            let first = lacks.holes.first().map_or(0, |hole| hole.from);
            let message = lacks.message(first);
            if !may(&message) {
                return Ok(out);
            }
            match is_whole {
                true => drop(self.segments.remove(&segment)),
                false => drop(self.segments.insert(segment, now)),
            }
            out.push(message);
        }
        self.looked_at = Some(changes);
        Ok(out)
    }
}
