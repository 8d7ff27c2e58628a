//! What a source that is a copy has told of what it lacks, so that it tells again when that has
//! changed; and what it was asked for and wants itself since.
//!
//! Invariants: what is told is as of the newest state; nothing is told of segments that nobody
//! asked for, and nothing twice. What is wanted for others is bounded.
//! Concurrency: plain data.
//! Failure: what is lost on its way is asked for again by the other side, in its time.

use crate::message::Message;
use crate::source::Source;
use crate::wide::wide;
use headwater_engine::{ErrorKind, HeldState, Result};
use std::collections::{BTreeMap, VecDeque};

/// Holes of one message, at the most.
const HOLES_MAX: usize = 4096;
/// What a message of holes takes, and each of them, about.
const MESSAGE_BYTES: u64 = 40;
const HOLE_BYTES: u64 = 10;
/// Ranges that wait for being wanted here, at the most.
const WISHES_MAX: usize = 256;

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// By segment: bytes that it is long, and bytes of it that are missing.
    segments: BTreeMap<u64, (u64, u64)>,
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

fn length(held: &HeldState, segment: u64) -> Option<u64> {
    let mut all = held.state().segments();
    all.find(|s| s.id == segment).map(|s| s.bytes)
}

/// The parts of a segment that are missing; `None` when it is named no more.
fn missing(held: &HeldState, segment: u64) -> Result<Option<(u64, Vec<(u64, u64)>)>> {
    let Some(bytes) = length(held, segment) else {
        return Ok(None);
    };
    match held.missing(segment, 0, bytes) {
        Ok(missing) => Ok(Some((bytes, missing))),
        Err(error) if error.kind() == ErrorKind::Gone => Ok(None),
        Err(error) => Err(error),
    }
}

fn sum(missing: &[(u64, u64)]) -> u64 {
    missing.iter().map(|(_, bytes)| bytes).sum()
}

impl Told {
    /// Forgets what was told: to somebody else.
    pub(crate) fn begin_anew(&mut self) {
        self.segments.clear();
        self.wishes.clear();
    }

    /// What a segment lacks, around a place that was asked for.
    pub(crate) fn tell(
        &mut self,
        held: &HeldState,
        segment: u64,
        around: u64,
    ) -> Result<Option<Message>> {
        let Some((bytes, missing)) = missing(held, segment)? else {
            return Ok(None);
        };
        self.segments.insert(segment, (bytes, sum(&missing)));
        Ok(Some(self.message(segment, (bytes, &missing), around)))
    }

    fn message(&self, segment: u64, (bytes, missing): (u64, &[(u64, u64)]), at: u64) -> Message {
        let holes = missing.iter().map(|(at, bytes)| (*at, at + bytes));
        let (mut from, mut until) = (0, bytes);
        let mut holes: Vec<(u64, u64)> = match missing.len() > HOLES_MAX {
            false => holes.collect(),
            true => {
                let found: Vec<_> = holes.filter(|(_, end)| *end > at).collect();
                from = found.first().map_or(at, |(first, _)| at.min(*first));
                found
            }
        };
        if holes.len() > HOLES_MAX {
            holes.truncate(HOLES_MAX);
            until = holes.last().map_or(bytes, |(_, end)| *end);
        }
        Message::Holes {
            segment,
            from,
            until,
            holes,
            on_request: self.gets,
        }
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
        held: &HeldState,
        may: &mut dyn FnMut(&Message) -> bool,
    ) -> Result<Vec<Message>> {
        let mut out = Vec::new();
        let known: Vec<_> = self.segments.iter().map(|(s, told)| (*s, *told)).collect();
        for (segment, told) in known {
            let Some((bytes, missing)) = missing(held, segment)? else {
                self.segments.remove(&segment);
                self.wishes.retain(|(of, ..)| *of != segment);
                continue;
            };
            let now = (bytes, sum(&missing));
            if now == told {
                continue;
            }
            let first = missing.first().map_or(0, |(at, _)| *at);
            let message = self.message(segment, (bytes, &missing), first);
            if !may(&message) {
                break;
            }
            match missing.is_empty() {
                true => drop(self.segments.remove(&segment)),
                false => drop(self.segments.insert(segment, now)),
            }
            out.push(message);
        }
        Ok(out)
    }
}
